"""Records to bytes and back, within the bounds of `schema.py`.

Decoding raises WireRefusal alone, whatever the bytes. Encoding reads its own output back, so a node never announces
what its peers would refuse.
"""

import math
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import msgspec
from msgspec import structs

from codezero.swarm import schema
from codezero.swarm.schema import (
    DERIVED,
    GROUPS,
    MARKET,
    PROPOSALS,
    VERSION,
    Kind,
    WireRefusal,
    decode,
    deflate,
    inflate,
)
from codezero.types import Completion, Item, Problem, RolloutGroup, ScoredGroup, Source, Standing, problem_id

Sent = TypeVar("Sent")
ROUNDING = 1e-3
"""How far above zero arithmetic may leave a log-prob; it is sent as zero."""


def encode_body(groups: Sequence[RolloutGroup], *, peer: str, round_number: int) -> bytes:
    """The body of 1..MAX_ITEMS groups of `peer`. The sender is held to the bounds too: raises WireRefusal."""
    if any(group.peer_id != peer for group in groups):
        raise WireRefusal("owner", "a node publishes only what it sampled")
    sent = [(group.problem, group.policy_step, [*map(_wire_completion, group.completions)]) for group in groups]
    if not (environment := _derived([group.problem for group in groups])):
        wired = [schema.WireGroup(_wire_problem(problem), step, attempts) for problem, step, attempts in sent]
        return deflate(schema.GroupsBody(VERSION, GROUPS, peer, round_number, wired), decode_body)
    items = [schema.WireItemGroup(_wire_item(problem), step, attempts) for problem, step, attempts in sent]
    return deflate(schema.ItemGroupsBody(DERIVED, GROUPS, peer, round_number, *environment, items), decode_body)


def decode_body(data: bytes) -> tuple[str, int, tuple[RolloutGroup, ...]]:
    """Peer, round, and that peer's groups of that round. Raises WireRefusal.

    Of a problem that is derived only `id`, `source`, `level` and `item` are there; `derive` gives the rest.
    """
    body = decode(inflate(data), schema.GroupsBody, schema.ItemGroupsBody)
    if isinstance(body, schema.ItemGroupsBody):
        problems = [_item(body, group.item) for group in body.groups]
    else:
        problems = [_problem(group.problem) for group in body.groups]
    groups = tuple(
        RolloutGroup(problem, tuple(map(_completion, group.completions)), body.peer, body.round, group.policy_step)
        for problem, group in zip(problems, body.groups, strict=True)
    )
    return body.peer, body.round, groups


def encode_proposals(problems: Sequence[Problem], *, peer: str, round_number: int) -> bytes:
    """The body of 1..MAX_ITEMS problems that `peer` offers. Raises WireRefusal."""
    if environment := _derived(problems):
        items = schema.ItemsBody(DERIVED, PROPOSALS, peer, round_number, *environment, [*map(_wire_item, problems)])
        return deflate(items, decode_proposals)
    wired = [_wire_problem(problem) for problem in problems]
    return deflate(schema.ProposalsBody(VERSION, PROPOSALS, peer, round_number, wired), decode_proposals)


def decode_proposals(data: bytes) -> tuple[str, int, tuple[Problem, ...]]:
    """Peer, round, and the problems, all of them that peer's claims whatever it says. Raises WireRefusal."""
    body = decode(inflate(data), schema.ProposalsBody, schema.ItemsBody)
    if isinstance(body, schema.ItemsBody):
        return body.peer, body.round, tuple(claimed(_item(body, item), body.peer) for item in body.items)
    return body.peer, body.round, tuple(claimed(_problem(problem), body.peer) for problem in body.problems)


def encode_market(payloads: Sequence[bytes], *, peer: str, round_number: int) -> bytes:
    """The body of the one message of `peer` to the market of a round. Raises WireRefusal."""
    (payload,) = payloads
    return deflate(schema.MarketBody(VERSION, MARKET, peer, round_number, payload), decode_market)


def decode_market(data: bytes) -> tuple[str, int, tuple[bytes]]:
    """Peer, round and the message, which is not read here. Raises WireRefusal."""
    body = decode(inflate(data), schema.MarketBody)
    return body.peer, body.round, (body.payload,)


ENCODE: dict[Kind, Callable[..., bytes]] = {
    GROUPS: encode_body,
    PROPOSALS: encode_proposals,
    MARKET: encode_market,
}
DECODE: dict[Kind, Callable[[bytes], tuple[str, int, tuple[Any, ...]]]] = {
    GROUPS: decode_body,
    PROPOSALS: decode_proposals,
    MARKET: decode_market,
}
"""Peer, round, and the groups, the problems or the message to the market."""


def encode_feedback(groups: Sequence[ScoredGroup], *, round_number: int) -> bytes:
    """Outcomes of 1..MAX_ITEMS groups for the proposer of their problems. Raises WireRefusal: none is judged."""
    outcomes = [
        schema.ProblemOutcome(
            problem=bytes.fromhex(scored.group.problem.id),
            attempts=sum(verdict.trainable for verdict in scored.verdicts),
            success=min(max(scored.success, 0.0), 1.0),
        )
        for scored in groups
        if scored.success is not None
    ]
    data = msgspec.msgpack.encode(schema.FeedbackBody(VERSION, schema.FEEDBACK, round_number, outcomes))
    decode_feedback(data)
    return data


