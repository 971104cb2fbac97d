"""What is a judge worth to a real policy, above its controls? The same attempts at MBPP, learned from in eleven ways.

Each run of an arm is a `codezero run profile=laptop` of --iterations times 4 problems with 8 attempts, on the same
problems in the same order. `coin`: a reward of 0 or 1 that knows nothing, as often 1 as the judge believes. `form`:
half for ending by itself, half for a block that parses. `ssd`: supervised on the own attempts, right or wrong (arXiv
2604.01193), at temperature 1. `likelihood`: the judge without its probe. `judge`: with it. `execution`.
`teacher`: no reward; the judge's own likelihood of each token, by sampled reverse KL. `judge+teacher`: beside the
judge's reward. `shown`: the policy as it began is the teacher, shown the attempt that the judge believes most.
`shared` and `tenth`: two nodes that learn from each other's attempts too, one judged, one that executes a tenth, each
on half of the cores. Each makes as many attempts as an arm alone, if it is not given fewer problems.
`judge@KEY=VALUE,KEY=VALUE` is an arm with settings of its own, run.max_iterations among them.
The exam is greedy on the first 256 problems of MBPP's test split, and four attempts at each of the first 150 at
temperature 1, in pairs with the policy that began. Nothing of an exam is learned from.

Runs are kept in --into, a line for each, and the same command goes on with what is missing, in the middle of a run
too; other --rows or settings want another folder. Prints JSON: every run, with how far it is ahead of those before it
at temperature 1 and how far its judge was right, and by arm the gain in points of both exams, the mean over seeds.

    codezero bench real_learning --solver DIR --judge DIR --problems mbpp.jsonl --into /tmp/real --picture real.svg"""

import argparse
import ast
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from random import Random
from statistics import fmean
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))  # `codezero bench` runs this file by its path

import picture

from codezero.code.answer import read_answer
from codezero.code.assertions import as_problem
from codezero.monitor.rollouts_db import read_page, read_rollout
from codezero.ops.fleet import FleetNode, founded
from codezero.sandbox.base import TRUTH, Job
from codezero.sandbox.build import build_sandbox
from codezero.settings import compose
from codezero.stats import group_order, within_groups
from codezero.system.child import Child, python
from codezero.system.signals import Stop
from codezero.types import ScoredGroup, Status

if TYPE_CHECKING:
    from torch import Tensor

    from codezero.solver.loss import LossInputs

HERE = Path(__file__).resolve()
TEACHERS = HERE.with_name("teachers.py")
RATE = 0.35
"""Of the coin's heads; about what the judge believes at the start."""
EXECUTED = ("reward.mode=rlvr", "evaluator.model=off")
JUDGED = ("evaluator.model={judge}", "evaluator.canaries_from={canaries}")
CUSTOM = "solver.loss=custom"
ARMS = {
    "coin": (*EXECUTED, f"reward.function={HERE}:coin"),
    "form": (*EXECUTED, f"reward.function={HERE}:form"),
    "ssd": (*EXECUTED, f"reward.function={HERE}:any_spread", CUSTOM, f"solver.loss_function={HERE}:likelier"),
    "likelihood": (*JUDGED, "evaluator.probe=none"),
    "judge": JUDGED,
    "execution": EXECUTED,
    "teacher": (*EXECUTED, f"reward.function={HERE}:any_spread", CUSTOM, f"solver.loss_function={TEACHERS}:reverse_kl"),
    "judge+teacher": (*JUDGED, CUSTOM, f"solver.loss_function={TEACHERS}:judge_and_teacher"),
    "shown": (*JUDGED, f"reward.function={TEACHERS}:believed", CUSTOM, f"solver.loss_function={TEACHERS}:shown_right"),
    "shared": JUDGED,
    "tenth": (*JUDGED, "reward.mode=hybrid", "reward.executed=0.1"),
}
TOGETHER = ("shared", "tenth")
TRAINING, CALIBRATION = [range(601, 975)], [range(511, 601)]
"""MBPP's task_id, as its authors split it; the test split is 11 to 510."""
COMMON = (
    "profile=laptop", "data.sources=[{training}]", "model.solver={solver}", "solver.problems_per_iteration=4",
    "solver.refill=1", "evals.every=0", "login.page=off", "run.directory={into}/runs", "run.logs={into}/logs",
    "swarm.identity={into}/swarm.pem",
)  # fmt: skip
EXAMS = {"greedy": (256, 1, 0.0), "sampled": (150, 4, 1.0)}
"""Problems, attempts at each, temperature."""


