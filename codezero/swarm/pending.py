"""Own groups, problems and withdrawals that wait to be announced, and the body the newest of them make."""

from collections import deque
from collections.abc import Container
from dataclasses import dataclass

from codezero.swarm.link import Publish
from codezero.swarm.schema import GROUPS, MAX_BODY, MAX_ITEMS, PROPOSALS, VERSION, WITHDRAWALS, Header, Kind, Refusal
from codezero.swarm.wire import (
    decode_body,
    decode_proposals,
    decode_withdrawals,
    encode_body,
    encode_proposals,
    encode_withdrawals,
)
from codezero.types import Problem, RolloutGroup


@dataclass(frozen=True, slots=True)
class Packed:
    """A body ready to be served."""

    kind: Kind
    round: int
    body: bytes
    problem_ids: tuple[str, ...]
    reward: float | None
    tokenizer: bytes

    def header(self, digest: bytes, now: float) -> Header:
        """The announcement of this body, at `now` seconds since 1970."""
        return Header(
            v=VERSION,
            kind=self.kind,
            round=self.round,
            digest=digest,
            size=len(self.body),
            codec="zlib",
            tokenizer=self.tokenizer,
            count=len(self.problem_ids),
            problems=[bytes.fromhex(name)[:16] for name in self.problem_ids[:16]],
            reward=self.reward,
            time=now,
        )


@dataclass(frozen=True, slots=True)
class Item:
    """One group, problem or withdrawal, with what its announcement will say."""

    content: RolloutGroup | Problem | str
    """Of a withdrawal the problem's id."""
    reward: float | None
    tokenizer: bytes

    @property
    def problem_id(self) -> str:
        match self.content:
            case RolloutGroup(problem=problem):
                return problem.id
            case Problem(id=problem_id):
                return problem_id
            case withdrawn:
                return withdrawn


class Pending:
    """By kind and round, the newest MAX_ITEMS that were not announced yet; older ones are dropped."""

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self._items: dict[tuple[Kind, int], deque[Item]] = {}

    def add(self, message: Publish) -> None:
        """Raises Refusal when the trainer sent what `wire` did not write."""
        waiting = self._items.setdefault((message.kind, message.round), deque(maxlen=MAX_ITEMS))
        if waiting and waiting[-1].tokenizer != message.tokenizer:  # a header names one tokenizer
            waiting.clear()
        if message.kind == GROUPS:
            rewards = message.rewards
            for content, reward in zip(decode_body(message.body), rewards, strict=True):
                waiting.append(Item(content, reward, message.tokenizer))
        elif message.kind == PROPOSALS:
            waiting.extend(Item(content, None, message.tokenizer) for content in decode_proposals(message.body)[2])
        else:
            waiting.clear()
            waiting.extend(Item(content, None, message.tokenizer) for content in decode_withdrawals(message.body)[2])

    def drop(self, problem_ids: Container[str]) -> None:
        """Problems that are not to be offered after all."""
        for (kind, _), items in self._items.items():
            if kind == PROPOSALS:
                left = [item for item in items if item.problem_id not in problem_ids]
                items.clear()
                items.extend(left)
        self._items = {key: items for key, items in self._items.items() if items}

    def forget(self, *, before: int) -> None:
        """Drop what belongs to rounds that nobody reads any more."""
        self._items = {key: items for key, items in self._items.items() if key[1] >= before}

    def pack(self, kind: Kind, *, most: int = MAX_BODY) -> Packed | None:
        """The body of the oldest round that waits, so that its last words are heard; None when nothing waits.

        The older half is left out until the rest has at most `most` bytes; None when the newest alone has more.
        """
        rounds = [key[1] for key in self._items if key[0] == kind]
        if not rounds:
            return None
        items = list(self._items.pop((kind, min(rounds))))
        while True:
            try:
                packed = self._pack(kind, min(rounds), items)
            except Refusal as refusal:
                if refusal.reason != "size" or len(items) == 1:
                    raise
            else:
                if len(packed.body) <= most:
                    return packed
                if len(items) == 1:
                    return None
            items = items[len(items) // 2 :]

    def _pack(self, kind: Kind, round_number: int, items: list[Item]) -> Packed:
        if kind == PROPOSALS:
            problems = [item.content for item in items if isinstance(item.content, Problem)]
            body = encode_proposals(problems, peer=self._peer, round_number=round_number)
        elif kind == WITHDRAWALS:
            body = encode_withdrawals([item.problem_id for item in items], peer=self._peer, round_number=round_number)
        else:
            groups = [item.content for item in items if isinstance(item.content, RolloutGroup)]
            body = encode_body(groups, peer=self._peer, round_number=round_number)
        rewards = [item.reward for item in items if item.reward is not None]
        return Packed(
            kind=kind,
            round=round_number,
            body=body,
            problem_ids=tuple(item.problem_id for item in items),
            reward=sum(rewards) / len(rewards) if rewards else None,
            tokenizer=items[-1].tokenizer,
        )
