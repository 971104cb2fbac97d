"""The report card of `codezero judge`: attempts and verdicts as a person reads them. Foreign text is cleaned."""

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec
from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from codezero.monitor.metrics_file import number
from codezero.monitor.summaries import within_line
from codezero.monitor.terminal import framed
from codezero.monitor.text import clean, count, percent
from codezero.sandbox.base import TRUTH, Execution, Outcome
from codezero.stats import auroc, group_order, within_groups
from codezero.types import BELIEF, Metrics, ScoredGroup, Status, Verdict

STYLES = {
    Status.JUDGED: "default", Status.CERTAIN_FAILURE: "red",
    Status.QUARANTINED: "bold red", Status.UNAVAILABLE: "yellow",
}  # fmt: skip
LOUD = "bold white on red"


@dataclass(frozen=True, slots=True)
class JudgedProblem:
    scored: ScoredGroup
    executed: tuple[Execution, ...] | None
    """[G] when the audit was asked for."""
    same_family: bool
    """Is it a problem of the family on which the judge was calibrated?"""

    def mistaken(self) -> list[bool | None]:
        """Does the judge say something else than execution? None where either says nothing; [G], [] without audit."""
        truth = [TRUTH[run.outcome] for run in self.executed or ()]
        return [
            (verdict.correctness >= BELIEF) != passed if verdict.trainable and passed is not None else None
            for verdict, passed in zip(self.scored.verdicts, truth, strict=self.executed is not None)
        ]

    def compared(self) -> list[tuple[float, bool]]:
        """(judged correctness, passed) of the attempts that were left to the judge, and that execution decided."""
        truth = [TRUTH[run.outcome] for run in self.executed or ()]
        return [
            (verdict.correctness, passed)
            for verdict, passed in zip(self.scored.verdicts, truth, strict=self.executed is not None)
            if verdict.status is Status.JUDGED and passed is not None
        ]

    def contradictions(self) -> Counter[str]:
        """How often they say different things, of the attempts on which both say something."""
        kinds = Counter(failing=0, failing_believed=0, passing=0, passing_not_believed=0)
        for run, mistaken in zip(self.executed or (), self.mistaken(), strict=True):
            if mistaken is not None:
                passing = run.outcome is Outcome.PASS
                kinds["passing" if passing else "failing"] += 1
                kinds["passing_not_believed" if passing else "failing_believed"] += mistaken
        return kinds

    def to_json(self, known: Metrics) -> dict[str, object]:
        """As `--json` prints it. `known`: of the judge."""
        verdicts = [msgspec.to_builtins(verdict) for verdict in self.scored.verdicts]
        for verdict, run, mistaken in zip(verdicts, self.executed or (), self.mistaken(), strict=False):
            verdict |= {"executed": run.outcome.value, "executed_reason": run.reason, "judge_mistaken": mistaken}
            verdict |= {"cheats": run.cheats, "unguarded_tests": run.unguarded}
        audit = {} if self.executed is None else {"audit": dict(self.contradictions())}
        family = known.get("judge/calibrated_on")
        return {"verdicts": verdicts, "calibrated_on": family, "same_family": self.same_family, **audit}


def mistakes(kinds: Counter[str]) -> list[str]:
    """What to say aloud of contradictions; nothing where there are none."""
    lines: list[str] = []
    if wrong := kinds["failing_believed"]:
        of = count(kinds["failing"], "attempt")
        lines.append(f"THE JUDGE IS MISTAKEN: it believed {wrong} of {of} that fail when executed")
    if unsure := kinds["passing_not_believed"]:
        of = count(kinds["passing"], "attempt")
        lines.append(
            f"JUDGE AND TESTS DISAGREE: it did not believe {unsure} of {of} that pass when executed; "
            "either it is mistaken, or the tests are too few"
        )
    return lines


def audited_skill(compared: Sequence[Sequence[tuple[float, bool]]]) -> str:
    """How well the judge ranks attempts that were executed, by problem; empty where there is no pair to rank."""
    within, rows = within_groups(map(group_order, compared)), [row for rows in compared for row in rows]
    if len({passed for _, passed in rows}) < 2:
        return ""
    over = f"AUROC of the judge on these attempts {auroc(*zip(*rows, strict=True)):.2f} over problems"
    if within is None:
        return f"{over}; no problem has a right and a wrong one"
    known = f"{within.area:.2f} [{within.low:.2f}, {within.high:.2f}] within groups"
    return f"{over}, {known}, of {count(within.pairs, 'pair')}"


def loud_mistakes(problems: Iterable[JudgedProblem]) -> list[Text]:
    return [Text(line, LOUD) for line in mistakes(sum((each.contradictions() for each in problems), Counter[str]()))]