def coin(scored: ScoredGroup) -> list[float | None]:
    """The same for the same attempt of the same iteration, so that a run that is resumed is the same run."""
    group = scored.group
    noise = Random(f"{group.problem.id} {group.round} {group.policy_step}")
    return [float(noise.random() < RATE) for _ in scored.verdicts]


def form(scored: ScoredGroup) -> list[float | None]:
    return [
        0.5 * done.finished + 0.5 * parses(read_answer(done.text, scored.group.problem.entry_point, "only").code)
        for done in scored.group.completions
    ]


def parses(code: str | None) -> bool:
    try:
        return code is not None and bool(ast.parse(code).body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def any_spread(scored: ScoredGroup) -> list[float | None]:
    """Numbers that differ, so that every attempt is a row of the loss, which looks at none of them."""
    count = len(scored.verdicts)
    return [(i + 0.5) / count for i in range(count)]


def likelier(inputs: "LossInputs") -> "Tensor":
    """The mean over tokens of the own attempts' negative log-likelihood."""
    return -(inputs.logprobs * inputs.mask).sum() / inputs.mask.sum()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one line instead of many")
    parser.add_argument("--into", type=Path, default=Path("runs/bench-real-learning"), help="keep the runs here")
    picture.add_options(parser)
    parser.add_argument("--solver", metavar="DIR", help="the policy that learns")
    parser.add_argument("--judge", metavar="DIR", help="of the arms `likelihood` and `judge`")
    parser.add_argument("--problems", type=Path, metavar="FILE", help="mbpp.jsonl, as its authors wrote it")
    parser.add_argument("--arms", nargs="*", type=arm_of, default=list(ARMS), metavar="ARM", help=", ".join(ARMS))
    parser.add_argument("--seed", type=int, nargs="+", default=[0], help="of the runs: each arm is run with each")
    parser.add_argument("--rows", type=span, nargs="+", default=TRAINING, metavar="A-B", help="task_id of the problems")
    parser.add_argument("--iterations", type=int, default=10, help="of 32 attempts")
    parser.add_argument("--report", action="store_true", help="run nothing; tell what is there")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="settings of every run")
    options = parser.parse_args(argv)
    if picture.drawn(options, draw):
        return 0
    if not options.report and not (options.solver and options.judge and options.problems):
        parser.error("--solver, --judge and --problems name what is measured")
    into = options.into.resolve()
    into.mkdir(parents=True, exist_ok=True)
    kept = into / "arms.jsonl"
    done = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    for seed in () if options.report else options.seed:
        for arm in options.arms:
            if any((row["arm"], row["seed"], row["iterations"]) == (arm, seed, options.iterations) for row in done):
                continue
            row = play(arm, seed, options, into, done)
            done.append(row)
            with kept.open("a") as file:
                file.write(json.dumps(row) + "\n")
    alike = [row for row in done if row["iterations"] == options.iterations]
    report = {"runs": alike, "arms": {arm: summary(alike, arm) for arm in sorted({r["arm"] for r in alike}, key=order)}}
    if options.picture:
        draw(report, options.picture)
    print(json.dumps(report, indent=None if options.json else 1))
    return 0


def arm_of(text: str) -> str:
    if text.partition("@")[0] not in ARMS:
        raise argparse.ArgumentTypeError(f"{text!r} begins with none of {', '.join(ARMS)}")
    return text


def span(text: str) -> range:
    first, last = map(int, text.split("-"))
    return range(first, last + 1)


