"""The one view of a run, made of its rows and its process's report; its health, and lines about it for people."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice

from codezero.code.answer import read_answer
from codezero.monitor.metrics_file import MAX_WHOLE, number, whole
from codezero.monitor.run_state import CURVES, REASON, Fold, hindrances, trouble_of
from codezero.monitor.run_types import Health, JudgeBelief, LevelSkill, Round, RunView
from codezero.monitor.text import clean, count, duration, measured, percent, readable_name, within_groups
from codezero.system.child import ProcessReport
from codezero.system.signals import FAILED
from codezero.types import REHEARSAL, Completion, Metrics, ScoredGroup, Verdict

UNKNOWN = "unknown"
LEAST_LIMIT = 120.0  # seconds without a step that are never a stall
STEPS, EXAMS = 10, 3  # medians of a step, and times of the last exam, which is sat between two steps, that are no stall
AHEAD = 5.0  # seconds that a moment may lie in the future, for clocks that are being corrected
START_SECONDS = 1_800.0  # before the first step: models are loaded, the judge is calibrated, and the first exam is sat


def view_of(fold: Fold, node: ProcessReport, key: str = "", curves: Collection[str] = CURVES) -> RunView:
    """All that rows and report say. key: the run's name in the API. curves: the series whose points are wanted."""
    last, updated = fold.last, number(fold.last, "time")
    begun = bool(last) and (updated or 0.0) >= (node.began or 0.0)  # the newest row is of this process
    stand_ins = str(last.get("problems/stand_ins") or "") if begun else node.stand_ins
    shares = "auroc auroc_low false_positive_share false_positive_low false_positive_high false_negative_share"
    return RunView(
        run=key,
        name=readable_name(node.peer_id) if node.peer_id else UNKNOWN,
        peer_id=node.peer_id,
        running=node.alive,
        stopped=node.stopped or "",
        began=node.began,
        updated=updated,
        iteration=whole(last, "iteration"),
        round=_newest_whole(fold, "round"),
        level=_newest_whole(fold, "difficulty/level"),
        reward=fold.newest("reward/mean"),
        seconds_per_iteration=fold.step_seconds,
        limit_seconds=limit_seconds(not begun, fold.step_seconds, fold.newest("eval/seconds")),
        tokens_per_second=fold.newest("tokens/sampled_per_second"),
        # What stands in for sources of problems, else for the exam or the canaries, and why.
        stand_ins=stand_ins
        or next((f"{name}: {fact}" for name, fact in node.facts.items() if fact.startswith(REHEARSAL)), ""),
        attempts=attempts_line(fold),
        best=best_line(fold),
        hindrance="; ".join(hindrances(fold.recent).values()),
        facts=node.facts,
        series={name: fold.series[name].points for name in curves if fold.series[name].newest is not None},
        latest={name: value for name in CURVES if (value := fold.series[name].newest) is not None},
        exams=[*fold.exams],
        difficulty=[*_skills(last)],
        judge=JudgeBelief(
            weight=fold.newest("judge/weight"),
            canaries=whole(last, "judge/canaries"),
            alarm=trouble_of(fold.judge),
            summary=judge_line(fold.judge),
            audit=audit_line(fold.judge),
            **{name: fold.newest(f"judge/canary_{name}") for name in shares.split()},
        ),
        rounds=[
            Round(number=number, began=played.began, iterations=played.iterations, reward=played.rewards.mean)
            for number, played in reversed(fold.rounds.items())
        ],
        tolerated={kind: min(times, MAX_WHOLE) for kind, times in islice(fold.survived.items(), 32)},
    )


def _newest_whole(fold: Fold, key: str) -> int | None:
    return next((value for row in reversed(fold.recent) if (value := whole(row, key)) is not None), None)


def _skills(row: Metrics) -> Iterator[LevelSkill]:
    for level in range(1, 6):
        key = f"difficulty/success_{level}"
        mean, low, high = (number(row, f"{key}{part}") for part in ("", "_low", "_high"))
        weight = number(row, f"difficulty/weight_{level}")
        if mean is not None and low is not None and high is not None and weight is not None:
            yield LevelSkill(level=level, mean=mean, low=low, high=high, weight=weight)


