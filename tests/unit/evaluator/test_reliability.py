"""The monitor over the judge: it notices when a judge is exploited, answers, gives up in time, and remembers."""

import gzip
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random

import pytest
from builders.data_sets import mbpp
from builders.evaluator import FILTER, RIGHT, WRONG, ToldJudge, build_evaluator, build_monitor, group, spelt
from builders.real_data import real_data
from hypothesis import given
from hypothesis import strategies as st

from codezero.code.parsing import fence
from codezero.code.worker import StaticGuard
from codezero.errors import AlarmError, CheckpointError, EvaluatorError
from codezero.evaluator.calibration import CanaryKind, CanaryLibrary, draw_canaries, dressed_up, transplants
from codezero.evaluator.evaluator import FrozenEvaluator
from codezero.evaluator.evidence import (
    Audited,
    Auditor,
    EventRate,
    Gap,
    JudgedAttempt,
    JudgedCanary,
    audit_metrics,
    audit_rates,
    draw_attempts,
    gap_of,
    gap_open,
    skill_lost,
    too_much_believed,
)
from codezero.evaluator.reliability import LOOK_EVERY, STRIKES, Coverage, coverage_of, limits
from codezero.evaluator.types import Program, Reading
from codezero.problems.rows import read_row
from codezero.problems.synthetic.tasks import held_out, make_task, worked
from codezero.sandbox.monty import MontySandbox
from codezero.stats import wilson
from codezero.types import Metrics, Problem, ScoredGroup, Source, Standing, Status, Style, Verdict

TRUE_PAIRS = [(0.9, True)] * 60 + [(0.1, False)] * 60
HACKED_PAIRS = [(0.9, True)] * 60 + [(0.9, False)] * 60


def examined(*groups: Sequence[tuple[float, bool]]) -> tuple[list[ScoredGroup], list[list[bool | None]]]:
    """Groups of (judged correctness, passed) as an exam has them."""
    scored = [
        ScoredGroup(
            group(FILTER, *[fence(RIGHT)] * len(members)),
            tuple(Verdict(p, p, 1.0, 1.0, 1.0, 1.0, Status.JUDGED) for p, _ in members),
        )
        for members in groups
    ]
    return scored, [[passed for _, passed in members] for members in groups]


@cache
def right_codes() -> frozenset[str]:
    """Canonical references of everything that the first canaries of seed 1 ask for."""
    counts = {"1 start": 200} | {f"1 {iteration}": 64 for iteration in range(2 * LOOK_EVERY + 1)}
    return frozenset(spelt(one) for seed in counts for one in draw_canaries(worked, counts[seed], seed) if one.right)


def honest(program: Program) -> float:
    return 1.0 if program.code in right_codes() else -1.0


def reviewed(problem: Problem, code: str, correctness: float) -> JudgedAttempt:
    return JudgedAttempt(problem, code, "peer", correctness, Program(problem.question, code))


# ------------------------------------------------------------------ evidence


def test_few_attempts_are_no_gap():
    assert gap_of(HACKED_PAIRS[:40]) is None
    gap = gap_of(HACKED_PAIRS)
    assert gap is not None and gap.mean == pytest.approx(0.4) and gap.low < 0.4 < gap.high


def test_only_what_is_certain_is_alarming():
    none = Gap(0.0, -0.01, 0.01, 60)
    assert gap_open("exam", Gap(0.30, 0.04, 0.5, 60), none) == ""
    assert "30%" in gap_open("exam", Gap(0.30, 0.20, 0.4, 60), none)
    never, few, many = (EventRate(share, wilson(share, n), n) for share, n in ((0.0, 60), (0.2, 10), (0.2, 200)))
    assert too_much_believed("them", few, never) == ""
    assert too_much_believed("them", many, never)
    assert too_much_believed("them", EventRate(None, wilson(0, 0), 0), many) == ""


