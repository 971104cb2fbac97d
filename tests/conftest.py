"""What one test imports must not change what another sees."""

import logging
import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

LONG = {
    "test_browser_live", "test_connectivity", "test_data_node", "test_found_and_join", "test_hostile_peer",
    "test_interrupt", "test_measured_policy", "test_no_execution", "test_outage", "test_ranks", "test_real_models",
    "test_resume", "test_run", "test_two_nodes",
}  # fmt: skip
"""Files whose tests run whole nodes, for a minute or more."""

ROOT = str(Path(__file__).parents[1])
sys.path.insert(0, ROOT)  # the tree that these tests lie in, wherever codezero is installed from
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (ROOT, os.environ.get("PYTHONPATH"))))
os.environ["CODEZERO_LOCAL"] = ""  # whose machine this is has settings of their own, for nodes and not for tests

settings.register_profile("codezero", deadline=None)  # machines are busy; a test never asserts a duration
settings.load_profile("codezero")


@pytest.fixture(autouse=True)
def level_names() -> None:
    """hivemind renames WARNING for the whole process at its import; nodes import it in a process of its own."""
    logging.addLevelName(logging.WARNING, "WARNING")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long files first: a core that got one last would go on while the others have nothing left."""
    items.sort(key=lambda item: item.path.stem not in LONG)
