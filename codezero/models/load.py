"""Loads a language model and its tokenizer, from a directory written by `save_pretrained` or a Hugging Face id.

Weights are read from safetensors only, and no code from the model's repository is run."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportArgumentType=false

import contextlib
import dataclasses
import hashlib
import json
import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
import transformers
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers.core_model_loading import revert_weight_conversion
from transformers.utils import logging as hf_logging
from transformers.utils.quantization_config import BitsAndBytesConfig

from codezero.config.learning import EVERY_LINEAR
from codezero.errors import ConfigError, ModelChoiceError, ModelError
from codezero.models.device import choose_device, choose_precision, computes_bfloat16, prove_device, return_freed_memory
from codezero.models.digest import Base, place_of, weights_digest
from codezero.nano import WEIGHTS as EMBEDDED

if TYPE_CHECKING:
    from peft import LoraConfig

TINY_PARAMETERS = 20_000_000
BARRED = -1e4  # added to the logits of ids without a text; no infinity, which would make 0 * inf
PROBE = "def f(x): return x"
# what a damaged file, or a configuration of anybody's, may raise
BROKEN = (ImportError, OSError, ValueError, KeyError, TypeError, AssertionError, RuntimeError, SafetensorError)
CLASSIFIER = "ForSequenceClassification"  # how the names of such architectures end


@dataclass(frozen=True)
class LoadedModel:
    """A causal language model, its tokenizer, and where they run."""

    model: transformers.PreTrainedModel
    tokenizer: transformers.PreTrainedTokenizerBase
    name: str
    device: torch.device
    base: Base | None = None
    adapter_off: bool = False  # shared with a policy and read without its adapter (`as_loaded`)
    sampled_in: torch.dtype | None = None  # precision of the copy that samplers draw from; None: these weights

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
        known = {*self.tokenizer.get_vocab().values()}
        return sorted({*range(cast(int, self.model.get_input_embeddings().num_embeddings))} - known)

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
    scores: bool = False,
) -> LoadedModel:
    """The model called `name`; `role` only words the errors. nf4: its linear layers but the head in 4 bits, frozen.
    thinking: on or off where the chat template asks whether the model thinks first; auto: as the template has it.
    scores: it is a reward model, a sequence classifier with one logit.

    `precision` auto is bfloat16 where CUDA has it and float32 elsewhere, whatever the file holds. But a model that is
    stored in bfloat16, and is not tiny, is read and sampled in it on a CPU that computes in it; on a card any that is
    not tiny is sampled in it while float32 weights learn. An embedded one is on the CPU where `device` is auto. Without
    `for_training` the parameters take no gradient. Raises ModelError: one line with model, role and remedy."""
    embedded = Path(name).is_relative_to(EMBEDDED)  # launches on a card take longer than their whole step on a CPU
    where = choose_device("cpu" if embedded and device == "auto" else device, role)
    _check_directory(name, role)
    _check_head(name, role, scores)
    tokenizer = load_tokenizer(name, role)
    if thinking != "auto":
        choice = str(thinking == "on").lower()
        tokenizer.chat_template = f"{{%- set enable_thinking = {choice} -%}}{tokenizer.chat_template}"
    dtype = choose_precision(precision, where)
    native = computes_bfloat16() if where.type == "cpu" else dtype == torch.bfloat16
    quick = precision == "auto" and native and not nf4 and _gains_by_half(name, role, where)
    if quick and not for_training:
        dtype = torch.bfloat16
    prove_device(where, dtype)
    model = _load_weights(name, role, dtype, where if nf4 else None, scores)
    if len(tokenizer) > cast(int, model.get_input_embeddings().num_embeddings):
        raise ModelError(f"{role}: {name} has more tokens than embeddings; use the tokenizer that fits the model")
    sampled_in = torch.bfloat16 if quick and for_training else None
    loaded = LoadedModel(model, tokenizer, name, where, sampled_in=sampled_in)
    _bar(model, loaded.barred_ids)
    if where.type == "cpu" and model.num_parameters() >= TINY_PARAMETERS:
        return_freed_memory()
    model.to(where)  # pyright: ignore[reportCallIssue]
    model.requires_grad_(for_training and not nf4)
    model.train(for_training)
    return loaded


def _gains_by_half(name: str, role: str, where: torch.device) -> bool:
    """True for a model that is large enough to gain by bfloat16, and loses nothing or is on a card."""
    config = _read_config(name, role)
    stored = config.dtype == torch.bfloat16 or where.type == "cuda"
    return stored and sum(map(math.prod, checkpoint_shapes(config).values())) >= TINY_PARAMETERS


def _bar(model: transformers.PreTrainedModel, ids: Sequence[int]) -> None:
    """Give these ids no probability wherever logits are computed, through the bias of the head or an unsaved buffer."""
    head: Any = model.get_output_embeddings()
    if not ids or not isinstance(head, nn.Linear):
        return
    if getattr(head, "bias", None) is None:
        del head.bias
        head.register_buffer("bias", head.weight.new_zeros(head.out_features), persistent=False)
    with torch.no_grad():
        head.bias[[each for each in ids if each < head.out_features]] = BARRED


def checkpoint_shapes(config: transformers.PreTrainedConfig) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the tensors on disk, those that are tied to others left out."""
    with torch.device("meta"):
        model = auto_class(config).from_config(config, trust_remote_code=False)
    return {name: tuple(weight.shape) for name, weight in model.named_parameters()}


