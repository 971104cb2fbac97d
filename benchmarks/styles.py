"""Does the judge believe right programs that are written in another style, and disbelieve wrong ones of the same size?

References of held-out problems (and of MBPP, where --data names its file) are rewritten by rules that preserve meaning,
of many kinds: `built`, for whoever improves a judge, and `kept`, apart from it. `natural` is programs that were
written by hand. Each rewrite was executed equal to its
reference on at least twelve inputs, and stands beside a mutant that fails a test and differs from the reference by as
many tokens, or nearly. The evaluator reads them as it reads attempts. believed: of those that were judged, a
correctness of at least 0.5. auroc: how often the right one of a pair has the higher correctness, ties counting half.
Intervals (95 %) are Wilson's, those of auroc by bootstrap over problems. With reward.mode=rlvr execution takes the
judge's place, and every figure is what a perfect judge would have.

Prints one JSON object.

    python benchmarks/styles.py --json [--data mbpp.jsonl] [--set built|kept|natural|all] [KEY=VALUE]
"""

import argparse
import contextlib
import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from styles_parts.built import BUILT
from styles_parts.kept import HELD_BACK
from styles_parts.natural import natural
from styles_parts.programs import MIXED, SECONDS, Pair, Study, Workshop, mbpp, synthetic
from styles_parts.rewriting import Kind

from codezero.code.parsing import fence
from codezero.errors import CodeZeroError, ConfigError
from codezero.problems.dedup import Novelty
from codezero.protocols import Evaluator
from codezero.sandbox.monty import MontySandbox
from codezero.settings import compose
from codezero.stats import wilson
from codezero.types import BELIEF, Completion, RolloutGroup, Status, Verdict
from codezero.wiring.evaluator import EMBEDDED, build_canaries, build_evaluator

SETS: dict[str, dict[str, Kind]] = {"built": BUILT, "kept": HELD_BACK}
NATURAL = "natural"
SURE = 0.9
RESAMPLES = 1000
SKILL = ("judge/canary_auroc", "judge/weight", "judge/identity")
PROGRESS_SECONDS = 2.0
SHOWN = 8
Report = dict[str, Any]
_T = TypeVar("_T")


def say(text: str) -> None:
    print(f"styles: {text}", file=sys.stderr, flush=True)


def watched(what: str, items: Iterable[_T], count: int) -> Iterator[_T]:
    """`items`, with a line on standard error every two seconds."""
    shown_at = time.monotonic()
    for number, item in enumerate(items):
        if time.monotonic() - shown_at > PROGRESS_SECONDS:
            shown_at = time.monotonic()
            say(f"{what}: {number} of {count}")
        yield item


# ------------------------------------------------------------------ judging


@dataclass(frozen=True)
class Row:
    """A pair of one problem and what the evaluator says of it."""

    study: Study
    pair: Pair
    right: Verdict
    wrong: Verdict


@dataclass(frozen=True)
class Scored:
    study: Study
    reference: Verdict
    rows: tuple[Row, ...]


def score(evaluator: Evaluator, made: Sequence[tuple[Study, list[Pair]]]) -> list[Scored]:
    """Reference, right and wrong programs of a problem as the attempts of one group."""
    scored: list[Scored] = []
    for study, pairs in watched("judging", made, len(made)):
        codes = [study.reference, *chain(*((pair.right.code, pair.wrong.code) for pair in pairs))]
        attempts = tuple(Completion(fence(code), (1,), (0.0,), finished=True) for code in codes)
        (group,) = evaluator.score([RolloutGroup(study.problem, attempts, "benchmark", 0, 0)])
        reference, *verdicts = group.verdicts
        rows = zip(pairs, verdicts[::2], verdicts[1::2], strict=True)
        scored.append(Scored(study, reference, tuple(Row(study, *row) for row in rows)))
    return scored


# ------------------------------------------------------------------ figures


