"""The watch over the judge: calibrates it on canaries, goes on testing it while it is being optimised against, and
raises the alarm when it is found exploited.

Fresh canaries are read among the solver's attempts, unmarked, in every iteration. At an alarm the judge is calibrated
anew on the newest ones, where whatever the policy has found out about it no longer counts as skill; when that does not
help, the run ends with its last good checkpoint.
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from codezero.code.parsing import fence
from codezero.config import EvaluatorConfig
from codezero.errors import AlarmError
from codezero.evaluator import evidence
from codezero.evaluator.audit import AuditedAttempt, Auditor, audit_metrics
from codezero.evaluator.calibration import Calibration, read_all
from codezero.evaluator.canaries import Canary, CanaryKind, CanarySource, transplants
from codezero.evaluator.evidence import STRIKES, Gap, JudgedCanary, Look, Pair, Window, gap_of
from codezero.evaluator.memory import Memory
from codezero.evaluator.types import Guard, Judge, Program, Reading, program, request, unread
from codezero.system.state import StateFile
from codezero.types import BELIEF, JudgeRates, Metrics

logger = logging.getLogger(__name__)

LOOK_EVERY = 10
"""Iterations between two looks at the canaries alone."""
AUDIT_BATCH = 100
"""Executed attempts that make the audit worth another look."""
FOREIGN_SHARE = 4
"""Transplants are at most this fraction of an iteration's canaries."""


@dataclass(frozen=True, slots=True)
class Reviewed:
    """An attempt that was scored, and what the judge saw of it."""

    attempt: AuditedAttempt
    program: Program | None


