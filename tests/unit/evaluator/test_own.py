"""A judge and a reward of one's own: made to fit, measured like any judge, and held to what they have to return."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders.evaluator import FILTER, RIGHT, WRONG, ToldJudge, build_monitor, group
from builders.models import judged

from codezero.code.parsing import fence
from codezero.code.worker import StaticGuard
from codezero.config import EvaluatorConfig
from codezero.errors import ConfigError, EvaluatorError, OwnCodeError
from codezero.evaluator.build import judge_identity
from codezero.evaluator.evaluator import FrozenEvaluator
from codezero.evaluator.own import CALLS, OwnJudge, OwnReward
from codezero.evaluator.reward import Rules
from codezero.evaluator.types import Program, Reading
from codezero.types import Status

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


@pytest.mark.parametrize(("name", "words"), [
    ("function", "evaluator.object=own.py:function raised KeyError: 'worn'"),
    ("endless", "evaluator.object=own.py:endless scored inf; a score is a finite number, or None"),
    ("Judge", "evaluator.object=own.py:Judge raised NameError"),
])  # fmt: skip
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


def reward(body: str, own: str = "") -> OwnReward:
    Path(f"reward_{abs(hash(body))}.py").write_text(f"def give(scored):\n    {body}\n")
    return OwnReward(f"reward_{abs(hash(body))}.py:give", own)


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


@pytest.mark.parametrize(("body", "words", "left"), [
    ("return [0.5]", "returned 1 rewards for 2 attempts", 0),
    ("return [0.5, 1.1]", "returned 1.1; a reward is a number from 0 to 1, or None", 0),
    ("return [0.5, -0.1]", "returned -0.1; a reward", 0),
    ("return [0.5, float('nan')]", "returned nan; a reward", 1),
    ("return [0.5, float('inf')]", "returned inf; a reward", 1),
    ("return [0.5, 'much']", "raised ValueError: could not convert", 1),
    ("return [0.5, []]", "raised TypeError: float() argument", 1),
    ("return 0.5", "raised TypeError: 'float' object is not iterable", 0),
    ("return 1 / 0", "raised ZeroDivisionError: division by zero", 0),
])  # fmt: skip
def test_what_is_no_reward_costs_the_attempts_that_it_is_about(
    body: str, words: str, left: int, caplog: pytest.LogCaptureFixture
) -> None:
    give = reward(body)
    after = give(judged(1, [0.9, 0.8]))
    assert len(after.trainable) == left
    (why,) = after.verdicts[-1].reasons
    assert why.startswith("reward.function=reward_") and words in why and "\n" not in why
    give(judged(1, [0.9, 0.8]))
    (line,) = caplog.records
    assert words in line.getMessage() and bool(line.exc_info) == ("raised" in words), "the trace of what was raised"


def test_one_that_keeps_failing_ends_the_run_at_own_attempts_alone() -> None:
    give, one = reward("raise KeyError('worn')", own="me"), judged(1, [0.9, 0.8])
    for peer_id in ["a stranger"] * 2 * CALLS + ["me"] * (CALLS - 1):
        give(replace(one, group=replace(one.group, peer_id=peer_id)))
    with pytest.raises(
        OwnCodeError, match=r"^reward.function=reward_\d+.py:give: no usable reward for 64 of the last 64"
    ):
        give(replace(one, group=replace(one.group, peer_id="me")))


def test_one_that_fails_for_the_fewer_goes_on() -> None:
    give, one = reward("return [0.5, float('nan')]", own="me"), judged(1, [0.9, 0.8])
    for _ in range(3 * CALLS):
        assert len(give(replace(one, group=replace(one.group, peer_id="me"))).trainable) == 1


def test_a_score_that_fails_costs_its_program_while_those_are_the_fewer() -> None:
    Path("own.py").write_text("def score(question, code): return 1 / len(code)")
    judge = OwnJudge("own.py:score")
    readings = judge.read([EMPTY, SHORT, SHORT], frozenset())
    assert readings[0].scores is None and "raised ZeroDivisionError" in readings[0].why_not
    assert readings[1:] == [Reading((1.0,))] * 2
    with pytest.raises(EvaluatorError, match=r"raised ZeroDivisionError: division by zero \(.*own.py:1\)"):
        judge.read([EMPTY, EMPTY, SHORT], frozenset())


def test_the_evaluator_asks_it_and_an_exams_attempts_are_left_alone(guard: StaticGuard) -> None:
    monitor = build_monitor(ToldJudge(lambda program: 1.0), guard)
    evaluator = FrozenEvaluator(monitor, Rules(reward=reward("return [None, 0.125]")))
    attempts = group(FILTER, fence(RIGHT), fence(WRONG))
    (scored,) = evaluator.score([attempts])
    assert scored.verdicts[0].status is Status.UNAVAILABLE and scored.verdicts[1].reward == 0.125
    assert evaluator.metrics()["judge/unavailable_share"] == 0.5
    bare = [each.__class__(each.text, (), (), each.finished) for each in attempts.completions]
    (exam,) = evaluator.score([group(FILTER).__class__(FILTER, tuple(bare), "peer", 0, 0)])
    assert exam.verdicts[0].status is not Status.UNAVAILABLE and exam.verdicts[1].reward != 0.125