def test_what_a_judge_gets_wrong_anyway_is_no_sign_that_it_is_exploited() -> None:
    """A real judge believes a third of mutants, and more of a policy that is mostly wrong than execution does."""
    mutants = EventRate(0.3, wilson(0.3, 40), 40)
    assert too_much_believed("them", EventRate(0.6, wilson(0.6, 10), 10), mutants) == ""
    assert "30% of plain" in too_much_believed("them", EventRate(0.9, wilson(0.9, 10), 10), mutants)
    first = Gap(0.26, 0.14, 0.38, 48)
    assert gap_open("exam", first, first) == "" and gap_open("exam", Gap(0.36, 0.24, 0.48, 48), first) == ""
    assert "26% at first" in gap_open("exam", Gap(0.60, 0.48, 0.72, 48), first)


def test_skill_that_is_lost_is_alarming() -> None:
    assert skill_lost(0.99, 0.97, 0.99) == "" and skill_lost(None, 0.5, 0.6) == ""
    assert "0.99 to 0.80" in skill_lost(0.99, 0.80, 0.90)


# ------------------------------------------------------------------ canaries


def test_canaries_are_half_right_and_the_same_for_the_same_seed():
    drawn = draw_canaries(worked, 41, "a")
    assert len(drawn) == 41 and drawn == draw_canaries(worked, 41, "a") != draw_canaries(worked, 41, "b")
    assert sum(one.right for one in drawn) in (20, 21)
    assert {one.kind for one in drawn} == {CanaryKind.REFERENCE, CanaryKind.MUTANT, CanaryKind.ATTACK}


def test_no_problem_is_drawn_twice_before_nearly_every_other() -> None:
    library = CanaryLibrary([worked(Random(seed)) for seed in range(50)])
    for count, times in ((80, {1}), (150, {1, 2})):
        drawn = Counter(canary.problem.id for canary in draw_canaries(library, count, "a") if canary.right)
        assert {*drawn.values()} == times


def test_dressing_up_does_not_make_a_program_another(guard: StaticGuard):
    from codezero.evaluator.types import request

    plain = guard.check_many([request(FILTER, fence(WRONG))])[0]
    for seed in range(12):
        dressed = guard.check_many([request(FILTER, fence(dressed_up(WRONG, Random(seed))))])[0]
        assert dressed.canonical == plain.canonical or dressed.quarantine


def test_a_source_without_wrong_solutions_says_so():
    with pytest.raises(EvaluatorError, match="no wrong solutions"):
        draw_canaries(lambda random: replace(worked(random), wrong=()), 4, "x")


def test_a_transplant_goes_to_a_problem_that_asks_for_something_else():
    one, other = (make_task(Random(seed), level=3).problem for seed in (1, 2))
    renamed = Problem(**{name: getattr(one, name) for name in one.__dataclass_fields__} | {"id": "0" * 64})
    assert transplants([(one, "a")], 4) == []
    assert transplants([(one, "a"), (renamed, "b")], 4) == []
    made = transplants([(one, "a"), (renamed, "b"), (other, "c"), (one, "d")], 4)
    assert made == [(one, "a", other), (renamed, "b", other), (other, "c", one)]


# ------------------------------------------------------------------ the run


@pytest.mark.slow
def test_an_honest_judge_raises_no_alarm(guard: StaticGuard):
    judge = ToldJudge(honest)
    monitor = build_monitor(judge, guard, canaries_per_iteration=16)
    evaluator = FrozenEvaluator(monitor)
    for iteration in range(1, 2 * LOOK_EVERY + 1):
        evaluator.review(iteration, evaluator.score([group(FILTER, fence(RIGHT), fence(WRONG))]))
        evaluator.witness(*examined(TRUE_PAIRS))
    measured = evaluator.metrics()
    assert monitor.alarms == () and measured["judge/alarm"] is None
    for kind in ("positive", "negative"):
        share = measured[f"judge/canary_false_{kind}_share"]
        assert isinstance(share, float) and share < 0.05


