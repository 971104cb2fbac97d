"""What this node believes of a game: its judge, its own attempts, and what it executes where that is allowed.

And which games it opens: on its own attempts, on values that a proposer claims, and on values that it knows.
"""

import itertools
import math
import re
import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np

from codezero.code.answer import read_answer
from codezero.code.assertions import as_problem
from codezero.errors import MarketError, ProblemError
from codezero.market.games import NONE, ONE, VERDICTS, Game, GameKind, Opening, check_game, is_call
from codezero.market.pricing import LEAST_REPORT, Price, clip
from codezero.protocols import Evaluator
from codezero.sandbox.base import TRUTH, Job, Sandbox
from codezero.stats import Array
from codezero.system.state import Newest
from codezero.types import Completion, Problem, RolloutGroup, ScoredGroup, Source, Standing, problem_id

SURE, DOUBT = 0.98, 0.9
"""What an own execution counts for, and evidence of an opener that has a vote."""
FLOOR, POWER = 0.2, 2.0
"""Of how own attempts' values become a report: added to each answer's weight, and its exponent."""
UNJUDGED = 0.35
"""What an attempt counts for that could not be judged."""
MIN_TESTS = 2
"""Confirmed values without which a problem stays a claim."""
MOST_QUESTIONS = 512
"""Whose attempts are remembered."""
ANSWERED = '{"input": "", "output": "\\u0000"}'
"""A test that no program passes: what it prints instead is asked for."""
CASE = re.compile(r"assert (.+?) == (.+)", re.DOTALL)

Attempts = list[tuple[str, float]]
"""Different programs, and how far the judge believes each."""


class Opinions:
    """Of one node. sandbox: None where nothing is executed."""

    def __init__(self, judge: Evaluator, sandbox: Sandbox | None, block: str) -> None:
        self.sandbox = sandbox
        self._judge, self._block = judge, block
        self._attempts = Newest[str, Attempts](MOST_QUESTIONS)
        self._beliefs: dict[bytes, float | None] = {}

    def remember(self, judged: Sequence[ScoredGroup], own: str) -> None:
        """Own attempts, by question."""
        for group in judged:
            if group.group.peer_id == own and group.group.problem.entry_point:
                known = dict(self.attempts(group.group.problem.question))
                self._attempts[group.group.problem.question] = list((known | self.read(group)).items())[-64:]

    def read(self, group: ScoredGroup) -> dict[str, float]:
        """The programs of a group, and how far each is believed."""
        problem, found = group.group.problem, dict[str, float]()
        for completion, verdict in zip(group.group.completions, group.verdicts, strict=True):
            code = read_answer(completion.text, problem.entry_point, self._block).code
            if code:
                found[code] = verdict.correctness if verdict.trainable else UNJUDGED
        return found

    def attempts(self, question: str) -> Attempts:
        return self._attempts.get(question, [])

    def questions(self, games: Sequence[Game], most: int) -> list[Problem]:
        """What to attempt, so that there is something to report: the newest `value` games without own attempts."""
        asked = [game for game in reversed(games) if game.kind is GameKind.VALUE and not self.attempts(game.question)]
        return [_problem(game) for game in asked[:most]] if self.sandbox else []

    def believe(self, games: Sequence[Game]) -> None:
        """Ask the judge about programs. Raises EvaluatorError, and SandboxError where rewards are executed."""
        new = [game for game in games if game.kind is GameKind.PROGRAM and game.id not in self._beliefs]
        groups = [
            RolloutGroup(_problem(game), (Completion(f"```python\n{game.code}\n```", (), (), True),), game.opener, 0, 0)
            for game in new
        ]
        for game, group in zip(new, self._judge.score(groups) if groups else [], strict=True):
            verdict = group.verdicts[0]
            self._beliefs[game.id] = verdict.correctness if verdict.trainable else None

    def believed(self, game: Game) -> bool:
        """Was the judge asked?"""
        return game.kind is not GameKind.PROGRAM or game.id in self._beliefs

    def executes(self, game: Game, opening: Opening | None) -> int | None:
        """The answer that two executions agree on; of a `value` game by its opened reference. None: cannot be told.

        Raises SandboxError.
        """
        if self.sandbox is None or (game.kind is GameKind.VALUE and not (opening and opening.reference)):
            return None
        if game.kind is GameKind.PROGRAM:
            job = Job(game.code, game.tests)
            first, second = (TRUTH[self.sandbox.run(job).outcome] for _ in range(2))
            return None if first is None or first is not second else int(not first)
        code = game.code or (opening.reference if opening else "")
        first, second = (returned(self.sandbox, code, game.tests[0]) for _ in range(2))
        return None if first is None or first != second else game.index_of(first)

    def outcomes(self, game: Game, count: int) -> tuple[bool | None, ...]:
        """Of the first tests of a program, each alone. Raises SandboxError."""
        jobs = [Job(game.code, (test,)) for test in game.tests[:count]]
        return tuple(TRUTH[result.outcome] for result in self.sandbox.run_many(jobs)) if self.sandbox else ()

    def values(self, game: Game) -> list[tuple[str, float]]:
        """What own attempts at a `value` game return, and how far each is believed. Raises SandboxError."""
        if self.sandbox is None or game.kind is not GameKind.VALUE:
            return []
        rows = [(returned(self.sandbox, code, game.tests[0]), belief) for code, belief in self.attempts(game.question)]
        return [(value, belief) for value, belief in rows if value is not None]

    def report(
        self,
        game: Game,
        price: Price | None,
        executed: int | None,
        values: Sequence[tuple[str, float]],
        evidence: Sequence[bool | None],
    ) -> tuple[int, ...] | None:
        """[K] Basis points; None: nothing is known. price: of the step before, where somebody has a vote.

        evidence: outcomes that an opener with a vote shows. executed: the own execution, which outweighs all else.
        """
        count = len(game.answers)
        if executed is not None:
            return whole(clip(_one(count, executed, SURE), LEAST_REPORT))
        if game.kind is GameKind.PROGRAM:
            belief = self._beliefs.get(game.id)
            if belief is None:
                return None
            right = min(SURE, max(1 - SURE, belief))
            odds = math.log(right / (1 - right))
            passed = [outcome for outcome in evidence if outcome is not None]
            if passed:
                odds += math.log(DOUBT / (1 - DOUBT)) * (1 if all(passed) else -2)
            own = clip(_one(count, 0, 1 / (1 + math.exp(-odds))), LEAST_REPORT)
        else:
            if not values:
                return None
            weights = np.zeros(count)
            for value, belief in values:
                weights[game.index_of(value)] += belief
            own = clip((weights + FLOOR) ** POWER, LEAST_REPORT)
        return whole(own if price is None else pooled(own, price.skilled))


