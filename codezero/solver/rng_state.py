"""The process-wide generators of random numbers, as a part of the checkpoint.

The parts of a node have generators of their own, or seed one from a counter. What libraries draw besides (dropout of an
adapter, a back end that samples by itself) comes from the generators of Python, numpy and torch, and goes on here.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import logging
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, cast

import msgspec
import numpy as np
import torch

from codezero.errors import CheckpointError

logger = logging.getLogger(__name__)

_FILE = "generators.json"
_Word = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]


class _State(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    python_version: int
    python_words: tuple[_Word, ...]
    python_gauss: float | None
    numpy_words: Annotated[tuple[_Word, ...], msgspec.Meta(min_length=624, max_length=624)]
    numpy_position: Annotated[int, msgspec.Meta(ge=0, le=624)]
    numpy_has_gauss: Annotated[int, msgspec.Meta(ge=0, le=1)]
    numpy_gauss: float
    torch: bytes
    cuda: list[bytes]
    """By device; empty where CUDA was not used."""


class GlobalGenerators:
    """See `protocols.Persistent`."""

    def save(self, folder: Path) -> None:
        version, words, gauss = random.getstate()
        _, numpy_words, position, has_gauss, numpy_gauss = cast(
            "tuple[str, np.ndarray, int, int, float]", np.random.get_state()
        )
        state = _State(
            python_version=version,
            python_words=cast("tuple[int, ...]", words),
            python_gauss=gauss,
            numpy_words=tuple(numpy_words.tolist()),
            numpy_position=position,
            numpy_has_gauss=has_gauss,
            numpy_gauss=numpy_gauss,
            torch=torch.get_rng_state().numpy().tobytes(),
            cuda=_cuda_states(),
        )
        (folder / _FILE).write_bytes(msgspec.json.encode(state))

    def load(self, folder: Path) -> None:
        path = folder / _FILE
        try:
            state = msgspec.json.decode(path.read_bytes(), type=_State)
            random.setstate((state.python_version, state.python_words, state.python_gauss))
            numpy_words = np.array(state.numpy_words, dtype=np.uint32)
            cached = (state.numpy_has_gauss, state.numpy_gauss)
            np.random.set_state(("MT19937", numpy_words, state.numpy_position, *cached))
            torch.set_rng_state(_tensor(state.torch))
            for device, one in enumerate(to_restore(state.cuda, _cuda_devices())):
                torch.cuda.set_rng_state(_tensor(one), device)
        except (OSError, msgspec.MsgspecError, ValueError, TypeError, OverflowError, RuntimeError) as error:
            raise CheckpointError(f"{path} cannot be read: {error}") from error


def to_restore(saved: Sequence[bytes], devices: int) -> Sequence[bytes]:
    """The CUDA states to set: all, or none where the devices are not as many as they were."""
    if len(saved) == devices:
        return saved
    logger.info("the checkpoint was written with %d CUDA devices and %d are used here", len(saved), devices)
    return ()


def _cuda_devices() -> int:
    """0 as long as this process has not used CUDA: asking for more would start it."""
    return torch.cuda.device_count() if torch.cuda.is_initialized() else 0


def _cuda_states() -> list[bytes]:
    return [torch.cuda.get_rng_state(device).numpy().tobytes() for device in range(_cuda_devices())]


def _tensor(state: bytes) -> torch.Tensor:
    """[bytes] uint8"""
    return torch.frombuffer(bytearray(state), dtype=torch.uint8)
