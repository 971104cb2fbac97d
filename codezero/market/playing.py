"""A node's part in the market: `play` once an iteration. It posts, seals, shows, votes and settles by itself.

It uses what the node has anyway: verdicts, and own attempts where execution is allowed. Nothing here waits for a chain.
"""

import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from random import Random

import msgspec

from codezero.config import MarketConfig
from codezero.errors import ChainError
from codezero.market.closing import Cast, Closing, MarketChain, tell
from codezero.market.games import BALLOTS, OVER, STEPS, Evidence, Game, GameKind, Opening, StepReport, phase
from codezero.market.jury import LEAST, answer_of
from codezero.market.ledger import NOTE, Fact, GameResult, Ledger, LedgerRow, PlayerNote
from codezero.market.opinions import Opener, Opinions, with_values
from codezero.market.payout import Sealed, seal_root
from codezero.market.posting import Posting
from codezero.market.pricing import confirmed
from codezero.protocols import Swarm
from codezero.types import Metrics, Problem, ScoredGroup, mean

logger = logging.getLogger(__name__)
VOTING = BALLOTS + 1
"""Rounds from the announcement to the ballot: openings are shown in the round before."""
EXECUTED_STEP = 2
"""The step from which on programs are executed, so that the first ones say what a judge is worth."""
JUDGED_AT_ONCE, MOST_ANSWERS = 4, 32
"""Games that are judged together, and that a ballot may be about."""


