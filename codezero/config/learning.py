"""Settings of what learns and what it learns from: models, solver, proposer, data."""

import bisect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from annotated_types import Ge, Gt, Interval

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

EVERY_LINEAR = "all-linear"  # as a target of LoRA: every linear layer but the output head
# sources of problems that have a name
DATA_SETS = ("synthetic", "mbpp", "mbpp_sanitized", "code_contests", "deepcoder")
MAX_SOURCES = 16
_OWN_ROWS = re.compile(r"(.+\.py|[^\W\d]\w*(\.[^\W\d]\w*)+):[^\W\d]\w*")
LOW, HIGH = 0.3, 0.7  # the band of success in which a level teaches: that of proposals is kept in it


def measured_level(success: float) -> int:
    """1..5 for a problem that nobody rated: 3 within the band, 1 and 5 from halfway between it and certainty on."""
    return 5 - bisect.bisect_right((LOW / 2, LOW, HIGH, (1 + HIGH) / 2), success)


@dataclass(frozen=True)
class Checked:
    """A check on top of the type, for a schema that is read without loading pydantic."""

    check: Callable[[Any], object]
    """Raises ValueError that says what is wrong, to be read after the setting's key."""

    def __get_pydantic_core_schema__(self, source: Any, handler: "GetCoreSchemaHandler") -> "CoreSchema":
        from pydantic_core.core_schema import no_info_after_validator_function

        def checked(value: object) -> object:
            self.check(value)
            return value

        return no_info_after_validator_function(checked, handler(source))


def _plugin(spec: object) -> None:
    if isinstance(spec, dict):
        entries = cast("dict[str, object]", spec)
        wrong = [name for name in entries if not str(name).isidentifier()]
        if not isinstance(entries.get("_target_"), str) or wrong:
            what = f"the argument {wrong[0]}, which is no name" if wrong else "no _target_"
            raise ValueError(f" has {what}; write {{_target_: package.module.Class, argument: value}}")
    elif not isinstance(spec, str) or spec.isdigit():
        raise ValueError(f"={spec} names nothing; write package.module:attribute, file.py:attribute or a mapping")


# names code of the user's own, which `plugins.load_object` loads; empty: none
Plugin = Annotated[Any, Checked(_plugin)]


def named(spec: str | Mapping[str, Any]) -> str:
    """Name that a plug-in's setting gives, without its arguments."""
    return spec if isinstance(spec, str) else str(spec["_target_"])


def is_own_rows(source: str) -> bool:
    """Does a source of problems name a function of the user's own instead of a data set or a file?"""
    return _OWN_ROWS.fullmatch(source) is not None


def is_path(source: str) -> bool:
    return "/" in source or source.endswith((".jsonl", ".json", ".gz", ".parquet", ".csv"))


def check_commas(sources: Sequence[str], known: Sequence[str]) -> None:
    """Raise ValueError for two sources that look like one path with a comma in it."""
    for left, right in pairwise(sources):
        name, whole = right.partition(":")[0], os.path.expanduser(f"{left},{right}")
        other = is_path(name) or (name == right and name.partition("@")[0] not in known)
        torn = re.fullmatch(".*/[^./:]*", left) and other and not os.path.exists(os.path.expanduser(left))
        if right[:1] not in ("/", ".", "~") and (torn or os.path.exists(whole)):
            raise ValueError(f" has {left} and {right}; write ['{left},{right}'] for one path, ./{right} for two")


def source_weights(sources: Sequence[str]) -> dict[str, float]:
    """`NAME` or `NAME:WEIGHT` -> weight by name. Raises ValueError as `Checked` wants it."""
    check_commas(sources, DATA_SETS)
    weights: dict[str, float] = {}
    for text in sources:
        name, colon, given = text.rpartition(":")
        try:
            weight = float(given) if colon else 1.0
        except ValueError:
            name, weight = text, 1.0  # a path may hold a colon
        name = name if colon and name else text
        if not is_path(name) and name.partition("@")[0] not in DATA_SETS and not is_own_rows(name):
            raise ValueError(f": {name} is unknown; choose some of: {', '.join(DATA_SETS)}, or a path with a / in it")
        if not 0 < weight < float("inf"):
            raise ValueError(f": {text} has no weight above 0")
        if name in weights:
            raise ValueError(f": {name} is named twice")
        weights[name] = weight
    if not 0 < len(weights) <= MAX_SOURCES:
        raise ValueError(f": {len(weights)} sources, not 1 to {MAX_SOURCES}")
    return weights


