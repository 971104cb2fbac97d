"""What is drawn ahead of the learner: which groups it gets, in which order, how old, and what a failure costs."""

import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from builders.models import problem
from builders.swarm import eventually

from codezero.attempts import Ahead
from codezero.config import NodeConfig, RolloutConfig
from codezero.config.learning import SolverConfig
from codezero.errors import EvaluatorError, RolloutError
from codezero.types import Completion, Problem, RolloutGroup, ScoredGroup, Status, Verdict

BATCH, GROUP = 2, 2


class Stream:
    """Problems 1, 2, 3, ...; proposals come first."""

    def __init__(self) -> None:
        self.given = 0

    def next_batch(self, proposals: Sequence[Problem], count: int | None = None) -> list[Problem]:
        assert count is not None
        fresh = [problem(self.given + n) for n in range(1, count + 1 - len(proposals))]
        self.given += len(fresh)
        return [*proposals, *fresh]

    def save(self, folder: Path) -> None:
        (folder / "stream").write_text(str(self.given))

    def load(self, folder: Path) -> None:
        self.given = int((folder / "stream").read_text())


class Policy:
    """Draws one group after another, when it may, with the version that is the newest when it begins."""

    def __init__(self) -> None:
        self.version, self.flat, self.failing = 0, False, False
        self.may_draw = threading.Semaphore(10**6)
        self.begun: list[Problem] = []

    def rollout(self, problems: Sequence[Problem], round_number: int) -> list[RolloutGroup]:
        version = self.version
        self.begun += problems
        self.may_draw.acquire()
        if self.failing:
            raise RolloutError("no rollout server was fit")
        draws = tuple(Completion("x", (1, 2), (-1.0, -1.0), True, version + n) for n in range(GROUP))
        return [RolloutGroup(each, draws, "me", round_number, 0) for each in problems]

    def short_of(self, scored: Sequence[ScoredGroup]) -> int:
        useful = sum(len({verdict.reward for verdict in group.verdicts}) > 1 for group in scored)
        return max(0, min(BATCH - useful, 3 * BATCH - len(scored)))

    def score(self, groups: Sequence[RolloutGroup]) -> list[ScoredGroup]:
        rewards = [1.0] * GROUP if self.flat else [0.0, *[1.0] * (GROUP - 1)]
        verdicts = tuple(Verdict(reward, reward, 1, 1, 1, 1, Status.JUDGED, ()) for reward in rewards)
        return [ScoredGroup(group, verdicts) for group in groups]


@contextmanager
def ahead(policy: Any, stream: Stream | None = None, *, in_flight: int = 4, staleness: int = 4) -> Generator[Ahead]:
    solver = SolverConfig(group_size=GROUP, problems_per_iteration=BATCH)
    config = NodeConfig(solver=solver, rollout=RolloutConfig(start=1, in_flight=in_flight, max_staleness=staleness))
    harvest = Ahead(config, stream or Stream(), policy, policy, lambda: policy.version, dict)  # pyright: ignore
    try:
        yield harvest
    finally:
        policy.may_draw.release(10**6)
        harvest.close()


def take(harvest: Ahead, round_number: int = 1) -> list[ScoredGroup]:
    return [group for part in harvest.take([], round_number) for group in part]


def test_a_batch_is_handed_out_and_others_are_drawn_meanwhile() -> None:
    with ahead(policy := Policy()) as harvest:
        assert len(take(harvest)) == BATCH
        eventually(lambda: len(policy.begun) == BATCH + 4)  # 2 are under way at once, and a batch of 2 waits
        assert harvest.metrics()["rollout/groups_ahead"] == 4


def test_without_servers_the_next_batch_is_drawn_while_this_one_teaches(tmp_path: Path) -> None:
    policy, caught = Policy(), list[int]()
    trailing: Any = SimpleNamespace(catch_up=caught.append)
    config = NodeConfig(solver=SolverConfig(group_size=GROUP, problems_per_iteration=BATCH))
    harvest = Ahead(config, Stream(), policy, policy, lambda: policy.version, dict, trailing)  # pyright: ignore
    for step in range(3):
        assert len(take(harvest)) == BATCH and caught == [0, *range(step + 1)]
        eventually(lambda: len(policy.begun) == BATCH * (step + 2))  # noqa: B023 - it is called at once
        policy.version += 1
    assert harvest.metrics()["rollout/staleness"] == pytest.approx(2 / 3)  # only the first batch is not one behind
    harvest.save(tmp_path)
    harvest.load(tmp_path)
    assert [each.id for each in harvest._again] == [each.id for each in policy.begun[-BATCH:]]
    harvest.close()


