"""What flows between the parts, and the Protocols the loop drives. No torch, no I/O.

Legend for shapes: G completions in a group, T tokens in a completion.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

Metrics = dict[str, float | int | str | None]
"""One row of measurements: `name/part` -> value; None means "not measured this time"."""


class Standing(StrEnum):
    """How far a problem's expected values can be believed."""

    REFERENCE = "reference"
    """Computed by a reference solution that ships with the problem."""
    CONFIRMED = "confirmed"
    """Claimed by a proposer and confirmed since."""
    CLAIMED = "claimed"
    """A proposer's invention; the tests only show the call form and example inputs."""


class Source(StrEnum):
    """Where a problem comes from."""

    MBPP = "mbpp"
    CODE_CONTESTS = "code_contests"
    SYNTHETIC = "synthetic"
    PROPOSER = "proposer"


@dataclass(frozen=True, slots=True)
class Problem:
    """A coding question and the assertions that define it."""

    id: str
    """`problem_id(question, tests)`: 64 hex digits, the same on every node."""
    question: str
    tests: tuple[str, ...]
    """One assertion per entry."""
    entry_point: str
    """Name of the function the tests call."""
    source: Source
    standing: Standing = Standing.REFERENCE
    level: int | None = None
    """Difficulty 1..5 where it is known or was asked for."""
    reference: str | None = None
    """A correct solution. Never shown to a solver, never published."""
    proposer: str | None = None
    """Peer id of the proposer; None for data sets."""


def problem_id(question: str, tests: Sequence[str]) -> str:
    """sha256 of the whitespace-normalised question and tests."""
    text = "\n".join(" ".join(part.split()) for part in (question, *tests))
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


@dataclass(frozen=True, slots=True)
class Completion:
    """One sampled attempt."""

    text: str
    """Decoded completion without special tokens."""
    token_ids: tuple[int, ...]
    """[T] sampled ids, EOS included when it was generated."""
    logprobs: tuple[float, ...]
    """[T] nats, under the policy and temperature that sampled it."""
    finished: bool
    """EOS was generated; False when the length limit cut it off."""


@dataclass(frozen=True, slots=True)
class RolloutGroup:
    """G attempts at one problem by one policy; advantages are centred over the group."""

    problem: Problem
    completions: tuple[Completion, ...]
    """[G]"""
    peer_id: str
    """Who sampled it."""
    round: int
    policy_step: int
    """Optimiser steps the sampling policy had taken."""


class Status(StrEnum):
    """How a verdict came about."""

    JUDGED = "judged"
    CERTAIN_FAILURE = "certain_failure"
    """Decided by the static pass; the judge was not asked."""
    QUARANTINED = "quarantined"
    """Looks like an attack on the judge: reward 0 and no gradient."""
    UNAVAILABLE = "unavailable"
    """Could not tell. Masked out; never a 0."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the evaluator says of one completion."""

    reward: float
    """[0, 1]: cap * (0.70 correctness + 0.15 structure + 0.10 adherence + 0.05 format)."""
    correctness: float
    """[0, 1]: calibrated probability that every test passes."""
    structure: float
    adherence: float
    format: float
    cap: float
    """The most it could earn; 0 when quarantined or unavailable."""
    status: Status
    reasons: tuple[str, ...] = ()
    """Short phrases a user can read, worst first."""

    @property
    def trainable(self) -> bool:
        """May this verdict carry gradient and count in the group mean?"""
        return self.status in (Status.JUDGED, Status.CERTAIN_FAILURE)


@dataclass(frozen=True, slots=True)
class ScoredGroup:
    """A rollout group and one verdict per completion."""

    group: RolloutGroup
    verdicts: tuple[Verdict, ...]
    """[G]"""

    @property
    def success(self) -> float | None:
        """Mean judged correctness over the trainable verdicts; None when there is none."""
        judged = [verdict.correctness for verdict in self.verdicts if verdict.trainable]
        return sum(judged) / len(judged) if judged else None


class GroupSampler(Protocol):
    """Completes user texts; the model's side applies the chat template."""

    def sample(
        self,
        prompts: Sequence[str],
        *,
        group_size: int,
        max_new_tokens: int,
        temperature: float,
        generator_seed: int,
        max_prompt_tokens: int | None = None,
    ) -> list[list[Completion]]:
        """`group_size` completions for each prompt, in order; the same for the same seed and weights."""
        ...


