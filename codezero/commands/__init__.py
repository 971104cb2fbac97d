"""What each command takes and does: a file for each group of them.

Settings are checked before torch, hivemind or web3 is imported: whatever is heavy is imported inside a function.
"""
