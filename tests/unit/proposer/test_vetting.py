"""What is offered of a problem after some attempts at it: by a judge that is shown the tests, and by execution."""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from codezero.config import NodeConfig, ProposerConfig
from codezero.errors import CheckpointError
from codezero.proposer import vetting
from codezero.proposer.proposer import NoProposer
from codezero.proposer.vetting import VettedProposer, Vetting
from codezero.sandbox.monty import MontySandbox
from codezero.types import Completion, Problem, RolloutGroup, ScoredGroup, Source, Standing, Status, Verdict, problem_id

TESTS = ("assert twice(2) == 4", "assert twice(5) == 10", "assert twice(7) == 15")
RIGHT = ("def twice(n):\n    return n + n", "def twice(n):\n    return 2 * n")
WRONG = ("def twice(n):\n    return n", "def twice(n):\n    return n + 2")


def problem(tests: Sequence[str] = TESTS) -> Problem:
    question = "Write a function twice(n) that returns n added to itself."
    made = problem_id(question, tests)
    return Problem(made, question, tuple(tests), "twice", Source.PROPOSER, Standing.CLAIMED, level=1, proposer="me")


def attempts(*codes: str, tests: Sequence[str] = TESTS) -> RolloutGroup:
    rows = tuple(Completion(f"```python\n{code}\n```", (1,), (-0.1,), True) for code in codes)
    return RolloutGroup(problem(tests), rows, "me", 0, 0)


@pytest.fixture
def executed(sandbox: MontySandbox) -> Vetting:
    return functools.partial(vetting.executed, sandbox=sandbox)


def test_what_two_programs_pass_is_confirmed_and_the_rest_left_out(executed: Vetting) -> None:
    (found,) = executed([attempts(*RIGHT, WRONG[0])])
    assert found is not None and found.standing is Standing.CONFIRMED
    assert found.tests == TESTS[:2] and found.id == problem_id(found.question, TESTS[:2])


@pytest.mark.slow
@pytest.mark.parametrize("group", [
    attempts(RIGHT[0], RIGHT[0], RIGHT[0]), attempts(RIGHT[0], *WRONG), attempts(*RIGHT, tests=TESTS[1:]),
    attempts("while True: pass", "def twice(n): return open('x')"), attempts(),
], ids=["one program", "no two agree", "one test left", "nobody can tell", "no attempt"])  # fmt: skip
def test_what_too_little_speaks_for_is_not_offered(group: RolloutGroup, executed: Vetting) -> None:
    assert executed([group]) == [None]


class Judge:
    """Believes attempts as scripted, without the tests and with them; None: it cannot tell."""

    def __init__(self, without: Sequence[float | None], shown: Sequence[float | None]) -> None:
        self.told = {Standing.CLAIMED: without, Standing.CONFIRMED: shown}

    def score(self, groups: Sequence[RolloutGroup]) -> list[ScoredGroup]:
        return [ScoredGroup(one, tuple(map(_verdict, self.told[one.problem.standing]))) for one in groups]

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} is not asked for")


def _verdict(correctness: float | None) -> Verdict:
    status = Status.UNAVAILABLE if correctness is None else Status.JUDGED
    return Verdict(0.0, correctness or 0.0, 1.0, 1.0, 1.0, 1.0, status)


@pytest.mark.parametrize(("without", "shown", "offered"), [
    ([0.9, 0.8, 0.1], [0.2, 0.1, 0.1], False), ([0.9, 0.8, 0.1], [0.9, 0.1, 0.1], True),
    ([0.9, 0.1, 0.1], [0.1, 0.1, 0.1], True), ([0.9, 0.8, 0.7], [None, None, 0.1], True),
    ([None, None, None], [None, None, None], True),
], ids=["contradicted", "one stands", "too few believed", "mostly cannot tell", "cannot tell"])  # fmt: skip
def test_a_judge_drops_only_what_it_finds_contradicted(
    without: list[float | None], shown: list[float | None], offered: bool
) -> None:
    judge: Any = Judge(without, shown)
    group = attempts(*RIGHT, WRONG[0])
    assert vetting.judged([group], judge) == [group.problem if offered else None]


class Writer(NoProposer):
    """Proposes one problem for each level."""

    def propose(self, levels: Sequence[int]) -> list[Problem]:
        return [dataclasses.replace(problem(), level=level) for level in levels]


class Solver:
    """Attempts with what it was given, and notes the seeds."""

    def __init__(self, *codes: str) -> None:
        self.codes, self.seeds = codes, list[int]()

    def sample(
        self, prompts: Sequence[str], *, group_size: int, generator_seed: int, **_: Any
    ) -> list[list[Completion]]:
        self.seeds.append(generator_seed)
        return [list(attempts(*self.codes[:group_size]).completions) for _ in prompts]


