"""Loads a language model and its tokenizer, from a directory written by `save_pretrained` or a Hugging Face id.

Weights are read from safetensors only, and no code from the model's repository is run.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportArgumentType=false

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging as hf_logging
from transformers.utils.quantization_config import BitsAndBytesConfig

from codezero.errors import ModelChoiceError, ModelError
from codezero.models.device import choose_device, choose_precision, computes_bfloat16, prove_device, return_freed_memory
from codezero.models.digest import Base, place_of

TINY_PARAMETERS = 20_000_000
BARRED = -1e4
"""Added to the logits of ids without a text: no probability is left, and no infinity that would make 0 * inf."""
PROBE = "def f(x): return x"


@dataclass(frozen=True)
class LoadedModel:
    """A causal language model, its tokenizer, and where they run."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    name: str
    device: torch.device
    base: Base | None = None
    adapter_off: bool = False
    """Shared with a policy and read without its adapter (`lora.as_loaded`)."""
    sampled_in: torch.dtype | None = None
    """Samplers draw from a copy in this precision, which is quicker than the weights that learn; None: from these."""

    @property
    def pad_id(self) -> int:
        """Padding; never read, because attention is causal or masked."""
        return cast(int, self.tokenizer.pad_token_id)

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Ids that end a completion: the tokenizer's EOS first, then any other the model was tuned to end with."""
        eos = cast(int, self.tokenizer.eos_token_id)
        more = getattr(self.model.generation_config, "eos_token_id", None)
        listed = more if isinstance(more, list) else [] if more is None else [more]
        return tuple(dict.fromkeys((eos, *cast("list[int]", listed))))

    @property
    def barred_ids(self) -> list[int]:
        """Ids that the model has and its tokenizer has not, as embeddings are padded; they are never drawn."""
        return _ids_without_text(self.model, self.tokenizer)

    @property
    def tokenizer_digest(self) -> str:
        """64 hex digits, the same wherever token ids mean the same."""
        vocabulary = sorted(self.tokenizer.get_vocab().items(), key=lambda entry: entry[1])
        return hashlib.sha256(json.dumps(vocabulary).encode()).hexdigest()


def load_model(
    name: str,
    *,
    device: str = "auto",
    precision: str = "auto",
    role: str,
    for_training: bool = False,
    nf4: bool = False,
    thinking: str = "auto",
) -> LoadedModel:
    """The model called `name`; `role` only words the errors. nf4: its linear layers but the head in 4 bits, frozen.
    thinking: on or off where the chat template asks whether the model thinks first; auto: as the template has it.

    `precision` auto is bfloat16 where CUDA has it and float32 elsewhere, whatever the file holds; but a model that is
    stored in bfloat16, and is not tiny, is read and sampled in it on a CPU that computes in it, and on a card sampled
    in it while float32 weights learn. Without `for_training` the parameters take no gradient. Raises ModelError: one
    line with model, role and remedy.
    """
    where = choose_device(device, role)
    _check_directory(name, role)
    tokenizer = _load_tokenizer(name, role)
    if thinking != "auto":
        choice = str(thinking == "on").lower()
        tokenizer.chat_template = f"{{%- set enable_thinking = {choice} -%}}{tokenizer.chat_template}"
    dtype = choose_precision(precision, where)
    native = computes_bfloat16() if where.type == "cpu" else dtype == torch.bfloat16
    quick = precision == "auto" and native and not nf4 and _is_stored_half(name)
    if quick and not for_training:
        dtype = torch.bfloat16
    prove_device(where, dtype)
    model = _load_weights(name, role, dtype, where if nf4 else None)
    if len(tokenizer) > cast(int, model.get_input_embeddings().num_embeddings):
        raise ModelError(f"{role}: {name} has more tokens than embeddings; use the tokenizer that fits the model")
    _bar(model, _ids_without_text(model, tokenizer))
    if where.type == "cpu" and model.num_parameters() >= TINY_PARAMETERS:
        return_freed_memory()
    model.to(where)  # pyright: ignore[reportCallIssue]
    model.requires_grad_(for_training and not nf4)
    model.train(for_training)
    return LoadedModel(model, tokenizer, name, where, sampled_in=torch.bfloat16 if quick and for_training else None)


