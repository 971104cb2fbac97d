"""The solver with a real policy, sampler and learner: it learns, it is repeatable, and it is safe to interrupt."""

import dataclasses
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from builders.models import EOS, bits, judged, problem, tiny_policy

from codezero.config import ExternalConfig, SolverConfig
from codezero.environments.code import solver_prompt
from codezero.errors import CheckpointError
from codezero.models.generation import Sampler
from codezero.models.load import LoadedModel
from codezero.solver.batch import Batch, TrainingRow
from codezero.solver.checkpoint import CheckpointStore
from codezero.solver.learner import TrlLearner
from codezero.solver.solver import GrpoSolver
from codezero.solver.updater import importance_weighted
from codezero.types import Metrics, Problem, RolloutGroup, ScoredGroup, Source, Standing, Status, Verdict

SETTINGS: dict[str, Any] = {"group_size": 4, "max_new_tokens": 12, "minibatches": 2, "learning_rate": 3e-3}


def make(
    policy: LoadedModel | None = None, seed: int = 0, external: dict[str, Any] | None = None, **config: Any
) -> GrpoSolver:
    policy = policy or tiny_policy(scale=0.05)
    settings = SolverConfig(**(SETTINGS | config))
    return GrpoSolver(
        settings,
        prompt=solver_prompt,
        external=ExternalConfig(**(external or {})),
        sampler=Sampler(policy),
        learner=TrlLearner(policy, settings),
        peer_id="me",
        seed=seed,
    )


def judge(groups: Sequence[RolloutGroup], reward: Callable[[str, int], float]) -> list[ScoredGroup]:
    """An exact reward of text and length."""
    rewards = [[reward(item.text, len(item.token_ids)) for item in group.completions] for group in groups]
    verdicts = [tuple(Verdict(r, r, 1.0, 1.0, 1.0, 1.0, Status.JUDGED) for r in line) for line in rewards]
    return list(map(ScoredGroup, groups, verdicts))


def coin(text: str, length: int) -> float:
    """A reward that differs from text to text."""
    return float(zlib.crc32(text.encode()) % 2)


def weights(solver: GrpoSolver) -> list[bytes]:
    return bits(solver.learner.policy)


def test_a_rollout_is_one_group_for_each_problem_in_order():
    solver = make()
    problems = [problem(i) for i in range(3)]
    groups = solver.rollout(problems, 7)
    assert [group.problem for group in groups] == problems
    for group in groups:
        assert (len(group.completions), group.peer_id, group.round, group.policy_step) == (4, "me", 7, 0)
        assert all(len(item.token_ids) == len(item.logprobs) <= 12 for item in group.completions)
    assert solver.rollout([], 7) == []


def test_it_learns_what_is_rewarded():
    """Reward: a short answer. The chance of stopping early must rise a lot in a few updates."""
    solver = make(learning_rate=1e-2, group_size=16)
    means: list[float] = []
    for _ in range(25):
        scored = judge(solver.rollout([problem(i) for i in range(4)], 0), lambda text, length: 1 - length / 12)
        means.append(sum(v.reward for group in scored for v in group.verdicts) / 64)
        metrics = solver.step(scored, [])
    assert means[0] < 0.1 and means[-1] > 0.5, means
    assert metrics["train/policy_step"] == solver.learner.steps > 25 and metrics["train/skipped_steps"] == 0


def test_equal_rewards_move_no_weight():
    solver = make()
    solver.step(judge(solver.rollout([problem(0)], 0), lambda text, length: float("a" in text)), [])
    before, steps = weights(solver), solver.learner.steps
    groups = solver.rollout([problem(0), problem(1)], 0)
    metrics = solver.step(judge(groups, lambda text, length: 0.1), [judged(5, [0.3] * 4, peer_id="other")])
    assert weights(solver) == before
    assert (metrics["train/rows"], metrics["train/zero_spread_share"], metrics["train/loss"]) == (0, 1.0, None)
    assert solver.learner.steps == steps


