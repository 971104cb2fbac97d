"""The records that travel between nodes, field by field, with the bound of each. docs/wire-format.md is its prose.

Everything is MessagePack. A *header* is small, signed, and lies in the DHT; the *body* it announces is zlib-compressed
and pulled from the peer that signed. Verdicts and reference solutions have no field here: they are never sent.
Decoding raises WireRefusal alone, whatever the bytes. What is encoded is read back.
"""

import hashlib
import zlib
from collections.abc import Callable
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
from msgspec import Meta

from codezero.errors import WireError
from codezero.system.files import UNDECODABLE
from codezero.types import Source, Standing

VERSION = 1
DERIVED = 2
"""The version of what is about problems that every node derives; everything else is of VERSION."""
MAX_HEADER = 512
MAX_BODY = 2 << 20
"""Compressed bytes."""
MAX_INFLATED = 8 << 20
MAX_TEXT = 64 << 10
"""UTF-8 bytes of one question, test or completion."""
MAX_ITEMS = 32
"""Groups or problems in a body."""
MAX_TESTS = 64
MAX_COMPLETIONS = 64
MAX_TOKENS = 32_768
MAX_FEEDBACK, MAX_MARKET = 4096, 128 << 10
"""Bytes of one peer's feedback to another, and of all that it says to the market of a round."""
MAX_ROUND, MAX_INDEX = 2**53 - 1, 2**31
LOWEST_LOGPROB = -65504.0
"""The most negative finite half-precision number."""

GROUPS: Literal["h"] = "h"
PROPOSALS: Literal["p"] = "p"
MARKET: Literal["m"] = "m"
FEEDBACK: Literal["f"] = "f"
Kind = Literal["h", "p", "m"]

V = TypeVar("V")
K = TypeVar("K")


class WireRefusal(WireError):
    """Bytes from a peer that were not believed, with a reason for the counters."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


Round = Annotated[int, Meta(ge=0, le=MAX_ROUND)]
Digest = Annotated[bytes, Meta(min_length=32, max_length=32)]
PeerId = Annotated[str, Meta(pattern=r"\A[1-9A-HJ-NP-Za-km-z]{32,64}\Z")]
Text = Annotated[str, Meta(max_length=MAX_TEXT)]


class WireRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of everything sent: unknown fields are refused, so a new field needs a new version."""


class Header(WireRecord, frozen=True):
    """The announcement of one body, at most MAX_HEADER bytes; signed as part of its DHT record."""

    v: Literal[1, 2]
    kind: Kind
    round: Round
    digest: Digest
    """sha256 of the body as it is served, compressed."""
    size: Annotated[int, Meta(ge=1, le=MAX_BODY)]
    """Bytes of the body as it is served."""
    codec: Literal["zlib"]
    tokenizer: Digest
    """Of the tokenizer that made the token ids; zeros where there are none."""
    count: Annotated[int, Meta(ge=1, le=MAX_ITEMS)]
    """Groups or problems in the body; 1 for anything else."""
    problems: Annotated[list[Annotated[bytes, Meta(min_length=16, max_length=16)]], Meta(max_length=16)]
    """First half of the problem ids of the first groups."""
    reward: Annotated[float, Meta(ge=0, le=1)] | None
    """The sender's mean reward; for people, never for learning."""
    time: Annotated[float, Meta(ge=0, le=2**53)]
    """Seconds since 1970 at the sender."""
    environment: Annotated[bytes, Meta(min_length=16, max_length=16)] | msgspec.UnsetType = msgspec.UNSET
    """First half of the environment's digest; in version 2 alone."""


class WireProblem(WireRecord, frozen=True):
    id: Annotated[bytes, Meta(min_length=32, max_length=32)]
    question: Text
    tests: Annotated[list[Text], Meta(min_length=1, max_length=MAX_TESTS)]
    entry_point: Annotated[str, Meta(pattern=r"\A([A-Za-z_][A-Za-z0-9_]*)?\Z", max_length=128)]
    """Empty for a program that reads stdin and writes stdout."""
    source: Source
    standing: Standing
    level: Annotated[int, Meta(ge=1, le=5)] | None
    proposer: PeerId | None


class WireCompletion(WireRecord, frozen=True):
    text: Text
    ids: Annotated[bytes, Meta(max_length=4 * MAX_TOKENS)]
    """[T] little-endian u32."""
    logprobs: Annotated[bytes, Meta(max_length=2 * MAX_TOKENS)]
    """[T] little-endian half precision, nats."""
    finished: bool


class WireGroup(WireRecord, frozen=True):
    problem: WireProblem
    policy_step: Annotated[int, Meta(ge=0, le=MAX_ROUND)]
    completions: Annotated[list[WireCompletion], Meta(min_length=1, max_length=MAX_COMPLETIONS)]


class WireBody(WireRecord, Generic[V, K], frozen=True):
    """What every body begins with: its version and kind, and whose it is of which round."""

    v: V
    kind: K
    peer: PeerId
    round: Round


class GroupsBody(WireBody[Literal[1], Literal["h"]], frozen=True):
    groups: Annotated[list[WireGroup], Meta(min_length=1, max_length=MAX_ITEMS)]


