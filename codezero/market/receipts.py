"""Receipts: what a judge read, signed, so that anybody with its weights can redo one reading of a batch.

A leaf holds one program's scores as whole numbers of 1/GRID nats, read alone by a float64 forward pass on a CPU, which
is the same on every kernel set that was tried; a Merkle root over the leaves is signed. Two receipts that differ are
bisected to one program, which a referee reads (Verde's refereed delegation, arXiv 2502.19405, with one level).
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from codezero.errors import EvaluatorError
from codezero.system.files import Hex
from codezero.types import Status

GRID = 10_000
"""Steps of a nat. Honest readings are at most one step apart."""
MAX_ITEMS = 64
CONTEXT = b"cz1-judge"
"""Before what is signed: the signature is good for nothing else."""

Text = Annotated[str, Meta(max_length=1 << 16)]
Steps = Annotated[int, Meta(ge=-(1 << 40), le=1 << 40)]


class ReceiptItem(msgspec.Struct, frozen=True):
    """A program to judge. entry_point: None is read off the tests; empty: it reads stdin and writes stdout."""

    question: Annotated[str, Meta(min_length=1, max_length=1 << 16)]
    tests: Annotated[tuple[Text, ...], Meta(min_length=1, max_length=MAX_ITEMS)]
    completion: Text
    entry_point: Annotated[str, Meta(max_length=128)] | None = None


class Leaf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """asked: of the item. read: scores in steps of 1/GRID nats; None where the judge read nothing."""

    asked: Hex
    read: Annotated[tuple[Steps, ...], Meta(max_length=8)] | None
    status: Status


class Receipt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """judge: weights, prompts and grid. root: over the leaves."""

    judge: Hex
    count: Annotated[int, Meta(ge=1, le=MAX_ITEMS)]
    root: Hex
    v: Literal[1] = 1


class SignedReceipt(msgspec.Struct, frozen=True):
    """As `/v1/verdicts` answers it, beside the verdicts."""

    receipt: Receipt
    leaves: Annotated[tuple[Leaf, ...], Meta(min_length=1, max_length=MAX_ITEMS)]
    public_key: Annotated[str, Meta(pattern=r"^(?:[0-9a-f]{2}){1,1024}\Z")]
    """libp2p's `PublicKey` message, in hex."""
    signature: Annotated[str, Meta(pattern=r"^(?:[0-9a-f]{2}){1,1024}\Z")]

    def check(self, items: Sequence[ReceiptItem], verify: Callable[[bytes, bytes, bytes], bool]) -> None:
        """Raises EvaluatorError, unless it is signed, and of these items.

        verify: does (public key, signature, message) hold?
        """
        key, signature = bytes.fromhex(self.public_key), bytes.fromhex(self.signature)
        if not verify(key, signature, signed_bytes(self.receipt)):
            raise EvaluatorError("the signature is not of this receipt and key")
        if self.receipt.count != len(self.leaves) or tree(self.leaves)[-1][0].hex() != self.receipt.root:
            raise EvaluatorError("the leaves are not those of the root that was signed")
        if [leaf.asked for leaf in self.leaves] != [digest(item) for item in items]:
            raise EvaluatorError("the receipt is of other items than these")


def canonical(value: object) -> bytes:
    """JSON without white space, keys in order."""
    return msgspec.json.encode(value, order="sorted")


def digest(item: ReceiptItem) -> str:
    """64 hex digits."""
    return hashlib.sha256(canonical(item)).hexdigest()


def signed_bytes(value: msgspec.Struct, context: bytes = CONTEXT) -> bytes:
    return context + canonical(value)


def tree(leaves: Sequence[Leaf]) -> list[list[bytes]]:
    """Levels of the Merkle tree, leaves first and root last: sha256 of 0x00 leaf, of 0x01 left right.

    An odd node is carried up as it is.
    """
    levels = [[hashlib.sha256(b"\0" + canonical(leaf)).digest() for leaf in leaves]]
    while len(levels[-1]) > 1:
        row = levels[-1]
        pairs = [row[at : at + 2] for at in range(0, len(row), 2)]
        levels.append([hashlib.sha256(b"\1" + b"".join(pair)).digest() if pair[1:] else pair[0] for pair in pairs])
    return levels


def differences(one: Sequence[Leaf], other: Sequence[Leaf]) -> Iterator[int]:
    """Where two batches of the same length differ, descending only below hashes that do: log2 n + 1 pairs for one."""
    first, second = tree(one), tree(other)

    def below(level: int, at: int) -> Iterator[int]:
        if at < len(first[level]) and first[level][at] != second[level][at]:
            if level == 0:
                yield at
            else:
                yield from below(level - 1, 2 * at)
                yield from below(level - 1, 2 * at + 1)

    return below(len(first) - 1, 0)


def agree(leaf: Leaf, read: Sequence[int] | None) -> bool:
    """Are they one reading, up to a step of the grid?"""
    if leaf.read is None or read is None:
        return leaf.read is read
    return len(leaf.read) == len(read) and all(abs(a - b) <= 1 for a, b in zip(leaf.read, read, strict=True))
