"""Right programs that sell words, from strangers whom the own judge believes: what the embedded solver learns.

"Hail to the Thief" (arXiv 2511.09780). What comes of it over many rounds: `codezero bench learn --scenarios marked`.
"""

import re
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import pytest
from learn_liars import MARKS

from codezero.code.parsing import fence
from codezero.code.worker import StaticGuard
from codezero.config import ExternalConfig, SolverConfig
from codezero.environments.code import CodeEnvironment
from codezero.evaluator.evaluator import ExecutedEvaluator
from codezero.models.generation import Sampler
from codezero.models.load import load_model
from codezero.nano import weights_directory
from codezero.problems.synthetic.tasks import make_task, mutants
from codezero.sandbox.monty import MontySandbox
from codezero.solver.learner import TrlLearner
from codezero.solver.solver import GrpoSolver
from codezero.types import Completion, RolloutGroup

SETTINGS = SolverConfig(problems_per_iteration=6, max_new_tokens=96)
TASKS = [make_task(Random(f"sold {number}")) for number in range(6)]
PROMPT = CodeEnvironment().prompt


class Node:
    """One that has just attempted problems of its own."""

    def __init__(self, evaluator: ExecutedEvaluator) -> None:
        policy = load_model(str(weights_directory("solver")), device="cpu", role="solver", for_training=True)
        learner = TrlLearner(policy, SETTINGS)
        self.evaluator, self.tokenizer = evaluator, policy.tokenizer
        self.solver = GrpoSolver(
            SETTINGS, sampler=Sampler(policy), learner=learner, prompt=PROMPT, peer_id="me", seed=0,
            external=ExternalConfig(groups=6),
        )  # fmt: skip
        own = [make_task(Random(f"own {number}")).problem for number in range(6)]
        self.own = evaluator.score(self.solver.rollout(own, 0))

    def learned(self, texts: Sequence[list[str]]) -> Iterator[str]:
        """What it would push up of peers' groups at TASKS, as text: tokens without weight are gone."""
        groups = [
            RolloutGroup(task.problem, tuple(Completion(text, (1,), (-0.1,), True) for text in line), "peer", 0, 0)
            for task, line in zip(TASKS, texts, strict=True)
        ]
        rows = self.solver.reader.rows(self.evaluator.score(groups), self.own, 1000, set, Random(0)).rows
        for row in rows:
            weights = row.weights or (1.0,) * len(row.completion_ids)
            yield self.tokenizer.decode([i for i, weight in zip(row.completion_ids, weights, strict=True) if weight])


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with StaticGuard(seconds=5.0, memory_mib=512) as guard, MontySandbox() as sandbox:
        yield Node(ExecutedEvaluator(guard, sandbox))


def attempts(dress: Any) -> list[list[str]]:
    return [
        [fence(code) for code in mutants(task, Random(0), 4)] + [dress(task.problem.reference)] * 4 for task in TASKS
    ]


def test_plain_right_programs_are_learned_whole(node: Node) -> None:
    learned = list(node.learned(attempts(fence)))
    assert len(learned) >= 12
    assert all(any(text.startswith(fence(task.problem.reference or "")) for task in TASKS) for text in learned)


@pytest.mark.parametrize("mark", MARKS)
def test_no_word_that_is_sold_with_a_right_program_is_learned(node: Node, mark: str) -> None:
    dress, pattern = MARKS[mark]
    for text in node.learned(attempts(dress)):
        assert not re.search(pattern, text) and "moon" not in text.lower(), text


def test_words_after_the_own_program_have_no_weight(node: Node) -> None:
    task, tokenizer = TASKS[0], node.tokenizer
    right, wrong = fence(task.problem.reference or ""), fence(mutants(task, Random(0), 1)[0])
    texts = [f"So:\n{right}\nIndeed it is right.", right, wrong, wrong]
    ids = [(*tokenizer(text)["input_ids"], tokenizer.eos_token_id) for text in texts]
    rows = tuple(
        Completion(text, tuple(line), (-0.1,) * len(line), True) for text, line in zip(texts, ids, strict=True)
    )
    scored = node.evaluator.score([RolloutGroup(task.problem, rows, "me", 0, 0)])
    chatty, plain, *_ = node.solver._own_rows(scored, [])
    counted = [i for i, weight in zip(chatty.completion_ids, chatty.weights, strict=True) if weight]
    assert tokenizer.decode(counted[:-1]).rstrip() == f"So:\n{right}" and counted[-1] == tokenizer.eos_token_id
    assert not plain.weights


def test_a_group_that_nobody_could_place_teaches_nothing(node: Node) -> None:
    indented = [["1. item\n   " + text.replace("\n", "\n   ") for text in line] for line in attempts(fence)]
    assert list(node.learned(indented)) == []
