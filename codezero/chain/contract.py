"""The swarm's contract: typed questions, and calls that are simulated, sent, awaited and explained when refused."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from eth_utils.address import is_address, to_checksum_address
from eth_utils.crypto import keccak

from codezero.chain.codec import decode_result, encode_call, encode_deployment
from codezero.chain.errors import (
    ChainUnreachableError,
    ForeignOwnerError,
    PeerIdAlreadyRegisteredError,
)
from codezero.chain.rounds import RoundStage, RoundWatch
from codezero.chain.rpc import Question, Receipt, Rpc, read_bytes, read_quantity
from codezero.chain.sender import Sender
from codezero.chain.signed import Signed
from codezero.errors import ChainError, ConfigError

logger = logging.getLogger(__name__)

STAGE = 0
"""Rewards are submitted for the first stage: the contract refuses a stage after the current one, even in old rounds."""
SECONDS = 60.0
"""For one transaction, from the simulation to the receipt."""
MAX_PEERS = 100
"""Asked about in one call: an answer has at most 64 KiB."""
NOBODY = "0x" + 40 * "0"


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a leaderboard."""

    peer: str
    count: int


class Coordinator:
    """One contract on one chain. Without a sender it only reads. Safe to use from several threads."""

    def __init__(self, rpc: Rpc, contract: str, sender: Sender | None = None) -> None:
        if not is_address(contract):
            raise ConfigError(f"chain.contract={contract[:50]!r} is no address; it has 0x and 40 hexadecimal digits")
        self.rpc, self.contract = rpc, to_checksum_address(contract)
        self._sender = sender
        self._watch = RoundWatch(self.round_and_stage)

    @property
    def account(self) -> str:
        """Who sends. Raises ChainError without a sender."""
        return self.sender.address

    @property
    def sender(self) -> Sender:
        """What sends. Raises ChainError without one."""
        if self._sender is None:
            raise ChainError("this needs an account; name a keystore or a signer")
        return self._sender

    def close(self) -> None:
        """Ends the background reading; the RPC stays open."""
        self._watch.close()

    # ---- questions. Each raises ChainUnreachableError, WrongChainError, RpcError

    def current_round(self) -> int:
        """The round that is open, as read some seconds ago; only the very first reading is waited for."""
        return self._watch.current().round

    def round_and_stage(self) -> RoundStage:
        """Both from one exchange, read now."""
        (round_number,), (stage,) = self._ask_all([("currentRound", ()), ("currentStage", ())])
        return RoundStage(round_number, stage)

    def owners(self, peers: Sequence[str]) -> dict[str, str | None]:
        """The account that registered each peer id; None: nobody has."""
        owners: dict[str, str | None] = {}
        for page in _pages(peers):
            (found,) = self._ask("getEoa", page)
            owners |= {
                peer: None if owner == NOBODY else to_checksum_address(owner) for peer, owner in _paired(page, found)
            }
        return owners

    def total_rewards(self, peers: Sequence[str]) -> dict[str, int]:
        totals: dict[str, int] = {}
        for page in _pages(peers):
            (found,) = self._ask("getTotalRewards", page)
            totals |= dict(_paired(page, found))
        return totals

    def reward_of(self, round_number: int, peer: str, stage: int = STAGE) -> int | None:
        """What was submitted for the peer; None: nothing yet."""
        submitted, rewards = self._ask("getPeerRoundStageReward", round_number, stage, [peer])
        [(_, (done, reward))] = _paired([peer], list(zip(submitted, rewards, strict=True)))
        return reward if done else None

    def ballot_of(self, round_number: int, peer: str) -> list[str]:
        """Whom the peer voted for; empty: it has not voted."""
        return list(self._ask("getVoterVotes", round_number, peer)[0])

    def votes_for(self, round_number: int, peer: str) -> int:
        return self._ask("getPeerVoteCount", round_number, peer)[0]

    def leaderboard(self, start: int = 0, end: int = 100) -> list[Place]:
        """Places `start` to `end` - 1 by votes ever received; the contract hands out 100 at a time."""
        peers, counts = self._ask("winnerLeaderboard", start, end)
        return [Place(peer, count) for peer, count in zip(peers, counts, strict=True)]

    def voters(self, start: int = 0, end: int = 100) -> list[Place]:
        """As `leaderboard`, by the number of rounds in which a peer voted."""
        peers, counts = self._ask("voterLeaderboard", start, end)
        return [Place(peer, count) for peer, count in zip(peers, counts, strict=True)]

    def bootnodes(self) -> list[str]:
        """Multiaddresses as their manager wrote them: strangers' text."""
        return list(self._ask("getBootnodes")[0])

    def is_owner(self, account: str) -> bool:
        return self._has_role("OWNER_ROLE", account)

    def is_stage_manager(self, account: str) -> bool:
        """May the account open rounds?"""
        return self._has_role("STAGE_MANAGER_ROLE", account)

    def head(self) -> int:
        """Number of the newest block."""
        return self.rpc.ask(Question("eth_blockNumber", [], read_quantity))

    # ---- calls. Each raises ContractError when refused, UnknownOutcomeError when sent and not seen, ChainError

    def register(self, peer: str) -> None:
        """Make the peer id this account's. Raises ForeignOwnerError when it is another's; may be called again."""
        owner = self.owners([peer])[peer]
        if owner is None:
            try:
                self._call("registerPeer", peer)
            except PeerIdAlreadyRegisteredError:
                logger.debug("%s was registered meanwhile", peer)
            owner = self._owner_soon(peer)
        if owner != self.account:
            raise ForeignOwnerError(peer, owner, self.account)

    def submit_reward(
        self,
        round_number: int,
        reward: int,
        peer: str,
        *,
        seconds: float = SECONDS,
        earlier: Sequence[Signed] = (),
        record: Callable[[Signed], None] | None = None,
    ) -> Receipt:
        """`earlier`, `record`: see `Sender.transact`."""
        return self._call(
            "submitReward", round_number, STAGE, reward, peer, seconds=seconds, earlier=earlier, record=record
        )

    def submit_winners(
        self,
        round_number: int,
        winners: Sequence[str],
        peer: str,
        *,
        seconds: float = SECONDS,
        earlier: Sequence[Signed] = (),
        record: Callable[[Signed], None] | None = None,
    ) -> Receipt:
        """`earlier`, `record`: see `Sender.transact`."""
        return self._call(
            "submitWinners", round_number, list(winners), peer, seconds=seconds, earlier=earlier, record=record
        )

    def advance(self) -> RoundStage:
        """Open the next stage or round; only the stage manager may. Returns what is open afterwards."""
        self._call("updateStageAndRound")
        now = self.round_and_stage()
        self._watch.tell(now)
        return now

    def add_bootnodes(self, addresses: Sequence[str]) -> None:
        self._call("addBootnodes", list(addresses))

    def clear_bootnodes(self) -> None:
        self._call("clearBootnodes")

    def _call(
        self,
        name: str,
        *arguments: object,
        seconds: float = SECONDS,
        earlier: Sequence[Signed] = (),
        record: Callable[[Signed], None] | None = None,
    ) -> Receipt:
        sender, data = self.sender, encode_call(name, *arguments)
        return sender.transact(self.contract, data, seconds, earlier=earlier, record=record)

    def _owner_soon(self, peer: str) -> str:
        """An endpoint may lag a moment behind the one that showed the receipt. Raises ChainUnreachableError."""
        for pause in (0.0, 0.2, 1.0, 3.0):
            time.sleep(pause)
            if (owner := self.owners([peer])[peer]) is not None:
                return owner
        raise ChainUnreachableError(f"peer {peer} was registered, and the chain does not show it yet")

    def _has_role(self, role: str, account: str) -> bool:
        return self._ask("hasRole", keccak(text=role), account)[0]

    def _ask(self, name: str, *arguments: object) -> tuple[Any, ...]:
        return self._ask_all([(name, arguments)])[0]

    def _ask_all(self, calls: Sequence[tuple[str, Sequence[object]]]) -> list[tuple[Any, ...]]:
        questions = [
            Question(
                "eth_call",
                [{"to": self.contract, "data": "0x" + encode_call(name, *arguments).hex()}, "latest"],
                read_bytes,
            )
            for name, arguments in calls
        ]
        answers = self.rpc.batch(questions)
        return [decode_result(name, answer) for (name, _), answer in zip(calls, answers, strict=True)]


def deploy(sender: Sender, owner: str | None = None, *, seconds: float = 2 * SECONDS) -> str:
    """A new coordinator whose roles all belong to `owner` (the sender unless given). Returns its address."""
    receipt = sender.transact(None, encode_deployment(owner or sender.address), seconds)
    if receipt.contract_address is None:
        raise ChainUnreachableError("the endpoint does not say where the contract was deployed")
    return to_checksum_address(receipt.contract_address)


def _pages(peers: Sequence[str]) -> list[list[str]]:
    return [list(peers[start : start + MAX_PEERS]) for start in range(0, len(peers), MAX_PEERS)]


def _paired(peers: Sequence[str], answers: Sequence[Any]) -> list[tuple[str, Any]]:
    if len(peers) != len(answers):
        raise ChainUnreachableError("the contract answered about other peers than were asked for")
    return list(zip(peers, answers, strict=True))
