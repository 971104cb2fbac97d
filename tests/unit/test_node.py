"""Call order, stopping, tolerated and fatal errors of the loop, with every part replaced by one in-memory object.

Does not show: real peers or any learning; those have tests of their own."""

import dataclasses
import os
import signal
import time
from typing import Any

import pytest
from builders.parts import GROUP, PROBLEM, Parts, verdict

from codezero.attempts import InStep
from codezero.config import ProposerConfig, RunConfig
from codezero.errors import AlarmError, ChainError, EvaluatorError, FailedRunError, SandboxError, SwarmError
from codezero.node import Node, best_proposer, success_at_proposals, train
from codezero.run import Run
from codezero.types import RolloutGroup, ScoredGroup, Status


def failing(error: Exception) -> Any:
    """A method that raises it."""

    def fail(*_: Any, **__: Any) -> None:
        raise error

    return fail


def play(parts: Parts, *, max_iterations: int = 1, max_failures: int = 20, finishing_seconds: float = 20.0) -> Run:
    """Train with `parts` until the limit; the run that it was."""
    whole: Any = parts
    node = Node(
        proposing=ProposerConfig(problems_per_iteration=1, every=1), most_failures=max_failures,
        problems=whole, attempts=InStep(whole, whole, whole), evaluator=whole, swarm=whole, market=None, solver=whole,
        difficulty=whole, proposer=whole, outbox=whole, exam=whole,
    )  # fmt: skip
    settings = RunConfig(max_iterations=max_iterations, max_failures=max_failures)
    run = Run(settings, whole, whole, whole, node.saved, finishing_seconds=finishing_seconds)
    train(run, node)
    return run


def test_an_iteration_runs_in_order() -> None:
    parts = Parts()
    assert play(parts).reason == "max_iterations reached"
    assert parts.calls == [
        *("started 0", "exam", "log 0"),
        *("proposals", "next_batch", "rollout", "score", "publish", "gather", "score", "review 2", "step 1+1"),
        *("check 1", "difficulty", "hear 1", "propose", "offer", "reward 0.5", "exam", "log 1", "save 1", "close"),
    ]
    assert parts.rows[-1]["round"] == 7


def test_the_monitor_is_shown_own_and_peers_groups() -> None:
    parts = Parts(gather=lambda _: [dataclasses.replace(GROUP, peer_id="other")])
    play(parts)
    assert parts.judged == [[], ["me", "other"]]


def test_exams_are_sat_when_due_and_at_the_end() -> None:
    parts = Parts()
    play(parts, max_iterations=5)
    assert [row["iteration"] for row in parts.rows if "eval/average_at_8" in row] == [0, 2, 4, 5]


def test_a_run_that_begins_with_anothers_checkpoint_is_measured_there_once() -> None:
    parts = Parts()
    parts.kept = 7  # no exam is due after 7
    play(parts, max_iterations=9)
    assert [row["iteration"] for row in parts.rows if "eval/average_at_8" in row] == [7, 8, 9]
    parts = Parts()
    parts.kept, parts.measured = 7, True
    play(parts, max_iterations=9)
    assert [row["iteration"] for row in parts.rows if "eval/average_at_8" in row] == [8, 9]


def test_an_exam_that_goes_on_beside_training_is_told_when_it_has_ended() -> None:
    class Slow(Parts):
        def results(self, *, wait: bool) -> dict[str, Any]:
            """Three iterations later, or when it is waited for."""
            begun = self.exam.get("eval/iteration", 0)
            return super().results(wait=wait) if wait or (self.rows and len(self.rows) >= begun + 3) else {}

    parts = Slow()
    play(parts, max_iterations=9)
    told = [(row["iteration"], row["eval/iteration"]) for row in parts.rows if "eval/iteration" in row]
    assert told[0] == (0, 0) and told[-1] == (9, 9)
    assert all(row >= begun for row, begun in told) and any(row > begun for row, begun in told)
    assert [row["iteration"] for row in parts.rows] == sorted(row["iteration"] for row in parts.rows)


def test_an_exam_that_is_never_due_is_not_sat_at_the_end() -> None:
    parts = Parts(due=lambda _: False)
    play(parts)
    assert "exam" not in parts.calls


def test_a_lost_swarm_is_counted_not_fatal() -> None:
    lost = failing(SwarmError("no peers"))
    parts = Parts(gather=lost, proposals=lost)
    play(parts)
    assert "step 1+0" in parts.calls and parts.rows[-1]["tolerated/SwarmError"] == 2


