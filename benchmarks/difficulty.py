"""Does the level follow the skill? The difficulty rule against RL Swarm's, on solvers whose skill is known.

A scripted solver of skill s solves a problem of level l with probability 1 / (1 + exp(-(1.2 (s - l) + noise))), noise ~
N(0, 1.2) for each problem; 3 problems of 8 attempts make an update. A problem is worth 4p(1 - p), its learnability.
`bandts` is this package's rule, `original` the rule of RL Swarm's CodeZero (written here from its description: compare
the mean of the last ten judged attempts with the ten before), `oracle` always asks for the level that is best at the
moment, because it knows the skill. Where the judge errs, `uncorrected` is our rule without knowing how often.
Prints JSON: for each scenario the mean learnability over the seeds, with the share of the oracle's that is reached
(mean, least seed, 95 % interval), changes of the level, and the mean level of the last 60 problems.

    codezero bench difficulty --json --seeds 50
"""

import argparse
import json
import math
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from statistics import fmean
from typing import Protocol

import numpy as np

from codezero.proposer.difficulty import HIGHEST, LOWEST, BandTS
from codezero.stats import mean_interval
from codezero.types import Completion, JudgeRates, Problem, RolloutGroup, ScoredGroup, Source, Status, Verdict

SLOPE, NOISE = 1.2, 1.2
ATTEMPTS, PROBLEMS, LAST = 8, 3, 60
LEVELS = range(LOWEST, HIGHEST + 1)
KNOWN_ANSWERS = 200
"""Of each kind, that the judge's error rates were measured on."""
Group = tuple[int, list[bool]]
"""Level, and which attempts were judged right."""


@dataclass(frozen=True)
class Scenario:
    """skill: at the share of the run that is over."""

    skill: Callable[[float], float]
    false_positive: float = 0.0
    false_negative: float = 0.0


SCENARIOS = {
    "fixed skill 3": Scenario(lambda _: 3.0),
    "solves all": Scenario(lambda _: 7.0),
    "solves none": Scenario(lambda _: -1.5),
    "growing 1 to 5": Scenario(lambda over: 1 + 4 * over),
    "drop 5 to 1": Scenario(lambda over: 5.0 if over < 0.5 else 1.0),
    "growing 1 to 5 in a quarter": Scenario(lambda over: min(5.0, 1 + 16 * over)),
    "leap 1 to 5": Scenario(lambda over: 1.0 if over < 0.5 else 5.0),
    "between two levels": Scenario(lambda _: 2.5),
    "fixed skill 3, judge errs": Scenario(lambda _: 3.0, 0.2, 0.1),
    "solves none, judge errs": Scenario(lambda _: -1.5, 0.2, 0.1),
    "solves little, judge errs": Scenario(lambda _: 0.5, 0.2, 0.1),
    "growing 1 to 5, judge errs": Scenario(lambda over: 1 + 4 * over, 0.2, 0.1),
    "drop 5 to 1, judge errs": Scenario(lambda over: 5.0 if over < 0.5 else 1.0, 0.2, 0.1),
}


class Rule(Protocol):
    """What chooses levels."""

    @property
    def level(self) -> int: ...

    def draw(self, count: int) -> list[int]: ...

    def see(self, groups: Sequence[Group]) -> None: ...


class Ours:
    """BandTS; told how often the judge errs, or not."""

    def __init__(self, seed: int, judge: JudgeRates | None) -> None:
        self._rule, self._judge = BandTS(seed=seed), judge

    @property
    def level(self) -> int:
        return self._rule.level

    def draw(self, count: int) -> list[int]:
        return self._rule.draw(count)

    def see(self, groups: Sequence[Group]) -> None:
        self._rule.observe([scored(level, right) for level, right in groups], self._judge)


class Original:
    """Up when the mean of the last ten attempts is over 0.05 above that of the ten before, down when it is below."""

    def __init__(self) -> None:
        self.level = 2
        self._last = deque[bool](maxlen=20)

    def draw(self, count: int) -> list[int]:
        return [self.level] * count

    def see(self, groups: Sequence[Group]) -> None:
        for _, right in groups:
            self._last.extend(right)
        if len(self._last) == 20:
            rise = (sum(list(self._last)[10:]) - sum(list(self._last)[:10])) / 10
            self.level = min(HIGHEST, max(LOWEST, self.level + (rise > 0.05) - (rise < -0.05)))


