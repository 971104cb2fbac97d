"""The reliability monitor: calibrates the judge on canaries, tests it all the time, and raises alarms.

Fresh canaries are read among the solver's attempts, unmarked, in every iteration. After an alarm the judge is
calibrated on the newest ones, where an exploited score shows no skill; where that does not help, the run ends.

Of a problem unlike the canaries' the judge says nothing. A problem is compared by its question and never by an attempt,
so that no attempt gains by being strange: by style, by length, and by the share of its words that no canary's question
has. Bounds are quantiles of the same figures of each canary's question against the others' (jackknife prediction
intervals, Barber et al. 2021, arXiv 1905.02928), so that each leaves out at most ALPHA of the canaries' own kind."""

import logging
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Annotated

import msgspec
import numpy as np

from codezero.code.parsing import fence
from codezero.code.worker import StaticGuard
from codezero.config import EvaluatorConfig
from codezero.errors import AlarmError
from codezero.evaluator import calibration, evidence
from codezero.evaluator.calibration import Calibration, Canary, CanaryKind, draw_canaries
from codezero.evaluator.evidence import Audited, Auditor, Gap, JudgedAttempt, JudgedCanary, Look
from codezero.evaluator.types import Judge, Program, Reading, program, request
from codezero.stats import GroupOrder, WithinGroups, within_groups
from codezero.system.state import StateFile
from codezero.types import BELIEF, JudgeRates, Metrics, Problem, ScoredGroup, Style, Worked

logger = logging.getLogger(__name__)

ALPHA = 0.02
NEW_WORDS = 1  # any question may have as many: a rare way to say the same
LEAST = 20  # fewest different questions that say what others of their kind are like
_WORD = re.compile(r"[a-z]+")


class Covered(msgspec.Struct, frozen=True):
    """Bounds of the canaries' questions of one style."""

    fewest: float
    most: float  # words of a question
    unseen: float  # most of its different words that `vocabulary` lacks, as a share
    vocabulary: tuple[str, ...]


Coverage = dict[Style, Covered]


def coverage_of(canaries: Sequence[JudgedCanary]) -> Coverage:
    """A transplant's problem is one that the node learns from, so it covers nothing. Empty for few questions."""
    programs = [canary.program for canary in canaries if canary.kind is not CanaryKind.TRANSPLANT]
    coverage: Coverage = {}
    for style in Style:
        own = {
            program.question: _words(program.question, program.entry_point)
            for program in programs
            if program is not None and program.stdio is (style is Style.STDIO)
        }
        if len(own) >= LEAST:
            counts = Counter(word for words in own.values() for word in set(words))
            lengths = [len(words) for words in own.values()]
            alone = [_share(words, {word for word, times in counts.items() if times > 1}) for words in own.values()]
            fewest, most = np.quantile(lengths, (ALPHA / 2, 1 - ALPHA / 2)).tolist()
            coverage[style] = Covered(fewest / 2, most * 2, float(np.quantile(alone, 1 - ALPHA)), tuple(sorted(counts)))
    return coverage


def limits(coverage: Coverage, problems: Iterable[Problem]) -> dict[str, str]:
    """By id, of the problems that are not covered, why not. None for an empty coverage: nothing is known."""
    why = {problem.id: _why_not(coverage, problem) for problem in problems} if coverage else {}
    return {key: reason for key, reason in why.items() if reason}


def _why_not(coverage: Coverage, problem: Problem) -> str:
    covered = coverage.get(problem.style)
    if covered is None:
        return f"the judge was measured on no {'programs' if problem.style is Style.STDIO else 'functions'}"
    words = _words(problem.question, problem.entry_point)
    if not covered.fewest <= len(words) <= covered.most:
        bounds = f"{covered.fewest:.0f} to {covered.most:.0f}"
        return f"the judge was measured on questions of some {bounds} words; this one has {len(words)}"
    share, least = _share(words, covered.vocabulary), NEW_WORDS / max(1, len(set(words)))
    if share > max(covered.unseen, least):
        return f"{share:.0%} of the question's words are new to what the judge was measured on ({covered.unseen:.0%})"
    return ""


def _words(question: str, entry: str) -> list[str]:
    """Split the question, without the function's name, which every problem chooses anew."""
    text = question.lower()
    return _WORD.findall(text.replace(entry.lower(), " ") if entry else text)


