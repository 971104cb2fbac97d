"""The market's contract: the root that a peer anchors in a round, and the ballots of jurors. Only events hold them.

They are strangers' data: bounded and checked. All readers get the same of a round that is over.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Annotated, NamedTuple

import msgspec
from eth_utils.crypto import keccak
from msgspec import Meta
from web3.types import EventData

from codezero.chain.contract import MARKET, BoundContract, ContractCoordinator
from codezero.chain.rounds import MAX_MEMBERS
from codezero.errors import ChainError, ConfigError

MOST_ANCHORS, MOST_BALLOTS = 4096, 8
"""Of one round, and of one peer in one round; later ones on the chain do not count."""
MOST_GAMES, MOST_JURORS = 32, 256
"""Of one ballot, by the contract; of one request for ballots: endpoints bound the alternatives of a topic."""
VOID = 255
"""In the place of an answer."""

Digest = Annotated[bytes, Meta(min_length=32, max_length=32)]


class BallotSheet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one juror says became of some games."""

    games: Annotated[tuple[Digest, ...], Meta(min_length=1, max_length=MOST_GAMES)]
    answers: Annotated[tuple[Annotated[int, Meta(ge=0, le=VOID)], ...], Meta(min_length=1, max_length=MOST_GAMES)]
    """For each game the number of an answer, or VOID."""
    shown: Digest
    """A bit for each anchored root that the juror saw opened in time."""

    def __post_init__(self) -> None:
        if len(self.games) != len(self.answers):
            raise ValueError("a ballot has one answer for each game")


class CastBallot(NamedTuple):
    """A ballot as the chain shows it."""

    peer: str
    """Only the account that registered it can cast its ballots."""
    ballot: BallotSheet


class ContractMarket(BoundContract):
    """The market beside a coordinator; sends with the coordinator's account. Raises as BoundContract does."""

    NAME, SETTING = MARKET, "chain.market"

    def __init__(self, coordinator: ContractCoordinator, market: str) -> None:
        super().__init__(coordinator.client, market, coordinator._sender)
        self._coordinator, self._cursor = coordinator, 0
        self._players: dict[bytes, tuple[str, str]] = {}
        self._opened = {0: (self.client.since, 0)}
        """By round, as far as known: block and position in it of the event that opened it."""

    def check(self) -> None:
        """Raises ConfigError when the market is another coordinator's, which would refuse every anchor."""
        other = self._ask("coordinator")
        if other != self._coordinator.contract:
            raise ConfigError(f"chain.market={self.contract} belongs to the contract {other}, not to this swarm's")

    def anchors(self, round_number: int) -> dict[bytes, bytes]:
        """The root of each peer, by `peer_key`, in the order of the chain; none in a round that is not open yet."""
        roots: dict[bytes, bytes] = {}
        for event in self._events(round_number, "Anchored", [None, [_topic(round_number)]]):
            if len(roots) == MOST_ANCHORS:
                break
            roots.setdefault(event["args"]["peer"], event["args"]["root"])
        return roots

    def ballots(self, round_number: int, jurors: Sequence[str]) -> list[CastBallot]:
        """What these peers cast while the round was open, in the order of the chain. A peer that nobody registered
        has none. Raises ChainError for more than MOST_JURORS."""
        if len(jurors) > MOST_JURORS:
            raise ChainError(f"ballots of {len(jurors)} peers were requested; {MOST_JURORS} are the most")
        accounts = self._coordinator.owners(jurors)
        peers = {peer_key(peer): peer for peer, account in accounts.items() if account is not None}
        ballots: list[CastBallot] = []
        counts = dict.fromkeys(peers, 0)
        for event in self._events(round_number, "Judged", [[f"0x{key.hex()}" for key in peers]]) if peers else ():
            args = dict(event["args"])
            key = args.pop("peer")
            with contextlib.suppress(ChainError):  # the contract refuses such a ballot: the endpoint made it up
                ballot = checked_ballot(**args)
                counts[key] += 1
                if counts[key] <= MOST_BALLOTS:
                    ballots.append(CastBallot(peers[key], ballot))
        return ballots

    def players(self) -> dict[bytes, tuple[str, str]]:
        """Peer id and account of all that are registered, by `peer_key`; MAX_MEMBERS at most."""
        for page in self._coordinator.history(self._cursor, ["PeerRegistered"]):
            for event in page.events:
                peer, account = event["args"]["peerId"], event["args"]["eoa"]
                if len(self._players) < MAX_MEMBERS:
                    self._players.setdefault(peer_key(peer), (peer, account))
            self._cursor = page.cursor
        return self._players

    def _events(self, round_number: int, name: str, filters: Sequence[list[str] | None]) -> Iterator[EventData]:
        """Those between the events that opened the round and the next one."""
        since = self._opening(round_number)
        if since is not None:
            until = self._opening(round_number + 1)
            for page in self.history(since[0], [name], filters, until and until[0]):
                for event in page.events:
                    if since <= _position(event) and (until is None or _position(event) < until):
                        yield event

    def _opening(self, round_number: int) -> tuple[int, int] | None:
        """Where the chain shows that the round was opened; None: it was not yet. Looks back from the newest block."""
        if round_number not in self._opened and round_number <= self._coordinator.read_round():
            since, _ = max(place for number, place in self._opened.items() if number < round_number)
            last, span = self.client.eth.block_number, self.client.log_span.size
            while round_number not in self._opened and last >= since:
                first = max(since, last - span + 1)
                for page in self._coordinator.history(first, ["RoundAdvanced"], [[_topic(round_number)]], last):
                    for event in page.events:
                        self._opened[round_number] = _position(event)
                last, span = first - 1, 2 * span
        return self._opened.get(round_number)


def checked_ballot(games: Sequence[bytes], answers: Sequence[int], shown: bytes) -> BallotSheet:
    """Raises ChainError for what the contract would not take."""
    try:
        return msgspec.convert({"games": games, "answers": answers, "shown": shown}, BallotSheet)
    except msgspec.ValidationError as error:
        raise ChainError(f"this is no ballot: {error}") from None


def peer_key(peer: str) -> bytes:
    """In the place of a peer id in the market's events: its Keccak-256."""
    return keccak(text=peer)


def _position(event: EventData) -> tuple[int, int]:
    return event["blockNumber"], event["logIndex"]


def _topic(number: int) -> str:
    return f"0x{number:064x}"
