"""What one test imports must not change what another sees."""

import logging

import pytest


@pytest.fixture(autouse=True)
def level_names() -> None:
    """hivemind renames WARNING for the whole process at its import; nodes import it in a process of its own."""
    logging.addLevelName(logging.WARNING, "WARNING")
