"""The composite: its range, what dominates, what caps it, and who gets no gradient."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codezero.code.report import StaticReport
from codezero.evaluator.reward import cap, verdict
from codezero.types import Status

FINE = StaticReport(
    code="x", closed=True, parses=True, entry_defined=True, arity_ok=True, returns_value=True, canonical="x"
)
BOOLEANS = st.booleans()
FLAWS = st.sampled_from([(), ("x",)])
REPORTS = st.builds(
    StaticReport,
    code=st.sampled_from([None, "", "x"]),
    flaw=st.sampled_from(["", "2 fences"]),
    closed=BOOLEANS,
    parses=BOOLEANS,
    entry_defined=BOOLEANS,
    arity_ok=BOOLEANS,
    returns_value=BOOLEANS,
    stub=BOOLEANS,
    degenerate=FLAWS,
    undefined_names=FLAWS,
    banned=FLAWS,
    toplevel=FLAWS,
    unused_params=FLAWS,
    signature_as_stated=BOOLEANS,
    hardcode_ratio=st.floats(0, 1),
    quarantine=FLAWS,
    unavailable=st.sampled_from(["", "busy"]),
)


@given(REPORTS, st.one_of(st.none(), st.floats(0, 1)), BOOLEANS)
def test_the_reward_is_the_formula_and_stays_in_range(report: StaticReport, correctness: float | None, finished: bool):
    made = verdict(report, correctness, finished)
    assert 0 <= made.reward <= 1
    parts = 0.70 * made.correctness + 0.15 * made.structure + 0.10 * made.adherence + 0.05 * made.format
    assert made.reward == pytest.approx(made.cap * parts)


def test_perfect_is_one_and_wrong_keeps_only_its_form():
    assert verdict(FINE, 1.0, True).reward == pytest.approx(1.0)
    assert verdict(FINE, 0.0, True).reward == pytest.approx(0.30)


@given(REPORTS, REPORTS)
def test_correctness_outweighs_everything_else_together(right: StaticReport, wrong: StaticReport):
    """Among programs that can be called: the worst right one beats the best wrong one."""
    usable = {"code": "x", "parses": True, "entry_defined": True, "arity_ok": True, "quarantine": (), "unavailable": ""}
    good = verdict(replace(right, **usable), 1.0, False)
    bad = verdict(replace(wrong, **usable), 0.0, True)
    assert good.reward > bad.reward


@pytest.mark.parametrize(("change", "most"), [
    ({"code": None, "parses": False, "refusal": "no Python fence"}, 0.05),
    ({"parses": False, "refusal": "unparseable: x"}, 0.10), ({"entry_defined": False}, 0.15),
    ({"arity_ok": False}, 0.15),
])  # fmt: skip
def test_a_certain_failure_is_capped_and_the_judge_is_ignored(change: dict[str, object], most: float):
    report = replace(FINE, **change)  # pyright: ignore[reportArgumentType]
    made = verdict(report, 1.0, True)
    assert made.status is Status.CERTAIN_FAILURE
    assert made.correctness == 0 and made.cap == most == cap(report)[0]
    assert made.reward < verdict(FINE, 0.0, True).reward
    assert made.trainable and made.reasons


def test_quarantine_and_could_not_tell_carry_no_gradient():
    hidden = verdict(replace(FINE, quarantine=("hidden character U+202E",)), 1.0, True)
    assert (hidden.status, hidden.reward, hidden.trainable) == (Status.QUARANTINED, 0.0, False)
    silent = verdict(FINE, None, True, "longer than the judge can read")
    assert (silent.status, silent.trainable) == (Status.UNAVAILABLE, False)
    assert silent.reasons == ("longer than the judge can read",)
    busy = verdict(StaticReport(unavailable="busy"), None, True)
    assert busy.status is Status.UNAVAILABLE


def test_a_certain_failure_needs_no_judge():
    assert verdict(replace(FINE, parses=False), None, True).status is Status.CERTAIN_FAILURE


def test_format_knows_a_cut_off_answer():
    assert verdict(FINE, 1.0, True).format == 1.0
    assert verdict(FINE, 1.0, False).format == 0.5
    assert verdict(replace(FINE, closed=False), 1.0, True).format == 0.5


def test_another_form_costs_the_part_for_format_and_nothing_else():
    other = verdict(replace(FINE, flaw="the fence is not called python"), 1.0, True)
    assert (other.correctness, other.format, other.cap) == (1.0, 0.0, 1.0)
    assert other.reward == pytest.approx(0.95)


def test_every_flaw_costs_something_and_is_said():
    for change in (
        {"stub": True},
        {"degenerate": ("loop",)},
        {"returns_value": False},
        {"undefined_names": ("math",)},
        {"banned": ("os",)},
        {"banned": ("__globals__",)},
        {"toplevel": ("Expr",)},
        {"unused_params": ("x",)},
        {"signature_as_stated": False},
        {"closed": False},
        {"flaw": "2 fences"},
    ):
        made = verdict(replace(FINE, **change), 1.0, True)  # pyright: ignore[reportArgumentType]
        assert made.reward < 1 and made.reasons
