"""What `card.py` measures on one card, a file for each kind of question."""
