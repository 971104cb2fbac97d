"""Which problems a proposer takes back, and that no peers can make it take back what is sound."""

import dataclasses
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from test_vetting import RIGHT, TESTS, WRONG, Judge, Writer, attempts, problem

from codezero.errors import CheckpointError, SandboxError
from codezero.proposer.hearsay import LEAST_ATTEMPTS, ONE_IN, REMEMBERED, WITNESSES, Hearsay
from codezero.proposer.proposer import NoProposer
from codezero.proposer.recall import RecallingProposer
from codezero.proposer.refuting import ExecutedRefuting, JudgedRefuting, Refuting, Values
from codezero.sandbox.monty import MontySandbox
from codezero.types import Feedback, Problem, RolloutGroup, ScoredGroup, Status, Verdict

FALSE = ("assert twice(2) == 5", "assert twice(5) == 11", "assert twice(7) == 15")


def judged(group: RolloutGroup, *correctness: float | None) -> ScoredGroup:
    verdicts = [
        Verdict(0.0, one or 0.0, 1.0, 1.0, 1.0, 1.0, Status.UNAVAILABLE if one is None else Status.JUDGED)
        for one in correctness
    ]
    return ScoredGroup(group, tuple(verdicts))


def no_program(_: Problem) -> None:
    return None


@pytest.fixture(scope="module")
def sandbox() -> Iterator[MontySandbox]:
    with MontySandbox() as made:
        yield made


@pytest.mark.parametrize(
    ("group", "believed", "broken"),
    [
        (attempts(*RIGHT, tests=FALSE), (0.9, 0.9), True),
        (attempts(*RIGHT, WRONG[0], tests=FALSE), (0.9, 0.9, 0.1), True),
        (attempts(*RIGHT, tests=TESTS), (0.9, 0.9), False),
        (attempts(RIGHT[0], RIGHT[0], tests=FALSE), (0.9, 0.9), False),
        (attempts(*RIGHT, tests=FALSE), (0.9, 0.1), False),
        (attempts(*RIGHT, tests=FALSE), (0.9, None), False),
        (attempts("while True: pass", "def twice(n): return open('x')", tests=FALSE), (0.9, 0.9), False),
        (attempts(tests=FALSE), (), False),
    ],
    ids=[
        "all wrong",
        "disbelieved ones do not count",
        "one wrong of three",
        "no two programs",
        "one believed",
        "one judged",
        "nobody can tell",
        "no attempt",
    ],
)
def test_execution_refutes_only_what_believed_programs_agree_on(
    group: RolloutGroup, believed: Sequence[float | None], broken: bool, sandbox: MontySandbox
) -> None:
    found = ExecutedRefuting(Values(sandbox, no_program)).broken([judged(group, *believed)])
    assert found == ([group.problem] if broken else [])


def test_a_program_that_passes_saves_its_test(sandbox: MontySandbox) -> None:
    fits = "def twice(n):\n    return {2: 5, 5: 11}.get(n, 2 * n)"
    group = attempts(*RIGHT, fits, tests=FALSE)
    assert ExecutedRefuting(Values(sandbox, no_program)).broken([judged(group, 0.9, 0.9, 0.9)]) == []


def test_the_wrong_values_are_counted_by_the_known_program_or_else_by_the_attempts(sandbox: MontySandbox) -> None:
    by_program = Values(sandbox, lambda _: RIGHT[0])
    by_program.look([problem(), problem(FALSE)])
    assert by_program.counts == {True: 2, False: 4}
    ExecutedRefuting(by_program).broken([judged(attempts(*RIGHT), 0.9, 0.9)])
    assert by_program.counts == {True: 2, False: 4}
    by_attempts = Values(sandbox, no_program)
    by_attempts.look([problem(), problem(FALSE)])
    ExecutedRefuting(by_attempts).broken([judged(attempts(*RIGHT), 0.9, 0.9)])
    assert by_attempts.counts == {True: 2, False: 1}


@pytest.mark.parametrize(("shown", "broken"), [((0.1, 0.2), True), ((0.1, 0.9), False), ((None, None), False)])
def test_a_judge_that_is_shown_the_tests_may_find_them_contradicted(
    shown: Sequence[float | None], broken: bool
) -> None:
    judge: Any = Judge((), shown)
    group = attempts(*RIGHT)
    assert JudgedRefuting(judge).broken([judged(group, 0.9, 0.9)]) == ([group.problem] if broken else [])
    assert JudgedRefuting(judge).broken([]) == []


def said(peer: str, about: str, success: float, **changes: Any) -> Feedback:
    return dataclasses.replace(Feedback(peer, about, 3, 8, success), **changes)


def able(peers: Sequence[str], level: int = 3) -> list[Feedback]:
    return [said(peer, f"easy {number}", 0.8, level=level) for number, peer in enumerate(peers)]


PEERS = [f"peer {number}" for number in range(WITNESSES)]
FAILING = [said(peer, "bad", 0.02) for peer in PEERS]


def test_enough_able_peers_who_all_fail_make_a_problem_broken_once() -> None:
    hearsay = Hearsay()
    assert hearsay.hear(able(PEERS)) == []
    assert hearsay.hear(FAILING) == ["bad"]
    assert hearsay.hear(FAILING) == []


