"""The swarm's contract through web3: typed questions, events, and calls that are sent, awaited and explained.

What an endpoint says of a sent transaction is not believed: the chain is read instead. It is sent until it is mined,
and another is signed only when the account has used its nonce. A process that was killed left at most one under the
account's next nonce, and so does whoever comes after: of both one is mined, and the contract counts nothing twice.

On the embedded chain the contract is deployed once, by whoever comes first, and accounts are filled by a faucet. Beside
training a node opens rounds, and lists the registered peers."""

import contextlib
import fcntl
import itertools
import logging
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import msgspec
from eth_abi.exceptions import DecodingError
from eth_typing import ChecksumAddress
from eth_utils.address import is_address, to_checksum_address
from eth_utils.crypto import keccak
from web3.exceptions import MismatchedABI, TransactionNotFound, Web3Exception
from web3.types import EventData, RPCEndpoint, TxReceipt

from codezero.chain import errors
from codezero.chain.base import Coordinator
from codezero.chain.errors import ChainUnreachableError, ContractError, RpcError, UnknownOutcomeError, WrongChainError
from codezero.chain.provider import ChainClient
from codezero.chain.rounds import RoundWatch
from codezero.chain.wallet import Wallet, transaction_fields
from codezero.errors import ChainError, ConfigError, translated
from codezero.system.files import Address, read_private, write_atomic, write_new
from codezero.system.signals import backoff

logger = logging.getLogger(__name__)

ARTIFACTS = Path(__file__).parent / "artifacts"
NOBODY = "0x" + 40 * "0"
# Raised by web3 over return data that is not of the contract's types, and by unpacking over too many answers.
MALFORMED = (Web3Exception, DecodingError, OverflowError, ValueError)
FILE = "contract.json"  # in the embedded chain's folder: its own contract
POOR = 10**18  # wei: an account with less asks the faucet
FUND = RPCEndpoint("codezero_fund")
SECONDS = 60.0  # for one transaction, from the simulation to the receipt
MAX_GAS, MAX_FEE = 15_000_000, 2_000 * 10**9  # MAX_FEE: wei per gas; an endpoint's lie costs at most their product
PAUSES = 0.05, 2.0  # seconds between two polls for a transaction that was sent, at first and at most
FIRST_SPAN, LARGEST_SPAN = 1000, 100_000  # blocks whose events are requested at once at first, and at most
MAX_SIGNED = 8  # for one call; more means that something else is wrong
MAX_MEMBERS = 20_000  # registered peers that are read, at most
SHORTEST = 0.25  # of a round's length: it never lasts less, however quick everybody is
BASE58 = frozenset("123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz")


class SignedTransaction(NamedTuple):
    hash: str  # 0x and 64 digits
    nonce: int
    raw: bytes


