"""Log-probabilities of chosen tokens, the loss (TRL's with its optimiser, or one of the user's own), the learning rate.

Hidden states go through the head in chunks, never with all vocabulary x length logits at once. TRL's fused head has
kernels for this on CUDA. Elsewhere the head, a quarter of a 0.5 B model's work, skips prompts.

The prompt of a group is read once, by shared-prompt attention. All groups are laid end to end as
prompt + completion + completion + ..., without padding, and attention is computed by parts: each prompt's tokens among
themselves, each completion's to its prompt and to themselves, at the positions they would have alone. The numbers equal
those of one row at a time (a test holds them together), for a fraction of the work."""

# pyright: reportUnknownMemberType=false, reportPrivateImportUsage=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateUsage=false, reportUnknownLambdaType=false

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from subprocess import SubprocessError
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear, scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from transformers.utils import logging as hf_logging

from codezero.config import LOSSES, SolverConfig
from codezero.config.learning import named
from codezero.errors import ConfigError, ModelError, translated
from codezero.models import isolate
from codezero.models.chat import pad
from codezero.models.decoders import PASSED_ON, why_not_plain
from codezero.models.device import compiles_kernels, ran_out_of_memory
from codezero.models.load import LoadedModel
from codezero.solver.batch import Pair, Rows
from codezero.system.plugins import blamed, load_object

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from trl import GRPOTrainer


@dataclass(frozen=True, slots=True)
class LossInputs:
    """The rows of one forward pass. Those of advantage 0 are in none, unless solver.kl_beta is set: their loss is 0."""

    logprobs: Float[Tensor, "rows tokens"]  # under the policy, with gradient; anything beyond a completion's end
    old_logprobs: Float[Tensor, "rows tokens"]  # under the policy in the ratio's denominator
    reference_logprobs: Float[Tensor, "rows tokens"] | None  # of the initial model; None without solver.kl_beta
    advantages: Float[Tensor, "rows tokens"]  # of its row, times the importance weight of an earlier policy's token
    mask: Float[Tensor, "rows tokens"]  # 1 for a token, 0 beyond the completion's end
    completion_ids: Int[Tensor, "rows tokens"]  # for a loss that asks another model about them
    prompt_ids: Int[Tensor, "rows prompt"]  # padded on the left
    prompt_mask: Int[Tensor, "rows prompt"]  # 1 for a token


def own_loss(spec: Any) -> Callable[[dict[str, Tensor], Tensor], Tensor]:
    """`solver.loss_function`, called with `collate`'s tensors and the log-probabilities of one pass.

    A step takes several passes, and ranks share them. What the function makes of one counts as a mean over its tokens:
    it is weighed by their share of the step's. A mean over rows is therefore that of the step only about. Raises
    ConfigError, also for what is no number with a gradient."""
    what = f"solver.loss_function={named(spec)}"
    function = load_object(spec, "solver.loss_function", ("__call__",), LOSSES)

    def loss(inputs: dict[str, Tensor], logprobs: Tensor) -> Tensor:
        old, mask = inputs["old_per_token_logps"], inputs["completion_mask"].to(logprobs.dtype)
        advantages = inputs["advantages"]
        pushes = advantages.unsqueeze(1) if advantages.dim() == 1 else advantages
        read = (inputs[name] for name in ("completion_ids", "prompt_ids", "prompt_mask"))
        given = LossInputs(logprobs, old, inputs.get("ref_per_token_logps"), pushes * mask, mask, *read)
        try:
            value = function(given)
        except (Exception, SystemExit) as error:
            if ran_out_of_memory(error):  # smaller passes follow
                raise
            with blamed(ConfigError, what):
                raise
        if not (isinstance(value, Tensor) and value.dim() == 0 and value.requires_grad):
            kind = type(value).__name__
            raise ConfigError(f"{what} returned a {kind}; a loss is a tensor of one number that has a gradient")
        return value

    return loss


def learning_rate(config: SolverConfig, steps: int) -> float:
    """rate / (1 + steps / settle_steps): its sum has no bound, so a run never stops learning; that of its squares has
    one, so the policy comes to rest (Robbins & Monro 1951). Constant when `settle_steps` is 0."""
    return config.learning_rate / (1 + steps / config.settle_steps if config.settle_steps else 1)