def play(
    arm: str, seed: int, options: argparse.Namespace, into: Path, done: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Learn by an arm and sit the exams. done: its policy is compared with those of the same seed and length."""
    problems = [json.loads(line) for line in options.problems.read_text().splitlines()]
    solver, judge = (str(Path(each).resolve()) for each in (options.solver, options.judge))
    names = {"solver": solver, "judge": judge, "into": str(into)}
    for name, split in (("training", options.rows), ("canaries", CALIBRATION)):
        names[name] = str(into / f"{name}.jsonl")
        wanted = set(chain(*split))
        Path(names[name]).write_text("".join(json.dumps(row) + "\n" for row in problems if row["task_id"] in wanted))
    nodes: dict[Path, list[str]] = {}  # the settings of each, by its run's folder
    for place, each in enumerate(TOGETHER if arm in TOGETHER else (arm,)):
        run = f"{each}-{seed}-{options.iterations}"
        name, _, varied = each.partition("@")
        settings = [word.format(**names) for word in (*COMMON, *ARMS[name])]
        settings += [f"seed={seed + 1000 * place}", f"run.name={run}", f"run.max_iterations={options.iterations}"]
        nodes[into / "runs" / run] = settings + options.overrides + varied.split(",") * bool(varied)
    folder = into / "runs" / f"{arm}-{seed}-{options.iterations}"
    print(f"{folder.name}: learning", file=sys.stderr, flush=True)
    os.environ["REAL_TEACHER"] = names["solver" if arm == "shown" else "judge"]
    if arm not in TOGETHER:
        command([], ["run", *nodes[folder]], into)
    elif not all(len(rows_of(each)) == options.iterations for each in nodes):
        learn_together(nodes, into)  # both go on where they were stopped
    lines = rows_of(folder)
    exams = {exam: sit(exam, folder, options, into) for exam in EXAMS}
    alike = [row["arm"] for row in done if (row["seed"], row["iterations"]) == (seed, options.iterations)]
    policies = {other: folder.with_name(f"{other}-{seed}-{options.iterations}") for other in alike}
    ahead = {
        other: compared("sampled", policy, folder, options, into)["difference"]
        for other, policy in policies.items()
        if policy.is_dir()
    }
    curve = [{name: row.get(name) for name in WATCHED} for row in lines]
    attempts = sum(row.get("attempts/count") or 0 for row in lines)
    judged = not any(word.startswith("reward.") for word in ARMS[arm.partition("@")[0]])
    return {"arm": arm, "seed": seed, "iterations": options.iterations, "attempts": attempts, "exams": exams,
            "ahead_of": ahead, "belief": belief(folder) if judged else [], "curve": curve}  # fmt: skip


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """The row of each iteration."""
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [row for row in map(json.loads, lines) if row.get("iteration")]


def belief(folder: Path) -> list[dict[str, Any]]:
    """Execute afterwards what a run's judge read. By half of the run: the judge's mean belief, the share that passes,
    and the AUROC within groups of both."""
    read: list[tuple[int, str, float, Job]] = []
    kept = read_page(folder, limit=1_000, own=True).rollouts
    for rollout in filter(None, (read_rollout(folder, line.id) for line in kept)):
        problem = as_problem(rollout.question, rollout.tests, None)
        for each in rollout.attempts:
            if each.status == Status.JUDGED and each.correctness is not None:
                code = read_answer(each.text, problem.entry_point).code or ""
                read.append((rollout.line.iteration, problem.id, each.correctness, Job(code, problem.tests)))
    with ExitStack() as stack:
        executed = build_sandbox(compose(["profile=laptop"]), stack).run_distinct(job for *_, job in read)
    known = [(*row, passed) for *row, job in read if (passed := TRUTH[executed[job].outcome]) is not None]
    last = max((iteration for iteration, *_ in known), default=0)
    halves: list[dict[str, Any]] = []
    for late in sorted({2 * iteration > last for iteration, *_ in known}):  # one alone where the run was too short
        groups: defaultdict[tuple[int, str], list[tuple[float, bool]]] = defaultdict(list)
        for iteration, problem, score, passed in known:
            if late == (2 * iteration > last):
                groups[iteration, problem].append((score, passed))
        believed, right = zip(*chain.from_iterable(groups.values()), strict=True)
        within = within_groups(map(group_order, groups.values()))
        halves.append({"attempts": len(right), "believed": fmean(believed), "executed": fmean(right),
                       "within": within and list(within[:3]), "groups": within.groups if within else 0})  # fmt: skip
    return halves


def learn_together(nodes: dict[Path, list[str]], into: Path) -> None:
    """Run nodes that share what they attempt, until all have ended."""
    running, bootstrap = list[FleetNode](), list[str]()
    cores = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // len(nodes)))}
    for folder, settings in nodes.items():
        folder.mkdir(parents=True, exist_ok=True)
        own = [f"swarm.identity={into / folder.name}.pem", f"swarm.bootstrap=[{','.join(bootstrap)}]"]
        words = ["network=peer", "chain.kind=clock", *settings, *own]
        began = time.time()
        with (folder / "output.log").open("ab") as log:
            run = python("-m", "codezero", "run", *words)
            process = Child(run, stdout=log, stderr=log, env=os.environ | cores, cwd=into)
        running.append(FleetNode(folder, began, process))
        bootstrap = bootstrap or founded(running[0], Stop())
    codes = [node.process.wait() for node in running]
    if any(codes):
        raise SystemExit(f"a node failed: see output.log in each of {', '.join(map(str, nodes))}")


def sit(exam: str, folder: Path, options: argparse.Namespace, into: Path) -> dict[str, Any]:
    """What a run solves of an exam, beside the policy that began."""
    print(f"{folder.name}: {exam} exam", file=sys.stderr, flush=True)
    found = compared(exam, Path(options.solver).resolve(), folder, options, into)
    return {"start": shortly(found["a"]), "end": shortly(found["b"]), "gain": found["difference"]}


def compared(exam: str, before: Path, after: Path, options: argparse.Namespace, into: Path) -> dict[str, Any]:
    """Two policies' figures of an exam, and how far the second is ahead, in pairs; a policy sits an exam once."""
    limit, samples, temperature = EXAMS[exam]
    asked = ["--limit", str(limit), "--samples", str(samples), "--into", str(into / "evals"), "--json"]
    asked += ["--file", str(options.problems.resolve()), "--compare", str(before), str(after)]
    words = ["profile=laptop", f"evals.temperature={temperature}", f"model.solver={Path(options.solver).resolve()}"]
    return json.loads(command(asked, ["eval", "mbpp", *words], into))


WATCHED = ("iteration", "reward/mean", "train/entropy", "attempts/cut_off_share", "swarm/external_groups", "seconds")


def shortly(result: dict[str, Any]) -> dict[str, Any]:
    figures = {each["name"]: [each["value"], each["low"], each["high"]] for each in result["figures"]}
    return figures | {key: result[key] for key in ("model", "truncated_share", "undecided_share")}


def command(options: list[str], words: list[str], into: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "codezero", words[0], *options, *words[1:]], cwd=into, stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        raise SystemExit(f"codezero {words[0]} failed with {done.returncode}: {done.stdout[-2000:]}")
    return done.stdout


def order(arm: str) -> tuple[int, str]:
    return list(ARMS).index(arm.partition("@")[0]), arm


def summary(rows: Sequence[dict[str, Any]], arm: str) -> dict[str, Any]:
    """The gains of an arm in points: each seed's with its interval, and their mean."""
    found: dict[str, Any] = {}
    for exam in EXAMS:
        gains = [row["exams"][exam]["gain"] for row in rows if row["arm"] == arm]
        points = [[round(100 * gain[key], 1) for key in ("difference", "low", "high")] for gain in gains]
        found[exam] = {"points": round(fmean(each[0] for each in points), 1), "seeds": points}
    return found


def draw(report: dict[str, Any], path: Path) -> None:
    """A bar for each seed: the gain with its interval; controls above, judges below, execution last."""
    figure, [axes] = picture.panels(1, len(EXAMS), sharex=True, sharey=True)
    arms = sorted(report["arms"], key=order)
    for panel, exam in zip(axes, EXAMS, strict=True):
        for at, arm in enumerate(arms):
            for seed, (gain, low, high) in enumerate(report["arms"][arm][exam]["seeds"]):
                height, colour = -at - 0.2 * seed, picture.colour(arm.partition("@")[0], list(ARMS))
                panel.plot([low, high], [height, height], color=colour, linewidth=2)
                panel.plot([gain], [height], "o", color=colour)
        panel.axvline(0, color=picture.INK, linewidth=1)
        panel.set(xlabel=f"points gained, {exam} exam", ylim=(0.4 - len(arms), 0.6))
        panel.set(yticks=[-at for at in range(len(arms))], yticklabels=arms)
    picture.save(figure, path)


if __name__ == "__main__":
    sys.exit(main())
