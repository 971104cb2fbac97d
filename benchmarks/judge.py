"""What a verdict costs and what it is worth.

Cost: CPU-seconds for each solution, side by side on one random-weight model of the shape of Qwen2.5-0.5B: one question
read off the logits (yes or no, both orders, less what is said of nothing) on a shared prefix; every question (besides,
the likelihood of the code and three tests, twice) on a shared prefix; the same with every prompt read in full; and a
generated dry run, one request for each solution. Random weights cost what trained ones do; a dry run never ends by
itself and is cut at its limit, as it is with a model that explains.

Worth: the embedded judge on the embedded solver's attempts at held-out problems, against execution. The judge's
probability alone stands beside the composite reward, over the same attempts; those that the sandbox could not decide
are left out and counted. `embedded`: what its verdicts cost, with the solutions that it writes itself and the guarded
children that compare, beside dry runs by the same model.

`skill`: what each question of a judge is worth on a solver's attempts, at temperature 1 in groups of 8, and what it
costs. The AUROC over all attempts stands beside the one over pairs of a right and a wrong attempt of one problem, whose
order is what GRPO uses; intervals (95 %) are by problem. Nothing else is measured with --solver, --judge, --attempts or
a file of problems.

Prints one JSON object. Usage: python benchmarks/judge.py --json [--layers 4] [--tokens 256] [--solutions 8]
  python benchmarks/judge.py --solver DIR --judge DIR --problems mbpp.jsonl --rows 601-974 --attempts kept.jsonl"""

import argparse
import contextlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).parent))

from judge_cost import DRY_RUN, Report, costs, cpu_seconds, say
from judge_within import skill

from codezero.code.worker import StaticGuard
from codezero.errors import CodeZeroError, ConfigError
from codezero.evaluator.build import EMBEDDED, build_evaluator
from codezero.evaluator.judge import LikelihoodJudge, with_own_solutions
from codezero.evaluator.judge_prompts import LIKELIHOOD
from codezero.evaluator.types import Judge, Program, request
from codezero.models.build import load
from codezero.models.generation import Sampler
from codezero.models.load import LoadedModel
from codezero.ops.judge import executed, sampled
from codezero.problems.synthetic.tasks import held_out
from codezero.sandbox.base import Outcome
from codezero.sandbox.monty import MontySandbox
from codezero.settings import compose
from codezero.stats import auroc, auroc_interval, brier, ece
from codezero.types import RolloutGroup, ScoredGroup, Status

BELIEF = 0.5
BINS = 10

# ------------------------------------------------------------------ worth


@dataclass(frozen=True)
class Judged:
    """One attempt: what execution, the judge alone and the verdict say."""

    passed: bool
    alone: float  # the judge's probability, whatever the static pass decided; 0 where there is no program to read
    reward: float
    correctness: float | None  # none when the verdict is not a statement about correctness (quarantined)


def attempts(options: argparse.Namespace) -> tuple[list[Judged], int, Report]:
    """Everything that execution decided, how many attempts it did not, and what verdicts cost."""
    config = compose([f"evaluator.questions=[{LIKELIHOOD}]"])
    problems = held_out(int(options.problems), options.seed)
    with contextlib.ExitStack() as stack:
        solver = load(config, config.model.solver, "solver", say)
        loaded = load(config, config.evaluator.model, "judge", say)
        evaluator = build_evaluator(config, EMBEDDED, stack, say)
        guard, sandbox = stack.enter_context(StaticGuard()), stack.enter_context(MontySandbox())
        say(f"attempting {len(problems)} problems {options.samples} times")
        groups = sampled(solver, problems, options.samples, options.new_tokens, options.seed)
        say("executing")
        outcomes = [each.outcome for row in executed(sandbox, groups) for each in row]
        say("judging")
        evaluator.monitor.calibrated()
        began = cpu_seconds_with_children()
        scored = evaluator.score(groups)
        verdict_seconds = (cpu_seconds_with_children() - began) / (len(problems) * options.samples)
        dry = [dry_run(loaded, group, options.tokens) for group in groups[: options.dry_runs]]
        judge = with_own_solutions(LikelihoodJudge(loaded, questions=[LIKELIHOOD]), guard)
        alone = judged_alone(guard, judge, evaluator.monitor.calibrated(), groups)
    cost = {"verdict_seconds": verdict_seconds, "dry_run_seconds": fmean(dry)}
    return *combined(outcomes, alone, scored), cost | {"ratio_dry_run_over_verdict": fmean(dry) / verdict_seconds}


def cpu_seconds_with_children() -> float:
    me = psutil.Process()
    return sum(sum(each.cpu_times()[:2]) for each in (me, *me.children(recursive=True)))


def dry_run(judge: LoadedModel, group: RolloutGroup, tokens: int) -> float:
    """CPU-seconds of one, about the first attempt of the group. The embedded judge does not explain, and stops before
    `tokens`: each costs what one of those that it writes costs."""
    prompt = DRY_RUN.format(question=group.problem.question, code=group.completions[0].text)
    written = list[int]()

    def write() -> None:
        ((done,),) = Sampler(judge).sample(
            [prompt], group_size=1, max_new_tokens=tokens, temperature=1.0, generator_seed=0
        )
        written.append(len(done.token_ids))

    return cpu_seconds(write) / written[0] * tokens