def auto_class(config: transformers.PreTrainedConfig) -> Any:
    """The class that makes a model of this configuration: a reward model says so in its architecture."""
    classifies = any(name.endswith(CLASSIFIER) for name in config.architectures or ())
    return transformers.AutoModelForSequenceClassification if classifies else transformers.AutoModelForCausalLM


def is_classifier(name: str, role: str) -> bool:
    """True for a directory or hub id of a sequence classifier. Raises ModelError."""
    _check_directory(name, role)
    return auto_class(_read_config(name, role)) is transformers.AutoModelForSequenceClassification


def _read_config(name: str, role: str) -> transformers.PreTrainedConfig:
    try:
        return transformers.AutoConfig.from_pretrained(place_of(name), trust_remote_code=False)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise cannot_load(name, role, "configuration", error) from error


def _check_head(name: str, role: str, scores: bool) -> None:
    """Refuse a classifier as a language model, and the other way: the missing head would be drawn at random."""
    config = _read_config(name, role)
    classifies = auto_class(config) is transformers.AutoModelForSequenceClassification
    if classifies and not scores:
        mend = "set evaluator.kind=reward_model, or name a language model"
        raise ModelChoiceError(f"{role}: {name} is a classifier, and writes nothing; {mend}")
    if scores and not classifies:
        mend = "name one whose architecture ends in " + CLASSIFIER
        raise ModelChoiceError(f"{role}: {name} is no reward model; {mend}, or set evaluator.kind=local")
    if scores and config.num_labels != 1:
        many = f"{name} has {config.num_labels} logits, and a reward model has one"
        raise ModelChoiceError(f"{role}: {many}; name another, or train it with num_labels=1")


def use_threads(model: transformers.PreTrainedModel, wanted: int) -> None:
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


def load_tokenizer(name: str, role: str) -> transformers.PreTrainedTokenizerBase:
    """Raises ModelError for one that cannot be had, or that no chat can be held with."""
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(place_of(name), trust_remote_code=False)
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
    return cast(transformers.PreTrainedTokenizerBase, tokenizer)


def _load_weights(
    name: str, role: str, dtype: torch.dtype, nf4_on: torch.device | None, scores: bool
) -> transformers.PreTrainedModel:
    """nf4_on: the device on which each layer becomes NF4 as it is read (QLoRA, Dettmers et al. 2023); None: plain."""
    hf_logging.disable_progress_bar()  # of reading and writing shards; downloads still show theirs
    options: dict[str, Any] = {}
    if nf4_on is not None:
        form = {"bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True, "bnb_4bit_compute_dtype": dtype}
        options = {"quantization_config": BitsAndBytesConfig(load_in_4bit=True, **form), "device_map": {"": nf4_on}}
    kind: Any = transformers.AutoModelForSequenceClassification if scores else transformers.AutoModelForCausalLM
    options |= {"dtype": dtype, "use_safetensors": True, "trust_remote_code": False, "output_loading_info": scores}
    try:
        model = kind.from_pretrained(place_of(name), **options)
        if scores:
            model, info = model
            if missing := info["missing_keys"]:
                raise ValueError(f"it has no {min(missing)}")
    except BROKEN as error:
        raise cannot_load(name, role, "model", error) from error
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):  # a form for reading alone, through which no gradient passes
            module.support_avx512bf16_for_cpu = False
    return cast(transformers.PreTrainedModel, model)


