"""The hostile suite through the real guard, the real reward and the real embedded judge; and anything at all."""

from dataclasses import replace

import psutil
import pytest
from builders.evaluator import build_evaluator, group
from builders.hostile_completions import ATTACKS, BOMBS, QUARANTINED, Attack
from hypothesis import given, settings
from hypothesis import strategies as st

from codezero.code.answer import BLOCKS
from codezero.code.parsing import fence
from codezero.code.report import StaticReport
from codezero.code.worker import StaticGuard, StaticRequest
from codezero.evaluator.evaluator import FrozenEvaluator
from codezero.evaluator.judge import AgreeingJudge, LikelihoodJudge
from codezero.evaluator.reward import verdict
from codezero.models.load import load_model
from codezero.nano import weights_directory
from codezero.sandbox.base import Job, Outcome
from codezero.sandbox.monty import MontySandbox
from codezero.types import Problem, Status

CALLED = [attack for attack in ATTACKS if attack.problem.entry_point]


@pytest.fixture(scope="module")
def evaluator(guard: StaticGuard) -> FrozenEvaluator:
    nano = load_model(str(weights_directory("judge")), device="cpu", role="judge")
    made = build_evaluator(AgreeingJudge(LikelihoodJudge(nano), guard), guard)
    made.monitor.calibrated()
    return made


def request(attack: Attack, text: str) -> StaticRequest:
    of = attack.problem
    return StaticRequest(text, of.tests, of.entry_point, of.question)


def reports(guard: StaticGuard, attacks: list[Attack]) -> list[StaticReport]:
    return guard.check_many([request(attack, attack.text) for attack in attacks])


def described(attack: Attack) -> str:
    return f"{attack.kind}: {attack.text[:300]!r}"


def test_the_suite_is_as_large_as_it_says():
    assert len({(attack.problem.id, attack.text) for attack in ATTACKS}) >= 450
    assert len({attack.kind for attack in ATTACKS}) >= 30
    assert len({attack.problem.id for attack in ATTACKS}) == 3


def test_cheating_is_quarantined(guard: StaticGuard):
    """Whatever the judge would have said of it."""
    cheating = [attack for attack in ATTACKS if attack.kind in QUARANTINED]
    for attack, report in zip(cheating, reports(guard, cheating), strict=True):
        made = verdict(report, 1.0, finished=True)
        assert made.status is Status.QUARANTINED and made.reward <= 0.05, described(attack)
        assert made.reasons and not made.trainable


def test_plain_wrong_answers_are_not_quarantined(guard: StaticGuard):
    """The suite would prove nothing if the twins were refused as well."""
    twins = {(attack.problem.id, attack.plain): attack for attack in ATTACKS}.values()
    for report in guard.check_many([request(attack, attack.plain) for attack in twins]):
        assert not report.quarantine and not report.certain_failure


def test_empty_words_earn_next_to_nothing(guard: StaticGuard):
    keys = [attack for attack in ATTACKS if attack.kind == "master keys"]
    for attack, report in zip(keys, reports(guard, keys), strict=True):
        made = verdict(report, 1.0, finished=True)
        assert made.status is Status.CERTAIN_FAILURE and made.reward <= 0.05, described(attack)


@pytest.mark.slow
def test_no_attack_earns_more_than_the_same_answer_without_it(evaluator: FrozenEvaluator):
    """The promise of the whole evaluator, on every string of the suite."""
    groups = [group(attack.problem, attack.text, attack.plain) for attack in CALLED]
    for attack, scored in zip(CALLED, evaluator.score(groups), strict=True):
        attacked, plain = scored.verdicts
        assert attacked.reward <= plain.reward + 1e-6, (described(attack), attacked, plain)


@pytest.mark.parametrize("block", BLOCKS[1:])
def test_two_versions_earn_no_more_than_the_last_of_them(guard: StaticGuard, block: str):
    """In every order and dress, with execution as the judge."""
    tricks = [attack for attack in ATTACKS if attack.kind == "fence tricks"]
    asked = [replace(request(trick, text), block=block) for trick in tricks for text in (trick.text, trick.plain)]
    read = guard.check_many(asked)
    with MontySandbox() as sandbox:
        jobs = [Job(report.code or "", of.tests, not of.entry_point) for report, of in zip(read, asked, strict=True)]
        passed = sandbox.run_distinct(jobs)
    earned = [
        verdict(report, float(passed[job].outcome is Outcome.PASS), finished=True).reward
        for report, job in zip(read, jobs, strict=True)
    ]
    for trick, hedged, alone in zip(tricks, earned[::2], earned[1::2], strict=True):
        assert hedged <= alone + 1e-9, (described(trick), hedged, alone)
    assert {Outcome.PASS, Outcome.FAIL} <= {execution.outcome for execution in passed.values()}


def test_bombs_are_answered_in_time_and_cost_the_node_nothing():
    """Two CPU seconds for one completion is what the child may use; the node itself holds on to nothing."""
    bombs = [attack for attack in ATTACKS if attack.kind == "parser bombs"]
    with StaticGuard(seconds=2.0) as fresh:  # it remembers no report
        fresh.check_many([request(bombs[0], bombs[0].plain)])
        node = psutil.Process()
        before = node.memory_info().rss
        for number, attack in enumerate(bombs):
            assert fresh.workers[0].pid is not None
            spent = _cpu_seconds(fresh.workers[0].pid)
            bomb, after = fresh.check_many([request(attack, attack.text), request(attack, f"{attack.plain}\n{number}")])
            assert not bomb.unavailable and (bomb.certain_failure or bomb.canonical), described(attack)
            assert after.canonical and not after.certain_failure
            assert not any(worker.deaths for worker in fresh.workers), described(attack)
            assert _cpu_seconds(fresh.workers[0].pid) - spent < 2.0, described(attack)
        assert node.memory_info().rss - before < 32 * 2**20


def _cpu_seconds(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


PIECES = st.sampled_from([piece for attack in ATTACKS for piece in attack.text.splitlines()[:40] if len(piece) < 200])
MANGLED = st.lists(PIECES, min_size=1, max_size=12).map("\n".join)
ANYTHING = st.one_of(
    st.text(max_size=400),
    st.binary(max_size=400).map(lambda data: data.decode("utf-8", "surrogateescape")),
    MANGLED,
    MANGLED.map(fence),
    st.sampled_from(list(BOMBS.values())).map(lambda bomb: fence(bomb[:2_000])),
)


@settings(max_examples=200, deadline=None)
@given(ANYTHING, st.sampled_from([*{attack.problem.id: attack.problem for attack in ATTACKS}.values()]))
def test_anything_gets_a_verdict(guard: StaticGuard, text: str, problem: Problem):
    (report,) = guard.check_many([StaticRequest(text, problem.tests, problem.entry_point, problem.question)])
    made = verdict(report, 1.0, finished=True)
    assert 0.0 <= made.reward <= 1.0
    assert not any(worker.deaths for worker in guard.workers)


@settings(max_examples=60, deadline=None)
@given(ANYTHING, st.text(max_size=300))
def test_hostile_tests_and_questions_are_survived(guard: StaticGuard, test: str, question: str):
    (report,) = guard.check_many([StaticRequest(fence("print(input())"), (test, test), "f", question)])
    assert isinstance(report, StaticReport)
    (report,) = guard.check_many([StaticRequest(fence("print(input())"), (test,), "", question)])
    assert isinstance(report, StaticReport)
    assert not any(worker.deaths for worker in guard.workers)
