"""What the page expects of the server is what the server's types are, and what it answers whatever is asked."""

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from builders.api_server import Served, played, served
from builders.market import ended_game, small_ledger
from hypothesis import given, settings
from hypothesis import strategies as st

from codezero.inspection.market import GamePage, GamesPage, MarketView
from codezero.inspection.status import LogTail, RunCheckpoints
from codezero.monitor.run_types import Health, Leaderboard, Rollout, RolloutPage, Runs, RunSettings, RunView

GAME = ended_game(0).id.hex()
SCRIPT = Path(__file__).parents[3] / "scripts" / "page_contract.py"
ANSWERS: dict[str, Any] = {
    "/api/runs": Runs, "/api/runs/{}": RunView, "/api/runs/{}/rollouts": RolloutPage,
    "/api/runs/{}/rollouts/3": Rollout, "/api/runs/{}/leaderboard": Leaderboard, "/api/runs/{}/settings": RunSettings,
    "/api/runs/{}/log": LogTail, "/api/runs/{}/checkpoints": RunCheckpoints, "/api/runs/{}/market": MarketView,
    "/api/runs/{}/market/games": GamesPage, f"/api/runs/{{}}/market/games/{GAME}": GamePage, "/healthz": Health,
}  # fmt: skip


def test_the_page_expects_what_the_server_sends() -> None:
    spec = importlib.util.spec_from_file_location("page_contract", SCRIPT)
    assert spec and spec.loader
    page_contract = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(page_contract)
    for file, types in page_contract.CONTRACTS.items():
        assert (page_contract.FOLDER / file).read_text() == page_contract.contract(types), (
            "run scripts/page_contract.py"
        )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    base = tmp_path_factory.mktemp("schema")
    played(base / "one", 12).close("asked to stop")
    small_ledger(base / "one")
    with served(base) as running:
        yield running


@pytest.mark.parametrize("path", ANSWERS)
def test_answers_are_of_their_type(site: Served, path: str) -> None:
    answer = site.get(path.format("one"))
    assert answer.status == 200
    shown = msgspec.json.decode(answer.body, type=ANSWERS[path])
    assert json.loads(msgspec.json.encode(shown)) == answer.json


@given(
    path=st.sampled_from([*ANSWERS, "/api/runs/{}/events", "/metrics"]),
    key=st.sampled_from(["one", "two"]) | st.text(min_size=1),
    query=st.dictionaries(st.sampled_from(["before", "limit", "peer", "mine"]) | st.text(), st.text() | st.integers()),
)
@settings(max_examples=200, deadline=None)
def test_whatever_is_asked_is_answered_in_form(site: Served, path: str, key: str, query: dict[str, Any]) -> None:
    """The stream of a run that exists never ends; test_api_events.py reads it."""
    run = quote("two" if "events" in path and key == "one" else key, safe="", errors="replace")
    pairs = [f"{quote(name, safe='', errors='replace')}={quote(str(query[name]), errors='replace')}" for name in query]
    answer = site.get(path.format(run) + "?" * bool(pairs) + "&".join(pairs))
    assert answer.status in (200, 400, 404)
    if answer.status == 400 or (answer.status == 404 and "content-type: application/json" in str(answer.headers)):
        assert set(answer.json) == {"error"}
