"""A contract on the real EVM, in this process: no node, no RPC, no mining, no signatures."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from eth.chains.base import MiningChain
from eth.constants import ZERO_ADDRESS
from eth.db.atomic import AtomicDB
from eth.vm.forks.prague import PragueVM
from eth.vm.spoof import SpoofTransaction
from eth_abi import decode, encode
from eth_abi.exceptions import InsufficientDataBytes
from eth_utils import keccak, to_canonical_address, to_checksum_address

from codezero.chain.contract import read_artifact

ABI = read_artifact().abi
CODE = bytes.fromhex(read_artifact().bytecode[2:])
GAS_LIMIT = 30_000_000
PRICE = 10**10
BUILT_IN = {
    "08c379a0": {"type": "error", "name": "Error", "inputs": [{"name": "reason", "type": "string"}]},
    "4e487b71": {"type": "error", "name": "Panic", "inputs": [{"name": "code", "type": "uint256"}]},
}
PROXY = bytes.fromhex(  # ERC-1967: everything goes to the code whose address lies in one slot
    "363d3d373d3d363d7f360894a13ba1a3210667c828492db98dca3e2076cc3735a920a3ca505d382bbc545af4"
    "3d600060003e6039573d6000fd5b3d6000f3"
)


@dataclass(frozen=True)
class Event:
    name: str
    args: dict[str, Any]


@dataclass(frozen=True)
class Receipt:
    gas: int
    result: Any
    events: tuple[Event, ...] = ()


class Reverted(Exception):
    """The contract refused. `name` is the error's, or "" for one that the ABI does not have."""

    def __init__(self, name: str, args: tuple[Any, ...], data: bytes) -> None:
        super().__init__(name, args)
        self.name = name
        self.arguments = args
        self.data = data


def type_of(entry: dict[str, Any]) -> str:
    return ",".join(part["type"] for part in entry["inputs"])


def hash_of(entry: dict[str, Any]) -> bytes:
    """[32] bytes: keccak of `name(types)`; the first four are the selector, all of it is an event's topic."""
    return keccak(text=f"{entry['name']}({type_of(entry)})")


def plain(value: Any) -> Any:
    """Addresses with their checksum, arrays as lists: what web3 would return."""
    if isinstance(value, str) and value.startswith("0x") and len(value) == 42:
        return to_checksum_address(value)
    return [plain(part) for part in value] if isinstance(value, tuple | list) else value


def account(number: int) -> str:
    return to_checksum_address(keccak(text=f"account {number}")[-20:])


class Evm:
    """One chain with one endless block. Accounts have money as soon as they act."""

    def __init__(self) -> None:
        chain_class = MiningChain.configure("TestChain", vm_configuration=((0, PragueVM),), chain_id=1337)
        genesis = {"difficulty": 0, "gas_limit": GAS_LIMIT, "timestamp": 1, "coinbase": ZERO_ADDRESS}
        self.vm = chain_class.from_genesis(AtomicDB(), genesis, {}).get_vm()

    def deploy(self, code: bytes, abi: list[dict[str, Any]], sender: str, *args: Any) -> "Contract":
        inputs = next((entry["inputs"] for entry in abi if entry["type"] == "constructor"), [])
        decoder = Decoder(abi)
        done, gas = self.execute(sender, b"", code + encode([part["type"] for part in inputs], args))
        decoder.check(done)
        contract = Contract(self, to_checksum_address(done.msg.storage_address), abi, decoder)
        contract.deployment = Receipt(gas, None, decoder.events(done))
        return contract

    def deploy_runtime(self, runtime: bytes, sender: str, before: bytes = b"") -> str:
        """Puts bare code on the chain, after running `before`; returns its address."""
        offset = len(before) + 12
        copy = b"\x60" + bytes([len(runtime)]) + b"\x80\x60" + bytes([offset]) + bytes.fromhex("6000396000f3")
        done, _ = self.execute(sender, b"", before + copy.ljust(12, b"\x00") + runtime)
        assert not done.is_error
        return to_checksum_address(done.msg.storage_address)

    def proxy(self, implementation: "Contract", sender: str) -> "Contract":
        """The same contract behind a proxy, not yet initialised."""
        slot = PROXY[9:41]
        store = b"\x73" + to_canonical_address(implementation.address) + b"\x7f" + slot + b"\x55"
        address = self.deploy_runtime(PROXY, sender, store)
        return Contract(self, address, implementation.abi, implementation.decoder)

    def execute(self, sender: str, to: bytes, data: bytes, value: int = 0, keep: bool = True) -> tuple[Any, int]:
        """The finished computation, and the gas that its sender paid for."""
        who, state = to_canonical_address(sender), self.vm.state
        state.lock_changes()
        state.set_balance(who, 10**27)
        before = state.snapshot()
        bare = self.vm.create_unsigned_transaction(
            nonce=state.get_nonce(who), gas_price=PRICE, gas=GAS_LIMIT, to=to, value=value, data=data
        )
        done = state.apply_transaction(SpoofTransaction(bare, from_=who))
        sent = 0 if done.is_error else value
        gas = (10**27 - state.get_balance(who) - sent) // PRICE
        if keep:
            state.commit(before)
        else:
            state.revert(before)
        return done, gas


