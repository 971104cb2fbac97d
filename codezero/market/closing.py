"""What the chain and peers show of rounds that are over, how games of theirs end, and what they are worth now."""

import contextlib
import hashlib
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from codezero.market.games import BALLOTS, ONE, OVER, STEPS, Game, Opening
from codezero.market.jury import LEAST, PROVEN, VOID, Ballot, as_bits, decide, places, scores_of, seats, settle
from codezero.market.ledger import Fact, GameResult, Ledger, LedgerRow, PriceRow
from codezero.market.payout import STAKE, Place, Position, Sealed, positions
from codezero.market.pricing import Price, Record, best_power, price, record
from codezero.stats import wilson
from codezero.system.state import Newest

JURY = BALLOTS - 1
"""Rounds from the announcement to the anchors whose peers may sit in the jury."""
PATIENCE = 30
"""Rounds after its end at which a game is given up whose reports are not known here."""
AUDITED, WORST = 200, 0.05
"""Newest games by which confirming is judged, and the share of wrong ones, surely exceeded, that stops it."""
KEPT = 3 * (OVER + PATIENCE)
"""Lists of roots and of reveals of a round that are kept in memory."""
Cast = tuple[tuple[bytes, ...], tuple[int, ...], bytes]
"""Games, answers, and bits of what was shown; of a juror's ballot."""


class MarketChain(Protocol):
    """Anchors and ballots. Everything raises ChainError."""

    def anchor(self, round_number: int, root: bytes, /) -> None:
        """Have it anchored while its round is open, once."""

    def vote(self, round_number: int, games: Sequence[bytes], answers: Sequence[int], shown: bytes, /) -> None: ...

    def roots(self, round_number: int) -> dict[str, bytes]:
        """Of a round that is over, by peer."""
        ...

    def votes(self, round_number: int, jurors: Sequence[str]) -> list[tuple[str, Cast]]: ...

    def accounts(self, peers: Sequence[str]) -> dict[str, str]:
        """Who registered them."""
        ...


