"""The Protocols that the loop drives: what each part of a node has to do, and how its state is kept. No torch."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from codezero.system.state import Persistent
from codezero.types import (
    Completion,
    Feedback,
    JudgeRates,
    Metrics,
    Post,
    Problem,
    RolloutGroup,
    ScoredGroup,
)


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


class ProblemStream(Persistent, Protocol):
    def next_batch(self, proposals: Sequence[Problem], count: int | None = None) -> list[Problem]:
        """The problems of one iteration: a share of `proposals`, the rest from the data sets; never an item twice.

        count: how many; None: an iteration's.
        """
        ...

    def admits(self, problem: Problem) -> bool:
        """May a stranger's problem be learned from? False for what the exam asks: it has to stay unseen."""
        ...

    def metrics(self) -> Metrics:
        """`problems/...`: where they came from, and which were refused why."""
        ...


class Solver(Persistent, Protocol):
    def rollout(self, problems: Sequence[Problem], round_number: int) -> list[RolloutGroup]:
        """G completions for each problem, in order."""
        ...

    def short_of(self, scored: Sequence[ScoredGroup]) -> int:
        """How many more problems to attempt in the iteration whose judged groups these are."""
        ...

    def step(self, local: Sequence[ScoredGroup], peers: Sequence[ScoredGroup]) -> Metrics:
        """One GRPO update; returns `train/...` and `swarm/external_share`."""
        ...


class Evaluator(Persistent, Protocol):
    def score(self, groups: Sequence[RolloutGroup]) -> list[ScoredGroup]:
        """A verdict per completion, in order. Raises EvaluatorError, and SandboxError where rewards are executed."""
        ...

    def review(self, iteration: int, scored: Sequence[ScoredGroup]) -> None:
        """Once an iteration: how far can the judge still be believed?

        Raises EvaluatorError and SandboxError, and AlarmError when the run should end.
        """

    def witness(self, scored: Sequence[ScoredGroup], passed: Sequence[Sequence[bool | None]]) -> Metrics:
        """`judge/...` of an exam, by execution [groups][G]. It raises alarms, and may take the judge's weight."""
        ...

    def rates(self) -> JudgeRates | None:
        """How often the judge is mistaken, to correct what it says of success; None where attempts are executed."""
        ...

    def metrics(self) -> Metrics:
        """`judge/...`: how far this judge can be believed; `audit/...` where attempts are executed to see it."""
        ...


class Harvest(Persistent, Protocol):
    """Where an iteration's judged groups come from. Its state is that of the problem stream, and what it holds back."""

    def take(self, proposals: Sequence[Problem], round_number: int) -> Iterator[list[ScoredGroup]]:
        """Judged groups of own attempts, as they come. Raises EvaluatorError, and SandboxError where rewards are
        executed: what came before is kept."""
        ...

    def metrics(self) -> Metrics:
        """`tokens/...`, and `rollout/...` where attempts are made ahead."""
        ...


class Swarm(Persistent, Protocol):
    @property
    def peer_id(self) -> str: ...

    def proposals(self, round_number: int) -> list[Problem]:
        """Problems that other proposers (and this one) offer, newest first; never blocks. Raises SwarmError."""
        ...

    def publish(self, groups: Sequence[ScoredGroup], round_number: int) -> None:
        """Announce own groups. Verdicts only help to choose which are worth sharing. Raises SwarmError."""

    def gather(self, round_number: int) -> list[RolloutGroup]:
        """Peers' groups that arrived since the last call; never blocks. Raises SwarmError."""
        ...

    def feedback(self) -> list[Feedback]:
        """Peers' reports since the last call on problems this node proposed; never blocks. Raises SwarmError."""
        ...

    def offer(self, problems: Sequence[Problem], round_number: int) -> None:
        """Announce own proposals. Raises SwarmError."""

    def post(self, payload: bytes, round_number: int) -> None:
        """Announce the own market message of a round; a later one replaces it. Raises SwarmError."""

    def posts(self) -> list[Post]:
        """Peers' market messages since the last call, oldest first; never blocks. Raises SwarmError."""
        ...

    def metrics(self) -> Metrics:
        """`swarm/...`: peers, bytes, refusals by reason."""
        ...

    def close(self) -> None: ...


