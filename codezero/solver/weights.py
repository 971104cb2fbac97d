"""A policy and its optimiser on disk, in safetensors: nothing that is read can run code."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import contextlib
import copy
import json
import operator
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel
from transformers.utils import logging as hf_logging

from codezero.errors import CheckpointError
from codezero.models.load import LoadedModel

MODEL, OPTIMIZER = "model", "optimizer.safetensors"
UNREADABLE = (OSError, RuntimeError, SafetensorError, ValueError, KeyError, TypeError)


def save_policy(policy: LoadedModel, optimizer: torch.optim.Optimizer, folder: Path) -> None:
    """`folder/model` as `from_pretrained` reads it, and the optimiser's moments beside it."""
    with _without_progress_bars():
        policy.model.save_pretrained(folder / MODEL)
    policy.tokenizer.save_pretrained(folder / MODEL)
    state = cast("dict[int, dict[str, Tensor]]", optimizer.state_dict()["state"])
    moments = {f"{index}.{name}": value for index, one in state.items() for name, value in one.items()}
    save_file(moments, folder / OPTIMIZER)


def load_policy(policy: LoadedModel, optimizer: torch.optim.Optimizer, folder: Path) -> None:
    """Become bit for bit what was saved. Learning rate and the like stay as configured. Raises CheckpointError."""
    try:
        _load_weights(policy.model, folder / MODEL)
        moments = load_file(folder / OPTIMIZER)
        state: dict[int, dict[str, Tensor]] = {}
        for key, value in moments.items():
            index, _, name = key.partition(".")
            state.setdefault(int(index), {})[name] = value
        parameters = [one for group in optimizer.param_groups for one in group["params"]]
        for index, one in state.items():
            if index >= len(parameters) or one["exp_avg"].shape != parameters[index].shape:
                raise ValueError("the optimiser is of another model")
        optimizer.load_state_dict(optimizer.state_dict() | {"state": state})
    except UNREADABLE as error:
        raise CheckpointError(f"the solver in {folder} cannot be read: {error}") from error


def _load_weights(model: PreTrainedModel, folder: Path) -> None:
    """Through the same door as any model, so that whatever `save_pretrained` renamed comes back."""
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"{folder} has no config.json")
    # Its own config: transformers would fill a broken one up with defaults, and build a model of that size.
    options: dict[str, Any] = {"config": copy.deepcopy(model.config), "dtype": model.dtype, "use_safetensors": True}
    with _without_progress_bars():
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


@contextlib.contextmanager
def _without_progress_bars() -> Generator[None]:
    """Reading or writing a small model is not worth a bar, and a bar spoils the terminal view."""
    shown = hf_logging.is_progress_bar_enabled()
    hf_logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            hf_logging.enable_progress_bar()
