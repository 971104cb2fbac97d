"""The log file: no forged line, no flood, no secret, bounded.

Does not show secrets that are neither known to the process nor look like one."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from builders.chain import Scripted, endpoint

from codezero.cli import main
from codezero.errors import SwarmError
from codezero.monitor.build import secrets_of
from codezero.monitor.logs import (
    BACKUPS,
    HIDDEN,
    MARK,
    MAX_BYTES,
    Secrets,
    known_secrets,
    log_survived,
    quiet_libraries,
    setup_logging,
)
from codezero.settings import compose
from codezero.system.files import set_aside

PLANTED = "correct-horse-battery"


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    level = root.level
    yield root
    for handler in [handler for handler in root.handlers if handler.get_name() == MARK]:
        root.removeHandler(handler)
        handler.close()
    root.setLevel(level)


@pytest.mark.usefixtures("root")
def test_foreign_text_forges_no_line_and_a_trace_no_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    setup_logging(tmp_path, Secrets([PLANTED]))
    logging.getLogger("codezero.x").info("peer said %s", f'"hi"\x1b[2J\nERROR forged {PLANTED}')
    try:
        raise SwarmError(f"gone {PLANTED}")
    except SwarmError as error:
        log_survived("alone", error, 1)
    text = (tmp_path / "swarm.log").read_text()
    said, warned, traced, *trace = text.splitlines()
    assert "INFO codezero.x peer said" in said and "forged" in said and HIDDEN in said
    assert warned.endswith(f"alone: gone {HIDDEN}") and traced.endswith("the trace of the first SwarmError: alone")
    assert trace[0].startswith("Traceback") and trace[-1].endswith(f"SwarmError: gone {HIDDEN}")
    assert PLANTED not in text and "\x1b" not in text
    assert capsys.readouterr().err == f"WARNING alone: gone {HIDDEN}\n"


@pytest.mark.usefixtures("root")
def test_warnings_are_shown_once_also_those_of_libraries_with_handlers_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    setup_logging(tmp_path)
    setup_logging(tmp_path)
    library = logging.getLogger("some_library")
    library.addHandler(logging.StreamHandler(sys.stderr))
    library.propagate = False
    quiet_libraries()
    library.warning("of a library")
    logging.getLogger("codezero.x").info("for the file")
    logging.getLogger("codezero.x").warning("for %s", "everybody")
    assert capsys.readouterr().err == "WARNING of a library\nWARNING for everybody\n"
    lines = [line.partition(" ")[2].partition(" ")[2] for line in (tmp_path / "swarm.log").read_text().splitlines()]
    warnings = ["WARNING some_library of a library", "WARNING codezero.x for everybody"]
    assert lines == [warnings[0], "INFO codezero.x for the file", warnings[1]]


def test_an_error_that_comes_again_and_again_does_not_flood(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for times in range(1, 2001):
        log_survived("alone", SwarmError("gone"), times)
    told = [one.getMessage() for one in caplog.records]
    assert told == ["alone: gone", "the trace of the first SwarmError: alone"] + [
        f"alone: gone ({times} times since the start)" for times in (10, 100, 1000)
    ]


@pytest.mark.usefixtures("root")
def test_the_file_and_its_backups_are_bounded(tmp_path: Path) -> None:
    file, _ = setup_logging(tmp_path)
    file.maxBytes = 10_000  # the same handler at a thousandth of its size
    for number in range(2_000):
        logging.getLogger("codezero.x").info("%d %s", number, "x" * 100)
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept == ["swarm.log", *(f"swarm.log.{number}" for number in range(1, BACKUPS + 1))]
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 10_000 * (BACKUPS + 1)
    assert MAX_BYTES * (BACKUPS + 1) <= 40 << 20


def test_what_others_append_to_is_set_aside_when_it_is_large(tmp_path: Path) -> None:
    log = tmp_path / "login.log"
    assert set_aside(log, 3) == log and not log.exists()
    for text, left in (("abc", ["login.log"]), ("abcd", ["login.log.1"])):
        log.write_text(text)
        set_aside(log, 3)
        assert sorted(path.name for path in tmp_path.iterdir()) == left


@pytest.mark.parametrize(
    "text",
    ["https://me:pass@host/x", "Authorization: Bearer abcdefgh.ijk", "hf_abcdefghijklmnopqrstuvwx refused"],
    ids=["login", "bearer", "hub"],
)
def test_what_looks_secret_is_hidden(text: str) -> None:
    hidden = Secrets().hide(text)
    assert HIDDEN in hidden and not {"pass", "abcdefgh"} & set(hidden.replace(".", " ").split())


def test_ordinary_lines_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"SHELL": "/bin/bash", "SHORT_KEY": "abc", "TOKEN": ""})
    line = "pulled 3 groups from QmX via http://127.0.0.1:8000/v1, tx 0x" + "ab" * 32
    assert known_secrets().hide(line) == line


def test_the_settings_say_what_is_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, name in enumerate(("pass", "node.token", "hub", "wallet.json.passphrase")):
        (tmp_path / name).write_text(f"of-a-file-{number}\n")
    monkeypatch.setenv("OPENED_BY", "of-a-variable")
    monkeypatch.setenv("CODEZERO_JUDGE_KEY", "of-the-judge")
    words = [f"chain.passphrase_file={tmp_path}/pass", f"login.directory={tmp_path}", f"hub.token_file={tmp_path}/hub"]
    words += [f"chain.wallet={tmp_path}/wallet.json", "chain.passphrase_variable=OPENED_BY"]
    words += ["chain.rpc_urls=['https://eth.example/v2/of-a-provider-0123?key=of-a-question-0123']"]
    config = compose(words)
    planted = [f"of-a-file-{number}" for number in range(4)]
    planted += ["of-a-variable", "of-the-judge", "of-a-provider-0123", "of-a-question-0123"]
    said = secrets_of(config).hide(" ".join(planted))
    assert said == " ".join([HIDDEN] * len(planted))


def careless(_: object) -> Callable[[Scripted], None]:
    """Refuses everything, and quotes the key that it was asked with."""

    def refuse(handler: Scripted) -> None:
        quote = f"bad key {handler.headers['Authorization']}"
        handler.reply(401, json.dumps({"error": {"message": quote}}).encode(), quote)

    return refuse


@pytest.mark.slow
def test_a_node_writes_no_planted_secret_in_its_logs(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "codezero", "run", "run.max_iterations=1", "run.name=r", "monitor.view=plain"]
    command += ["evaluator.kind=openai", "evaluator.model=x"]
    command += ["login.page=off", "chain.kind=clock", "evals.every=0", "solver.problems_per_iteration=2"]
    command += ["evaluator.canaries=80", "evaluator.seconds=2", "run.max_failures=1"]
    names = ("CODEZERO_JUDGE_KEY", "HF_TOKEN", "WANDB_API_KEY", "CODEZERO_PROPOSER_KEY")
    keys = {name: f"{PLANTED}-{number}" for number, name in enumerate(names)}
    with endpoint(careless) as url:
        command.append(f"evaluator.url={url}")
        done = subprocess.run(command, cwd=tmp_path, env=os.environ | keys, capture_output=True, text=True, timeout=300)
    written = done.stdout + done.stderr + (tmp_path / "logs" / "swarm.log").read_text()
    assert "401" in written and PLANTED not in written


def test_an_address_with_a_password_is_refused_before_it_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "evaluator.kind=openai", f"evaluator.url=http://me:{PLANTED}@127.0.0.1:9"]) == 2
    told = capsys.readouterr()
    assert "evaluator.url must hold no password" in told.err and PLANTED not in told.out + told.err
