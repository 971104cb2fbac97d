"""A policy and its optimiser on disk, in safetensors: nothing that is read can run code. And its fingerprint.

Of a policy that learns through an adapter only that is kept, with the name and digest of the model it belongs to.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import copy
import dataclasses
import json
import operator
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

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

MODEL, ADAPTER, BASE, OPTIMIZER = "model", "adapter", "base.json", "optimizer.safetensors"
UNREADABLE = (OSError, RuntimeError, SafetensorError, ValueError, KeyError, TypeError)


def save_policy(policy: LoadedModel, optimizer: torch.optim.Optimizer, folder: Path) -> None:
    """`folder/model` as `from_pretrained` reads it, or `folder/adapter` as peft does; the moments beside it."""
    if policy.base is not None:
        save_adapter(policy.model, folder / ADAPTER)
        (folder / ADAPTER / BASE).write_text(json.dumps(dataclasses.asdict(policy.base)))
    else:
        with without_progress_bars():
            policy.model.save_pretrained(folder / MODEL)
        policy.tokenizer.save_pretrained(folder / MODEL)
    state = cast("dict[int, dict[str, Tensor]]", optimizer.state_dict()["state"])
    moments = {f"{index}.{name}": value for index, entry in state.items() for name, value in entry.items()}
    save_file(moments, folder / OPTIMIZER)


def load_policy(policy: LoadedModel, optimizer: torch.optim.Optimizer, folder: Path) -> None:
    """Become bit for bit what was saved. Learning rate and the like stay as configured. Raises CheckpointError."""
    try:
        if policy.base is not None:
            check_base(policy.base, folder / ADAPTER)
            load_adapter(policy.model, folder / ADAPTER)
        else:
            _load_weights(policy.model, folder / MODEL)
        moments = load_file(folder / OPTIMIZER)
        state: dict[int, dict[str, Tensor]] = {}
        for key, value in moments.items():
            index, _, name = key.partition(".")
            state.setdefault(int(index), {})[name] = value
        parameters = [weight for group in optimizer.param_groups for weight in group["params"]]
        for index, entry in state.items():
            if index >= len(parameters) or entry["exp_avg"].shape != parameters[index].shape:
                raise ValueError("the optimiser is of another model")
        optimizer.load_state_dict(optimizer.state_dict() | {"state": state})
    except UNREADABLE as error:
        raise CheckpointError(f"the solver in {folder} cannot be read: {error}") from error


def check_base(own: Base, adapter: Path) -> None:
    """Raise CheckpointError unless the adapter in this folder was trained on the model that is loaded."""
    if (adapter.parent / MODEL).is_dir():
        raise CheckpointError(f"{adapter.parent} holds whole weights, and model.train=lora wants an adapter")
    raw = cast("dict[str, object]", json.loads((adapter / BASE).read_text()))
    saved = Base(str(raw["name"]), str(raw["digest"]))
    if saved.digest != own.digest:
        raise CheckpointError(
            f"the adapter in {adapter} was trained on {saved.name} (weights {saved.digest[:12]}), and {own.name} "
            f"(weights {own.digest[:12]}) is another model; set model.solver={saved.name}"
        )


def _load_weights(model: PreTrainedModel, folder: Path) -> None:
    """Through the same door as any model, so that whatever `save_pretrained` renamed comes back."""
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


def read_counters(path: Path, names: Sequence[str]) -> list[int]:
    """The whole numbers called `names` in a JSON object. Raises CheckpointError."""
    try:
        raw = cast("dict[str, object]", json.loads(path.read_text()))
        return [operator.index(cast(int, raw[name])) for name in names]
    except UNREADABLE as error:
        raise CheckpointError(f"{path} cannot be read: {error!r}") from error


def policy_fingerprint(policy: LoadedModel, proposer: LoadedModel | None = None) -> PolicyFingerprint:
    """Every parameter of the models as they are trained, frozen ones and an adapter's included.

    proposer: where that learns too; so a run neither loses what it learned nor takes on what was never saved.
    """
    shapes = {name: tuple(parameter.shape) for name, parameter in policy.model.named_parameters()}
    if proposer is not None:
        also = proposer.model.named_parameters()
        shapes |= {f"proposer.{name}": tuple(parameter.shape) for name, parameter in also}
    return PolicyFingerprint(policy.tokenizer_digest, shapes)