@pytest.mark.parametrize("staleness", [0, 1, 2])
def test_nothing_older_than_the_limit_is_ever_handed_out(staleness: int) -> None:
    with ahead(policy := Policy(), staleness=staleness, in_flight=16) as harvest:
        for step in range(12):
            oldest = [min(draw.version or 0 for draw in group.group.completions) for group in take(harvest)]
            assert len(oldest) == BATCH and all(policy.version - each <= staleness for each in oldest)
            policy.version += 1 + 2 * (step == 5)  # once a trainer is far ahead
        assert harvest.metrics()["rollout/expired"]


def test_without_staleness_nothing_is_drawn_before_it_is_asked_for() -> None:
    with ahead(policy := Policy(), staleness=0, in_flight=16) as harvest:
        for step in range(1, 4):
            take(harvest)
            assert len(policy.begun) <= BATCH * (step + 1)


def test_groups_that_teach_nothing_are_shown_and_replaced_up_to_the_solver_s_limit() -> None:
    with ahead(policy := Policy()) as harvest:
        policy.flat = True
        assert len(take(harvest)) == 3 * BATCH


def test_proposals_are_attempted_once() -> None:
    offered = problem(77)
    with ahead(policy := Policy()) as harvest:
        taken = [group.group.problem for part in harvest.take([offered], 1) for group in part]
        for _ in range(4):  # of one version, whatever is drawn first comes first
            taken += [group.group.problem for group in take(harvest)]
        assert taken.count(offered) == 1 == policy.begun.count(offered)


def test_a_group_counts_in_the_round_in_which_it_is_learned_from() -> None:
    with ahead(Policy()) as harvest:
        take(harvest, 1)
        assert {group.group.round for group in take(harvest, 2)} == {2}


def test_a_failing_group_costs_itself_and_all_failing_end_the_taking() -> None:
    with ahead(policy := Policy()) as harvest:
        take(harvest)
        eventually(lambda: all(future.done() for future in harvest._under_way))
        policy.failing = True
        assert len(take(harvest)) == BATCH, "what was drawn before is used"
        with pytest.raises(RolloutError, match="fit"):
            for _ in range(5):
                take(harvest)
        policy.failing = False
        assert len(take(harvest)) == BATCH and harvest.metrics()["rollout/failed_groups"]


def test_a_judge_s_error_reaches_the_node() -> None:
    def silent(groups: Sequence[RolloutGroup]) -> list[ScoredGroup]:
        raise EvaluatorError("silent")

    with ahead(policy := Policy()) as harvest:
        policy.score = silent  # type: ignore[method-assign]
        with pytest.raises(EvaluatorError):
            take(harvest)


def test_what_waits_survives_a_restart_and_what_was_under_way_is_drawn_again(tmp_path: Path) -> None:
    with ahead(policy := Policy(), stream := Stream(), in_flight=8) as harvest:
        take(harvest)
        eventually(lambda: len(policy.begun) == BATCH + 6)
        eventually(lambda: all(future.done() for future in harvest._under_way))
        policy.may_draw = threading.Semaphore(0)
        take(harvest)
        harvest.save(tmp_path)
        waiting = {
            *(group.problem.id for group in harvest._drawn),
            *(each.id for some in harvest._under_way.values() for each in some),
        }
    with ahead(Policy(), other := Stream(), in_flight=8) as harvest:
        harvest.load(tmp_path)
        assert other.given == stream.given
        seen = [group.group.problem.id for _ in range(5) for group in take(harvest)]
        assert waiting <= set(seen) and len(set(seen)) == len(seen), "no problem is lost, and none is given twice"


def test_a_checkpoint_of_a_run_in_step_is_read(tmp_path: Path) -> None:
    Stream().save(tmp_path)
    with ahead(Policy()) as harvest:
        harvest.load(tmp_path)
        assert len(take(harvest)) == BATCH


def test_restoring_forgets_what_a_lost_future_had_drawn(tmp_path: Path) -> None:
    with ahead(policy := Policy()) as harvest:
        harvest.save(tmp_path)
        policy.version = 9
        take(harvest)
        policy.version = 0
        harvest.load(tmp_path)
        assert {draw.version for group in take(harvest) for draw in group.group.completions[:1]} == {0}