@dataclass
class Decoder:
    """Reads what the EVM answers, by an ABI."""

    abi: list[dict[str, Any]]

    def __post_init__(self) -> None:
        self._errors = BUILT_IN | {hash_of(entry)[:4].hex(): entry for entry in self.abi if entry["type"] == "error"}
        self._events = {hash_of(entry): entry for entry in self.abi if entry["type"] == "event"}

    def check(self, done: Any) -> None:
        if not done.is_error:
            return
        data = bytes(done.output)
        entry = self._errors.get(data[:4].hex())
        if entry is None:
            raise Reverted("", (str(done.error),), data)
        raise Reverted(entry["name"], tuple(map(plain, decode([i["type"] for i in entry["inputs"]], data[4:]))), data)

    def events(self, done: Any) -> tuple[Event, ...]:
        return tuple(self._event(topics, data) for _, topics, data in done.get_log_entries())

    def _event(self, topics: Sequence[int], data: bytes) -> Event:
        entry = self._events[topics[0].to_bytes(32, "big")]
        indexed = [part for part in entry["inputs"] if part["indexed"]]
        rest = [part for part in entry["inputs"] if not part["indexed"]]
        named = {
            p["name"]: decode([p["type"]], t.to_bytes(32, "big"))[0] for p, t in zip(indexed, topics[1:], strict=True)
        }
        values = decode([part["type"] for part in rest], data)
        named |= {part["name"]: value for part, value in zip(rest, values, strict=True)}
        return Event(entry["name"], {name: plain(value) for name, value in named.items()})


@dataclass
class Contract:
    """One deployed contract."""

    evm: Evm
    address: str
    abi: list[dict[str, Any]]
    decoder: Decoder
    deployment: Receipt | None = None

    def __post_init__(self) -> None:
        self._functions = {entry["name"]: entry for entry in self.abi if entry["type"] == "function"}

    def encode(self, name: str, *args: Any) -> bytes:
        entry = self._functions[name]
        return hash_of(entry)[:4] + encode([part["type"] for part in entry["inputs"]], args)

    def call(self, name: str, *args: Any, sender: str = account(0)) -> Any:
        """Return the function's answer; nothing changes. One value bare, several as a list. Raises Reverted."""
        return self._run(name, args, sender, 0, keep=False).result

    def send(self, name: str, *args: Any, sender: str, value: int = 0) -> Receipt:
        """Raises Reverted, and nothing has changed but the sender's nonce."""
        return self._run(name, args, sender, value, keep=True)

    def _run(self, name: str, args: tuple[Any, ...], sender: str, value: int, keep: bool) -> Receipt:
        data, to = self.encode(name, *args), to_canonical_address(self.address)
        done, gas = self.evm.execute(sender, to, data, value, keep)
        self.decoder.check(done)
        types = [part["type"] for part in self._functions[name]["outputs"]]
        try:
            values = [plain(value) for value in decode(types, bytes(done.output))]
        except InsufficientDataBytes:
            raise AssertionError(f"{name} answered {bytes(done.output)!r}, not {types}") from None
        return Receipt(gas, values[0] if len(values) == 1 else values or None, self.decoder.events(done))


def deployed(evm: Evm, founder: str) -> Contract:
    """The coordinator as founders deploy it."""
    return evm.deploy(CODE, ABI, founder, founder)


def register(coordinator: Contract, **peers: str) -> None:
    for peer, eoa in peers.items():
        coordinator.send("registerPeer", peer, sender=eoa)


def refused(name: str, act: Callable[..., Any], *args: Any, **more: Any) -> tuple[Any, ...]:
    """The arguments of the error."""
    with pytest.raises(Reverted) as caught:
        act(*args, **more)
    assert caught.value.name == name
    return caught.value.arguments