def limit_seconds(starting: bool, step_seconds: float | None, exam_seconds: float | None) -> float:
    """After which time without a step a run has stalled. step_seconds: median of the last ones."""
    if starting:
        return START_SECONDS
    return max(LEAST_LIMIT, STEPS * (step_seconds or 0.0)) + EXAMS * (exam_seconds or 0.0)


def overall(views: Sequence[RunView], now: float) -> Health:
    """The health of the first that is not healthy; when all are, of the first; without any, nothing stalls."""
    states = [health(view, now) for view in views] or [Health()]
    return next((state for state in states if not state.healthy), states[0])


def health(view: RunView, now: float) -> Health:
    """now: seconds since 1970. A run that ended as it should is healthy."""
    moments = [moment for moment in (view.began, view.updated) if moment is not None]
    # A clock that was set back leaves moments in the future. A step that came after that tells more than they.
    ahead = moments[-1] - now if moments else 0.0
    last = max((moment for moment in moments if moment <= now + AHEAD), default=None)
    waited = 0.0 if last is None else now - last
    problem = ""
    if not view.running and view.supervisor:
        problem = view.supervisor
    elif view.began is not None and not view.running and not view.stopped:
        problem = "the process of the run is gone and has not said why; see its log, and start it again"
    elif not view.running and view.stopped == FAILED:
        problem = "the run was stopped by an error; see its log, and start it again"
    elif view.running and ahead > AHEAD:
        problem = f"its last step is {ahead:.0f} s in the future: the clock was set back; the next step will tell"
    elif view.running and waited > view.limit_seconds:
        problem = f"no step for {waited:.0f} s, and {view.limit_seconds:.0f} s are a stall; see the log of the run"
    return Health(
        healthy=not problem,
        run=view.run,
        running=view.running,
        iteration=view.iteration,
        seconds_since_step=None if view.updated is None else max(0.0, now - view.updated),
        limit_seconds=view.limit_seconds,
        problem=problem,
    )


def trouble_line(view: RunView) -> str:
    """Say what is wrong with judge or sampler, or keeps the run from learning, now; empty: nothing."""
    return "; ".join(filter(None, (view.judge.alarm, view.hindrance)))


def plain_line(view: RunView, exams: str = "") -> str:
    """`iteration 50 · round 12 · reward 0.71 · executed average@8 52.1 % [48.9, 55.2] · level 3 · 2 peers · 0.6 s`.

    exams: shown in place of an exam of the present iteration."""
    exam, trouble = view.exam_now, trouble_line(view)
    parts = [
        f"iteration {view.iteration or 0}",
        f"round {view.round or 0}",
        "" if view.reward is None else f"reward {view.reward:.2f}",
        exams or (f"{clean(exam.label, 40)} {exam.interval}" if exam else ""),
        "" if view.level is None else f"level {view.level}",
        count(view.latest.get("peers", 0), "peer"),
        "" if view.seconds_per_iteration is None else duration(view.seconds_per_iteration),
        trouble or view.attempts,
        count(sum(view.tolerated.values()), "tolerated error") if view.tolerated else "",
    ]
    return " · ".join(filter(None, parts))


def most_telling(scored: Sequence[ScoredGroup]) -> ScoredGroup | None:
    """The group whose rewards differ most, or None when nothing could be judged."""
    rewards = ([verdict.reward for verdict in group.trainable] for group in scored)
    spreads = {place: max(judged) - min(judged) for place, judged in enumerate(rewards) if judged}
    return scored[max(spreads, key=spreads.__getitem__)] if spreads else None


def best_and_worst(scored: ScoredGroup) -> Iterator[tuple[Completion, Verdict]]:
    """Choose among the attempts that could be judged, of which there is one at least."""
    pairs = zip(scored.group.completions, scored.verdicts, strict=True)
    judged = sorted((pair for pair in pairs if pair[1].trainable), key=lambda pair: pair[1].reward)
    yield judged[-1]
    yield judged[0]


def code_of(text: str, entry_point: str) -> str:
    """The answer in a completion, for display only; without one its first fenced block, or the text as it is."""
    text = text[:4_000]
    fenced = re.search(r"```(?:[^\S\n]*(?:\w+[^\S\n]*)?\n)?(.*?)(?:```|\Z)", text, re.DOTALL)
    return (read_answer(text, entry_point).code or (fenced[1] if fenced else text)).strip("\n")


