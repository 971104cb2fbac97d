"""The contract's calls, answers and events as bytes and back, by the ABI that ships with the package.

Strings are decoded as bytes first: the contract holds what strangers wrote, which need not be UTF-8, and one bad name
must not make a whole leaderboard unreadable.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import msgspec
from eth_abi.abi import decode, encode
from eth_abi.exceptions import DecodingError, EncodingError
from eth_utils.crypto import keccak

from codezero.chain.artifacts import coordinator_artifact
from codezero.chain.errors import ChainUnreachableError
from codezero.chain.rpc import Log
from codezero.errors import ChainError


class _Argument(msgspec.Struct, frozen=True):
    name: str
    type: str
    indexed: bool = False


class _Entry(msgspec.Struct, frozen=True):
    type: str
    name: str = ""
    inputs: tuple[_Argument, ...] = ()
    outputs: tuple[_Argument, ...] = ()

    @property
    def signature(self) -> bytes:
        """[32] bytes: keccak256 of the name and types; an event's topic, and the first 4 a function's selector."""
        return keccak(text=f"{self.name}({','.join(argument.type for argument in self.inputs)})")


@dataclass(frozen=True, slots=True)
class Event:
    """Something the contract said. Strings in `values` are at most what the contract's bounds allow."""

    name: str
    values: Mapping[str, Any]
    block: int
    index: int
    """Position in the block."""
    transaction: str


@cache
def entries() -> tuple[_Entry, ...]:
    return tuple(msgspec.convert(coordinator_artifact().abi, list[_Entry]))


@cache
def _function(name: str) -> _Entry:
    return next(entry for entry in entries() if entry.type == "function" and entry.name == name)


@cache
def events() -> dict[bytes, _Entry]:
    """By topic."""
    return {entry.signature: entry for entry in entries() if entry.type == "event"}


def event_topic(name: str) -> str:
    """0x and 64 digits. Raises ChainError for an event that the contract does not have."""
    for topic, entry in events().items():
        if entry.name == name:
            return "0x" + topic.hex()
    raise ChainError(
        f"the contract has no event {name!r}; it has {', '.join(sorted(e.name for e in events().values()))}"
    )


def encode_call(name: str, *arguments: object) -> bytes:
    """The data of a transaction that calls `name`. Raises ChainError for arguments that the ABI cannot hold."""
    entry = _function(name)
    return entry.signature[:4] + _encode(entry, arguments)


def encode_deployment(*arguments: object) -> bytes:
    """The data of a transaction that deploys the contract."""
    constructor = next(entry for entry in entries() if entry.type == "constructor")
    return bytes.fromhex(coordinator_artifact().bytecode.removeprefix("0x")) + _encode(constructor, arguments)


def decode_result(name: str, raw: bytes) -> tuple[Any, ...]:
    """Raises ChainUnreachableError: no contract is there, or the endpoint made the answer up."""
    types = [argument.type for argument in _function(name).outputs]
    try:
        return _decode(types, raw)
    except (DecodingError, OverflowError) as error:
        what = "nothing; is the contract's address right?" if not raw else "something malformed"
        raise ChainUnreachableError(f"the contract answered {name} with {what}") from error


def decode_event(log: Log) -> Event | None:
    """None for an event that this contract does not have, or that is malformed."""
    topics = [bytes.fromhex(topic[2:]) for topic in log.topics]
    entry = events().get(topics[0]) if topics else None
    if entry is None:
        return None
    indexed = [argument for argument in entry.inputs if argument.indexed]
    plain = [argument for argument in entry.inputs if not argument.indexed]
    if len(topics) != 1 + len(indexed):
        return None
    try:
        values = {
            **{
                argument.name: _decode([argument.type], topic)[0]
                for argument, topic in zip(indexed, topics[1:], strict=True)
            },
            **dict(
                zip(
                    (argument.name for argument in plain),
                    _decode([argument.type for argument in plain], bytes.fromhex(log.data[2:])),
                    strict=True,
                )
            ),
        }
    except (DecodingError, OverflowError):
        return None
    return Event(entry.name, values, int(log.block_number, 16), int(log.log_index, 16), log.transaction_hash)


def _encode(entry: _Entry, arguments: Sequence[object]) -> bytes:
    try:
        return encode([argument.type for argument in entry.inputs], arguments)
    except (EncodingError, UnicodeEncodeError) as error:
        raise ChainError(f"{entry.name}: an argument is out of bounds ({type(error).__name__})") from error


def _decode(types: Sequence[str], raw: bytes) -> tuple[Any, ...]:
    """Raises DecodingError and OverflowError."""
    values = decode([type.replace("string", "bytes") for type in types], raw)
    return tuple(_text(value) if "string" in type else value for type, value in zip(types, values, strict=True))


def _text(value: object) -> object:
    """Bytes as text, at any depth; what is no UTF-8 shows as U+FFFD."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return tuple(_text(item) for item in cast("Sequence[object]", value))