class Watch(StateFile[Memory], file="watch.json", schema=Memory):
    """How far one judge can be believed, and the evidence for it. `identity` says which judge, for the checkpoint."""

    def __init__(
        self,
        judge: Judge,
        guard: Guard,
        source: CanarySource,
        settings: EvaluatorConfig,
        *,
        identity: str,
        seed: int = 0,
        auditor: Auditor | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`tell` hears every other second how far a calibration is."""
        self._judge = judge
        self._guard = guard
        self._source = source
        self._settings = settings
        self._identity = identity
        self._seed = seed
        self._auditor = auditor
        self._tell = tell
        self._window = Window(settings.canaries)
        self._calibration: Calibration | None = None
        self._first_auroc: float | None = None
        self._waiting: list[JudgedCanary] = []
        """Canaries that the next attempts are mixed with."""
        self._looks: dict[str, Look] = {}
        """The last look at each source of evidence."""
        self._gaps: dict[str, Gap] = {}
        self._audited = 0
        """Attempts executed when the audit was last looked at."""
        self._refits = 0
        self._tighten = False
        """An alarm waits for its answer."""

    @property
    def alarms(self) -> tuple[str, ...]:
        """What is wrong with the judge just now."""
        return tuple(reason for look in self._looks.values() for reason in look.reasons)

    def calibrated(self) -> Calibration:
        """The present calibration; the first call makes one. Raises EvaluatorError."""
        if self._calibration is None:
            self._window.add(self._stand(self._source.draw(self._settings.canaries, f"{self._seed} start")))
            self._calibration = self._refit()
            self._first_auroc = self._calibration.auroc
        return self._calibration

    def pending(self) -> set[Program]:
        """What is to be read besides, now."""
        return {canary.program for canary in self._waiting if canary.program is not None}

    def absorb(self, readings: Mapping[Program, Reading]) -> None:
        """Take the scores of pending canaries; those that were not asked go on waiting."""
        read = [one for one in self._waiting if one.program is None or one.program in readings]
        self._waiting = [one for one in self._waiting if one.program is not None and one.program not in readings]
        self._window.add([one if one.program is None else one.scored(readings[one.program].scores) for one in read])

    def witness(self, executed: Sequence[Pair]) -> None:
        """Executed truth from beside the reward. It never enters calibration."""
        self._judge.forget()
        self._look_at_gap("exam", gap_of(executed))

    def review(self, iteration: int, reviewed: Sequence[Reviewed]) -> None:
        """Audit, prepare the next canaries, look for alarms, calibrate anew when that is due.

        Raises EvaluatorError, SandboxError, and AlarmError when the run should end.
        """
        self.calibrated()
        self._judge.forget()
        self._prepare(iteration, reviewed)
        if self._auditor is not None:
            self._audit(self._auditor, iteration, reviewed)
        if iteration % LOOK_EVERY == 0:
            self._look("canaries", self._canary_alarms())
        self._give_up_if_hopeless()
        every = self._settings.refit_every
        if self._tighten or (every and iteration % every == 0):
            self._tighten = False
            self._calibration = self._refit()
            if self.alarms and self._calibration.fit is None and self._settings.on_alarm != "warn":
                raise AlarmError(
                    f"calibrated anew, the judge has no skill left; before, it {'; it '.join(self.alarms)}"
                )

    def rates(self) -> JudgeRates | None:
        """How often the judge was mistaken about the newest canaries; None before it was calibrated."""
        return self._calibration and self._window.rates(self._calibration)

    def metrics(self) -> Metrics:
        """`judge/...`, and `audit/...` where attempts are audited."""
        known = self._calibration
        measured: Metrics = {
            "judge/canary_auroc": known and known.auroc,
            "judge/canary_auroc_low": known and known.auroc_low,
            "judge/canary_brier": known and known.brier,
            "judge/canary_ece": known and known.ece,
            "judge/weight": known and float(known.fit is not None),
            "judge/threshold": known and known.threshold,
            "judge/calibrations": self._refits,
            "judge/canaries": len(self._window),
            "judge/identity": self._identity,
            "judge/alarm": "; ".join(self.alarms) or None,
        } | ({} if known is None else self._beliefs(known))
        return measured if self._auditor is None else measured | audit_metrics(self._auditor.report())

    def state(self) -> Memory:
        return Memory(
            identity=self._identity,
            calibration=self._calibration,
            first_auroc=self._first_auroc,
            refits=self._refits,
            canaries=list(self._window),
            waiting=self._waiting,
            looks=self._looks,
            gaps=self._gaps,
            tighten=self._tighten,
            audited=[] if self._auditor is None else list(self._auditor.done),
            drawn=0 if self._auditor is None else self._auditor.drawn,
            looked_at=self._audited,
        )

    def restore(self, state: Memory) -> None:
        """Of another judge nothing is taken over."""
        if state.identity != self._identity:
            logger.info("the checkpoint was of another judge; this one is calibrated from the beginning")
            return
        self._calibration, self._first_auroc, self._refits = state.calibration, state.first_auroc, state.refits
        self._looks, self._gaps, self._tighten = state.looks, state.gaps, state.tighten
        self._window = Window(self._settings.canaries)
        self._window.add(state.canaries)
        self._waiting = list(state.waiting)
        self._judge.forget()  # what calibrating it at the start has read
        if self._auditor is not None:
            self._auditor.become(state.audited, state.drawn)
            self._audited = state.looked_at

    def _prepare(self, iteration: int, reviewed: Sequence[Reviewed]) -> None:
        """The canaries that the next attempts are mixed with."""
        count = self._settings.canaries_per_iteration
        believed = [
            (one.attempt.problem, one.program.code)
            for one in reviewed
            if one.program is not None and one.attempt.correctness >= BELIEF
        ]
        foreign = transplants(believed, count // FOREIGN_SHARE)
        codes = self._guard.transplant_many([(one.code, one.old_entry, one.problem.entry_point) for one in foreign])
        carried = [
            Canary(one.problem, code, right=False, kind=CanaryKind.TRANSPLANT)
            for one, code in zip(foreign, codes, strict=True)
            if code is not None
        ]
        drawn = self._source.draw(count - len(carried), f"{self._seed} {iteration}")
        self._waiting = self._stand([*drawn, *carried])

    def _stand(self, canaries: Sequence[Canary]) -> list[JudgedCanary]:
        """Canaries go the way of completions, through the static pass."""
        requests = [request(canary.problem, fence(canary.code)) for canary in canaries]
        return [
            JudgedCanary(canary.problem.id, program(canary.problem, report), canary.right, canary.kind)
            for canary, report in zip(canaries, self._guard.check_many(requests), strict=True)
            if not report.unavailable
        ]

    def _refit(self) -> Calibration:
        """Read every canary of the window with every score, and fit. Raises EvaluatorError."""
        programs = list(dict.fromkeys(one.program for one in self._window if one.program is not None))
        readings = read_all(self._judge, programs, self._tell)
        self._window.rescore([None if one.program is None else readings[one.program].scores for one in self._window])
        made = self._window.calibrate(self._judge.names)
        self._refits += 1
        for reason in made.reasons:
            logger.info("judge: %s", reason)
        if made.fit is None:
            logger.warning(
                "the judge has no proven skill and gets weight 0; rewards rest on the static pass alone (%s)",
                "; ".join([*made.reasons, *unread(list(readings.values()))]),
            )
        return made

    def _audit(self, auditor: Auditor, iteration: int, reviewed: Sequence[Reviewed]) -> None:
        """Execute a sample; what it shows joins the canaries, and is looked at once it is much."""
        seen = {id(one.attempt): one.program for one in reviewed}
        audited = auditor.audit([one.attempt for one in reviewed], iteration)
        self._waiting += [
            JudgedCanary(attempt.problem.id, seen[id(attempt)], row.passed, CanaryKind.AUDITED)
            for attempt, row in audited
            if row.passed is not None
        ]
        if auditor.drawn - self._audited >= AUDIT_BATCH:
            self._audited = auditor.drawn
            self._look_at_gap("audit", auditor.report().gap)

    def _look_at_gap(self, source: str, gap: Gap | None) -> None:
        if gap is not None:
            self._gaps[source] = gap
            self._look(source, [evidence.gap_open(source, gap)])

    def _canary_alarms(self) -> list[str]:
        known = self.calibrated()
        if known.fit is None:
            return []
        attacks, foreign = (
            self._window.believed(known, kind, right=False) for kind in (CanaryKind.ATTACK, CanaryKind.TRANSPLANT)
        )
        now, _, high = self._window.auroc(known)
        return [
            evidence.too_much_believed("wrong answers dressed up to please", attacks),
            evidence.too_much_believed("its policy's answers to other questions", foreign),
            evidence.skill_lost(self._first_auroc, now, high),
        ]

    def _look(self, source: str, found: Sequence[str]) -> None:
        """Note what one source of evidence shows."""
        reasons = tuple(filter(None, found))
        before = self._looks.get(source, Look())
        self._looks[source] = Look(reasons, before.strikes + 1 if reasons else 0)
        for reason in reasons:
            logger.warning("ALARM: the judge %s", reason)
        if before.reasons and not reasons:
            logger.warning("the judge can be believed again: nothing alarming in the %s", source)
        self._tighten = self._tighten or (bool(reasons) and self._settings.on_alarm == "tighten")

    def _give_up_if_hopeless(self) -> None:
        most = {"warn": math.inf, "stop": 1, "tighten": STRIKES}[self._settings.on_alarm]
        for look in self._looks.values():
            if look.strikes >= most:
                raise AlarmError(
                    f"the judge {'; it '.join(look.reasons)}; learning on would only exploit it further. The last "
                    "checkpoint is kept; use a better evaluator.model, or evaluator.on_alarm=warn to go on regardless"
                )

    def _beliefs(self, known: Calibration) -> Metrics:
        """What the judge believes of the newest canaries; nothing of a judge without weight, which believes nothing."""
        if known.fit is None:
            return {f"judge/{source}_gap": gap.mean for source, gap in self._gaps.items()}
        wrong, right = self._window.of_wrong(known), self._window.of_right(known)
        measured: Metrics = {
            "judge/canary_false_positive_share": wrong.share,
            "judge/canary_false_positive_low": wrong.interval.low,
            "judge/canary_false_positive_high": wrong.interval.high,
            "judge/canary_false_negative_share": None if right.share is None else 1 - right.share,
            "judge/canary_false_negative_low": 1 - right.interval.high,
            "judge/canary_false_negative_high": 1 - right.interval.low,
            "judge/attacks_believed_share": self._window.believed(known, CanaryKind.ATTACK, right=False).share,
            "judge/transplants_believed_share": self._window.believed(known, CanaryKind.TRANSPLANT, right=False).share,
        }
        return measured | {f"judge/{source}_gap": gap.mean for source, gap in self._gaps.items()}
