"""Rewards by execution: no judge is weighed or loaded, and the sandbox has the limits of `reward`."""

import os
from contextlib import ExitStack

import pytest

from codezero.evaluator.build import build_canaries, build_evaluator
from codezero.evaluator.evaluator import FrozenEvaluator
from codezero.evaluator.executed import HybridEvaluator
from codezero.models.build import FrozenModels
from codezero.models.hardware import estimate
from codezero.ops.founding import judge_of
from codezero.problems.filters import Novelty
from codezero.sandbox.build import build_sandbox
from codezero.settings import compose

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
    monkeypatch.setattr("codezero.evaluator.evaluator.FrozenEvaluator.calibrate", lambda _: None)
    config = compose([*rewards, "audit.sandbox=monty"])
    with ExitStack() as stack:
        evaluator = build_evaluator(config, build_canaries(config, Novelty(), stack, print), stack, print)
        assert isinstance(evaluator, FrozenEvaluator | HybridEvaluator) and evaluator.monitor.alone is alone


@pytest.mark.parametrize(("workers", "cores", "expected"), [(0, 2, 1), (0, 9, 2), (24, 2, 24), (0, None, 1)])
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
