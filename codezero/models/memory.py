"""How much memory a node will need at its peak, from shapes alone: no weights are loaded.

Legend: n parameters, n_t trained ones, L layers, H hidden size, A heads x head size, K key-value heads x head size,
I intermediate size, V vocabulary; B rows of a micro-batch, S tokens of a row (prompt + completion); b bytes of a number
in the computing precision (2 or 4).

Always there: weights, 4 n when all are trained (float32, see `solver.learner`), b n_frozen + 4 n_t with an adapter;
Adam's two moments, 8 n_t; the KL leash, 4 n when all are trained and nothing with an adapter; judge and proposer, b n
each. Only one of the following is there at a time:

* an update: gradients 4 n_t; copies in half precision b n_t where b = 2; activations B S (L a + a), or with
  checkpointing B S (L 4 H + 2 a), where a layer keeps a = 24 H + 2 H [b = 2] + (5 A + 4 I) b bytes of a token (two
  norms with three tensors each in float32; query, key, value, output and its copy; gate, up, their activation and
  product), and one layer's worth of gradients is on its way back; with an adapter also its inputs in precision b, and
  while a layer is passed its outputs and the sums beside the plain ones; logits in pieces, see `_logits`; the gradient
  of a head that is trained, 4 V H, before it is added
* sampling or proposing: keys and values, 2 L K b for each token, and one layer's more while they grow; 16 V a row
* judging: keys and values of a batch, its widest layer, its logits

What is left out: the allocator's fragments, buffers of kernels, attention that keeps its whole matrix (`MARGIN` is for
these), and models with experts, whose layers are counted as if every expert were used.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from codezero.models.generation import CACHE_BUDGET
from codezero.models.logprobs import LOGIT_BUDGET
from codezero.models.prefix_cache import TOKENS_PER_BATCH

GIB = 2**30
MARGIN = 1.1
"""On everything but the process itself."""
PROCESS = {"cuda": 0.6 * GIB, "cpu": 0.9 * GIB, "mps": 0.9 * GIB}
"""Bytes of the libraries: CUDA's context; torch, TRL and the page where memory is one."""
PIECE = 2**24
"""Logits in a piece off CUDA (`solver.head.WHOLE`; a test holds the two together)."""
PIECE_COPIES = 7
"""Of such a piece, alive at once in its backward pass, all in float32."""
FUSED_PIECE = 4096 * 32768
"""Logits in a tile of TRL's fused head on CUDA, in precision b, and changed in place."""


@dataclass(frozen=True, slots=True)
class Shape:
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
    """(last part of the name, inputs, outputs) of each linear layer but the head: what an adapter can be put beside."""


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
        told = [", ".join(f"{name} {size / GIB:.1f}" for name, size in part) for part in (self.always, self.at_times)]
        return f"{self.total / GIB:.1f} GiB ({'; '.join(one for one in told if one)})"


def adapter_numbers(shape: Shape, rank: int, targets: Iterable[str] | None) -> int:
    """A is [rank, inputs] and B [outputs, rank] beside each linear layer so named; None: beside every one."""
    wanted = None if targets is None else set(targets)
    return sum(rank * (into + out) for name, into, out in shape.linear if wanted is None or name in wanted)


def node_need(
    policy: Shape,
    training: Training,
    texts: Texts,
    *,
    device: str,
    number: int,
    judge: Shape | None = None,
    judge_rows: int = 1,
    proposer: Shape | None = None,
    proposals: Texts | None = None,
    proposer_training: Training | None = None,
) -> Need:
    """Of a whole node. `number`: b; `judge_rows` bounds the judge's batch; `proposals`: what the proposer is asked;
    `proposer_training`: None where it is frozen.
    """
    always: list[tuple[str, float]] = [("solver", _resident(policy, training, number))]
    at_times = [
        ("update", update_bytes(policy, training, texts, device=device, number=number)),
        ("sampling", sampling_bytes(policy, texts, number=number)),
    ]
    if judge is not None:
        always.append(("judge", float(judge.parameters * number)))
        at_times.append(("judging", judging_bytes(judge, judge_rows, texts, number=number)))
    if proposer is not None:
        asked, learns = proposals or texts, proposer_training
        always.append(("proposer", _resident(proposer, learns, number) if learns else proposer.parameters * number))
        at_times.append(("proposing", sampling_bytes(proposer, asked, number=number)))
        if learns:
            at_times.append(("proposer's update", update_bytes(proposer, learns, asked, device=device, number=number)))
    return Need(tuple(always), tuple(at_times), PROCESS[device])


def _resident(shape: Shape, training: Training, number: int) -> float:
    """Weights, moments and leash."""
    if training.adapter:
        return shape.parameters * number + 12.0 * training.adapter
    return shape.parameters * (4.0 + 8.0 + 4.0 * training.leash)


def update_bytes(shape: Shape, training: Training, texts: Texts, *, device: str, number: int) -> float:
    """Above what is always there, in the forward and backward pass of one micro-batch."""
    trained = training.adapter or shape.parameters
    gradients = trained * (4.0 + (number if number < 4 else 0))
    tokens = training.rows * texts.row
    return gradients + tokens * _token_bytes(shape, training, number) + _logits(shape, training, texts, device, number)


def _token_bytes(shape: Shape, training: Training, number: int) -> float:
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


def _logits(shape: Shape, training: Training, texts: Texts, device: str, number: int) -> float:
    """Pieces of the logits and, where the head learns, its gradient before it is added to the embedding's."""
    tokens = training.rows * texts.completion
    if device == "cuda":
        pieces = float(FUSED_PIECE * number)  # the tile is as large for a small vocabulary
    else:
        pieces = PIECE_COPIES * 4.0 * min(tokens * shape.vocabulary, PIECE)
    return pieces + (0 if training.adapter else 4.0 * shape.vocabulary * shape.hidden)


def sampling_bytes(shape: Shape, texts: Texts, *, number: int) -> float:
    """All groups, or as many as the sampler's cache budget lets be decoded at once, at least one."""
    group = texts.group * texts.row * 2.0 * shape.layers * shape.keys * number
    groups = min(texts.problems, max(1, int(CACHE_BUDGET / group)))
    prefill = groups * texts.prompt * _passing(shape, number)
    drawing = 16.0 * groups * texts.group * shape.vocabulary
    return groups * group * (1 + 1 / shape.layers) + max(prefill, drawing)


def judging_bytes(shape: Shape, rows: int, texts: Texts, *, number: int) -> float:
    """The largest batch of reading: keys and values of all its tokens, one layer, logits and their float32 copy."""
    tokens = min(rows * texts.row, max(TOKENS_PER_BATCH, texts.row))
    cache = 2.0 * shape.layers * shape.keys * number * tokens
    return 2 * cache + tokens * _passing(shape, number) + 4.0 * min(tokens * shape.vocabulary, LOGIT_BUDGET)


def _passing(shape: Shape, number: int) -> float:
    """Bytes of a token in the layer that it is passing through, without gradients."""
    return float(number * (4 * shape.hidden + 3 * shape.attention + 3 * shape.intermediate))
