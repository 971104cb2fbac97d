"""What one test imports must not change what another sees."""

import logging

import pytest
from hypothesis import settings

settings.register_profile("codezero", deadline=None)  # machines are busy; a test never asserts a duration
settings.load_profile("codezero")


@pytest.fixture(autouse=True)
def level_names() -> None:
    """hivemind renames WARNING for the whole process at its import; nodes import it in a process of its own."""
    logging.addLevelName(logging.WARNING, "WARNING")