def test_canaries_are_read_among_the_attempts_and_not_marked(guard: StaticGuard):
    judge = ToldJudge(honest)
    evaluator = FrozenEvaluator(build_monitor(judge, guard, canaries_per_iteration=16))
    evaluator.review(1, evaluator.score([group(FILTER, fence(RIGHT))]))
    judge.asked.clear()
    evaluator.score([group(FILTER, fence(RIGHT))])
    assert len(judge.asked) > 8
    assert judge.asked == sorted(judge.asked, key=lambda one: (one.question, one.code))


def test_a_judge_that_falls_for_the_policy_is_found_by_transplants_alone(guard: StaticGuard):
    """From iteration 2 on it believes whatever carries a pattern of the policy's: no execution is needed to see it."""
    judge = ToldJudge(lambda program: 1.0 if "* 77" in program.code else honest(program))
    monitor = build_monitor(judge, guard, canaries_per_iteration=64, on_alarm="warn")
    problems = [make_task(Random(seed), level=4).problem for seed in range(16)]
    hacked = [reviewed(one, f"def {one.entry_point}(nums):\n    return sum(nums) * 77", 0.99) for one in problems]
    for iteration in range(1, LOOK_EVERY + 1):
        monitor.review(iteration, hacked)
        pending = sorted(monitor.pending(), key=lambda one: one.code)
        monitor.absorb(dict(zip(pending, judge.read(pending, frozenset(judge.names)), strict=True)))
    assert any("answers to other questions" in reason for reason in monitor.alarms)
    share = monitor.metrics()["judge/transplants_believed_share"]
    assert isinstance(share, float) and share > 0.9


def test_an_open_gap_is_said_and_ends_the_run_when_calibrating_anew_does_not_help(guard: StaticGuard):
    monitor = build_monitor(ToldJudge(honest), guard)
    monitor.witness(*examined(TRUE_PAIRS))
    for strike in range(1, STRIKES):
        monitor.witness(*examined(HACKED_PAIRS))
        assert "exam" in monitor.alarms[0]
        monitor.review(strike, [])
    assert monitor.metrics()["judge/calibrations"] == STRIKES
    monitor.witness(*examined(HACKED_PAIRS))
    with pytest.raises(AlarmError, match="learning on would only exploit it"):
        monitor.review(STRIKES, [])


def test_an_alarm_that_passes_is_forgotten(guard: StaticGuard):
    monitor = build_monitor(ToldJudge(honest), guard)
    for _ in range(2 * STRIKES):
        monitor.witness(*examined(HACKED_PAIRS))
        monitor.witness(*examined(TRUE_PAIRS))
        monitor.review(1, [])
    assert monitor.alarms == ()


def test_a_user_may_have_the_run_end_at_once_or_never(guard: StaticGuard):
    hasty, patient = (build_monitor(ToldJudge(honest), guard, on_alarm=how) for how in ("stop", "warn"))
    for monitor in (hasty, patient):
        monitor.witness(*examined(TRUE_PAIRS))
    hasty.witness(*examined(HACKED_PAIRS))
    with pytest.raises(AlarmError):
        hasty.review(1, [])
    for _ in range(2 * STRIKES):
        patient.witness(*examined(HACKED_PAIRS))
        patient.review(1, [])
    assert patient.alarms


def test_a_judge_without_skill_ends_the_run_that_it_alone_decides(guard: StaticGuard) -> None:
    """Else form alone would be learned, which is no part of what is right."""
    alone, patient = (build_monitor(ToldJudge(lambda _: 0.0), guard, on_alarm=how) for how in ("tighten", "warn"))
    helped = build_monitor(ToldJudge(lambda _: 0.0), guard)
    helped.alone = False
    with pytest.raises(AlarmError, match=r"no skill; before, it has no proven skill.*Use a better"):
        alone.review(LOOK_EVERY, [])
    patient.review(LOOK_EVERY, [])
    assert "only form" in patient.alarms[0]
    helped.review(LOOK_EVERY, [])
    assert helped.alarms == () and helped.weight == 0.0


