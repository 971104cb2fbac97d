"""The peak memory of a node, from shapes alone, without loading weights. And the default models, of one tokenizer.

Legend: n parameters, n_t trained ones, L layers, H hidden size, A heads x head size, K key-value heads x head size,
I intermediate size, V vocabulary; B rows of a micro-batch, S tokens of a row (prompt + completion); b bytes of a number
in the computing precision (2 or 4; on a CPU 4 for what is not stored in bfloat16).

Always allocated: weights, 4 n when all are trained (float32, see `solver.learner`), b n_frozen + 4 n_t with an
adapter; with b = 2 the copy that is sampled from, 2 n, when all of a model stored so are trained; Adam's two moments,
8 n_t, or `ADAM_8BIT` n_t; the reference of the KL term, 4 n when all are trained and nothing with an adapter; judge and
proposer, b n each, and nothing where they read a copy that is there already. Frozen linear layers in NF4 take `NF4` of
a number, and the largest of them b while it is multiplied. An update, sampling, proposing and judging are never
allocated at the same time: the largest counts. Layers with experts are counted as if every expert were used."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import functools
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import AutoConfig, Qwen2Config

from codezero.models.decoders import PASSED_ON, TOKENS_AT_ONCE, heads_of
from codezero.models.digest import place_of
from codezero.models.generation import CACHE_BUDGET
from codezero.models.likelihood import LOGIT_PIECE, TOKENS_PER_BATCH
from codezero.models.load import TINY_PARAMETERS, auto_class, cannot_load

GIB = 2**30
MARGIN = 1.1  # on everything but the process itself
# bytes of the libraries: CUDA's context; torch, TRL and the page where memory is one
PROCESS = {"cuda": 0.6 * GIB, "cpu": 0.9 * GIB, "mps": 0.9 * GIB}
PIECE = 2**24  # logits in a piece off CUDA (`solver.loss.WHOLE`; a test holds the two together)
# of the logits, alive at once in float32 where they are one piece; of a piece where there are several, under a head
# that learns or is frozen. Measured.
WHOLE_COPIES, PIECE_COPIES, FROZEN_COPIES = 4.0, 10.0, 3.0
PIECE_SCORED = 16.0  # bytes of each logit that a judge reads: float32, and what log-sum-exp makes of it
FUSED_PIECE = 4096 * 32768  # logits in a tile of TRL's fused head on CUDA, in precision b, and changed in place
# bytes of a trained number's moments; with 8 bits, float32 scales of 256 numbers each, and embeddings stay as is
ADAM, ADAM_8BIT = 8.0, 2 + 2 * 4 / 256
# bytes of a number: 4 bits, the 8-bit scale of a block of 64, and the float32 scale of 256 of these
NF4 = 0.5 + 1 / 64 + 4 / (64 * 256)


class ModelShape(NamedTuple):
    parameters: int
    layers: int
    hidden: int
    attention: int  # A: heads x head size
    keys: int  # K: key-value heads x head size
    intermediate: int
    vocabulary: int
    # (last part of the name, inputs, outputs) of each linear layer but the head: the targets of an adapter
    linear: tuple[tuple[str, int, int], ...]
    half: bool = True  # is it stored in bfloat16, and large enough to be computed in it on a CPU?
    packed: bool = True  # is a group's prompt read once by a learner?
    nf4: bool = False  # are these layers frozen in 4 bits?

    def stored(self, number: int) -> float:
        """Bytes of frozen weights."""
        packed = sum(into * out for _, into, out in self.linear) if self.nf4 else 0
        return (self.parameters - packed) * number + packed * NF4

    def unpacked(self, number: int) -> float:
        """Bytes of the widest layer while it is multiplied, where it is kept in 4 bits."""
        return float(number * max(into * out for _, into, out in self.linear)) if self.nf4 else 0.0


class Training(NamedTuple):
    adapter: int  # numbers in the adapter; 0: all weights are trained
    kl_copy: bool
    checkpointing: bool
    rows: int  # B
    moments: float = ADAM  # bytes of the optimiser's state of a trained number


class Texts(NamedTuple):
    """Longest texts, in tokens, and how many are sampled in one call."""

    prompt: int
    completion: int
    group: int  # attempts at a problem
    problems: int

    @property
    def row(self) -> int:
        return self.prompt + self.completion

    def prompts(self, rows: int) -> int:
        """Most among so many rows that lie in the order of their groups."""
        whole, rest = divmod(rows, self.group)
        return whole + bool(rest) + bool(rest > 1 and self.group % rows)


class Role(NamedTuple):
    name: str  # solver, proposer, judge or reward model; the last two's `texts` are the rows of one batch
    shape: ModelShape
    texts: Texts
    training: Training | None = None  # None: it is frozen
    shared: bool = False  # does it read frozen weights that are there already?


class Need(NamedTuple):
    """Bytes, by what they are for."""

    always: tuple[tuple[str, float], ...]
    at_times: tuple[tuple[str, float], ...]  # never two of these at once
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


def node_need(roles: Sequence[Role], *, device: str, number: int) -> Need:
    """Sum up a whole node. number: b, on a CPU of models that are stored in bfloat16."""
    always: list[tuple[str, float]] = []
    at_times: list[tuple[str, float]] = []
    for role in roles:
        name, shape, texts, training = role.name, role.shape, role.texts, role.training
        own = number if shape.half or device != "cpu" else 4
        if training is not None:
            always += _trained(name, shape, training, own)
            if shape.half and own < 4 and not training.adapter:
                always.append((f"{name}'s copy", float(own * shape.parameters)))
            size = update_bytes(shape, training, texts, device=device, number=own)
            at_times.append(("update" if name == "solver" else f"{name}'s update", size))
        elif not role.shared:
            always.append((name, shape.stored(own)))
        doing, size_of = BESIDES[name]
        at_times.append((doing, size_of(shape, texts, number=own)))
    return Need(tuple(always), tuple(at_times), PROCESS[device])


def _trained(name: str, shape: ModelShape, training: Training, number: int) -> list[tuple[str, float]]:
    """Weights, moments and the copy that the KL term compares with."""
    weights = shape.stored(number) + 4.0 * training.adapter if training.adapter else 4.0 * shape.parameters
    embedding = 0 if training.adapter else shape.vocabulary * shape.hidden  # its moments always have 32 bits
    moments = training.moments * ((training.adapter or shape.parameters) - embedding) + ADAM * embedding
    parts = [(name, weights), (f"{name}'s Adam", moments)]
    if training.kl_copy and not training.adapter:
        parts.append((f"{name}'s KL copy", 4.0 * shape.parameters))
    return parts


def update_bytes(shape: ModelShape, training: Training, texts: Texts, *, device: str, number: int) -> float:
    """The forward and backward pass of one micro-batch: gradients, kept activations, and the largest of the rest."""
    # gradients, and their copies in half precision
    gradients = (training.adapter or shape.parameters) * (4.0 + (number if number < 4 else 0))
    # of a token: two norms with three tensors each in float32; query, key, value, output and its copy; gate, up, their
    # activation and product; where a learner does not pack, peft casts the inputs of an adapter apart for each (b = 2)
    layer = 24.0 * shape.hidden + (5 * shape.attention + 4 * shape.intermediate) * number
    if number < 4:
        layer += 2 * shape.hidden * number
        cast = training.adapter and (device == "mps" or not shape.packed)
        layer += sum(into for _, into, _ in shape.linear) / shape.layers * number if cast else 0
    tokens = training.rows * texts.completion  # a group's prompt counts once
    tokens += texts.prompt * (texts.prompts(training.rows) if shape.packed else training.rows)
    kept = tokens * shape.layers * (4.0 * shape.hidden if training.checkpointing else layer)
    # one layer on its way back (half of it, measured), and all of it once more with checkpointing
    back = tokens * (1.5 if training.checkpointing else 0.5) * layer + shape.unpacked(number)
    logits = training.rows * texts.completion * shape.vocabulary
    if device == "cuda":
        pieces = float(FUSED_PIECE * number)  # the tile is as large for a small vocabulary
    else:
        copies = FROZEN_COPIES if training.adapter and shape.packed else PIECE_COPIES
        pieces = 4 * (WHOLE_COPIES * logits if logits <= PIECE else copies * PIECE)
    # the gradient of a trained head waits for the embedding's; off CUDA bitsandbytes steps an embedding beside two more
    of_head = 0 if training.adapter else 4.0 * shape.vocabulary * shape.hidden
    if device != "cuda" and training.moments < ADAM:
        of_head *= 3
    return gradients + kept + max(pieces, back, of_head)


def sampling_bytes(shape: ModelShape, texts: Texts, *, number: int) -> float:
    """All groups, or as many as the sampler's cache budget allows at once, at least one."""
    group = texts.group * texts.row * 2.0 * shape.layers * shape.keys * number
    groups = min(texts.problems, max(1, int(CACHE_BUDGET / group)))
    prefill = min(groups * texts.prompt, max(texts.prompt, TOKENS_AT_ONCE)) * _passing(shape, number)
    drawing = 16.0 * groups * texts.group * shape.vocabulary
    return groups * group * (1 + 1 / shape.layers) + max(prefill + shape.unpacked(number), drawing)


