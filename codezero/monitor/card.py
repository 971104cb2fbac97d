"""The report card of `codezero evaluate`: attempts and verdicts as a person reads them. Foreign text is cleaned."""

import sys
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from codezero.monitor.store import number
from codezero.monitor.text import clean, count, percent
from codezero.sandbox.execution import TRUTH, Execution
from codezero.types import Metrics, ScoredGroup, Status

STYLES = {
    Status.JUDGED: "default",
    Status.CERTAIN_FAILURE: "red",
    Status.QUARANTINED: "bold red",
    Status.UNAVAILABLE: "yellow",
}
GOOD, POOR = 0.7, 0.4
"""Rewards from which, and below which, the figure is coloured."""


def card(scored: ScoredGroup, executed: Sequence[str] | None) -> RenderableType:
    """One problem with a row for each attempt. `executed` [G]: what running it showed, when it was run."""
    table = Table(box=box.SIMPLE, expand=True, padding=(0, 1))
    table.add_column("#", justify="right", style="dim")
    table.add_column("reward", justify="right")
    table.add_column("status", no_wrap=True)
    if executed is not None:
        table.add_column("executed", no_wrap=True)
    table.add_column("why", ratio=1, overflow="fold")
    for index, verdict in enumerate(scored.verdicts):
        shown = [] if executed is None else [Text(executed[index])]
        told = (
            Text("—", "yellow")
            if verdict.status is Status.UNAVAILABLE
            else Text(f"{verdict.reward:.2f}", colour(verdict.reward))
        )
        why = clean("; ".join(verdict.reasons), 400) or "nothing to remark"
        table.add_row(
            str(index + 1),
            told,
            Text(verdict.status.value.replace("_", " "), STYLES[verdict.status]),
            *shown,
            Text(why),
        )
    problem = scored.group.problem
    title = clean(" ".join(problem.question.split()), 90)
    level = "" if problem.level is None else f"level {problem.level}"
    return Panel(
        table,
        title=Text(title, "bold"),
        title_align="left",
        subtitle=level,
        subtitle_align="right",
        box=box.ROUNDED,
        border_style="dim",
    )


def colour(reward: float) -> str:
    return "green" if reward >= GOOD else "red" if reward < POOR else "yellow"


def summary(scored: Sequence[ScoredGroup], executed: Sequence[bool | None] | None, known: Metrics) -> RenderableType:
    """What it adds up to, and how far to believe it. `executed`: of every attempt in order, None where undecided."""
    verdicts = [verdict for group in scored for verdict in group.verdicts]
    trainable = [verdict for verdict in verdicts if verdict.trainable]
    lines = [Text(f"{count(len(scored), 'problem')}, {count(len(verdicts), 'attempt')}", "bold")]
    if trainable:
        believed = sum(verdict.correctness for verdict in trainable) / len(trainable)
        lines.append(
            Text(
                f"judged {percent(believed)} right; mean reward {sum(v.reward for v in trainable) / len(trainable):.2f}"
            )
        )
    masked = len(verdicts) - len(trainable)
    if masked:
        lines.append(Text(f"{count(masked, 'attempt')} quarantined or not to be told, in no figure", "yellow"))
    if executed is not None:
        decided = [passed for passed in executed if passed is not None]
        share = percent(sum(decided) / len(decided) if decided else None)
        lines.append(Text(f"executed {share} right, {len(executed) - len(decided)} undecided"))
    lines.append(Text(skill_line(known), "dim"))
    return Group(*lines)


def skill_line(known: Metrics) -> str:
    """How far this judge can be believed, from its canaries."""
    area, low = number(known, "judge/canary_auroc"), number(known, "judge/canary_auroc_low")
    if area is None or low is None:
        return "how far the judge can be believed was not measured"
    weight = "" if number(known, "judge/weight") else ": no proven skill, so it counts for nothing"
    false = percent(number(known, "judge/canary_false_positive_share"))
    skill = f"the judge's AUROC on known solutions is {area:.3f} (at least {low:.3f})"
    return f"{skill}; it believes {false} of the wrong ones{weight}"


def print_marked(marked: Iterable[tuple[ScoredGroup, Sequence[Execution] | None, Metrics]]) -> None:
    """Print each card as it comes, then the summary."""
    console = Console(file=sys.stdout)
    scored: list[ScoredGroup] = []
    executed: list[bool | None] = []
    skill: Metrics = {}
    audited = False
    for group, shown, known in marked:
        skill = known
        scored.append(group)
        if shown is not None:
            audited = True
            executed.extend(TRUTH[one.outcome] for one in shown)
        console.print(card(group, None if shown is None else [one.outcome.value for one in shown]))
    console.print(summary(scored, executed if audited else None, skill))
