"""A verifier beside the solver: who is sent back, what cases earn, and what both learn from."""

import dataclasses
import json
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from builders.models import bits, tiny_policy

from codezero.code.worker import StaticGuard
from codezero.config import SolverConfig, VerifierConfig
from codezero.environments.code import solver_prompt
from codezero.errors import CheckpointError
from codezero.evaluator.executed import ExecutedEvaluator
from codezero.models.load import LoadedModel
from codezero.sandbox.monty import MontySandbox
from codezero.solver.learner import TrlLearner
from codezero.solver.solver import GrpoSolver
from codezero.solver.updater import Updater
from codezero.solver.verified import VerifiedSolver
from codezero.types import Completion, Problem, ScoredGroup, Source

REFERENCE = "def f(x):\n    return 2 * x"
PROBLEM = Problem(
    "0" * 64, "Double x.", ("assert f(2) == 4", "assert f(5) == 10"), "f", Source.MBPP, reference=REFERENCE
)
RIGHT, SQUARE, NONE = f"```python\n{REFERENCE}\n```", "```python\ndef f(x):\n    return x * x\n```", "I cannot."
SETTINGS = SolverConfig(group_size=4, minibatches=1, learning_rate=1e-2)


def cases(*pairs: tuple[int, int]) -> str:
    return f"```json\n{json.dumps([{'input': str(given), 'output': str(wanted)} for given, wanted in pairs])}\n```"


SHARP, DULL, FALSE, BROKEN = cases((3, 6), (4, 8)), cases((2, 4), (0, 0)), cases((3, 7), (4, 8)), "no cases"


class Script:
    """A sampler that says what it was given, in order, and keeps what it was asked."""

    def __init__(self, *texts: str) -> None:
        self.texts, self.asked = list(texts), list[str]()

    def sample(self, prompts: Sequence[str], *, group_size: int, **_: Any) -> list[list[Completion]]:
        self.asked += prompts
        taken = [[self.texts.pop(0) for _ in range(group_size)] for _ in prompts]
        return [[Completion(text, (1, 2, 3), (-1.0, -1.0, -1.0), True) for text in group] for group in taken]


@dataclasses.dataclass
class Pair:
    """A solver and its verifier, each with a policy of its own."""

    verified: VerifiedSolver
    evaluator: ExecutedEvaluator
    solver: Script
    verifier: Script
    policies: tuple[LoadedModel, LoadedModel]

    def iterate(self) -> tuple[ScoredGroup, dict[str, Any]]:
        groups = self.verified.rollout([PROBLEM], 1)
        (scored,) = self.evaluator.score(groups)
        return scored, self.verified.step([scored], [])


@pytest.fixture
def stack() -> Generator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def pair(stack: ExitStack, attempts: Sequence[str], written: Sequence[str], reward: str = "margin") -> Pair:
    policies = tiny_policy(0), tiny_policy(1)
    first, second = (TrlLearner(policy, SETTINGS) for policy in policies)
    scripts = Script(*attempts), Script(*written)
    guard, sandbox = stack.enter_context(StaticGuard()), stack.enter_context(MontySandbox())
    verified = VerifiedSolver(
        VerifierConfig(model="x", reward=reward),
        GrpoSolver(SETTINGS, sampler=scripts[0], learner=first, prompt=solver_prompt, peer_id="me", seed=0),
        sampler=scripts[1],
        updater=Updater(SETTINGS, second, engine=False),
        guard=guard,
        sandbox=sandbox,
        block="best",
    )
    return Pair(verified, ExecutedEvaluator(guard, sandbox), *scripts, policies)


def test_who_fails_a_case_is_sent_back_with_it_and_others_are_not(stack: ExitStack) -> None:
    both = pair(stack, [RIGHT, SQUARE, SQUARE, NONE, RIGHT, SQUARE], [SHARP, SHARP, DULL, SHARP])
    (group,) = both.verified.rollout([PROBLEM], 1)
    assert [bool(check.feedback) for check in group.checks] == [False, True, False, True]
    assert [each.text for each in group.completions] == [RIGHT, SQUARE, SQUARE, NONE, RIGHT, SQUARE]
    assert both.solver.asked[1:] == [solver_prompt(PROBLEM, group.checks[place].feedback) for place in (1, 3)]
    assert "f(3) == 6: gives 9" in group.checks[1].feedback and "no program" in group.checks[3].feedback
    assert "return x * x" in both.verifier.asked[1] and "```json" in both.verifier.asked[1]


def test_cases_that_cannot_be_used_lead_to_a_second_attempt(stack: ExitStack) -> None:
    both = pair(stack, [RIGHT] * 5, [SHARP, SHARP, SHARP, BROKEN])
    (group,) = both.verified.rollout([PROBLEM], 1)
    assert len(group.completions) == 5 and "no whole ```json block" in group.checks[3].feedback


