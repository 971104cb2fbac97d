"""Does the judge believe right programs that others wrote in their own style, and disbelieve near misses of their size?

`natural.jsonl` has a problem a line, with six right programs and four near misses that were written by hand without a
look at the judge: question, entry_point, level, tests, reference, set, right, wrong. Right programs return what the
reference does on 260 inputs and more, near misses differ on 3 to 90 % of them. Each right program stands beside the
near miss whose distance from the reference is the most like its own. The evaluator reads them as it reads attempts.
believed: of those that were judged, a correctness of at least 0.5. auroc: how often the right one of a pair has the
higher correctness, ties counting half. Intervals (95 %) are Wilson's, those of auroc by bootstrap over problems. With
reward.mode=rlvr execution takes the judge's place, and every figure is what a perfect judge would have.

Prints one JSON object.

    python benchmarks/styles.py --json [KEY=VALUE]
"""

import argparse
import ast
import contextlib
import difflib
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from codezero.code.assertions import as_problem
from codezero.code.parsing import fence
from codezero.errors import CodeZeroError
from codezero.evaluator.base import Evaluator
from codezero.evaluator.build import EMBEDDED, build_canaries, build_evaluator
from codezero.problems.filters import Novelty
from codezero.settings import compose
from codezero.stats import wilson
from codezero.types import BELIEF, Completion, Problem, RolloutGroup, Status, Verdict

FILE = Path(__file__).with_name("natural.jsonl")
SURE = 0.9
RESAMPLES = 1000
SKILL = ("judge/canary_auroc", "judge/weight", "judge/identity")
PROGRESS_SECONDS = 2.0
Report = dict[str, Any]


def say(text: str) -> None:
    print(f"styles: {text}", file=sys.stderr, flush=True)


# ------------------------------------------------------------------ programs


@dataclass(frozen=True)
class Program:
    kind: str
    code: str
    distance: int  # tokens that differ from the reference


@dataclass(frozen=True)
class Pair:
    right: Program
    wrong: Program


@dataclass(frozen=True)
class Study:
    problem: Problem
    reference: str
    pairs: tuple[Pair, ...]


def natural() -> Iterator[Study]:
    """Every program of the file is in a pair."""
    for row in map(json.loads, FILE.read_text().splitlines()):
        problem = as_problem(row["question"], row["tests"], row["entry_point"], row["level"])
        right, wrong = (
            [Program(row["set"], code, distance(row["reference"], code)) for code in row[name]]
            for name in ("right", "wrong")
        )
        pairs = [Pair(each, nearest(each, wrong)) for each in right]
        used = {pair.wrong.code for pair in pairs}
        pairs += [Pair(nearest(each, right), each) for each in wrong if each.code not in used]
        yield Study(problem, row["reference"], tuple(pairs))


def nearest(program: Program, others: Sequence[Program]) -> Program:
    return min(others, key=lambda other: abs(other.distance - program.distance))


def distance(reference: str, code: str) -> int:
    one, other = (ast.unparse(ast.parse(text)).split() for text in (reference, code))
    same = sum(block.size for block in difflib.SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks())
    return len(one) + len(other) - 2 * same


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
    reference: Verdict
    rows: tuple[Row, ...]


def score(evaluator: Evaluator, studies: Sequence[Study]) -> Iterator[Scored]:
    """Reference, right and wrong programs of a problem as the attempts of one group."""
    shown_at = time.monotonic()
    for number, study in enumerate(studies):
        if time.monotonic() - shown_at > PROGRESS_SECONDS:
            shown_at = time.monotonic()
            say(f"judging: {number} of {len(studies)}")
        codes = [study.reference, *chain(*((pair.right.code, pair.wrong.code) for pair in study.pairs))]
        attempts = tuple(Completion(fence(code), (1,), (0.0,), finished=True) for code in codes)
        (group,) = evaluator.score([RolloutGroup(study.problem, attempts, "benchmark", 0, 0)])
        reference, *verdicts = group.verdicts
        rows = zip(study.pairs, verdicts[::2], verdicts[1::2], strict=True)
        yield Scored(reference, tuple(Row(study, *row) for row in rows))


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
        "by_level": {key: summary(each) for key, each in split(rows, lambda row: str(row.study.problem.level)).items()},
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


def measured(options: argparse.Namespace) -> Report:
    config, studies = compose(options.overrides), list(islice(natural(), options.problems))
    with contextlib.ExitStack() as stack:
        canaries = EMBEDDED
        if config.evaluator.canaries_from:
            withheld = Novelty()
            for study in studies:
                withheld.add(study.problem)
            canaries = build_canaries(config, withheld, stack, say)
        evaluator = build_evaluator(config, canaries, stack, say)
        skill = {key: value for key, value in evaluator.metrics().items() if key.startswith(SKILL)}
        return {"judge": {"canaries": canaries.name, **skill}, **figures(list(score(evaluator, studies)))}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # pyright: ignore[reportOptionalMemberAccess]
    parser.add_argument("--json", action="store_true", help="one line instead of many")
    parser.add_argument("--problems", type=int, default=100, help="at most so many of the file's 70")
    parser.add_argument("overrides", metavar="KEY=VALUE", nargs="*", help="settings of the judge")
    options = parser.parse_args(argv)
    if options.problems < 1:
        parser.error("--problems: at least 1")
    began = time.monotonic()
    import torch

    torch.set_num_threads(1)
    try:
        report = measured(options)
    except CodeZeroError as error:
        say(str(error))
        return 2
    report |= {"threads": 1, "seconds": round(time.monotonic() - began, 1)}
    print(json.dumps(report, indent=None if options.json else 1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