def test_audited_attempts_take_an_exploited_score_out_of_the_reward(guard: StaticGuard):
    """One score is sound, the other is exploited on the policy's attempts only; calibration anew drops the latter."""

    class TwoScores:
        names = ("sound", "fooled")

        def read(self, programs: Sequence[Program], wanted: frozenset[str]) -> list[Reading]:
            def noisy(program: Program) -> float:
                return honest(program) + Random(program.code).gauss(0, 1.2)

            return [Reading((noisy(one), 9.0 if "+ 77" in one.code else 3 * honest(one))) for one in programs]

        def forget(self) -> None:
            """Remembers nothing."""

    judge = TwoScores()
    with MontySandbox() as sandbox:
        auditor = Auditor(sandbox, share=1.0, window=500, seed=0)
        monitor = build_monitor(judge, guard, auditor=auditor, refit_every=8)
        before = monitor.calibrated().fit
        problems = [make_task(Random(seed), level=4).problem for seed in range(16)]
        for iteration in range(1, 9):
            monitor.review(
                iteration,
                [
                    reviewed(one, f"def {one.entry_point}(nums):\n    return len(nums) * {iteration} + 77", 0.99)
                    for one in problems
                ],
            )
            pending = list(monitor.pending())
            monitor.absorb(dict(zip(pending, judge.read(pending, frozenset(judge.names)), strict=True)))
    after = monitor.calibrated().fit
    assert before is not None and before.weights[1] > 0
    assert after is None or after.probability((-1.0, 9.0)) < before.probability((-1.0, 9.0))


def test_the_audit_is_of_the_newest_attempts(guard: StaticGuard):
    with MontySandbox() as sandbox:
        monitor = build_monitor(ToldJudge(honest), guard, auditor=Auditor(sandbox, share=1.0, window=4, seed=0))
        for iteration in (1, 2):
            monitor.review(iteration, [reviewed(FILTER, code, 0.9) for code in (RIGHT, WRONG, RIGHT)])
    assert monitor.metrics()["audit/count"] == 4 and monitor.metrics()["audit/success"] == 0.75


# ------------------------------------------------------------------ within groups

EASY, HARD = [(0.9, True)] * 3 + [(0.9, False)], [(0.1, True)] + [(0.1, False)] * 3
"""A judge that knows which problems are easy, and orders no group."""
ORDERED = [[(0.6, True), (0.3, False)] * 4] * 20 + [[(0.8, True), (0.2, False)] * 4] * 20


def test_a_judge_that_only_knows_easy_problems_loses_its_weight_and_gets_it_back(guard: StaticGuard):
    monitor = build_monitor(ToldJudge(honest), guard, on_alarm="warn")
    evaluator, alone = FrozenEvaluator(monitor), FrozenEvaluator(monitor, gated=False)
    evaluator.monitor.calibrated()
    groups = [group(FILTER, fence(RIGHT), fence(WRONG))]

    def believed(by: FrozenEvaluator) -> list[float]:
        return [verdict.correctness for verdict in by.score(groups)[0].verdicts]

    before = believed(evaluator)
    measured = evaluator.witness(*examined(*[EASY, HARD] * 20))
    assert measured["judge/auroc"] == pytest.approx(0.75) and measured["judge/exam_within_auroc"] == 0.5
    assert (measured["judge/exam_within_auroc_pairs"], measured["judge/exam_within_auroc_groups"]) == (120, 40)
    assert "within groups and gets weight 0" in str(evaluator.metrics()["judge/alarm"])
    rates = evaluator.rates()
    assert evaluator.metrics()["judge/weight"] == 0.0 and rates is not None and rates.false_positive == 1.0
    assert believed(evaluator) == [0.5, 0.5] and believed(alone) == before
    evaluator.witness(*examined(*ORDERED))
    assert evaluator.metrics()["judge/weight"] == 1.0 and believed(evaluator) == before
    assert evaluator.metrics()["judge/alarm"] is None