class Sender:
    """Signs and sends for one account. Threads take turns; other processes with the same account are noticed."""

    def __init__(self, client: ChainClient, wallet: Wallet) -> None:
        self.client, self.wallet, self.address = client, wallet, cast(ChecksumAddress, wallet.address)
        self._turn = threading.RLock()

    def transact(self, to: str | None, data: bytes, *, seconds: float = SECONDS) -> TxReceipt:
        """Bring about one call (or deployment) and wait until it is mined.

        Raises ContractError when the contract refuses it now; UnknownOutcomeError when time is over and one may still
        be mined; ChainUnreachableError, RpcError, InsufficientFundsError when none can be."""
        until, signed, failure = time.monotonic() + seconds, 0, ""
        transaction: SignedTransaction | None = None
        with self._turn:
            for attempt in itertools.count(1):
                try:
                    if transaction is None:
                        if signed == MAX_SIGNED:
                            raise ChainError("transactions keep failing although the contract accepts them in advance")
                        transaction, signed = self._sign(to, data), signed + 1
                    receipt, used = self._send(transaction)
                    if receipt is not None and receipt["status"] == 1:
                        return receipt
                    transaction = None if used else transaction
                except (ChainUnreachableError, WrongChainError, RpcError) as error:
                    if not signed and time.monotonic() >= until:
                        raise
                    failure = f" ({error})"
                left = until - time.monotonic()
                if signed and left <= 0:
                    raise UnknownOutcomeError(f"a transaction was sent and has not been seen in a block yet{failure}")
                time.sleep(max(0.0, min(backoff(attempt, *PAUSES), left)))
        raise AssertionError

    def _sign(self, to: str | None, data: bytes) -> SignedTransaction:
        """Simulates the call first, so that a refusal costs nothing. Raises ContractError, InsufficientFundsError."""
        eth = self.client.eth
        call: Any = {"from": self.address, "data": "0x" + data.hex()} | ({} if to is None else {"to": to})
        eth.call(call)
        gas = min(int(eth.estimate_gas(call) * 1.25), MAX_GAS)  # the state can change before it is in a block
        nonce = eth.get_transaction_count(self.address)
        base = eth.get_block("latest").get("baseFeePerGas")
        if base is None:
            raise ChainUnreachableError("the chain has no base fee (EIP-1559), which this version needs")
        try:
            tip = int(eth.max_priority_fee)
        except RpcError:  # not every chain has the method
            tip = 10**9
        fee = 2 * base + tip
        if fee > MAX_FEE:
            raise ChainUnreachableError(f"the chain asks for more than {MAX_FEE // 10**9} gwei for a unit of gas")
        balance = eth.get_balance(self.address)
        if balance < gas * fee:
            poor = f"account {self.address} has {balance / 1e18:.6f} of the chain's coin"
            cost = f"a transaction may cost {gas * fee / 1e18:.6f}"
            raise errors.InsufficientFundsError(f"{poor}, and {cost}; send it some")
        raw = self.wallet.sign_transaction(transaction_fields(self.client.chain_id, nonce, to, data, gas, fee, tip))
        return SignedTransaction("0x" + keccak(raw).hex(), nonce, raw)

    def _send(self, transaction: SignedTransaction) -> tuple[TxReceipt | None, bool]:
        """Its receipt, and whether its nonce was used: without a receipt it will never be mined then."""
        try:
            self.client.eth.send_raw_transaction(transaction.raw)
        except (ChainUnreachableError, WrongChainError, RpcError, ContractError) as error:
            logger.debug("sending %s: %s", transaction.hash, error)
        receipt = self._receipt_of(transaction.hash)
        used = receipt is not None or self.client.eth.get_transaction_count(self.address) > transaction.nonce
        if used and receipt is None:
            time.sleep(0.5)  # a node may count a transaction before it shows its receipt
            receipt = self._receipt_of(transaction.hash)
        return receipt, used

    def _receipt_of(self, tx_hash: str) -> TxReceipt | None:
        try:
            receipt = self.client.eth.get_transaction_receipt(tx_hash)  # pyright: ignore[reportArgumentType]
        except TransactionNotFound:
            return None
        return receipt if receipt["transactionHash"].to_0x_hex() == tx_hash else None


class Artifact(msgspec.Struct, frozen=True):
    """A contract as `contracts/compile.mjs` left it; it ships with the package and is never edited."""

    abi: list[dict[str, Any]]
    bytecode: str  # 0x and hex: the code that deploys, constructor arguments to be appended


@cache
def read_artifact() -> Artifact:
    """`contracts/SwarmCoordinator.sol`. Raises ChainError when the installation lacks it."""
    path = ARTIFACTS / "SwarmCoordinator.json"
    with translated(ChainError, f"{path} is missing or damaged; install codezero again", OSError, msgspec.MsgspecError):
        return msgspec.json.decode(path.read_bytes(), type=Artifact)


class EventPage(NamedTuple):
    """The events of some blocks, in order. Strings in them are at most what the contract's bounds allow."""

    events: list[EventData]
    cursor: int  # the first block that was not read: where to go on from, also another day
    head: int  # the newest block when the scan began; the scan is over when `cursor` has passed it


