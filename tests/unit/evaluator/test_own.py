"""A judge and a reward of one's own: made to fit, measured like any judge, and held to what they have to return."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from builders.evaluator import FILTER, RIGHT, WRONG, ToldJudge, build_evaluator, group
from builders.models import judged

from codezero.code.parsing import fence
from codezero.code.worker import StaticGuard
from codezero.config import EvaluatorConfig
from codezero.errors import ConfigError, EvaluatorError
from codezero.evaluator.own import OwnJudge, own_reward
from codezero.evaluator.types import Program, Reading
from codezero.types import ScoredGroup, Status
from codezero.wiring.evaluator import judge_identity

CODE = """
class Judge:
    names = ("one", "two")
    def __init__(self): self.forgot = 0
    def read(self, programs, wanted): return [READING for _ in programs]
    def forget(self): raise RuntimeError("no memory")

class Simple:
    def score(self, question, code): return float(len(code)) if code else None

def function(question, code): raise KeyError("worn")
def endless(question, code): return float("inf")
def nothing(question, code): return None
number = 7
"""
EMPTY, SHORT = Program("q", ""), Program("q", "x")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(CODE)


def test_an_object_with_a_score_is_a_judge() -> None:
    judge = OwnJudge("own.py:Simple")
    assert judge.names == ("score",)
    assert judge.read([EMPTY, SHORT], frozenset(judge.names)) == [Reading((None,)), Reading((1.0,))]
    assert OwnJudge("own.py:nothing").read([SHORT], frozenset()) == [Reading((None,))]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("function", "evaluator.object=own.py:function raised KeyError: 'worn'"),
        ("endless", "evaluator.object=own.py:endless scored inf; a score is a finite number, or None"),
        ("Judge", "evaluator.object=own.py:Judge raised NameError"),
    ],
)
def test_one_that_fails_cannot_be_asked(name: str, words: str) -> None:
    with pytest.raises(EvaluatorError, match=f"^{words}"):
        OwnJudge(f"own.py:{name}").read([SHORT], frozenset())


@pytest.mark.parametrize("reading", ["None", "[1, 2]", "(1,)"])
def test_a_whole_judge_is_held_to_its_protocol(reading: str) -> None:
    made = "from codezero.evaluator.types import Reading\n" + CODE
    Path("whole.py").write_text(made.replace("READING", f"Reading({reading})"))
    judge = OwnJudge("whole.py:Judge")
    assert judge.names == ("one", "two")
    if reading == "(1,)":
        with pytest.raises(EvaluatorError, match="must return a score of each name"):
            judge.read([SHORT], frozenset())
    else:
        assert len(judge.read([SHORT, EMPTY], frozenset())) == 2
    with pytest.raises(EvaluatorError, match="raised RuntimeError: no memory"):
        judge.forget()


def test_what_is_no_judge_is_refused() -> None:
    with pytest.raises(ConfigError, match="is a int without score, or names, read, forget"):
        OwnJudge("own.py:number")


def test_another_judge_is_known_by_its_name_and_its_code() -> None:
    def identity(spec: Any) -> str:
        return judge_identity(EvaluatorConfig(kind="custom", object=spec))

    seen = {identity("own.py:Simple"), identity("own.py:nothing"), identity({"_target_": "own.py:Simple", "x": 1})}
    assert len(seen) == 3 and identity("own.py:Simple") in seen
    Path("own.py").write_text(CODE + "\n")
    assert identity("own.py:Simple") not in seen


def reward(body: str) -> Callable[[ScoredGroup], ScoredGroup]:
    Path(f"reward_{abs(hash(body))}.py").write_text(f"def give(scored):\n    {body}\n")
    return own_reward(f"reward_{abs(hash(body))}.py:give")


STATUSES = [Status.JUDGED, Status.CERTAIN_FAILURE, Status.QUARANTINED, Status.UNAVAILABLE]


def test_it_takes_the_place_of_the_reward_where_a_verdict_may_teach() -> None:
    before = judged(1, [0.9, 0.8, 0.7, 0.6], status=STATUSES)
    after = reward("return [0.25, 1, 0.5, 0.5]")(before)
    assert [verdict.reward for verdict in after.verdicts] == [0.25, 1.0, 0.7, 0.6]
    assert [verdict.correctness for verdict in after.verdicts] == [0.9, 0.8, 0.7, 0.6], "that stays the judge's"
    assert after.verdicts[0].reasons[-1].startswith("rewarded by reward_") and after.verdicts[2:] == before.verdicts[2:]


def test_none_masks_an_attempt() -> None:
    after = reward("return [None, 0.5]")(judged(1, [0.9, 0.8]))
    assert [verdict.status for verdict in after.verdicts] == [Status.UNAVAILABLE, Status.JUDGED]
    assert "gave no reward" in after.verdicts[0].reasons[0] and len(after.trainable) == 1


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return [0.5]", "returned 1 rewards for 2 attempts"),
        ("return [0.5, 1.1]", "returned 1.1; a reward is a number from 0 to 1, or None"),
        ("return [0.5, -0.1]", "returned -0.1; a reward"),
        ("return [0.5, float('nan')]", "returned nan; a reward"),
        ("return ['much', 0.5]", "raised ValueError: could not convert"),
        ("return 0.5", "raised TypeError: 'float' object is not iterable"),
        ("return 1 / 0", "raised ZeroDivisionError: division by zero"),
    ],
)
def test_what_is_no_reward_is_one_line(body: str, words: str) -> None:
    with pytest.raises(EvaluatorError) as caught:
        reward(body)(judged(1, [0.9, 0.8]))
    assert str(caught.value).startswith("reward.function=reward_") and words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def guard() -> Iterator[StaticGuard]:
    with StaticGuard() as running:
        yield running


def test_the_evaluator_asks_it_and_an_exams_attempts_are_left_alone(guard: StaticGuard) -> None:
    evaluator = build_evaluator(ToldJudge(lambda program: 1.0), guard)
    evaluator.rewarded = reward("return [None, 0.125]")
    attempts = group(FILTER, fence(RIGHT), fence(WRONG))
    (scored,) = evaluator.score([attempts])
    assert scored.verdicts[0].status is Status.UNAVAILABLE and scored.verdicts[1].reward == 0.125
    assert evaluator.metrics()["judge/unavailable_share"] == 0.5
    bare = [each.__class__(each.text, (), (), each.finished) for each in attempts.completions]
    (exam,) = evaluator.score([group(FILTER).__class__(FILTER, tuple(bare), "peer", 0, 0)])
    assert exam.verdicts[0].status is not Status.UNAVAILABLE and exam.verdicts[1].reward != 0.125
