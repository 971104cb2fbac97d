"""Records to bytes and back, within the bounds of `schema.py`.

Decoding raises WireRefusal alone, whatever the bytes. Encoding reads its own output back, so a node never announces
what its peers would refuse.
"""

import hashlib
import math
import re
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import msgspec
from msgspec import structs

from codezero.swarm.schema import (
    FEEDBACK,
    GROUPS,
    LOWEST_LOGPROB,
    MARKET,
    MAX_BODY,
    MAX_FEEDBACK,
    MAX_HEADER,
    MAX_INFLATED,
    MAX_TEXT,
    PROPOSALS,
    VERSION,
    VERSIONS,
    FeedbackBody,
    GroupsBody,
    Header,
    Kind,
    MarketBody,
    ProblemOutcome,
    ProposalsBody,
    Versioned,
    VersionsBody,
    WireCompletion,
    WireGroup,
    WireProblem,
    WireRefusal,
)
from codezero.types import Completion, Problem, RolloutGroup, ScoredGroup, Source, Standing, problem_id

Schema = TypeVar("Schema", bound=msgspec.Struct)
Item = TypeVar("Item")
ROUNDING = 1e-3
"""How far above zero arithmetic may leave a log-prob; it is sent as zero."""
UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for foreign bytes, ValidationError included."""


def encode_body(groups: Sequence[RolloutGroup], *, peer: str, round_number: int) -> bytes:
    """The body of 1..MAX_ITEMS groups of `peer`. The sender is held to the bounds too: raises WireRefusal."""
    if any(group.peer_id != peer for group in groups):
        raise WireRefusal("owner", "a node publishes only what it sampled")
    wired = [
        WireGroup(
            problem=_wire_problem(group.problem),
            policy_step=group.policy_step,
            completions=[_wire_completion(completion) for completion in group.completions],
        )
        for group in groups
    ]
    return _deflate(GroupsBody(v=VERSION, kind=GROUPS, peer=peer, round=round_number, groups=wired), decode_body)


def decode_body(data: bytes) -> tuple[str, int, tuple[RolloutGroup, ...]]:
    """Peer, round, and that peer's groups of that round. Raises WireRefusal."""
    body = _decode(_inflate(data), GroupsBody)
    groups = tuple(
        RolloutGroup(
            problem=_problem(group.problem),
            completions=tuple(_completion(completion) for completion in group.completions),
            peer_id=body.peer,
            round=body.round,
            policy_step=group.policy_step,
        )
        for group in body.groups
    )
    return body.peer, body.round, groups


def encode_proposals(problems: Sequence[Problem], *, peer: str, round_number: int) -> bytes:
    """The body of 1..MAX_ITEMS problems that `peer` offers. Raises WireRefusal."""
    wired = [_wire_problem(problem) for problem in problems]
    return _deflate(
        ProposalsBody(v=VERSION, kind=PROPOSALS, peer=peer, round=round_number, problems=wired), decode_proposals
    )


def decode_proposals(data: bytes) -> tuple[str, int, tuple[Problem, ...]]:
    """Peer, round, and the problems, all of them that peer's claims whatever it says. Raises WireRefusal."""
    body = _decode(_inflate(data), ProposalsBody)
    return body.peer, body.round, tuple(claimed(_problem(problem), body.peer) for problem in body.problems)


def encode_versions(manifests: Sequence[bytes], *, peer: str, round_number: int) -> bytes:
    """The body of the one manifest of `peer`'s policy. Raises WireRefusal."""
    (manifest,) = manifests
    body = VersionsBody(v=VERSION, kind=VERSIONS, peer=peer, round=round_number, manifest=manifest)
    return _deflate(body, decode_versions)


def decode_versions(data: bytes) -> tuple[str, int, tuple[bytes]]:
    """Peer, round and the manifest, which is not read here. Raises WireRefusal."""
    body = _decode(_inflate(data), VersionsBody)
    return body.peer, body.round, (body.manifest,)


def encode_market(payloads: Sequence[bytes], *, peer: str, round_number: int) -> bytes:
    """The body of the one message of `peer` to the market of a round. Raises WireRefusal."""
    (payload,) = payloads
    return _deflate(MarketBody(v=VERSION, kind=MARKET, peer=peer, round=round_number, payload=payload), decode_market)


def decode_market(data: bytes) -> tuple[str, int, tuple[bytes]]:
    """Peer, round and the message, which is not read here. Raises WireRefusal."""
    body = _decode(_inflate(data), MarketBody)
    return body.peer, body.round, (body.payload,)


ENCODE: dict[Kind, Callable[..., bytes]] = {
    GROUPS: encode_body,
    PROPOSALS: encode_proposals,
    VERSIONS: encode_versions,
    MARKET: encode_market,
}
DECODE: dict[Kind, Callable[[bytes], tuple[str, int, tuple[Any, ...]]]] = {
    GROUPS: decode_body,
    PROPOSALS: decode_proposals,
    VERSIONS: decode_versions,
    MARKET: decode_market,
}
"""Peer, round, and the groups, the problems, the manifest or the message to the market."""