class ContractCoordinator(Coordinator):
    """The contract on one chain: who owns which peer, which round is open, what was submitted.

    Without a sender it only reads. Safe to use from several threads. Questions raise ChainUnreachableError,
    WrongChainError, RpcError; calls raise ContractError when refused, UnknownOutcomeError when sent and not seen, and
    other ChainErrors."""

    def __init__(self, client: ChainClient, contract: str, sender: Sender | None = None) -> None:
        if not is_address(contract):
            raise ConfigError(f"chain.contract={contract[:50]!r} is no address; it has 0x and 40 hexadecimal digits")
        self.client, self.contract, self._sender = client, to_checksum_address(contract), sender
        self._contract: Any = client.eth.contract(address=self.contract, abi=read_artifact().abi)
        self._watch = RoundWatch(self.read_round)
        self.close = self._watch.close

    def current_round(self) -> int:  # as read in the background
        return self._watch.current()

    @property
    def account(self) -> str:
        """The sender's address. Raises ChainError without a sender."""
        return self._sender_of().address

    def history(self, since: int, names: Sequence[str]) -> Iterator[EventPage]:
        """Pages of the events `names` from block `since`, or the contract's, to the newest; empty ones show progress.

        A range grows quickly, and slowly once an endpoint has refused a wider one, which is halved then. Events that
        are malformed, or that were not requested, are left out. Raises ChainError."""
        wanted = {event.topic: event for event in self._contract.events if event.name in names}
        head, cursor, size, slowness = self.client.eth.block_number, max(since, self.client.since), FIRST_SPAN, 1
        while cursor <= head:
            last = min(cursor + size - 1, head)
            search: Any = {"address": self.contract, "fromBlock": cursor, "toBlock": last, "topics": [list(wanted)]}
            try:
                logs = self.client.eth.get_logs(search)
            except (RpcError, ChainUnreachableError):
                if last == cursor:
                    raise
                size, slowness = (last - cursor + 1) // 2, 16
                continue
            size = min(size + max(1, size // slowness), LARGEST_SPAN)
            events: list[EventData] = []
            for log in logs:
                event = wanted.get(log["topics"][0].to_0x_hex()) if log["topics"] else None
                if event and log["address"] == self.contract and cursor <= log["blockNumber"] <= last:
                    with contextlib.suppress(*MALFORMED):
                        events.append(event.process_log(log))
            cursor = last + 1
            yield EventPage(events, cursor, head)

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

    def read_round(self) -> int:  # now
        return self._ask("currentRound")

    def owners(self, peers: Sequence[str]) -> dict[str, str | None]:
        """The account that registered each peer id; None: nobody has."""
        with _named_errors("getEoa"):
            owners = zip(peers, self._ask("getEoa", list(peers)), strict=True)
            return {peer: None if owner == NOBODY else owner for peer, owner in owners}

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
                if error.name != errors.REGISTERED:
                    raise
            owner = self.owners([peer])[peer]  # somebody was faster
        if owner is None:
            raise ChainUnreachableError(f"peer {peer} was registered, and the chain does not show it yet")
        if owner != self.account:
            raise errors.ForeignOwnerError(
                f"peer {peer} is registered to {owner}, not to this node's account {self.account}; use the account "
                "that registered it, or move swarm.pem away so that the next start makes a new peer id"
            )


class StageManager:
    """Opens rounds, if the contract lets this account: when one has lasted long enough, or everybody has submitted.

    `tick` is one look, for `Repeating`. A round that is open when the node starts counts from then.
    turn: is it this process that opens rounds, of those with the same account?"""

    def __init__(
        self,
        coordinator: ContractCoordinator,
        round_seconds: float,
        *,
        turn: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._coordinator, self._round_seconds, self._turn, self._clock = coordinator, round_seconds, turn, clock
        self._allowed, self._round, self._since, self._cursor = False, -1, 0.0, 0
        self._submitted: dict[int, set[str]] = defaultdict(set)

    def tick(self) -> None:
        """Raises ChainError."""
        role, account = "STAGE_MANAGER_ROLE", self._coordinator.account
        self._allowed = self._turn() and (self._allowed or self._coordinator.has_role(role, account))
        if not self._allowed:
            return
        now = self._coordinator.read_round()
        if now != self._round:
            self._round, self._since = now, self._clock()
        lasted = (self._clock() - self._since) / self._round_seconds
        if lasted >= 1 or (lasted >= SHORTEST and self._everybody_submitted(now)):
            for _ in range(4):  # three stages make a round
                if self._coordinator.read_round() != now:  # perhaps opened by another manager
                    logger.info("round %d is open", now + 1)
                    return
                self._coordinator.send("updateStageAndRound")

    def _everybody_submitted(self, round_number: int) -> bool:
        for page in self._coordinator.history(self._cursor, ["RewardSubmitted"]):
            for event in page.events:
                self._submitted[event["args"]["roundNumber"]].add(event["args"]["peerId"])
            self._cursor = page.cursor
        for old in [number for number in self._submitted if number < round_number - 1]:
            del self._submitted[old]
        active, done = self._submitted.get(round_number - 1, set()), self._submitted.get(round_number, set())
        return bool(active) and active <= done


class Registry:
    """Keeps the registered peers in a file that the gossip reads: who registers has paid in gas.

    `tick` is one reading, for `Repeating`. The list begins with `peer`, only grows and is bounded."""

    SECONDS = 5.0  # between two readings

    def __init__(self, coordinator: ContractCoordinator, path: Path, peer: str) -> None:
        self._coordinator, self._path = coordinator, path
        self._members, self._cursor = {peer: None}, 0

    def tick(self) -> None:
        """Raises ChainError."""
        before = len(self._members)
        for page in self._coordinator.history(self._cursor, ["PeerRegistered"]):
            for event in page.events:
                peer = event["args"]["peerId"]
                if len(self._members) < MAX_MEMBERS and 32 <= len(peer) <= 64 and BASE58.issuperset(peer):
                    self._members[peer] = None
            self._cursor = page.cursor
        if len(self._members) > before:
            with translated(ChainError, f"{self._path} cannot be written", OSError):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                write_atomic(self._path, "".join(f"{member}\n" for member in self._members))


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
            if error.code != errors.METHOD_NOT_FOUND:
                raise


def own_contracts(folder: Path, client: ChainClient, sender: Sender) -> Founded:
    """This chain's contract, deployed now by one of the callers if there are none. Raises ChainError."""
    path = folder / FILE
    with (folder / f"{FILE}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            known = founded(folder)
            if known.chain_id == client.chain_id:
                return known
            os.replace(path, path.with_name(f"{FILE}.{known.chain_id}"))  # of a chain that is no more
        own = Founded(client.chain_id, deploy(sender))
        logger.info("contract %s was deployed on chain %d", own.contract, client.chain_id)
        write_new(path, msgspec.json.encode(own))
        return own


def founded(folder: Path) -> Founded:
    """This chain's own contract. Raises ChainError when there are none."""
    path = folder / FILE
    if not path.exists():
        raise ChainError(f"{folder} has no contract of its own yet; name one with chain.contract")
    damaged = f"{path} is damaged; restore a copy, or move it away to found a new contract"
    with translated(ChainError, damaged, msgspec.DecodeError, UnicodeDecodeError, reason=False):
        return msgspec.json.decode(read_private(path, 4096), type=Founded)


@contextlib.contextmanager
def _named_errors(name: str) -> Generator[None]:
    """Raises ChainError for arguments, and ChainUnreachableError for an answer, that are not of the ABI's types."""
    try:
        yield
    except (MismatchedABI, UnicodeEncodeError) as error:
        raise ChainError(f"{name}: an argument is out of bounds ({type(error).__name__})") from error
    except MALFORMED as error:
        malformed = f"the contract answered {name} with nothing or something malformed"
        raise ChainUnreachableError(f"{malformed}; is the contract's address right?") from error
