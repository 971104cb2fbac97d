"""A wish to stop is heard at any moment; pauses between tries grow and end."""

import itertools
import signal
import subprocess
import sys
import threading
from types import FrameType

import pytest

from codezero.system.signals import Backoff, Stop, backoff


class Raising:
    """A tracer that raises SIGTERM before one line, counted from 0, of what it traces."""

    def __init__(self, line: int) -> None:
        self.left = line

    def __call__(self, _frame: FrameType, event: str, _arg: object) -> "Raising":
        if event == "line":
            if self.left == 0:
                signal.raise_signal(signal.SIGTERM)
            self.left -= 1
        return self


@pytest.mark.timeout(60)
def test_a_signal_before_any_line_of_a_wait_is_heard() -> None:
    for line in itertools.count():
        stop, tracer, before = Stop(), Raising(line), sys.gettrace()
        with stop.on_signals():
            sys.settrace(tracer)
            stop.wait(0.01)
            sys.settrace(before)
        if tracer.left >= 0:  # the wait has no line after it
            break
        assert stop and stop.received is signal.SIGTERM and stop.wait(60)
    assert line > 2


def test_a_wait_lasts_as_long_as_it_was_told_and_no_longer_than_until_somebody_asks() -> None:
    stop = Stop()
    assert not stop.wait(0.01) and not stop.wait(0.0) and not stop.wait(-1.0)
    waiting = [threading.Thread(target=stop.wait, args=(3600.0,), daemon=True) for _ in range(3)]
    for thread in waiting:
        thread.start()
    threading.Timer(0.05, stop.ask).start()
    assert stop.wait(3600.0)
    for thread in waiting:
        thread.join(60)
        assert not thread.is_alive()


def test_the_second_signal_has_its_usual_effect() -> None:
    stop, usual = Stop(), list[int]()
    before = signal.signal(signal.SIGINT, lambda which, _: usual.append(which))
    try:
        with stop.on_signals():
            signal.raise_signal(signal.SIGINT)
            assert stop.wait(3600.0) and not usual
            signal.raise_signal(signal.SIGINT)
            assert usual == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_closed_terminal_asks_once_and_not_under_nohup() -> None:
    with (stop := Stop()).on_signals():
        for _ in range(2):  # a shell passes on what its process group gets as well
            signal.raise_signal(signal.SIGHUP)
        assert stop.received is signal.SIGHUP and stop.insisted is None
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with (stop := Stop()).on_signals():
            signal.raise_signal(signal.SIGHUP)
            assert not stop and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


BUSY = """
import hashlib
from codezero.system.signals import Stop, again, leave

def answer(which, before):
    print(f"{which.name} {before}: {again(which)}", flush=True)
    if before:
        leave(which, lambda: print("recorded", flush=True))

with Stop().on_signals(answer=answer):
    print("up", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)
"""  # Its main thread is inside a library for longer than any test takes


@pytest.mark.parametrize(("first", "second"), [("SIGINT", "SIGINT"), ("SIGTERM", "SIGTERM"), ("SIGINT", "SIGTERM")])
def test_signals_are_answered_and_obeyed_while_the_main_thread_is_in_a_library(first: str, second: str) -> None:
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE, text=True) as busy:
        try:
            assert busy.stdout is not None and busy.stdout.readline() == "up\n"
            busy.send_signal(signal.Signals[first])
            name = "Ctrl-C" if first == "SIGINT" else first
            assert busy.stdout.readline() == f"{first} 0: {name} again leaves now\n"
            busy.send_signal(signal.Signals[second])
            assert busy.stdout.readline().startswith(f"{second} 1:") and busy.stdout.read() == "recorded\n"
            assert busy.wait(60) == 128 + signal.Signals[second]
        finally:
            busy.kill()


@pytest.mark.slow
def test_what_cannot_be_recorded_in_time_holds_nobody_up() -> None:
    script = BUSY.replace('print("recorded", flush=True)', "__import__('time').sleep(3600)")
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as busy:
        try:
            assert busy.stdout is not None and busy.stdout.readline() == "up\n"
            for _ in range(2):
                busy.send_signal(signal.SIGINT)
                assert busy.stdout.readline()
            assert busy.wait(60) == 130
        finally:
            busy.kill()


def test_pauses_grow_differ_are_bounded_and_begin_anew_after_a_success() -> None:
    pauses = [backoff(failures, 1.0, 60.0) for failures in range(1, 100)]
    assert all(min(2.0**n, 60.0) / 2 <= pause <= min(2.0**n, 60.0) for n, pause in enumerate(pauses))
    assert len({*pauses}) == 99
    now = 0.0
    tries = Backoff(1.0, 60.0, lambda: now)
    assert tries.left == 0.0
    assert tries.failed() == tries.left <= 1.0 < 2 * tries.failed()
    now = 2.0
    assert tries.left == 0.0 and tries.failures == 2
    tries.succeeded()
    assert tries.failures == 0 and tries.failed() <= 1.0