def make_trainer(
    policy: LoadedModel, config: SolverConfig, half: torch.dtype, reference: PreTrainedModel | None
) -> GRPOTrainer:
    """TRL's, for its loss and optimiser: it writes nothing, prints nothing and never generates. For a policy that
    computes in `half`, which on CUDA may have 16 bits. reference: of the KL term."""
    from datasets import Dataset  # nobody waits for these before something is learned
    from trl import GRPOConfig, GRPOTrainer
    from trl.trainer.utils import add_fused_lm_head

    on_cuda = policy.device.type == "cuda"
    isolate()  # for who uses it without the commands
    hf_logging.disable_progress_bar()  # of writing shards
    with tempfile.TemporaryDirectory() as nowhere:
        settings = GRPOConfig(
            nowhere,
            loss_type="dapo",
            epsilon=config.clip_low,
            epsilon_high=config.clip_high,
            temperature=config.temperature,
            max_completion_length=config.max_new_tokens,
            learning_rate=config.learning_rate,
            optim="adamw_bnb_8bit" if config.optimizer == "adamw_8bit" else "adamw_torch_fused",
            adam_beta1=config.betas[0],
            adam_beta2=config.betas[1],
            beta=0.0,  # set later: TRL would load a second model by name, and ours may have none
            per_device_train_batch_size=2,
            num_generations=2,
            activation_checkpointing=False,
            bf16=on_cuda and half == torch.bfloat16,
            fp16=on_cuda and half == torch.float16,
            use_cpu=policy.device.type == "cpu",
            max_steps=1,
            report_to="none",
            disable_tqdm=True,
        )
        trainer = GRPOTrainer(
            model=policy.model,
            reward_funcs=lambda **_: [],  # rewards come from the evaluator
            args=settings,
            train_dataset=Dataset.from_dict({"prompt": ["unused", "unused"]}),
            processing_class=policy.tokenizer,
        )
    for parameter in policy.model.parameters():
        if parameter.requires_grad:  # TRL makes an adapter on a quantized base bfloat16, in which small steps are lost
            parameter.data = parameter.data.float()
    if reference is not None:
        add_fused_lm_head(reference, temperature=config.temperature)
    return trainer


WHOLE = 2**24  # most logits in one piece (64 MiB in float32); forward and backward hold up to seven of that size
TILE = 2**27  # the same on CUDA, where TRL's kernels change a piece in place
TOKENS = 4096  # most tokens in one piece; fixed by `ChunkedLogProbFunction`
# settings with which a model changes its logits after the head
SCALED = ("final_logit_softcapping", "logit_scale", "output_multiplier", "lm_head_multiplier", "logits_scaling")
SHARED = "shared_prompt"  # the name of shared-prompt attention in transformers