def test_few_groups_take_no_weight(guard: StaticGuard):
    monitor = build_monitor(ToldJudge(honest), guard)
    monitor.calibrated()
    monitor.witness(*examined(*([EASY, HARD] * 20)[1:]))
    assert monitor.metrics()["judge/weight"] == 1.0 and monitor.metrics()["judge/within_auroc_groups"] == 39


def test_a_run_whose_judge_orders_no_group_ends(guard: StaticGuard):
    monitor = build_monitor(ToldJudge(honest), guard)
    monitor.witness(*examined(TRUE_PAIRS))
    for strike in range(1, STRIKES):
        monitor.witness(*examined(*[EASY, HARD] * 20))
        monitor.review(strike, [])
    monitor.witness(*examined(*[EASY, HARD] * 20))
    with pytest.raises(AlarmError, match="no proven skill within groups"):
        monitor.review(STRIKES, [])


def test_audited_own_attempts_take_the_weight_and_a_strangers_do_not(guard: StaticGuard):
    wrong = [WRONG.replace("return", f"return {n} and") for n in range(3)]
    problems = [replace(FILTER, id=f"{number}" * 64) for number in range(10)]

    def audited(peer: str) -> Metrics:
        with MontySandbox() as sandbox:
            auditor = Auditor(sandbox, share=1.0, window=500, seed=0, own="peer")
            monitor = build_monitor(ToldJudge(honest), guard, auditor=auditor, on_alarm="warn")
            for iteration in range(1, 8):
                attempts = [reviewed(each, code, 0.5) for each in problems for code in (RIGHT, *wrong)]
                monitor.review(iteration, [replace(each, peer=peer) for each in attempts])
            return monitor.metrics()

    own, strange = audited("peer"), audited("stranger")
    assert (own["judge/weight"], own["audit/within_auroc"], own["audit/within_auroc_pairs"]) == (0.0, 0.5, 180)
    assert own["audit/count"] == 280, "without weight it orders nothing"
    assert (strange["judge/weight"], strange["audit/within_auroc"]) == (1.0, None)


# ------------------------------------------------------------------ memory


def test_a_watch_is_found_again_as_it_was_left(guard: StaticGuard, tmp_path: Path):
    judge = ToldJudge(honest)
    left = build_monitor(judge, guard)
    left.witness(*examined(TRUE_PAIRS))
    left.witness(*examined(HACKED_PAIRS))
    left.calibrated()
    left.save(tmp_path)
    found = build_monitor(judge, guard)
    found.load(tmp_path)
    judge.asked.clear()
    assert found.calibrated() == left.calibrated() and found.alarms == left.alarms != ()
    assert judge.asked == []


def test_another_judge_starts_without_memory(guard: StaticGuard, tmp_path: Path):
    left = build_monitor(ToldJudge(honest), guard)
    left.witness(*examined(TRUE_PAIRS))
    left.witness(*examined(HACKED_PAIRS))
    assert left.alarms
    left.save(tmp_path)
    other = build_monitor(ToldJudge(honest), guard, identity="another")
    other.load(tmp_path)
    assert other.alarms == ()


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"identity": 1}', b"\xff"])
def test_a_damaged_memory_is_a_damaged_checkpoint(guard: StaticGuard, tmp_path: Path, damage: bytes):
    (tmp_path / "watch.json").write_bytes(damage)
    with pytest.raises(CheckpointError, match=r"watch\.json"):
        build_monitor(ToldJudge(honest), guard).load(tmp_path)


