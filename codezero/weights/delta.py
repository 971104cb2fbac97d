"""What changed between two states of a model, bit for bit: the gaps between the places, and the steps of their bits.

A blob is MAGIC, a `Delta` in msgpack, which names the state that it begins at, and the sha256 of all before it, which
names the state that it leads to. A gap is of 24 bits; a step is the difference of the bits, wrapped to 16, in zigzag,
so almost all are 1 or 2. Of both each byte is a stream of its own, deflated with runs alone: so each has its own
Huffman code, the high bytes cost next to nothing, and the whole is within a tenth of the entropy of places and steps.

Why so small: a bfloat16 weight changes when its float32 master crosses a rounding boundary, so at the rates of GRPO
one in a hundred or fewer do in an update. 10 to 13 bits a changed weight, where a place and a value take 48.
"""

import hashlib
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from codezero.errors import WeightsError, WrongBaseError, translated
from codezero.weights.state import Bits, Weights, all_finite

MAGIC = b"czd2"
CHUNK = 1 << 24
"""Weights whose streams are packed and unpacked in one thread; a gap within has 24 bits."""
MAX_CHUNKS = 1 << 16
DIGEST = 32
_GAP_BYTES, _STEP_BYTES = 3, 2

_Streams = Annotated[tuple[Annotated[bytes, Meta(max_length=2 * CHUNK)], ...], Meta(min_length=5, max_length=5)]


class DeltaChunk(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """count: changed weights. streams: of the gaps, from the lowest byte on, then of the steps."""

    count: Annotated[int, Meta(ge=0, le=CHUNK)]
    streams: _Streams


class Delta(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """base: the state it begins at, as bytes."""

    base: Annotated[bytes, Meta(min_length=DIGEST, max_length=DIGEST)]
    chunks: Annotated[list[DeltaChunk], Meta(max_length=MAX_CHUNKS)]


def encode(base: Weights, bits: Bits) -> bytes:
    """The delta from `base` to other bits of its layout."""
    with ThreadPoolExecutor() as pool:  # numpy and zlib let other threads run
        chunks = list(pool.map(_pack, repeat(base.bits), repeat(bits), _parts(len(bits))))
    blob = MAGIC + msgspec.msgpack.encode(Delta(bytes.fromhex(base.state), chunks))
    return blob + hashlib.sha256(blob).digest()


def state_of(blob: bytes) -> str:
    """Where a whole blob leads."""
    return blob[-DIGEST:].hex()


def read_delta(blob: bytes) -> Delta:
    """Raises WeightsError: also when any bit was changed."""
    content = memoryview(blob)[:-DIGEST]
    if not blob.startswith(MAGIC):
        raise WeightsError("this is no delta of weights")
    if hashlib.sha256(content).digest() != blob[-DIGEST:]:
        raise WeightsError("the delta was cut or changed on its way; fetch it again")
    fault = "the delta breaks its schema"
    with translated(WeightsError, fault, msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return msgspec.msgpack.decode(content[len(MAGIC) :], type=Delta)


def apply(weights: Weights, blob: bytes) -> None:
    """Bring `weights` to where the delta leads.

    Raises WrongBaseError when it begins elsewhere, WeightsError when it is broken; the weights are untouched then.
    """
    delta = read_delta(blob)
    if delta.base.hex() != weights.state:
        raise WrongBaseError(f"the delta begins at {delta.base.hex()[:12]}, and these weights are {weights.state[:12]}")
    parts = _parts(len(weights.bits))
    if len(parts) != len(delta.chunks):
        raise WeightsError("the delta is of more or fewer weights")
    with ThreadPoolExecutor() as pool:
        changes = list(pool.map(_unpack, repeat(weights.bits), parts, delta.chunks))
    for places, bits in changes:
        weights.bits[places] = bits
    weights.state = state_of(blob)


def _parts(size: int) -> list[slice]:
    return [slice(start, min(start + CHUNK, size)) for start in range(0, size, CHUNK)]


def _pack(before: Bits, after: Bits, part: slice) -> DeltaChunk:
    old, new = before[part], after[part]
    places = np.flatnonzero(old != new)
    gaps = np.diff(places, prepend=-1) - 1
    steps = (new[places] - old[places]).view(np.int16).astype(np.int32)
    zigzag = (steps << 1) ^ (steps >> 15)
    bytes_of = [(gaps >> 8 * byte) & 255 for byte in range(_GAP_BYTES)]
    bytes_of += [(zigzag >> 8 * byte) & 255 for byte in range(_STEP_BYTES)]
    streams: list[bytes] = []
    for plane in bytes_of:
        deflate = zlib.compressobj(6, zlib.DEFLATED, -15, 9, zlib.Z_RLE)
        streams.append(deflate.compress(plane.astype(np.uint8).tobytes()) + deflate.flush())
    return DeltaChunk(len(places), tuple(streams))


def _inflated(packed: bytes, length: int) -> NDArray[np.uint8]:
    inflate = zlib.decompressobj(-15)
    with translated(WeightsError, "the delta cannot be unpacked", zlib.error):
        plane = inflate.decompress(packed, length + 1)
    if len(plane) != length or not inflate.eof or inflate.unused_data:
        raise WeightsError("a stream of the delta holds more or less than its count says")
    return np.frombuffer(plane, np.uint8)


def _unpack(bits: Bits, part: slice, chunk: DeltaChunk) -> tuple[NDArray[np.intp], Bits]:
    """The places that change, in the whole array, and what stands there afterwards."""
    planes = [_inflated(stream, chunk.count) for stream in chunk.streams]
    zigzag = _joined(planes[_GAP_BYTES:])
    places = np.cumsum(_joined(planes[:_GAP_BYTES]) + 1, dtype=np.intp) - 1
    if places.size and places[-1] >= part.stop - part.start:
        raise WeightsError("the delta leads out of the weights")
    places += part.start
    after = bits[places] + ((zigzag >> 1) ^ -(zigzag & 1).astype(np.int32)).astype(np.uint16)
    if not all_finite(after):
        raise WeightsError("the delta leads to NaN or infinity")
    return places, after


def _joined(planes: Sequence[NDArray[np.uint8]]) -> NDArray[np.int32]:
    joined = np.zeros(len(planes[0]), np.int32)
    for byte, plane in enumerate(planes):
        joined |= plane.astype(np.int32) << (8 * byte)
    return joined
