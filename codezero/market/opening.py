"""Which games a node opens: on its own attempts, on values that a proposer claims, and on values that it knows."""

import re
import secrets
from collections import Counter
from collections.abc import Sequence
from random import Random

from codezero.errors import MarketError, ProblemError
from codezero.market.games import NONE, VERDICTS, Game, GameKind, Opening
from codezero.market.messages import check_game
from codezero.market.opinions import Opinions, cases, returned
from codezero.types import Problem, ScoredGroup, Source, Standing

MOST_VALUES = 6
"""Answers beside the claim and none of these."""
TRUE_CLAIMS = 0.15
"""Of the sentinels, as among proposals, where claims are right in 13.5 %: or liars would know them by it."""
_NUMBER = re.compile(r"(?<![\w.'\"])\d+(?![\w.'\"])")
Opened = tuple[Game, Opening | None]


class Opener:
    """Of one node."""

    def __init__(self, opinions: Opinions, me: str, swarm: str) -> None:
        self._opinions, self._me, self._swarm = opinions, me, swarm

    def open(self, judged: Sequence[ScoredGroup], round_number: int, most: int, random: Random) -> list[Opened]:
        """At most `most` games on own attempts of this iteration. Where nothing is executed all are `program` games;
        else up to half ask for values, the first of which is a sentinel. Raises SandboxError."""
        own = [group for group in judged if group.group.peer_id == self._me and group.group.problem.entry_point]
        random.shuffle(own)
        games: list[Opened] = []
        if self._opinions.sandbox is not None:
            known = [group for group in own if group.group.problem.reference]
            claimed = [group for group in own if group.group.problem.source is Source.PROPOSER]
            sentinels = self._values(known, round_number, max(1, most // 4), random)
            games += sentinels + self._values(claimed, round_number, min(most // 2, 4 * len(sentinels)) - 1, random)
        tested = [group for group in own if group.group.problem.standing is Standing.REFERENCE]
        for group in tested:
            codes = list(self._opinions.read(group))
            if codes and len(games) < most:
                game = self._game(GameKind.PROGRAM, group.group.problem, round_number, random.choice(codes), VERDICTS)
                games += [(game, None)] if game else []
        return games[:most]

    def _values(self, groups: Sequence[ScoredGroup], round_number: int, most: int, random: Random) -> list[Opened]:
        games: list[Opened] = []
        for group in groups:
            if len(games) < most and (opened := self._value(group, round_number, random)):
                games.append(opened)
        return games

    def _value(self, group: ScoredGroup, round_number: int, random: Random) -> Opened | None:
        problem, sandbox = group.group.problem, self._opinions.sandbox
        calls = cases(problem)
        if sandbox is None or not calls:
            return None
        call, claim = random.choice(calls)
        reference = "" if problem.source is Source.PROPOSER else problem.reference or ""
        if reference:
            call = _fresh(call, random)
            claim = returned(sandbox, reference, call) or "None"
            claim = claim if random.random() < TRUE_CLAIMS else _fresh(claim, random)
        first = returned(sandbox, "", claim)
        if first is None:
            return None
        codes = [code for code, _ in self._opinions.attempts(problem.question)]
        values = Counter(value for code in codes if (value := returned(sandbox, code, call)) not in (None, first))
        answers = (first, *(value for value, _ in values.most_common(MOST_VALUES) if value), NONE)
        salt = secrets.token_bytes(32)
        commitment = Opening(bytes(32), salt, reference).commitment
        game = self._game(GameKind.VALUE, problem, round_number, "", answers, call, commitment)
        return (game, Opening(game.id, salt, reference)) if game else None

    def _game(
        self,
        kind: GameKind,
        problem: Problem,
        round_number: int,
        code: str,
        answers: tuple[str, ...],
        call: str = "",
        commitment: bytes | None = None,
    ) -> Game | None:
        """None where it would break a rule."""
        tests, proposer = (call,) if call else problem.tests, problem.proposer
        try:
            game = Game(
                kind, self._swarm, self._me, round_number, problem.question, code, tests, answers, proposer, commitment
            )
            check_game(game, peer=self._me, round=round_number, swarm=self._swarm)
        except (ValueError, MarketError, ProblemError):
            return None
        return game


def _fresh(text: str, random: Random) -> str:
    """With other whole numbers."""
    return _NUMBER.sub(lambda match: str(abs(int(match[0]) + random.choice((-3, -2, -1, 1, 2, 3)))), text)