class ProposalsBody(WireBody[Literal[1], Literal["p"]], frozen=True):
    problems: Annotated[list[WireProblem], Meta(min_length=1, max_length=MAX_ITEMS)]


class MarketBody(WireBody[Literal[1], Literal["m"]], frozen=True):
    """All that a peer says to the market of a round, for the market to parse."""

    payload: Annotated[bytes, Meta(min_length=1, max_length=MAX_MARKET)]


Index = Annotated[int, Meta(ge=0, lt=MAX_INDEX)]
Name = Annotated[str, Meta(pattern=r"\A[a-z][a-z0-9_.-]{0,63}\Z")]


class WireItem(WireRecord, frozen=True):
    """A problem that every node derives from its environment."""

    id: Digest
    level: Annotated[int, Meta(ge=1, le=5)]
    index: Index


class WireItemGroup(WireRecord, frozen=True):
    item: WireItem
    policy_step: Annotated[int, Meta(ge=0, le=MAX_ROUND)]
    completions: Annotated[list[WireCompletion], Meta(min_length=1, max_length=MAX_COMPLETIONS)]


class ItemGroupsBody(WireBody[Literal[2], Literal["h"]], frozen=True):
    environment: Name
    digest: Digest
    """Of the environment."""
    groups: Annotated[list[WireItemGroup], Meta(min_length=1, max_length=MAX_ITEMS)]


class ItemsBody(WireBody[Literal[2], Literal["p"]], frozen=True):
    environment: Name
    digest: Digest
    items: Annotated[list[WireItem], Meta(min_length=1, max_length=MAX_ITEMS)]


class ProblemOutcome(WireRecord, frozen=True):
    """How a problem went at the peer that attempted it."""

    problem: Digest
    """Its id."""
    attempts: Annotated[int, Meta(ge=1, le=MAX_COMPLETIONS)]
    """That could be judged."""
    success: Annotated[float, Meta(ge=0, le=1)]
    """Their mean correctness, as judged there."""


class FeedbackBody(WireRecord, frozen=True):
    """To the proposer of these problems, and to nobody else; at most MAX_FEEDBACK bytes, not compressed."""

    v: Literal[1]
    kind: Literal["f"]
    round: Round
    outcomes: Annotated[list[ProblemOutcome], Meta(min_length=1, max_length=MAX_ITEMS)]


class Versioned(msgspec.Struct):
    """The one field that every version has."""

    v: int


Schema = TypeVar("Schema", bound=msgspec.Struct)
Derived = TypeVar("Derived", bound=msgspec.Struct)


def encode_header(header: Header) -> bytes:
    """Raises WireRefusal for a header that no peer would read."""
    data = msgspec.msgpack.encode(header)
    decode_header(data)
    return data


def decode_header(data: bytes) -> Header:
    """Raises WireRefusal."""
    header = decode(data, Header, Header, most=MAX_HEADER)
    if (header.v == DERIVED) != bool(header.environment):
        raise WireRefusal("schema", f"version {header.v} with or without an environment")
    return header


def body_digest(data: bytes) -> bytes:
    """[32] bytes that a header names a served body by."""
    return hashlib.sha256(data).digest()


def decode(
    data: bytes, schema: type[Schema], derived: type[Derived] | None = None, *, most: int = MAX_INFLATED
) -> Schema | Derived:
    """Check the version first: a newer peer is refused as newer, not as malformed. derived: the schema of DERIVED."""
    if len(data) > most:
        raise WireRefusal("size", f"{len(data)} bytes, above {most}")
    try:
        version = msgspec.msgpack.decode(data, type=Versioned).v
        if version == DERIVED and derived is not None:
            return msgspec.msgpack.decode(data, type=derived)
        if version != VERSION:
            raise WireRefusal("version", f"this node reads version {VERSION}, not {version}")
        return msgspec.msgpack.decode(data, type=schema)
    except UNDECODABLE as error:
        raise WireRefusal("schema", str(error)) from error


def deflate(body: msgspec.Struct, decode: Callable[[bytes], Any]) -> bytes:
    """Compress, and check that `decode` accepts the result."""
    try:
        raw = msgspec.msgpack.encode(body)
    except (UnicodeEncodeError, OverflowError) as error:
        raise WireRefusal("schema", str(error)) from error
    if len(raw) > MAX_INFLATED:
        raise WireRefusal("size", f"{len(raw)} bytes before compression")
    data = zlib.compress(raw, 6)
    decode(data)
    return data


def inflate(data: bytes) -> bytes:
    if len(data) > MAX_BODY:
        raise WireRefusal("size", f"a body of {len(data)} bytes")
    stream = zlib.decompressobj()
    try:
        raw = stream.decompress(data, MAX_INFLATED + 1)
    except zlib.error as error:
        raise WireRefusal("inflate", str(error)) from error
    if len(raw) > MAX_INFLATED:
        raise WireRefusal("inflate", f"more than {MAX_INFLATED} bytes inside")
    if not stream.eof or stream.unused_data:
        raise WireRefusal("inflate", "cut off, or followed by more")
    return raw
