"""A model's weights in bfloat16 as one flat array of bits, and the digests that name them."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from codezero.errors import WeightsError
from codezero.system.files import replacing

Bits = NDArray[np.uint16]
MAX_TENSORS = 100_000
_EXPONENT = np.uint16(0x7F80)
"""All of these bits set: an infinity, or not a number."""


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
        """Where each tensor lies."""
        start = 0
        for name in sorted(self.shapes):
            end = start + math.prod(self.shapes[name])
            yield name, slice(start, end)
            start = end


@dataclass(slots=True)
class Weights:
    """A host copy of a model. Only `delta.apply` changes it: bits and state together, or neither."""

    layout: Layout
    bits: Bits
    """Of `layout.size` bfloat16 numbers."""
    state: str = ""
    """64 hex digits: the digest of the delta that led here, which names where it began; at first the content."""

    def content(self) -> str:
        """64 hex digits: sha256 of the layout's digest and all bits."""
        digest = hashlib.sha256(self.layout.digest.encode())
        digest.update(self.bits.data)
        return digest.hexdigest()

    def copy_to(self, parameters: Mapping[str, torch.Tensor]) -> None:
        """In place, whatever their precision and device."""
        for name, tensor in self.tensors().items():
            parameters[name].data.copy_(tensor)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Views, not copies."""
        flat = torch.from_numpy(self.bits.view(np.int16)).view(torch.bfloat16)
        return {name: flat[span].view(self.layout.shapes[name]) for name, span in self.layout.spans()}


def layout_of(tensors: Mapping[str, torch.Tensor]) -> Layout:
    return Layout({name: tuple(tensor.shape) for name, tensor in tensors.items()})


def all_finite(bits: Bits) -> bool:
    return not bool(((bits & _EXPONENT) == _EXPONENT).any())


def of_tensors(tensors: Mapping[str, torch.Tensor]) -> Weights:
    """A copy of floating-point tensors, rounded to bfloat16. Raises WeightsError for others and for NaN or infinity."""
    return _rounded(layout_of(tensors), tensors.__getitem__)


def read_weights(path: Path, expected: Layout | None = None) -> Weights:
    """Of a safetensors file, or of all such files of a directory that `save_pretrained` wrote.

    expected: a stranger's file has to have this layout, which is looked at before any tensor. Raises WeightsError.
    """
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    if not files:
        raise WeightsError(f"{path} has no *.safetensors; give a directory written by save_pretrained")
    try:
        with ExitStack() as stack:
            opened = [stack.enter_context(safe_open(file, framework="pt")) for file in files]
            place: dict[str, Any] = {name: file for file in opened for name in file.keys()}  # noqa: SIM118
            layout = Layout({name: tuple(file.get_slice(name).get_shape()) for name, file in place.items()})
            if len(place) > MAX_TENSORS or (expected is not None and layout != expected):
                raise WeightsError(f"{path} holds the weights of another model")
            return _rounded(layout, lambda name: place[name].get_tensor(name))
    except (OSError, SafetensorError, NotImplementedError) as error:  # torch converts not every type that it reads
        raise WeightsError(f"{path} cannot be read: {str(error).splitlines()[0]}") from error


def write_anchor(weights: Weights, path: Path) -> int:
    """As `from_pretrained` reads it, whole or not at all; the bytes. Raises OSError."""
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