def judging_bytes(shape: ModelShape, texts: Texts, *, number: int) -> float:
    """The largest batch of reading: keys and values of all its tokens; one layer, or logits and their float32 copy."""
    tokens = min(texts.group * texts.row, max(TOKENS_PER_BATCH, texts.row))
    cache = 2.0 * shape.layers * shape.keys * number * tokens
    passing = tokens * _passing(shape, number) + shape.unpacked(number)
    return 2 * cache + max(passing, PIECE_SCORED * min(tokens * shape.vocabulary, LOGIT_PIECE))


def scoring_bytes(shape: ModelShape, texts: Texts, *, number: int) -> float:
    """The largest batch of a reward model: one layer, then the last one's states, in float32 too."""
    tokens = min(texts.group * texts.row, max(TOKENS_PER_BATCH, texts.row))
    return tokens * (_passing(shape, number) + 4.0 * shape.hidden) + shape.unpacked(number)


def _passing(shape: ModelShape, number: int) -> float:
    """Bytes of a token in the layer that it is passing through, without gradients."""
    return float(number * (4 * shape.hidden + 3 * shape.attention + 3 * shape.intermediate))


# what a model does when it does not learn
BESIDES = {
    "solver": ("sampling", sampling_bytes),
    "proposer": ("proposing", sampling_bytes),
    "judge": ("judging", judging_bytes),
    "reward model": ("judging", scoring_bytes),
}


