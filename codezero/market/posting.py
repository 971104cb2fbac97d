"""What players post: what is kept of a peer's post, and the own one."""

import contextlib
import logging
from collections import Counter

import msgspec

from codezero.errors import MarketError, SandboxError
from codezero.market import games
from codezero.market.games import Evidence, Game, Opening
from codezero.market.ledger import Fact, Ledger
from codezero.market.opinions import Opinions
from codezero.market.payout import Sealed, seal_root
from codezero.types import Post

logger = logging.getLogger(__name__)
FLOOD = 4
"""Different reveals of a peer for one round that are kept."""


class Posting:
    """Of one node. roots: whether a root counts as it is posted, as there is no chain."""

    def __init__(self, ledger: Ledger, me: str, swarm: str, opinions: Opinions, *, roots: bool) -> None:
        self._ledger, self._me, self._swarm, self._opinions, self._roots = ledger, me, swarm, opinions, roots
        self.counts, self.players = Counter[str](), set[str]()
        """players: peers whose posts were well-formed."""

    def receive(self, post: Post, now: int) -> None:
        """Keep what a peer posts, as far as it is well-formed and about what is open in round `now`."""
        try:
            message = games.parse_post(post.payload, peer=post.peer, round=post.round, swarm=self._swarm)
        except MarketError as error:
            self.counts["refused"] += 1
            logger.info("a market post of %s is dropped: %s", post.peer, error)
            return
        if abs(post.round - now) > games.SHOWN_ROUNDS:
            return
        self.players.add(post.peer)
        ledger, peer = self._ledger, post.peer
        for game in message.games:
            rows = ledger.all(Fact.GAME, msgspec.Raw, [game.round])
            if sum(row.peer == game.opener for row in rows) < games.MOST_GAMES:
                ledger.put(Fact.GAME, game.round, game.opener, game.id, game)
        if message.root is not None and self._roots and post.round == now:
            ledger.put(Fact.ROOT, now, peer, message.root, message.root)
        for reveal in message.reveals:
            self._keep(reveal.round, peer, (reveal.salt, reveal.reports), timely=now <= reveal.round + 1)
        for opening in message.openings:
            self._keep_opening(peer, opening)
        for evidence in message.evidence:
            if (game := self._game(peer, evidence.game)) is not None:
                ledger.put(Fact.EVIDENCE, game.round, peer, game.id, evidence, replace=True)

    def _game(self, opener: str, name: bytes) -> Game | None:
        return next((row.data for row in self._ledger.named(Fact.GAME, name, Game) if row.peer == opener), None)

    def _keep(self, number: int, peer: str, sealed: Sealed, *, timely: bool) -> None:
        root, kept = seal_root(peer, *sealed), [Fact.REVEAL, Fact.LATE]
        rows = [row for entry in kept for row in self._ledger.all(entry, msgspec.Raw, [number]) if row.peer == peer]
        if len(rows) < FLOOD and all(row.name != root for row in rows):
            self._ledger.put(kept[not timely], number, peer, root, sealed)

    def _keep_opening(self, peer: str, opening: Opening) -> None:
        """Of a game that its opener committed to."""
        game = self._game(peer, opening.game)
        if game is not None and game.commitment == opening.commitment:
            self._ledger.put(Fact.OPENING, game.round, peer, opening.game, opening)

    def show_own(self, now: int) -> None:
        """The own seal of the round before is opened in this one."""
        own = self._ledger.get(Fact.SEAL, now - 1, self._me, b"", Sealed)
        if own is not None:
            self._keep(now - 1, self._me, own, timely=True)

    def message(self, now: int) -> bytes:
        """The own post of a round. Its own openings count here from then on."""
        ledger, before = self._ledger, range(max(0, now - games.SHOWN_ROUNDS), now)
        sealed = ledger.get(Fact.SEAL, now, self._me, b"", Sealed)
        seals = ((number, ledger.get(Fact.SEAL, number, self._me, b"", Sealed)) for number in before)
        shown = range(max(0, now - games.OVER + 1), now - games.BALLOTS + 1)
        openings = [row.data for row in ledger.all(Fact.SECRET, Opening, shown)]
        for opening in openings:
            self._keep_opening(self._me, opening)
        post = games.MarketPost(
            root=seal_root(self._me, *sealed) if sealed and self._roots else None,
            games=tuple(row.data for row in ledger.all(Fact.GAME, Game, [now - 1, now]) if row.peer == self._me),
            reveals=tuple(games.Reveal(number, *of) for number, of in seals if of is not None),
            openings=tuple(openings),
            evidence=self._evidence(now),
        )
        return msgspec.msgpack.encode(post)

    def _evidence(self, now: int) -> tuple[Evidence, ...]:
        """Of own programs: half of the tests with the third step, all with the last."""
        shown: list[Evidence] = []
        for row in self._ledger.all(Fact.GAME, Game, [now - games.STEPS, now - games.STEPS + 1]):
            if row.peer == self._me and row.data.kind is games.GameKind.PROGRAM and self._opinions.sandbox is not None:
                count = len(row.data.tests) if row.round == now - games.STEPS else (len(row.data.tests) + 1) // 2
                known = self._ledger.get(Fact.EVIDENCE, *row[:3], Evidence)
                with contextlib.suppress(SandboxError):
                    if known is None or len(known.outcomes) < count:
                        known = Evidence(row.name, self._opinions.outcomes(row.data, count))
                        self._ledger.put(Fact.EVIDENCE, *row[:3], known, replace=True)
                    shown.append(known)
        return tuple(shown)
