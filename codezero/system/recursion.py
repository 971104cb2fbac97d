"""How deep Python may call itself, whatever a library wished."""

import sys

LIMIT = 1_000
"""As Python begins with."""


def usual_recursion_limit() -> None:
    """To be called once everything is imported that handles accounts: py_ecc, which eth-account imports, sets 100,000,
    with which JSON nested by a stranger overflows the stack and kills the process where it would raise."""
    sys.setrecursionlimit(LIMIT)
