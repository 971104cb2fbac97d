"""Execution decides where it can, the judge elsewhere, and what was executed calibrates it."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from builders.evaluator import FILTER, RIGHT, WRONG, ToldJudge, build_monitor, group, spelt

from codezero.code.parsing import fence
from codezero.code.worker import StaticGuard
from codezero.evaluator.canaries import CanaryKind, draw_canaries
from codezero.evaluator.evaluator import FrozenEvaluator
from codezero.evaluator.executed import HybridEvaluator
from codezero.evaluator.reward import DEFAULT, Rules
from codezero.evaluator.types import Program
from codezero.problems.synthetic.tasks import worked
from codezero.sandbox.monty import MontySandbox
from codezero.types import Standing, Status

UNDECIDED = "import numpy\ndef pick_item(nums):\n    return [int(x) for x in numpy.array(nums) if x > 3]"


@pytest.fixture(scope="module")
def guard() -> Iterator[StaticGuard]:
    with StaticGuard() as running:
        yield running


@pytest.fixture
def hybrid(guard: StaticGuard) -> Iterator[HybridEvaluator]:
    """Its judge knows the canaries and is wrong about everything else: it believes all."""
    wrong = {spelt(canary) for canary in draw_canaries(worked, 200, "1 start") if not canary.right}

    def rule(program: Program) -> float:
        return -1.0 if program.code in wrong else 1.0

    judge = ToldJudge(rule)
    with MontySandbox() as sandbox:
        monitor = build_monitor(judge, guard, canaries_per_iteration=16)
        evaluator = HybridEvaluator(monitor, sandbox)
        evaluator.calibrate()
        yield evaluator


def test_execution_decides_against_the_judge(hybrid: HybridEvaluator) -> None:
    (scored,) = hybrid.score([group(FILTER, fence(RIGHT), fence(WRONG))])
    assert [verdict.correctness for verdict in scored.verdicts] == [1.0, 0.0]
    assert all("executed: " in " ".join(verdict.reasons) for verdict in scored.verdicts)
    assert hybrid.metrics()["judge/executed_share"] == 1.0


def test_a_share_is_executed_the_same_one_every_time(hybrid: HybridEvaluator) -> None:
    """The judge, which believes all, decides the others."""
    texts = [fence(WRONG.replace("nums", f"nums_{i}")) for i in range(80)]
    weights = replace(DEFAULT, executed=0.25)
    with MontySandbox() as sandbox:
        few = HybridEvaluator(hybrid.monitor, sandbox, Rules(weights), seed=3)
        first, again = (few.score([group(FILTER, *texts)])[0] for _ in range(2))
    executed = ["executed: " in " ".join(verdict.reasons) for verdict in first.verdicts]
    assert 8 <= sum(executed) <= 32
    assert all((verdict.correctness == 0) is ran for verdict, ran in zip(first.verdicts, executed, strict=True))
    assert executed == ["executed: " in " ".join(verdict.reasons) for verdict in again.verdicts]


def test_the_judge_decides_what_no_sandbox_can(hybrid: HybridEvaluator) -> None:
    claimed = replace(FILTER, standing=Standing.CLAIMED)
    (undecided, proposed) = hybrid.score([group(FILTER, fence(UNDECIDED)), group(claimed, fence(WRONG))])
    for verdict in (*undecided.verdicts, *proposed.verdicts):
        assert verdict.status in (Status.JUDGED, Status.CERTAIN_FAILURE) and "executed" not in " ".join(verdict.reasons)
    assert proposed.verdicts[0].correctness > 0.5, "the judge believes it, and nothing else was asked"
    assert hybrid.metrics()["judge/executed_share"] < 1.0


def test_what_was_executed_joins_the_canaries_as_what_it_is(hybrid: HybridEvaluator) -> None:
    hybrid.score([group(FILTER, fence(RIGHT), fence(WRONG))])
    joined = [canary for canary in hybrid.monitor.memory.canaries if canary.kind is CanaryKind.AUDITED]
    assert sorted(canary.right for canary in joined) == [False, True]
    assert all(canary.scores is not None for canary in joined), "read with the attempts, at no cost"


def test_the_judge_alone_is_held_against_execution(hybrid: HybridEvaluator) -> None:
    alone = FrozenEvaluator(hybrid.monitor, gated=False)
    (scored,) = alone.score([group(FILTER, fence(RIGHT), fence(WRONG))])
    assert [verdict.correctness > 0.5 for verdict in scored.verdicts] == [True, True]


def test_execution_still_decides_while_the_judge_cannot_be_asked(hybrid: HybridEvaluator) -> None:
    from codezero.errors import EvaluatorError

    def silent(*_: object) -> None:
        raise EvaluatorError("no answer")

    hybrid.monitor.judge.read = silent  # type: ignore[method-assign]
    (scored,) = hybrid.score([group(FILTER, fence(RIGHT), fence(WRONG))])
    assert [verdict.correctness for verdict in scored.verdicts] == [1.0, 0.0]
