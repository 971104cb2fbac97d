"""The peak memory of a node, from shapes alone, without loading weights. And the default models.

The default models are of one family, so that they share a tokenizer.

Legend: n parameters, n_t trained ones, L layers, H hidden size, A heads x head size, K key-value heads x head size,
I intermediate size, V vocabulary; B rows of a micro-batch, S tokens of a row (prompt + completion); b bytes of a number
in the computing precision (2 or 4).

Always allocated: weights, 4 n when all are trained (float32, see `solver.learner`), b n_frozen + 4 n_t with an
adapter; Adam's two moments, 8 n_t; the reference of the KL term, 4 n when all are trained and nothing with an adapter;
judge and proposer, b n each. Only one of the following is allocated at a time:

* an update: gradients 4 n_t; copies in half precision b n_t where b = 2; activations B S (L a + a), or with
  checkpointing B S (L 4 H + 2 a), where a layer keeps a = 24 H + 2 H [b = 2] + (5 A + 4 I) b bytes of a token (two
  norms with three tensors each in float32; query, key, value, output and its copy; gate, up, their activation and
  product); with an adapter also its inputs, outputs and sums; logits in pieces; the gradient of a trained head, 4 V H
* sampling or proposing: keys and values, 2 L K b for each token, and one layer's more while they grow; 16 V a row
* judging: keys and values of a batch, its widest layer, its logits

`MARGIN` is for the allocator's fragments, buffers of kernels, and attention that keeps its whole matrix. Layers with
experts are counted as if every expert were used.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import functools
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, Qwen2Config

from codezero.models.decoders import heads_of
from codezero.models.digest import place_of
from codezero.models.generation import CACHE_BUDGET
from codezero.models.likelihood import LOGIT_BUDGET, TOKENS_PER_BATCH
from codezero.models.load import cannot_load

GIB = 2**30
MARGIN = 1.1
"""On everything but the process itself."""
PROCESS = {"cuda": 0.6 * GIB, "cpu": 0.9 * GIB, "mps": 0.9 * GIB}
"""Bytes of the libraries: CUDA's context; torch, TRL and the page where memory is one."""
PIECE = 2**24
"""Logits in a piece off CUDA (`solver.logprobs.WHOLE`; a test holds the two together)."""
PIECE_COPIES = 7
"""Of such a piece, alive at once in its backward pass, all in float32."""
FUSED_PIECE = 4096 * 32768
"""Logits in a tile of TRL's fused head on CUDA, in precision b, and changed in place."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What the memory of a decoder depends on."""

    parameters: int
    layers: int
    hidden: int
    attention: int
    """A: heads x head size."""
    keys: int
    """K: key-value heads x head size."""
    intermediate: int
    vocabulary: int
    linear: tuple[tuple[str, int, int], ...]
    """(last part of the name, inputs, outputs) of each linear layer but the head: the targets of an adapter."""


@dataclass(frozen=True, slots=True)
class Training:
    """How the policy learns."""

    adapter: int
    """Numbers in the adapter; 0: all weights are trained."""
    leash: bool
    checkpointing: bool
    rows: int
    """B"""


