"""The sampler held against the learner, and the weights of tokens that an earlier policy sampled."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from builders.models import bits, judged, problem, random_rows
from hypothesis import given
from hypothesis import strategies as st
from unit.solver.test_solver import make as make_solver

from codezero.models.load import load_model
from codezero.nano import weights_directory
from codezero.solver import updater
from codezero.solver.batch import Batch
from codezero.solver.solver import GrpoSolver
from codezero.solver.updater import (
    LARGEST,
    LARGEST_WEIGHT,
    MOST,
    Mismatch,
    exceeds_mismatch_bound,
    measure,
    second_moment_weights,
    truncated_weights,
)
from codezero.types import Completion, Metrics, ScoredGroup, Status, Verdict

LOGS = st.floats(-30, 0)
ROWS = st.lists(
    st.tuples(st.lists(st.tuples(LOGS, LOGS), min_size=1, max_size=6), st.floats(-1, 1)), min_size=1, max_size=6
)


def test_truncation_follows_the_ratio_up_to_its_limit():
    now, then = [[-1.0, -1.0, -3.0]], [[-1.0, -3.0, -1.0]]
    assert truncated_weights(now, then) == [[1.0, 2.0, pytest.approx(math.exp(-2))]]


def test_an_unchanged_policy_weighs_everything_one():
    rows = [[-1.0, -2.0], [-0.5]]
    assert truncated_weights(rows, rows) == second_moment_weights(rows, rows, [0.5, -0.5]) == [[1.0, 1.0], [1.0]]


def test_harmful_tokens_beyond_the_clip_weigh_nothing_and_harmless_ones_stay():
    now, then = [[-1.0, -5.0, -1.0, -1.0]], [[-3.0, -1.0, -1.05, -0.95]]  # log r = 2, -4, .05 and -.05
    kept = [pytest.approx(math.exp(0.05)), pytest.approx(math.exp(-0.05))]
    assert second_moment_weights(now, then, [1.0]) == [[0.0, pytest.approx(math.exp(-4)), *kept]]
    assert second_moment_weights(now, then, [-1.0]) == [[pytest.approx(math.exp(2)), 0.0, *kept]]


def test_nothing_is_clipped_further_than_the_bounds(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(updater, "BUDGET", 10.0)
    assert second_moment_weights([[-3.1, -2.9]], [[0.0] * 2], [-1.0])[0][0] == 0.0


@given(ROWS)
def test_weights_are_finite_and_bounded(rows: list[tuple[list[tuple[float, float]], float]]):
    now = [[a for a, _ in row] for row, _ in rows]
    then = [[b for _, b in row] for row, _ in rows]
    for weights in (truncated_weights(now, then), second_moment_weights(now, then, [a for _, a in rows])):
        assert all(0 <= weight <= LARGEST_WEIGHT * (1 + 1e-9) for row in weights for weight in row)
        assert [len(row) for row in weights] == [len(row) for row in now]


PATHS = pytest.mark.parametrize("path", ["packed", "pieces", "trl"])


class Off:
    """A sampler whose log-probabilities are changed after the draw."""

    def __init__(self, inner: Any, change: Callable[[int, tuple[float, ...]], Sequence[float]]):
        self.inner, self.change, self.drawn = inner, change, 0

    def sample(self, *args: Any, **settings: Any) -> list[list[Completion]]:
        def changed(completion: Completion) -> Completion:
            self.drawn += 1
            return dataclasses.replace(completion, logprobs=tuple(self.change(self.drawn, completion.logprobs)))

        return [[changed(each) for each in group] for group in self.inner.sample(*args, **settings)]


def make(
    change: Callable[[int, tuple[float, ...]], Sequence[float]] | None = None,
    engine: bool = False,
    path: str = "packed",
    **config: Any,
) -> Any:
    settings = {"group_size": 8, "minibatches": 1, "learning_rate": 1e-3} | config
    solver = make_solver(external={"gate": False}, **settings)
    solver.learner._packed, solver.learner._pieces = path == "packed", path == "pieces"
    solver.updater.engine = engine
    if change:
        solver.sampler = Off(solver.sampler, change)
    return solver


def scored(solver: GrpoSolver, problems: int = 2) -> list[ScoredGroup]:
    """Every second attempt is right."""
    verdicts = [Verdict(r, r, 1.0, 1.0, 1.0, 1.0, Status.JUDGED) for r in [0.0, 1.0] * 4]
    groups = solver.rollout([problem(i) for i in range(problems)], 0)
    return [ScoredGroup(group, tuple(verdicts)) for group in groups]


def step(solver: GrpoSolver) -> Metrics:
    return solver.step(scored(solver), [])


def figure(metrics: Metrics, name: str) -> float:
    value = metrics[f"train/mismatch_{name}"]
    assert isinstance(value, float | int)
    return value


def test_the_figures_are_those_of_two_distributions_written_out() -> None:
    """Against the exact KL of categorical distributions, by their own samples."""
    generator = torch.Generator().manual_seed(0)
    p = torch.randn(20, generator=generator).softmax(-1)
    q = (p.log() + 0.1 * torch.randn(20, generator=generator)).softmax(-1)
    drawn = torch.multinomial(q, 200_000, replacement=True, generator=generator)
    result = measure([(q.log()[drawn].tolist(), p.log()[drawn].tolist())])
    gaps = (p.log() - q.log()).abs()
    assert result.rows == 1
    assert result.kl == pytest.approx(float((q * (q.log() - p.log())).sum()), rel=0.02)
    assert result.mean == pytest.approx(float((q * gaps).sum()), rel=0.02)
    assert result.max == pytest.approx(float(gaps.max()))


def test_rows_weigh_by_their_tokens_and_empty_ones_not_at_all() -> None:
    result = measure([((-1.0,) * 3, (-1.5,) * 3), ((-1.0,), (-1.0,)), ((), ())])
    assert (result.rows, result.mean, result.max) == (2, pytest.approx(0.375), 0.5)
    assert result.kl == pytest.approx(0.75 * (math.exp(-0.5) - 0.5))
    assert measure([]) == measure([((), ())]) == Mismatch()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1e308])
def test_numbers_that_are_none_are_a_large_mismatch_and_not_an_error(value: float) -> None:
    for pair in (((value, -1.0), (-1.0, -1.0)), ((-1.0, -1.0), (-1.0, value))):
        result = measure([pair])
        assert result.max == LARGEST and result.kl is not None and math.isfinite(result.kl) and result.kl > 1
        assert exceeds_mismatch_bound(pair) and result.alarm()


@pytest.mark.parametrize("sign", [1, -1])
def test_a_row_exceeds_mismatch_bound_by_the_ratio_of_its_whole_probability(sign: int) -> None:
    near, far = math.log(MOST) * 0.99 / 10 * sign, math.log(MOST) * 1.01 / 10 * sign
    assert not exceeds_mismatch_bound(((-1.0,) * 10, (-1.0 + near,) * 10))
    assert exceeds_mismatch_bound(((-1.0,) * 10, (-1.0 + far,) * 10))
    assert not exceeds_mismatch_bound(((-1.0,) * 10, (-1.0 + far, -1.0 - far) * 5))


@PATHS
def test_the_own_sampler_agrees_with_the_learner_to_the_last_digits(path: str) -> None:
    solver = make(path=path)
    for _ in range(3):
        metrics = step(solver)
        assert figure(metrics, "rows") == metrics["train/rows"] == 16
        assert 0 <= figure(metrics, "kl") < 1e-8 and figure(metrics, "mean") < 1e-5 and figure(metrics, "max") < 1e-3
        assert (metrics["train/mismatch_masked"], metrics["train/mismatch_alarm"]) == (0, None)


def test_the_embedded_solver_agrees_with_its_learner() -> None:
    policy = load_model(str(weights_directory("solver")), device="cpu", role="solver", for_training=True)
    solver = make_solver(policy, group_size=8, max_new_tokens=24)
    metrics = step(solver)
    assert figure(metrics, "rows") > 0 and 0 <= figure(metrics, "kl") < 1e-7 and figure(metrics, "mean") < 1e-4


@PATHS
def test_what_a_sampler_says_wrongly_is_measured_exactly(path: str, caplog: pytest.LogCaptureFixture) -> None:
    solver = make(lambda at, line: [each - 0.2 for each in line], path=path)
    metrics = step(solver)
    assert figure(metrics, "mean") == pytest.approx(0.2, abs=1e-4)
    assert figure(metrics, "max") == pytest.approx(0.2, abs=1e-3)
    assert figure(metrics, "kl") == pytest.approx(math.exp(0.2) - 1.2, abs=1e-4)
    assert "other probabilities" in str(metrics["train/mismatch_alarm"])
    assert metrics["train/mismatch_masked"] == 0 and metrics["train/rows"] == 16, "one engine masks nothing"
    step(solver)
    assert caplog.text.count("ALARM: the sampler") == 1, "an alarm that goes on is said once"


def test_an_alarm_ends_when_both_agree_again(caplog: pytest.LogCaptureFixture) -> None:
    solver = make(lambda at, line: [each - (0.2 if at <= 16 else 0.0) for each in line])
    assert step(solver)["train/mismatch_alarm"]
    nothing = solver.step([], [])
    assert nothing["train/mismatch_alarm"] and nothing["train/mismatch_mean"] is None, "nobody has measured it since"
    assert step(solver)["train/mismatch_alarm"] is None
    assert "sampler and learner agree again" in caplog.text


def test_only_rows_of_the_policy_before_its_first_step_count() -> None:
    """Of two minibatches the second is scored by a policy that has moved."""
    solver = make(minibatches=2, learning_rate=0.05)
    for _ in range(3):
        groups = scored(solver)
        metrics = solver.step(groups, [judged(9, [1.0, 0.0, 0.0, 0.0], peer_id="other")])
        assert 0 < figure(metrics, "rows") <= 8 and figure(metrics, "mean") < 1e-4


def test_peers_rows_are_not_compared() -> None:
    """Their log-probabilities are the learner's own, so they would only dilute the figure."""
    learner = make().learner
    assert learner.update(Batch(tuple(random_rows(8)))).compared == ()


