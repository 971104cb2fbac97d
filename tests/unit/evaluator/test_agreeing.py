"""A small judge reads what does the same as its own solution as that solution, and nothing else."""

from collections.abc import Iterator

import pytest
from builders.models import tiny_policy

from codezero.code.worker import StaticGuard
from codezero.evaluator.judge import AgreeingJudge, LikelihoodJudge, with_own_solutions
from codezero.evaluator.types import Program, Reading
from codezero.models.load import load_model
from codezero.nano import weights_directory

QUESTION = "Write a function pick_item(nums) that returns the numbers in nums that are odd, from largest to smallest."
PLAIN = "def pick_item(nums):\n    return sorted([x for x in nums if x % 2 == 1], reverse=True)"
OTHER = """def pick_item(nums):
    v0 = []
    for v1 in nums:
        if v1 & 1:
            v0.append(v1)
    v0.sort()
    return v0[::-1]"""
WRONG = OTHER.replace("v1 & 1", "not v1 & 1")
STATEFUL = f"v0 = []\n{PLAIN} if [v0.append(1)] and len(v0) < 9 else nums"
UNCLEAR = "def pick_item(nums):\n    return sorted([x for x in nums if bin(x)[-1] == '1'], reverse=True)"


@pytest.fixture(scope="module")
def judge() -> Iterator[AgreeingJudge]:
    loaded = load_model(str(weights_directory("judge")), device="cpu", role="judge")
    with StaticGuard() as guard:
        made = with_own_solutions(LikelihoodJudge(loaded), guard)
        assert isinstance(made, AgreeingJudge)
        yield made


def read(judge: AgreeingJudge, *codes: str, kinds: tuple[str, ...] = ("[int]",)) -> list[Reading]:
    programs = [Program(QUESTION, code, entry_point="pick_item", kinds=kinds) for code in codes]
    return judge.read(programs, frozenset(judge.names))


def test_another_style_is_read_as_the_own_solution_and_a_near_miss_is_not(judge: AgreeingJudge) -> None:
    plain, other, wrong = read(judge, PLAIN, OTHER, WRONG)
    assert plain == other and plain.scores and wrong.scores
    assert wrong.scores[0] is not None and plain.scores[0] is not None and wrong.scores[0] < plain.scores[0] - 1


def test_about_what_it_cannot_follow_it_says_nothing(judge: AgreeingJudge) -> None:
    *unclear, constant = read(judge, UNCLEAR, STATEFUL, STATEFUL.replace("v0.append(1)", "len(v0)"))
    assert all(each.scores is None and "cannot follow" in each.why_not for each in unclear)
    assert (constant,) == tuple(read(judge, PLAIN)) and constant.scores is not None


def test_where_it_cannot_follow_itself_likelihood_alone_decides(judge: AgreeingJudge) -> None:
    (reading,) = read(judge, OTHER, kinds=("float",))
    assert reading.scores is not None


def test_what_it_forgets_comes_back_the_same(judge: AgreeingJudge) -> None:
    before = read(judge, OTHER, WRONG)
    judge.forget()
    assert read(judge, OTHER, WRONG) == before


def test_without_the_kinds_of_its_arguments_a_program_is_read_as_it_is(judge: AgreeingJudge) -> None:
    (known,) = read(judge, OTHER)
    (unknown,) = read(judge, OTHER, kinds=())
    assert unknown != known


def test_a_large_judge_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    large = LikelihoodJudge(tiny_policy(), questions=["likelihood"])
    monkeypatch.setattr(large, "parameters", 10**9)
    with StaticGuard() as guard:
        assert with_own_solutions(large, guard) is large
