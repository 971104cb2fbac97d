"""What the attacks that run hivemind in the tests' own process leave behind."""

import gc
import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture
def left_sockets() -> Iterator[None]:
    """hivemind leaves a socket to its daemon open where a call is cancelled: found here, not in another's test."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