def decode_feedback(data: bytes) -> schema.FeedbackBody:
    """Raises WireRefusal."""
    return decode(data, schema.FeedbackBody, most=schema.MAX_FEEDBACK)


def largest(items: Sequence[Sent], encode: Callable[[Sequence[Sent]], bytes]) -> tuple[Sequence[Sent], bytes]:
    """The first of `items` that fit into a body, without those that cannot be sent at all, and the body. Nothing when
    not one fits."""
    while items:
        try:
            body = encode(items)
        except WireRefusal:
            sendable: list[Sent] = [item for item in items if _encodes(item, encode)]
            items = sendable if len(sendable) < len(items) else items[: len(items) // 2]
        else:
            if len(body) <= schema.MAX_BODY:
                return items, body
            items = items[: len(items) // 2]
    return (), b""


def _encodes(item: Sent, encode: Callable[[Sequence[Sent]], bytes]) -> bool:
    try:
        encode([item])
    except WireRefusal:
        return False
    return True


def claimed(problem: Problem, proposer: str, standing: Standing = Standing.CLAIMED) -> Problem:
    """The problem as a proposer's invention: its expected values are claims and its reference stays at home.

    One that is derived is nobody's invention.
    """
    if problem.item is not None:
        return replace(problem, proposer=proposer)
    return replace(problem, source=Source.PROPOSER, standing=standing, reference=None, proposer=proposer)


def environment_of(kind: Kind, items: Sequence[Any]) -> bytes:
    """[16] bytes that a header names the environment of groups or problems by; empty: of the others it names none."""
    if kind not in (GROUPS, PROPOSALS):
        return b""
    environment = _derived([item.problem for item in items] if kind == GROUPS else items)
    return environment[1][:16] if environment else b""


def _wire_problem(problem: Problem) -> schema.WireProblem:
    if not re.fullmatch("[0-9a-f]{64}", problem.id):
        raise WireRefusal("problem", "an id is 64 hex digits")
    fields: dict[str, Any] = {name: getattr(problem, name) for name in schema.WireProblem.__struct_fields__}
    fields |= {"id": bytes.fromhex(problem.id), "tests": list(problem.tests)}
    return schema.WireProblem(**fields)


def _problem(wire: schema.WireProblem) -> Problem:
    _check_text(wire.question, *wire.tests)
    if wire.id.hex() != problem_id(wire.question, wire.tests):
        raise WireRefusal("problem", "the id is not that of the question and tests")
    fields: dict[str, Any] = structs.asdict(wire) | {"id": wire.id.hex(), "tests": tuple(wire.tests)}
    return Problem(**fields)


def _derived(problems: Sequence[Problem]) -> tuple[str, bytes] | None:
    """Name and digest of the environment that these are derived from; None: they travel whole. Raises WireRefusal."""
    environments = {(problem.item.environment, problem.item.digest) if problem.item else None for problem in problems}
    if len(environments) > 1:
        raise WireRefusal("environment", "of more than one")
    named = environments.pop() if environments else None
    return (named[0], bytes.fromhex(named[1])) if named else None


def _wire_item(problem: Problem) -> schema.WireItem:
    assert problem.item is not None
    return schema.WireItem(bytes.fromhex(problem.id), problem.item.level, problem.item.index)


def _item(body: schema.ItemGroupsBody | schema.ItemsBody, wire: schema.WireItem) -> Problem:
    item = Item(body.environment, body.digest.hex(), wire.level, wire.index)
    return Problem(wire.id.hex(), "", (), "", body.environment, level=wire.level, item=item)


def _wire_completion(completion: Completion) -> schema.WireCompletion:
    count = len(completion.token_ids)
    if len(completion.logprobs) != count or not all(-math.inf < nats < ROUNDING for nats in completion.logprobs):
        raise WireRefusal("logprobs", "one finite log-prob for each token")
    # Half precision has no room below LOWEST_LOGPROB.
    nats = [min(0.0, max(schema.LOWEST_LOGPROB, value)) for value in completion.logprobs]
    try:
        ids = struct.pack(f"<{count}I", *completion.token_ids)
    except struct.error as error:
        raise WireRefusal("schema", "a token id outside u32") from error
    return schema.WireCompletion(completion.text, ids, struct.pack(f"<{count}e", *nats), completion.finished)


def _completion(wire: schema.WireCompletion) -> Completion:
    _check_text(wire.text)
    count, rest = divmod(len(wire.ids), 4)
    if rest or len(wire.logprobs) != 2 * count:
        raise WireRefusal("logprobs", "one for each token")
    logprobs = struct.unpack(f"<{count}e", wire.logprobs)
    if not all(schema.LOWEST_LOGPROB <= value <= 0 for value in logprobs):  # NaN holds no bound
        raise WireRefusal("logprobs", "not finite, or above zero")
    return Completion(wire.text, struct.unpack(f"<{count}I", wire.ids), logprobs, wire.finished)


def _check_text(*texts: str) -> None:
    if any(len(text.encode("utf-8")) > schema.MAX_TEXT for text in texts):
        raise WireRefusal("size", f"a text of more than {schema.MAX_TEXT} bytes")
