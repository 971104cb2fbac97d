"""Makes each model: its tokenizer, its training, and a card with figures beside the weights."""

# pyright: reportUnknownMemberType=false

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from transformers.utils.logging import disable_progress_bar

from tools.nano import gym, lessons
from tools.nano.figures import Quality, measure
from tools.nano.train import BATCH_ROWS, HIDDEN, batches_of, new_model, tokenizer_of, train

THREADS = 1
"""Fixed, because the order of a sum depends on it. More would hardly help models this small."""


@dataclass(frozen=True)
class Recipe:
    """How one model is made, and what its card says of it."""

    layers: int
    steps: int
    data: str
    limits: str
    source: str = "`codezero.problems.synthetic.tasks`"


RECIPES = {
    "solver": Recipe(
        3,
        1200,
        "Synthetic problems with their solutions in several styles, of which 20 % (level 1) to 72 % (level 5) are "
        "spoilt on purpose: it is a start for reinforcement learning and nothing else.",
        "It knows one family of short Python functions and fails at everything else. It often writes wrong code.",
    ),
    "judge": Recipe(
        4,
        5000,
        "Synthetic problems with their canonical solutions. It is read by its likelihood of a solution, never asked.",
        "It recognises solutions in the spelling of one family's references. A right program in another looks wrong to "
        "it unless it is known to return the same, and of other questions it knows nothing.",
    ),
    "proposer": Recipe(
        3,
        1000,
        "Synthetic problems as JSON, asked for by level.",
        "It proposes problems of one family. The values its tests expect are mostly invented: they show how the "
        "function is called, not what it should return.",
    ),
    "tests": Recipe(
        4,
        3000,
        "Synthetic problems with two cases each, input and output, half of them of short inputs.",
        "It writes cases for one family of problems and reads the question alone, not the program that it should test. "
        "Many of its expected values are wrong: it is a start for reinforcement learning and nothing else.",
    ),
    "gym": Recipe(
        3,
        4000,
        "Tasks of reasoning-gym with their answers; of the last quarter 40 % (level 1) to 50 % (level 5) are spoilt on "
        "purpose: it is a start for reinforcement learning and nothing else.",
        "It knows the default tasks of the environment `gym` and fails at everything else. It often answers wrong.",
        "the environment `gym`",
    ),
}


def build(directory: Path, drill: gym.Drill, *, seed: int = 0) -> dict[str, Quality]:
    """Write `directory/<role>/` for each role, with the progress on standard error. Returns the measured quality."""
    torch.set_num_threads(THREADS)
    disable_progress_bar()  # of saving, which takes no time and would tear the one below
    columns = (TextColumn("{task.description:10}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bars = {role: progress.add_task(role, total=recipe.steps) for role, recipe in RECIPES.items()}
        losses = {
            role: _make(role, directory / role, drill, seed, lambda bar=bar: progress.advance(bar))
            for role, bar in bars.items()
        }
    measured: dict[str, Quality] = {}
    for role in RECIPES:
        measured[role] = {"loss": losses[role], **measure(role, directory, drill)}
        (directory / role / "README.md").write_text(_card(role, seed, measured[role]))
    return measured


def _make(role: str, directory: Path, drill: gym.Drill, seed: int, on_step: Callable[[], None]) -> float:
    """Train and save in half precision. Returns the last loss."""
    recipe, random = RECIPES[role], Random(f"{role} {seed}")
    if role == "gym":
        tokenizer = tokenizer_of(gym.gym_texts(drill, Random(seed)), gym.TEMPLATE)
        pairs = gym.gym_pairs(drill, random, clean=recipe.steps * BATCH_ROWS * 3 // 4)
    else:
        tokenizer = tokenizer_of(lessons.texts_of(role, Random(seed)), lessons.TEMPLATE)
        pairs = lessons.LESSONS[role](random)
    model = new_model(recipe.layers, tokenizer, seed)
    loss = train(model, batches_of(tokenizer, pairs, Random(seed)), steps=recipe.steps, on_step=on_step)
    model.half().save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    (directory / "model.safetensors").chmod(0o644)
    return loss


def _card(role: str, seed: int, quality: Quality) -> str:
    recipe = RECIPES[role]
    figures = "\n".join(f"| {name} | {value:.3f} |" for name, value in quality.items())
    return f"""# codezero nano {role}

A {recipe.layers}-layer, {HIDDEN}-wide Qwen2-architecture model with a byte-level BPE tokenizer of its own, made by
`python -m tools.nano` (seed {seed}). It loads like any other model: `AutoModelForCausalLM.from_pretrained(directory)`.

**Data.** {recipe.data} All are generated by {recipe.source} from the training side of its split.

**Training.** {recipe.steps} steps of {BATCH_ROWS} answers, Muon and AdamW, on a CPU; stored in half precision.

**Measured**, after saving, on held-out compositions; shares of 1 except the loss (nats per token).

| figure | value |
|---|---|
{figures}

**What it cannot do.** {recipe.limits}
"""
