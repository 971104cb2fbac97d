"""Proposals: the prompt, the strict parser, and a proposer that counts what it refuses."""

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codezero.config import ProposerConfig
from codezero.errors import CheckpointError, ProposalError
from codezero.problems.synthetic.tasks import LEVELS, make_task
from codezero.proposer.base import Proposer
from codezero.proposer.parsing import ProposalReason, parse_proposal, proposal_prompt
from codezero.proposer.proposer import ModelProposer, NoProposer
from codezero.types import Completion, Source, Standing, problem_id

QUESTION = "Write a function add_two(x) that returns x plus 2."
TESTS = ["assert add_two(1) == 3", "assert add_two(-2) == 0"]


def answer(question: object = QUESTION, tests: object = "\n".join(TESTS), fence: str = "json") -> str:
    return f"```{fence}\n{json.dumps({'question': question, 'tests': tests})}\n```"


@pytest.mark.parametrize("level", LEVELS)
def test_the_prompt_names_its_level_in_the_form_that_small_models_are_cut_down_to(level: int) -> None:
    prompt = proposal_prompt(level)
    lines = [line for line in prompt.splitlines() if line.startswith(f"DIFFICULTY REQUIREMENTS (Level {level} - ")]
    assert len(lines) == 1
    assert lines[0].endswith("):")
    assert len({proposal_prompt(other) for other in LEVELS}) == 5
    assert "DIFFICULTY REQUIREMENTS (Level 3 - Medium):" in proposal_prompt(3).splitlines()


@pytest.mark.parametrize("tests", ["\n".join(TESTS), TESTS])
def test_a_proposal_becomes_a_problem_whose_tests_are_claims(tests: object) -> None:
    problem = parse_proposal("Here it is:\n" + answer(tests=tests), 3, "peer")
    assert problem.question == QUESTION
    assert problem.tests == tuple(TESTS)
    assert problem.id == problem_id(QUESTION, TESTS)
    assert (problem.entry_point, problem.level, problem.proposer) == ("add_two", 3, "peer")
    assert (problem.source, problem.standing, problem.reference) == (Source.PROPOSER, Standing.CLAIMED, None)


def test_what_the_embedded_proposer_is_taught_is_accepted() -> None:
    random = Random(0)
    for _ in range(200):
        task = make_task(random)
        problem = parse_proposal(answer(task.problem.question, list(task.problem.tests)), task.spec.level, "peer")
        assert problem.id == task.problem.id
        assert problem.entry_point == task.problem.entry_point


def test_a_test_may_span_lines_and_wrap_the_call() -> None:
    tests = "assert add_two(\n    1\n) == 3\nassert sorted([add_two(2), add_two(1)]) == [3, 4]"
    assert parse_proposal(answer(tests=tests), 1, "peer").tests[0] == "assert add_two(\n    1\n) == 3"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x" * 9000, ProposalReason.SIZE),
        ("é" * 5000, ProposalReason.SIZE),
        ("", ProposalReason.FENCE),
        (answer(fence="python"), ProposalReason.FENCE),
        (answer() + "\n" + answer(), ProposalReason.FENCE),
        (answer()[:-3], ProposalReason.FENCE),
        ("```json\n{\n```", ProposalReason.JSON),
        ("```json\n" + "[" * 4000 + "\n```", ProposalReason.JSON),
        ("```json\n[]\n```", ProposalReason.JSON),
        ('```json\n{"question": "x"}\n```', ProposalReason.JSON),
        (answer(question=3), ProposalReason.JSON),
        (answer(tests=[1, 2]), ProposalReason.JSON),
        (answer(question="  "), ProposalReason.QUESTION),
        (answer(question="add_two " * 300), ProposalReason.QUESTION),
        (answer(question=QUESTION + "\x1b[2J"), ProposalReason.QUESTION),
        (answer(tests=""), ProposalReason.TESTS),
        (answer(tests=TESTS[0]), ProposalReason.TESTS),
        (answer(tests=[TESTS[0]] * 3), ProposalReason.TESTS),
        (answer(tests=[f"assert add_two({n}) == {n + 2}" for n in range(17)]), ProposalReason.TESTS),
        (answer(tests=[*TESTS, "import os"]), ProposalReason.TESTS),
        (answer(tests=[*TESTS, "assert add_two("]), ProposalReason.TESTS),
        (answer(tests=[*TESTS, "assert add_two('" + "x" * 500 + "') == 1"]), ProposalReason.TESTS),
        (answer(tests=["assert " + "(" * 3000, "x"]), ProposalReason.TESTS),
        (answer(tests=["assert " + "-" * 3000 + "1", "x"]), ProposalReason.TESTS),
        (answer(tests=["assert True", "assert 1 == 1"]), ProposalReason.ENTRY_POINT),
        (answer(tests=[TESTS[0], "assert add_three(1) == 4"]), ProposalReason.ENTRY_POINT),
        (answer(question="Write a function that adds two."), ProposalReason.ENTRY_POINT),
        (answer(question="Write add_two(x) and g(x).", tests=["assert add_two(g(1))", "assert add_two(g(2))"]),
         ProposalReason.ENTRY_POINT),
    ],
)  # fmt: skip
def test_a_broken_proposal_is_refused_with_its_reason(text: str, reason: ProposalReason) -> None:
    with pytest.raises(ProposalError, match=f"^{reason}: "):
        parse_proposal(text, 1, "peer")


