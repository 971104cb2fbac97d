"""A model's weights in bfloat16 as bits, and exact deltas between two states: the gaps between the places, and the
steps of their bits.

A blob is MAGIC, a `Delta` in msgpack, which names the state that it begins at, and the sha256 of all before it, which
names the state that it leads to. A gap is of 24 bits; a step is the difference of the bits, wrapped to 16, in zigzag,
so almost all are 1 or 2. The lowest bytes of all gaps stand together, and so on, deflated with runs alone and a block
for each: so each has its own Huffman code, the high bytes cost next to nothing, and the whole is within a tenth of the
entropy of places and steps.

Why so small: a bfloat16 weight changes when its float32 master crosses a rounding boundary, so at the rates of GRPO
one in a hundred or fewer do in an update. 11 to 13 bits a changed weight, where a place and a value take 48."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import hashlib
import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
import numpy as np
import torch
from msgspec import Meta
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from codezero.errors import WeightsError, translated
from codezero.system.files import UNDECODABLE, replacing

Bits = NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class Layout:
    """The names and shapes of a model's tensors; they lie in the flat array one after the other, by name."""

    shapes: Mapping[str, tuple[int, ...]]

    @property
    def digest(self) -> str:
        """64 hex digits."""
        return hashlib.sha256(repr(sorted(self.shapes.items())).encode()).hexdigest()

    @property
    def size(self) -> int:
        """Weights in all."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def spans(self) -> Iterator[tuple[str, slice]]:
        """The place of each tensor."""
        start = 0
        for name in sorted(self.shapes):
            end = start + math.prod(self.shapes[name])
            yield name, slice(start, end)
            start = end


@dataclass(slots=True)
class Weights:
    """A host copy of a model. Only `delta.apply` changes it: bits and state together, or neither."""

    layout: Layout
    bits: Bits  # of `layout.size` bfloat16 numbers
    state: str = ""  # the digest of the delta that led here, which names where it began; at first the content

    def content(self) -> str:
        """64 hex digits: sha256 of the layout's digest and all bits."""
        digest = hashlib.sha256(self.layout.digest.encode())
        digest.update(self.bits.data)
        return digest.hexdigest()

    def copy_to(self, parameters: Mapping[str, torch.Tensor]) -> None:
        """Overwrite parameters, whatever their precision and device."""
        for name, tensor in self.tensors().items():
            parameters[name].data.copy_(tensor)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Views, not copies."""
        flat = torch.from_numpy(self.bits.view(np.int16)).view(torch.bfloat16)
        return {name: flat[span].view(self.layout.shapes[name]) for name, span in self.layout.spans()}


def layout_of(tensors: Mapping[str, torch.Tensor]) -> Layout:
    return Layout({name: tuple(tensor.shape) for name, tensor in tensors.items()})


def all_finite(bits: Bits) -> bool:
    """True where no number has all bits of its exponent set, as infinity and NaN have."""
    return not bool(((bits & 0x7F80) == 0x7F80).any())


def weights_of(tensors: Mapping[str, torch.Tensor]) -> Weights:
    """A copy of floating-point tensors, rounded to bfloat16. Raises WeightsError for others and for NaN or infinity."""
    return _rounded(layout_of(tensors), tensors.__getitem__)


def read_anchor(path: Path, expected: Layout) -> Weights:
    """The weights of a safetensors file, whose layout is checked before any tensor is read. Raises WeightsError."""
    try:
        with safe_open(path, framework="pt") as opened:
            file = cast(Any, opened)
            layout = Layout({name: tuple(file.get_slice(name).get_shape()) for name in file.keys()})  # noqa: SIM118
            if layout != expected:
                raise WeightsError(f"{path} holds the weights of another model")
            return _rounded(layout, file.get_tensor)
    except (OSError, SafetensorError, NotImplementedError) as error:  # torch converts not every type that it reads
        raise WeightsError(f"{path} cannot be read: {str(error).splitlines()[0]}") from error


def write_anchor(weights: Weights, path: Path) -> int:
    """Write a file as `from_pretrained` reads it, whole or not at all; its bytes. Raises OSError."""
    with replacing(path) as file:
        save_file(weights.tensors(), file.name, metadata={"format": "pt"})
    return path.stat().st_size


def _rounded(layout: Layout, tensor_of: Callable[[str], torch.Tensor]) -> Weights:
    bits = np.empty(layout.size, np.uint16)
    for name, span in layout.spans():
        tensor = tensor_of(name)
        if not tensor.is_floating_point():
            raise WeightsError(f"{name} is of {tensor.dtype}, not of floating-point numbers")
        rounded = tensor.detach().to("cpu", torch.bfloat16).reshape(-1)
        bits[span] = rounded.view(torch.int16).numpy().view(np.uint16)
    if not all_finite(bits):
        raise WeightsError("the weights have NaN or infinity among them")
    return Weights(layout, bits)


MAGIC = b"czd3"
CHUNK = 1 << 24  # weights that are packed and unpacked in one thread; a gap within has 24 bits
DIGEST = 32


# changed weights, and the bytes of their gaps, the lowest of all first, then of their steps
Chunk = tuple[Annotated[int, Meta(ge=0, le=CHUNK)], bytes]


class Delta(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """base: the state it begins at, as bytes."""

    base: Annotated[bytes, Meta(min_length=DIGEST, max_length=DIGEST)]
    chunks: Annotated[list[Chunk], Meta(max_length=1 << 16)]


def encode(base: Weights, bits: Bits) -> bytes:
    """The delta from `base` to other bits of its layout."""
    with ThreadPoolExecutor() as pool:  # numpy and zlib let other threads run
        chunks = list(pool.map(_pack, repeat(base.bits), repeat(bits), _parts(len(bits))))
    blob = MAGIC + msgspec.msgpack.encode(Delta(bytes.fromhex(base.state), chunks))
    return blob + hashlib.sha256(blob).digest()


def state_of(blob: bytes) -> str:
    """The state that a whole blob leads to."""
    return blob[-DIGEST:].hex()


def apply(weights: Weights, blob: bytes) -> None:
    """Bring `weights` to where the delta leads. Raises WeightsError when it begins elsewhere or any bit was changed;
    the weights are untouched then."""
    content = memoryview(blob)[:-DIGEST]
    if not blob.startswith(MAGIC):
        raise WeightsError("this is no delta of weights")
    if hashlib.sha256(content).digest() != blob[-DIGEST:]:
        raise WeightsError("the delta was cut or changed on its way; fetch it again")
    with translated(WeightsError, "the delta breaks its schema", *UNDECODABLE):
        delta = msgspec.msgpack.decode(content[len(MAGIC) :], type=Delta)
    if delta.base.hex() != weights.state:
        raise WeightsError(f"the delta begins at {delta.base.hex()[:12]}, and these weights are {weights.state[:12]}")
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


def _pack(before: Bits, after: Bits, part: slice) -> Chunk:
    old, new = before[part], after[part]
    places = np.flatnonzero(old != new)
    gaps = (np.diff(places, prepend=-1) - 1).astype("<u4")
    steps = (new[places] - old[places]).view(np.int16)
    zigzag = ((steps << 1) ^ (steps >> 15)).astype("<i2")
    planes = [*gaps.view(np.uint8).reshape(-1, 4).T[:3], *zigzag.view(np.uint8).reshape(-1, 2).T]
    deflate = zlib.compressobj(6, zlib.DEFLATED, -15, 9, zlib.Z_RLE)
    packed = [deflate.compress(plane.tobytes()) + deflate.flush(zlib.Z_SYNC_FLUSH) for plane in planes]
    return len(places), b"".join(packed) + deflate.flush()


def _unpack(bits: Bits, part: slice, chunk: Chunk) -> tuple[NDArray[np.intp], Bits]:
    """Places in the whole array, and their new bits."""
    (count, packed), inflate = chunk, zlib.decompressobj(-15)
    with translated(WeightsError, "the delta cannot be unpacked", zlib.error):
        unpacked = inflate.decompress(packed, 5 * count + 1)
    if len(unpacked) != 5 * count or not inflate.eof or inflate.unused_data:
        raise WeightsError("the delta holds more or less than its counts say")
    planes, gaps = np.frombuffer(unpacked, np.uint8).reshape(5, -1), np.zeros((count, 4), np.uint8)
    gaps[:, :3] = planes[:3].T
    places = np.cumsum(gaps.view("<u4")[:, 0] + 1, dtype=np.intp) - 1
    if places.size and places[-1] >= part.stop - part.start:
        raise WeightsError("the delta leads out of the weights")
    places += part.start
    zigzag = np.ascontiguousarray(planes[3:].T).view("<u2")[:, 0]
    after = bits[places] + ((zigzag >> 1) ^ -(zigzag & 1)).astype(np.uint16)
    if not all_finite(after):
        raise WeightsError("the delta leads to NaN or infinity")
    return places, after