@pytest.mark.parametrize("status", [Status.QUARANTINED, Status.UNAVAILABLE])
def test_rows_that_could_not_be_judged_leave_no_trace(status: Status):
    """The update is the same whatever stands in them, and whatever reward they carry."""
    results: list[list[bytes]] = []
    for reward in (0.0, 1.0):
        solver = make()
        (scored,) = judge(solver.rollout([problem(0)], 0), lambda text, length: 0.0)
        verdicts = [dataclasses.replace(v, reward=float(i == 0)) for i, v in enumerate(scored.verdicts)]
        verdicts[3] = dataclasses.replace(verdicts[3], reward=reward, status=status)
        assert solver.step([ScoredGroup(scored.group, tuple(verdicts))], [])["train/rows"] == 3
        results.append(weights(solver))
    assert results[0] == results[1]


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), -float("inf")])
def test_a_reward_that_is_no_number_costs_its_row_only(broken: float, caplog: pytest.LogCaptureFixture):
    solver = make()
    groups = solver.rollout([problem(0)], 0)
    (scored,) = judge(groups, coin)
    before, verdicts = weights(solver), [dataclasses.replace(scored.verdicts[0], reward=broken), *scored.verdicts[1:]]
    metrics = solver.step([ScoredGroup(groups[0], tuple(verdicts))], [])
    assert (metrics["train/rows"], metrics["train/broken_rewards"], metrics["train/skipped_steps"]) == (3, 1, 0)
    assert weights(solver) != before and "no finite numbers" in caplog.text
    assert all(bool(weight.isfinite().all()) for weight in solver.learner.policy.model.parameters())


def test_nothing_judged_nothing_learned_also_not_from_peers():
    solver = make()
    before = weights(solver)
    metrics = solver.step([], [judged(1, [1.0, 0.0], peer_id="other")])
    assert weights(solver) == before
    assert metrics["swarm/external_groups"] == 0
    assert metrics["train/entropy"] is metrics["train/zero_spread_share"] is None


def peer_step(solver: GrpoSolver, peers: Sequence[ScoredGroup]) -> Metrics:
    """A step in which the own groups teach nothing."""
    return solver.step(judge(solver.rollout([problem(0), problem(1)], 0), lambda text, length: 0.5), peers)


def test_a_peer_s_success_is_pushed_up_and_its_failure_is_not_pushed_down():
    solver = make(minibatches=1, learning_rate=1e-2)
    peer = judged(9, [1.0, 1.0, 0.0, 0.0], ["yes", "yes ", "no", "no "], peer_id="other")
    prompts, answers = solver.reader.prompt_ids([problem(9)]) * 4, solver.reader.completion_ids(peer.group.completions)
    assert [answer[-1] for answer in answers] == [EOS] * 4
    for _ in range(6):  # both answers become words of its language
        old = solver.learner.logprobs(prompts, answers)
        solver.learner.update(Batch(tuple(TrainingRow(*row, 1.0) for row in zip(prompts, answers, old, strict=True))))
    before = solver.learner.logprobs(prompts, answers)
    assert min(sum(item) / len(item) for item in before) > -4
    metrics = peer_step(solver, [peer])
    assert (metrics["train/rows"], metrics["swarm/external_share"], metrics["swarm/external_groups"]) == (2, 1.0, 1)
    assert sum(solver.learner.logprobs(prompts, answers)[0]) > sum(before[0])


def test_peers_never_outnumber_own_rows():
    groups = [judged(10 + i, [1.0, 0.0, 0.0, 0.0], peer_id="other") for i in range(9)]
    metrics = peer_step(make(external={"gate": False}), groups)
    assert metrics["swarm/external_groups"] == 2  # of four rows, beside eight own
    assert (metrics["swarm/external_judged/other"], metrics["swarm/external_used/other"]) == (9, 2)


def test_refusals_are_counted_by_reason():
    metrics = peer_step(make(), [judged(9, [1.0, 1.0], peer_id="other"), judged(8, [1.0, 0.0], peer_id="me")])
    assert metrics["swarm/external_refused/no_spread"] == metrics["swarm/external_refused/own"] == 1


def play(solver: GrpoSolver, iterations: int) -> list[tuple[int, ...]]:
    """Every token sampled."""
    tokens: list[tuple[int, ...]] = []
    for i in range(iterations):
        groups = solver.rollout([problem(i), problem(i + 1)], i)
        tokens += [item.token_ids for group in groups for item in group.completions]
        solver.step(judge(groups, lambda text, length: float(len(text) % 3 == 0)), [])
    return tokens


def test_a_resumed_run_goes_on_as_if_it_had_never_stopped(tmp_path: Path):
    whole = make()
    play(whole, 2)
    CheckpointStore(tmp_path, keep=1).save(2, {"solver": whole})
    resumed = make(tiny_policy(seed=5))
    assert CheckpointStore(tmp_path, keep=1).restore({"solver": resumed}) == 2
    assert weights(whole) == weights(resumed)
    assert play(whole, 2) == play(resumed, 2)
    assert weights(whole) == weights(resumed)


def test_noise_differs_from_iteration_to_iteration_and_from_seed_to_seed():
    solver = make()
    first, second = solver.rollout([problem(0)], 0), solver.rollout([problem(0)], 0)
    assert first[0].completions != second[0].completions
    assert make(seed=1).rollout([problem(0)], 0)[0].completions != first[0].completions
    assert make().rollout([problem(0)], 0)[0].completions == first[0].completions


