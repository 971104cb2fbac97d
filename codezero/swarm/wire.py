"""The records that travel between nodes, field by field, with the bound of each, and their bytes.

docs/wire-format.md is its prose. Everything is MessagePack. A *header* is small, signed, and lies in the DHT; the
*body* it announces is zlib-compressed and pulled from the peer that signed. Verdicts and reference solutions have no
field here: they are never sent. Decoding raises WireRefusal alone, whatever the bytes. Encoding reads its own output
back, so a node never announces what its peers would refuse."""

import contextlib
import hashlib
import math
import re
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
from msgspec import Meta, structs

from codezero.errors import WireError, translated
from codezero.system.files import UNDECODABLE, PeerId
from codezero.types import Completion, Item, Problem, RolloutGroup, ScoredGroup, Source, Standing, problem_id

VERSION = 1
DERIVED = 2  # The version of what is about problems that every node derives; everything else is of VERSION
MAX_HEADER = 512
MAX_BODY = 2 << 20  # Compressed bytes
MAX_INFLATED = 8 << 20
MAX_TEXT = 64 << 10  # UTF-8 bytes of one question, test or completion
MAX_ITEMS = 32  # Groups or problems in a body
MAX_TESTS, MAX_COMPLETIONS, MAX_TOKENS = 64, 64, 32_768
MAX_FEEDBACK, MAX_MARKET = 4096, 128 << 10  # Bytes of one peer's feedback to another, and of its post of a round
ROUNDING = 1e-3  # How far above zero arithmetic may leave a log-prob; it is sent as zero
MAX_ROUND, MAX_INDEX = 2**53 - 1, 2**31
LOWEST_LOGPROB = -65504.0  # The most negative finite half-precision number

GROUPS: Literal["h"] = "h"
PROPOSALS: Literal["p"] = "p"
MARKET: Literal["m"] = "m"
FEEDBACK: Literal["f"] = "f"
Kind = Literal["h", "p", "m"]

V = TypeVar("V")
K = TypeVar("K")
Sent = TypeVar("Sent")
Schema = TypeVar("Schema", bound=msgspec.Struct)
Derived = TypeVar("Derived", bound=msgspec.Struct)


class WireRefusal(WireError):
    """Bytes from a peer that were not believed, with a reason for the counters."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason.partition(":")[0]  # `translated` gives both in one text


Round = Annotated[int, Meta(ge=0, le=MAX_ROUND)]
Digest = Annotated[bytes, Meta(min_length=32, max_length=32)]
Half = Annotated[bytes, Meta(min_length=16, max_length=16)]  # The first half of a digest
Level = Annotated[int, Meta(ge=1, le=5)]
Text = Annotated[str, Meta(max_length=MAX_TEXT)]


class WireRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of everything sent: unknown fields are refused, so a new field needs a new version."""


class Header(WireRecord, frozen=True):
    """The announcement of one body, at most MAX_HEADER bytes; signed as part of its DHT record."""

    v: Literal[1, 2]
    kind: Kind
    round: Round
    digest: Digest  # sha256 of the body as it is served, compressed
    size: Annotated[int, Meta(ge=1, le=MAX_BODY)]  # Bytes of the body as it is served
    codec: Literal["zlib"]
    tokenizer: Digest  # Of the tokenizer that made the token ids; zeros where there are none
    count: Annotated[int, Meta(ge=1, le=MAX_ITEMS)]  # Groups or problems in the body; 1 for anything else
    problems: Annotated[list[Half], Meta(max_length=16)]  # Of the problem ids of the first groups
    reward: Annotated[float, Meta(ge=0, le=1)] | None  # The sender's mean reward; for people, never for learning
    time: Annotated[float, Meta(ge=0, le=2**53)]  # Seconds since 1970 at the sender
    environment: Half | msgspec.UnsetType = msgspec.UNSET  # Of the environment's digest; in version 2 alone


class WireProblem(WireRecord, frozen=True):
    id: Digest
    question: Text
    tests: Annotated[list[Text], Meta(min_length=1, max_length=MAX_TESTS)]
    # Empty for a program that reads stdin and writes stdout.
    entry_point: Annotated[str, Meta(pattern=r"\A([A-Za-z_][A-Za-z0-9_]*)?\Z", max_length=128)]
    source: Source
    standing: Standing
    level: Level | None
    proposer: PeerId | None


