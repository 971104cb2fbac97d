"""What a command says it is at while a step lasts."""

import time

import pytest

from codezero.commands.common import ProgressLines
from codezero.system.signals import Share


def test_a_step_that_lasts_is_told_again_with_the_time_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now, say = time.monotonic(), ProgressLines()
    say("loading")
    say(Share("work", 0, 4))
    assert capsys.readouterr().err == "codezero: loading …\n"  # nothing of the work is done yet
    say(Share("work", 1, 4, " problems"))
    monkeypatch.setattr("codezero.commands.common.time.monotonic", lambda: now + 30)
    said, until = "", time.perf_counter() + 20
    while "left" not in said and time.perf_counter() < until:
        time.sleep(0.05)
        said += capsys.readouterr().err
    say("")
    assert said.startswith("codezero: work: 1 of 4 problems … ") and ", about 1 m 2" in said
