"""The swarm's contract through web3: typed questions, events, and calls that are sent, awaited and explained.

On the embedded chain it is deployed once, by whoever comes first, and its accounts are filled by a faucet.
"""

import contextlib
import fcntl
import logging
import os
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec
from eth_abi.exceptions import DecodingError
from eth_utils.address import is_address, to_checksum_address
from eth_utils.crypto import keccak
from web3.exceptions import MismatchedABI, Web3Exception
from web3.types import EventData, RPCEndpoint, TxReceipt

from codezero.chain.errors import REGISTERED, ChainUnreachableError, ContractError, ForeignOwnerError, RpcError
from codezero.chain.provider import ChainClient
from codezero.chain.rounds import RoundWatch
from codezero.chain.sender import SECONDS, Sender
from codezero.errors import ChainError, ConfigError, translated
from codezero.system.files import Address, read_private, write_new

logger = logging.getLogger(__name__)

ARTIFACTS, COORDINATOR = Path(__file__).parent / "artifacts", "SwarmCoordinator"
STAGE = 0
"""Rewards are submitted for the first stage: the contract refuses a stage after the current one, even in old rounds."""
NOBODY = "0x" + 40 * "0"
MALFORMED = (Web3Exception, DecodingError, OverflowError, ValueError)
"""What web3 raises over return data that is not of the contract's types, and unpacking over too many answers."""
FILE, MAX_FILE = "contract.json", 4096
"""Of the embedded chain: what is known of its own contract, and its bytes."""
POOR = 10**18
"""wei: an account with less asks the faucet."""
METHOD_NOT_FOUND = -32601
FUND = RPCEndpoint("codezero_fund")


class Artifact(msgspec.Struct, frozen=True):
    """A contract as `contracts/compile.mjs` left it; it ships with the package and is never edited."""

    abi: list[dict[str, Any]]
    bytecode: str
    """0x and hex: the code that deploys, constructor arguments to be appended."""


@cache
def read_artifact() -> Artifact:
    """`contracts/SwarmCoordinator.sol`. Raises ChainError when the installation lacks it."""
    path = ARTIFACTS / f"{COORDINATOR}.json"
    with translated(ChainError, f"{path} is missing or damaged; install codezero again", OSError, msgspec.MsgspecError):
        return msgspec.json.decode(path.read_bytes(), type=Artifact)


@dataclass(frozen=True, slots=True)
class EventPage:
    """The events of some blocks, in order. Strings in them are at most what the contract's bounds allow."""

    events: list[EventData]
    cursor: int
    """The first block that was not read: where to go on from, also another day."""
    head: int
    """The newest block when the scan began; the scan is over when `cursor` has passed it."""


class BoundContract:
    """One contract on one chain. Without a sender it only reads. Safe to use from several threads.

    Questions raise ChainUnreachableError, WrongChainError, RpcError; calls raise ContractError when refused,
    UnknownOutcomeError when sent and not seen, and other ChainErrors.
    """

    def __init__(self, client: ChainClient, contract: str, sender: Sender | None = None) -> None:
        if not is_address(contract):
            raise ConfigError(f"chain.contract={contract[:50]!r} is no address; it has 0x and 40 hexadecimal digits")
        self.client, self.contract = client, to_checksum_address(contract)
        self._contract: Any = client.eth.contract(address=self.contract, abi=read_artifact().abi)
        self._sender = sender

    @property
    def account(self) -> str:
        """That sends. Raises ChainError without a sender."""
        return self._sender_of().address

    def history(
        self, since: int, names: Sequence[str], filters: Sequence[list[str] | None] = (), until: int | None = None
    ) -> Iterator[EventPage]:
        """Pages of the events `names` from block `since`, or the contract's, to `until` or the newest. An empty page
        reports progress.

        filters: what each indexed parameter may be, as topics; None: anything. Events that are malformed, or that were
        not requested, are left out. Raises ChainError.
        """
        wanted = {event.topic: event for event in self._contract.events if event.name in names}
        places = [list(wanted), *filters]
        for last, logs, head in self._log_pages(places, since, until):
            events: list[EventData] = []
            for log in logs:
                topics = [topic.to_0x_hex() for topic in log["topics"]]
                fits = len(topics) >= len(places) and all(
                    place is None or topic in place for place, topic in zip(places, topics, strict=False)
                )
                if fits and log["address"] == self.contract and since <= log["blockNumber"] <= last:
                    with contextlib.suppress(*MALFORMED):
                        events.append(wanted[topics[0]].process_log(log))
            yield EventPage(events, last + 1, head)

    def _log_pages(self, topics: Any, since: int, until: int | None) -> Iterator[tuple[int, Any, int]]:
        """The last block of a range, the contract's logs in it, and the last block of the scan: `until`, or the newest.

        A range that an endpoint refuses is divided. Raises ChainError.
        """
        head, span, cursor = self.client.eth.block_number, self.client.log_span, max(since, self.client.since)
        head = head if until is None else min(head, until)
        while cursor <= head:
            last = min(cursor + span.size - 1, head)
            search: Any = {"address": self.contract, "fromBlock": cursor, "toBlock": last, "topics": topics}
            try:
                logs = self.client.eth.get_logs(search)
            except (RpcError, ChainUnreachableError):
                if last == cursor:
                    raise
                span.refuse(last - cursor + 1)
                continue
            span.grant(last - cursor + 1, len(logs))
            yield last, logs, head
            cursor = last + 1

    def send(self, name: str, *arguments: object, **options: Any) -> TxReceipt:
        """Bring one call about; options: see `Sender.transact`. Raises ChainError without a sender."""
        return self._sender_of().transact(self.contract, self.encode(name, *arguments), **options)

    def encode(self, name: str, *arguments: object) -> bytes:
        """The data of a transaction that calls `name`. Raises ChainError for arguments that the ABI cannot hold."""
        with _named_errors(name):
            return bytes.fromhex(self._contract.encode_abi(name, arguments)[2:])

    def _sender_of(self) -> Sender:
        if self._sender is None:
            raise ChainError("this needs an account; name a keystore or a signer")
        return self._sender

    def _ask(self, name: str, *arguments: object) -> Any:
        with _named_errors(name):
            return self._contract.functions[name](*arguments).call()