def _betas(betas: list[float]) -> None:
    if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
        raise ValueError(f"={betas} must be two numbers from 0 to below 1, for example [0.9,0.999]")


@dataclass(kw_only=True)
class ModelConfig:
    """The policy that learns, how much of it does, and where models run."""

    solver: str = "nano"
    """`nano` (embedded), a Hugging Face id, `auto`: by the memory of the device, once for each run; or a directory: a
    model's, an adapter's, which names its base, or a checkpoint's."""
    adapter: str = ""
    """Folder of an adapter of peft that the policy begins with, on the base `solver`; it decides rank and layers."""
    profile: str = ""
    """Which of `configs/profile/` describes this hardware. `auto`: the largest that fits, once for each run."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """auto: CUDA, then MPS, then the CPU. CPU_ONLY=1 in the environment comes before it."""
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """auto: bfloat16 on CUDA cards that compute in it, and on CPUs that do for models stored in it; float32 elsewhere.
    Weights that learn are float32 throughout."""
    threads: Annotated[int, Ge(0)] = 0
    """CPU threads of torch; 0: one for a tiny solver, else torch's own choice."""
    thinking: Literal["auto", "on", "off"] = "auto"
    """Does the solver think before it answers? For models whose chat template asks; auto: as the template has it."""
    train: Literal["full", "lora"] = "full"
    """full: every weight. lora: an adapter of low rank beside frozen weights, for a fraction of the memory."""
    quantize: Literal["none", "nf4"] = "none"
    """nf4: the linear layers of all that is frozen (an adapter's base, judge, proposer) in 4 bits. Extra `bnb`."""
    lora_rank: Annotated[int, Interval(ge=1, le=1024)] = 16
    """Rank of the adapter."""
    lora_alpha: Annotated[float, Interval(gt=0, le=4096)] = 32.0
    """The adapter's output is multiplied by alpha / rank."""
    lora_targets: list[str] = field(default_factory=lambda: [EVERY_LINEAR])
    """Names of the linear layers that get one, for example [q_proj,v_proj]; `all-linear`: all but the output head."""
    activation_checkpointing: Literal["auto", "on", "off"] = "auto"
    """Compute activations twice instead of keeping them; auto: where less is free than that takes."""
    memory_share: Annotated[float, Interval(gt=0, le=1)] = 1.0
    """Share of the device's memory that this node may use: several nodes on one device share it."""
    preflight: Literal["refuse", "warn"] = "refuse"
    """When the estimated memory exceeds what there is."""


@dataclass(kw_only=True)
class SolverConfig:
    """Sampling and GRPO."""

    group_size: Annotated[int, Interval(ge=2, le=64)] = 8
    """G: completions sampled for each problem."""
    problems_per_iteration: Annotated[int, Interval(ge=1, le=1024)] = 16
    """Problems attempted in an iteration, before `refill`."""
    max_new_tokens: Annotated[int, Interval(ge=1, le=32768)] = 48
    """Most tokens of a completion."""
    max_prompt_tokens: Annotated[int, Interval(ge=16, le=131072)] = 256
    """Problems with a longer prompt are left out."""
    temperature: Annotated[float, Interval(gt=0, le=2)] = 1.0
    """Temperature of sampling attempts; the exam has its own."""
    learning_rate: Annotated[float, Interval(gt=0, le=0.1)] = 5e-4
    """AdamW's learning rate at the first step."""
    settle_steps: Annotated[int, Ge(0)] = 0
    """The learning rate falls as 1 / (1 + steps / settle_steps), so that the policy settles; 0: it stays."""
    minibatches: Annotated[int, Interval(ge=1, le=64)] = 2
    """Optimiser steps for each iteration's rows."""
    micro_batch_rows: Annotated[int, Ge(1)] = 64
    """Longest rows that one forward pass has room for, or more of shorter ones; bounds memory, not the gradient."""
    optimizer: Literal["adamw", "adamw_8bit"] = "adamw"
    """adamw_8bit: its two moments in one byte each instead of four; needs the extra `bnb`."""
    betas: Annotated[list[float], Checked(_betas)] = field(default_factory=lambda: [0.9, 0.99])
    """Decay of the optimiser's means of gradient and square. The second forgets in a hundred steps: rewards come and
    go faster than in pre-training."""
    loss: Literal["dapo", "custom"] = "dapo"
    """dapo: clipped, in the mean over all tokens. custom: `loss_function`."""
    loss_function: Plugin = ""
    """Own code: `solver.loss.LossInputs` -> its mean loss. Every policy learns by it that learns as the solver does."""
    clip_low: Annotated[float, Interval(gt=0, le=1)] = 0.2
    """The probability ratio is clipped below 1 - clip_low."""
    clip_high: Annotated[float, Interval(gt=0, le=10)] = 0.28
    """The probability ratio is clipped above 1 + clip_high."""
    scale_rewards: Literal["none", "group", "mean"] = "none"
    """Advantages are divided by the group's standard deviation (group) or mean reward (mean: rare successes count)."""
    kl_beta: Annotated[float, Interval(ge=0, le=10)] = 0.0
    """Weight of the KL penalty towards the initial model; 0: none is loaded."""
    grad_clip: Annotated[float, Gt(0)] = 1.0
    """Largest gradient norm."""
    refill: Annotated[float, Interval(ge=1, le=8)] = 2.0
    """Most groups sampled in an iteration, in its batches, to replace those without spread; 1: none is replaced."""
    stale: Literal["tis", "m2po"] = "tis"
    """Importance weights of an earlier policy's tokens, where attempts are made ahead. tis: the ratio, at most 2. m2po:
    without those furthest off, as AstraFlow reads it."""


