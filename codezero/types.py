"""What flows between the parts. No torch, no I/O; what they do with it is in `protocols.py`.

Legend for shapes: G completions in a group, T tokens in a completion.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

Metrics = dict[str, float | int | str | None]
"""One row of measurements: `name/part` -> value; None means "not measured this time"."""
BELIEF = 0.5
"""Correctness from which a judge is taken to say "right"."""
REHEARSAL = "embedded problems: a rehearsal"
"""What there is to learn from, or to be examined on, where no named set can be read."""


class Standing(StrEnum):
    """How far a problem's expected values can be believed."""

    REFERENCE = "reference"
    """Computed by a reference solution that ships with the problem."""
    CONFIRMED = "confirmed"
    """Claimed by a proposer and confirmed since."""
    CLAIMED = "claimed"
    """A proposer's invention; the tests only show the call form and example inputs."""


class Source(StrEnum):
    """Where a problem of the environment `code` comes from."""

    MBPP = "mbpp"
    CODE_CONTESTS = "code_contests"
    DEEPCODER = "deepcoder"
    SYNTHETIC = "synthetic"
    PROPOSER = "proposer"


class Style(StrEnum):
    """How a solution is used."""

    CALL = "call"
    """Tests call a function: MBPP. Each test is an assertion."""
    STDIO = "stdio"
    """The whole program reads stdin and writes stdout: CodeContests. Each test is `{"input": .., "output": ..}`."""


@dataclass(frozen=True, slots=True)
class Item:
    """A place in an environment, from which every node derives the same problem."""

    environment: str
    digest: str
    """64 hex digits: of the environment, as `environment.Environment.digest`."""
    level: int  # 1..5
    index: int  # from 0 on


@dataclass(frozen=True, slots=True)
class Problem:
    """A question, and the tests that define it or the place that it is derived from."""

    id: str
    """`problem_id(question, tests)`: 64 hex digits, the same on every node."""
    question: str
    tests: tuple[str, ...]
    """One per entry, in the form its `style` has; none of a problem with an `item`."""
    entry_point: str
    """Name of the function the tests call; empty for a program that reads stdin."""
    source: str
    """A `Source`, or the name of the environment that it is derived from."""
    standing: Standing = Standing.REFERENCE
    level: int | None = None
    """Difficulty 1..5 where it is known or was asked for."""
    reference: str | None = None
    """A correct solution. Never shown to a solver, never published."""
    proposer: str | None = None
    """Peer id of the proposer; None for data sets."""
    item: Item | None = None
    """Where it is derived from; None: it is all that its other fields say."""

    @property
    def style(self) -> Style:
        return Style.CALL if self.entry_point else Style.STDIO


def is_exam_question(question: str) -> bool:
    """Is a question of a derived problem of the eighth that exams ask, and nobody learns from? Wherever it stands."""
    return hashlib.sha256(question.encode("utf-8", "replace")).digest()[0] % 8 == 7


def problem_id(question: str, tests: Sequence[str]) -> str:
    """sha256 of the whitespace-normalised question and tests."""
    text = "\n".join(" ".join(part.split()) for part in (question, *tests))
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


@dataclass(frozen=True, slots=True)
class Worked:
    """A problem with solutions whose correctness is known without running them."""

    problem: Problem
    right: tuple[str, ...]
    """At least one."""
    wrong: tuple[str, ...] = ()
    """Each known to fail a test."""


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
    version: int | None = None
    """The oldest version of the policy among those that sampled its tokens; None: the one at hand."""


@dataclass(frozen=True, slots=True)
class Verification:
    """What a verifier wrote about one attempt, and what came of it."""

    completion: Completion
    """The verifier's."""
    feedback: str = ""
    """What the solver was told for a second attempt; empty: there was none."""


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
    checks: tuple[Verification, ...] = ()
    """Of the first attempts, where a verifier reads them. Behind these in `completions` stand the second attempts, in
    the order of the checks that led to them."""


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
    program: tuple[tuple[int, int], ...] | None = None
    """[start, end) of the characters that earned it, the fence included; None: of an answer that is read whole."""

    @property
    def trainable(self) -> bool:
        """May this verdict carry gradient and count in the group mean?"""
        return self.status in (Status.JUDGED, Status.CERTAIN_FAILURE)


@dataclass(frozen=True, slots=True)
class Feedback:
    """What a peer says became of a problem that this node proposed. Its word alone, so it never counts for much."""

    peer_id: str
    problem_id: str
    level: int | None
    """Which level was asked for."""
    attempts: int
    success: float
    """[0, 1]: mean correctness of the attempts, as that peer judged them."""
    trust: float = 1.0
    """(0, 1]: how well-behaved this node's network has found that peer."""


@dataclass(frozen=True, slots=True)
class Post:
    """What a peer says to the market of a round, for the market to parse."""

    peer: str
    round: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class JudgeRates:
    """How often a judge was mistaken on answers whose truth is known; an attempt is believed from BELIEF on."""

    false_positive: float
    """[0, 1]: share of the wrong ones that it believed."""
    false_negative: float
    """[0, 1]: share of the right ones that it did not believe."""
    wrong: int
    """How many the first is a share of, at least one."""
    right: int
    """How many the second is a share of, at least one."""


@dataclass(frozen=True, slots=True)
class ScoredGroup:
    """A rollout group and one verdict per completion."""

    group: RolloutGroup
    verdicts: tuple[Verdict, ...]
    """[G]"""

    @property
    def first(self) -> "ScoredGroup":
        """Without second attempts, which were made with help."""
        if not (count := len(self.group.checks)):
            return self
        group = replace(self.group, completions=self.group.completions[:count], checks=())
        return ScoredGroup(group, self.verdicts[:count])

    @property
    def trainable(self) -> list[Verdict]:
        """Those that could be reached."""
        return [verdict for verdict in self.verdicts if verdict.trainable]

    @property
    def success(self) -> float | None:
        """Mean judged correctness over the trainable verdicts; None when there is none."""
        return mean(verdict.correctness for verdict in self.trainable)

    @property
    def believed(self) -> float | None:
        """Share of the trainable verdicts that believe the attempt; None when there is none."""
        return mean(verdict.correctness >= BELIEF for verdict in self.trainable)


def mean(values: Iterable[float]) -> float | None:
    """None of nothing: what was not measured is no 0."""
    known = list(values)
    return sum(known) / len(known) if known else None