def pooled(own: Array, price: Array) -> Array:
    """[K] The geometric mean: a price is made of others' opinions as this is of the own one."""
    return clip((clip(own, LEAST_REPORT) * clip(price, LEAST_REPORT)) ** 0.5, LEAST_REPORT)


def whole(probabilities: Array) -> tuple[int, ...]:
    """[K] Basis points; what is left is on the likeliest."""
    points = [int(probability * ONE) for probability in probabilities]
    points[max(range(len(points)), key=points.__getitem__)] += ONE - sum(points)
    return tuple(points)


def returned(sandbox: Sandbox, code: str, call: str) -> str | None:
    """The value of a call, as `repr` writes it; None: there is none, none in time, or one too long to be compared.

    Raises SandboxError.
    """
    printed = sandbox.run(Job(f"{code}\n\nprint(repr({call}), end='')", (ANSWERED,), stdio=True)).printed
    return printed if 0 < len(printed) < 200 else None


def cases(problem: Problem) -> list[tuple[str, str]]:
    """Calls with literal arguments and what they are claimed to return."""
    matches = [match for test in problem.tests if (match := CASE.fullmatch(test.strip()))]
    return [(match[1], match[2]) for match in matches if is_call(match[1])]


def with_values(problem: Problem, values: dict[tuple[str, str], str]) -> Problem:
    """With confirmed values alone, where there are enough of them."""
    if problem.source is not Source.PROPOSER or problem.standing is not Standing.CLAIMED:
        return problem
    calls = [(call, values[problem.question, call]) for call, _ in cases(problem) if (problem.question, call) in values]
    tests = tuple(f"assert {call} == {value}" for call, value in calls)
    if len(tests) < MIN_TESTS:
        return problem
    return replace(problem, id=problem_id(problem.question, tests), tests=tests, standing=Standing.CONFIRMED)


def _problem(game: Game) -> Problem:
    if game.kind is not GameKind.VALUE:
        return as_problem(game.question, game.tests, None)
    problem = as_problem(game.question, (f"assert {game.tests[0]} == {game.answers[0]}",), None)
    return replace(problem, source=Source.PROPOSER, standing=Standing.CLAIMED, proposer=game.opener)


def _one(count: int, at: int, probability: float) -> Array:
    return np.array([probability if number == at else (1 - probability) / (count - 1) for number in range(count)])


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
                game = self._game(group.group.problem, round_number, VERDICTS, random.choice(codes))
                games += [(game, None)] if game else []
        return games[:most]

    def _values(self, groups: Sequence[ScoredGroup], round_number: int, most: int, random: Random) -> list[Opened]:
        games = (opened for group in groups if (opened := self._value(group, round_number, random)))
        return list(itertools.islice(games, max(0, most)))

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
        game = self._game(problem, round_number, answers, call=call, commitment=commitment)
        return (game, Opening(game.id, salt, reference)) if game else None

    def _game(
        self,
        problem: Problem,
        number: int,
        answers: tuple[str, ...],
        code: str = "",
        *,
        call: str = "",
        commitment: bytes | None = None,
    ) -> Game | None:
        """About a program or a call. None where it would break a rule."""
        kind, tests = (GameKind.VALUE, (call,)) if call else (GameKind.PROGRAM, problem.tests)
        asked = problem.question, code, tests, answers, problem.proposer, commitment
        try:
            game = Game(kind, self._swarm, self._me, number, *asked)
            check_game(game, peer=self._me, round=number, swarm=self._swarm)
        except (ValueError, MarketError, ProblemError):
            return None
        return game


def _fresh(text: str, random: Random) -> str:
    """With other whole numbers."""
    return _NUMBER.sub(lambda match: str(abs(int(match[0]) + random.choice((-3, -2, -1, 1, 2, 3)))), text)
