"""One view of a run, made of every file that its processes write, or without some: what is not known is not zero.

`codezero runs`: what each has learned, in lines; two side by side; a broken one is a line that says so."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from builders.api_server import OTHER, full_row, monitor
from builders.monitor import PEER, exam_row, row
from builders.swarm import write_status

from codezero.chain.outbox import OutboxStore
from codezero.cli import main
from codezero.errors import ConfigError, UnreadableError
from codezero.inspection import status as inspection
from codezero.inspection.status import RunFiles, compare_runs, list_lines, list_runs, newest_run, parts, read_run
from codezero.monitor.metrics_file import FILE_NAME, MetricsFile
from codezero.monitor.run_types import MAX_PEERS, SettingLine, write_settings
from codezero.ops.fleet import FleetNode, newest_output
from codezero.swarm.network_status import FOLDER, NetworkStatus, PeerLine
from codezero.system.child import is_there, start_of


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "runs" / "one"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text("{}")
    return folder


def play(run: Path, *rows: dict[str, object]) -> None:
    (run / "node.json").write_text(json.dumps({"peer_id": PEER, "pid": os.getpid(), "stopped": None}))
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_run_that_has_not_begun_is_unknown_and_not_zero(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = read_run(run)
    assert (status.view.iteration, status.view.reward, status.submissions, status.view.running) == (*[None] * 3, False)
    view = status.view
    assert (view.name, view.updated, view.outbox) == ("unknown", None, None)
    assert view.series == {} and view.peers == [] and view.difficulty == []
    inspection.print_status(status)
    assert "unknown" in capsys.readouterr().out


def test_what_a_run_wrote_last_is_shown(run: Path) -> None:
    play(
        run,
        {"iteration": 1, "round": 3, "reward/mean": 0.25, "eval/average_at_8": 0.5, "tolerated/ChainError": 0},
        {"iteration": 2, "round": 4, "reward/mean": None, "difficulty/level": 3, "tolerated/SwarmError": 2},
    )
    view = read_run(run).view
    assert (view.iteration, view.round, view.level, view.running) == (2, 4, 3, True)
    assert (view.reward, view.exams[-1].average) == (0.25, 0.5)
    assert view.tolerated == {"SwarmError": 2}


def test_problems_refused_and_wrong_are_shown(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    play(run, {"iteration": 1, "round": 1})
    assert (read_run(run).problems, read_run(run).wrong_value_share) == ({}, None)
    written = {"proposer/written": 3}
    values = {"proposer/values_right": 1, "proposer/values_wrong": 3, "proposer/wrong_value_share": 0.75}
    play(run, {"iteration": 1, "round": 1, "problems/refused_x\x1b[31m": 2} | written | values)
    status = read_run(run)
    assert status.wrong_value_share == 0.75
    inspection.print_status(status)
    shown = capsys.readouterr().out
    assert "75.0 % of 4 executed are wrong" in shown
    assert "\x1b[31m" not in shown


def test_what_stands_in_for_a_data_set_is_said_as_long_as_it_does(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    why = "synthetic problems stand in: mbpp cannot be read: \x1b[31mno hub"
    play(run, {"iteration": 1, "round": 1, "time": 1.0, "problems/stand_ins": "of an earlier start"})
    node(run, pid=os.getpid(), stand_ins=why)  # it has begun and written no row yet
    assert read_run(run).view.stand_ins == why
    inspection.print_status(read_run(run))
    shown = capsys.readouterr().out
    assert "synthetic problems stand in: mbpp cannot be read" in shown and "\x1b[31m" not in shown
    for iteration, lost in ((2, {"problems/stand_ins": "mbpp is lost"}), (3, {})):
        with (run / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({"iteration": iteration, "time": time.time(), **lost}) + "\n")
        assert read_run(run).view.stand_ins == lost.get("problems/stand_ins", "")


def test_submissions_are_counted_with_their_reasons(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    play(run, {"iteration": 1, "round": 1})
    store = OutboxStore(run / "outbox-5-abc.db")
    for round_number in range(3):
        store.add(round_number, round_number, 0.5, None)
        store.seal(round_number)
    first, second, _ = store.pending()
    store.settle(first, "accepted", tx_hash="0x1")
    store.settle(second, "refused", reason="the round has not been opened\x1b[31m")
    store.close()
    sent = read_run(run).submissions
    assert sent and (sent.accepted, sent.pending, sent.refused) == (1, 1, 1)
    inspection.print_status(read_run(run))
    shown = capsys.readouterr().out
    assert "1 accepted, 1 pending, 1 refused" in shown and "1 times: the round has not been opened" in shown
    assert "\x1b[31m" not in shown


def test_the_newest_run_is_taken_or_the_one_that_is_named(run: Path) -> None:
    base = run.parent
    shutil.copytree(run, base / "two")
    os.utime(base / "two" / "run.json", (1, 1))
    assert newest_run(base, "") == run
    assert newest_run(base, "two") == base / "two"
    with pytest.raises(ConfigError, match="three"):
        newest_run(base, "three")
    with pytest.raises(ConfigError, match="codezero run"):
        newest_run(base / "nowhere", "")


KEYS = {
    *("facts", "hindrance", "judge"),
    *("run", "name", "peer_id", "account", "running", "stopped", "problem", "iteration", "round"),
    *("seconds_since_step", "limit_seconds", "reward", "executed", "executed_low", "executed_high"),
    *("executed_samples", "executed_source", "level", "peers", "quarantined", "submissions", "tolerated", "hub"),
    *("problems", "wrong_value_share", "stand_ins", "began", "updated", "supervisor", "attempts", "best"),
}


def test_the_keys_for_programs_stay_the_same(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exam = {"eval/average_at_8": 0.5, "eval/ci_low": 0.4, "eval/ci_high": 0.6, "eval/source": "executed"}
    judge = {f"judge/within_auroc{part}": value for part, value in {"": 0.5, "_low": 0.4, "_high": 0.6}.items()}
    judge |= {"judge/within_auroc_pairs": 120, "judge/unavailable_share": 0.0, "judge/weight": 0.0}
    play(run, {"iteration": 7, "round": 1, **exam, **judge})
    OutboxStore(run / "outbox-5-abc.db").close()
    assert main(["status", "--json", f"run.directory={run.parent}"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert {*shown} == KEYS and shown["iteration"] == 7
    assert main(["status", f"run.directory={run.parent / 'nothing'}"]) == 2
    assert shown["judge"] == "AUROC 0.50 [0.40, 0.60] within groups, of 120 pairs; it has no weight"
    known = {"account", "collecting", "pending", "accepted", "refused", "reasons", "last", "problem"}
    assert {*shown["submissions"]} == known
    assert (shown["executed_samples"], shown["executed_low"], shown["executed_source"]) == (8, 0.4, "executed")


def node(run: Path, **told: Any) -> None:
    (run / "node.json").write_text(json.dumps({"peer_id": PEER, "began": time.time(), "stopped": None} | told))


def test_the_first_line_says_what_is_wrong(run: Path) -> None:
    first, now = {"iteration": 1, "seconds": 1.0, "time": time.time() - 1000}, os.getpid()
    play(run, first)
    assert "running, but no step for 1000 s" in inspection.headline(read_run(run))
    silent = {"attempts/count": 8, "attempts/learned_share": 0.0, "attempts/no_verdict_share": 1.0}
    play(run, first | {"time": time.time(), "attempts/no_verdict_reason": "the judge sleeps"} | silent)
    assert "running, but 100.0 % of the attempts have no verdict (the judge sleeps)" in inspection.headline(
        read_run(run)
    )
    attempts = dict(inspection.status_lines(read_run(run)))["attempts"]
    assert "0.0 % of the attempts learned, — cut off, 100.0 % unjudged: the judge sleeps" in attempts
    play(run, first | {"time": time.time()})
    assert " · running · " in inspection.headline(read_run(run)) and read_run(run).problem == ""
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    node(run, pid=ended.pid)
    assert "not running: the process of the run is gone" in inspection.headline(read_run(run))
    node(run, pid=now, stopped="stopped by an error")
    assert "not running: the run was stopped by an error" in inspection.headline(read_run(run))
    node(run, pid=now, stopped="max_iterations reached")
    assert "not running: max_iterations reached" in inspection.headline(read_run(run)) and read_run(run).problem == ""


def test_another_process_with_the_number_of_a_dead_one_is_not_it(run: Path) -> None:
    mine = start_of(os.getpid())
    assert mine is not None and is_there(os.getpid(), mine) and not is_there(os.getpid(), mine - 1)
    play(run, {"iteration": 1, "time": time.time()})
    node(run, pid=os.getpid(), start_ticks=mine)
    assert read_run(run).view.running
    node(run, pid=os.getpid(), start_ticks=mine - 1)
    assert not read_run(run).view.running


def test_a_wallet_is_made_imported_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "passphrase").write_text("a long enough passphrase\n")
    (tmp_path / "key").write_text("11" * 32)
    for name in ("passphrase", "key"):
        (tmp_path / name).chmod(0o600)
    settings = [f"chain.wallet={tmp_path / 'w.json'}", f"chain.passphrase_file={tmp_path / 'passphrase'}"]
    assert main(["wallet", "import", "--json", "--key-file", str(tmp_path / "key"), *settings]) == 0
    made = json.loads(capsys.readouterr().out)
    assert main(["wallet", "show", "--json", *settings]) == 0
    assert json.loads(capsys.readouterr().out) == made
    assert made["address"] == "0x19E7E376E7C213B7E7e7e46cc70A5dD086DAff2A"
    assert main(["wallet", "create", *settings]) == 2
    assert "never overwritten" in capsys.readouterr().err


def peer_line(peer: str, ago: float, reason: str = "") -> PeerLine:
    return PeerLine(
        peer=peer, heard_seconds_ago=ago, bodies=1, groups=9, size=10, failures={}, penalty=0.5,
        state="quarantined" if reason else "ok", reason=reason,
    )  # fmt: skip


def network(*peers: PeerLine) -> NetworkStatus:
    return NetworkStatus(
        time=1000.0, me=PEER[:46].replace("0", "1"), addresses=["/ip4/127.0.0.1/tcp/1"] * 50, neighbours=3, round=1,
        shards=1, reachable=None, reachability="not known yet", peers=list(peers),
    )  # fmt: skip


def test_what_the_network_and_the_solver_know_of_a_peer_is_put_together(tmp_path: Path) -> None:
    made = monitor(tmp_path)
    made.started(0)
    told = {f"swarm/external_judged/{OTHER}": 4, f"swarm/external_used/{OTHER}": 1}
    made.observe(1, full_row(1) | told, [])
    (tmp_path / FOLDER).mkdir()
    write_status(tmp_path / FOLDER, network(peer_line(OTHER, 10.0), peer_line(OTHER[::-1], 20.0, "sent junk")))
    view = RunFiles(tmp_path).view("one")
    made.close("asked to stop")
    good, bad = view.peers
    assert (good.last_seen, good.groups, good.judged, good.share_used, good.state) == (990.0, 9, 4, 0.25, "ok")
    assert (bad.share_used, bad.state, bad.reason) == (None, "quarantined", "sent junk")
    assert view.network and view.network.neighbours == 3 and len(view.network.addresses) == 32


def test_a_crowd_of_peers_is_bounded(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    alphabet = "123456789ABCDEFGHJKLMNPQRSTUVWXYZ"
    crowd = [peer_line("Qm" + alphabet[n // 32] + alphabet[n % 32] + "a" * 40, float(n)) for n in range(500)]
    write_status(tmp_path / FOLDER, network(*crowd))
    assert len(RunFiles(tmp_path).view("one").peers) == MAX_PEERS


def test_an_outbox_is_shown_with_its_account_or_its_problem(tmp_path: Path) -> None:
    store = OutboxStore(tmp_path / "outbox-5-abc.db", {"account": "0xabc", "peer": PEER})
    store.add(1, 1, 0.5, None)
    store.seal(1)
    store.settle(store.pending()[0], "refused", reason="<b>no</b>")
    store.close()
    view = RunFiles(tmp_path).view("one")
    assert view.account == "0xabc" and view.outbox
    assert (view.outbox.refused, view.outbox.reasons) == (1, {"<b>no</b>": 1})
    (tmp_path / "outbox-5-abc.db").write_bytes(b"junk" * 500)
    view = RunFiles(tmp_path).view("one")
    assert view.account == "" and view.outbox and "cannot be read" in view.outbox.problem


def test_a_run_that_loads_its_models_is_running_already(tmp_path: Path) -> None:
    made = monitor(tmp_path)
    made.busy("loading the libraries")
    view = RunFiles(tmp_path).view("one")
    assert view.running and view.peer_id == PEER and view.limit_seconds > 1_000


@pytest.mark.parametrize(
    "junk", ["", "{", '{"pid": -1}', '{"facts": 3}', '{"facts": {"a": [1]}, "stopped": 5, "began": "x"}', "[" * 9000]
)
def test_a_node_file_of_any_kind_is_survived(tmp_path: Path, junk: str) -> None:
    (tmp_path / "node.json").write_text(junk)
    assert RunFiles(tmp_path).view("one").running is False


def learnt(base: Path, name: str, *averages: float, at: int = 1_000, exam: str = "synthetic", **settings: str) -> Path:
    folder = base / name
    folder.mkdir(parents=True)
    (folder / "run.json").write_text('{"seed": 0}')
    file = MetricsFile(folder)
    for iteration, average in enumerate(averages):
        file.append(row(iteration) | exam_row(iteration, average))
    file.close()
    facts = {"problems": "synthetic:1", "exam": exam}
    (folder / "node.json").write_text(json.dumps({"pid": 1, "began": 1.0, "stopped": "asked to stop", "facts": facts}))
    if settings:
        write_settings(folder, [SettingLine(key, value, "default") for key, value in settings.items()])
    for path in folder.iterdir():
        os.utime(path, (at, at))
    return folder


def test_each_run_is_a_line_with_its_way_and_the_newest_comes_first(tmp_path: Path) -> None:
    learnt(tmp_path, "old", 0.3, 0.348, at=1_000)
    learnt(tmp_path, "new", 0.3, at=2_000)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "run.json").write_text("{}")
    os.utime(tmp_path / "empty" / "run.json", (500, 500))
    head, *lines = list_lines(*list_runs(tmp_path, 20))
    assert head.split()[:3] == ["RUN", "STATE", "ITERATION"]
    assert [" ".join(line.split()[:3]) for line in lines[:3]] == ["new ended 0", "old ended 1", "empty unknown —"]
    assert "30.0 % → 34.8 %" in lines[1] and "+4.8" in lines[1] and lines[1].endswith("synthetic:1")
    assert "no exam yet" in lines[2] and "executed average@8" in lines[3]


def test_pipes_in_the_place_of_a_runs_files_hang_nobody(tmp_path: Path) -> None:
    folder, details = learnt(tmp_path, "piped", 0.3), parts(tmp_path)
    names = ["run.json", "node.json", "settings.json", "rollouts.db", "market.sqlite", "outbox-1-a.db", "hub.json"]
    for name in [*names, "network/status.json", "logs/swarm.log", "output.log", "checkpoints/00000001/manifest.json"]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)
    assert "piped is broken: " in "\n".join(list_lines(*list_runs(tmp_path, 20)))
    assert read_run(folder).view.exams[-1].average == 0.3 and compare_runs(tmp_path, ["piped", "piped"]).runs
    for name in ("settings", "log", "checkpoints", "rollouts", "market", "market/games"):
        with contextlib.suppress(UnreadableError):
            details[name](folder)
    newest_output(cast(FleetNode, SimpleNamespace(began=0.0, folder=folder)))
    (folder / FILE_NAME).unlink()
    os.mkfifo(folder / FILE_NAME)
    with pytest.raises(UnreadableError, match="not a regular file"):
        read_run(folder)
    assert "piped is broken: " in "\n".join(list_lines(*list_runs(tmp_path, 20)))
    with pytest.raises(ConfigError, match="cannot be used"):
        MetricsFile(folder)


def test_a_broken_run_is_one_line_that_says_so_and_the_others_are_shown(tmp_path: Path) -> None:
    learnt(tmp_path, "whole", 0.3)
    (learnt(tmp_path, "torn", 0.3) / "run.json").write_text("{")
    folder = learnt(tmp_path, "odd")
    (folder / "metrics.jsonl").unlink()
    (folder / "metrics.jsonl").mkdir()
    (learnt(tmp_path, "evil", 0.3) / "node.json").write_text('{"facts": {"problems": "\\u001b[2J' + "x" * 900 + '"}}')
    text = "\n".join(list_lines(*list_runs(tmp_path, 20)))
    assert "torn is broken: " in text and "odd is broken: metrics.jsonl cannot be read" in text
    assert "\nwhole" in text and "\x1b" not in text and max(map(len, text.splitlines())) < 400


def test_more_runs_than_asked_for_are_counted_and_their_files_left_alone(tmp_path: Path) -> None:
    for number in range(5):
        learnt(tmp_path, f"r{number}", at=1_000 + number)
    (tmp_path / "r0" / "metrics.jsonl").unlink()
    (tmp_path / "r0" / "metrics.jsonl").mkdir()
    os.utime(tmp_path / "r0" / "metrics.jsonl", (1, 1))
    listed, more = list_runs(tmp_path, 2)
    assert [run.run for run in listed] == ["r4", "r3"] and more == 3
    assert list(list_lines(listed, more))[-1] == "3 older runs not shown; --limit 5 shows them"


def test_two_runs_side_by_side_with_the_settings_in_which_they_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learnt(tmp_path, "a", 0.3, 0.4, **{"seed": "0", "solver.learning_rate": "0.1", "run.name": '"a"'})
    other = learnt(tmp_path, "b", 0.3, 0.5, **{"seed": "0", "solver.learning_rate": "0.2", "run.name": '"b"'})
    result = compare_runs(tmp_path, ["a", str(other)])
    assert result.settings == {"solver.learning_rate": ["0.1", "0.2"]}
    assert main(["runs", "a", "b", "--json", f"run.directory={tmp_path}"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [run["delta"] for run in printed["runs"]] == pytest.approx([0.1, 0.2])
    assert main(["runs", "a", "b", f"run.directory={tmp_path}"]) == 0
    shown = capsys.readouterr().out
    assert "solver.learning_rate  0.1  0.2" in shown and "seed" not in shown and "do not compare" not in shown
    learnt(tmp_path, "c", 0.3, exam="mbpp_test")
    assert main(["runs", "a", "c", f"run.directory={tmp_path}"]) == 0
    assert "the averages do not compare" in capsys.readouterr().out