def encode_feedback(groups: Sequence[ScoredGroup], *, round_number: int) -> bytes:
    """Outcomes of 1..MAX_ITEMS groups for the proposer of their problems. Raises WireRefusal: none is judged."""
    outcomes = [
        ProblemOutcome(
            problem=bytes.fromhex(scored.group.problem.id),
            attempts=sum(verdict.trainable for verdict in scored.verdicts),
            success=min(max(scored.success, 0.0), 1.0),
        )
        for scored in groups
        if scored.success is not None
    ]
    data = msgspec.msgpack.encode(FeedbackBody(v=VERSION, kind=FEEDBACK, round=round_number, outcomes=outcomes))
    decode_feedback(data)
    return data


def decode_feedback(data: bytes) -> FeedbackBody:
    """Raises WireRefusal."""
    return _decode(data, FeedbackBody, MAX_FEEDBACK)


def largest(
    items: Sequence[Item], encode: Callable[[Sequence[Item]], bytes], most: int = MAX_BODY
) -> tuple[Sequence[Item], bytes]:
    """The first of `items` that fit into a body of at most `most` bytes, without those that cannot be sent at all, and
    the body. Nothing when not one fits."""
    while items:
        try:
            body = encode(items)
        except WireRefusal:
            sendable: list[Item] = [item for item in items if _encodes(item, encode)]
            items = sendable if len(sendable) < len(items) else items[: len(items) // 2]
        else:
            if len(body) <= most:
                return items, body
            items = items[: len(items) // 2]
    return (), b""


def _encodes(item: Item, encode: Callable[[Sequence[Item]], bytes]) -> bool:
    try:
        encode([item])
    except WireRefusal:
        return False
    return True


def claimed(problem: Problem, proposer: str, standing: Standing = Standing.CLAIMED) -> Problem:
    """The problem as a proposer's invention: its expected values are claims and its reference stays at home."""
    return replace(problem, source=Source.PROPOSER, standing=standing, reference=None, proposer=proposer)


def encode_header(header: Header) -> bytes:
    """Raises WireRefusal for a header that no peer would read."""
    data = msgspec.msgpack.encode(header)
    decode_header(data)
    return data


def decode_header(data: bytes) -> Header:
    """Raises WireRefusal."""
    return _decode(data, Header, MAX_HEADER)


def body_digest(data: bytes) -> bytes:
    """[32] bytes that a header names a served body by."""
    return hashlib.sha256(data).digest()


def _decode(data: bytes, schema: type[Schema], most: int = MAX_INFLATED) -> Schema:
    """Check the version first: a newer peer is refused as newer, not as malformed."""
    if len(data) > most:
        raise WireRefusal("size", f"{len(data)} bytes, above {most}")
    try:
        version = msgspec.msgpack.decode(data, type=Versioned).v
        if version != VERSION:
            raise WireRefusal("version", f"this node reads version {VERSION}, not {version}")
        return msgspec.msgpack.decode(data, type=schema)
    except UNDECODABLE as error:
        raise WireRefusal("schema", str(error)) from error


def _deflate(body: msgspec.Struct, decode: Callable[[bytes], Any]) -> bytes:
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


def _inflate(data: bytes) -> bytes:
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


def _wire_completion(completion: Completion) -> WireCompletion:
    count = len(completion.token_ids)
    if len(completion.logprobs) != count or not all(-math.inf < nats < ROUNDING for nats in completion.logprobs):
        raise WireRefusal("logprobs", "one finite log-prob for each token")
    # Half precision has no room below LOWEST_LOGPROB.
    nats = [min(0.0, max(LOWEST_LOGPROB, value)) for value in completion.logprobs]
    try:
        ids = struct.pack(f"<{count}I", *completion.token_ids)
    except struct.error as error:
        raise WireRefusal("schema", "a token id outside u32") from error
    return WireCompletion(
        text=completion.text, ids=ids, logprobs=struct.pack(f"<{count}e", *nats), finished=completion.finished
    )


def _completion(wire: WireCompletion) -> Completion:
    _check_text(wire.text)
    count, rest = divmod(len(wire.ids), 4)
    if rest or len(wire.logprobs) != 2 * count:
        raise WireRefusal("logprobs", "one for each token")
    logprobs = struct.unpack(f"<{count}e", wire.logprobs)
    if not all(LOWEST_LOGPROB <= value <= 0 for value in logprobs):  # NaN holds no bound
        raise WireRefusal("logprobs", "not finite, or above zero")
    return Completion(
        text=wire.text, token_ids=struct.unpack(f"<{count}I", wire.ids), logprobs=logprobs, finished=wire.finished
    )


def _check_text(*texts: str) -> None:
    if any(len(text.encode("utf-8")) > MAX_TEXT for text in texts):
        raise WireRefusal("size", f"a text of more than {MAX_TEXT} bytes")
