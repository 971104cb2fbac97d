"""A page that nobody has claimed yet, an authenticator that could, and the page that it has claimed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from builders.login import Page, page
from fakes.authenticator import Authenticator


@pytest.fixture
def tab(tmp_path: Path) -> Iterator[Page]:
    with page(tmp_path) as tab:
        yield tab


@pytest.fixture
def key() -> Authenticator:
    return Authenticator()


@pytest.fixture
def owned(tab: Page, key: Authenticator) -> Page:
    tab.claim_with(key)
    return tab
