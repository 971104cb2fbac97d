"""Makes the embedded models from nothing: tokenizer, training, and a card with figures beside the weights.

The figures are by execution on held-out compositions. About twelve minutes of one CPU core. The same seed and
libraries on the same machine give the same files.
"""

# pyright: reportUnknownMemberType=false

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import fmean

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from transformers.utils.logging import disable_progress_bar

from codezero.code.canonical import canonical, stated_parameters
from codezero.code.parsing import extract_code, fence
from codezero.errors import ProposalError
from codezero.models.chat import encode_completions, encode_prompts
from codezero.models.generation import Sampler
from codezero.models.likelihood import PrefixReader
from codezero.models.load import LoadedModel, load_model
from codezero.models.prefix_layout import PrefixRow
from codezero.nano import ROLES
from codezero.nano.corpus import Pair, judge_pairs, proposer_pairs, solver_pairs
from codezero.nano.train import BATCH_ROWS, NanoShape, batches_of, build_tokenizer, new_model, train
from codezero.problems.synthetic.programs import parse_question
from codezero.problems.synthetic.tasks import LEVELS, held_out, is_held_out
from codezero.proposer.parsing import parse_proposal
from codezero.proposer.prompts import proposal_prompt
from codezero.sandbox.base import Job, Outcome
from codezero.sandbox.monty import MontySandbox
from codezero.stats import auroc
from codezero.types import Problem

PROBLEMS, SAMPLES = 200, 8
SEED = 9_000
"""Of the held-out problems and the sampling noise; not a run's exam."""
PROPOSALS = 40
"""For each level."""
ANSWER_TOKENS, PROPOSAL_TOKENS = 48, 192

Quality = dict[str, float]
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
    """Write `directory/<role>/` for each role and return the measured quality; show both on standard error. A judge is
    measured on the attempts of the solver in `directory`. Raises ModelError when there is none."""
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


@dataclass(frozen=True)
class ExecutedAnswer:
    """One executed answer to a held-out problem."""

    problem: Problem
    code: str
    """Empty when the answer holds no code."""
    passed: bool


def attempt_held_out(solver: LoadedModel, temperature: float = 1.0, samples: int = SAMPLES) -> list[ExecutedAnswer]:
    """`samples` executed attempts at each of PROBLEMS held-out problems, those of one problem beside each other."""
    problems = held_out(PROBLEMS, SEED)
    groups = Sampler(solver).sample(
        [problem.question for problem in problems],
        group_size=samples,
        max_new_tokens=ANSWER_TOKENS,
        temperature=temperature,
        generator_seed=SEED,
    )
    answers = [
        (problem, extract_code(completion.text).code or "")
        for problem, group in zip(problems, groups, strict=True)
        for completion in group
    ]
    with MontySandbox() as sandbox:
        executions = sandbox.run_many([Job(code, problem.tests) for problem, code in answers])
    return [
        ExecutedAnswer(problem, code, bool(code) and execution.outcome is Outcome.PASS)
        for (problem, code), execution in zip(answers, executions, strict=True)
    ]


def solver_quality(attempts: Sequence[ExecutedAnswer]) -> Quality:
    """average@k and pass@k, in all and the former by level. `attempts` as from `attempt_held_out`."""
    passed = [attempt.passed for attempt in attempts]
    solved = [any(passed[at : at + SAMPLES]) for at in range(0, len(passed), SAMPLES)]
    by_level = {
        f"average@{SAMPLES}/level_{level}": fmean([a.passed for a in attempts if a.problem.level == level])
        for level in LEVELS
    }
    return {f"average@{SAMPLES}": fmean(passed), f"pass@{SAMPLES}": fmean(solved), **by_level}


def judge_quality(judge: LoadedModel, attempts: Sequence[ExecutedAnswer]) -> Quality:
    """How well the judge's likelihood divides a solver's attempts, and how well it would solve the problems itself,
    which bounds what it can teach."""
    readable = [(attempt, text) for attempt in attempts if (text := _canonical(attempt)) is not None]
    gaps = least_gaps(judge, [(attempt.problem.question, text) for attempt, text in readable])
    skill = auroc(gaps, [attempt.passed for attempt, _ in readable])  # NaN without both kinds
    own = attempt_held_out(judge, temperature=1e-6, samples=1)
    return {"auroc": skill, "own_greedy": fmean([attempt.passed for attempt in own])}


def least_gaps(judge: LoadedModel, programs: Sequence[tuple[str, str]]) -> list[float]:
    """For each (question, code): the least log p(token) - log p(likeliest token) over the answer and its end, nats."""
    tokenizer = judge.tokenizer
    prompts = encode_prompts(tokenizer, [question for question, _ in programs])
    answers = encode_completions(tokenizer, [fence(code) for _, code in programs])
    rows = [PrefixRow(tuple(prompt), tuple(answer)) for prompt, answer in zip(prompts, answers, strict=True)]
    scores = PrefixReader(judge.model, judge.pad_id).read(rows, end=judge.stop_ids[0])
    return [float(score.body.gap.min()) for score in scores if score.body is not None]


def proposer_quality(proposer: LoadedModel) -> Quality:
    """Shares of PROPOSALS texts for each level that are well formed, ask for the level, and for a held-out program."""
    levels = [level for level in LEVELS for _ in range(PROPOSALS)]
    groups = Sampler(proposer).sample(
        [proposal_prompt(level) for level in levels],
        group_size=1,
        max_new_tokens=PROPOSAL_TOKENS,
        temperature=1.0,
        generator_seed=SEED,
    )
    proposed = [_proposed(group[0].text, level) for group, level in zip(groups, levels, strict=True)]
    specs = [parsed[1] if question and (parsed := parse_question(question)) else None for question in proposed]
    return {
        "well_formed": fmean([question is not None for question in proposed]),
        "at_level": fmean(spec is not None and spec.level == at for spec, at in zip(specs, levels, strict=True)),
        "novel": fmean([spec is not None and is_held_out(spec) for spec in specs]),
    }


def _proposed(text: str, level: int) -> str | None:
    try:
        return parse_proposal(text, level, "").question
    except ProposalError:
        return None


def _canonical(attempt: ExecutedAnswer) -> str | None:
    """What the judge is shown; None for what does not parse. Only texts of models trained here come this way: a
    stranger's go through `codezero.code.worker`."""
    question, name = attempt.problem.question, attempt.problem.entry_point
    try:
        return canonical(attempt.code, name, parameters=stated_parameters(question, name)) if attempt.code else None
    except (SyntaxError, ValueError, RecursionError):
        return None
