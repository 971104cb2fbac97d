"""One page about a run, from its files: what is not known is not shown as zero."""

import json
import os
import shutil
from pathlib import Path

import pytest

from codezero.chain.outbox_store import OutboxStore
from codezero.cli import main
from codezero.errors import ConfigError
from codezero.status import newest_run, print_status, read_run

PEER = "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N"


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
    assert (status.iteration, status.reward, status.submissions, status.running) == (None, None, None, False)
    print_status(status)
    assert "unknown" in capsys.readouterr().out


def test_what_a_run_wrote_last_is_shown(run: Path) -> None:
    play(
        run,
        {"iteration": 1, "round": 3, "reward/mean": 0.25, "eval/average_at_8": 0.5, "tolerated/ChainError": 0},
        {"iteration": 2, "round": 4, "reward/mean": None, "difficulty/level": 3, "tolerated/SwarmError": 2},
    )
    status = read_run(run)
    assert (status.iteration, status.round, status.level, status.running) == (2, 4, 3, True)
    assert (status.reward, status.executed) == (0.25, 0.5)
    assert status.tolerated == {"SwarmError": 2}


def test_submissions_are_counted_with_their_reasons(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    play(run, {"iteration": 1, "round": 1})
    store = OutboxStore(run / "outbox-5-abc.db", durable=True)
    for round_number in range(3):
        store.add(round_number, 0.5, None)
        store.seal(round_number)
    first, second, _ = store.unsettled()
    store.settle(first, "accepted", hash="0x1")
    store.settle(second, "refused", reason="the round has not been opened\x1b[31m")
    store.close()
    sent = read_run(run).submissions
    assert sent and (sent.accepted, sent.pending, sent.refused) == (1, 1, 1)
    print_status(read_run(run))
    shown = capsys.readouterr().out
    assert "1 accepted, 1 pending, 1 refused" in shown and "1 times: the round has not been opened" in shown
    assert "\x1b[31m" not in shown


def test_an_outbox_that_cannot_be_read_is_a_problem_and_not_an_absence(run: Path) -> None:
    (run / "outbox-5-abc.db").write_bytes(b"not a database" * 100)
    sent = read_run(run).submissions
    assert sent and "cannot be read" in sent.problem


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


def test_the_command_prints_json_and_tells_what_is_missing(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    play(run, {"iteration": 7, "round": 1})
    assert main(["status", "--json", f"run.directory={run.parent}"]) == 0
    assert json.loads(capsys.readouterr().out)["iteration"] == 7
    assert main(["status", f"run.directory={run.parent / 'nothing'}"]) == 2


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
    assert main(["wallet", "create", *settings]) == 1
    assert "never overwritten" in capsys.readouterr().err
