"""Reset of the recursion limit that py_ecc raises."""

import sys

LIMIT = 1_000
"""Python's default."""


def usual_recursion_limit() -> None:
    """Call this once eth-account is imported: its py_ecc sets 100,000, with which JSON nested by a stranger overflows
    the stack and kills the process where it would raise."""
    sys.setrecursionlimit(LIMIT)
