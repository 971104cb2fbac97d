"""Deterministic mutants of encoded messages: what a broken or hostile encoder sends, close enough to be read far."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import msgspec

pack, unpack = msgspec.msgpack.encode, msgspec.msgpack.decode
HEADS = bytes([*range(0x80, 0xA3), 0xC0, 0xC1, 0xC2, 0xC3, *range(0xC4, 0xE0), 0xFF])
"""First bytes of every kind of MessagePack node, most of which announce a length."""
SWAPS: list[Any] = [
    None, True, False, 0, 1, -1, 32, 33, 2**31, 2**32, 2**53 - 1, 2**53, 2**63, 2**64 - 1, -(2**63), 0.0, -0.0, 0.5,
    1e308, float("nan"), float("inf"), float("-inf"), b"", b"\0" * 16, b"\xff" * 32, b"\0" * 31, b"x" * 513,
    b"x" * 70_000, "", "h", "p", "zlib", "x" * 65_537, "\u0000", "\U0010ffff", "1" * 52, [], [[]], {}, {"v": 1},
    [None] * 70, {"": {"": {}}}, msgspec.msgpack.Ext(0x50, b"\x93\x01\x02\x03"), msgspec.msgpack.Ext(-1, b"\0" * 4),
]  # fmt: skip


def replaced(tree: Any, path: Sequence[Any], value: Any) -> Any:
    """A copy of nested dictionaries and lists with another value at a place."""
    if not path:
        return value
    copied = tree.copy()
    copied[path[0]] = replaced(tree[path[0]], path[1:], value)
    return copied


def flip(raw: bytes, random: Random) -> bytes:
    at = random.randrange(len(raw))
    return raw[:at] + bytes([raw[at] ^ 1 << random.randrange(8)]) + raw[at + 1 :]


def truncate(raw: bytes, random: Random) -> bytes:
    return raw[: random.randrange(len(raw))]


def duplicate(raw: bytes, random: Random) -> bytes:
    start, size, at = random.randrange(len(raw)), random.randrange(1, 64), random.randrange(len(raw))
    return raw[:at] + raw[start : start + size] * random.choice((1, 2, 50)) + raw[at:]


def remove(raw: bytes, random: Random) -> bytes:
    start = random.randrange(len(raw))
    return raw[:start] + raw[start + random.randrange(1, 16) :]


def relabel(raw: bytes, random: Random) -> bytes:
    """Another kind of node, or another length, where there may have been one."""
    places = [at for at, byte in enumerate(raw) if byte in HEADS]
    at = random.choice(places or [0])
    return raw[:at] + bytes([random.choice(HEADS)]) + raw[at + 1 :]


def lengthen(raw: bytes, random: Random) -> bytes:
    """A length of four bytes that promises more than there is."""
    at = random.randrange(len(raw))
    head, size = random.choice((0xC6, 0xDB, 0xDD, 0xDF)), random.choice((0, 2**16, 2**31, 2**32 - 1))
    return raw[:at] + bytes([head]) + size.to_bytes(4, "big") + raw[at:]


def nest(raw: bytes, random: Random) -> bytes:
    at = random.randrange(len(raw))
    return raw[:at] + random.choice((b"\x91", b"\x81\xa1v")) * random.choice((10, 3000)) + raw[at:]


def swap(raw: bytes, random: Random) -> bytes:
    """A node of the message becomes a value of another kind or size, is doubled, renamed or left out."""
    try:
        tree = unpack(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return flip(raw, random)
    return pack(_changed(tree, random))


def _changed(node: Any, random: Random) -> Any:
    if isinstance(node, (dict, list)) and node and random.random() < 0.9:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = random.choice(keys)
        dice = random.random()
        if dice < 0.05:
            del node[key]
        elif dice < 0.1 and isinstance(node, list):
            node += [node[key]] * random.choice((1, 31, 64))
        elif dice < 0.1:
            node[random.choice(("", "extra", "v", "Kind"))] = node.pop(key)
        else:
            node[key] = _changed(node[key], random)
        return node
    return random.choice(SWAPS)


MUTATORS: list[Callable[[bytes, Random], bytes]] = [
    flip, truncate, duplicate, remove, relabel, lengthen, nest, swap, swap, swap, swap,
]  # fmt: skip


def mutant(raw: bytes, random: Random) -> bytes:
    """`raw` after one to three changes."""
    for _ in range(random.choice((1, 1, 2, 3))):
        raw = random.choice(MUTATORS)(raw or b"\0", random)
    return raw