def chosen_logprobs(
    hidden: Float[Tensor, "places width"], head: nn.Module, targets: Int[Tensor, " places"], temperature: float
) -> Float[Tensor, " places"]:
    """Nats of `targets` after hidden states, in float32; differentiable."""
    vocabulary, on_card = int(head.weight.shape[0]), hidden.device.type == "cuda"  # pyright: ignore
    piece = TILE if on_card else WHOLE
    if len(targets) * vocabulary <= WHOLE:
        return -cross_entropy(head(hidden).float() / temperature, targets, reduction="none")
    if not (on_card or any(parameter.requires_grad for parameter in head.parameters())):
        return FrozenHead.apply(hidden, head.weight, head.bias, targets, temperature)
    from trl.kernels import ChunkedLogProbFunction

    columns = max(1, piece // min(len(targets), TOKENS))
    return ChunkedLogProbFunction.apply(hidden, head.weight, head.bias, targets, temperature, columns, None, 1.0, ())[0]


class FrozenHead(torch.autograd.Function):
    """Nats of chosen tokens and their gradient for the hidden states, in one pass over pieces of the logits.

    d log p(t) / d h = (W_t - sum_v p(v) W_v) / temperature. TRL's function also serves a head that learns, and computes
    the logits again on the way back: with it an update of a 0.5 B model's adapter took 1.4 times as long on two cores.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, temperature: float
    ) -> Float[Tensor, " places"]:
        kind = hidden.device.type
        half = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else hidden.dtype
        hidden, weight, bias = hidden.to(half), weight.to(half), None if bias is None else bias.to(half)
        nats, pulls = list[Tensor](), list[Tensor]()
        places = max(1, WHOLE // len(weight))
        for states, part in zip(hidden.split(places), targets[:, None].split(places), strict=True):
            logits = linear(states, weight, bias).float().div_(temperature)
            total = logits.logsumexp(-1, keepdim=True)
            nats.append((logits.gather(-1, part) - total)[:, 0])
            if ctx.needs_input_grad[0]:  # 1 - p(t) in float32: rounded apart, a sure token's pull would be lost
                chances = logits.sub_(total).exp_()
                pull = chances.neg_().scatter_add_(-1, part, torch.ones_like(total)).to(half) @ weight
                pulls.append(pull / temperature)
        ctx.save_for_backward(*pulls)
        return torch.cat(nats)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return (grads[0][:, None] * torch.cat(ctx.saved_tensors)), None, None, None, None


def without_triton() -> str:
    """Have TRL's fused head do without Triton where that could not compile; why, or nothing."""
    if compiles_kernels():
        return ""
    from trl.kernels import chunked_logprob

    chunked_logprob._TRITON_AVAILABLE = False
    return "no C compiler or no Python.h: learning takes torch's own kernels, which are slower"


def prove_head(device: torch.device, dtype: torch.dtype) -> None:
    """Run the fused head forward and backward on a device. Raises ModelError."""
    from trl.kernels import ChunkedLogProbFunction

    hidden, weight = (torch.ones(rows, 64, dtype=dtype, device=device, requires_grad=True) for rows in (32, 1024))
    targets = torch.zeros(32, dtype=torch.long, device=device)
    what = f"{device}: the kernels of learning do not run"
    with translated(ModelError, what, RuntimeError, OSError, SubprocessError):
        ChunkedLogProbFunction.apply(hidden, weight, None, targets, 1.0, 512, None, 1.0, ())[0].sum().backward()


def completion_logprobs(
    model: PreTrainedModel, inputs: Mapping[str, Tensor], temperature: float
) -> Float[Tensor, "rows tokens"]:
    """Nats of a batch of `batch.collate`, zero beyond a row's end."""
    room = inputs["completion_ids"].size(1)
    backbone: Any = model.base_model
    hidden = backbone(
        input_ids=torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1),
        attention_mask=torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1),
        use_cache=False,
    ).last_hidden_state[:, -room - 1 : -1]
    real = inputs["completion_mask"].bool()
    head: Any = model.get_output_embeddings()
    flat = chosen_logprobs(hidden[real], head, inputs["completion_ids"][real], temperature)
    return flat.new_zeros(real.shape).masked_scatter(real, flat)


def fused_logprobs(model: PreTrainedModel, inputs: Mapping[str, Tensor]) -> Float[Tensor, "rows tokens"]:
    """`completion_logprobs` by TRL's fused head, at the temperature that it was made for."""
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    real = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    room = inputs["completion_ids"].size(1)
    labels = ids.masked_fill(real == 0, -100)
    labels[:, :-room] = -100
    return model(input_ids=ids, attention_mask=real, labels=labels, fused_lm_head=True).log_probs[:, -room:]


def head_is_plain(model: PreTrainedModel) -> bool:
    """True where the model's logits are its head's output, unscaled."""
    scaled = any(getattr(model.config.get_text_config(), key, None) for key in SCALED)
    return isinstance(model.get_output_embeddings(), nn.Linear) and not scaled


def packs(model: PreTrainedModel) -> bool:
    """True where `packed_logprobs` can read this model."""
    plain = head_is_plain(model) and not why_not_plain(model) and not model.config.attention_dropout
    return model.config.model_type in PASSED_ON and plain


def compared(rows: Rows, learned: Sequence[Sequence[float]]) -> dict[int, Pair]:
    """The fresh ones of `rows` with the learner's figures, by `id`."""
    both = zip(rows, learned, strict=True)
    return {id(row): (row.logprobs, tuple(line[: len(row.logprobs)])) for row, line in both if row.fresh}


@dataclass(frozen=True, slots=True)
class Pack:
    """Groups laid end to end; `all` counts the tokens of all prompts and completions."""

    ids: Int[Tensor, " all"]
    positions: Int[Tensor, " all"]
    sources: Int[Tensor, " completed"]  # the place whose output predicts each token of the completions
    targets: Int[Tensor, " completed"]
    prompts: Int[Tensor, "groups prompt"]  # places; beyond a prompt's end place 0
    completions: Int[Tensor, "rows tokens"]  # places; beyond a completion's end place 0
    real: Bool[Tensor, "rows tokens"]  # is there a token?
    group: Int[Tensor, " rows"]
    order: Int[Tensor, " all"]  # where each place stands in `prompts` and `completions`, one after the other
    seen: Bool[Tensor, "rows 1 tokens prompt+tokens"]  # places that each place of a completion sees


