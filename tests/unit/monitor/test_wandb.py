"""Weights & Biases: real, and in place of it a module that records, fails or hangs.

Does not show that the service at the other end takes what is sent."""

import importlib
import logging
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from builders.monitor import read_metrics

from codezero.config import MonitorConfig, NodeConfig
from codezero.errors import ConfigError
from codezero.models.hardware import check_extras
from codezero.monitor import monitor
from codezero.monitor.monitor import MOST_WAITING, RunMonitor, WandbRun
from codezero.types import Metrics

FACTS = {"peer": "QmPeer", "solver": "nano"}
ROW: Metrics = {"iteration": 3, "reward/mean": 0.5, "train/loss": None, "eval/source": "executed", "odd key": 2}


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """In place of wandb: what it is called with."""
    made = SimpleNamespace(started=[], rows=[], finished=0, Settings=lambda **settings: settings)  # pyright: ignore[reportUnknownLambdaType]

    def init(**settings: Any) -> SimpleNamespace:
        made.started.append(settings)
        return made

    def finish() -> None:
        made.finished += 1

    made.init, made.finish = init, finish
    made.log = lambda figures, step: made.rows.append((step, figures))  # pyright: ignore[reportUnknownLambdaType]
    monkeypatch.setitem(sys.modules, "wandb", made)
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    yield made


def played(folder: Path, iterations: int = 3) -> list[Metrics]:
    """The rows of a run of so many iterations."""
    wandb = WandbRun("team/project", FACTS, folder, folder / "logs")
    running = RunMonitor(folder=folder, view="off", identity="QmPeer", facts={"swarm": "local"}, wandb=wandb)
    running.started(0)
    for iteration in range(1, iterations + 1):
        running.observe(iteration, {"reward/mean": 0.5, "eval/source": "executed", "train/loss": None}, [])
    running.close("asked to stop")
    running.close("asked to stop")
    return read_metrics(folder / "metrics.jsonl")


def test_every_row_is_sent_and_the_run_is_ended_once(tmp_path: Path, library: SimpleNamespace) -> None:
    for _ in range(2):
        played(tmp_path)
    assert library.rows == [(at, {"reward/mean": 0.5, "iteration": float(at)}) for at in (1, 2, 3)] * 2
    assert library.finished == 2
    first, resumed = library.started
    assert (first["entity"], first["project"], first["config"]) == ("team", "project", FACTS)
    assert first["id"] == resumed["id"]


@pytest.mark.parametrize("error", [ValueError("no such project"), SystemExit(1)], ids=["error", "exit"])
@pytest.mark.parametrize("when", ["init", "log", "finish"])
def test_a_failure_is_one_warning_and_costs_nothing_else(
    tmp_path: Path, library: SimpleNamespace, caplog: pytest.LogCaptureFixture, when: str, error: BaseException
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    setattr(library, when, fail)
    assert len(played(tmp_path, 29)) == 29
    warned = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert warned == [f"Weights & Biases: {type(error).__name__}: {error}; training goes on without it"]


def test_one_that_hangs_drops_rows_and_delays_nothing(
    tmp_path: Path, library: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitor, "LEAVING_SECONDS", 0.1)
    released = threading.Event()
    init: Callable[..., object] = library.init

    def hang(**settings: Any) -> object:
        released.wait()
        return init(**settings)

    library.init = hang
    assert len(played(tmp_path, MOST_WAITING + 7)) == MOST_WAITING + 7
    thread = next(each for each in threading.enumerate() if each.name == "wandb")
    released.set()
    assert thread.daemon


MODES = [("", "", "offline"), ("key", "", "online"), ("", "disabled", "disabled"), ("key", "disabled", "disabled"),
         ("key", "offline", "offline"), ("", "online", "offline")]  # fmt: skip


@pytest.mark.parametrize(("key", "wanted", "mode"), MODES)
def test_the_users_mode_is_kept_and_without_a_key_nothing_is_sent(
    key: str, wanted: str, mode: str, tmp_path: Path, library: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", key)
    monkeypatch.setenv("WANDB_MODE", wanted)
    played(tmp_path)
    (started,) = library.started
    assert (started["mode"], started["resume"]) == (mode, "allow" if mode == "online" else None)
    assert started["settings"]["finish_timeout"] <= 5.0


def test_offline_a_run_is_kept_without_account_or_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="the extra `wandb` is too large for the tests' environment")
    monkeypatch.setattr(monitor, "LEAVING_SECONDS", 300.0)  # a busy machine may need more than a node would wait
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "mine"
    folder.mkdir()
    sender = WandbRun("team/project", FACTS, folder, tmp_path / "logs")
    sender.start()
    sender.observe(ROW)
    sender.close()
    (kept,) = (tmp_path / "logs" / "wandb").glob("offline-run-*/run-*.wandb")
    data = kept.read_bytes()
    assert all(word in data for word in (b"reward/mean", b"QmPeer", b"mine", b"nano"))
    own = (str(tmp_path).encode(), b"test_wandb", socket.gethostname().encode() + b"\x8a")
    assert not any(word in data for word in own) and b"codezero" in data


def test_what_is_not_installed_is_refused_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    message = "monitor.wandb=x: wandb is not installed; run .* --extra wandb`, or drop it$"
    with pytest.raises(ConfigError, match=message):
        check_extras(NodeConfig(monitor=MonitorConfig(wandb="x")))
    check_extras(NodeConfig())