class WireCompletion(WireRecord, frozen=True):
    text: Text
    ids: Annotated[bytes, Meta(max_length=4 * MAX_TOKENS)]  # [T] little-endian u32
    logprobs: Annotated[bytes, Meta(max_length=2 * MAX_TOKENS)]  # [T] little-endian half precision, nats
    finished: bool


Completions = Annotated[list[WireCompletion], Meta(min_length=1, max_length=MAX_COMPLETIONS)]


class WireGroup(WireRecord, frozen=True):
    problem: WireProblem
    policy_step: Round
    completions: Completions


class WireBody(WireRecord, Generic[V, K], frozen=True):
    """The beginning of every body: its version and kind, and whose it is of which round."""

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


Name = Annotated[str, Meta(pattern=r"\A[a-z][a-z0-9_.-]{0,63}\Z")]


class WireItem(WireRecord, frozen=True):
    """A problem that every node derives from its environment."""

    id: Digest
    level: Level
    index: Annotated[int, Meta(ge=0, lt=MAX_INDEX)]


class WireItemGroup(WireRecord, frozen=True):
    item: WireItem
    policy_step: Round
    completions: Completions


class ItemGroupsBody(WireBody[Literal[2], Literal["h"]], frozen=True):
    environment: Name
    digest: Digest  # Of the environment
    groups: Annotated[list[WireItemGroup], Meta(min_length=1, max_length=MAX_ITEMS)]


class ItemsBody(WireBody[Literal[2], Literal["p"]], frozen=True):
    environment: Name
    digest: Digest
    items: Annotated[list[WireItem], Meta(min_length=1, max_length=MAX_ITEMS)]


class ProblemOutcome(WireRecord, frozen=True):
    """The outcome of a problem at the peer that attempted it."""

    problem: Digest  # Its id
    attempts: Annotated[int, Meta(ge=1, le=MAX_COMPLETIONS)]  # That could be judged
    success: Annotated[float, Meta(ge=0, le=1)]  # Their mean correctness, as judged there


class FeedbackBody(WireRecord, frozen=True):
    """Feedback to the proposer of these problems alone; at most MAX_FEEDBACK bytes, not compressed."""

    v: Literal[1]
    kind: Literal["f"]
    round: Round
    outcomes: Annotated[list[ProblemOutcome], Meta(min_length=1, max_length=MAX_ITEMS)]


class Versioned(msgspec.Struct):
    """The one field that every version has."""

    v: int


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
    """Return the [32] bytes that a header names a served body by."""
    return hashlib.sha256(data).digest()


def decode(
    data: bytes, schema: type[Schema], derived: type[Derived] | None = None, *, most: int = MAX_INFLATED
) -> Schema | Derived:
    """Check the version first: a newer peer is refused as newer, not as malformed. derived: the schema of DERIVED."""
    if len(data) > most:
        raise WireRefusal("size", f"{len(data)} bytes, above {most}")
    with translated(WireRefusal, "schema", *UNDECODABLE):
        version = msgspec.msgpack.decode(data, type=Versioned).v
        if version == DERIVED and derived is not None:
            return msgspec.msgpack.decode(data, type=derived)
        if version != VERSION:
            raise WireRefusal("version", f"this node reads version {VERSION}, not {version}")
        return msgspec.msgpack.decode(data, type=schema)


def deflate(body: msgspec.Struct, decode: Callable[[bytes], Any]) -> bytes:
    """Compress, and check that `decode` accepts the result."""
    with translated(WireRefusal, "schema", UnicodeEncodeError, OverflowError):
        raw = msgspec.msgpack.encode(body)
    if len(raw) > MAX_INFLATED:
        raise WireRefusal("size", f"{len(raw)} bytes before compression")
    data = zlib.compress(raw, 6)
    decode(data)
    return data


def inflate(data: bytes) -> bytes:
    if len(data) > MAX_BODY:
        raise WireRefusal("size", f"a body of {len(data)} bytes")
    stream = zlib.decompressobj()
    with translated(WireRefusal, "inflate", zlib.error):
        raw = stream.decompress(data, MAX_INFLATED + 1)
    if len(raw) > MAX_INFLATED:
        raise WireRefusal("inflate", f"more than {MAX_INFLATED} bytes inside")
    if not stream.eof or stream.unused_data:
        raise WireRefusal("inflate", "cut off, or followed by more")
    return raw