@dataclass(frozen=True, slots=True)
class Texts:
    """How long texts get, in tokens, and how many are sampled in one call."""

    prompt: int
    completion: int
    group: int
    """Attempts at a problem."""
    problems: int

    @property
    def row(self) -> int:
        return self.prompt + self.completion


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes, by what they are for."""

    always: tuple[tuple[str, float], ...]
    at_times: tuple[tuple[str, float], ...]
    """Never two of these at once."""
    process: float

    @property
    def total(self) -> float:
        busiest = max((size for _, size in self.at_times), default=0.0)
        return self.process + MARGIN * (sum(size for _, size in self.always) + busiest)

    def __str__(self) -> str:
        """For example `11.2 GiB (solver 7.4, judge 2.9; update 0.9, sampling 0.6, judging 0.5)`."""
        lists = [", ".join(f"{name} {size / GIB:.1f}" for name, size in part) for part in (self.always, self.at_times)]
        return f"{self.total / GIB:.1f} GiB ({'; '.join(filter(None, lists))})"


def adapter_numbers(shape: ModelShape, rank: int, targets: Collection[str] | None) -> int:
    """A is [rank, inputs] and B [outputs, rank] beside each linear layer so named; None: beside every one."""
    return sum(rank * (into + out) for name, into, out in shape.linear if targets is None or name in targets)


def node_need(
    policy: ModelShape,
    training: Training,
    texts: Texts,
    *,
    device: str,
    number: int,
    judge: ModelShape | None = None,
    judge_rows: int = 1,
    proposer: tuple[ModelShape, Texts, Training | None] | None = None,
) -> Need:
    """Of a whole node. `number`: b; `judge_rows`: most rows of the judge's batch; `proposer`: its shape, its texts,
    and how it learns (None: it is frozen)."""
    always: list[tuple[str, float]] = [("solver", _resident(policy, training, number))]
    at_times = [
        ("update", update_bytes(policy, training, texts, device=device, number=number)),
        ("sampling", sampling_bytes(policy, texts, number=number)),
    ]
    if judge is not None:
        always.append(("judge", float(judge.parameters * number)))
        at_times.append(("judging", judging_bytes(judge, judge_rows, texts, number=number)))
    if proposer is not None:
        other, proposals, learns = proposer
        always.append(("proposer", _resident(other, learns, number) if learns else other.parameters * number))
        at_times.append(("proposing", sampling_bytes(other, proposals, number=number)))
        if learns:
            own_update = update_bytes(other, learns, proposals, device=device, number=number)
            at_times.append(("proposer's update", own_update))
    return Need(tuple(always), tuple(at_times), PROCESS[device])


def _resident(shape: ModelShape, training: Training, number: int) -> float:
    """Weights, moments and leash."""
    whole = shape.parameters * (4.0 + 8.0 + 4.0 * training.leash)
    return shape.parameters * number + 12.0 * training.adapter if training.adapter else whole


def update_bytes(shape: ModelShape, training: Training, texts: Texts, *, device: str, number: int) -> float:
    """The forward and backward pass of one micro-batch."""
    gradients = (training.adapter or shape.parameters) * (4.0 + (number if number < 4 else 0))
    activations = training.rows * texts.row * _token_bytes(shape, training, number)
    if device == "cuda":
        pieces = float(FUSED_PIECE * number)  # the tile is as large for a small vocabulary
    else:
        pieces = PIECE_COPIES * 4.0 * min(training.rows * texts.completion * shape.vocabulary, PIECE)
    # of a head that learns, before it is added to the embedding's
    of_head = 0 if training.adapter else 4.0 * shape.vocabulary * shape.hidden
    return gradients + activations + (pieces + of_head)


def _token_bytes(shape: ModelShape, training: Training, number: int) -> float:
    """Activations kept of one token, and those on their way back."""
    layer = 24.0 * shape.hidden + (5 * shape.attention + 4 * shape.intermediate) * number
    if number < 4:
        layer += 2 * shape.hidden * number
    passing = 0.0
    if training.adapter:
        layer += sum(into for _, into, _ in shape.linear) / shape.layers * number
        passing = 2.0 * sum(out for _, _, out in shape.linear) / shape.layers * number
    kept = 4.0 * shape.hidden if training.checkpointing else layer
    return shape.layers * kept + (2 if training.checkpointing else 1) * layer + passing


def sampling_bytes(shape: ModelShape, texts: Texts, *, number: int) -> float:
    """All groups, or as many as the sampler's cache budget allows at once, at least one."""
    group = texts.group * texts.row * 2.0 * shape.layers * shape.keys * number
    groups = min(texts.problems, max(1, int(CACHE_BUDGET / group)))
    prefill = groups * texts.prompt * _passing(shape, number)
    drawing = 16.0 * groups * texts.group * shape.vocabulary
    return groups * group * (1 + 1 / shape.layers) + max(prefill, drawing)


def judging_bytes(shape: ModelShape, rows: int, texts: Texts, *, number: int) -> float:
    """The largest batch of reading: keys and values of all its tokens, one layer, logits and their float32 copy."""
    tokens = min(rows * texts.row, max(TOKENS_PER_BATCH, texts.row))
    cache = 2.0 * shape.layers * shape.keys * number * tokens
    return 2 * cache + tokens * _passing(shape, number) + 4.0 * min(tokens * shape.vocabulary, LOGIT_BUDGET)


def _passing(shape: ModelShape, number: int) -> float:
    """Bytes of a token in the layer that it is passing through, without gradients."""
    return float(number * (4 * shape.hidden + 3 * shape.attention + 3 * shape.intermediate))


AUTO = "auto"
SMALL, LARGE = "Qwen/Qwen2.5-Coder-0.5B-Instruct", "Qwen/Qwen2.5-Coder-1.5B-Instruct"
LARGE_FROM = 40 * GIB
"""Memory of the whole device from which the large one is taken."""
KNOWN: dict[str, dict[str, Any]] = {
    SMALL: {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14},
    LARGE: {"hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12},
}
"""Shapes of the default models, for profiles on a machine without the hub."""


def choose_solver(total: int) -> str:
    """The default solver by the device's total bytes: what is free changes from start to start."""
    return LARGE if total >= LARGE_FROM else SMALL


@functools.lru_cache(16)
def shape_of(name: str, role: str) -> ModelShape:
    """Of a directory, a hub id, or a default model (for which nothing is read). Raises ModelError."""
    try:
        return shape_of_config(_config(name))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, SafetensorError) as error:
        raise cannot_load(name, role, "configuration", error) from error


def _config(name: str) -> Any:
    if name in KNOWN:
        return Qwen2Config(
            vocab_size=151_936, num_key_value_heads=2, tie_word_embeddings=True, bos_token_id=None, **KNOWN[name]
        )
    return AutoConfig.from_pretrained(place_of(name), trust_remote_code=False)


def shape_of_config(config: Any) -> ModelShape:
    """From a model of no substance: every tensor has a shape and no bytes."""
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(config)
    text = config.get_text_config()
    heads, pairs, size = heads_of(text)
    head = model.get_output_embeddings()
    return ModelShape(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        layers=text.num_hidden_layers,
        hidden=text.hidden_size,
        attention=heads * size,
        keys=pairs * size,
        intermediate=text.intermediate_size,
        vocabulary=text.vocab_size,
        linear=tuple(
            (path.split(".")[-1], module.in_features, module.out_features)
            for path, module in model.named_modules()
            if isinstance(module, nn.Linear) and module is not head
        ),
    )