def attempts_line(fold: Fold, *, whole: bool = False) -> str:
    """`71.0 % of the attempts learned, 3.0 % cut off, 1.0 % without a verdict: the judge abstains`; empty: not known.

    whole: over the run; else the newest."""
    series = [fold.series[f"{name}_share"] for name in ("learned", "cut_off", "no_verdict")]
    learned, cut_off, no_verdict = (each.mean if whole else each.newest for each in series)
    if learned is None:
        return ""
    reason = next((text for row in reversed(fold.recent) if (text := row.get(REASON))), "") if no_verdict else ""
    why = f": {clean(str(reason), 200)}" if reason else ""
    others = f"{percent(cut_off)} cut off, {percent(no_verdict)} unjudged{why}"
    return f"{percent(learned)} of the attempts learned, {others}"


def best_line(fold: Fold) -> str:
    """`best at iteration 40: executed average@8 52.1 % [48.9, 55.2]`; empty: there was no exam, or it is the newest."""
    best = fold.best
    if best is None or not fold.since_best:
        return ""
    return f"best at iteration {best.iteration}: {clean(best.label, 40)} {best.interval}"


def within_line(row: Metrics, name: str) -> str:
    """`AUROC 0.96 [0.91, 0.98] within groups, of 695 pairs`, whose keys begin with `name`; empty when not measured."""
    return within_groups(*(number(row, f"{name}{part}") for part in ("", "_low", "_high", "_pairs")))


def judge_line(row: Metrics) -> str:
    """Say how far the judge can be believed: on executed attempts, and on known solutions; empty: unknown."""
    over = number(row, "judge/canary_auroc")
    pooled = "" if over is None else f"AUROC {over:.2f} over problems, on references and mutants"
    weight = "it has no weight" if number(row, "judge/weight") == 0 else ""
    return "; ".join(filter(None, (within_line(row, "judge/within_auroc"), pooled, weight)))


def audit_line(row: Metrics) -> str:
    """`judge says 71.0 %, audit says 43.0 % [35.0, 51.0] (212 attempts executed)`; empty without an audit."""
    success = number(row, "audit/success")
    if success is None:
        return ""
    passing = measured(success, number(row, "audit/success_low"), number(row, "audit/success_high"))
    executed = count(number(row, "audit/count") or 0, "attempt")
    ranks = within_line(row, "audit/within_auroc")
    line = f"judge says {percent(number(row, 'audit/judged'))}, audit says {passing} ({executed} executed)"
    return f"{line}; {ranks}" if ranks else line


def problem_lines(row: Metrics, levels: Mapping[str, Sequence[int]]) -> list[tuple[str, str]]:
    """(what, figure) for people: what became of proposals, and what `measured_levels` counts; empty: neither is known.
    That expected values are wrong is known only where something is executed."""
    lines: list[tuple[str, str]] = []
    if (written := number(row, "proposer/written")) is not None:
        total, kinds = _refused(row, "proposer/refused_")
        why = f", {total} refused as they came: {kinds}" if total else ""
        values = "claims, never executed (audit.share, or reward.mode=rlvr, would tell how many are wrong)"
        right, wrong = number(row, "proposer/values_right"), number(row, "proposer/values_wrong")
        if right is not None and wrong is not None:
            executed = f"{right + wrong:.0f} executed are wrong"
            values = f"{percent(wrong / (right + wrong))} of {executed}" if right + wrong else "none executed yet"
        lines = [("proposals", f"{count(written, 'problem')} written{why}"), ("expected values", values)]
    if (derived := number(row, "proposer/derived")) is not None:
        lines.append(("proposals", f"{count(derived, 'problem')} derived"))
    total, kinds = _refused(row, "problems/refused_")
    lines += [("problems refused", f"{total}: {kinds}")] if total else []
    for source, problems in levels.items():
        at = ", ".join(f"{many} at {level}" for level, many in enumerate(problems, 1))
        lines.append((f"{source} by level", f"{at}, as own attempts were scored"))
    return lines


def _refused(row: Metrics, prefix: str) -> tuple[int, str]:
    """Count them, with the most frequent reasons, which are the rest of the names after `prefix`."""
    counts = {name.removeprefix(prefix): int(number(row, name) or 0) for name in row if name.startswith(prefix)}
    ranked = sorted((-times, name) for name, times in counts.items() if times)
    kinds = ", ".join(f"{-times} {name.replace('_', ' ')[:40]}" for times, name in ranked[:8])
    return sum(counts.values()), kinds