def test_an_engine_s_rows_beyond_the_bound_are_left_out_and_counted() -> None:
    """Every fourth attempt is told as if it had been far likelier."""
    far = make(lambda at, line: [each + (0.0 if at % 4 else 1.5) for each in line], engine=True)
    groups = scored(far)
    short = sum(len(item.token_ids) * 1.5 <= math.log(MOST) for g in groups for item in g.group.completions[3::4])
    assert short == 0
    metrics = far.step(groups, [])
    assert (metrics["train/mismatch_masked"], metrics["train/mismatch_rows"], metrics["train/rows"]) == (4, 16, 12)
    assert figure(metrics, "max") == pytest.approx(1.5, abs=1e-3), "what is masked is measured as well"
    # the others' update is what it would be if the masked attempts had not been trainable
    without = make(engine=True)
    rows = without._own_rows([dataclasses.replace(g) for g in groups], [])
    without.learner.update(Batch(tuple(row for at, row in enumerate(rows) if at % 4 != 3)))
    assert bits(far.learner.policy) == bits(without.learner.policy)


def test_an_engine_that_agrees_loses_no_row() -> None:
    own, engine = make(), make(engine=True)
    assert step(own)["train/loss"] == (metrics := step(engine))["train/loss"]
    assert (metrics["train/mismatch_masked"], metrics["train/mismatch_rows"]) == (0, 16)


def test_with_all_rows_masked_nothing_is_learned_and_it_is_said(caplog: pytest.LogCaptureFixture) -> None:
    solver = make(lambda at, line: [math.nan for _ in line], engine=True)
    before = bits(solver.learner.policy)
    metrics = step(solver)
    assert bits(solver.learner.policy) == before and solver.learner.steps == 0
    assert (metrics["train/rows"], metrics["train/mismatch_masked"], metrics["train/mismatch_rows"]) == (0, 16, 16)
    assert "nothing is learned" in str(metrics["train/mismatch_alarm"]) and "nothing is learned" in caplog.text
