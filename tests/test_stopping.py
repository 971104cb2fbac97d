"""A wish to stop is heard at any moment."""

import itertools
import signal
import sys
import threading
from types import FrameType

import pytest

from codezero.stopping import Stop


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
