"""The data API over HTTP: what it answers, and what it refuses whoever asks."""

from pathlib import Path

import pytest
from builders.api_server import OTHER, Served, played, served
from builders.market import small_ledger
from builders.monitor import GOOD, PEER

from codezero.inspection.leaderboard import PeerPoints, PointsBoard, board_page
from codezero.monitor.text import readable_name

HOSTILE = '<img src=x onerror="alert(1)">\u202eevil\x1b[2J</script>' + "x" * 1_000_000


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory):
    base = tmp_path_factory.mktemp("api") / "runs"
    played(base / "older", 3).close("asked to stop")
    played(base / "swarm" / "node-1", 2).close("asked to stop")
    played(base / "one", 20, GOOD, HOSTILE).close("max_iterations reached")
    (base.parent / "run.json").write_text("{}")  # what lies above the base is no run of it
    with served(base) as running:
        yield running


def test_runs_are_listed_the_one_written_last_first(site: Served) -> None:
    listed = site.get("/api/runs").json["runs"]
    assert [run["run"] for run in listed] == ["one", "swarm~node-1", "older"]
    assert listed[0]["iteration"] == 20 and listed[0]["running"] is False
    assert listed[0]["name"] == readable_name(PEER)
    assert [run["fleet"] for run in listed] == ["", "swarm", ""]
    assert (listed[0]["state"], listed[0]["start"], listed[0]["now"]) == ("ended", 0.2, 0.5)
    assert listed[0]["sparkline"] == [0.2, 0.5, 0.5] and listed[0]["delta"] == pytest.approx(0.3)


@pytest.mark.parametrize("key", ["one", "swarm~node-1", "swarm%7Enode-1"])
def test_a_run_is_found_by_its_key(site: Served, key: str) -> None:
    assert site.get(f"/api/runs/{key}").json["peer_id"] == PEER


def test_a_view_holds_what_the_run_measured(site: Served) -> None:
    view = site.get("/api/runs/one").json
    assert (view["iteration"], view["stopped"], view["running"]) == (20, "max_iterations reached", False)
    assert view["facts"] == {"swarm": "hivemind", "solver": "nano"}
    assert [exam["average"] for exam in view["exams"]] == [0.2, 0.5, 0.5]
    assert [level["mean"] for level in view["difficulty"]] == pytest.approx([0.8, 0.7, 0.6, 0.5, 0.4])
    assert view["series"]["reward"][-1] == [20, 0.5] and view["latest"]["judge_auroc"] == 0.97
    assert [(played["number"], played["iterations"]) for played in view["rounds"]] == [(2, 1), (1, 10), (0, 9)]


