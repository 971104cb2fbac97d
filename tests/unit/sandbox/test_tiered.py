"""Two tiers: the second is asked only what the first could not tell; a missing one is said."""

import json
import logging

import pytest

from codezero.errors import SandboxError
from codezero.sandbox import jail
from codezero.sandbox.base import Job, Outcome
from codezero.sandbox.bubblewrap import TieredSandbox, open_sandbox
from codezero.sandbox.monty import MontySandbox

TESTS = ("assert f(2) == 4", "assert f(-3) == -6")
LACKING = "import heapq\ndef f(x): return x * 2"


def test_the_first_decides_and_the_second_is_not_even_started() -> None:
    class Dead(MontySandbox):
        def run(self, job: Job) -> None:  # type: ignore[override]
            raise AssertionError("asked")

    with TieredSandbox(MontySandbox(), Dead()) as tiers:
        executed = tiers.run_many([Job("def f(x): return x * 2", TESTS), Job("def f(x): return 0", TESTS)])
        assert [execution.outcome for execution in executed] == [Outcome.PASS, Outcome.FAIL]
        with pytest.raises(AssertionError, match="asked"):
            tiers.run(Job(LACKING, TESTS))


def test_the_second_tells_what_the_first_cannot(caplog: pytest.LogCaptureFixture) -> None:
    reason = jail.why_not()
    if reason:
        pytest.skip(reason)
    stdio = Job("import heapq\nprint(heapq.nsmallest(1, [2, 1]))", (json.dumps({"input": "", "output": "[1]"}),), True)
    with open_sandbox("auto") as auto, open_sandbox("bubblewrap") as bubblewrap, open_sandbox("monty") as monty:
        for job in (Job(LACKING, TESTS), stdio):
            assert auto.run(job).outcome is Outcome.PASS
            assert bubblewrap.run(job).outcome is Outcome.PASS
            assert monty.run(job).outcome is Outcome.UNKNOWN
        assert auto.run(Job("import numpy\ndef f(x): return 0", TESTS)).outcome is Outcome.UNKNOWN


def test_without_bubblewrap_auto_goes_on_and_says_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with caplog.at_level(logging.INFO, logger="codezero.sandbox.bubblewrap"), open_sandbox("auto") as auto:
        assert auto.run(Job("def f(x): return x * 2", TESTS)).outcome is Outcome.PASS
        assert auto.run(Job(LACKING, TESTS)).outcome is Outcome.UNKNOWN
    assert "bubblewrap" in caplog.text
    with pytest.raises(SandboxError, match="bubblewrap"):
        open_sandbox("bubblewrap")
