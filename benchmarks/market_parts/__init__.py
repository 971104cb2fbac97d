"""What `market.py` measures: mechanisms on simulated beliefs, games of the embedded models, and what attackers gain."""