def encode_body(groups: Sequence[RolloutGroup], *, peer: str, round_number: int) -> bytes:
    """Encode 1..MAX_ITEMS groups of `peer`. The sender is held to the bounds too: raises WireRefusal."""
    if any(group.peer_id != peer for group in groups):
        raise WireRefusal("owner", "a node publishes only what it sampled")
    sent = [(group.problem, group.policy_step, [*map(_wire_completion, group.completions)]) for group in groups]
    if not (environment := _derived([group.problem for group in groups])):
        wired = [WireGroup(_wire_problem(problem), step, attempts) for problem, step, attempts in sent]
        return deflate(GroupsBody(VERSION, GROUPS, peer, round_number, wired), decode_body)
    items = [WireItemGroup(_wire_item(problem), step, attempts) for problem, step, attempts in sent]
    return deflate(ItemGroupsBody(DERIVED, GROUPS, peer, round_number, *environment, items), decode_body)


def decode_body(data: bytes) -> tuple[str, int, tuple[RolloutGroup, ...]]:
    """Return peer, round, and that peer's groups of that round. Raises WireRefusal. Of a problem that is derived only
    `id`, `source`, `level` and `item` are there; `derive` gives the rest."""
    body = decode(inflate(data), GroupsBody, ItemGroupsBody)
    if isinstance(body, ItemGroupsBody):
        problems = [_item(body, group.item) for group in body.groups]
    else:
        problems = [_problem(group.problem) for group in body.groups]
    groups = tuple(
        RolloutGroup(problem, tuple(map(_completion, group.completions)), body.peer, body.round, group.policy_step)
        for problem, group in zip(problems, body.groups, strict=True)
    )
    return body.peer, body.round, groups


def encode_proposals(problems: Sequence[Problem], *, peer: str, round_number: int) -> bytes:
    """Encode 1..MAX_ITEMS problems that `peer` offers. Raises WireRefusal."""
    if environment := _derived(problems):
        items = ItemsBody(DERIVED, PROPOSALS, peer, round_number, *environment, [*map(_wire_item, problems)])
        return deflate(items, decode_proposals)
    wired = [_wire_problem(problem) for problem in problems]
    return deflate(ProposalsBody(VERSION, PROPOSALS, peer, round_number, wired), decode_proposals)


def decode_proposals(data: bytes) -> tuple[str, int, tuple[Problem, ...]]:
    """Return peer, round, and the problems, all of them that peer's claims whatever it says. Raises WireRefusal."""
    body = decode(inflate(data), ProposalsBody, ItemsBody)
    if isinstance(body, ItemsBody):
        return body.peer, body.round, tuple(claimed(_item(body, item), body.peer) for item in body.items)
    return body.peer, body.round, tuple(claimed(_problem(problem), body.peer) for problem in body.problems)


def encode_market(payloads: Sequence[bytes], *, peer: str, round_number: int) -> bytes:
    """Encode the one message of `peer` to the market of a round. Raises WireRefusal."""
    (payload,) = payloads
    return deflate(MarketBody(VERSION, MARKET, peer, round_number, payload), decode_market)


def decode_market(data: bytes) -> tuple[str, int, tuple[bytes]]:
    """Return peer, round and the message, which is not read here. Raises WireRefusal."""
    body = decode(inflate(data), MarketBody)
    return body.peer, body.round, (body.payload,)


ENCODE: dict[Kind, Callable[..., bytes]] = {GROUPS: encode_body, PROPOSALS: encode_proposals, MARKET: encode_market}
DECODE: dict[Kind, Callable[[bytes], tuple[str, int, tuple[Any, ...]]]] = {
    GROUPS: decode_body,
    PROPOSALS: decode_proposals,
    MARKET: decode_market,
}  # Peer, round, and the groups, the problems or the message to the market


def encode_feedback(groups: Sequence[ScoredGroup], *, round_number: int) -> bytes:
    """Encode outcomes of 1..MAX_ITEMS groups for their problems' proposer. Raises WireRefusal when none is judged."""
    outcomes = [
        ProblemOutcome(bytes.fromhex(it.group.problem.id), len(it.trainable), min(max(it.success, 0.0), 1.0))
        for it in groups
        if it.success is not None
    ]
    data = msgspec.msgpack.encode(FeedbackBody(VERSION, FEEDBACK, round_number, outcomes))
    decode_feedback(data)
    return data


def decode_feedback(data: bytes) -> FeedbackBody:
    """Raises WireRefusal."""
    return decode(data, FeedbackBody, most=MAX_FEEDBACK)