def _is_stored_half(name: str) -> bool:
    """In bfloat16, and large enough to gain by it. False for what cannot be read, which loading will say."""
    try:
        config = AutoConfig.from_pretrained(place_of(name), trust_remote_code=False)
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return config.dtype == torch.bfloat16 and sum(map(math.prod, checkpoint_shapes(config).values())) >= TINY_PARAMETERS


def _ids_without_text(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    return sorted({*range(cast(int, model.get_input_embeddings().num_embeddings))} - {*tokenizer.get_vocab().values()})


def _bar(model: PreTrainedModel, ids: Sequence[int]) -> None:
    """Give these ids no probability wherever logits are computed: sampled, judged and learned alike.

    Through the bias of the head, which all of these read. A model without one gets a buffer, which is neither a
    parameter nor saved.
    """
    head: Any = model.get_output_embeddings()
    if not ids or not isinstance(head, nn.Linear):
        return
    if getattr(head, "bias", None) is None:
        del head.bias
        head.register_buffer("bias", head.weight.new_zeros(head.out_features), persistent=False)
    with torch.no_grad():
        head.bias[[each for each in ids if each < head.out_features]] = BARRED


def checkpoint_shapes(config: PreTrainedConfig) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the tensors on disk, those that are tied to others left out."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    return {name: tuple(weight.shape) for name, weight in model.named_parameters()}


def use_threads(model: PreTrainedModel, wanted: int) -> None:
    """Give torch `wanted` CPU threads for `model`; 0: one for a tiny model, whose matrices are too small to share, else
    torch's own choice."""
    if wanted or model.num_parameters() < TINY_PARAMETERS:
        torch.set_num_threads(wanted or 1)


def _check_directory(name: str, role: str) -> None:
    """Refuse a path that cannot be a model, before it is mistaken for a hub id."""
    path = Path(place_of(name))
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelChoiceError(f"{role}: directory {name} has no config.json; give one written by save_pretrained")
    elif path.exists() or name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise ModelChoiceError(f"{role}: {name} is not a directory; give a model directory or a Hugging Face id")


def _load_tokenizer(name: str, role: str) -> PreTrainedTokenizerBase:
    try:
        tokenizer = AutoTokenizer.from_pretrained(place_of(name), trust_remote_code=False)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise cannot_load(name, role, "tokenizer", error) from error
    if not tokenizer(PROBE, add_special_tokens=False)["input_ids"]:  # files missing: some classes then know no words
        raise ModelChoiceError(f"{role}: {name} has no tokenizer; add its tokenizer.json")
    if not tokenizer.chat_template:
        raise ModelChoiceError(f"{role}: tokenizer of {name} has no chat template; use an instruction-tuned model")
    if tokenizer.eos_token_id is None:
        raise ModelChoiceError(f"{role}: tokenizer of {name} has no EOS token; use a model that can end its answer")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return cast(PreTrainedTokenizerBase, tokenizer)


def _load_weights(name: str, role: str, dtype: torch.dtype, nf4_on: torch.device | None) -> PreTrainedModel:
    """nf4_on: the device on which each layer becomes NF4 as it is read (QLoRA, Dettmers et al. 2023); None: plain."""
    hf_logging.disable_progress_bar()  # of reading and writing shards; downloads still show theirs
    options: dict[str, Any] = {}
    if nf4_on is not None:
        form = {"bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True, "bnb_4bit_compute_dtype": dtype}
        options = {"quantization_config": BitsAndBytesConfig(load_in_4bit=True, **form), "device_map": {"": nf4_on}}
    try:
        model = AutoModelForCausalLM.from_pretrained(
            place_of(name), dtype=dtype, use_safetensors=True, trust_remote_code=False, **options
        )
    except (ImportError, OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise cannot_load(name, role, "model", error) from error
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):  # a form for reading alone, through which no gradient passes
            module.support_avx512bf16_for_cpu = False
    return cast(PreTrainedModel, model)


def cannot_load(name: str, role: str, what: str, error: Exception) -> ModelError:
    """With the first line of the library's message, and the remedy. What is on this machine no further try mends."""
    local = Path(place_of(name)).exists()
    remedy = "check the id and the network, or give a local directory"
    if local:
        remedy = "check that the directory is whole (config.json, tokenizer.json, *.safetensors)"
    reason = (str(error).strip() or "no reason given").splitlines()[0][:300].rstrip(".")
    return (ModelChoiceError if local else ModelError)(f"{role}: cannot load the {what} of {name}: {reason}; {remedy}")