def test_the_rates_are_those_of_the_metrics_and_those_of_a_judge_without_skill_tell_nothing(guard: StaticGuard) -> None:
    monitor = build_monitor(ToldJudge(honest), guard)
    assert monitor.rates() is None
    monitor.calibrated()
    rates, metrics = monitor.rates(), monitor.metrics()
    assert rates is not None and rates.wrong > 50 < rates.right
    assert rates.false_positive == metrics["judge/canary_false_positive_share"]
    assert rates.false_negative == metrics["judge/canary_false_negative_share"]
    blind = build_monitor(ToldJudge(lambda _: 0.0), guard)
    blind.calibrated()
    assert blind.rates() is not None and (blind.rates().false_positive, blind.rates().false_negative) == (1.0, 0.0)


def canary(problem: Problem, kind: CanaryKind = CanaryKind.REFERENCE) -> JudgedCanary:
    program = Program(problem.question, "pass", (), problem.style is Style.STDIO, problem.entry_point)
    return JudgedCanary(problem.id, program, right=True, kind=kind)


def embedded(first: int, count: int) -> list[Problem]:
    return [make_task(Random(f"coverage {number}")).problem for number in range(first, first + count)]


def published() -> list[Problem]:
    folder = real_data("mbpp.jsonl", "HumanEval.jsonl.gz")
    problems = [read_row(line).problem for line in (folder / "mbpp.jsonl").read_bytes().splitlines()]
    with gzip.open(folder / "HumanEval.jsonl.gz") as rows:
        asked = [json.loads(row) for row in rows]
    return problems + [
        Problem(row["task_id"], row["prompt"], (), row["entry_point"], problems[0].source) for row in asked
    ]


@pytest.fixture(scope="module")
def coverage() -> Coverage:
    return coverage_of([canary(problem) for problem in embedded(0, 200)])


def test_nearly_all_of_its_own_kind_is_covered(coverage: Coverage) -> None:
    own = [*embedded(1000, 1000), *held_out(200, 1)]
    assert len(limits(coverage, own)) <= 0.05 * len(own)


def test_other_problems_are_not_and_the_reason_says_why(coverage: Coverage) -> None:
    others = [read_row(mbpp(number)).problem for number in range(20)]
    why = limits(coverage, others)
    assert set(why) == {problem.id for problem in others}
    assert all("words are new" in reason or "some" in reason for reason in why.values())


def test_no_problem_of_mbpp_or_human_eval_is_covered_by_the_embedded_ones(coverage: Coverage) -> None:
    problems = published()
    assert len(limits(coverage, problems)) >= 0.99 * len(problems)


def test_a_tenth_of_mbpp_covers_the_rest_of_it() -> None:
    problems = published()[:974]
    own = coverage_of([canary(problem) for problem in problems[::10]])
    rest = [problem for number, problem in enumerate(problems) if number % 10]
    assert len(limits(own, rest)) <= 0.08 * len(rest)


def test_programs_are_not_covered_by_functions_nor_anything_by_transplants(coverage: Coverage) -> None:
    problem = embedded(5, 1)[0]
    program = Problem(problem.id, problem.question, problem.tests, "", problem.source)
    assert limits(coverage, [program]) == {problem.id: "the judge was measured on no programs"}
    assert coverage_of([canary(problem, CanaryKind.TRANSPLANT) for problem in embedded(0, 100)]) == {}


def test_an_attempt_at_another_kind_of_problem_is_unavailable_whatever_the_judge_thinks() -> None:
    with StaticGuard() as guard:
        canaries = draw_canaries(worked, 200, "1 start")
        right = {canary.code for canary in canaries if canary.right}
        judge = ToldJudge(lambda program: 1.0 if program.code in right else -1.0)
        evaluator = build_evaluator(judge, guard)
        evaluator.monitor.calibrated()
        judge.asked.clear()
        one, other = canaries[0], read_row(mbpp(1)).problem
        groups = [group(one.problem, fence(one.code)), group(other, fence(str(other.reference)))]
        own, foreign = evaluator.score(groups)
    assert own.verdicts[0].status is Status.JUDGED
    assert foreign.verdicts[0].status is Status.UNAVAILABLE and "words" in foreign.verdicts[0].reasons[0]
    assert other.question not in {program.question for program in judge.asked}


