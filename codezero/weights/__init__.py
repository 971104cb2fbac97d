"""Versions of a policy: exact deltas, whole anchors, and how they travel."""

TOKEN = "CODEZERO_ROLLOUT_TOKEN"  # environment variable: bearer token between the node and machines that decode for it
SOURCE = "CODEZERO_ROLLOUT_WEIGHTS"  # environment variable of a vLLM server: the folder or address of the versions
