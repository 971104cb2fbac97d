"""Measures the embedded models, by execution on held-out compositions."""

from collections.abc import Sequence
from itertools import chain, cycle, islice
from pathlib import Path
from random import Random
from statistics import fmean

from codezero.code.agreement import agree
from codezero.code.answer import read_answer
from codezero.code.assertions import argument_kinds
from codezero.code.canonical import canonical, stated_parameters
from codezero.code.parsing import fence
from codezero.errors import ProposalError
from codezero.evals.grading import Grade, SandboxGrader
from codezero.evals.task import EvalTask, task_of
from codezero.models.chat import encode_completions, encode_prompts
from codezero.models.generation import Sampler
from codezero.models.likelihood import PrefixReader, PrefixRow
from codezero.models.load import LoadedModel, load_model
from codezero.problems.synthetic.tasks import LEVELS, held_out, is_held_out, parse_question
from codezero.proposer.parsing import parse_proposal, proposal_prompt
from codezero.sandbox.monty import MontySandbox
from codezero.stats import auroc
from codezero.types import Completion
from tools.nano import gym
from tools.nano.gym import Drill, drawn

PROBLEMS, SAMPLES = 200, 8
SEED = 9_000
"""Of the held-out problems and the sampling noise; not a run's exam."""
PROPOSALS = 40
"""For each level."""
ANSWER_TOKENS, PROPOSAL_TOKENS = 48, 192

Quality = dict[str, float]


def measure(role: str, directory: Path, drill: Drill) -> Quality:
    """Figures of the model in `directory/<role>`; a judge is measured on the attempts of the solver beside it."""
    loaded = load_model(str(directory / role), device="cpu", role=role)
    match role:
        case "solver":
            return solver_quality(attempt_held_out(loaded))
        case "judge":
            solver = load_model(str(directory / "solver"), device="cpu", role="solver")
            return judge_quality(loaded, attempt_held_out(solver))
        case "proposer":
            return proposer_quality(loaded)
        case _:
            return gym_quality(loaded, drill)


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
    """`attempts` as from `attempt_held_out`."""
    groups = [attempts[at : at + SAMPLES] for at in range(0, len(attempts), SAMPLES)]
    return _shares([(group[0][0].level, [bool(grade.passed) for _, _, grade in group]) for group in groups])


def gym_quality(model: LoadedModel, drill: Drill) -> Quality:
    """Of held-out questions; an answer counts that is the drill's own, to the letter."""
    random = Random(SEED)
    asked = [(level, *drawn(drill, level, random, held_out=True)) for level in islice(cycle(LEVELS), PROBLEMS * 2)]
    groups = _sampled(model, [question for _, question, _ in asked], SAMPLES, gym.ANSWER_TOKENS)
    return _shares(
        [
            (level, [text.text.strip() == answer for text in group])
            for (level, _, answer), group in zip(asked, groups, strict=True)
        ]
    )


def _shares(groups: Sequence[tuple[int | None, list[bool]]]) -> Quality:
    """average@k and pass@k of (level, which attempts passed), in all and the former by level."""
    by_level = {
        f"average@{SAMPLES}/level_{at}": fmean(fmean(passed) for level, passed in groups if level == at)
        for at in LEVELS
    }
    return {
        f"average@{SAMPLES}": fmean(fmean(passed) for _, passed in groups),
        f"pass@{SAMPLES}": fmean(any(passed) for _, passed in groups),
        **by_level,
    }


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
