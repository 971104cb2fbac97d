"""What the page expects of the server is what the server's types are, and what it answers whatever is asked."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from builders.api_server import Served, played, served
from builders.market import played as played_game
from builders.market import small_ledger
from hypothesis import given, settings
from hypothesis import strategies as st

from codezero.inspection.market_types import GamePage, GamesPage, MarketView
from codezero.inspection.run_details import LogTail, RunCheckpoints, RunSettings
from codezero.login.login import LoginState
from codezero.login.routes import PasskeyOptions
from codezero.monitor.run_types import Health, Leaderboard, Rollout, RolloutPage, Runs, RunView

CONTRACTS = Path(__file__).parents[3] / "modal-login" / "src" / "api"
GAME = played_game(80, "question 0").id.hex()
ANSWERS: dict[str, Any] = {
    "/api/runs": Runs,
    "/api/runs/{}": RunView,
    "/api/runs/{}/rollouts": RolloutPage,
    "/api/runs/{}/rollouts/3": Rollout,
    "/api/runs/{}/leaderboard": Leaderboard,
    "/api/runs/{}/settings": RunSettings,
    "/api/runs/{}/log": LogTail,
    "/api/runs/{}/checkpoints": RunCheckpoints,
    "/api/runs/{}/market": MarketView,
    "/api/runs/{}/market/games": GamesPage,
    f"/api/runs/{{}}/market/games/{GAME}": GamePage,
    "/healthz": Health,
}


def check(schema: dict[str, Any]) -> str:
    """How `check.ts` writes a JSON schema."""
    match schema:
        case {"$ref": reference}:
            return reference.rpartition("/")[2]
        case {"anyOf": [inner, {"type": "null"}]}:
            return f"maybe({check(inner)})"
        case {"enum": [*values, None]}:
            return f"maybe({check({'enum': values})})"
        case {"enum": values}:
            return f"oneOf({', '.join(json.dumps(value) for value in values)})"
        case {"type": "array", "prefixItems": _}:
            return "point"
        case {"type": "array", "items": items}:
            return "series" if check(items) == "point" else f"list({check(items)})"
        case {"type": "object", "additionalProperties": dict(values)}:
            return f"table({check(values)})"
        case {"type": kind}:
            return {
                "integer": "number",
                "number": "number",
                "string": "text",
                "boolean": "flag",
                "object": "anyObject",
            }[kind]
        case _:
            raise AssertionError(schema)


@pytest.mark.parametrize(
    ("file", "types"),
    [
        ("contract.ts", [RunView, Runs, RolloutPage, Rollout, Leaderboard, RunSettings, LogTail, RunCheckpoints]),
        ("market_contract.ts", [MarketView, GamesPage, GamePage]),
        ("login_contract.ts", [LoginState, PasskeyOptions]),
    ],
)
def test_page_and_server_agree_on_every_field(file: str, types: list[Any]) -> None:
    source = (CONTRACTS / file).read_text().replace("...METHODS", '"passkey", "passphrase"')
    expected = {
        name: dict(re.findall(r"(\w+): (.+?),?(?:\n|$| (?=\w+:))", body.strip()))
        for name, body in re.findall(r"export const (\w+) = object\(\{(.*?)\}\);", source, re.DOTALL)
    }
    _, components = msgspec.json.schema_components(types)
    assert {
        name: {field: check(schema) for field, schema in component["properties"].items()}
        for name, component in components.items()
    } == expected


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