def card(marked: JudgedProblem) -> RenderableType:
    problem, mistaken = marked.scored.group.problem, marked.mistaken()
    table = Table(box=box.SIMPLE, expand=True, padding=(0, 1))
    table.add_column("#", justify="right", style="dim")
    table.add_column("reward", justify="right")
    table.add_column("status", no_wrap=True)
    if marked.executed is not None:
        table.add_column("executed", no_wrap=True)
    table.add_column("why", ratio=1, overflow="fold")
    for index, verdict in enumerate(marked.scored.verdicts):
        colour = "green" if verdict.reward >= 0.7 else "red" if verdict.reward < 0.4 else "yellow"
        known = verdict.status is not Status.UNAVAILABLE
        reward = Text(f"{verdict.reward:.2f}", colour) if known else Text("—", "yellow")
        status = Text(status_word(verdict), STYLES[verdict.status])
        shown = [] if marked.executed is None else [_shown(marked.executed[index], mistaken[index])]
        why = clean("; ".join(verdict.reasons), 400) or "nothing to remark"
        table.add_row(str(index + 1), reward, status, *shown, Text(why))
    title = clean(" ".join(problem.question.split()), 90)
    notes = [] if marked.same_family else ["not of the family the judge was calibrated on"]
    notes += [] if problem.level is None else [f"level {problem.level}"]
    return framed(table, Text(title, "bold"), note=Text(" · ".join(notes), "" if marked.same_family else "yellow"))


def status_word(verdict: Verdict) -> str:
    return "unknown" if verdict.status is Status.UNAVAILABLE else verdict.status.value.replace("_", " ")


def in_words(verdict: Verdict) -> str:
    """`judge: 98 % likely to pass`, or why it does not say."""
    if verdict.status is Status.JUDGED:
        return f"judge: {100 * verdict.correctness:.0f} % likely to pass"
    return f"judge: {status_word(verdict)}, {'; '.join(verdict.reasons)}"


def _shown(execution: Execution, mistaken: bool | None) -> Text:
    """What running it showed, loudly where the judge says something else."""
    if not mistaken:
        return Text(execution.outcome.value)
    return Text("PASS, NOT BELIEVED" if execution.outcome is Outcome.PASS else "FAIL, BUT BELIEVED", LOUD)


def summary(marked: Sequence[JudgedProblem], known: Metrics) -> RenderableType:
    verdicts = [verdict for problem in marked for verdict in problem.scored.verdicts]
    trainable = [verdict for verdict in verdicts if verdict.trainable]
    lines = [Text(f"{count(len(marked), 'problem')}, {count(len(verdicts), 'attempt')}", "bold")]
    if trainable:
        believed = percent(sum(verdict.correctness for verdict in trainable) / len(trainable))
        reward = sum(verdict.reward for verdict in trainable) / len(trainable)
        lines.append(Text(f"judged {believed} right; mean reward {reward:.2f}"))
    if masked := len(verdicts) - len(trainable):
        unknown = sum(verdict.status is Status.UNAVAILABLE for verdict in verdicts)
        parts = f"{unknown} unknown to the judge, {masked - unknown} quarantined"
        lines.append(Text(f"{count(masked, 'attempt')} in no figure: {parts}", "yellow"))
    if executed := [run for problem in marked for run in problem.executed or ()]:
        decided = [passed for run in executed if (passed := TRUTH[run.outcome]) is not None]
        share = percent(sum(decided) / len(decided) if decided else None)
        lines.append(Text(f"executed {share} right, {len(executed) - len(decided)} undecided"))
        if cheats := sum(run.cheats for run in executed):
            lines.append(Text(f"{count(cheats, 'attempt')} of the wrong ones answered for the tests", "bold red"))
        if bare := sum(run.unguarded > 0 for run in executed):
            lines.append(Text(f"{count(bare, 'attempt')} passed tests that cannot find a cheat", "yellow"))
    if skill := audited_skill([problem.compared() for problem in marked]):
        lines.append(Text(skill))
    lines += [*loud_mistakes(marked), Text(skill_line(known), "dim")]
    family = known.get("judge/calibrated_on")
    if family is not None:
        lines.append(Text(f"calibrated on {clean(str(family), 200)}; it is no judge of others", "dim"))
    if others := sum(not problem.same_family for problem in marked):
        warning = f"{others} of {count(len(marked), 'problem')} {'is' if others == 1 else 'are'} of another family"
        remedy = "--audit executes the attempts, evaluator.canaries_from=FILE calibrates on problems of yours"
        lines.append(Text(f"{warning}: the judge's figures do not hold there; {remedy}", "bold yellow"))
    return Group(*lines)


def skill_line(known: Metrics) -> str:
    area, low = number(known, "judge/canary_auroc"), number(known, "judge/canary_auroc_low")
    if area is None or low is None:
        return "how far the judge can be believed was not measured"
    weight = "" if number(known, "judge/weight") else ": no proven skill, so it counts for nothing"
    false = percent(number(known, "judge/canary_false_positive_share"))
    skill = f"the judge's AUROC on known solutions, over problems, is {area:.3f} (at least {low:.3f})"
    ranks = within_line(known, "judge/canary_within_auroc").replace("groups", "problems")
    return "; ".join(filter(None, (skill, ranks, f"it believes {false} of the wrong ones{weight}")))


def print_marked(marked: Iterable[tuple[JudgedProblem, Metrics]]) -> None:
    """Print each card as it comes, then the summary. The metrics are of the judge."""
    console = Console(file=sys.stdout)
    shown: list[JudgedProblem] = []
    skill: Metrics = {}
    for problem, known in marked:
        skill = known
        shown.append(problem)
        console.print(card(problem))
    console.print(summary(shown, skill))
