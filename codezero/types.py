"""The data that flows between the parts. No torch, no I/O.

Legend for shapes: G completions in a group, T tokens in a completion."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

Metrics = dict[str, float | int | str | None]  # a row of measurements: `name/part` -> value; None: not measured
BELIEF = 0.5  # correctness from which a judge is taken to say "right"
REHEARSAL = "embedded problems: a rehearsal"  # where no set that is named can be read


class Standing(StrEnum):
    """The credit of a problem's expected values."""

    REFERENCE = "reference"  # computed by a reference solution that ships with the problem
    CONFIRMED = "confirmed"  # claimed by a proposer and confirmed since
    CLAIMED = "claimed"  # a proposer's invention; the tests only show the call form and example inputs


class Source(StrEnum):
    """Where a problem of the environment `code` comes from."""

    MBPP = "mbpp"
    CODE_CONTESTS = "code_contests"
    DEEPCODER = "deepcoder"
    SYNTHETIC = "synthetic"
    PROPOSER = "proposer"


class Style(StrEnum):
    """The use that is made of a solution."""

    CALL = "call"  # Tests call a function: MBPP. Each test is an assertion.
    STDIO = "stdio"
    """The whole program reads stdin and writes stdout: CodeContests. Each test is `{"input": .., "output": ..}`."""


@dataclass(frozen=True, slots=True)
class Item:
    """A place in an environment, from which every node derives the same problem."""

    environment: str
    digest: str  # 64 hex digits: of the environment, as `environment.Environment.digest`
    level: int  # 1..5
    index: int  # from 0 on


@dataclass(frozen=True, slots=True)
class Problem:
    """A question, and the tests that define it or the place that it is derived from."""

    id: str  # `problem_id(question, tests)`: 64 hex digits, the same on every node
    question: str
    tests: tuple[str, ...]  # one per entry, in the form its `style` has; none of a problem with an `item`
    entry_point: str  # name of the function the tests call; empty for a program that reads stdin
    source: str  # a `Source`, or the name of the environment that it is derived from
    standing: Standing = Standing.REFERENCE
    level: int | None = None  # difficulty 1..5 where it is known or was asked for
    reference: str | None = None  # a correct solution; never shown to a solver, never published
    proposer: str | None = None  # peer id of the proposer; None for data sets
    item: Item | None = None  # where it is derived from; None: it is all that its other fields say

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
    right: tuple[str, ...]  # at least one
    wrong: tuple[str, ...] = ()  # each known to fail a test


@dataclass(frozen=True, slots=True)
class Completion:
    """One sampled attempt."""

    text: str  # decoded completion without special tokens
    token_ids: tuple[int, ...]  # [T] sampled ids, EOS included when it was generated
    logprobs: tuple[float, ...]  # [T] nats, under the policy and temperature that sampled it
    finished: bool  # EOS was generated; False when the length limit cut it off
    version: int | None = None  # oldest version of the policy that sampled its tokens; None: the one at hand


@dataclass(frozen=True, slots=True)
class RolloutGroup:
    """G attempts at one problem by one policy; advantages are centred over the group."""

    problem: Problem
    completions: tuple[Completion, ...]  # [G]
    peer_id: str  # who sampled it
    round: int
    policy_step: int  # optimiser steps the sampling policy had taken


class Status(StrEnum):
    """The way in which a verdict came about."""

    JUDGED = "judged"
    CERTAIN_FAILURE = "certain_failure"  # decided by the static pass; the judge was not asked
    QUARANTINED = "quarantined"  # looks like an attack on the judge: reward 0 and no gradient
    UNAVAILABLE = "unavailable"  # could not tell: masked out, never a 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The evaluator's word on one completion."""

    reward: float  # [0, 1]: cap * (0.70 correctness + 0.15 structure + 0.10 adherence + 0.05 format)
    correctness: float  # [0, 1]: calibrated probability that every test passes
    structure: float
    adherence: float
    format: float
    cap: float  # the most it could earn; 0 when quarantined or unavailable
    status: Status
    reasons: tuple[str, ...] = ()  # short phrases a user can read, worst first
    program: tuple[tuple[int, int], ...] | None = None  # [start, end) that earned it, with its fence; None: all of it

    @property
    def trainable(self) -> bool:
        """May this verdict carry gradient and count in the group mean?"""
        return self.status in (Status.JUDGED, Status.CERTAIN_FAILURE)


@dataclass(frozen=True, slots=True)
class Feedback:
    """A peer's report on a problem that this node proposed. Its word alone, so it never counts for much."""

    peer_id: str
    problem_id: str
    level: int | None  # which level was asked for
    attempts: int
    success: float  # [0, 1]: mean correctness of the attempts, as that peer judged them
    trust: float = 1.0  # (0, 1]: how well-behaved this node's network has found that peer


@dataclass(frozen=True, slots=True)
class Post:
    """A peer's message to the market of a round, for the market to parse."""

    peer: str
    round: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class JudgeRates:
    """A judge's error rates on answers whose truth is known; an attempt is believed from BELIEF on."""

    false_positive: float  # [0, 1]: share of the wrong ones that it believed
    false_negative: float  # [0, 1]: share of the right ones that it did not believe
    wrong: int  # how many the first is a share of, at least one
    right: int  # how many the second is a share of, at least one


@dataclass(frozen=True, slots=True)
class ScoredGroup:
    """A rollout group and one verdict per completion."""

    group: RolloutGroup
    verdicts: tuple[Verdict, ...]  # [G]

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