@given(st.text() | st.builds(lambda q, t: answer(q, t), st.text(), st.text() | st.lists(st.text())))
@settings(max_examples=200, deadline=None)
def test_any_text_is_a_problem_or_a_named_refusal(text: str) -> None:
    try:
        assert parse_proposal(text, 1, "peer").entry_point
    except ProposalError as error:
        assert str(error).partition(":")[0] in set(ProposalReason)


class Scripted:
    """A sampler that says what it is told to, and remembers what it was asked."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked: list[list[str]] = []
        self.seeds: list[int] = []

    def sample(
        self, prompts: Sequence[str], *, group_size: int, max_new_tokens: int, temperature: float, generator_seed: int
    ) -> list[list[Completion]]:
        assert (group_size, max_new_tokens, temperature) == (1, 64, 0.7)
        self.asked.append(list(prompts))
        self.seeds.append(generator_seed)
        return [[Completion(self.answers.pop(0), (), (), True)] for _ in prompts]


def proposer(sampler: Scripted, attempts: int = 2) -> ModelProposer:
    settings = ProposerConfig(max_new_tokens=64, temperature=0.7, attempts=attempts, taken=0)
    return ModelProposer(sampler, settings, peer_id="peer", seed=0)


def numbered(number: int) -> str:
    return answer(QUESTION.replace("plus 2", f"plus {number}"))


def test_only_what_failed_is_asked_again_and_everything_is_counted() -> None:
    sampler = Scripted(numbered(1), "nothing", numbered(2))
    node: Proposer = proposer(sampler)
    problems = node.propose([1, 4])
    assert [problem.level for problem in problems] == [1, 4]
    assert sampler.asked == [[proposal_prompt(1), proposal_prompt(4)], [proposal_prompt(4)]]
    assert sampler.seeds[0] != sampler.seeds[1]
    metrics = node.metrics()
    assert (metrics["proposer/written"], metrics["proposer/refused"]) == (2, 1)
    assert (metrics["proposer/refused_fence"], metrics["proposer/refused_json"]) == (1, 0)


def test_the_same_question_under_another_name_is_a_duplicate_until_it_is_long_ago() -> None:
    again = numbered(0).replace("add_two", "sum_up")
    node = proposer(Scripted(numbered(0), again, *map(numbered, range(1, 65)), again), attempts=1)
    assert len(node.propose([1])) == 1
    assert node.propose([1]) == []
    assert node.metrics()["proposer/refused_duplicate"] == 1
    assert len(node.propose([1] * 64)) == 64
    assert len(node.propose([1])) == 1


def test_a_resumed_proposer_keeps_its_counts_its_memory_and_its_seeds(tmp_path: Path) -> None:
    first = proposer(Scripted(numbered(0), "nothing", "nothing"))
    first.propose([1])
    first.propose([1])
    first.save(tmp_path)
    sampler = Scripted(numbered(0), numbered(1))
    second = proposer(sampler)
    second.load(tmp_path)
    assert second.metrics() == first.metrics()
    assert [problem.question for problem in second.propose([1])] == [QUESTION.replace("plus 2", "plus 1")]
    fresh = Scripted(numbered(0), numbered(0))
    proposer(fresh).propose([1])
    assert fresh.seeds[0] not in sampler.seeds


@pytest.mark.parametrize("content", [None, "", "{}", '{"calls":0,"written":0,"refused":{"other":1},"recent":[]}'])
def test_a_broken_state_is_named(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "proposer.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"proposer\.json"):
        proposer(Scripted()).load(tmp_path)


def test_no_proposer_proposes_nothing_and_keeps_nothing(tmp_path: Path) -> None:
    node: Proposer = NoProposer()
    assert node.propose([1, 2]) == []
    assert node.metrics() == {}
    node.save(tmp_path)
    assert not list(tmp_path.iterdir())
    node.load(tmp_path)


def test_names_are_shown_as_taken_and_refused_until_they_are_long_ago(tmp_path: Path) -> None:
    def asking(sampler: Scripted) -> ModelProposer:
        settings = ProposerConfig(max_new_tokens=64, temperature=0.7, attempts=1, taken=1)
        return ModelProposer(sampler, settings, peer_id="peer", seed=0)

    sampler = Scripted(numbered(1), numbered(2), numbered(3).replace("add_two", "sum_up"))
    node = asking(sampler)
    assert len(node.propose([1])) == 1 and node.propose([1]) == [] and len(node.propose([1])) == 1
    node.save(tmp_path)
    assert [prompts[0] == proposal_prompt(1) for prompts in sampler.asked] == [True, False, False]
    resumed = Scripted(numbered(4))
    again = asking(resumed)
    again.load(tmp_path)
    assert len(again.propose([1])) == 1, "only the last name is taken"
    assert resumed.asked == [[proposal_prompt(1, ["sum_up"])]]
