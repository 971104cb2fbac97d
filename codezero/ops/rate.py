"""The work of `codezero judge rate`: judges of any kind beside each other, on the same executed attempts.

A judge with one score is ordered by that. Several are weighed together, and every probability comes from a calibration
on the attempts at other problems; a run calibrates on canaries, which are no policy's attempts."""

import re
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec
import numpy as np

from codezero.code.worker import StaticGuard
from codezero.config import NodeConfig
from codezero.errors import ConfigError
from codezero.evaluator.build import build_judge
from codezero.evaluator.calibration import NO_OPINION, read_all, unseen_probabilities
from codezero.evaluator.types import Program, Reading
from codezero.models.build import FrozenModels, Say
from codezero.nano import NANO
from codezero.ops.judge import Wanted, attempts_of, read_attempts, readable
from codezero.stats import WithinGroups, auroc_over_groups, bounded_interval, ece, group_order, within_groups
from codezero.types import BELIEF

ENDPOINT = re.compile(r"(?:(openai|ollama|chat):)?(.+)@(https?://.+)")
WIDTH = 32  # of a judge's name in the table
COLUMNS = ("within groups", "over problems", "right if believed", "ECE", "s/verdict", "without")

Item = tuple[int, Program, bool]  # group, program, passed: as `readable` gives them
_Range = tuple[float, float, float]  # figure, low, high


class JudgeRating(msgspec.Struct, frozen=True):
    """What a judge is worth on attempts that were executed; None: not measured."""

    judge: str
    kind: str
    names: tuple[str, ...]  # of its scores
    read: int  # attempts with a verdict
    without: float  # share of the attempts without one
    seconds: float  # for each distinct program
    within: WithinGroups | None
    over_problems: _Range | None
    believed: int
    precision: _Range | None  # share of the believed attempts that passed
    ece: float | None

    def line(self) -> str:
        without, seconds = f"{100 * self.without:.1f} %", f"{self.seconds:.2g}"
        gap = "—" if self.ece is None else f"{self.ece:.3f}"
        ranges = map(_shown, (self.within, self.over_problems, self.precision))
        return _row(self.judge, *ranges, gap, seconds, without)


class RatedJudges(msgspec.Struct, frozen=True):
    """A table of judges."""

    problems: int
    attempts: int
    asked: int  # attempts that the static pass leaves to a judge, and that execution decided
    passed: int  # of these
    judges: list[JudgeRating]

    def lines(self) -> list[str]:
        about = f"{self.attempts} attempts at {self.problems} problems; a judge is asked about {self.asked} of them"
        rows = [_row("judge", *COLUMNS), *(each.line() for each in self.judges)]
        return [f"{about}, of which {self.passed} pass", *rows]


def _shown(measured: Sequence[float] | None) -> str:
    return "—" if measured is None else f"{measured[0]:.2f} [{measured[1]:.2f}, {measured[2]:.2f}]"


def _row(name: str, *cells: str) -> str:
    widths = (18, 18, 18, 6, 9, 8)
    shown = name if len(name) <= WIDTH else f"…{name[1 - WIDTH :]}"
    return f"{shown:{WIDTH}}  " + "  ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))


def settings_of(word: str) -> list[str]:
    """The overrides that make `word` the judge. Raises ModelError for a model that cannot be had."""
    if match := ENDPOINT.fullmatch(word):
        kind, name, url = match.groups("openai")
        return [f"evaluator.kind={kind}", f"evaluator.model={name}", f"evaluator.url={url}"]
    if ":" in word and not Path(word).exists():
        return ["evaluator.kind=custom", f"evaluator.object={word}"]
    from codezero.models.load import is_classifier  # slow to import

    kind = "reward_model" if word != NANO and is_classifier(word, "judge") else "local"
    return [f"evaluator.kind={kind}", f"evaluator.model={word}"]


def rate(config: NodeConfig, judges: Mapping[str, NodeConfig], kept: Path | None, say: Say) -> RatedJudges:
    """Rate `judges`, by name, on the attempts of the file `kept`; else on attempts of `config`'s solver at the embedded
    problems of its exam, which are sampled and executed. Raises ConfigError, ModelError, EvaluatorError and
    SandboxError."""
    with ExitStack() as stack:
        evals = config.evals
        wanted = Wanted(str(evals.problems), "", evals.attempts, config.solver.max_new_tokens, evals.seed)
        attempts = read_attempts(kept) if kept else attempts_of(config, wanted, stack, say)
        guard = stack.enter_context(StaticGuard())
        items = list(readable(guard, attempts))
        if not items:
            raise ConfigError("no attempt is left to a judge: each fails without being run, or was not decided")
        rated = [_rate(name, judge, items, guard, say) for name, judge in judges.items()]
    passed = sum(passed for _, _, passed in items)
    return RatedJudges(len(attempts), sum(len(each.passed) for each in attempts), len(items), passed, rated)


def _rate(name: str, config: NodeConfig, items: Sequence[Item], guard: StaticGuard, say: Say) -> JudgeRating:
    programs = list(dict.fromkeys(read for _, read, _ in items))
    with ExitStack() as stack:
        judge = build_judge(config, stack, say, FrozenModels(config, say), guard)
        say(f"asking {name} about {len(programs)} programs")
        began = time.perf_counter()
        readings = read_all(judge, programs, say, f"asking {name}")
        seconds = (time.perf_counter() - began) / len(programs)
        return rating(name, config.evaluator.kind, judge.names, items, readings, seconds)


def rating(
    judge: str,
    kind: str,
    names: tuple[str, ...],
    items: Sequence[Item],
    readings: Mapping[Program, Reading],
    seconds: float,
) -> JudgeRating:
    """The figures of one judge, from what it read. Intervals are by problem."""
    known = [(number, readings[read].scores, passed) for number, read, passed in items]
    rows = [(number, scores, passed) for number, scores, passed in known if scores and {*scores} != {None}]
    right = np.array([passed for *_, passed in rows], dtype=np.float64)
    problems = [str(number) for number, *_ in rows]
    beliefs = unseen_probabilities(names, [scores for _, scores, _ in rows], right, problems)
    ordered = list[tuple[int, float, bool]]()
    groups, believed = defaultdict[int, list[tuple[float, bool]]](list), defaultdict[int, list[bool]](list)
    for (number, scores, passed), belief in zip(rows, beliefs.tolist(), strict=True):
        score = belief if len(names) > 1 else sum(score or 0.0 for score in scores)
        ordered.append((number, score, passed))
        groups[number].append((score, passed))
        if belief > BELIEF:
            believed[number].append(passed)
    shares, sizes = [float(np.mean(each)) for each in believed.values()], [len(each) for each in believed.values()]
    low, high = bounded_interval(shares, sizes=sizes) if sizes else (0.0, 1.0)
    return JudgeRating(
        judge=judge,
        kind=kind,
        names=names,
        read=len(rows),
        without=1 - len(rows) / len(items),
        seconds=seconds,
        within=within_groups(map(group_order, groups.values())),
        over_problems=auroc_over_groups(ordered),
        believed=sum(sizes),
        precision=(float(np.average(shares, weights=sizes)), low, high) if sizes else None,
        ece=ece(beliefs, right) if bool((beliefs != NO_OPINION).any()) else None,
    )
