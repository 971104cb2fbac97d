"""Static findings and a probability of correctness -> one reward in [0, 1], with its parts and reasons.

R = cap * (0.70 C + 0.15 S + 0.10 A + 0.05 F) by default. Correctness dominates on purpose: structure, adherence and
format saturate within a few rounds and would otherwise be what is learned."""

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import chain, islice
from operator import mul
from typing import Annotated, NamedTuple

import msgspec

from codezero.code.report import StaticReport
from codezero.code.worker import StaticGuard
from codezero.config import RewardConfig
from codezero.evaluator.base import Evaluator, quarantined, unavailable
from codezero.evaluator.types import request
from codezero.system.state import StateFile
from codezero.types import Completion, Metrics, Problem, RolloutGroup, ScoredGroup, Status, Verdict

DEFAULT = RewardConfig()

NO_ANSWER_CAP = 0.05
SYNTAX_CAP = 0.10
CALL_CAP = 0.15  # the entry point is missing or cannot be called as the tests call it


def verdict(report: StaticReport, correctness: float | None, finished: bool, why_not: str = "", *,
            source: str = "judged", weights: RewardConfig = DEFAULT) -> Verdict:  # fmt: skip
    """The verdict on one completion; its reward is finite and in [0, 1] whatever comes in. `correctness`: calibrated
    probability in [0, 1]; None, or anything else, when it is unknown (`why_not` says why). It is ignored where the
    static pass has decided. `finished`: EOS was generated. `source` of it, for the reasons."""
    if report.unavailable:
        return unavailable(report.unavailable)
    if report.quarantine:
        return quarantined(*report.quarantine)
    if report.certain_failure:
        correctness, status = 0.0, Status.CERTAIN_FAILURE
    elif correctness is None or not 0 <= correctness <= 1:  # NaN is in no range
        return unavailable(why_not or "the judge gave no answer")
    else:
        status = Status.JUDGED
    judged = (f"{source} {correctness:.0%} likely to pass",) if status is Status.JUDGED else ()
    # one closed fence and an end of text; one fence, cut off; or none, several or another
    form = 0.0 if report.code is None or report.flaw else 1.0 if report.closed and finished else 0.5
    parts = correctness, structure(report), adherence(report), form
    limit, failure = cap(report)
    shares = weights.correctness, weights.structure, weights.adherence, weights.format
    reward = limit * math.fsum(map(mul, shares, parts)) / math.fsum(shares)
    reasons = (*failure, *judged, *flaws(report), *(() if finished else ("no end of text",)))
    return Verdict(min(1.0, reward), *parts, limit, status, reasons, report.program)


def cap(report: StaticReport) -> tuple[float, tuple[str, ...]]:
    """The most a completion can earn, and why it is not 1."""
    if report.code is None:
        return NO_ANSWER_CAP, (report.refusal,)
    if not report.parses:
        return SYNTAX_CAP, (report.refusal,)
    if not report.entry_defined:
        return CALL_CAP, ("writes nothing" if report.stdio else "the function asked for is not defined",)
    if not report.arity_ok:
        return CALL_CAP, ("never reads its input" if report.stdio else "cannot be called as the tests call it",)
    return 1.0, ()


def structure(report: StaticReport) -> float:
    """Return the share of seven checks of a program that could work at all; 0 without a syntax tree."""
    if not report.parses:
        return 0.0
    checks = [report.parses, report.entry_defined, report.arity_ok, report.returns_value]
    checks += [not (report.stub or report.degenerate), not report.undefined_names, not report.banned]
    return sum(checks) / len(checks)


def adherence(report: StaticReport) -> float:
    """Return the share of four checks of what was asked for, and nothing else; 0 where there is nothing to call."""
    if not report.entry_defined:
        return 0.0
    checks = (report.signature_as_stated, not report.unused_params, not report.toplevel, report.hardcode_ratio < 0.5)
    return sum(checks) / len(checks)


