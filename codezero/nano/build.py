"""Makes the embedded models from nothing: tokenizer, training, and a card with figures beside the weights.

The figures are by execution on held-out compositions. About half an hour of one CPU core. The same seed and
libraries on the same machine give the same files.
"""

# pyright: reportUnknownMemberType=false

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from random import Random
from statistics import fmean

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from transformers.utils.logging import disable_progress_bar

from codezero.code.agreement.agreement import agree
from codezero.code.answer import read_answer
from codezero.code.canonical import canonical, stated_parameters
from codezero.code.kinds import argument_kinds
from codezero.code.parsing import fence
from codezero.errors import ProblemError, ProposalError
from codezero.evals.grading import Grade, SandboxGrader
from codezero.evals.task import EvalTask, task_of
from codezero.models.chat import encode_completions, encode_prompts
from codezero.models.generation import Sampler
from codezero.models.likelihood import PrefixReader
from codezero.models.load import LoadedModel, load_model
from codezero.models.prefix_layout import PrefixRow
from codezero.nano import ROLES
from codezero.nano.gym import TEMPLATE, Drill, gym_pairs, gym_quality, gym_texts
from codezero.nano.train import BATCH_ROWS, HIDDEN, LESSONS, batches_of, build_tokenizer, new_model, tokenizer_of, train
from codezero.problems.synthetic.programs import parse_question
from codezero.problems.synthetic.tasks import LEVELS, held_out, is_held_out
from codezero.proposer.parsing import parse_proposal, proposal_prompt
from codezero.sandbox.base import Job, Outcome
from codezero.sandbox.monty import MontySandbox
from codezero.solver.cases import read_cases
from codezero.stats import auroc
from codezero.types import Completion, Problem

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


