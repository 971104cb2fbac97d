"""From settings to parts: `node.py` builds a node, and each other module the parts of one role for it."""
