"""Execution decides everywhere (rlvr), or where it can with the judge elsewhere (hybrid), within its limits."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest
from builders.evaluator import FILTER, RIGHT, WRONG, ToldJudge, build_monitor, group, spelt

from codezero.code.parsing import fence
from codezero.code.worker import StaticGuard
from codezero.errors import SandboxError
from codezero.evaluator.build import build_canaries, build_evaluator
from codezero.evaluator.calibration import CanaryKind, draw_canaries
from codezero.evaluator.evaluator import ExecutedEvaluator, FrozenEvaluator, HybridEvaluator
from codezero.evaluator.reward import DEFAULT, Rules
from codezero.evaluator.types import Program
from codezero.models.build import FrozenModels
from codezero.models.hardware import estimate
from codezero.ops.founding import judge_of
from codezero.problems.filters import Novelty
from codezero.problems.synthetic.tasks import worked
from codezero.sandbox.base import Execution, Job
from codezero.sandbox.build import build_sandbox
from codezero.sandbox.monty import MontySandbox
from codezero.settings import compose
from codezero.types import Standing, Status


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


OFF = ["evaluator.model=off", "reward.mode=rlvr"]


def test_no_judge_is_weighed_or_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: object) -> None:
        raise AssertionError("a judge is loaded")

    monkeypatch.setattr(FrozenModels, "load", load)
    config = compose([*OFF, "audit.sandbox=monty"])
    assert estimate(config, "cpu", 4) is None
    with ExitStack() as stack:
        canaries = build_canaries(config, Novelty(), stack, print)
        assert build_evaluator(config, canaries, stack, print).metrics()["judge/identity"] == "rlvr"
    assert judge_of(config.evaluator).digest == ""


@pytest.mark.parametrize(
    ("rewards", "alone"),
    [([], True), (["audit.share=0.1"], True), (["reward.mode=hybrid"], False), (["reward.function=json:dumps"], False)],
)
def test_a_judge_without_skill_may_end_a_run_that_nothing_else_rewards(
    rewards: list[str], alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("codezero.evaluator.reliability.ReliabilityMonitor.calibrated", lambda _: None)
    config = compose([*rewards, "audit.sandbox=monty"])
    with ExitStack() as stack:
        evaluator = build_evaluator(config, build_canaries(config, Novelty(), stack, print), stack, print)
        assert isinstance(evaluator, FrozenEvaluator | HybridEvaluator) and evaluator.monitor.alone is alone


@pytest.mark.parametrize(
    ("workers", "cores", "expected"), [(0, 2, 1), (0, 9, 8), (0, 64, 16), (24, 2, 24), (0, None, 1)]
)
def test_the_sandbox_has_the_limits_of_the_reward(
    workers: int, cores: int | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[object] = []

    def open_sandbox(which: str, **limits: float) -> ExitStack:
        opened.append((which, limits))
        return ExitStack()

    monkeypatch.setattr("codezero.sandbox.bubblewrap.open_sandbox", open_sandbox)
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    with ExitStack() as stack:
        build_sandbox(compose([f"reward.workers={workers}", "reward.test_seconds=3"]), stack)
    limits = {"seconds": 3.0, "total_seconds": 100.0, "workers": expected, "packages": []}
    assert opened == [("auto", limits)]


UNDECIDED = "import numpy\ndef pick_item(nums):\n    return [int(x) for x in numpy.array(nums) if x > 3]"


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
        evaluator.monitor.calibrated()
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


class CountedSandbox(MontySandbox):
    def __init__(self) -> None:
        super().__init__()
        self.ran = list[str]()

    def run(self, job: Job) -> Execution:
        self.ran.append(job.code)
        return super().run(job)


def test_what_was_begun_while_others_were_sampled_is_not_done_again(guard: StaticGuard) -> None:
    groups = [group(FILTER, *map(fence, texts)) for texts in ((RIGHT, WRONG), (WRONG, RIGHT + "\n# another"))]
    with CountedSandbox() as sandbox:
        evaluator = ExecutedEvaluator(guard, sandbox)
        in_order, once = evaluator.score(groups), sorted(sandbox.ran)
        sandbox.ran.clear()
        for one in groups:
            evaluator.begin(one)
        assert evaluator.score(groups) == in_order and sorted(sandbox.ran) == once
        sandbox.ran.clear()
        assert evaluator.score(groups[:1]) == in_order[:1] and sandbox.ran  # nothing is kept from batch to batch


def test_what_fails_as_it_is_begun_fails_in_the_verdict(
    evaluator: ExecutedEvaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise SandboxError("no sandbox")

    with monkeypatch.context() as patch:
        patch.setattr(MontySandbox, "run_distinct", refuse)
        evaluator.begin(group(FILTER, fence(RIGHT)))
        with pytest.raises(SandboxError, match="no sandbox"):
            evaluator.score([group(FILTER, fence(RIGHT))])
    assert evaluator.score([group(FILTER, fence(RIGHT))])[0].verdicts[0].correctness == 1