def _share(words: Sequence[str], known: Iterable[str]) -> float:
    """Return the share of the different words that are not known."""
    different = set(words)
    return len(different.difference(known)) / max(1, len(different))


LOOK_EVERY = 10  # iterations between two drift tests on the canaries alone
AUDIT_BATCH = 100  # executed attempts between two drift tests on the audit
FOREIGN_SHARE = 4  # transplants are at most this fraction of an iteration's canaries
STRIKES = 3  # alarming results in a row after which a run that tightens gives up

_Count = Annotated[int, msgspec.Meta(ge=0)]


class Memory(msgspec.Struct, forbid_unknown_fields=True):
    """The monitor's state, as it is in the checkpoint: a judge found out stays found out after a restart."""

    identity: str  # of the judge: another judge starts without memory
    calibration: Calibration | None = None
    first_auroc: float | None = None
    refits: int = 0
    coverage: Coverage = {}  # of the canaries of the present calibration
    canaries: list[JudgedCanary] = []  # the newest ones that were read, oldest first
    waiting: list[JudgedCanary] = []  # canaries to be read among the next attempts
    looks: dict[str, Look] = {}  # the last result of the drift tests, by source of evidence
    gaps: dict[str, Gap] = {}
    first_gaps: dict[str, Gap] = {}
    tighten: bool = False  # an alarm waits for a new calibration
    audited: list[Audited] = []
    drawn: _Count = 0  # attempts executed in all
    looked_at: _Count = 0  # `drawn` at the last drift test on the audit
    examined: list[GroupOrder] = []  # of the newest exam
    within: WithinGroups | None = None  # of the newest exam and the audited own attempts together