class Closing:
    """Of one reader. `read` may be called from another thread. accounts: of those who anchored in the newest round."""

    def __init__(self, ledger: Ledger, me: str, chain: MarketChain | None) -> None:
        self._ledger, self._me, self._chain = ledger, me, chain
        self.records: dict[str, Record] = {}
        self.powers, self.accounts = (1.0, 1.0), LEAST
        self._kept = Newest[tuple[Fact, int], tuple[int, list[LedgerRow]]](KEPT)
        self.weigh()

    def weigh(self) -> None:
        """Records and powers, from all that is settled: anew when games have ended."""
        self.records = {peer: record(scores, self._me) for peer, scores in self._ledger.scores().items()}
        rows: list[GameResult] = [row.data for row in self._ledger.newest(Fact.RESULT, GameResult, AUDITED)]
        known = [(row.pools, row.truth) for row in rows if row.truth is not None and row.pools]
        skilled, robust = (best_power([(np.array(pools[side]), y) for pools, y in known]) for side in (0, 1))
        self.powers = skilled, robust

    @property
    def confirming(self) -> bool:
        """False once more than WORST of what would have been confirmed turned out to be wrong, by the lower bound."""
        rows = self._ledger.newest(Fact.RESULT, GameResult, AUDITED)
        audits = [row.data.confirmed_right for row in rows if row.data.confirmed_right is not None]
        return not audits or wilson(audits.count(False) / len(audits), len(audits)).low <= WORST

    def read(self, round_number: int) -> None:
        """Anchors and ballots of rounds that are over. Raises ChainError and MarketError."""
        if self._chain is None:
            return
        ages = {game.round for _, _, _, game in self._ledger.unsettled(Game)}
        for number in sorted({start + step for start in ages for step in range(1, JURY + 1)}):
            if number < round_number and self._ledger.get(Fact.READ, number, "", b"anchors", bool) is None:
                roots = self._chain.roots(number)
                # they are remembered: whoever draws a jury does not wait
                self.accounts = len({*self._chain.accounts(sorted(roots)).values()})
                for peer, root in roots.items():
                    self._ledger.put(Fact.ROOT, number, peer, root, root)
                self._ledger.put(Fact.READ, number, "", b"anchors", True)
        for number in sorted({start + age for start in ages for age in range(BALLOTS, OVER)}):
            if number < round_number and self._ledger.get(Fact.READ, number, "", b"ballots", bool) is None:
                self._read_ballots(number)

    def _read_ballots(self, number: int) -> None:
        assert self._chain is not None
        starts = {game.id: game.round for _, _, _, game in self.games(range(number - OVER, number))}
        jurors = sorted({peer for start in starts.values() for peer in self.roots([start + JURY])[start + JURY]})
        counts = Counter[str]()
        for juror, cast in self._chain.votes(number, jurors):
            start = next((starts[name] for name in cast[0] if name in starts), None)
            if start is not None:
                counts[juror] += 1
                self._ledger.put(Fact.BALLOT, start, juror, bytes([number - start, counts[juror]]), cast)
        self._ledger.put(Fact.READ, number, "", b"ballots", True)

    def games(self, rounds: Iterable[int]) -> list[LedgerRow]:
        return self._ledger.all(Fact.GAME, Game, [number for number in rounds if number >= 0])

    def roots(self, rounds: Iterable[int]) -> dict[int, dict[str, bytes]]:
        """By round and peer; a peer with two in a round has none."""
        found: dict[int, dict[str, bytes]] = {}
        for number in rounds:
            rows = self._rows(Fact.ROOT, number, bytes)
            counts = Counter(row.peer for row in rows)
            found[number] = {row.peer: row.data for row in rows if counts[row.peer] == 1}
        return found

    def openings(self, game: Game) -> dict[bytes, Opening]:
        """Of this opener and round."""
        rows = self._ledger.all(Fact.OPENING, Opening, [game.round])
        return {row.name: row.data for row in rows if row.peer == game.opener}

    def bits(self, game: Game) -> dict[Place, int]:
        return places(game, self.roots(game.reporting))

    def ballot(self, game: Game) -> bytes:
        """What this node saw opened in time of the reports on all games of the game's round."""
        return as_bits(self._opened(game, (Fact.REVEAL,)), self.bits(game))

    def jury(self, game: Game) -> tuple[str, ...]:
        """Raises ChainError."""
        anchored = self.roots([game.round + JURY])[game.round + JURY]
        root = hashlib.sha256(b"".join(sorted(anchored.values()))).digest()
        return seats(game, root, self._chain.accounts(sorted(anchored)) if self._chain else {})

    def positions(self, game: Game, shown: Iterable[Place] | None = None) -> tuple[Position, ...]:
        """By the reports that a jury counts; None: by all that are opened so far."""
        roots, opened = self._roots(game), self._opened(game, (Fact.LATE, Fact.REVEAL))
        counted = opened if shown is None else {place: opened[place] for place in shown if place in opened}
        return positions(game, dict.fromkeys((peer for peer, _ in roots), STAKE), roots, counted)

    def _roots(self, game: Game) -> dict[Place, bytes]:
        """Those that count."""
        bits, anchored = self.bits(game), self.roots(game.reporting)
        return {(peer, number): anchored[number][peer] for peer, number in bits}

    def _opened(self, game: Game, entries: Sequence[Fact]) -> dict[Place, Sealed]:
        roots = self._roots(game)
        rows = (row for number in game.reporting for entry in entries for row in self._rows(entry, number, Sealed))
        return {at: row.data for row in rows if roots.get(at := (row.peer, row.round)) == row.name}

    def price(self, game: Game, held: Sequence[Position], step: int = STEPS - 1) -> Price:
        """Of the others' reports, after a step."""
        standing = {each.peer: q for each in held if each.peer != self._me and (q := each.standing(step)) is not None}
        return price(game, standing, self.records, self.powers)

    def row(self, game: Game, held: Sequence[Position], steps: int) -> PriceRow:
        rows = [self.price(game, held, step) for step in range(steps)]
        return PriceRow(
            [each.skilled.tolist() for each in rows],
            [each.robust.tolist() for each in rows],
            rows[-1].voters if rows else 0,
        )

    def close(self, item: LedgerRow, round_number: int, executed: int | None, value: str | None) -> GameResult | None:
        """End a game that is over: once for all, also when killed. None: not yet.

        executed: the own execution. value: that would be confirmed. Raises ChainError and MarketError.
        """
        game: Game = item.data
        void, answer, settled, held, jury = "no chain of this swarm settles points", None, None, None, ()
        if self._chain is not None:
            if not self._complete(game):
                return None
            jury = self.jury(game)
            decision = decide(game, jury, self.ballots(game), self.bits(game))
            if decision.shown - self._opened(game, (Fact.LATE, Fact.REVEAL)).keys():
                if round_number < game.round + OVER + PATIENCE:
                    return None
                void = "some of the reports that count are not known here"
            else:
                answer, held = decision.answer, self.positions(game, decision.shown)
                executed = answer if executed is None else executed
                settled = settle(game, held, decision, executed)
                void = settled.void
        held = self.positions(game) if held is None else held
        scores = settled.scores if settled else scores_of(game, held, executed)
        paid = settled.wins if settled else {}
        result = GameResult(
            answer=None if void else answer,
            void=void,
            wins=paid,
            jury=[*jury],
            contested=settled is not None and settled.contested,
            **self._measured(game, held, executed if scores else None, value),
        )
        self._ledger.settle(item._replace(data=result), paid, scores)
        return result

    def _complete(self, game: Game) -> bool:
        """Is all read that the chain shows of it?"""
        rounds = {b"anchors": range(1, JURY + 1), b"ballots": range(BALLOTS, OVER)}
        places = ((game.round + age, what) for what, ages in rounds.items() for age in ages)
        return all(self._ledger.get(Fact.READ, number, "", what, bool) for number, what in places)

    def ballots(self, game: Game) -> list[Ballot]:
        ballots: list[Ballot] = []
        for _, juror, _, (games, answers, shown) in self._ledger.all(Fact.BALLOT, Cast, [game.round]):
            given = (answer for name, answer in zip(games, answers, strict=True) if name == game.id)
            ballots += [
                Ballot(game.id, juror, None if n == VOID else n, shown) for n in given if n < 2 * PROVEN or n == VOID
            ]
        return ballots

    def _measured(self, game: Game, held: Sequence[Position], truth: int | None, value: str | None) -> dict[str, Any]:
        """Fields of a result: what the prices were worth, where the truth is known."""
        others = [each for each in held if each.peer != self._me]
        standing = {each.peer: q for each in others if (q := each.standing()) is not None}
        if truth is None or not standing:
            return {}
        own = next((q for each in held if each.peer == self._me and (q := each.standing()) is not None), None)
        raw, sharp = price(game, standing, self.records), price(game, standing, self.records, self.powers)
        rows = {"skilled": sharp.skilled, "robust": sharp.robust,
                "equal": np.mean([np.array(q) / ONE for q in standing.values()], axis=0)}  # fmt: skip
        rows |= {} if own is None else {"own": np.array(own) / ONE}
        target = np.eye(len(game.answers))[truth]
        return {
            "truth": truth,
            "pools": [raw.skilled.tolist(), raw.robust.tolist()] if raw.voters else [],
            "brier": {name: float(((q - target) ** 2).sum()) for name, q in rows.items()},
            "price": float(sharp.skilled.max()) if sharp.voters else None,
            "right": int(sharp.skilled.argmax()) == truth,
            "confirmed_right": None if value is None else value == game.answers[truth],
        }

    def _rows(self, entry: Fact, number: int, kind: Any) -> list[LedgerRow]:
        """Of facts that are only added to. They are read again for every game of four rounds: so what was read is kept
        until there is more."""
        count, place = self._ledger.count(entry, number), (entry, number)
        if self._kept.get(place, (0, []))[0] != count:
            self._kept[place] = count, self._ledger.all(entry, kind, [number])
        return self._kept[place][1] if count else []


def tell(folder: Path, game: Game, q: tuple[int, ...], result: GameResult, win: int) -> None:
    """A line in `prg_record.txt` for an own bet that ended, for people who look for it there. q: the own standing
    report, in basis points. win: milli-points. A disk that is full costs the line."""
    ended = result.void or f"{game.answers[result.answer or 0] or 'none of these'}, {win / 1000:+.3f} points"
    stated = ", ".join(f"{answer or 'none'} {share / 100:.0f} %" for answer, share in zip(game.answers, q, strict=True))
    when, name = time.strftime("%Y-%m-%d %H:%M:%S"), f"{game.kind} {game.id.hex()[:12]}"
    with contextlib.suppress(OSError), (folder / "prg_record.txt").open("a", encoding="utf-8") as file:
        file.write(f"{when} round {game.round} {name}: {stated} -> {ended}\n")
