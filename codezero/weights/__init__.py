"""Versions of a policy: exact deltas, whole anchors, and how they travel."""

MANIFEST, MAX_MANIFEST = "versions.json", 1 << 20
"""The file that lists them, and its bytes at most."""
TOKEN = "CODEZERO_ROLLOUT_TOKEN"
"""Environment variable with the bearer token between the node and the machines that decode for it."""
SOURCE = "CODEZERO_ROLLOUT_WEIGHTS"
"""And of a vLLM server: where the versions are."""