def believed(verdicts: Sequence[Verdict]) -> Report:
    """Of those that were judged; and how many were not."""
    judged = [verdict.correctness >= BELIEF for verdict in verdicts if verdict.status is not Status.UNAVAILABLE]
    share = sum(judged) / len(judged) if judged else None
    low, high = wilson(share or 0.0, len(judged))
    return {
        "believed": rounded(share),
        "interval": [rounded(low), rounded(high)],
        "n": len(verdicts),
        "abstained": rounded(1 - len(judged) / len(verdicts)) if verdicts else None,
        "quarantined": sum(verdict.status is Status.QUARANTINED for verdict in verdicts),
    }


def pairs_told_apart(rows: Sequence[Row]) -> Report:
    """Of pairs of which both were judged."""
    by_problem: defaultdict[str, list[float]] = defaultdict(list)
    for row in rows:
        if Status.UNAVAILABLE not in (row.right.status, row.wrong.status):
            right, wrong = row.right.correctness, row.wrong.correctness
            by_problem[row.study.problem.id].append((right > wrong) + 0.5 * (right == wrong))
    if not by_problem:
        return {"auroc": None, "interval": [None, None], "pairs": 0, "problems": 0}
    sums, counts = (np.array([measure(each) for each in by_problem.values()]) for measure in (sum, len))
    drawn = np.random.default_rng(0).integers(len(sums), size=(RESAMPLES, len(sums)))
    low, high = np.quantile(sums[drawn].sum(1) / counts[drawn].sum(1), (0.025, 0.975))
    pairs = int(counts.sum())
    return {
        "auroc": rounded(sums.sum() / pairs),
        "interval": [rounded(low), rounded(high)],
        "pairs": pairs,
        "problems": len(sums),
    }


def surely_mistaken(rows: Sequence[Row]) -> float | None:
    """Share of what was judged that is wrong at 0.9 or more, or right at 0.1 or less."""
    verdicts = [(row.right, True) for row in rows] + [(row.wrong, False) for row in rows]
    judged = [(verdict, truth) for verdict, truth in verdicts if verdict.status is not Status.UNAVAILABLE]
    mistaken = [abs(verdict.correctness - truth) >= SURE for verdict, truth in judged]
    return rounded(sum(mistaken) / len(mistaken)) if mistaken else None


def summary(rows: Sequence[Row]) -> Report:
    return {
        "right": believed([row.right for row in rows]),
        "near_misses": believed([row.wrong for row in rows]),
        "pairs": pairs_told_apart(rows),
        "surely_mistaken": surely_mistaken(rows),
        "tokens_changed": {
            "right": rounded(float(np.mean([row.pair.right.distance for row in rows]))) if rows else None,
            "near_misses": rounded(float(np.mean([row.pair.wrong.distance for row in rows]))) if rows else None,
        },
    }


def figures(scored: Sequence[Scored]) -> Report:
    rows = [row for each in scored for row in each.rows]
    return {
        "overall": summary(rows),
        "reference": believed([each.reference for each in scored]),
        "by_level": {key: summary(each) for key, each in split(rows, lambda row: row.study.level).items()},
        "by_kind": {key: summary(each) for key, each in split(rows, lambda row: row.pair.right.kind).items()},
    }


def split(rows: Sequence[Row], key: Callable[[Row], str]) -> dict[str, list[Row]]:
    parts: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        parts[key(row)].append(row)
    return {name: parts[name] for name in sorted(parts)}


def rounded(value: float | None) -> float | None:
    return None if value is None else round(float(value), 4)


# ------------------------------------------------------------------