CONFIG = NodeConfig(seed=1, proposer=ProposerConfig(vetting=3))


def vetted(vet: Vetting, solver: Solver, proposer: NoProposer) -> VettedProposer:
    return VettedProposer(proposer, vet, solver, CONFIG, prompt=lambda one: one.question, peer_id="me")


def counted(sandbox: MontySandbox, program: str | None = None, peer_id: str = "me") -> VettedProposer:
    return VettedProposer(
        Writer(), None, Solver(), CONFIG, prompt=str, peer_id=peer_id, sandbox=sandbox, known=lambda _: program
    )


def test_only_what_stands_is_proposed_and_counted(executed: Vetting) -> None:
    proposer = vetted(executed, Solver(*RIGHT), Writer())
    assert [one.tests for one in proposer.propose([1, 2])] == [TESTS[:2]] * 2
    assert vetted(executed, Solver(*WRONG), Writer()).propose([1]) == []
    assert proposer.metrics() == {"proposer/contradicted": 0, "proposer/confirmed": 2}


def test_nothing_written_asks_nobody(executed: Vetting) -> None:
    solver = Solver(*RIGHT)
    assert vetted(executed, solver, NoProposer()).propose([1, 2]) == [] and not solver.seeds


def test_a_resumed_one_draws_other_attempts_than_before(executed: Vetting, tmp_path: Path) -> None:
    first, again = Solver(*RIGHT), Solver(*RIGHT)
    before = vetted(executed, first, Writer())
    before.propose([1])
    before.save(tmp_path)
    before.propose([1])
    after = vetted(executed, again, Writer())
    after.load(tmp_path)
    after.propose([1])
    assert again.seeds == first.seeds[1:] and after.metrics() == before.metrics()


@pytest.mark.parametrize("text", ["[]", '{"calls": "x"}', "{", '{"right": -1}'])
def test_a_damaged_memory_of_it_is_named(text: str, executed: Vetting, tmp_path: Path) -> None:
    (tmp_path / "vetting.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"vetting\.json"):
        vetted(executed, Solver(), Writer()).load(tmp_path)


FALSE = ("assert twice(2) == 5", "assert twice(5) == 11", "assert twice(7) == 15")


def judged(group: RolloutGroup, *correctness: float | None) -> ScoredGroup:
    return ScoredGroup(group, tuple(map(_verdict, correctness)))


def values(proposer: VettedProposer) -> tuple[object, ...]:
    measured = proposer.metrics()
    return measured["proposer/values_right"], measured["proposer/values_wrong"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("group", "believed", "right", "wrong"),
    [
        (attempts(*RIGHT), (0.9, 0.9), 2, 1),
        (attempts(*RIGHT, WRONG[0], tests=FALSE), (0.9, 0.9, 0.1), 0, 3),
        (attempts(*RIGHT, "def twice(n):\n    return {2: 5}.get(n, 2 * n)", tests=FALSE), (0.9, 0.9, 0.9), 0, 2),
        (attempts(RIGHT[0], RIGHT[0]), (0.9, 0.9), 0, 0),
        (attempts(*RIGHT), (0.9, 0.1), 0, 0),
        (attempts(*RIGHT), (0.9, None), 0, 0),
        (attempts("while True: pass", "def twice(n): return open('x')"), (0.9, 0.9), 0, 0),
        (attempts(), (), 0, 0),
    ],
    ids=["agreed", "disbelieved", "one passes", "one program", "one believed", "one judged", "cannot tell", "none"],
)
def test_values_are_counted_by_what_believed_programs_agree_on(
    group: RolloutGroup, believed: Sequence[float | None], right: int, wrong: int, sandbox: MontySandbox
) -> None:
    proposer = counted(sandbox)
    assert len(proposer.propose([1])) == 1
    proposer.check([judged(group, *believed)])
    assert values(proposer) == (right, wrong)


def test_values_of_a_known_program_are_counted_when_they_are_written(sandbox: MontySandbox) -> None:
    proposer = counted(sandbox, RIGHT[0])
    assert proposer.metrics()["proposer/wrong_value_share"] is None
    proposer.propose([1, 2])
    proposer.check([judged(attempts(*RIGHT), 0.9, 0.9)])
    assert values(proposer) == (4, 2) and proposer.metrics()["proposer/wrong_value_share"] == pytest.approx(1 / 3)


def test_other_peers_values_are_not_counted(sandbox: MontySandbox) -> None:
    proposer = counted(sandbox, peer_id="she")
    proposer.check([judged(attempts(*RIGHT), 0.9, 0.9)])
    assert values(proposer) == (0, 0)
