"""How `codezero swarm up` waits for its first node: as long as it lives and has something to say."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from codezero.errors import SwarmError
from codezero.ops import fleet
from codezero.ops.fleet import ADDRESSES, FleetNode, founded, newest_output
from codezero.system.child import Child
from codezero.system.signals import Stop

BUSY = "mkdir -p logs; for line in $(seq 40); do echo step $line >>logs/swarm.log; sleep 0.1; done; "
"""Goes on saying something for longer than a silent one is waited for."""


@pytest.fixture
def first(tmp_path: Path) -> Iterator[Callable[[str], FleetNode]]:
    started: list[Child] = []

    def start(script: str) -> FleetNode:
        began = time.time() - 0.1  # a file system's clock may be a tick behind
        started.append(Child(["sh", "-c", f"cd {tmp_path} && {script}"]))
        return FleetNode(tmp_path, began, started[-1])

    yield start
    for process in started:
        process.close()


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "SILENT_SECONDS", 2.0)
    monkeypatch.setattr(fleet, "REPORT_SECONDS", 0.5)


@pytest.mark.slow
def test_a_slow_node_that_goes_on_is_waited_for_and_its_words_are_shown(
    first: Callable[[str], FleetNode], capsys: pytest.CaptureFixture[str]
) -> None:
    member = first(f"{BUSY} echo /ip4/127.0.0.1/tcp/1/p2p/Qm >{ADDRESSES}; sleep 60")
    assert founded(member, Stop()) == ["/ip4/127.0.0.1/tcp/1/p2p/Qm"]
    shown = capsys.readouterr().out.splitlines()
    assert shown and all(line.startswith("codezero: waiting for the first node, ") for line in shown)
    assert "its last words: step " in shown[-1]


def test_one_that_lives_and_says_nothing_is_given_up(first: Callable[[str], FleetNode]) -> None:
    with pytest.raises(SwarmError, match="has said nothing new for 2 s"):
        founded(first("sleep 60"), Stop())


def test_one_that_ends_is_not_waited_for(first: Callable[[str], FleetNode], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "SILENT_SECONDS", 3600.0)
    with pytest.raises(SwarmError, match="ended before it could be joined"):
        founded(first("exit 3"), Stop())


def test_a_wish_to_stop_ends_the_wait(first: Callable[[str], FleetNode]) -> None:
    stop = Stop()
    stop.ask()
    assert founded(first("sleep 60"), stop) == []


def test_addresses_and_words_of_an_earlier_start_do_not_count(
    first: Callable[[str], FleetNode], tmp_path: Path
) -> None:
    (tmp_path / ADDRESSES).write_text("/ip4/127.0.0.1/tcp/2/p2p/Old\n")
    (tmp_path / "output.log").write_text("an old line\n")
    time.sleep(0.5)
    member = first("sleep 60")
    assert newest_output(member) == (member.began, "")
    with pytest.raises(SwarmError):
        founded(member, Stop())


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (b"one\n\x1b[2Jtwo \xff\n\n", "·[2Jtwo \ufffd"),  # which can do nothing to the terminal
        (b"2026-01-02 03:04:05,678 INFO codezero.node the judge is loaded\n", "the judge is loaded"),
    ],
)
def test_of_a_line_only_what_it_says_is_shown(
    output: bytes, words: str, first: Callable[[str], FleetNode], tmp_path: Path
) -> None:
    member = first("sleep 60")
    (tmp_path / "output.log").write_bytes(output)
    assert newest_output(member)[1] == words