def measured(options: argparse.Namespace, report: Report) -> Iterator[tuple[str, str, list[Scored], Counter[str]]]:
    """(where problems come from, set of kinds, what was scored, what was left out); `report` gets the judge's skill."""
    config = compose(options.overrides)
    with contextlib.ExitStack() as stack:
        sandbox = MontySandbox(seconds=SECONDS)
        stack.enter_context(sandbox)
        problems: dict[str, list[Study]] = {"synthetic": synthetic(options.problems, options.seed)}
        lost = Counter[str]()
        if options.data:
            foreign = mbpp(options.data, options.problems, options.seed, sandbox, lost)
            problems["mbpp"] = list(watched("reading MBPP", foreign, options.problems))
        canaries = EMBEDDED
        if config.evaluator.canaries_from:
            withheld = Novelty()
            for study in chain(*problems.values()):
                withheld.add(study.problem)
            canaries = build_canaries(config, withheld, stack, say)
        evaluator = build_evaluator(config, canaries, stack, say)
        skill = {key: value for key, value in evaluator.metrics().items() if key.startswith(SKILL)}
        report["judge"] = {"canaries": canaries.name, **skill}
        for origin, name in ((origin, name) for origin in problems for name in chosen(options)):
            left = lost.copy() if origin == "mbpp" else Counter[str]()
            every, only = SETS[name], options.show not in (None, MIXED)
            kinds = {kind: every[kind] for kind in every if kind == options.show or not only}
            workshop, studies = Workshop(sandbox, kinds, options.seed, left), problems[origin]
            made = [
                (study, workshop.pairs(study))
                for study in watched(f"rewriting {origin}, {name}", studies, len(studies))
            ]
            yield origin, name, score(evaluator, made), left
        if options.set in (NATURAL, "all"):
            yield "synthetic", NATURAL, score(evaluator, list(islice(natural(), options.problems))), Counter()


def chosen(options: argparse.Namespace) -> list[str]:
    return [name for name in SETS if options.set in (name, "all")]


def show(scored: Sequence[Scored], kind: str) -> None:
    rows = [row for each in scored for row in each.rows if row.pair.right.kind == kind]
    for row in rows[:SHOWN]:
        print(f"# {row.study.problem.question}")
        for name, program, verdict in (("right", row.pair.right, row.right), ("wrong", row.pair.wrong, row.wrong)):
            changed = f"{program.distance} tokens from the reference, by {program.kind}"
            print(f"# {name}, {changed}: {verdict.status} {verdict.correctness:.3f}\n{program.code}\n")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # pyright: ignore[reportOptionalMemberAccess]
    parser.add_argument("--json", action="store_true", help="one line instead of many")
    parser.add_argument("--data", type=Path, metavar="FILE", help="rows of MBPP, whose code runs in the sandbox alone")
    parser.add_argument("--set", choices=[*SETS, NATURAL, "all"], default="built", help="of kinds (default built)")
    parser.add_argument("--problems", type=int, default=100, help="of each origin")
    parser.add_argument("--seed", type=int, default=20_000, help="of problems, rewrites and mutants")
    parser.add_argument("--show", metavar="KIND", help="print some programs of this kind with verdicts, and no figures")
    parser.add_argument("overrides", metavar="KEY=VALUE", nargs="*", help="settings of the judge")
    options = parser.parse_args(argv)
    if options.problems < 1:
        parser.error("--problems: at least 1")
    began = time.monotonic()
    report: Report = {"seed": options.seed, "problems": options.problems, "threads": 1}
    try:
        known = {MIXED, *chain(*(SETS[name] for name in chosen(options)))}
        if options.show and options.show not in known:
            raise ConfigError(f"there is no kind {options.show} in the set; choose one of: {', '.join(sorted(known))}")
        import torch

        torch.set_num_threads(1)
        for origin, name, scored, left in measured(options, report):
            if options.show:
                show(scored, options.show)
            part: Report = figures(scored) | {"left_out": dict(sorted((+left).items()))}
            for kind, each in part["by_kind"].items() if name in SETS else ():
                each["family"] = SETS[name][kind].family if kind != MIXED else "mixed"
            report.setdefault(origin, {})[name] = part
    except CodeZeroError as error:
        say(str(error))
        return 2
    if not options.show:
        report["seconds"] = round(time.monotonic() - began, 1)
        print(json.dumps(report, indent=None if options.json else 1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