REFUSED = {
    400: [
        "/api/runs/..", "/api/runs/%2e%2e", "/api/runs/..%2frun.json", "/api/runs/..~..", "/api/runs/one%00",
        "/api/runs/one%0a", "/api/runs/%2fetc", "/api/runs/" + "a" * 201, "/api/runs/on%C3%A9", "/api/runs?x=1",
        "/api/runs/one?x=1", "/api/runs/one/rollouts?limit=0", "/api/runs/one/rollouts?limit=101",
        "/api/runs/one/rollouts?limit=5&limit=6", "/api/runs/one/rollouts?limit=%D9%A5",
        "/api/runs/one/rollouts?limit=1.5", "/api/runs/one/rollouts?before=-1",
        "/api/runs/one/rollouts?before=99999999999999999999", "/api/runs/one/rollouts?mine=maybe",
        "/api/runs/one/rollouts?level=6", "/api/runs/one/rollouts?status=%27%20OR%201", "/api/runs/one/log?x=1",
        "/api/runs/one/rollouts?peer=%27%20OR%201", "/api/runs/one/rollouts?peer=", "/api/runs/one/rollouts?%ff=%fe",
        "/api/runs/one/rollouts/0", "/api/runs/one/rollouts/x", "/api/runs/one/market?x=1",
        "/api/runs/one/market/games?limit=101", "/api/runs/one/market/games/..", "/api/runs/one/market/games/ABCD",
        "/healthz?x",
    ],
    404: [
        "/api/runs/../one", "/api/runs/one~..~older", "/api/runs/" + "a" * 200, "/api/runs/one~checkpoints",
        "/api/runs/ONE", "/api/runs/none/log", "/api/runs/one/rollouts/9007199254740991", "/api/runs/none/rollouts",
        "/api/runs/none/rollouts/1", "/api/runs/none/leaderboard", "/api/runs/none/market",
        "/api/runs/one/market/games/abcd", "/api/runs/none/events",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("path", "status"), [(path, status) for status in REFUSED for path in REFUSED[status]])
def test_what_is_not_as_described_is_refused(site: Served, path: str, status: int) -> None:
    answer = site.get(path)
    assert answer.status == status
    if status == 400:
        (line,) = answer.json["error"].splitlines()
        assert len(line) <= 500


def test_rollouts_are_filtered(site: Served) -> None:
    asked = {"mine=true": 20, "mine=false": 0, "level=3&status=judged": 20, "level=2": 0, "status=quarantined": 0}
    for query, count in (asked | {f"peer={OTHER}": 0}).items():
        assert len(site.get(f"/api/runs/one/rollouts?limit=100&{query}").json["rollouts"]) == count, query


def test_a_hostile_attempt_is_text_of_bounded_size(site: Served) -> None:
    page = site.get("/api/runs/one/rollouts?limit=2").json
    assert len(page["rollouts"]) == 2 and page["older"] == page["rollouts"][1]["id"]
    number = page["rollouts"][0]["id"]
    answer = site.get(f"/api/runs/one/rollouts/{number}")
    texts = [attempt["text"] for attempt in answer.json["attempts"]]
    assert texts[0] == GOOD and texts[1].startswith('<img src=x onerror="alert(1)">\u202eevil\x1b[2J</script>xxx')
    assert answer.headers["content-type"] == "application/json" and len(answer.body) < 40_000


def test_other_methods_are_refused(site: Served) -> None:
    assert {site.get(path, "POST").status for path in ("/api/runs", "/api/runs/one/events", "/healthz")} == {405}
    assert site.get("/api/runs/one/events", "HEAD").status == 405
    assert site.get("/api/runs/one", "HEAD").status == 200


def test_a_folder_that_is_a_run_is_the_only_one(tmp_path: Path) -> None:
    played(tmp_path / "my run (old)", 2).close("asked to stop")
    with served(tmp_path / "my run (old)") as site:
        (line,) = site.get("/api/runs").json["runs"]
        assert line["run"].startswith("run-my-run--old--")
        assert site.get(f"/api/runs/{line['run']}").json["iteration"] == 2


def test_without_any_run_the_list_is_empty_and_all_is_well(tmp_path: Path) -> None:
    with served(tmp_path) as site:
        assert site.get("/api/runs").json == {"runs": []}
        assert site.get("/healthz").json["healthy"] is True
        assert b"codezero_healthy 1.0" in site.get("/metrics").body


def test_a_file_that_cannot_be_read_is_said_to_be_so(tmp_path: Path) -> None:
    played(tmp_path / "one", 2).close("asked to stop")
    (tmp_path / "one" / "rollouts.db").write_bytes(b"junk" * 500)
    with served(tmp_path) as site:
        answer = site.get("/api/runs/one/rollouts")
        assert answer.status == 503 and "rollouts.db cannot be read" in answer.json["error"]
        assert site.get("/api/runs/one").status == 200


def test_the_leaderboard_is_what_the_chain_says_or_why_not(tmp_path: Path) -> None:
    played(tmp_path / "one", 1).close("asked to stop")
    greedy = PeerPoints(owner="0x1", points=10**30, rounds=1, votes=0, last_round=2)
    peers = {PEER: PeerPoints(owner="0x2", points=5, rounds=2, votes=1, last_round=3), OTHER: greedy}
    board = PointsBoard(chain_id=7, contract="0xabc", round=4, peers=peers)
    with served(tmp_path, board=lambda: board_page(board)) as site:
        shown = site.get("/api/runs/one/leaderboard").json
        lines = [(line["peer_id"], line["points"], line["mine"]) for line in shown["peers"]]
        assert lines == [(OTHER, 2**53 - 1, False), (PEER, 5, True)]
        assert (shown["chain_id"], shown["round"], shown["problem"]) == (7, 4, "")
    with served(tmp_path) as site:
        assert site.get("/api/runs/one/leaderboard").json["problem"] == "there is no chain here"


def test_a_market_is_shown_or_why_there_is_none(site: Served, tmp_path: Path) -> None:
    assert site.get("/api/runs/one/market").json["why"].endswith("market.enabled=false")
    assert site.get("/api/runs/one/market/games").json == {"games": [], "older": None}
    played(tmp_path / "one", 1).close("asked to stop")
    game = small_ledger(tmp_path / "one")[0].id.hex()
    with served(tmp_path) as there:
        assert len(there.get("/api/runs/one/market").json["settled"]) == 3
        assert there.get(f"/api/runs/one/market/games/{game[:8]}").json["line"]["id"] == game
        (tmp_path / "one" / "market.sqlite").write_bytes(b"junk" * 500)
        assert there.get("/api/runs/one/market/games").status == 503


def test_prometheus_gets_each_running_node_and_the_newest_run(tmp_path: Path) -> None:
    played(tmp_path / "ended", 2).close("asked to stop")
    running = [played(tmp_path / name, 1) for name in ("a", "b")]
    with served(tmp_path) as site:
        answer = site.get("/metrics")
    for each in running:
        each.close("asked to stop")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    text = answer.body.decode()
    assert 'codezero_iteration{run="a"} 1.0' in text and 'codezero_iteration{run="b"} 1.0' in text
    assert 'run="ended"' not in text