class Difficulty(Persistent, Protocol):
    @property
    def level(self) -> int: ...

    def observe(self, groups: Sequence[ScoredGroup], judge: JudgeRates | None) -> None:
        """Learn from the judged success of problems whose level is known; `judge` is what `Evaluator.rates` says."""

    def hear(self, feedback: Sequence[Feedback]) -> None:
        """Learn from peers' reports with a small weight: they never outweigh own observations."""

    def draw(self, count: int) -> list[int]:
        """The levels that the next `count` proposals should have."""
        ...

    def metrics(self) -> Metrics:
        """`difficulty/...`: what is believed of each level, and which will be asked for."""
        ...


class Proposer(Persistent, Protocol):
    def propose(self, levels: Sequence[int]) -> list[Problem]:
        """Problems of these levels; output that breaks the contract is dropped and counted."""
        ...

    def check(self, scored: Sequence[ScoredGroup]) -> None:
        """Once an iteration, with own attempts: count own problems' expected values right or wrong, where anything is
        executed. Raises SandboxError."""

    def metrics(self) -> Metrics:
        """`proposer/...`: written, refused by reason."""
        ...


class Market(Protocol):
    """Reports on attempts beside training; nothing of it enters a reward."""

    def proposals(self, proposals: Sequence[Problem]) -> list[Problem]:
        """With confirmed values in the place of claims, and with what the market asks."""
        ...

    def play(self, round_number: int, judged: Sequence[ScoredGroup]) -> Metrics:
        """Once an iteration; `market/...`. Raises MarketError, SwarmError, EvaluatorError and SandboxError."""
        ...


class Coordinator(Protocol):
    def current_round(self) -> int:
        """The round that is open now. Raises ChainError."""
        ...


class Outbox(Protocol):
    def add(self, iteration: int, round_number: int, reward: float, vote: str | None) -> None:
        """Note an iteration's points and the peer voted for, once; sending happens elsewhere and never blocks."""


class Exam(Protocol):
    """Executed truth, beside the reward and never in it."""

    def due(self, iteration: int) -> bool: ...

    def begin(self, iteration: int) -> None:
        """Attempt the held-out set and execute the attempts, beside training where others decode.

        An exam that is still under way goes on instead.
        """

    def results(self, *, wait: bool) -> Metrics:
        """`eval/...` of an exam that has ended, once; empty where none has. wait: for the one that is under way."""
        ...


class Monitor(Protocol):
    def started(self, iteration: int) -> bool:
        """The loop is about to run from `iteration`; later rows on disk, of a crashed future, are dropped.
        Has the run sat an exam before?"""
        ...

    def busy(self, doing: str) -> None:
        """Say what takes longer than a moment; it is over at the next `observe`."""

    def observe(self, iteration: int, metrics: Metrics, judged: Sequence[ScoredGroup]) -> None:
        """Record and show one iteration, with own and peers' groups as they were judged."""

    def say(self, line: str) -> None:
        """Show a line at once, and until the end. From any thread."""

    def close(self, reason: str) -> None:
        """Write the report and say what to do next."""

    def cut(self, reason: str) -> None:
        """Record, from any thread, that the process ends now: `close` without what takes long."""


class Checkpoints(Protocol):
    def save(self, iteration: int, parts: Mapping[str, Persistent]) -> None:
        """Atomically: either the whole new checkpoint exists or the old one does."""

    def restore(self, parts: Mapping[str, Persistent]) -> int:
        """Load the newest whole checkpoint; returns its iteration, 0 when there is none."""
        ...