def largest(items: Sequence[Sent], encode: Callable[[Sequence[Sent]], bytes]) -> tuple[Sequence[Sent], bytes]:
    """Return the first `items` that fit into a body, without those that cannot be sent, and the body; or nothing."""

    def encoded(some: Sequence[Sent]) -> bytes | None:
        with contextlib.suppress(WireRefusal):
            return encode(some)

    while items:
        body = encoded(items)
        if body is not None and len(body) <= MAX_BODY:
            return items, body
        sendable: list[Sent] = [item for item in items if body is not None or encoded([item]) is not None]
        items = sendable if len(sendable) < len(items) else items[: len(items) // 2]
    return (), b""


def claimed(problem: Problem, proposer: str, standing: Standing = Standing.CLAIMED) -> Problem:
    """Mark a problem as a proposer's invention, unless it is derived: its values are claims, its reference stays."""
    if problem.item is not None:
        return replace(problem, proposer=proposer)
    return replace(problem, source=Source.PROPOSER, standing=standing, reference=None, proposer=proposer)


def environment_of(kind: Kind, items: Sequence[Any]) -> bytes:
    """Return the [16] bytes that a header names the environment of groups or problems by; empty for all else."""
    if kind not in (GROUPS, PROPOSALS):
        return b""
    environment = _derived([item.problem for item in items] if kind == GROUPS else items)
    return environment[1][:16] if environment else b""


def _wire_problem(problem: Problem) -> WireProblem:
    if not re.fullmatch("[0-9a-f]{64}", problem.id):
        raise WireRefusal("problem", "an id is 64 hex digits")
    fields: dict[str, Any] = {name: getattr(problem, name) for name in WireProblem.__struct_fields__}
    fields |= {"id": bytes.fromhex(problem.id), "tests": list(problem.tests)}
    return WireProblem(**fields)


def _problem(wire: WireProblem) -> Problem:
    _check_text(wire.question, *wire.tests)
    if wire.id.hex() != problem_id(wire.question, wire.tests):
        raise WireRefusal("problem", "the id is not that of the question and tests")
    fields: dict[str, Any] = structs.asdict(wire) | {"id": wire.id.hex(), "tests": tuple(wire.tests)}
    return Problem(**fields)


def _derived(problems: Sequence[Problem]) -> tuple[str, bytes] | None:
    """Return name and digest of the environment these are derived from; None: they travel whole. Raises WireRefusal."""
    environments = {(problem.item.environment, problem.item.digest) if problem.item else None for problem in problems}
    if len(environments) > 1:
        raise WireRefusal("environment", "of more than one")
    named = environments.pop() if environments else None
    return (named[0], bytes.fromhex(named[1])) if named else None


def _wire_item(problem: Problem) -> WireItem:
    assert problem.item is not None
    return WireItem(bytes.fromhex(problem.id), problem.item.level, problem.item.index)


def _item(body: ItemGroupsBody | ItemsBody, wire: WireItem) -> Problem:
    item = Item(body.environment, body.digest.hex(), wire.level, wire.index)
    return Problem(wire.id.hex(), "", (), "", body.environment, level=wire.level, item=item)


def _wire_completion(completion: Completion) -> WireCompletion:
    count = len(completion.token_ids)
    if len(completion.logprobs) != count or not all(-math.inf < nats < ROUNDING for nats in completion.logprobs):
        raise WireRefusal("logprobs", "one finite log-prob for each token")
    # Half precision has no room below LOWEST_LOGPROB.
    nats = [min(0.0, max(LOWEST_LOGPROB, value)) for value in completion.logprobs]
    with translated(WireRefusal, "schema: a token id outside u32", struct.error, reason=False):
        ids = struct.pack(f"<{count}I", *completion.token_ids)
    return WireCompletion(completion.text, ids, struct.pack(f"<{count}e", *nats), completion.finished)


def _completion(wire: WireCompletion) -> Completion:
    _check_text(wire.text)
    count, rest = divmod(len(wire.ids), 4)
    if rest or len(wire.logprobs) != 2 * count:
        raise WireRefusal("logprobs", "one for each token")
    logprobs = struct.unpack(f"<{count}e", wire.logprobs)
    if not all(LOWEST_LOGPROB <= value <= 0 for value in logprobs):  # NaN holds no bound
        raise WireRefusal("logprobs", "not finite, or above zero")
    return Completion(wire.text, struct.unpack(f"<{count}I", wire.ids), logprobs, wire.finished)


def _check_text(*texts: str) -> None:
    if any(len(text.encode("utf-8")) > MAX_TEXT for text in texts):
        raise WireRefusal("size", f"a text of more than {MAX_TEXT} bytes")