SMALL, LARGE, THREE, SEVEN = (f"Qwen/Qwen2.5-Coder-{size}B-Instruct" for size in ("0.5", "1.5", "3", "7"))
# shapes of the default models, for profiles on a machine without the hub
KNOWN: dict[str, dict[str, Any]] = {
    name: {"hidden_size": hidden, "intermediate_size": wide, "num_hidden_layers": layers, "num_attention_heads": heads}
    | {"num_key_value_heads": pairs, "vocab_size": vocabulary, "tie_word_embeddings": name != SEVEN}
    for name, hidden, wide, layers, heads, pairs, vocabulary in (
        (SMALL, 896, 4864, 24, 14, 2, 151_936),
        (LARGE, 1536, 8960, 28, 12, 2, 151_936),
        (THREE, 2048, 11008, 36, 16, 2, 151_936),
        (SEVEN, 3584, 18944, 28, 28, 4, 152_064),
    )
}


@functools.lru_cache(16)
def shape_of(name: str, role: str) -> ModelShape:
    """Read the configuration of a directory or hub id; of a default model it is known. Raises ModelError."""
    try:
        if name in KNOWN:
            return shape_of_config(Qwen2Config(bos_token_id=None, dtype="bfloat16", **KNOWN[name]))
        return shape_of_config(AutoConfig.from_pretrained(place_of(name), trust_remote_code=False))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, AssertionError, RuntimeError) as error:
        raise cannot_load(name, role, "configuration", error) from error


def shape_of_config(config: Any) -> ModelShape:
    """Measure a model on the meta device, whose tensors have a shape and no bytes."""
    with torch.device("meta"):
        model: Any = auto_class(config).from_config(config)
    text = config.get_text_config()
    heads, pairs, size = heads_of(text)
    head = model.get_output_embeddings()
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return ModelShape(
        parameters=parameters,
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
        packed=config.model_type in PASSED_ON,
        half=config.dtype == torch.bfloat16 and parameters >= TINY_PARAMETERS,
    )