@dataclass(frozen=True)
class Run:
    """One rule on one seed."""

    learnability: float
    oracle: float
    changes: int
    final: float


@cache
def learnability(ahead: float) -> float:
    """Expected 4p(1 - p) of a problem whose level the skill is `ahead` of; by Gauss-Hermite quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(61)
    chance = 1 / (1 + np.exp(-(SLOPE * ahead + NOISE * nodes)))
    return float((4 * chance * (1 - chance) * weights).sum() / weights.sum())


def scored(level: int, right: Sequence[bool]) -> ScoredGroup:
    """A group whose attempts were judged so."""
    problem = Problem("0" * 64, "", (), "f", Source.SYNTHETIC, level=level)
    verdicts = tuple(Verdict(one, one, 1.0, 1.0, 1.0, 1.0, Status.JUDGED) for one in map(float, right))
    return ScoredGroup(RolloutGroup(problem, (Completion("", (), (), True),) * len(verdicts), "", 0, 0), verdicts)


def play(scenario: Scenario, rule: Rule, seed: int, updates: int) -> Run:
    """The rule and the solver for `updates` updates."""
    random = Random(f"solver {seed}")
    worth: list[float] = []
    best: list[float] = []
    levels: list[int] = []
    changes = 0
    for update in range(updates):
        skill = scenario.skill(update / updates)
        groups: list[Group] = []
        for level in rule.draw(PROBLEMS):
            chance = 1 / (1 + math.exp(-(SLOPE * (skill - level) + random.gauss(0, NOISE))))
            believed = scenario.false_positive + chance * (1 - scenario.false_positive - scenario.false_negative)
            groups.append((level, [random.random() < believed for _ in range(ATTEMPTS)]))
            levels.append(level)
            worth.append(learnability(skill - level))
        best.append(max(learnability(skill - level) for level in LEVELS))
        before = rule.level
        rule.see(groups)
        changes += rule.level != before
    return Run(fmean(worth), fmean(best), changes, fmean(levels[-LAST:]))


def compare(scenario: Scenario, seeds: int, updates: int) -> dict[str, object]:
    """Every rule on the same seeds."""
    errs = scenario.false_positive + scenario.false_negative > 0
    judge = JudgeRates(scenario.false_positive, scenario.false_negative, KNOWN_ANSWERS, KNOWN_ANSWERS)
    rules: dict[str, Callable[[int], Rule]] = {
        "bandts": lambda seed: Ours(seed, judge if errs else None),
        "original": lambda _: Original(),
    }
    if errs:
        rules["uncorrected"] = lambda seed: Ours(seed, None)
    runs = {name: [play(scenario, make(seed), seed, updates) for seed in range(seeds)] for name, make in rules.items()}
    told: dict[str, object] = {name: round(fmean(run.learnability for run in those), 3) for name, those in runs.items()}
    told["oracle"] = round(runs["bandts"][0].oracle, 3)
    told["details"] = {name: details(those) for name, those in runs.items()}
    return told


def details(runs: Sequence[Run]) -> dict[str, object]:
    shares = [run.learnability / run.oracle for run in runs]
    mean, low, high = mean_interval(shares)
    return {
        "share_of_oracle": round(mean, 4),
        "interval": [round(low, 4), round(high, 4)],
        "least_seed": round(min(shares), 4),
        "changes": round(fmean(run.changes for run in runs), 1),
        "final_level": round(fmean(run.final for run in runs), 2),
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--updates", type=int, default=400)
    parser.add_argument("--scenarios", nargs="*", choices=list(SCENARIOS), default=list(SCENARIOS))
    parser.add_argument("--json", action="store_true", help="as always; here so that every benchmark takes it")
    options = parser.parse_args(argv)
    if options.seeds < 2 or options.updates < LAST // PROBLEMS:
        parser.error(f"at least 2 seeds, for an interval, and {LAST // PROBLEMS} updates")
    told: dict[str, object] = {}
    for name in options.scenarios:
        told[name] = compare(SCENARIOS[name], options.seeds, options.updates)
        print(f"{name}: {json.dumps(told[name])}", file=sys.stderr, flush=True)
    print(json.dumps(told, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
