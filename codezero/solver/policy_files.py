"""A policy and its optimiser on disk.

All tensors are safetensors, so nothing that is read can run code. Of a policy that learns through an adapter only the
adapter is saved, with the name and digest of its base model."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import copy
from pathlib import Path
from typing import Any, cast

import msgspec
import torch
from safetensors import SafetensorError
from torch import Tensor
from transformers import PreTrainedModel

from codezero.errors import CheckpointError, translated
from codezero.models.digest import Base
from codezero.models.load import LoadedModel, load_adapter

COUNTERS = "learner.json"
MODEL, ADAPTER, BASE, OPTIMIZER = "model", "adapter", "base.json", "optimizer.safetensors"
MOMENTS = "trainer"  # of a trainer's checkpoint: the optimiser's state, a file a rank; any number of ranks reads it
UNREADABLE = (OSError, RuntimeError, SafetensorError, ValueError, KeyError, TypeError)


class LearnerCounters(msgspec.Struct, frozen=True):
    """See `TrlLearner`."""

    steps: int
    skipped: int
    updates: int

    def write(self, folder: Path) -> None:
        (folder / COUNTERS).write_bytes(msgspec.json.encode(self))

    @staticmethod
    def read(folder: Path) -> "LearnerCounters":
        """Raises CheckpointError."""
        with translated(CheckpointError, f"the solver in {folder} cannot be read", OSError, ValueError):
            return msgspec.json.decode((folder / COUNTERS).read_bytes(), type=LearnerCounters)


def trained(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [weight for group in optimizer.param_groups for weight in group["params"]]


def moments(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The state by each weight's number and the name there, as in `state_dict`, where the 8-bit optimiser would hide
    it."""
    flat: dict[str, Tensor] = {}
    for index, weight in enumerate(trained(optimizer)):
        for name, value in optimizer.state.get(weight, {}).items():
            # the 8-bit optimiser's code tables are one tensor for all weights
            flat[f"{index}.{name}"] = value.clone() if name.startswith("qmap") else torch.as_tensor(value)
    return flat


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


def begin_with(policy: LoadedModel, adapter: Path) -> None:
    """Take what was learned in this folder, as peft or a run wrote it, into the policy's own adapter. Raises
    CheckpointError."""
    with translated(CheckpointError, f"the adapter in {adapter} cannot be used", *UNREADABLE, msgspec.MsgspecError):
        if policy.base is not None and (adapter / BASE).exists():
            check_base(policy.base, adapter)
        load_adapter(policy.model, adapter)


def read_weights(model: PreTrainedModel, folder: Path) -> dict[str, Tensor]:
    """Weights by `from_pretrained`, so that whatever `save_pretrained` renamed comes back. Raises one of UNREADABLE."""
    if (folder.parent / ADAPTER).is_dir():
        raise ValueError("it is an adapter; set model.train=lora")
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"{folder} has no config.json")
    # Its own config: transformers would fill a broken one up with defaults, and build a model of that size.
    options: dict[str, Any] = {"config": copy.deepcopy(model.config), "dtype": model.dtype, "use_safetensors": True}
    answer = type(model).from_pretrained(folder, local_files_only=True, output_loading_info=True, **options)
    loaded, report = cast("tuple[Any, dict[str, Any]]", answer)
    if any(report[what] for what in ("missing_keys", "unexpected_keys", "mismatched_keys")):
        raise ValueError("the weights are of another model")
    return loaded.state_dict()