def test_what_the_exam_asks_is_not_learned_from_a_stranger() -> None:
    leaked = dataclasses.replace(GROUP, problem=dataclasses.replace(PROBLEM, id="exam"))
    parts = Parts(gather=lambda _: [GROUP, leaked])
    play(parts)
    assert "step 1+1" in parts.calls


def test_a_silent_judge_is_not_a_wrong_answer() -> None:
    parts, line = (
        Parts(score=failing(EvaluatorError("no answer"))),
        r"could be judged.* \(1 times\), first EvaluatorError: no",
    )
    with pytest.raises(FailedRunError, match=line):
        play(parts)
    assert "step 0+0" in parts.calls and parts.rows[-1]["reward/mean"] is None and not parts.saved
    assert not any(call.startswith("reward") for call in parts.calls)


def test_a_run_in_which_no_attempt_got_a_verdict_has_failed_and_one_that_did_has_not() -> None:
    class Masked(Parts):
        silent = 3

        def score(self, groups: list[RolloutGroup]) -> list[ScoredGroup]:
            status = Status.UNAVAILABLE if self.silent > 0 else Status.JUDGED
            return [ScoredGroup(group, (verdict(0.5, status), verdict(0.0, status))) for group in groups]

        def step(self, local: list[ScoredGroup], peers: list[ScoredGroup]) -> dict[str, Any]:
            self.silent -= 1
            return {"attempts/no_verdict_reason": "own.py:f gave no reward"}

    parts = Masked()
    with pytest.raises(FailedRunError, match=r"^nothing came .*a verdict \(3 times\), first own.py:f gave no reward$"):
        play(parts, max_iterations=3)
    assert not parts.saved, "the next start plays them again"
    parts = Masked(silent=2)
    assert play(parts, max_iterations=3).reason == "max_iterations reached" and parts.saved == [3]


@pytest.mark.parametrize(
    ("step", "error", "count"),
    [
        ("begin", SandboxError("worker gone"), 2),
        ("check", SandboxError("worker gone"), 1),
        ("review", SandboxError("not now"), 1),
        ("review", EvaluatorError("not now"), 1),
    ],
)
def test_an_exam_a_check_and_a_look_at_the_judge_that_fail_cost_nothing_else(
    step: str, error: Exception, count: int
) -> None:
    parts = Parts(**{step: failing(error)})
    play(parts)
    assert parts.rows[-1][f"tolerated/{type(error).__name__}"] == count and parts.saved == [1]
    assert parts.rows[-1]["train/loss"] == 0.0 and {"step 1+1", "offer"} <= {*parts.calls}


def test_groups_that_teach_nothing_are_replaced_by_fresh_problems() -> None:
    parts = Parts(short_of=lambda scored: max(0, 3 - len(scored)))
    play(parts)
    first = parts.calls.index("next_batch")
    assert parts.calls[first : first + 6] == ["next_batch", "rollout", "score"] * 2
    assert "step 3+1" in parts.calls and len(parts.judged[-1]) == 4


def test_a_judge_that_fails_at_the_replacements_leaves_what_it_judged() -> None:
    class Failing(Parts):
        def score(self, groups: list[RolloutGroup]) -> list[ScoredGroup]:
            if self.calls.count("score") == 1:
                self.note("score")
                raise EvaluatorError("the judge is gone")
            return super().score(groups)

    parts = Failing(short_of=lambda _: 1)
    play(parts)
    assert "step 1+1" in parts.calls and parts.rows[-1]["tolerated/EvaluatorError"] == 1


def test_an_exploited_judge_ends_the_node_before_it_learns_more() -> None:
    class Exploited(Parts):
        def review(self, iteration: int, scored: list[ScoredGroup]) -> None:
            if iteration == 2:
                raise AlarmError("the judge is exploited")

    parts = Exploited()
    with pytest.raises(AlarmError, match="exploited"):
        play(parts, max_iterations=5)
    assert parts.saved == [1] and parts.calls.count("step 1+1") == 1


def test_without_a_coordinator_the_last_round_is_played_on() -> None:
    class Flaky(Parts):
        asked = 0

        def current_round(self) -> int:
            self.asked += 1
            if self.asked > 2:
                raise ChainError("timeout")
            return 9

    parts = Flaky()
    play(parts, max_iterations=3)
    assert [row["round"] for row in parts.rows] == [9, 9, 9, 9]