class ContractCoordinator(BoundContract):
    """Who owns which peer, which round is open, what was submitted."""

    def __init__(self, client: ChainClient, contract: str, sender: Sender | None = None) -> None:
        super().__init__(client, contract, sender)
        self._watch = RoundWatch(self.read_round)
        self.current_round, self.close = self._watch.current, self._watch.close

    def read_round(self) -> int:
        """The round that is open, read now."""
        return self._ask("currentRound")

    def owners(self, peers: Sequence[str]) -> dict[str, str | None]:
        """The account that registered each peer id; None: nobody has."""
        with _named_errors("getEoa"):
            owners = zip(peers, self._ask("getEoa", list(peers)), strict=True)
            return {peer: None if owner == NOBODY else owner for peer, owner in owners}

    def reward_of(self, round_number: int, peer: str) -> int | None:
        """What was submitted for the peer; None: nothing yet."""
        with _named_errors("getPeerRoundStageReward"):
            [submitted], [reward] = self._ask("getPeerRoundStageReward", round_number, STAGE, [peer])
        return reward if submitted else None

    def ballot_of(self, round_number: int, peer: str) -> list[str]:
        """The peers that this one voted for; empty: it has not voted."""
        return list(self._ask("getVoterVotes", round_number, peer))

    def bootnodes(self) -> list[str]:
        """Multiaddresses as their manager wrote them: strangers' text."""
        return list(self._ask("getBootnodes"))

    def has_role(self, role: Literal["OWNER_ROLE", "STAGE_MANAGER_ROLE"], account: str) -> bool:
        """Does the swarm belong to the account; may it open rounds?"""
        return self._ask("hasRole", keccak(text=role), account)

    def register(self, peer: str) -> None:
        """Make the peer id this account's. Raises ForeignOwnerError when it is another's; may be called again."""
        owner = self.owners([peer])[peer]
        if owner is None:
            try:
                self.send("registerPeer", peer)
                return
            except ContractError as error:
                if error.name != REGISTERED:
                    raise
            owner = self.owners([peer])[peer]  # somebody was faster
        if owner is None:
            raise ChainUnreachableError(f"peer {peer} was registered, and the chain does not show it yet")
        if owner != self.account:
            raise ForeignOwnerError(peer, owner, self.account)


def deploy(sender: Sender) -> str:
    """Deploy a new contract, whose roles all go to the sender; returns its address."""
    artifact = read_artifact()
    factory: Any = sender.client.eth.contract(abi=artifact.abi, bytecode=artifact.bytecode)
    data = factory.constructor(sender.address).data_in_transaction
    address = sender.transact(None, bytes.fromhex(data[2:]), seconds=2 * SECONDS).get("contractAddress")
    if address is None:
        raise ChainUnreachableError("the endpoint does not say where the contract was deployed")
    return to_checksum_address(address)


class Founded(msgspec.Struct, frozen=True):
    """The contract of this chain's own swarm."""

    chain_id: int
    contract: Address


def fund(client: ChainClient, address: str) -> None:
    """Let the faucet fill a poor account, where the chain has one. Raises ChainError."""
    if client.eth.get_balance(to_checksum_address(address)) < POOR:
        try:
            client.provider.make_request(FUND, [address])
        except RpcError as error:
            if error.code != METHOD_NOT_FOUND:
                raise


def own_contracts(folder: Path, client: ChainClient, sender: Sender) -> Founded:
    """This chain's contract, deployed now by one of the callers if there are none. Raises ChainError."""
    path = folder / FILE
    with (folder / f"{FILE}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            known = _read(path)
            if known.chain_id == client.chain_id:
                return known
            os.replace(path, path.with_name(f"{FILE}.{known.chain_id}"))  # of a chain that is no more
        contract = deploy(sender)
        own = Founded(client.chain_id, contract)
        logger.info("contract %s was deployed on chain %d", contract, client.chain_id)
        write_new(path, msgspec.json.encode(own))
        return own


def founded(folder: Path) -> Founded:
    """This chain's own contract. Raises ChainError when there are none."""
    if not (folder / FILE).exists():
        raise ChainError(f"{folder} has no contract of its own yet; name one with chain.contract")
    return _read(folder / FILE)


def _read(path: Path) -> Founded:
    damaged = f"{path} is damaged; restore a copy, or move it away to found a new contract"
    with translated(ChainError, damaged, msgspec.DecodeError, UnicodeDecodeError, reason=False):
        return msgspec.json.decode(read_private(path, MAX_FILE), type=Founded)


@contextlib.contextmanager
def _named_errors(name: str) -> Generator[None]:
    """Raises ChainError for arguments that the ABI cannot hold, and ChainUnreachableError for an answer that is not of
    the ABI's types: no contract is there, or the endpoint made it up."""
    try:
        yield
    except (MismatchedABI, UnicodeEncodeError) as error:
        raise ChainError(f"{name}: an argument is out of bounds ({type(error).__name__})") from error
    except MALFORMED as error:
        raise ChainUnreachableError(
            f"the contract answered {name} with nothing or something malformed; is the contract's address right?"
        ) from error