def pack(rows: Rows, device: torch.device) -> Pack:
    """Rows with the same prompt must stand together."""
    ids, positions, sources, group = list[int](), list[int](), list[int](), list[int]()
    prompts, completions = list[range](), list[range]()
    for prompt, members in groupby(rows, key=lambda row: row.prompt_ids):
        prompts.append(range(len(ids), len(ids) + len(prompt)))
        ids += prompt
        positions += range(len(prompt))
        for row in members:
            own = range(len(ids), len(ids) + len(row.completion_ids))
            ids += row.completion_ids
            positions += range(len(prompt), len(prompt) + len(own))
            sources += [prompts[-1][-1], *own[:-1]]
            completions.append(own)
            group.append(len(prompts) - 1)
    cpu, rows_group = torch.device("cpu"), torch.tensor(group)
    (prompt_places, prompted), (completion_places, real) = pad(prompts, 0, cpu), pad(completions, 0, cpu)
    standing = torch.cat([prompted.flatten(), real.flatten()]).nonzero()[:, 0]
    order = torch.empty_like(standing)
    order[torch.cat([prompt_places.flatten(), completion_places.flatten()])[standing]] = standing
    earlier = torch.ones(real.size(1), real.size(1), dtype=torch.bool).tril()
    of_prompt = prompted[rows_group][:, None].expand(-1, real.size(1), -1)
    seen = torch.cat([of_prompt, earlier.expand(len(real), -1, -1)], -1)[:, None]
    predicted = torch.tensor([token for row in rows for token in row.completion_ids])
    walked = torch.tensor(ids), torch.tensor(positions), torch.tensor(sources), predicted
    laid = prompt_places, completion_places, real, rows_group, order, seen
    return Pack(*(tensor.to(device) for tensor in (*walked, *laid)))


def packed_logprobs(model: PreTrainedModel, rows: Rows, temperature: float) -> Float[Tensor, "rows tokens"]:
    """Nats, zero beyond a row's end. Rows with the same prompt must stand together."""
    if model.config._attn_implementation != SHARED:
        model.set_attn_implementation(SHARED)
    packed = pack(rows, model.device)
    backbone: Any = model.base_model
    hidden = backbone(
        input_ids=packed.ids[None],
        position_ids=packed.positions[None],
        attention_mask={"full_attention": None},  # what each place sees is in `pack`
        use_cache=False,
        pack=packed,
    ).last_hidden_state[0]
    head: Any = model.get_output_embeddings()
    flat = chosen_logprobs(hidden.index_select(0, packed.sources), head, packed.targets, temperature)
    return flat.new_zeros(packed.real.shape).masked_scatter(packed.real, flat)


def shared_prompt_attention(
    module: nn.Module,
    query: Float[Tensor, "1 heads all size"],
    key: Float[Tensor, "1 kv_heads all size"],
    value: Float[Tensor, "1 kv_heads all size"],
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    pack: Pack | None = None,
    **others: Any,
) -> tuple[Float[Tensor, "1 all heads size"], None]:
    """Attention of packed rows; without a `pack` that of torch."""
    if pack is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **others)
    rows = [states[0].transpose(0, 1) for states in (query, key, value)]  # [N, heads, size]
    prompt_query, prompt_key, prompt_value = (_taken(states, pack.prompts) for states in rows)
    own_query, own_key, own_value = (_taken(states, pack.completions) for states in rows)
    keys = torch.cat([prompt_key.index_select(0, pack.group), own_key], 2)
    values = torch.cat([prompt_value.index_select(0, pack.group), own_value], 2)
    shared = query.device.type == "cpu"  # elsewhere a mask and shared keys go together in no quick kernel
    if not shared:
        copies = query.size(1) // key.size(1)
        keys, values, prompt_key, prompt_value = (
            states.repeat_interleave(copies, 1) for states in (keys, values, prompt_key, prompt_value)
        )
    attend = partial(scaled_dot_product_attention, scale=scaling, enable_gqa=shared)
    of_prompts = attend(prompt_query, prompt_key, prompt_value, is_causal=True)
    of_completions = attend(own_query, keys, values, attn_mask=pack.seen)
    both = torch.cat([states.transpose(1, 2).flatten(0, 1) for states in (of_prompts, of_completions)])
    return both.index_select(0, pack.order)[None], None


def _taken(
    rows: Float[Tensor, "all heads size"], places: Int[Tensor, "rows length"]
) -> Float[Tensor, "rows heads length size"]:
    taken = rows.flatten(1).index_select(0, places.flatten())
    return taken.view(*places.shape, *rows.shape[1:]).transpose(1, 2)


AttentionInterface.register(SHARED, shared_prompt_attention)
AttentionMaskInterface.register(SHARED, sdpa_mask)
