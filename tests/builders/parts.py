"""A whole node in memory, whose loop can be played."""

import dataclasses
from pathlib import Path
from typing import Any

from codezero.monitor.run_state import Fold
from codezero.types import Completion, Feedback, Post, Problem, RolloutGroup, ScoredGroup, Source, Status, Verdict

PROBLEM = Problem(id="p", question="add", tests=("assert add(1, 2) == 3",), entry_point="add", source=Source.SYNTHETIC)
COMPLETION = Completion(text="a", token_ids=(1,), logprobs=(-0.5,), finished=True)
GROUP = RolloutGroup(PROBLEM, (COMPLETION, COMPLETION), peer_id="me", round=1, policy_step=0)


def verdict(reward: float, status: Status = Status.JUDGED) -> Verdict:
    return Verdict(reward, reward, 1.0, 1.0, 1.0, 1.0, status)


class Parts:
    """A whole node in memory; records the order of calls."""

    peer_id = "me"
    level = 2

    def __init__(self, **methods: Any) -> None:
        """methods: what takes the place of its own."""
        self.__dict__.update(methods)
        self.calls: list[str] = []
        self.rows: list[dict[str, Any]] = []
        self.judged: list[list[str]] = []
        """Peer ids of the groups that the monitor was shown in each iteration."""
        self.saved: list[int] = []
        self.exam: dict[str, Any] = {}
        """Figures of the one that is under way."""
        self.kept, self.measured = 0, False
        self.fold = Fold()

    def note(self, call: str) -> None:
        self.calls.append(call)

    def proposals(self, round_number: int) -> list[Problem]:
        self.note("proposals")
        return []

    def feedback(self) -> list[Feedback]:
        return [Feedback("somebody", PROBLEM.id, 2, 8, 0.5)]

    def post(self, payload: bytes, round_number: int) -> None:
        self.note("post")

    def posts(self) -> list[Post]:
        return []

    def hear(self, feedback: list[Feedback]) -> None:
        self.note(f"hear {len(feedback)}")

    def next_batch(self, proposals: list[Problem], count: int | None = None) -> list[Problem]:
        if count != 0:
            self.note("next_batch")
        return [PROBLEM] * (1 if count is None else count)

    def admits(self, problem: Problem) -> bool:
        return problem.id != "exam"

    def rollout(self, problems: list[Problem], round_number: int) -> list[RolloutGroup]:
        self.note("rollout")
        return [dataclasses.replace(GROUP, problem=problem, round=round_number) for problem in problems]

    def score(self, groups: list[RolloutGroup]) -> list[ScoredGroup]:
        self.note("score")
        return [ScoredGroup(group, (verdict(1.0), verdict(0.0))) for group in groups]

    def review(self, iteration: int, scored: list[ScoredGroup]) -> None:
        self.note(f"review {len(scored)}")

    def publish(self, groups: list[ScoredGroup], round_number: int) -> None:
        self.note("publish")

    def gather(self, round_number: int) -> list[RolloutGroup]:
        self.note("gather")
        return [GROUP]

    def step(self, local: list[ScoredGroup], peers: list[ScoredGroup]) -> dict[str, Any]:
        self.note(f"step {len(local)}+{len(peers)}")
        return {"train/loss": 0.0}

    def rates(self) -> None:
        pass

    def observe(self, *arguments: Any) -> None:
        if len(arguments) == 2:
            self.note("difficulty")
        else:
            self.note(f"log {arguments[0]}")
            self.rows.append(arguments[1])
            self.judged.append([one.group.peer_id for one in arguments[2]])

    def draw(self, count: int) -> list[int]:
        return [2] * count

    def propose(self, levels: list[int]) -> list[Problem]:
        self.note("propose")
        return [PROBLEM]

    def check(self, scored: list[ScoredGroup]) -> None:
        self.note(f"check {len(scored)}")

    def offer(self, problems: list[Problem], round_number: int) -> None:
        self.note("offer")

    def short_of(self, scored: list[ScoredGroup]) -> int:
        return 0

    def current_round(self) -> int:
        return 7

    def add(self, iteration: int, round_number: int, reward: float, vote: str | None) -> None:
        self.note(f"reward {reward}")

    def due(self, iteration: int) -> bool:
        return iteration % 2 == 0

    def begin(self, iteration: int) -> bool:
        self.note("exam")
        self.exam = self.exam or {"eval/average_at_8": 0.5, "eval/iteration": iteration}
        return True

    def keep_best(self, iteration: int) -> None: ...

    def results(self, *, wait: bool) -> dict[str, Any]:
        figures, self.exam = self.exam, {}
        return figures

    def metrics(self) -> dict[str, Any]:
        return {}

    def busy(self, doing: str) -> None: ...

    def say(self, line: str) -> None:
        self.note(f"say {line}")

    def cut(self, reason: str) -> None: ...

    def started(self, iteration: int) -> bool:
        self.note(f"started {iteration}")
        return self.measured

    def close(self, *_: str) -> None:
        self.note("close")

    def save(self, *arguments: Any) -> None:
        self.saved.append(arguments[0])
        self.note(f"save {arguments[0]}")

    def load(self, folder: Path) -> None: ...

    def restore(self, parts: Any) -> int:
        return self.kept