@dataclass(kw_only=True)
class ExternalConfig:
    """Learning from peer rollouts, which the own judge scores again."""

    policy: Literal["positives", "sapo", "off"] = "positives"
    """positives: learn from completions above their group's mean. sapo: from those below it too. off: from none."""
    gate: bool = True
    """Learn from a peer only while the own judge scores its completions at least as high as own ones?"""
    groups: Annotated[int, Interval(ge=0, le=1024)] = 16
    """Most peer groups in one update."""
    share: Annotated[float, Interval(ge=0, le=0.95)] = 0.5
    """Largest share of peers in an update's completions, own ones without gradient included."""


@dataclass(kw_only=True)
class ProposerConfig:
    """Who writes new problems."""

    kind: Literal["local", "openai"] = "local"
    """local: in this process. openai: an OpenAI-compatible endpoint (vLLM and others), constrained where it can be."""
    model: str = "nano"
    """`nano` (embedded), a directory, a Hugging Face id, or `off`; for an endpoint the name it serves."""
    url: str = ""
    """Base address of the endpoint; a key for it comes from CODEZERO_PROPOSER_KEY."""
    seconds: Annotated[float, Interval(gt=0, le=3600)] = 60.0
    """Deadline of one try at an endpoint."""
    taken: Annotated[int, Interval(ge=0, le=64)] = 12
    """Names of the last problems that are shown as taken, and refused when they come again; 0: none."""
    problems_per_iteration: Annotated[int, Interval(ge=0, le=64)] = 2
    """Problems written each time; 0: none."""
    every: Annotated[int, Ge(1)] = 4
    """Propose each this many iterations."""
    rest_seconds: Annotated[float, Interval(ge=0, le=3600)] = 15.0
    """With role=proposer: from the beginning of one iteration to that of the next."""
    max_new_tokens: Annotated[int, Interval(ge=16, le=8192)] = 256
    """Most tokens of a proposal."""
    temperature: Annotated[float, Interval(gt=0, le=2)] = 1.0
    """Temperature of sampling proposals."""
    attempts: Annotated[int, Interval(ge=1, le=16)] = 2
    """Tries for one problem before it is left out this time."""
    vetting: Annotated[int, Interval(ge=0, le=64)] = 4
    """The solver's attempts at an own problem before it is offered; it is dropped when the judge that is shown tests,
    or execution with reward.mode=rlvr, finds its tests contradicted. 0: offered unseen."""


@dataclass(kw_only=True)
class DataConfig:
    """Where problems come from."""

    proposer_share: Annotated[float, Interval(ge=0, le=1)] = 0.25
    """Share of an iteration's problems taken from proposers when there are enough."""
    sources: Annotated[list[str], Checked(source_weights)] = field(default_factory=lambda: ["synthetic"])
    """Where the rest comes from, each with its weight behind a colon, as in [mbpp:3,synthetic]: synthetic, mbpp,
    mbpp_sanitized, code_contests, deepcoder, another set of the hub, as in hub:USER/NAME, or a path to a JSONL, Parquet
    or CSV file, or to a folder of such. NAME@REVISION: another commit of a set. Columns are found by their names, or
    named: PATH?question=ask&tests=checks&code=answer. Where no set can be read, synthetic problems stand in.
    package.module:function or file.py:function: own code that returns such rows, the same ones each time."""
    wait_seconds: Annotated[float, Interval(gt=0, le=600)] = 10.0
    """Seconds that an iteration waits for rows from the hub; when they do not come, other sources stand in."""