def flaws(report: StaticReport) -> tuple[str, ...]:
    """Every milder finding, worst first."""
    if not report.parses or not report.entry_defined:
        return ()
    findings: list[tuple[object, str]] = [
        (report.stub, "does nothing"),
        (not report.returns_value, "returns no value"),
        (report.degenerate, ", ".join(report.degenerate)),
        (report.undefined_names, f"undefined: {', '.join(report.undefined_names[:3])}"),
        (report.banned, f"reaches outside: {', '.join(report.banned[:3])}"),
        (report.unused_params, f"ignores {', '.join(report.unused_params[:3])}"),
        (not report.signature_as_stated, "parameters are not called as asked"),
        (report.toplevel, "acts when loaded"),
        (report.hardcode_ratio > 0, f"answers of {report.hardcode_ratio:.0%} of the tests stand in the code"),
        (not report.closed, "the fence is not closed"),
        (report.flaw, report.flaw),
    ]
    return tuple(text for applies, text in findings if applies)


Attempt = tuple[Problem, Completion]
Reward = Callable[[ScoredGroup], ScoredGroup]


class Rules(NamedTuple):
    """How attempts are read and rewarded."""

    weights: RewardConfig = DEFAULT
    block: str = "best"
    reward: Reward | None = None  # has the last word on the rewards of a group


RULES = Rules()


_Count = Annotated[int, msgspec.Meta(ge=0)]


class Counts(msgspec.Struct, forbid_unknown_fields=True):
    """Verdicts since the last row of metrics, and how often the judge could not be asked."""

    statuses: dict[Status, _Count]
    outages: _Count


class StaticEvaluator(StateFile[Counts], Evaluator, file="counts.json", schema=Counts):
    """The static pass and the tally of the verdicts. A subclass decides correctness in `judge`."""

    def __init__(self, guard: StaticGuard, rules: Rules) -> None:
        self._guard, self._rules, self.memory = guard, rules, Counts({}, 0)
        self._pool, self._begun = ThreadPoolExecutor(1, "evaluator"), list[Future[None]]()

    @abstractmethod
    def judge(self, attempts: Sequence[Attempt], reports: Sequence[StaticReport]) -> list[Verdict]:
        """A verdict per attempt, in order."""

    def begin(self, group: RolloutGroup) -> None:
        """Have other processes look at these attempts, from a thread; what fails there fails in `score` again."""
        attempts = [(group.problem, completion) for completion in group.completions]
        self._begun.append(self._pool.submit(self.prepare, attempts))

    def prepare(self, attempts: Sequence[Attempt]) -> None:
        """Do what other processes do for these verdicts; `judge` finds it done."""
        self.reports(attempts)

    def reports(self, attempts: Sequence[Attempt]) -> list[StaticReport]:
        """Run the static pass on each, in order. Raises EvaluatorError when it cannot be started."""
        return self._guard.check_many([request(problem, done.text, self._rules.block) for problem, done in attempts])

    def score(self, groups: Sequence[RolloutGroup]) -> list[ScoredGroup]:
        """A verdict per completion, in order. Raises EvaluatorError and, where attempts are executed, SandboxError."""
        wait(self._begun)
        self._begun.clear()
        attempts = [(group.problem, completion) for group in groups for completion in group.completions]
        rest = iter(self.judge(attempts, self.reports(attempts)))
        scored = [ScoredGroup(group, tuple(islice(rest, len(group.completions)))) for group in groups]
        if self._rules.reward is not None:
            scored = list(map(self._rules.reward, scored))
        for given in chain.from_iterable(group.verdicts for group in scored):
            self.memory.statuses[given.status] = self.memory.statuses.get(given.status, 0) + 1
        return scored

    def metrics(self) -> Metrics:
        """`judge/...`: shares of the verdicts since the last call."""
        statuses, self.memory.statuses = self.memory.statuses, {}
        total = sum(statuses.values())
        return {
            f"judge/{status.value}_share": statuses.get(status, 0) / total if total else None
            for status in (Status.CERTAIN_FAILURE, Status.QUARANTINED, Status.UNAVAILABLE)
        }
