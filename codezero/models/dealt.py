"""Decoding by several ranks: prompts are dealt, each rank decodes its share, and what they drew is put in order."""

import random
from collections.abc import Sequence
from typing import Protocol, TypeVar

import msgspec

from codezero.models.generation import Backend, Drawn

SAMPLE = "sample"

T = TypeVar("T")


class Others(Protocol):
    """The further ranks (see `ranks.Crew`)."""

    size: int

    def tell(self, what: str, *bodies: object) -> None: ...

    def hear(self, kind: type[T]) -> list[T]: ...


class Share(msgspec.Struct, frozen=True):
    """What `Backend.draw` takes."""

    prompts: list[list[int]]
    repeats: int
    max_new_tokens: int
    temperature: float
    seed: int


class DealtDecoder:
    """See `backend.Backend`. The same seed gives the same tokens for as many ranks; for others it gives others."""

    def __init__(self, own: Backend, others: Others) -> None:
        self.own, self.others = own, others

    def draw(
        self, prompts: Sequence[Sequence[int]], repeats: int, max_new_tokens: int, temperature: float, seed: int
    ) -> list[Drawn]:
        dealt = deal(prompts, self.others.size)
        shares = [
            Share([list(prompts[i]) for i in indices], repeats, max_new_tokens, temperature, seed_of(rank, seed))
            for rank, indices in enumerate(dealt)
        ]
        self.others.tell(SAMPLE, *shares[1:])
        drawn = [draw_share(self.own, shares[0]), *self.others.hear(list[Drawn])]
        found: list[list[Drawn]] = [[] for _ in prompts]
        for indices, rows in zip(dealt, drawn, strict=True):
            for at, i in enumerate(indices):
                found[i] = rows[at * repeats : (at + 1) * repeats]
        return [row for group in found for row in group]


def draw_share(backend: Backend, share: Share) -> list[Drawn]:
    if not share.prompts:
        return []
    return backend.draw(share.prompts, share.repeats, share.max_new_tokens, share.temperature, share.seed)


def deal(prompts: Sequence[Sequence[int]], ranks: int) -> list[list[int]]:
    """Indices for each rank, long and short prompts alike."""
    ordered = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    return [ordered[rank::ranks] for rank in range(ranks)]


def seed_of(rank: int, seed: int) -> int:
    return random.Random(f"rank {rank} {seed}").getrandbits(63)
