"""What `market.py` measures: games of the embedded models, and what attackers gain."""