def build(directory: Path, drill: Drill, *, seed: int = 0, roles: Sequence[str] = ROLES) -> dict[str, Quality]:
    """Write `directory/<role>/` for each role and return the measured quality; show both on standard error. A judge is
    measured on the attempts of the solver in `directory`, and raises ModelError when there is none. drill: for gym."""
    torch.set_num_threads(THREADS)
    disable_progress_bar()  # of saving, which takes no time and would tear the one below
    console = Console(stderr=True)
    columns = (TextColumn("{task.description:10}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        bars = {role: progress.add_task(role, total=RECIPES[role].steps) for role in roles}
        losses = {
            role: _make(role, directory / role, drill, seed, lambda bar=bar: progress.advance(bar))
            for role, bar in bars.items()
        }
    measured: dict[str, Quality] = {}
    for role in roles:
        measured[role] = {"loss": losses[role], **_measure(role, directory, drill)}
        (directory / role / "README.md").write_text(_card(role, seed, measured[role]))
        console.print(role, {name: round(value, 3) for name, value in measured[role].items()})
    return measured


def _make(role: str, directory: Path, drill: Drill, seed: int, on_step: Callable[[], None]) -> float:
    """Train and save in half precision. Returns the last loss."""
    recipe = RECIPES[role]
    random, gym = Random(f"{role} {seed}"), role == "gym"
    tokenizer = tokenizer_of(gym_texts(drill, Random(seed)), TEMPLATE) if gym else build_tokenizer(seed, role)
    model = new_model(recipe.layers, tokenizer, seed)
    pairs = gym_pairs(drill, random, recipe.steps * BATCH_ROWS * 3 // 4) if gym else LESSONS[role](random)
    batches = batches_of(tokenizer, pairs, Random(seed))
    loss = train(model, batches, steps=recipe.steps, on_step=on_step)
    model.half().save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    (directory / "model.safetensors").chmod(0o644)
    return loss


def _measure(role: str, directory: Path, drill: Drill) -> Quality:
    """Of the model as it was saved."""
    loaded = load_model(str(directory / role), device="cpu", role=role)
    match role:
        case "solver":
            return solver_quality(attempt_held_out(loaded))
        case "judge":
            solver = load_model(str(directory / "solver"), device="cpu", role="solver")
            return judge_quality(loaded, attempt_held_out(solver))
        case "proposer":
            return proposer_quality(loaded)
        case "gym":
            return gym_quality(loaded, drill, PROBLEMS * 2, SAMPLES, SEED)
        case _:
            return tests_quality(loaded)


def _card(role: str, seed: int, quality: Quality) -> str:
    recipe = RECIPES[role]
    figures = "\n".join(f"| {name} | {value:.3f} |" for name, value in quality.items())
    return f"""# codezero nano {role}

A {recipe.layers}-layer, {HIDDEN}-wide Qwen2-architecture model with a byte-level BPE tokenizer of its own, made by
`codezero nano build` (seed {seed}). It loads like any other model: `AutoModelForCausalLM.from_pretrained(directory)`.

**Data.** {recipe.data} All are generated by {recipe.source} from the training side of its split.

**Training.** {recipe.steps} steps of {BATCH_ROWS} answers, Muon and AdamW, on a CPU; stored in half precision.

**Measured**, after saving, on held-out compositions; shares of 1 except the loss (nats per token).

| figure | value |
|---|---|
{figures}

**What it cannot do.** {recipe.limits}
"""


def _sampled(
    model: LoadedModel, prompts: Sequence[str], group_size: int, max_new_tokens: int, temperature: float = 1.0
) -> list[list[Completion]]:
    return Sampler(model).sample(
        prompts, group_size=group_size, max_new_tokens=max_new_tokens, temperature=temperature, generator_seed=SEED
    )


def attempt_held_out(
    solver: LoadedModel, temperature: float = 1.0, samples: int = SAMPLES
) -> list[tuple[EvalTask, Completion, Grade]]:
    """`samples` executed attempts at each of PROBLEMS held-out problems, those of one problem beside each other."""
    tasks = [task_of(problem, lambda problem: problem.question) for problem in held_out(PROBLEMS, SEED)]
    groups = _sampled(solver, [task.prompt for task in tasks], samples, ANSWER_TOKENS, temperature)
    with MontySandbox() as sandbox:
        grades = SandboxGrader(sandbox).grade(tasks, groups)
    attempts = zip(chain.from_iterable(groups), chain.from_iterable(grades), strict=True)
    return [(tasks[number // samples], *attempt) for number, attempt in enumerate(attempts)]


def solver_quality(attempts: Sequence[tuple[EvalTask, Completion, Grade]]) -> Quality:
    """average@k and pass@k, in all and the former by level. `attempts` as from `attempt_held_out`."""
    passed = [bool(grade.passed) for _, _, grade in attempts]
    solved = [any(passed[at : at + SAMPLES]) for at in range(0, len(passed), SAMPLES)]
    by_level = {
        f"average@{SAMPLES}/level_{level}": fmean(
            bool(grade.passed) for task, _, grade in attempts if task.level == level
        )
        for level in LEVELS
    }
    return {f"average@{SAMPLES}": fmean(passed), f"pass@{SAMPLES}": fmean(solved), **by_level}


def judge_quality(judge: LoadedModel, attempts: Sequence[tuple[EvalTask, Completion, Grade]]) -> Quality:
    """How well the judge's likelihood divides a solver's attempts, which are read as its own solution where they are
    known to return the same, and how well it would solve the problems itself, which bounds what it can teach."""
    solved = attempt_held_out(judge, temperature=1e-6, samples=1)
    own = {task.prompt: _canonical(task, completion) for task, completion, _ in solved}
    readable = [
        (task.prompt, _as_own(text, own[task.prompt], task), bool(grade.passed))
        for task, completion, grade in attempts
        if (text := _canonical(task, completion)) is not None
    ]
    gaps = least_gaps(judge, [(question, text) for question, text, _ in readable])
    skill = auroc(gaps, [passed for _, _, passed in readable])  # NaN without both kinds
    return {"auroc": skill, "own_greedy": fmean(bool(grade.passed) for _, _, grade in solved)}


def _as_own(text: str, own: str | None, task: EvalTask) -> str:
    kinds = argument_kinds(tuple(task.tests), task.entry_point)
    return own if own is not None and text != own and agree(text, own, task.entry_point, kinds) else text


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
    groups = _sampled(proposer, [proposal_prompt(level) for level in levels], 1, PROPOSAL_TOKENS)
    proposed = [_proposed(group[0].text, level) for group, level in zip(groups, levels, strict=True)]
    specs = [parsed[1] if question and (parsed := parse_question(question)) else None for question in proposed]
    return {
        "well_formed": fmean([question is not None for question in proposed]),
        "at_level": fmean(spec is not None and spec.level == at for spec, at in zip(specs, levels, strict=True)),
        "novel": fmean([spec is not None and is_held_out(spec) for spec in specs]),
    }


def tests_quality(verifier: LoadedModel) -> Quality:
    """Of SAMPLES pairs of cases for each held-out problem: shares that can be read, and that the reference passes."""
    problems = held_out(PROBLEMS, SEED)
    groups = _sampled(verifier, [problem.question for problem in problems], SAMPLES, PROPOSAL_TOKENS)
    pairs = [
        (problem, _cases(problem, text.text)) for problem, group in zip(problems, groups, strict=True) for text in group
    ]
    readable = [(problem, tests) for problem, tests in pairs if tests]
    with MontySandbox() as sandbox:
        done = sandbox.run_many([Job(problem.reference or "", tests) for problem, tests in readable])
    valid = sum(execution.outcome is Outcome.PASS for execution in done)
    return {"readable": len(readable) / len(pairs), "valid": valid / len(pairs)}


def _cases(problem: Problem, text: str) -> tuple[str, ...]:
    try:
        return read_cases(problem, text, 2)
    except ProblemError:
        return ()


def _proposed(text: str, level: int) -> str | None:
    try:
        return parse_proposal(text, level, "").question
    except ProposalError:
        return None


def _canonical(task: EvalTask, completion: Completion) -> str | None:
    """What the judge is shown; None for what does not parse. Only texts of models trained here come this way: a
    stranger's go through `codezero.code.worker`."""
    code, name = read_answer(completion.text, task.entry_point).code, task.entry_point
    try:
        stated = stated_parameters(task.prompt, name)
        return canonical(code, name, parameters=stated) if code else None
    except (SyntaxError, ValueError, RecursionError):
        return None