def judged_alone(guard: StaticGuard, judge: Judge, calibration: Any, groups: Sequence[RolloutGroup]) -> list[float]:
    """The calibrated probability of every attempt that has a canonical form; 0 for the rest."""
    rows = [(group.problem, completion.text) for group in groups for completion in group.completions]
    reports = guard.check_many([request(problem, text) for problem, text in rows])
    readable = {
        at: Program(problem.question, report.canonical, entry_point=problem.entry_point, kinds=report.kinds)
        for at, ((problem, _), report) in enumerate(zip(rows, reports, strict=True))
        if report.canonical is not None
    }
    readings = judge.read(list(readable.values()), frozenset(judge.names))
    said = {
        at: calibration.probability(reading.scores)
        for at, reading in zip(readable, readings, strict=True)
        if reading.scores is not None
    }
    return [said.get(at, 0.0) for at in range(len(rows))]


def combined(
    outcomes: Sequence[Outcome], alone: Sequence[float], scored: Sequence[ScoredGroup]
) -> tuple[list[Judged], int]:
    verdicts = [verdict for group in scored for verdict in group.verdicts]
    rows = list(zip(outcomes, alone, verdicts, strict=True))
    known = [row for row in rows if row[0] is not Outcome.UNKNOWN and row[2].status is not Status.UNAVAILABLE]
    made = [
        Judged(outcome is Outcome.PASS, said, verdict.reward, verdict.correctness if verdict.trainable else None)
        for outcome, said, verdict in known
    ]
    return made, len(rows) - len(known)


def worth(options: argparse.Namespace) -> Report:
    """How well judge and composite tell passed from failed attempts, and whether a probability is what it says."""
    made, undecided, embedded = attempts(options)
    truth = [one.passed for one in made]
    stated = [(one.correctness, one.passed) for one in made if one.correctness is not None]
    said = np.array([p for p, _ in stated])
    right = np.array([float(passed) for _, passed in stated])
    bins = np.minimum((said * BINS).astype(int), BINS - 1)
    return {
        "embedded": embedded,
        "auroc_judge": auroc([one.alone for one in made], truth),
        "auroc_judge_interval": auroc_interval([one.alone for one in made], truth)[1:],
        "auroc_composite": auroc([one.reward for one in made], truth),
        "auroc_composite_interval": auroc_interval([one.reward for one in made], truth)[1:],
        "ece": ece(said, right, BINS),
        "brier": brier(said, right),
        "false_positive_rate": float((said[right == 0] >= BELIEF).mean()),
        "false_negative_rate": float((said[right == 1] < BELIEF).mean()),
        "attempts": len(made),
        "undecided": undecided,
        "passed_share": float(np.mean(truth)),
        "believed_share": float(said.mean()),
        "reliability": [
            {"said": float(said[bins == b].mean()), "true": float(right[bins == b].mean()), "n": int((bins == b).sum())}
            for b in range(BINS)
            if (bins == b).any()
        ],
    }


# ------------------------------------------------------------------


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # pyright: ignore[reportOptionalMemberAccess]
    parser.add_argument("--json", action="store_true", help="one line instead of many")
    parser.add_argument("--layers", type=int, default=4, help="of the random model; Qwen2.5-0.5B has 24")
    parser.add_argument("--tokens", type=int, default=256, help="most new tokens of a dry run")
    parser.add_argument("--solutions", type=int, default=8, help="of the problem that costs are measured on")
    parser.add_argument("--dry-runs", type=int, default=2, help="solutions that are really dry-run")
    parser.add_argument("--repeats", type=int, default=2, help="of each reading; the least counts")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--problems", default="200", metavar="N|FILE", help="held-out embedded ones, or a file of rows")
    parser.add_argument("--rows", default="", metavar="A-B", help="of FILE, by MBPP's task_id, as 601-974")
    parser.add_argument("--solver", default="nano", metavar="DIR", help="whose attempts are read")
    parser.add_argument("--judge", default="nano", metavar="DIR", help="that reads them")
    parser.add_argument("--attempts", type=Path, metavar="FILE", help="where attempts are kept: read where it has them")
    parser.add_argument("--new-tokens", type=int, help="of an attempt (default 48, 384 of FILE)")
    parser.add_argument("--samples", type=int, default=8, help="attempts at each")
    parser.add_argument("--seed", type=int, default=20_000, help="of problems and sampling noise")
    options = parser.parse_args(argv)
    import torch

    torch.set_num_threads(options.threads)
    embedded = options.problems.isdecimal()
    options.new_tokens = options.new_tokens or (48 if embedded else 384)
    alone = not embedded or options.attempts or (options.solver, options.judge) != ("nano", "nano")
    try:
        report = {**({} if alone else {**worth(options), **costs(options)}), "skill": skill(options)}
    except CodeZeroError as error:
        say(f"codezero: {error}")
        return 2 if isinstance(error, ConfigError) else 1
    print(json.dumps(report, indent=None if options.json else 1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
