"""What the wiring decides by itself."""

import pytest

from codezero.config import ExternalConfig, NodeConfig
from codezero.wiring import pulled_groups


@pytest.mark.parametrize(
    ("told", "pulled"),
    [(ExternalConfig(), 32), (ExternalConfig(policy="off"), 0), (ExternalConfig(groups=0), 0)],
    ids=["default", "off", "none"],
)
def test_nothing_is_pulled_that_nobody_learns_from(told: ExternalConfig, pulled: int) -> None:
    assert pulled_groups(NodeConfig(external=told)) == pulled
