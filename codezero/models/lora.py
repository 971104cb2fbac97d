"""LoRA: a trained adapter of low rank beside frozen weights (Hu et al. 2021, W x + alpha / rank * B A x, by peft).

The adapter is inserted into the model's own modules, so its forward pass is that of the adapted policy. Code that reads
the weights directly has to check `has_adapter` first. With the adapter switched off the model is its base again.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import contextlib
import dataclasses
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion

from codezero.config.learning import EVERY_LINEAR
from codezero.errors import ConfigError
from codezero.models.digest import Base, weights_digest
from codezero.models.load import LoadedModel

if TYPE_CHECKING:
    from peft import LoraConfig

NAME = "default"
"""Of the only adapter in a model."""
WEIGHTS = "adapter_model.safetensors"
PREFIX = "base_model.model."
"""peft's prefix of the names of tensors on disk."""


def add_adapter(
    policy: LoadedModel, *, rank: int, alpha: float, targets: Sequence[str] = (EVERY_LINEAR,), seed: int = 0
) -> LoadedModel:
    """`policy` with its weights frozen, in place, and an adapter. B starts at zero, so at first the output is the same.

    The adapter is float32 whatever the base is. Raises ConfigError for targets that the model does not have.
    """
    from peft import LoraConfig  # here and below: who has no adapter does not wait for it

    wanted = EVERY_LINEAR if EVERY_LINEAR in targets else list(targets)
    _check(policy.model, targets)
    base = Base(policy.name, weights_digest(policy.name))
    settings = LoraConfig(
        r=rank,
        lora_alpha=cast(int, alpha),
        target_modules=wanted,
        lora_dropout=0.0,  # log-probabilities of one text must not differ from call to call
        task_type="CAUSAL_LM",
    )
    policy.model.requires_grad_(False)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        policy.model.add_adapter(settings, NAME)
    for parameter in policy.model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
    settings.base_model_name_or_path = policy.name  # read by whoever loads it with peft
    return dataclasses.replace(policy, base=base)


def has_adapter(model: nn.Module) -> bool:
    """Is there an adapter in the model, beside its plain weights?"""
    return bool(getattr(model, "_hf_peft_config_loaded", False))


@contextlib.contextmanager
def without_adapter(model: nn.Module) -> Generator[None]:
    """The base model, for as long as the context is open; what was off before stays off."""
    layers = [layer for layer in _layers(model).values() if not layer.disable_adapters]
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)  # also lets it take gradients again


@contextlib.contextmanager
def as_loaded(loaded: LoadedModel) -> Generator[None]:
    """To be open while a frozen model is read: one that is the base of a policy is then without its adapter, and
    without the forward pass that a learner has wrapped for mixed precision."""
    if not loaded.adapter_off:
        yield
        return
    wrapped = loaded.model.__dict__.pop("forward", None)
    try:
        with without_adapter(loaded.model):
            yield
    finally:
        if wrapped is not None:
            loaded.model.forward = wrapped


def save_adapter(model: PreTrainedModel, folder: Path) -> None:
    """As `PeftModel.from_pretrained(base, folder)` reads it."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: value.contiguous() for name, value in _state(model).items()}
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    cast("dict[str, LoraConfig]", model.peft_config)[NAME].save_pretrained(str(folder))


def load_adapter(model: PreTrainedModel, folder: Path) -> None:
    """Copy what `save_adapter` wrote into the model's adapter. Raises ValueError when it is of another shape."""
    own, saved = _state(model), load_file(folder / WEIGHTS)
    if {name: value.shape for name, value in own.items()} != {name: value.shape for name, value in saved.items()}:
        raise ValueError("the adapter is of another shape; rank and targets must be those of the run's beginning")
    with torch.no_grad():
        for name, value in own.items():
            value.copy_(saved[name])


def plain_weights(model: PreTrainedModel) -> dict[str, Tensor]:
    """The weights by their names on disk, with an adapter multiplied out into new tensors."""
    layers = _layers(model)
    of_adapter = {
        f"{name}.{own}"
        for name, layer in layers.items()
        for own, _ in layer.named_parameters()
        if not own.startswith("base_layer.")
    }
    whole = model.state_dict().items()
    state = {name.replace(".base_layer.", "."): value for name, value in whole if name not in of_adapter}
    for name, layer in layers.items():
        weight = cast(Tensor, layer.get_base_layer().weight)
        state[f"{name}.weight"] = (weight.float() + layer.get_delta_weight(NAME).float()).to(weight.dtype).detach()
    return revert_weight_conversion(model, state)


def _layers(model: nn.Module) -> dict[str, Any]:
    """Those with an adapter, by name."""
    if not has_adapter(model):
        return {}
    from peft.tuners.tuners_utils import BaseTunerLayer

    return {name: module for name, module in model.named_modules() if isinstance(module, BaseTunerLayer)}


def _state(model: PreTrainedModel) -> dict[str, Tensor]:
    """The adapter's tensors, by their names on disk."""
    from peft import get_peft_model_state_dict

    return {PREFIX + name: value for name, value in get_peft_model_state_dict(model, adapter_name=NAME).items()}


def _check(model: PreTrainedModel, targets: Sequence[str]) -> None:
    """Raise ConfigError unless each target names linear layers that may be adapted.

    Not the head: log-probabilities are computed in pieces from its own weight.
    """
    head = model.get_output_embeddings()
    linear = ((name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear))
    known = {name.split(".")[-1] for name, module in linear if module is not head}
    if unknown := {*targets} - known - {EVERY_LINEAR}:
        raise ConfigError(
            f"model.lora_targets: {min(unknown)} names no linear layer that takes an adapter; choose {EVERY_LINEAR} "
            f"or some of: {', '.join(sorted(known))}"
        )
