"""A policy, its optimiser and the RNG state on disk; and a policy's fingerprint.

All tensors are safetensors, so nothing that is read can run code. Of a policy that learns through an adapter only the
adapter is saved, with the name and digest of its base model.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import copy
import logging
import random
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

from codezero.errors import CheckpointError
from codezero.models.digest import Base
from codezero.models.load import LoadedModel, without_progress_bars
from codezero.models.lora import load_adapter, save_adapter
from codezero.solver.manifest import PolicyFingerprint
from codezero.stats import Array
from codezero.system.state import StateFile

logger = logging.getLogger(__name__)

COUNTERS = "learner.json"
MODEL, ADAPTER, BASE, OPTIMIZER = "model", "adapter", "base.json", "optimizer.safetensors"
UNREADABLE = (OSError, RuntimeError, SafetensorError, ValueError, KeyError, TypeError)


class LearnerCounters(msgspec.Struct, frozen=True):
    """See `TrlLearner`."""

    steps: int
    skipped: int
    updates: int


def save_policy(policy: LoadedModel, optimizer: torch.optim.Optimizer, counters: LearnerCounters, folder: Path) -> None:
    """`folder/model` as `from_pretrained` reads it, or `folder/adapter` as peft does; the rest beside it."""
    if policy.base is not None:
        save_adapter(policy.model, folder / ADAPTER)
        (folder / ADAPTER / BASE).write_bytes(msgspec.json.encode(policy.base))
    else:
        with without_progress_bars():
            policy.model.save_pretrained(folder / MODEL)
        policy.tokenizer.save_pretrained(folder / MODEL)
    state = cast("dict[int, dict[str, Tensor]]", optimizer.state_dict()["state"])
    moments = {f"{index}.{name}": value for index, entry in state.items() for name, value in entry.items()}
    save_file(moments, folder / OPTIMIZER)
    (folder / COUNTERS).write_bytes(msgspec.json.encode(counters))


def load_policy(policy: LoadedModel, optimizer: torch.optim.Optimizer, folder: Path) -> LearnerCounters:
    """Become bit for bit what was saved; the learning rate stays as configured. Raises CheckpointError."""
    try:
        counters = msgspec.json.decode((folder / COUNTERS).read_bytes(), type=LearnerCounters)
        if policy.base is not None:
            check_base(policy.base, folder / ADAPTER)
            load_adapter(policy.model, folder / ADAPTER)
        else:
            _load_weights(policy.model, folder / MODEL)
        state: dict[int, dict[str, Tensor]] = {}
        for key, value in load_file(folder / OPTIMIZER).items():
            index, _, name = key.partition(".")
            state.setdefault(int(index), {})[name] = value
        parameters = [weight for group in optimizer.param_groups for weight in group["params"]]
        for index, entry in state.items():
            if index >= len(parameters) or entry["exp_avg"].shape != parameters[index].shape:
                raise ValueError("the optimiser is of another model")
        optimizer.load_state_dict(optimizer.state_dict() | {"state": state})
        return counters
    except UNREADABLE as error:
        raise CheckpointError(f"the solver in {folder} cannot be read: {error}") from error


def check_base(own: Base, adapter: Path) -> None:
    """Raise CheckpointError unless the adapter in this folder was trained on the model that is loaded."""
    if (adapter.parent / MODEL).is_dir():
        raise CheckpointError(f"{adapter.parent} holds whole weights, and model.train=lora wants an adapter")
    saved = msgspec.json.decode((adapter / BASE).read_bytes(), type=Base)
    if saved.digest != own.digest:
        raise CheckpointError(
            f"the adapter in {adapter} was trained on {saved.name} (weights {saved.digest[:12]}), and {own.name} "
            f"(weights {own.digest[:12]}) is another model; set model.solver={saved.name}"
        )


def _load_weights(model: PreTrainedModel, folder: Path) -> None:
    """By `from_pretrained`, so that whatever `save_pretrained` renamed comes back."""
    if (folder.parent / ADAPTER).is_dir():
        raise ValueError("it is an adapter; set model.train=lora")
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"{folder} has no config.json")
    # Its own config: transformers would fill a broken one up with defaults, and build a model of that size.
    options: dict[str, Any] = {"config": copy.deepcopy(model.config), "dtype": model.dtype, "use_safetensors": True}
    with without_progress_bars():
        answer = type(model).from_pretrained(folder, local_files_only=True, output_loading_info=True, **options)
    loaded, report = cast("tuple[Any, dict[str, Any]]", answer)
    if any(report[what] for what in ("missing_keys", "unexpected_keys", "mismatched_keys")):
        raise ValueError("the weights are of another model")
    model.load_state_dict(loaded.state_dict())


def policy_fingerprint(policy: LoadedModel, proposer: LoadedModel | None = None) -> PolicyFingerprint:
    """Every parameter of the models as they are trained, frozen ones and an adapter's included.

    proposer: where that learns too; so a run neither loses what it learned nor takes on what was never saved.
    """
    shapes = {name: tuple(parameter.shape) for name, parameter in policy.model.named_parameters()}
    if proposer is not None:
        also = proposer.model.named_parameters()
        shapes |= {f"proposer.{name}": tuple(parameter.shape) for name, parameter in also}
    return PolicyFingerprint(policy.tokenizer_digest, shapes)


_Word = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]


class _RngState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
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


class GlobalGenerators(StateFile[_RngState], file="generators.json", schema=_RngState):
    """The process-wide random generators of Python, numpy and torch, which libraries draw from.

    The parts of a node have generators of their own, or seed one from a counter.
    """

    def state(self) -> _RngState:
        numpy_state = cast("tuple[str, Array, int, int, float]", np.random.get_state())
        version, words, gauss = random.getstate()
        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
        return _RngState(
            version,
            words,
            gauss,
            tuple(numpy_state[1].tolist()),
            *numpy_state[2:],
            torch.get_rng_state().numpy().tobytes(),
            [state.numpy().tobytes() for state in cuda],
        )

    def restore(self, state: _RngState) -> None:
        devices = torch.cuda.device_count() if torch.cuda.is_initialized() else 0  # asking for more would start CUDA
        try:
            random.setstate((state.python_version, state.python_words, state.python_gauss))
            numpy_words = np.array(state.numpy_words, dtype=np.uint32)
            cached = (state.numpy_has_gauss, state.numpy_gauss)
            np.random.set_state(("MT19937", numpy_words, state.numpy_position, *cached))
            torch.set_rng_state(_bytes(state.torch))
            if len(state.cuda) == devices:
                torch.cuda.set_rng_state_all([_bytes(of_device) for of_device in state.cuda])
            else:
                logger.info("the checkpoint is of %d CUDA devices, and %d are used here", len(state.cuda), devices)
        except (TypeError, OverflowError, RuntimeError) as error:
            raise ValueError(str(error)) from error


def _bytes(state: bytes) -> Tensor:
    return torch.frombuffer(bytearray(state), dtype=torch.uint8)