def cannot_load(name: str, role: str, what: str, error: Exception) -> ModelError:
    """An error with the first line of the library's message, and the remedy. What is on this machine no further try
    mends."""
    local = Path(place_of(name)).exists()
    remedy = "check the id and the network, or give a local directory"
    if local:
        remedy = "check that the directory is whole (config.json, tokenizer.json, *.safetensors)"
    reason = (str(error).strip() or "no reason given").splitlines()[0][:300].rstrip(".")
    return (ModelChoiceError if local else ModelError)(f"{role}: cannot load the {what} of {name}: {reason}; {remedy}")


NAME = "default"  # of the only adapter in a model
WEIGHTS = "adapter_model.safetensors"
PREFIX = "base_model.model."  # peft's prefix of the names of tensors on disk


def add_adapter(
    policy: LoadedModel, *, rank: int, alpha: float, targets: Sequence[str] = (EVERY_LINEAR,), seed: int = 0
) -> LoadedModel:
    """`policy` with its weights frozen, in place, and an adapter. B starts at zero, so at first the output is the same.
    The adapter is float32 whatever the base is. Raises ConfigError for targets that the model does not have."""
    from peft import LoraConfig  # here and below: who has no adapter does not wait for it

    wanted = EVERY_LINEAR if EVERY_LINEAR in targets else list(targets)
    head = policy.model.get_output_embeddings()  # unadapted: log-probabilities come in pieces from its own weight
    modules = ((name, module) for name, module in policy.model.named_modules() if isinstance(module, nn.Linear))
    linear = [name for name, module in modules if module is not head]
    known = {name.split(".")[-1] for name in linear}
    if unknown := {*targets} - known - {*linear} - {EVERY_LINEAR}:
        raise ConfigError(
            f"model.lora_targets: {min(unknown)} names no linear layer that takes an adapter; choose {EVERY_LINEAR} "
            f"or some of: {', '.join(sorted(known))}"
        )
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
    """True where the model has an adapter beside its plain weights."""
    return bool(getattr(model, "_hf_peft_config_loaded", False))


@contextlib.contextmanager
def without_adapter(model: nn.Module) -> Generator[None]:
    """The base model, for as long as the context is open; what was off before stays off."""
    layers = [layer for layer in adapted_layers(model).values() if not layer.disable_adapters]
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)  # also lets it take gradients again


def with_inputs_as_they_are(model: nn.Module, autocast: bool) -> contextlib.AbstractContextManager[None]:
    """To be open while an adapter learns under autocast: it would have its inputs in float32, which autocast turns
    back, two copies of each."""
    if not (autocast and has_adapter(model)):
        return contextlib.nullcontext()
    from peft.helpers import disable_input_dtype_casting

    return disable_input_dtype_casting(model)


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


def save_adapter(model: transformers.PreTrainedModel, folder: Path) -> None:
    """Write the adapter as `PeftModel.from_pretrained(base, folder)` reads it."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: value.contiguous() for name, value in _state(model).items()}
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    cast("dict[str, LoraConfig]", model.peft_config)[NAME].save_pretrained(str(folder))


def load_adapter(model: transformers.PreTrainedModel, folder: Path) -> None:
    """Copy what `save_adapter` wrote into the model's adapter. Raises ValueError when it is of another shape."""
    own, saved = _state(model), load_file(folder / WEIGHTS)
    if {name: value.shape for name, value in own.items()} != {name: value.shape for name, value in saved.items()}:
        raise ValueError("the adapter is of another shape; rank and targets must be those of the run's beginning")
    with torch.no_grad():
        for name, value in own.items():
            value.copy_(saved[name])


def plain_weights(model: transformers.PreTrainedModel) -> dict[str, Tensor]:
    """The weights by their names on disk, with an adapter multiplied out into new tensors."""
    layers = adapted_layers(model)
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


def adapted_layers(model: nn.Module) -> dict[str, Any]:
    """The layers with an adapter, by name."""
    if not has_adapter(model):
        return {}
    from peft.tuners.tuners_utils import BaseTunerLayer

    return {name: module for name, module in model.named_modules() if isinstance(module, BaseTunerLayer)}


def _state(model: transformers.PreTrainedModel) -> dict[str, Tensor]:
    """The adapter's tensors, by their names on disk."""
    from peft import get_peft_model_state_dict

    return {PREFIX + name: value for name, value in get_peft_model_state_dict(model, adapter_name=NAME).items()}
