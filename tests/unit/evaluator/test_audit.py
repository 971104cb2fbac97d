"""The audit: who is drawn, what the figures are of, and that they come from execution."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

import pytest
from builders.evaluator import FILTER, RIGHT, WRONG
from hypothesis import given
from hypothesis import strategies as st

from codezero.evaluator.evidence import (
    Audited,
    Auditor,
    JudgedAttempt,
    audit_gap,
    audit_metrics,
    audit_rates,
    draw_attempts,
    judged_success,
)
from codezero.sandbox.monty import MontySandbox
from codezero.types import Standing


@pytest.fixture(scope="module")
def sandbox() -> Iterator[MontySandbox]:
    with MontySandbox() as one:
        yield one


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


def test_weights_count():
    rows = [audited(0.9, True, 1.0), audited(0.9, False, 3.0)]
    made = audit_rates(rows)
    assert made["success"].share == made["precision"].share == 0.25 and judged_success(rows) == pytest.approx(0.9)


def test_judged_against_executed_success_is_a_gap():
    made = audit_gap([audited(0.71, True)] * 43 + [audited(0.71, False)] * 57)
    assert made is not None and made.mean == pytest.approx(0.28) and made.low > 0.15
    assert audit_gap([audited(0.9, False)]) is None