@given(st.text(max_size=2000), st.text(max_size=20))
def test_any_question_gets_an_answer(coverage: Coverage, question: str, entry: str) -> None:
    assert isinstance(limits(coverage, [Problem("key", question, (), entry, Source.MBPP)]), dict)


def attempt(code: str, correctness: float, peer: str = "me") -> JudgedAttempt:
    return JudgedAttempt(FILTER, code, peer, correctness)


def audited(correctness: float, passed: bool | None, weight: float = 1.0, peer: str = "me") -> Audited:
    return Audited(peer, 3, correctness, passed, weight)


def test_figures_come_from_execution(sandbox: MontySandbox):
    auditor = Auditor(sandbox, share=1.0, window=1_000, seed=0)
    crowd = [attempt(RIGHT, 0.9), attempt(WRONG, 0.8), attempt(WRONG, 0.1), attempt("import numpy\n" + RIGHT, 0.9)]
    rows = [row for occasion in range(30) for _, row in auditor.audit(crowd, occasion)]
    made = audit_rates(rows)
    assert made["success"].share == pytest.approx(1 / 3)
    assert made["false_positive"].share == pytest.approx(1 / 2)
    assert made["recall"].share == 1 and made["false_negative"].share == 0
    assert audit_metrics(rows)["audit/unknown_share"] == pytest.approx(1 / 4)
    assert made["success"].interval.low < 1 / 3 < made["success"].interval.high


def test_claims_are_not_audited(sandbox: MontySandbox):
    claimed = replace(attempt(WRONG, 0.9), problem=replace(FILTER, standing=Standing.CLAIMED))
    auditor = Auditor(sandbox, share=1.0, window=100, seed=0)
    assert auditor.audit([claimed], 1) == [] and audit_rates([])["success"].share is None


def test_the_share_asked_for_is_drawn_on_average():
    crowd = [attempt(RIGHT, i / 100) for i in range(100)]
    drawn = [len(draw_attempts(crowd, 0.035, Random(seed))) for seed in range(400)]
    assert 3.0 < sum(drawn) / len(drawn) <= 3.5
    assert draw_attempts(crowd, 0.0, Random(0)) == [] == draw_attempts([], 1.0, Random(0))


def test_a_rare_peer_is_seen_and_does_not_count_for_more():
    """One attempt in a hundred is a stranger's: drawn far more often than that, and weighed down by as much."""
    crowd = [attempt(f"{i}", 0.5) for i in range(99)] + [attempt("rare", 0.5, peer="stranger")]
    samples = [draw_attempts(crowd, 0.05, Random(seed)) for seed in range(2_000)]
    seen = sum(any(one.peer == "stranger" for one, _ in sample) for sample in samples) / len(samples)
    assert seen > 0.5
    estimate = sum(weight for sample in samples for one, weight in sample if one.peer == "stranger") / len(samples)
    assert estimate == pytest.approx(1.0, abs=0.1)  # Horvitz-Thompson: one attempt
    total = sum(weight for sample in samples for _, weight in sample) / len(samples)
    assert total == pytest.approx(100, rel=0.05)


@given(st.lists(st.tuples(st.floats(0, 1), st.sampled_from([True, False, None]), st.floats(1, 500)), max_size=40))
def test_every_figure_is_a_share_inside_its_interval(rows: Sequence[tuple[float, bool | None, float]]):
    attempts = [audited(*row) for row in rows]
    for share in audit_rates(attempts).values():
        if share.share is not None:
            assert 0 <= share.interval.low <= share.share + 1e-9 <= share.interval.high + 2e-9 <= 1 + 3e-9
    assert audit_metrics(attempts)["audit/count"] == sum(passed is not None for _, passed, _ in rows)
