"""The figures of an eval and of a comparison of two: each with its interval, its label, and what it is a share of.

Legend for shapes: P problems."""

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

import msgspec
import numpy as np

from codezero.stats import Interval, bounded_interval, resampled_means


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """Unbiased chance that at least one of k attempts passes, from `correct` of `samples` attempts at a problem.
    1 - C(n - c, k) / C(n, k): Chen et al. 2021, "Evaluating Large Language Models Trained on Code", eq. 1."""
    if samples - correct < k:
        return 1.0
    return 1.0 - math.prod(1.0 - k / i for i in range(samples - correct + 1, samples + 1))


def paired_bootstrap(a_P: Sequence[float], b_P: Sequence[float], *, seed: int) -> tuple[Interval, float]:
    """The interval of the mean of b - a, and p: how often a difference as large would come about if there were none.

    Problems are drawn with both policies' figures, so what makes a problem hard for both falls out. p is two-sided: the
    same draws moved to mean 0, with one added to either count, so that it is never 0 (Efron and Tibshirani 1993, "An
    Introduction to the Bootstrap", chapter 16)."""
    gains, ends = np.asarray(b_P, dtype=np.float64) - np.asarray(a_P, dtype=np.float64), (-1.0, 1.0)
    means = resampled_means(gains - gains.mean(), (0.0, 0.0), seed)
    # A rounding error must not make a difference out of none.
    as_large = int(np.count_nonzero(np.abs(means) >= abs(gains.mean()) - 1e-12))
    return bounded_interval(gains, ends=ends, seed=seed), (1 + as_large) / (1 + len(means))


class TaskOutcome(NamedTuple):
    task: str
    passed: tuple[bool | None, ...]  # [samples]
    base: tuple[bool | None, ...] = ()  # [samples] The base tests alone, where the task has them

    @property
    def decided(self) -> tuple[bool, ...]:
        return tuple(passed for passed in self.passed if passed is not None)


Outcomes = Sequence[TaskOutcome]


@dataclass(frozen=True, slots=True)
class Figure:
    name: str  # `average@8`, `pass@1`
    label: str  # executed or judged
    value: float
    low: float
    high: float  # 95 % interval, resampled over problems
    problems: int  # with enough decided attempts for it


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    set: str
    tasks: str  # digest of what the set is read from
    model: str  # digest of the policy
    max_new_tokens: int
    temperature: float
    seed: int

    @property
    def file_name(self) -> str:
        """The same for the same choices only."""
        return f"{self.set}-{hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:16]}.db"


class Result(Choices, frozen=True, kw_only=True):
    policy: str
    label: str
    by: str  # who graded the attempts
    samples: int  # attempts at each problem
    problems: int
    first: int = 1  # number of the first problem, where not all of the set were asked
    of: int = 0  # problems of the set that can be asked
    skipped_rows: int = 0  # which cannot, by --skip-bad
    figures: list[Figure]
    rule: str  # what an answer need not import, and how output is compared
    undecidable: dict[str, str] = {}  # tasks whose tests can decide no attempt, and why; none of theirs was executed
    undecided_share: float  # of the attempts: those that could not be told, which no figure counts
    truncated_share: float  # of the attempts: those that reached max_new_tokens
    without_code_share: float
    undecided: dict[str, int] = {}  # the most frequent reasons why, and how often
    kept_in: str = ""
    others: str = ""  # what others have published of this set


@dataclass(frozen=True, slots=True)
class Difference:
    """B's lead over A, over the problems that both have decided attempts at."""

    name: str
    label: str
    a: float
    b: float
    difference: float
    low: float
    high: float  # 95 % interval of the difference, resampled over problems in pairs
    p: float  # two-sided
    problems: int