@pytest.mark.parametrize(
    "feedback",
    [
        FAILING,
        able(PEERS) + FAILING[1:],
        able(PEERS) + [FAILING[0]] * WITNESSES,
        able(PEERS, level=2) + FAILING,
        able(PEERS) + [dataclasses.replace(one, trust=0.4) for one in FAILING],
        able(PEERS) + [dataclasses.replace(one, attempts=LEAST_ATTEMPTS - 1) for one in FAILING],
        able(PEERS) + [dataclasses.replace(one, level=None) for one in FAILING],
        [*able(PEERS), *FAILING, said("another", "bad", 0.2)],
    ],
    ids=[
        "unable",
        "too few",
        "one peer often",
        "able at less",
        "distrusted",
        "few attempts",
        "no level",
        "solved once",
    ],
)
def test_less_than_that_is_not_enough(feedback: list[Feedback]) -> None:
    assert Hearsay().hear(feedback) == []


def test_what_this_node_solved_is_not_taken_back_whatever_peers_say() -> None:
    hearsay, group = Hearsay(), attempts(*RIGHT)
    hearsay.saw([judged(group, 0.9, 0.1)])
    lies = [dataclasses.replace(one, problem_id=group.problem.id) for one in FAILING]
    assert hearsay.hear(able(PEERS) + lies) == []


def test_liars_cost_no_more_than_their_share_of_the_problems() -> None:
    hearsay, lost = Hearsay(), 0
    for number in range(40):
        lost += len(hearsay.hear(able(PEERS) + [said(peer, f"sound {number}", 0.0) for peer in PEERS]))
    assert 0 < lost <= 40 // ONE_IN + 1


def test_what_is_remembered_of_peers_words_is_bounded() -> None:
    hearsay = Hearsay()
    for number in range(3 * REMEMBERED):
        hearsay.hear([said(f"peer {number}", f"one {number}", 0.9), said(f"peer {number}", f"two {number}", 0.0)])
    state = hearsay.state()
    assert len(state.cases) == len(state.able) == REMEMBERED
    assert Hearsay(state).state() == state


class Refuter:
    """Calls whatever it is shown broken, or fails."""

    reason = "refuted"

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def broken(self, scored: Sequence[ScoredGroup]) -> list[Problem]:
        if self.error:
            raise self.error
        return [one.group.problem for one in scored]


class Fresh(NoProposer):
    """A new question at each call."""

    numbers = count()

    def propose(self, levels: Sequence[int]) -> list[Problem]:
        return [dataclasses.replace(problem(), id=f"{next(self.numbers)}", question=f"n {next(self.numbers)}")]


def recalling(*refuting: Refuting, writer: NoProposer | None = None) -> RecallingProposer:
    return RecallingProposer(writer or Writer(), peer_id="me", refuting=refuting)


def test_what_was_taken_back_is_told_once_and_not_written_again() -> None:
    proposer, mine = recalling(Refuter()), judged(attempts(*RIGHT), 0.9, 0.9)
    assert len(proposer.propose([1])) == 1
    assert proposer.broken([mine], []) == [mine.group.problem.id]
    assert proposer.broken([mine], []) == [] == proposer.propose([1, 2])
    told = proposer.metrics()
    assert (told["proposer/withdrawn"], told["proposer/withdrawn_refuted"], told["proposer/rewritten"]) == (1, 1, 2)


def test_other_peers_problems_are_none_of_its_business() -> None:
    group = attempts(*RIGHT)
    hers = dataclasses.replace(group, problem=dataclasses.replace(group.problem, proposer="she"))
    assert recalling(Refuter()).broken([judged(hers, 0.9, 0.9)], []) == []


def test_a_restart_forgets_nothing_and_tells_what_was_not_told(tmp_path: Path) -> None:
    before = recalling(Refuter(SandboxError("gone")))
    with pytest.raises(SandboxError):
        before.broken([], able(PEERS) + FAILING)
    before.save(tmp_path)
    after = recalling(Refuter())
    after.load(tmp_path)
    assert after.metrics() == before.metrics()
    assert after.broken([], FAILING) == ["bad"]
    assert after.broken([], FAILING) == []
    mine = judged(attempts(*RIGHT), 0.9, 0.9)
    after.broken([mine], [])
    (tmp_path / "again").mkdir()
    after.save(tmp_path / "again")
    last = recalling()
    last.load(tmp_path / "again")
    assert last.propose([1]) == []


def test_the_memory_is_bounded(tmp_path: Path) -> None:
    proposer = recalling(Refuter(), writer=Fresh())
    for _ in range(700):
        (one,) = proposer.propose([1])
        proposer.broken([judged(dataclasses.replace(attempts(), problem=one))], [])
    proposer.save(tmp_path)
    recalling().load(tmp_path)
    assert (tmp_path / "recall.json").stat().st_size < 1 << 18


def test_a_checkpoint_of_before_is_read_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    recalling().load(tmp_path)
    for text in ("{", "[]", '{"keys": 1}', '{"other": []}', "\xff"):
        (tmp_path / "recall.json").write_bytes(text.encode("latin-1"))
        with pytest.raises(CheckpointError, match=r"recall\.json"):
            recalling().load(tmp_path)
