"""Makes the embedded models from nothing: tokenizer, training, measurement, and a card beside the weights.

About twelve minutes of one CPU core. The same seed and libraries on the same machine give the same files.
"""

# pyright: reportUnknownMemberType=false

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from transformers.utils.logging import disable_progress_bar

from codezero.models.load import load_model
from codezero.nano import ROLES
from codezero.nano.corpus import Pair, judge_pairs, proposer_pairs, solver_pairs
from codezero.nano.measure import Quality, attempt_held_out, judge_quality, proposer_quality, solver_quality
from codezero.nano.train import BATCH_ROWS, NanoShape, batches_of, build_tokenizer, new_model, train

THREADS = 1
"""Fixed, because the order of a sum depends on it. More would hardly help models this small."""


@dataclass(frozen=True)
class Recipe:
    """How one model is made, and what its card says of it."""

    pairs: Callable[[Random], Iterator[Pair]]
    shape: NanoShape
    steps: int
    data: str
    limits: str


SMALL = NanoShape(hidden=96, layers=3, heads=4, kv_heads=2, feed_forward=256)

RECIPES = {
    "solver": Recipe(
        solver_pairs,
        SMALL,
        700,
        "Synthetic problems with their solutions, of which 20 % (level 1) to 72 % (level 5) are spoilt on purpose: "
        "it is a start for reinforcement learning and nothing else.",
        "It knows one family of one-line Python functions and fails at everything else. It often writes wrong code.",
    ),
    "judge": Recipe(
        judge_pairs,
        NanoShape(hidden=96, layers=4, heads=4, kv_heads=2, feed_forward=256),
        3000,
        "Synthetic problems with their canonical solutions. It is read by its likelihood of a solution, never asked.",
        "It recognises solutions in the canonical spelling of one family of problems. A right program that is spelt "
        "differently looks wrong to it, and of other questions it knows nothing.",
    ),
    "proposer": Recipe(
        proposer_pairs,
        SMALL,
        1000,
        "Synthetic problems as JSON, asked for by level.",
        "It proposes problems of one family. The values its tests expect are mostly invented: they show how the "
        "function is called, not what it should return.",
    ),
}


def build(directory: Path, *, seed: int = 0, roles: Sequence[str] = ROLES) -> dict[str, Quality]:
    """Writes `directory/<role>/` for each role and returns the measured quality; shows both on standard error.

    A judge is measured on the attempts of the solver in `directory`. Raises ModelError when there is none.
    """
    torch.set_num_threads(THREADS)
    disable_progress_bar()  # of saving, which takes no time and would tear the one below
    console = Console(stderr=True)
    columns = (TextColumn("{task.description:10}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        bars = {role: progress.add_task(role, total=RECIPES[role].steps) for role in roles}
        losses = {
            role: _make(role, directory / role, seed, lambda bar=bar: progress.advance(bar))
            for role, bar in bars.items()
        }
    measured: dict[str, Quality] = {}
    for role in roles:
        measured[role] = {"loss": losses[role], **_measure(role, directory)}
        (directory / role / "README.md").write_text(_card(role, seed, measured[role]))
        console.print(role, {name: round(value, 3) for name, value in measured[role].items()})
    return measured


def _make(role: str, directory: Path, seed: int, on_step: Callable[[], None]) -> float:
    """Train and save in half precision. Returns the last loss."""
    recipe = RECIPES[role]
    tokenizer = build_tokenizer(seed)
    model = new_model(recipe.shape, tokenizer, seed)
    batches = batches_of(tokenizer, recipe.pairs(Random(f"{role} {seed}")), Random(seed))
    loss = train(model, batches, steps=recipe.steps, on_step=on_step)
    model.half().save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    (directory / "model.safetensors").chmod(0o644)
    return loss


def _measure(role: str, directory: Path) -> Quality:
    """Of the model as it was saved."""
    loaded = load_model(str(directory / role), device="cpu", role=role)
    match role:
        case "solver":
            return solver_quality(attempt_held_out(loaded))
        case "judge":
            solver = load_model(str(directory / "solver"), device="cpu", role="solver")
            return judge_quality(loaded, attempt_held_out(solver))
        case _:
            return proposer_quality(loaded)


def _card(role: str, seed: int, quality: Quality) -> str:
    recipe = RECIPES[role]
    shape = recipe.shape
    figures = "\n".join(f"| {name} | {value:.3f} |" for name, value in quality.items())
    return f"""# codezero nano {role}

A {shape.layers}-layer, {shape.hidden}-wide Qwen2-architecture model with a byte-level BPE tokenizer of its own, made by
`codezero nano build` (seed {seed}). It loads like any other model: `AutoModelForCausalLM.from_pretrained(directory)`.

**Data.** {recipe.data} All are generated by `codezero.problems.synthetic.tasks` from the training side of its split.

**Training.** {recipe.steps} steps of {BATCH_ROWS} answers, Muon and AdamW, on a CPU; stored in half precision.

**Measured**, after saving, on held-out compositions; shares of 1 except the loss (nats per token).

| figure | value |
|---|---|
{figures}

**What it cannot do.** {recipe.limits}
"""