@pytest.mark.parametrize(
    ("reward", "earned"),
    [("margin", [1.0, 0.0, 0.0, 0.0]), ("astra", [2.0, 1.0, 0.0, 1.0]), ("off", [None] * 4)],
)
def test_cases_earn_what_the_reward_says(stack: ExitStack, reward: str, earned: list[float | None]) -> None:
    """Sharp and true, dull and true, false, unreadable; the second attempts at 0, 2 and 3: right, wrong, right."""
    both = pair(stack, [SQUARE, SQUARE, SQUARE, RIGHT, RIGHT, SQUARE, RIGHT], [SHARP, DULL, FALSE, BROKEN], reward)
    scored = both.evaluator.score(both.verified.rollout([PROBLEM], 1))[0]
    assert [each.reward for each in both.verified._trajectories(scored)] == earned


def test_the_figures_tell_first_from_last_attempts(stack: ExitStack) -> None:
    both = pair(stack, [SQUARE, SQUARE, SQUARE, RIGHT, RIGHT, SQUARE, RIGHT], [SHARP, DULL, FALSE, BROKEN])
    scored, metrics = both.iterate()
    assert metrics["verifier/first"] == 0.25 and metrics["verifier/final"] == 0.5
    assert metrics["verifier/readable"] == 0.75 and metrics["verifier/valid"] == 0.5
    assert metrics["verifier/caught"] == 0.5 and metrics["verifier/sent_back"] == 1.0
    assert metrics["verifier/let_through"] == pytest.approx(1 / 3) and metrics["verifier/rows"] == 4
    assert len(scored.first.verdicts) == 4 and scored.first.success == 0.25 and not scored.first.group.checks


def test_both_policies_learn_each_from_its_own_rows(stack: ExitStack) -> None:
    both = pair(stack, [SQUARE, SQUARE, SQUARE, RIGHT, RIGHT, SQUARE, RIGHT], [SHARP, DULL, FALSE, BROKEN])
    before = [bits(policy) for policy in both.policies]
    _, metrics = both.iterate()
    assert metrics["train/rows"] == 7, "first and second attempts are one group"
    assert metrics["verifier/policy_step"] == 1 == metrics["train/policy_step"]
    assert all(bits(policy) != old for policy, old in zip(both.policies, before, strict=True))


def test_a_frozen_verifier_checks_and_does_not_learn(stack: ExitStack) -> None:
    both = pair(stack, [SQUARE, RIGHT, RIGHT, RIGHT, RIGHT], [SHARP] * 4, "off")
    before = bits(both.policies[1])
    _, metrics = both.iterate()
    assert bits(both.policies[1]) == before and metrics["verifier/rows"] == 0 and metrics["verifier/final"] == 1.0


def test_a_problem_without_a_reference_makes_no_case_valid(stack: ExitStack) -> None:
    both = pair(stack, [SQUARE, RIGHT, RIGHT, RIGHT, RIGHT], [SHARP] * 4)
    unknown = dataclasses.replace(PROBLEM, reference=None)
    scored = both.evaluator.score(both.verified.rollout([unknown], 1))[0]
    assert {each.valid for each in both.verified._trajectories(scored)} == {False}


def test_each_row_answers_its_own_prompt(stack: ExitStack) -> None:
    both = pair(stack, [SQUARE, SQUARE, SQUARE, RIGHT, RIGHT, SQUARE, RIGHT], [SHARP, DULL, FALSE, BROKEN])
    (group,) = both.verified.rollout([PROBLEM], 1)
    prompts = both.verified.solver._prompts(group)
    assert len(prompts) == 7 and len(set(prompts[:4])) == 1 and len(set(prompts)) == 4


def test_a_checkpoint_holds_both_policies(stack: ExitStack, tmp_path: Path) -> None:
    both = pair(stack, [SQUARE, SQUARE, SQUARE, RIGHT, RIGHT, SQUARE, RIGHT], [SHARP, DULL, FALSE, BROKEN])
    both.iterate()
    both.verified.save(tmp_path)
    again = pair(stack, [], [])
    again.verified.load(tmp_path)
    assert [bits(policy) for policy in again.policies] == [bits(policy) for policy in both.policies]
    assert again.verified.memory == 1 and again.verified.updater.learner.steps == 1


def test_a_checkpoint_without_a_verifier_is_refused(stack: ExitStack, tmp_path: Path) -> None:
    both = pair(stack, [], [])
    both.verified.solver.save(tmp_path)
    with pytest.raises(CheckpointError, match="without a verifier; begin anew"):
        both.verified.load(tmp_path)


def test_margin_pays_for_sharpness_within_a_group(stack: ExitStack) -> None:
    both = pair(stack, [SQUARE, SQUARE, SQUARE, RIGHT, RIGHT, RIGHT], [SHARP, SHARP, DULL, DULL])
    scored = both.evaluator.score(both.verified.rollout([PROBLEM], 1))[0]
    rows = both.verified._rows(both.verified._trajectories(scored))
    assert torch.tensor([row.advantage for row in rows]).sign().tolist() == [1, 1, -1, -1]
