"""Sinks of measurements: real libraries; and one that fails, hangs or is missing.

Does not show that the services at the other end take what is sent.
"""

import contextlib
import importlib
import logging
import os
import socket
import threading
from pathlib import Path

import pytest
from builders.monitor import read_metrics

from codezero.config import MonitorConfig, NodeConfig
from codezero.errors import ConfigError
from codezero.monitor.monitor import RunMonitor
from codezero.monitor.sinks import (
    MOST_WAITING,
    BackgroundSink,
    Observe,
    Sink,
    close_all,
    wandb_sink,
)
from codezero.types import Metrics
from codezero.wiring.hardware import check_extras

FACTS = {"peer": "QmPeer", "solver": "nano"}
ROW: Metrics = {"iteration": 3, "reward/mean": 0.5, "train/loss": None, "eval/source": "executed", "odd key": 2}


class Kept(contextlib.AbstractContextManager[Observe]):
    def __init__(self) -> None:
        self.rows: list[Metrics] = []
        self.closed = False

    def __enter__(self) -> Observe:
        return self.observe

    def observe(self, row: Metrics, seconds: float) -> None:
        self.rows.append(row)

    def __exit__(self, kind: object, *_: object) -> None:
        self.closed = kind is None


def monitored(folder: Path, *sinks: BackgroundSink) -> RunMonitor:
    return RunMonitor(folder=folder, view="off", identity="QmPeer", swarm_kind="local", facts={}, sinks=sinks)


def test_every_sink_gets_every_row_and_is_closed(tmp_path: Path) -> None:
    kept = [Kept(), Kept()]
    begun: list[int] = []

    def make(one: Kept, iteration: int) -> Sink:
        begun.append(iteration)
        return one

    sinks = [BackgroundSink(str(at), lambda iteration, one=one: make(one, iteration)) for at, one in enumerate(kept)]
    monitor = monitored(tmp_path, *sinks)
    monitor.started(0)
    for iteration in range(1, 4):
        monitor.observe(iteration, {"reward/mean": 0.1 * iteration}, [])
    close_all(sinks, 60.0)  # a busy machine may need more than a node would wait
    monitor.close("asked to stop")
    monitor.close("asked to stop")
    assert begun == [0, 0]
    assert all([row["iteration"] for row in one.rows] == [1, 2, 3] and one.closed for one in kept)


@pytest.mark.parametrize("error", [ValueError("no such project"), SystemExit(1)], ids=["error", "exit"])
@pytest.mark.parametrize("when", ["make", "observe", "close"])
def test_a_sink_that_fails_is_one_warning_and_costs_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, when: str, error: BaseException
) -> None:
    class Failing(Kept):
        def observe(self, row: Metrics, seconds: float) -> None:
            if when == "observe":
                raise error

        def __exit__(self, kind: object, *_: object) -> None:
            if when == "close" and kind is None:
                raise error

    def make(_: int) -> Sink:
        if when == "make":
            raise error
        return Failing()

    monitor = monitored(tmp_path, BackgroundSink("Broken", make))
    monitor.started(0)
    for iteration in range(1, 30):
        monitor.observe(iteration, {"reward/mean": 0.5}, [])
    monitor.close("asked to stop")
    warned = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert warned == [f"Broken: {type(error).__name__}: {error}; training goes on without it"]
    assert len(read_metrics(tmp_path / "metrics.jsonl")) == 29


def test_a_sink_that_hangs_drops_rows_and_delays_nothing(caplog: pytest.LogCaptureFixture) -> None:
    released, holding = threading.Event(), threading.Event()

    class Hanging(Kept):
        def observe(self, row: Metrics, seconds: float) -> None:
            holding.set()
            released.wait()

    sink = BackgroundSink("Slow", lambda _: Hanging())
    sink.start(0)
    sink.observe(ROW)
    holding.wait()
    for _ in range(MOST_WAITING + 7):
        sink.observe(ROW)
    assert sink.dropped == 7
    thread = next(one for one in threading.enumerate() if one.name == "sink-Slow")
    close_all([sink], 0.1)
    assert sum("is too slow" in one.getMessage() for one in caplog.records) == 1
    assert sum("did not take everything" in one.getMessage() for one in caplog.records) == 1
    released.set()
    assert thread.daemon


def test_wandb_offline_keeps_a_run_without_account_or_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(
        "wandb", reason="the extra `wandb` is not installed; it is too large for the tests' environment"
    )
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "mine"
    folder.mkdir()
    sink = BackgroundSink("W&B", lambda _: wandb_sink("team/project", FACTS, folder, tmp_path / "logs"))
    sink.start(0)
    sink.observe(ROW)
    close_all([sink], 300.0)
    (kept,) = (tmp_path / "logs" / "wandb").glob("offline-run-*/run-*.wandb")
    data = kept.read_bytes()
    assert all(word in data for word in (b"reward/mean", b"QmPeer", b"mine", b"nano"))
    own = (str(tmp_path).encode(), b"test_sinks", socket.gethostname().encode() + b"\x8a")
    assert not any(word in data for word in own) and b"codezero" in data


MODES = [("", "", "offline"), ("key", "", "online"), ("", "disabled", "disabled"), ("key", "disabled", "disabled"),
         ("key", "offline", "offline"), ("", "online", "offline")]  # fmt: skip
FAKE = """
class Settings:
    def __init__(self, **_): pass
class Run:
    def finish(self): pass
def init(**settings):
    print(settings["mode"], settings["resume"], flush=True)
    return Run()
"""


@pytest.mark.parametrize(("key", "wanted", "mode"), MODES)
def test_the_users_mode_is_kept_and_without_a_key_nothing_is_sent(
    key: str, wanted: str, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wandb.py").write_text(FAKE)
    for name, value in (("PYTHONPATH", str(tmp_path)), ("WANDB_API_KEY", key), ("WANDB_MODE", wanted)):
        monkeypatch.setenv(name, value)
    with wandb_sink("project", FACTS, tmp_path, tmp_path / "logs"):
        pass
    assert (tmp_path / "logs" / "wandb.log").read_text().split() == [mode, "allow" if mode == "online" else "None"]


def test_a_wandb_process_that_dies_is_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "wandb.py").write_text("raise SystemExit('no wandb today')")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'broken'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    sink = BackgroundSink("W&B", lambda _: wandb_sink("project", FACTS, tmp_path, tmp_path / "logs"))
    sink.start(0)
    for _ in range(100):
        sink.observe(ROW)
    close_all([sink], 60.0)
    (warned,) = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert "EndpointError: its process ended with 1; see" in warned
    assert "no wandb today" in (tmp_path / "logs" / "wandb.log").read_text()


def test_what_is_not_installed_is_refused_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    message = "monitor.wandb=x: wandb is not installed; run .* --extra wandb`, or drop it$"
    with pytest.raises(ConfigError, match=message):
        check_extras(NodeConfig(monitor=MonitorConfig(wandb="x")))


def test_nothing_is_needed_when_nothing_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    check_extras(NodeConfig())