class Player:
    """Of one node; for one thread."""

    def __init__(
        self,
        settings: MarketConfig,
        name: str,
        swarm: Swarm,
        ledger: Ledger,
        opinions: Opinions,
        chain: MarketChain | None,
        *,
        round_seconds: float,
        seed: int,
        logs: Path,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """name: of the swarm. logs: folder for `prg_record.txt`."""
        self._settings, self._name, self._swarm, self._me = settings, name, swarm, swarm.peer_id
        self._ledger, self._opinions, self._chain, self._logs = ledger, opinions, chain, logs
        self._round_seconds, self._clock, self._random = round_seconds, clock, Random(seed)
        self._closing = Closing(ledger, self._me, chain)
        self._opener = Opener(opinions, self._me, name)
        self._round, self._since, self._last = -1, 0.0, 0.0
        self._anchored, self._posted, self._opens = -1, (-1, b""), False
        self._posting = Posting(ledger, self._me, name, opinions, roots=chain is None)
        self._counts = self._posting.counts
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="market-chain")
        self._reading: Future[None] | None = None

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._ledger.close()

    def play(self, round_number: int, judged: Sequence[ScoredGroup]) -> Metrics:
        """`market/...`: see `_metrics`. Raises MarketError, SwarmError, EvaluatorError and SandboxError."""
        now = self._clock()
        self._opinions.remember(judged, self._me)
        posts, entered = self._swarm.posts(), round_number != self._round
        for post in posts:
            self._posting.receive(post, round_number)
        if entered:
            self._round, self._since = round_number, now
            self._read_chain()
            self._posting.show_own(round_number)
            self._ledger.forget(round_number)
            players = 1 + len(self._posting.players)  # who together open about as many games as each plays
            self._opens = self._random.random() * players * self._settings.open < self._settings.games
        deadline = now + self._settings.seconds
        if self._opens and not any(row.peer == self._me for row in self._closing.games([round_number])):
            self._open(judged)
        live = [row.data for row in self._closing.games(range(round_number - OVER + 1, round_number + 1))]
        self._work(live, deadline)
        half_gone = now - self._since >= self._round_seconds / 2 or now - self._last >= self._round_seconds / 3
        if half_gone or self._sealed() is not None:
            self._seal(live)
        self._vote()
        self._close_games()
        self._post()
        self._note()
        if posts or entered:
            self._note_prices()
        self._last = now
        return self._metrics() | {"market/seconds": self._clock() - now}

    def proposals(self, proposals: Sequence[Problem]) -> list[Problem]:
        """With confirmed values in the place of claims, where that is asked for; then what the market asks."""
        live = [row.data for row in self._closing.games(range(self._round - STEPS, self._round + 1))]
        asked = self._opinions.questions([game for game in live if game.opener != self._me], self._settings.open)
        if not self._settings.confirm or not self._closing.confirming:
            return [*proposals, *asked]
        values: dict[tuple[str, str], str] = {}
        for row in self._ledger.all(Fact.CONFIRMED, str):
            for game in self._ledger.named(Fact.GAME, row.name, Game):
                values[game.data.question, game.data.tests[0]] = row.data
        return [*(with_values(problem, values) for problem in proposals), *asked]

    def _metrics(self) -> Metrics:
        """Since the start of the process, but for what is so now."""
        results = [row.data for row in self._ledger.newest(Fact.RESULT, GameResult, 200)]
        row: Metrics = {f"market/{name}": count for name, count in sorted(self._counts.items())}
        for name in ("own", "skilled"):
            row[f"market/brier_{name}"] = mean(result.brier[name] for result in results if name in result.brier)
        row["market/voters"] = sum(record.vote for record in self._closing.records.values())
        row["market/players"] = len(self._posting.players)
        return row | {"market/balance": self._ledger.balance(self._me) / 1000}

    def _read_chain(self) -> None:
        """In a thread of its own, at most one at a time."""
        if self._chain is not None and (self._reading is None or self._reading.done()):
            if self._reading is not None and (error := self._reading.exception()) is not None:
                self._counts["unread"] += 1
                logger.info("the market's chain was not read: %s", error)
            self._reading = self._pool.submit(self._closing.read, self._round)

    def _open(self, judged: Sequence[ScoredGroup]) -> None:
        for game, opening in self._opener.open(judged, self._round, self._settings.open, self._random):
            if opening is not None:
                self._ledger.put(Fact.SECRET, game.round, self._me, game.id, opening)
            self._ledger.put(Fact.GAME, game.round, self._me, game.id, game)
            self._counts["opened"] += 1

    def _chosen(self, live: Sequence[Game]) -> list[Game]:
        """Others' games that this node plays, the same for all of a round on every node as far as they are known."""
        rounds = {game.round for game in live}
        of_round = {n: sorted((g for g in live if g.round == n), key=lambda game: game.id) for n in rounds}
        chosen = (game for games in of_round.values() for game in games[: self._settings.games])
        return [game for game in chosen if game.opener != self._me]

    def _work(self, live: Sequence[Game], deadline: float) -> None:
        """Judge and execute what is due, while there is time; the rest is for the next iteration."""
        chosen = self._chosen(live)
        waiting = [game for game in chosen if not self._opinions.believed(game) and phase(game, self._round)[1] == 0]
        while waiting and self._clock() < deadline:
            self._opinions.believe(waiting[:JUDGED_AT_ONCE])
            del waiting[:JUDGED_AT_ONCE]
        if self._opinions.sandbox is None:
            return
        for game in live:
            place, of = (game.round, game.opener, game.id), self._ledger.of
            late = self._round > game.round + EXECUTED_STEP
            if self._clock() < deadline and late and of(Fact.EXECUTED, game, msgspec.Raw) is None:
                opening = of(Fact.OPENING, game, Opening)
                if game.kind is not GameKind.VALUE or opening is not None:
                    self._ledger.put(Fact.EXECUTED, *place, self._opinions.executes(game, opening))
            due = self._clock() < deadline and game in chosen and of(Fact.VALUES, game, msgspec.Raw) is None
            if due and (values := self._opinions.values(game)):
                self._ledger.put(Fact.VALUES, *place, values)

    def _executed(self, game: Game) -> int | None:
        return self._ledger.of(Fact.EXECUTED, game, int | None)

    def _values(self, game: Game) -> list[tuple[str, float]]:
        return self._ledger.of(Fact.VALUES, game, list[tuple[str, float]]) or []

    def _sealed(self) -> Sealed | None:
        return self._ledger.get(Fact.SEAL, self._round, self._me, b"", Sealed)

    def _seal(self, live: Sequence[Game]) -> None:
        """Report on what is open, once a round, and have the root anchored; after a kill the same root."""
        sealed = self._sealed()
        if sealed is None and live:
            reports = tuple(report for game in self._chosen(live) if (report := self._report(game)) is not None)
            sealed = secrets.token_bytes(32), reports
            self._ledger.put(Fact.SEAL, self._round, self._me, b"", sealed)
            self._counts["reports"] += len(reports)
        if sealed is None or self._anchored == self._round:
            return
        self._anchored, root = self._round, seal_root(self._me, *sealed)
        if self._chain is None:
            self._ledger.put(Fact.ROOT, self._round, self._me, root, root)
            return
        with contextlib.suppress(ChainError):  # without a root the reports do not count, and points come first
            self._chain.anchor(self._round, root)

    def _report(self, game: Game) -> StepReport | None:
        step = phase(game, self._round)[1]
        if step is None:
            return None
        price = self._closing.price(game, self._closing.positions(game), step - 1) if step else None
        known = self._ledger.of(Fact.EVIDENCE, game, Evidence)
        trusted = game.opener in self._closing.records and self._closing.records[game.opener].vote
        evidence = known.outcomes if known and trusted else ()
        executed = self._executed(game) if step >= EXECUTED_STEP else None
        price = price if price and price.voters else None
        q = self._opinions.report(game, price, executed, self._values(game), evidence)
        return None if q is None else StepReport(game.id, step, q)

    def _vote(self) -> None:
        """One ballot a round, on the games of VOTING rounds ago whose jury this node is in and whose end it knows."""
        start, known = self._round - VOTING, self._ledger.get(Fact.READ, self._round - 2, "", b"anchors", bool)
        if self._chain is None or not known:
            return
        cast = self._ledger.get(Fact.NOTE, self._round, self._me, b"ballot", Cast)
        if cast is None:
            answers, rows = dict[bytes, int](), self._closing.games([start])
            for game in (row.data for row in rows[:MOST_ANSWERS]):
                values = [value for value, _ in self._values(game)]
                answer = answer_of(game, self._closing.openings(game), self._executed(game), values)
                with contextlib.suppress(ChainError):
                    if answer is not None and self._me in self._closing.jury(game):
                        answers[game.id] = answer
            if not answers:
                return
            cast = tuple(answers), tuple(answers.values()), self._closing.ballot(rows[0].data)
            self._ledger.put(Fact.NOTE, self._round, self._me, b"ballot", cast)
            self._counts["ballots"] += 1
        with contextlib.suppress(ChainError):
            self._chain.vote(self._round, *cast)

    def _close_games(self) -> None:
        """Confirm values, and settle what is over."""
        ended = 0
        for item in self._ledger.unsettled(Game):
            game, age = item.data, self._round - item.round
            value = self._value(game) if age >= OVER or (self._settings.confirm and age > STEPS) else None
            opening = self._ledger.of(Fact.OPENING, game, Opening)
            if value is not None and self._settings.confirm and not (opening and opening.reference):
                self._ledger.put(Fact.CONFIRMED, *item[:3], value)
            if age >= OVER:
                with contextlib.suppress(ChainError):  # it is settled when the chain answers again
                    if result := self._closing.close(item, self._round, self._executed(game), value):
                        self._tell(item, result)
                        ended += 1
        if ended:
            self._closing.weigh()

    def _value(self, game: Game) -> str | None:
        """That both prices and own attempts stand behind."""
        if game.kind is not GameKind.VALUE or not (values := self._values(game)):
            return None
        found = self._closing.price(game, self._closing.positions(game))
        return confirmed(game, found, [value for value, _ in values], self._settings.threshold, self._settings.voters)

    def _tell(self, item: LedgerRow, result: GameResult) -> None:
        self._counts["void" if result.void else "settled"] += 1
        self._counts["disputed"] += result.contested
        own = next((each for each in self._closing.positions(item.data) if each.peer == self._me), None)
        if own is None or (q := own.standing()) is None:
            return
        win = result.wins.get(self._me, 0)
        self._counts["won_milli"] += win
        tell(self._logs, item.data, q, result, win)

    def _post(self) -> None:
        """What others do not have yet."""
        posted = self._round, self._posting.message(self._round)
        if posted != self._posted:
            self._swarm.post(posted[1], self._round)
            self._posted = posted

    def _note(self) -> None:
        """Say how it stands, for who looks at the run."""
        why = ""
        if not self._posting.players:
            why = "no other player was heard of yet"
        elif self._chain is None:
            why = "this swarm's chain has no market: prices and records are kept, and points are not settled"
        elif self._closing.accounts < LEAST:
            why = f"no jury, so no points: the players are of {self._closing.accounts} accounts, and {LEAST} are needed"
        elif not self._ledger.count(Fact.SEAL):
            why = "the first reports are sealed in the round after the first games were announced"
        note = PlayerNote(self._round, why, dict(self._counts), self._settings.confirm and self._closing.confirming)
        self._ledger.put(Fact.NOTE, 0, "", NOTE, note, replace=True)

    def _note_prices(self) -> None:
        for item in self._closing.games(range(self._round - STEPS, self._round)):
            held, steps = self._closing.positions(item.data), min(STEPS, self._round - item.round - 1)
            if held and steps:
                self._ledger.put(Fact.PRICE, *item[:3], self._closing.row(item.data, held, steps), replace=True)