class Persistent(Protocol):
    """A part whose state belongs to the checkpoint."""

    def save(self, folder: Path) -> None:
        """Write everything needed to go on into `folder`, which exists and is empty."""
        ...

    def load(self, folder: Path) -> None:
        """Become what `save` wrote. Raises CheckpointError."""
        ...


class ProblemStream(Persistent, Protocol):
    def next_batch(self, proposals: Sequence[Problem]) -> list[Problem]:
        """The problems of one iteration: a share of `proposals`, the rest from the data sets; never an item twice."""
        ...

    def admits(self, problem: Problem) -> bool:
        """May a stranger's problem be learned from? False for what the exam asks: it has to stay unseen."""
        ...


class Solver(Persistent, Protocol):
    def rollout(self, problems: Sequence[Problem], round_number: int) -> list[RolloutGroup]:
        """G completions for each problem, in order."""
        ...

    def step(self, local: Sequence[ScoredGroup], peers: Sequence[ScoredGroup]) -> Metrics:
        """One GRPO update; returns `train/...` and `swarm/external_share`."""
        ...


class Evaluator(Protocol):
    def score(self, groups: Sequence[RolloutGroup]) -> list[ScoredGroup]:
        """A verdict per completion, in order. Never runs code. Raises EvaluatorError."""
        ...

    def metrics(self) -> Metrics:
        """`judge/...`: how far this judge can be believed, from its canaries."""
        ...


class Swarm(Protocol):
    @property
    def peer_id(self) -> str: ...

    def proposals(self, round_number: int) -> list[Problem]:
        """Problems that other proposers (and this one) offer, newest first; never blocks. Raises SwarmError."""
        ...

    def publish(self, groups: Sequence[ScoredGroup], round_number: int) -> None:
        """Announce own groups. Verdicts only help to choose which are worth sharing. Raises SwarmError."""
        ...

    def gather(self, round_number: int) -> list[RolloutGroup]:
        """Peers' groups that arrived since the last call; never blocks. Raises SwarmError."""
        ...

    def offer(self, problems: Sequence[Problem], round_number: int) -> None:
        """Announce own proposals. Raises SwarmError."""
        ...

    def metrics(self) -> Metrics:
        """`swarm/...`: peers, bytes, refusals by reason."""
        ...

    def close(self) -> None: ...


class Difficulty(Persistent, Protocol):
    @property
    def level(self) -> int: ...

    def observe(self, groups: Sequence[ScoredGroup]) -> None:
        """Learn from the judged success of problems whose level is known."""
        ...

    def draw(self, count: int) -> list[int]:
        """The levels that the next `count` proposals should have."""
        ...


class Proposer(Persistent, Protocol):
    def propose(self, levels: Sequence[int]) -> list[Problem]:
        """At most one problem for each level; output that breaks the contract is dropped and counted."""
        ...

    def metrics(self) -> Metrics:
        """`proposer/...`: written, refused by reason."""
        ...


class Coordinator(Protocol):
    def current_round(self) -> int:
        """The round that is open now. Raises ChainError."""
        ...


class Outbox(Protocol):
    def add(self, round_number: int, reward: float, vote: str | None) -> None:
        """Note points earned in a round and the peer voted for; sending happens elsewhere and never blocks."""
        ...


class Exam(Protocol):
    """Executed truth, beside the reward and never in it."""

    def due(self, iteration: int) -> bool: ...

    def sit(self) -> Metrics:
        """Attempt the held-out set, execute the attempts, and return `eval/...`."""
        ...


class Monitor(Protocol):
    def started(self, iteration: int) -> None:
        """The loop is about to run from `iteration`; later rows on disk are of a crashed future and are dropped."""
        ...

    def busy(self, doing: str) -> None:
        """Say what takes longer than a moment; it is over at the next `observe`."""
        ...

    def observe(self, iteration: int, metrics: Metrics, scored: Sequence[ScoredGroup]) -> None:
        """Record and show one iteration."""
        ...

    def close(self, reason: str) -> None:
        """Write the report and say what to do next."""
        ...


class Checkpoints(Protocol):
    def save(self, iteration: int, parts: Mapping[str, Persistent]) -> None:
        """Atomically: either the whole new checkpoint exists or the old one does."""
        ...

    def restore(self, parts: Mapping[str, Persistent]) -> int:
        """Load the newest whole checkpoint; returns its iteration, 0 when there is none."""
        ...