@pytest.mark.parametrize("content", [None, "", "[]", "{}", '{"rollouts": 1.5, "updates": 0}', '{"rollouts": "1"}'])
def test_counters_that_are_missing_or_nonsense_are_refused(tmp_path: Path, content: str | None):
    make().save(tmp_path)
    path = tmp_path / "solver.json"
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(CheckpointError):
        make().load(tmp_path)


def test_a_peer_that_does_worse_is_not_learned_from():
    groups = [judged(10 + i, [1.0, 0.0, 0.0, 0.0], peer_id="other") for i in range(9)]
    metrics = peer_step(make(seed=1), groups)
    assert (metrics["swarm/external_groups"], metrics["swarm/external_refused/gate"]) == (0, 9)


@pytest.mark.parametrize(("sampled", "flat", "short"), [(4, 0, 0), (4, 3, 3), (6, 6, 2), (8, 8, 0), (3, 0, 1)])
def test_groups_without_spread_are_replaced_within_bounds(sampled: int, flat: int, short: int):
    solver = make(problems_per_iteration=4, refill=2.0)
    scored = [judged(i, [0.5, 0.5] if i < flat else [1.0, 0.0]) for i in range(sampled)]
    assert solver.short_of(scored) == short
    assert make(problems_per_iteration=sampled, refill=1.0).short_of(scored) == 0


def test_dropped_groups_leave_no_trace_even_on_a_leash():
    results: list[list[bytes]] = []
    for dropped in (0, 1):
        solver = make(kl_beta=0.1, minibatches=1)
        useful, flat = solver.rollout([problem(0), problem(1)], 0)
        solver.step([*judge([useful], coin), *judge([flat] * dropped, lambda text, length: 1.0)], [])
        assert solver.learner.steps == 1
        results.append(weights(solver))
    assert results[0] == results[1]


def test_old_rows_are_told_as_the_present_policy_sees_them():
    solver = make(learning_rate=1e-2)
    row = solver._own_rows(judge(solver.rollout([problem(0)], 0), coin), [])[0]

    def present() -> list[tuple[float, ...]]:
        return solver.learner.logprobs([row.prompt_ids], [row.completion_ids])

    (fresh,) = importance_weighted([row], present(), "tis")
    assert fresh.weights == pytest.approx([1.0] * len(row.logprobs), abs=1e-4)
    for _ in range(5):
        solver.learner.update(Batch((dataclasses.replace(row, advantage=1.0),)))
    (old,) = importance_weighted([row], present(), "tis")
    assert old.logprobs == solver.learner.logprobs([row.prompt_ids], [row.completion_ids])[0]
    assert max(old.weights) > 1.2 and max(old.weights) <= 2.0
    idle = dataclasses.replace(row, weights=(0.0,) * len(row.logprobs))
    assert not any(importance_weighted([idle], present(), "tis")[0].weights), "what has no weight gets none"


CASE = '{"input": "21\\n", "output": "42\\n"}'
HUGE = '{"input": "' + "9" * 5000 + '", "output": "1"}'
FORM = "Q\n\nANSWER FORMAT: one ```python block "
PROGRAM = f"{FORM}with the whole program, which reads stdin and writes stdout, and nothing after it."
FUNCTION = f"{FORM}that defines f and nothing after it."


@pytest.mark.parametrize(
    ("entry", "standing", "tests", "requested"),
    [
        ("f", Standing.REFERENCE, ("assert f(1) == 2",), f"{FUNCTION}\nIt must pass: assert f(1) == 2"),
        ("f", Standing.CLAIMED, ("assert f(1) == 2",), FUNCTION),
        ("f", Standing.REFERENCE, (), FUNCTION),
        ("", Standing.REFERENCE, (CASE,), f"{PROGRAM}\nGiven this input:\n21\n\nit must write:\n42\n"),
        ("", Standing.REFERENCE, (HUGE, CASE), f"{PROGRAM}\nGiven this input:\n21\n\nit must write:\n42\n"),
        ("", Standing.CLAIMED, (CASE,), PROGRAM),
        ("", Standing.REFERENCE, (HUGE,), PROGRAM),
    ],
    ids=["function", "claimed", "untested", "program", "long-first-case", "claimed-program", "only-long-cases"],
)
def test_the_form_of_the_answer_is_that_of_the_problem(
    entry: str, standing: Standing, tests: tuple[str, ...], requested: str
) -> None:
    assert solver_prompt(Problem("0" * 64, "Q", tests, entry, Source.MBPP, standing)) == requested
