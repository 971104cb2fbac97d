"""Players of one market in memory: a hub that delivers posts, a chain that keeps rounds, and judges of known worth."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

from builders.market import peer

from codezero.config import MarketConfig
from codezero.errors import ChainError
from codezero.market.closing import Cast
from codezero.market.ledger import FILE, Ledger
from codezero.market.opinions import Opinions
from codezero.market.playing import Player
from codezero.sandbox.monty import MontySandbox
from codezero.types import (
    Completion,
    Post,
    Problem,
    RolloutGroup,
    ScoredGroup,
    Source,
    Standing,
    Status,
    Verdict,
    problem_id,
)


class MemoryChain:
    """Anchors and ballots count in the round in which they arrive."""

    def __init__(self) -> None:
        self.open, self.down = 0, False
        self.anchored: dict[int, dict[str, bytes]] = {}
        self.cast: dict[int, list[tuple[str, Cast]]] = {}

    def of(self, name: str) -> Any:
        return SimpleNamespace(
            anchor=lambda number, root: self._anchor(name, number, root),
            vote=lambda number, *cast: self._vote(name, number, cast),
            roots=lambda number: self._up(dict(self.anchored.get(number, {}))),
            votes=lambda number, jurors: self._up([row for row in self.cast.get(number, []) if row[0] in jurors]),
            accounts=lambda peers: self._up({each: f"0x{each}" for each in peers}),
        )

    def _up(self, answer: Any) -> Any:
        if self.down:
            raise ChainError("down")
        return answer

    def _anchor(self, name: str, number: int, root: bytes) -> None:
        if number == self.open and not self.down:
            assert self.anchored.setdefault(number, {}).setdefault(name, root) == root, "a second root in a round"

    def _vote(self, name: str, number: int, cast: Cast) -> None:
        rows = self.cast.setdefault(self.open, [])
        if all(juror != name for juror, _ in rows):
            rows.append((name, cast))


class Hub:
    """Delivers every post to everybody else, unless `lost` says so."""

    def __init__(self) -> None:
        self.waiting: dict[str, list[Post]] = {}
        self.lost: Callable[[str, str], bool] = lambda sender, receiver: False
        self.bytes = 0

    def of(self, name: str) -> Any:
        self.waiting.setdefault(name, [])
        return SimpleNamespace(
            peer_id=name, posts=lambda: self._take(name), post=lambda data, n: self._post(name, data, n)
        )

    def _take(self, name: str) -> list[Post]:
        posts, self.waiting[name] = self.waiting[name], []
        return posts

    def _post(self, name: str, payload: bytes, number: int) -> None:
        for other, posts in self.waiting.items():
            if other != name and not self.lost(name, other):
                self.bytes += len(payload)
                posts.append(Post(name, number, payload))


class KnowingJudge:
    """Says of a right program with probability `skill` that it is right; the truth stands in the program."""

    def __init__(self, skill: float) -> None:
        self.skill = skill

    def score(self, groups: Sequence[RolloutGroup]) -> list[ScoredGroup]:
        return [scored(group, [self._belief(completion.text) for completion in group.completions]) for group in groups]

    def _belief(self, text: str) -> float:
        draw = int.from_bytes(hashlib.sha256(f"{self.skill}{text}".encode()).digest()[:4], "big") / 2**32
        right = "+ 1" in text
        return 0.9 if right is (draw < self.skill) else 0.1


def scored(group: RolloutGroup, beliefs: Sequence[float]) -> ScoredGroup:
    verdicts = tuple(Verdict(belief, belief, 1, 1, 1, 1, Status.JUDGED) for belief in beliefs)
    return ScoredGroup(group, verdicts)


def question(number: int, *, claimed: str = "") -> Problem:
    """f(n) = n + number + 1."""
    text = f"Write f that adds {number} to its argument, and one more."
    tests = (f"assert f({number}) == {claimed or 2 * number + 1}", f"assert f(0) == {number + 1}")
    source, standing = (Source.PROPOSER, Standing.CLAIMED) if claimed else (Source.SYNTHETIC, Standing.REFERENCE)
    reference = None if claimed else f"def f(n):\n    return n + {number} + 1"
    return Problem(problem_id(text, tests), text, tests, "f", source, standing, reference=reference)


@dataclass
class Table:
    """Players and what they share. execute: who executes."""

    folder: Path
    count: int = 8
    execute: Callable[[int], bool] = lambda number: True
    skills: Callable[[int], float] = lambda number: 0.9
    chained: bool = True
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    chain: MemoryChain = field(default_factory=MemoryChain)
    hub: Hub = field(default_factory=Hub)
    now: float = 0.0

    def __post_init__(self) -> None:
        self.names = [peer(number) for number in range(self.count)]
        self.sandbox = MontySandbox()
        self.players = [self.player(number) for number in range(self.count)]

    def player(self, number: int) -> Player:
        folder = self.folder / str(number)
        folder.mkdir(exist_ok=True)
        executes = self.execute(number)
        settings = MarketConfig(enabled=True, execute=executes, **{"open": 2, "seconds": 60.0} | self.settings)
        opinions = Opinions(KnowingJudge(self.skills(number)), self.sandbox if executes else None, "best")  # pyright: ignore
        return Player(
            settings, "swarm", self.hub.of(self.names[number]), Ledger(folder / FILE), opinions,
            self.chain.of(self.names[number]) if self.chained else None,
            round_seconds=60.0, seed=number, logs=folder, clock=lambda: self.now,
        )  # fmt: skip

    def close(self) -> None:
        for player in self.players:
            player.close()
        self.sandbox.close()

    def restart(self, number: int) -> None:
        self.players[number].close()
        self.players[number] = self.player(number)

    def judged(self, number: int, round: int) -> list[ScoredGroup]:
        """Two own attempts at a problem, one of them right, and at a proposal that all see."""
        random = Random(1000 * round + number)
        groups: list[ScoredGroup] = []
        for problem, constant in ((question(random.randrange(1000)), None), (question(round, claimed="7"), round)):
            base = (
                constant
                if constant is not None
                else int(problem.reference.rsplit(" ", 3)[1])
                if problem.reference
                else 0
            )
            codes = [f"def f(n):\n    return n + {base} + {step}" for step in (1, 2)]
            codes.append(f"def f(n):\n    m = n\n    return m + {base} + 1")
            texts = tuple(Completion(f"```python\n{code}\n```", (), (), True) for code in codes)
            group = RolloutGroup(problem, texts, self.names[number], round, 0)
            groups += KnowingJudge(self.skills(number)).score([group])
        return groups

    def turn(self, *, turns: int = 2, playing: Callable[[int], bool] = lambda number: True) -> None:
        """One round: everybody plays `turns` times, and the chain is read."""
        self.chain.open += 1
        for _ in range(turns):
            self.now += 60.0 / turns
            for number, player in enumerate(self.players):
                if playing(number):
                    player.play(self.chain.open, self.judged(number, self.chain.open))
                    self.wait(player)

    def wait(self, player: Player) -> None:
        if player._reading is not None:  # pyright: ignore[reportPrivateUsage]
            player._reading.exception()  # pyright: ignore[reportPrivateUsage]