def figures_of(outcomes: Outcomes, *, samples: int, ks: Sequence[int], label: str, seed: int) -> list[Figure]:
    """average@samples, then pass@k for each k; of the base tests too. A figure that no problem has enough decided
    attempts for is missing.

    An undecided attempt is no attempt: average@samples is over those that are left, pass@k needs k of them."""
    values = dict[str, list[float]]()
    every = [outcome.decided for outcome in outcomes]
    base = [tuple(passed for passed in outcome.base if passed is not None) for outcome in outcomes]
    for of, decided in (("", every), ("base ", base)):
        values[f"{of}average@{samples}"] = [fmean(passed) for passed in decided if passed]
        for k in ks:
            enough = [passed for passed in decided if len(passed) >= k]
            values[f"{of}pass@{k}"] = [pass_at_k(len(passed), sum(passed), k) for passed in enough]
    return [
        Figure(name, label, sum(each) / len(each), *bounded_interval(each, seed=seed), problems=len(each))
        for name, each in values.items()
        if each
    ]


def compare(a: Outcomes, b: Outcomes, *, samples: int, label: str, seed: int) -> Difference | None:
    """None when there is no problem that both have decided attempts at."""
    there = {outcome.task: outcome.decided for outcome in b if outcome.decided}
    pairs = [(outcome.decided, there[outcome.task]) for outcome in a if outcome.decided and outcome.task in there]
    if not pairs:
        return None
    of_a, of_b = ([fmean(pair[side]) for pair in pairs] for side in (0, 1))
    a_mean, b_mean = sum(of_a) / len(pairs), sum(of_b) / len(pairs)
    interval, p = paired_bootstrap(of_a, of_b, seed=seed)
    name = f"average@{samples}"
    return Difference(name, label, a_mean, b_mean, b_mean - a_mean, *interval, p=p, problems=len(pairs))


class Report(NamedTuple):
    results: list[Result]
    difference: Difference | None = None

    def as_object(self) -> object:
        """The result of one policy; `a`, `b` and `difference` of two."""
        if len(self.results) == 1:
            return self.results[0]
        a, b = self.results
        return {"a": a, "b": b, "difference": self.difference}

    def lines(self) -> Iterator[str]:
        for result in self.results:
            part = result.problems < result.of
            which = f"problems {result.first}-{result.first + result.problems - 1} of {result.of}"
            which = which if part else f"{result.problems} problems"
            which += f", {result.samples} attempt{'s' * (result.samples > 1)} each"
            which += ", greedy" if not result.temperature else ""
            which += f"; {result.skipped_rows} rows that cannot be used are left out" if result.skipped_rows else ""
            yield f"{result.policy} on {result.set}: {which}"
            yield f"  {result.rule}"
            for figure in result.figures:
                bounds = f"95 % [{figure.low:.1%}, {figure.high:.1%}]  over {figure.problems} problems"
                yield f"  {figure.label} {figure.name:12} {figure.value:6.1%}  {bounds}"
            yield from (f"  {line}" for line in result.others.splitlines())
            if not result.figures:
                yield f"  no {result.label} figure: no attempt could be decided"
            cut_off = f"{result.truncated_share:.1%} cut off at {result.max_new_tokens} tokens"
            without = f"{result.without_code_share:.1%} without code"
            yield f"  {result.undecided_share:.1%} of the attempts undecided, {cut_off}, {without}"
            yield from (f"    {times} x {reason}" for reason, times in result.undecided.items())
            if result.undecidable:
                names = ", ".join(result.undecidable)
                yield f"  {len(result.undecidable)} problems cannot be decided by their tests: {names}"
            yield f"  kept in {result.kept_in}"
        if gap := self.difference:
            bounds = f"95 % [{100 * gap.low:+.1f}, {100 * gap.high:+.1f}], p = {gap.p:.3g}"
            yield (
                f"{gap.label} {gap.name}: B is ahead by {100 * gap.difference:+.1f} points, {bounds}, "
                f"over {gap.problems} problems (A {gap.a:.1%}, B {gap.b:.1%})"
            )
        elif len(self.results) == 2:
            yield "no problem has decided attempts of both, so nothing can be compared"
