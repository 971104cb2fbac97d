"""Games, a settled ledger, and players of one market in memory: a hub delivers posts, judges are of known worth."""

import hashlib
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import msgspec

from codezero import types
from codezero.config import MarketConfig
from codezero.market.games import STEPS, Game, PriceRow, Reports, Score, gain, pay
from codezero.market.ledger import FILE, GameResult, Ledger, PlayerNote
from codezero.market.play import Player
from codezero.monitor.metrics_file import NODE_FILE
from codezero.sandbox.monty import MontySandbox
from codezero.types import Completion, Post, Problem, RolloutGroup, ScoredGroup, Source, Standing, problem_id


def peer(number: int) -> str:
    return "Qm" + "abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ"[number % 48] * 44


ME = peer(0)


def a_game(opener: str = peer(40), round: int = 10, **changes: Any) -> Game:
    game = Game("swarm", opener, round, "f(n) adds one", "def f(n):\n    return n + 1", ("assert f(1) == 2",))
    return msgspec.structs.replace(game, **changes)


def ended_game(number: int, round: int = 100) -> Game:
    return a_game(peer(20 + number % 20), round - 20 + 10 * (number % 2), question=f"question {number}")


def small_ledger(folder: Path, *, games: int = 3, round: int = 100) -> list[Game]:
    """`market.sqlite` of node ME: `games` games each that seven peers played, settled, and one open. Oldest first."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (node := folder / NODE_FILE).exists():
        node.write_text(f'{{"peer_id": "{ME}"}}')
    ended = [ended_game(number, round) for number in range(games)]
    reports: dict[str, Reports] = {peer(number): [5000 + 600 * number] * STEPS for number in range(7)}
    with closing(Ledger(folder / FILE)) as ledger:
        for at, game in enumerate(ended):
            ledger.add(game)
            for name, steps in reports.items():
                for step, q in enumerate(steps):
                    ledger.add_report(game.id, name, game.round + 1 + step, q or 0)
            brier = {"own": 0.4, "mean": 0.3, "price": 0.2 + 0.01 * (at % 3)}
            prices = PriceRow([0.5, 0.6, 0.7, 0.8], 6)
            result = GameResult(right=True, wins=pay(reports, True), price=prices, brier=brier)
            scores = {name: Score(game.opener, *(gain(steps[0], True),) * 2) for name, steps in reports.items()}
            ledger.settle(game, result, scores)
        live = a_game(round=round - 2, question="is open <img src=x>\u202e")
        ledger.add(live)
        ledger.add_report(live.id, ME, live.round + 1, 7000)
        ledger.add_evidence(live.id, live.opener, (True, None, False))
        ledger.write_note(PlayerNote(round, ""))
    return [*ended, live]


class Hub:
    """Delivers every post to everybody else, unless `lost` says so."""

    def __init__(self) -> None:
        self.waiting: dict[str, list[Post]] = {}
        self.lost: Callable[[str, str], bool] = lambda sender, receiver: False
        self.posts = 0

    def of(self, name: str) -> Any:
        self.waiting.setdefault(name, [])
        return SimpleNamespace(
            peer_id=name, posts=lambda: self._take(name), post=lambda data, n: self.post(name, data, n)
        )

    def _take(self, name: str) -> list[Post]:
        posts, self.waiting[name] = self.waiting[name], []
        return posts

    def post(self, name: str, payload: bytes, number: int) -> None:
        self.posts += 1
        for other, posts in self.waiting.items():
            if other != name and not self.lost(name, other):
                posts.append(Post(name, number, payload))


class KnowingJudge:
    """Says of a right program with probability `skill` that it is right; with 0.5 it is not sure of anything."""

    def __init__(self, skill: float) -> None:
        self.skill = skill

    def score(self, groups: Sequence[RolloutGroup]) -> list[ScoredGroup]:
        beliefs = [[self._belief(completion.text) for completion in group.completions] for group in groups]
        judged = types.Status.JUDGED
        verdicts = [tuple(types.Verdict(belief, belief, 1, 1, 1, 1, judged) for belief in row) for row in beliefs]
        return list(map(ScoredGroup, groups, verdicts))

    def _belief(self, text: str) -> float:
        draw = int.from_bytes(hashlib.sha256(f"{self.skill}{text}".encode()).digest()[:4], "big") / 2**32
        if self.skill == 0.5:
            return 0.5
        return 0.9 if ("+ 1\n" in text) is (draw < self.skill) else 0.1


@dataclass
class Table:
    """Players and what they share. execute: who executes."""

    folder: Path
    count: int = 8
    execute: Callable[[int], bool] = lambda number: True
    skills: Callable[[int], float] = lambda number: 0.9
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    hub: Hub = field(default_factory=Hub)
    round: int = 0

    def __post_init__(self) -> None:
        self.names = [peer(number) for number in range(self.count)]
        self.sandbox = MontySandbox()
        self.players = [self.player(number) for number in range(self.count)]

    def player(self, number: int) -> Player:
        folder = self.folder / str(number)
        folder.mkdir(exist_ok=True)
        (folder / NODE_FILE).write_text(f'{{"peer_id": "{self.names[number]}"}}')
        return Player(
            MarketConfig(enabled=True, execute=self.execute(number), **self.settings), "swarm",
            self.hub.of(self.names[number]), self.ledger(number), KnowingJudge(self.skills(number)),  # pyright: ignore
            self.sandbox if self.execute(number) else None,
            block="best", seed=number, logs=folder, clock=lambda: 0.0,
        )  # fmt: skip

    def ledger(self, number: int) -> Ledger:
        return Ledger(self.folder / str(number) / FILE)

    def close(self) -> None:
        for player in self.players:
            player._ledger.close()  # pyright: ignore[reportPrivateUsage]
        self.sandbox.close()

    def restart(self, number: int) -> None:
        self.players[number]._ledger.close()  # pyright: ignore[reportPrivateUsage]
        self.players[number] = self.player(number)

    def judged(self, number: int) -> list[ScoredGroup]:
        """Own attempts at a problem, right and wrong ones."""
        shift = Random(1000 * self.round + number).randrange(1000)
        text = f"Write f that adds {shift} to its argument, and one more."
        tests = (f"assert f({shift}) == {2 * shift + 1}", f"assert f(0) == {shift + 1}")
        problem = Problem(problem_id(text, tests), text, tests, "f", Source.SYNTHETIC, Standing.REFERENCE)
        codes = [f"def f(n):\n    return n + {shift} + {step}" for step in (1, 2)]
        texts = tuple(Completion(f"```python\n{code}\n```", (), (), True) for code in codes)
        return KnowingJudge(self.skills(number)).score([RolloutGroup(problem, texts, self.names[number], 0, 0)])

    def turn(self, rounds: int = 1, *, turns: int = 2, playing: Callable[[int], bool] = lambda number: True) -> None:
        """Everybody plays `turns` times in each round."""
        for _ in range(rounds):
            self.round += 1
            for _ in range(turns):
                for number, player in enumerate(self.players):
                    if playing(number):
                        player.play(self.round, self.judged(number))