class ReliabilityMonitor(StateFile[Memory], file="watch.json", schema=Memory):
    """Measures how far one judge can be believed."""

    def __init__(
        self,
        judge: Judge,
        guard: StaticGuard,
        worked: Callable[[Random], Worked],
        settings: EvaluatorConfig,
        *,
        identity: str,
        seed: int = 0,
        auditor: Auditor | None = None,
        alone: bool = True,
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`worked`: see `draw_canaries`. `identity`: of the judge. `alone`: no other reward teaches. `progress`:
        called as a calibration goes on."""
        self.judge, self.guard, self._worked, self._settings = judge, guard, worked, settings
        self._seed, self._auditor, self._progress, self.alone = seed, auditor, progress, alone
        self.memory = Memory(identity)

    @property
    def alarms(self) -> tuple[str, ...]:
        return tuple(reason for last in self.memory.looks.values() for reason in last.reasons)

    @property
    def weight(self) -> float | None:
        """0: no proven skill, on canaries or within the groups of its policy. None: it was not calibrated."""
        known = self.memory.calibration
        return known and float(known.fit is not None and not evidence.orders_badly(self.memory.within))

    def calibrated(self) -> Calibration:
        """The present calibration; the first call makes one. Raises EvaluatorError."""
        known = self.memory.calibration
        if known is None:
            self._add(self._checked(draw_canaries(self._worked, self._settings.canaries, f"{self._seed} start")))
            known = self._refit()
            self.memory.first_auroc = known.auroc
        return known

    def limits(self, problems: Iterable[Problem]) -> dict[str, str]:
        """By id, of the problems that are unlike the canaries', why the judge says nothing. Raises EvaluatorError."""
        return limits(self.memory.coverage, problems) if self.calibrated().fit else {}

    def pending(self) -> set[Program]:
        """The canaries to be read with the next attempts."""
        return {canary.program for canary in self.memory.waiting if canary.program is not None}

    def absorb(self, readings: Mapping[Program, Reading]) -> None:
        """Take the scores of pending canaries; those that were not read keep waiting."""
        known: dict[Program | None, Reading] = {None: Reading(None), **readings}
        waiting = self.memory.waiting
        self.memory.waiting = [canary for canary in waiting if canary.program not in known]
        self._add([replace(each, scores=known[each.program].scores) for each in waiting if each.program in known])

    def join(self, executed: Iterable[tuple[Problem, Program, bool]]) -> None:
        """Some attempts that were executed as a part of the reward wait to be canaries."""
        attempts, most = list(executed), self._settings.canaries_per_iteration
        self.memory.drawn += len(attempts)
        drawn = Random(f"{self._seed} {self.memory.drawn}").sample(attempts, min(most, len(attempts)))
        self.memory.waiting += [JudgedCanary(of.id, read, passed, CanaryKind.AUDITED) for of, read, passed in drawn]

    def witness(self, scored: Sequence[ScoredGroup], passed: Sequence[Sequence[bool | None]]) -> Metrics:
        """Executed truth from beside the reward. It never enters calibration."""
        self.judge.forget()
        known, (pairs, orders) = self.memory.calibration, evidence.compared(scored, passed)
        self._test_gap("exam", evidence.gap_of(pairs))
        if known is None or known.fit is not None:
            self.memory.examined = [order for order in orders if order.pairs]
            self._test_order()
        return evidence.executed_metrics(pairs, orders)

    def review(self, iteration: int, attempts: Sequence[JudgedAttempt]) -> None:
        """Prepare the next canaries, audit, test for drift, and calibrate anew when that is due. Raises EvaluatorError,
        SandboxError, and AlarmError when the run should end."""
        self.calibrated()
        self.judge.forget()
        self._prepare(iteration, attempts)
        if self._auditor is not None:
            self._audit(self._auditor, iteration, attempts)
        if iteration % LOOK_EVERY == 0:
            memory, known = self.memory, self.calibrated()
            self._note("canaries", evidence.canary_alarms(memory.canaries, known, memory.first_auroc, self.alone))
        most = {"warn": math.inf, "stop": 1, "tighten": STRIKES}[self._settings.on_alarm]
        for last in self.memory.looks.values():
            if last.strikes >= most:
                raise AlarmError(
                    f"the judge {'; it '.join(last.reasons)}; learning on would only exploit it further. The last "
                    "checkpoint is kept; use a better evaluator.model, or evaluator.on_alarm=warn to go on regardless"
                )
        every = self._settings.refit_every
        if self.memory.tighten or (every and iteration % every == 0):
            self.memory.tighten = False
            if self._refit().fit is None and self.alarms and self._settings.on_alarm != "warn":
                raise AlarmError(
                    f"calibrated anew, the judge has no skill; before, it {'; it '.join(self.alarms)}. Use a better "
                    "evaluator.model or reward.mode=rlvr, or evaluator.on_alarm=warn to go on regardless"
                )

    def rates(self) -> JudgeRates | None:
        """Return how often it errs on the newest canaries; None: unknown. One without weight believes all."""
        if (known := self.memory.calibration) is None:
            return None
        wrong, right = evidence.canary_rates(self.memory.canaries, known)
        if wrong.share is None or right.share is None:
            return None
        shares = (wrong.share, 1 - right.share) if self.weight else (1.0, 0.0)
        return JudgeRates(*shares, wrong.count, right.count)

    def metrics(self) -> Metrics:
        """`judge/...`, and `audit/...` where attempts are audited."""
        memory, known = self.memory, self.memory.calibration
        skill = ("auroc", "auroc_low", "brier", "ece")
        measured: Metrics = {
            **{f"judge/canary_{name}": known and getattr(known, name) for name in skill},
            "judge/weight": self.weight,
            "judge/calibrations": memory.refits,
            "judge/canaries": len(memory.canaries),
            "judge/identity": memory.identity,
            "judge/alarm": "; ".join(self.alarms) or None,
            **evidence.within_metrics("judge/canary_within_auroc", known and known.within),
            **evidence.within_metrics("judge/within_auroc", memory.within),
        }
        if known is not None:
            measured |= evidence.belief_metrics(memory.canaries, known)
            measured |= {f"judge/{source}_gap": gap.mean for source, gap in memory.gaps.items()}
        return measured if self._auditor is None else measured | evidence.audit_metrics(memory.audited)

    def restore(self, state: Memory) -> None:
        if state.identity != self.memory.identity:
            logger.info("the checkpoint was of another judge; this one is calibrated from the beginning")
            return
        self.memory = state
        self._add([])
        self.judge.forget()  # readings of a calibration at the start

    def _add(self, canaries: Sequence[JudgedCanary]) -> None:
        self.memory.canaries = evidence.newest([*self.memory.canaries, *canaries], self._settings.canaries)

    def _prepare(self, iteration: int, attempts: Sequence[JudgedAttempt]) -> None:
        count = self._settings.canaries_per_iteration
        read = ((each, each.program) for each in attempts if each.correctness >= BELIEF)
        believed = [(each.problem, known.code) for each, known in read if known is not None]
        moves = calibration.transplants(believed, count // FOREIGN_SHARE)
        codes = self.guard.transplant_many([(code, home.entry_point, away.entry_point) for home, code, away in moves])
        pairs = [(away, code) for (_, _, away), code in zip(moves, codes, strict=True) if code is not None]
        carried = [Canary(away, code, right=False, kind=CanaryKind.TRANSPLANT) for away, code in pairs]
        rest = count - len(carried)
        self.memory.waiting = self._checked([*draw_canaries(self._worked, rest, f"{self._seed} {iteration}"), *carried])

    def _checked(self, canaries: Sequence[Canary]) -> list[JudgedCanary]:
        """Canaries pass the static pass like completions."""
        reports = self.guard.check_many([request(canary.problem, fence(canary.code)) for canary in canaries])
        return [
            JudgedCanary(canary.problem.id, program(canary.problem, checked), canary.right, canary.kind)
            for canary, checked in zip(canaries, reports, strict=True)
            if not checked.unavailable
        ]

    def _refit(self) -> Calibration:
        """Read every canary with every score, and fit. Raises EvaluatorError."""
        memory = self.memory
        programs = list(dict.fromkeys(canary.program for canary in memory.canaries if canary.program is not None))
        readings = calibration.read_all(self.judge, programs, self._progress)
        memory.canaries = [
            canary if canary.program is None else replace(canary, scores=readings[canary.program].scores)
            for canary in memory.canaries
        ]
        read = [(each.scores, each.right, each.problem) for each in memory.canaries if each.scores is not None]
        scores, right, problems = zip(*read, strict=True) if read else ((), (), ())
        fitted = memory.calibration = calibration.calibrate(self.judge.names, scores, right, problems)
        memory.refits, memory.coverage = memory.refits + 1, coverage_of(memory.canaries)
        for reason in fitted.reasons:
            logger.info("judge: %s", reason)
        if fitted.fit is None:
            silent = [reading.why_not for reading in readings.values() if reading.scores is None]
            lost = [f"{len(silent)} of {len(readings)} could not be read: {silent[0]}"] if silent else []
            what = "the judge has no proven skill and gets weight 0: it tells no attempt from another (%s)"
            logger.warning(what, "; ".join([*fitted.reasons, *lost]))
        return fitted

    def _audit(self, auditor: Auditor, iteration: int, attempts: Sequence[JudgedAttempt]) -> None:
        """Execute a sample; the results join the canaries, and are tested once they are many."""
        memory, results = self.memory, auditor.audit(attempts, iteration, counted=bool(self.weight))
        memory.audited = [*memory.audited, *(result for _, result in results)][-auditor.window :]
        memory.drawn += len(results)
        decided = [(each, result.passed) for each, result in results if result.passed is not None]
        memory.waiting += [JudgedCanary(of.problem.id, of.program, ok, CanaryKind.AUDITED) for of, ok in decided]
        if memory.drawn - memory.looked_at >= AUDIT_BATCH:
            memory.looked_at = memory.drawn
            self._test_gap("audit", evidence.audit_gap(memory.audited))
            self._test_order()

    def _test_gap(self, source: str, gap: Gap | None) -> None:
        if gap is not None:
            self.memory.gaps[source] = gap
            self._note(source, [evidence.gap_open(source, gap, self.memory.first_gaps.setdefault(source, gap))])

    def _test_order(self) -> None:
        memory = self.memory
        memory.within = within_groups([*memory.examined, *evidence.audit_orders(memory.audited)])
        self._note("attempts of its policy", [evidence.orders_badly(memory.within)])

    def _note(self, source: str, results: Sequence[str]) -> None:
        """Store and log the results of the drift tests on one source of evidence; an empty one is no alarm."""
        reasons = tuple(filter(None, results))
        before = self.memory.looks.get(source, Look())
        self.memory.looks[source] = Look(reasons, before.strikes + 1 if reasons else 0)
        for reason in reasons:
            logger.warning("ALARM: the judge %s", reason)
        if before.reasons and not reasons:
            logger.warning("the judge can be believed again: nothing alarming in the %s", source)
        if reasons and self._settings.on_alarm == "tighten":
            self.memory.tighten = True