def test_what_is_shared_is_of_the_round_that_is_open_by_then() -> None:
    clock, rounds = iter(range(100)), list[tuple[str, int]]()

    def noting(call: str) -> Any:
        return lambda *arguments: rounds.append((call, arguments[-1])) or []

    shared = {call: noting(call) for call in ("proposals", "publish", "gather", "offer")}
    parts = Parts(current_round=lambda: next(clock), **shared)
    play(parts)
    assert rounds == [("proposals", 1), ("publish", 2), ("gather", 2), ("offer", 3)]
    assert parts.rows[-1]["round"] == 2


def test_a_restart_without_a_coordinator_goes_on_in_the_round_it_knew() -> None:
    def restore(parts: Any) -> int:
        parts["round"].memory.round = 9
        return 1

    parts = Parts(restore=restore, current_round=failing(ChainError("timeout")))
    parts.measured = True
    play(parts, max_iterations=3)
    assert [row["round"] for row in parts.rows] == [9, 9]


def test_a_broken_update_ends_the_node_and_closes_the_monitor() -> None:
    parts = Parts(step=failing(RuntimeError("out of memory")))
    with pytest.raises(RuntimeError, match="out of memory"):
        play(parts)
    assert parts.calls[-1] == "close" and not parts.saved


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_finishes_the_iteration_and_saves(which: signal.Signals) -> None:
    class Signalled(Parts):
        def step(self, local: list[ScoredGroup], peers: list[ScoredGroup]) -> dict[str, Any]:
            os.kill(os.getpid(), which)
            return super().step(local, peers)

    parts, before = Signalled(), signal.getsignal(which)
    run = play(parts, max_iterations=0)
    assert run.reason == "asked to stop"
    assert parts.saved == [1] and run.stop.received == which and signal.getsignal(which) is before
    (line,) = [call for call in parts.calls if call.startswith("say ")]
    assert line.startswith("say stopping: saving iteration 1, up to 20 s; ") and line.endswith(" again leaves now")


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_an_iteration_that_takes_too_long_after_a_signal_is_left_out(which: signal.Signals) -> None:
    class Long(Parts):
        def step(self, local: list[ScoredGroup], peers: list[ScoredGroup]) -> dict[str, Any]:
            if "save 1" in self.calls:
                os.kill(os.getpid(), which)
                time.sleep(60)
            return super().step(local, peers)

    parts, before = Long(), signal.getsignal(signal.SIGALRM)
    run = play(parts, max_iterations=0, finishing_seconds=0.2)
    assert run.reason == "asked to stop, and the iteration in flight left out"
    assert parts.saved == [1] and run.kept == 1 and parts.calls[-1] == "close"
    assert signal.getsignal(signal.SIGALRM) is before and signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_judging_that_fails_again_and_again_ends_the_node_with_its_trace(caplog: pytest.LogCaptureFixture) -> None:
    class Silent(Parts):
        def score(self, groups: list[RolloutGroup]) -> list[ScoredGroup]:
            if len(self.saved) in (1, 2, 4, 5, 6):
                raise EvaluatorError("the guard does not start")
            return super().score(groups)

    parts = Silent()
    with pytest.raises(EvaluatorError, match="guard"):
        play(parts, max_iterations=0, max_failures=3)
    assert parts.saved == [1, 2, 3, 4, 5, 6]  # two failures in a row were survived, the third of three was not
    last = next(record for record in caplog.records if "3 times in a row" in record.message)
    assert last.exc_info and last.exc_info[2]


def test_the_vote_goes_to_the_most_instructive_proposer() -> None:
    def proposed(by: str, *rewards: float) -> ScoredGroup:
        group = dataclasses.replace(GROUP, problem=dataclasses.replace(PROBLEM, proposer=by))
        return ScoredGroup(group, tuple(map(verdict, rewards)))

    assert best_proposer([proposed("easy", 1.0, 1.0), proposed("right", 1.0, 0.0)]) == "right"
    assert best_proposer([]) is None


def test_success_at_proposals_counts_those_alone() -> None:
    proposed = dataclasses.replace(GROUP, problem=dataclasses.replace(PROBLEM, proposer="them"))
    right, wrong, unknown = verdict(0.9), verdict(0.2), verdict(0.9, Status.UNAVAILABLE)
    both = [ScoredGroup(proposed, (right, wrong)), ScoredGroup(GROUP, (wrong, wrong))]
    assert success_at_proposals(both) == 0.5
    assert success_at_proposals([ScoredGroup(proposed, (right, unknown))]) == 1.0
    assert success_at_proposals(both[1:]) is None
