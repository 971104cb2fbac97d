"""`reward.mode=rlvr`: the reward is what running shows, and everything else is as with the judge."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from builders.evaluator import FILTER, RIGHT, WRONG, group

from codezero.code.parsing import fence
from codezero.code.worker import StaticGuard
from codezero.evaluator.executed import ExecutedEvaluator
from codezero.sandbox.monty import MontySandbox
from codezero.types import Standing, Status


@pytest.fixture(scope="module")
def guard() -> Iterator[StaticGuard]:
    with StaticGuard() as one:
        yield one


@pytest.fixture
def evaluator(guard: StaticGuard) -> Iterator[ExecutedEvaluator]:
    with MontySandbox() as sandbox:
        yield ExecutedEvaluator(guard, sandbox)


def test_running_decides(evaluator: ExecutedEvaluator):
    unusual = (
        "def pick_item(nums):\n    kept = []\n    while nums:\n        first, *nums = nums\n"
        "        if not first < 4:\n            kept += [first]\n    return kept"
    )
    cheat = "def pick_item(nums):\n    return {(1, 5, 7): [5, 7], (4, 2, 9): [4, 9], (6, 3): [6]}[tuple(nums)]"
    (scored,) = evaluator.score([group(FILTER, *map(fence, (RIGHT, unusual, WRONG, cheat)), "no code")])
    right, odd, wrong, caught, none = scored.verdicts
    assert right.correctness == odd.correctness == 1 and wrong.correctness == 0
    assert wrong.reasons[0].startswith("executed: test 1")
    assert caught.status is Status.QUARANTINED and none.status is Status.CERTAIN_FAILURE
    assert right.reward > 0.9 > 0.5 > wrong.reward


def test_what_running_cannot_decide_is_unavailable(evaluator: ExecutedEvaluator):
    (scored,) = evaluator.score([group(FILTER, fence("import numpy\n" + RIGHT), fence(RIGHT))])
    assert [one.status for one in scored.verdicts] == [Status.UNAVAILABLE, Status.JUDGED]
    (claimed,) = evaluator.score([group(replace(FILTER, standing=Standing.CLAIMED), fence(RIGHT))])
    assert claimed.verdicts[0].status is Status.UNAVAILABLE
    assert evaluator.metrics()["judge/unavailable_share"] == pytest.approx(2 / 3)


def test_it_says_so_loudly(guard: StaticGuard, caplog: pytest.LogCaptureFixture):
    with MontySandbox() as sandbox:
        ExecutedEvaluator(guard, sandbox)
    assert "EXECUTED" in caplog.text and caplog.records[0].levelname == "WARNING"
