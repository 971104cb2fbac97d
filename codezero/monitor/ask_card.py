"""The answer of `codezero ask`: equal attempts together, before and after side by side. Foreign text is cleaned."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from codezero.monitor.summaries import code_of
from codezero.monitor.terminal import framed, show_code
from codezero.monitor.text import clean, count
from codezero.monitor.verdict_card import LOUD, STYLES, JudgedProblem, in_words, loud_mistakes, skill_line
from codezero.sandbox.base import TRUTH, Execution
from codezero.types import Metrics, Problem, Verdict

AGAIN = "next: `codezero run` trains on; then the same command shows what that changed"
ANOTHER = 'next: `codezero ask` draws another, `codezero ask "TASK" --tests "…"` takes yours, `codezero run` trains on'
"""How to go on, after a task in words, and after one that was drawn."""
MAX_SHOWN = 6
"""Different answers of a policy."""
CODE_ROWS = 14
OUTCOME_STYLES = {"pass": "green", "fail": "red", "unknown": "yellow"}


@dataclass(slots=True)
class EqualAttempts:
    """Equal attempts of one policy."""

    code: str
    verdict: Verdict
    executed: Execution | None
    """None: there is no test to execute."""
    mistaken: bool | None
    times: int = 1


@dataclass(frozen=True, slots=True)
class PolicyAttempts:
    name: str
    is_start: bool
    """Is it the model that the run began with?"""
    judged: JudgedProblem

    def answers(self) -> list[EqualAttempts]:
        """The most frequent first."""
        group = self.judged.scored.group
        executed = self.judged.executed or (None,) * len(group.completions)
        mistaken = self.judged.mistaken() or (None,) * len(group.completions)
        known: dict[str, EqualAttempts] = {}
        rows = zip(group.completions, self.judged.scored.verdicts, executed, mistaken, strict=True)
        for completion, verdict, execution, mistake in rows:
            code = code_of(completion.text, group.problem.entry_point)
            if code in known:
                known[code].times += 1
            else:
                known[code] = EqualAttempts(code, verdict, execution, mistake)
        return sorted(known.values(), key=lambda answer: -answer.times)

    def to_json(self) -> dict[str, object]:
        texts = [completion.text for completion in self.judged.scored.group.completions]
        return {"policy": self.name, "starting_model": self.is_start, "attempts": texts, **self.judged.to_json({})}


@dataclass(frozen=True, slots=True)
class AskResult:
    problem: Problem
    number: int | None
    """Of a held-out problem."""
    attempts: Sequence[PolicyAttempts]
    """The starting model's, then the trained solver's, where there is one."""
    known: Metrics
    """Of the judge."""
    notes: Sequence[str] = field(default_factory=list[str])

    def to_json(self) -> dict[str, object]:
        problem = self.problem
        asked = {"task": problem.question, "tests": problem.tests, "problem": self.number, "level": problem.level}
        return {**asked, "policies": [each.to_json() for each in self.attempts], "notes": self.notes}


def print_answers(result: AskResult) -> None:
    console, problem = Console(file=sys.stdout), result.problem
    console.print(Text(clean(problem.question, 2_000, lines=True), "bold"))
    console.print(
        Text("\n".join(clean(test, 300) for test in problem.tests[:5]), "dim"), end="\n" if problem.tests else ""
    )
    table = Table.grid(expand=True, padding=(0, 1))
    for _ in result.attempts:
        table.add_column(ratio=1)
    table.add_row(*map(_column, result.attempts))
    console.print(table)
    lines = loud_mistakes(each.judged for each in result.attempts)
    if not all(each.judged.same_family for each in result.attempts):
        lines.append(Text("not a kind of problem that the judge was measured on: do not rely on it here", "yellow"))
    if not problem.tests:
        lines.append(Text('nothing was executed: --tests "assert f(1) == 2" says what is right', "dim"))
    if (number := result.number) is not None:
        lines.append(Text(f"held-out problem {number}, never learned from; --problem {number} asks it again", "dim"))
    lines.append(Text(skill_line(result.known), "dim"))
    lines += [Text(note, "yellow") for note in result.notes]
    console.print(*lines, Text(AGAIN if number is None else ANOTHER, "dim"), sep="\n")


def _column(attempts: PolicyAttempts) -> RenderableType:
    answers = attempts.answers()
    parts: list[RenderableType] = []
    for answer in answers[:MAX_SHOWN]:
        parts += [Text(), *_answer(answer)]
    if len(answers) > MAX_SHOWN:
        parts.append(Text(f"and {count(len(answers) - MAX_SHOWN, 'other answer')}", "dim"))
    name = f"before: {attempts.name}" if attempts.is_start else attempts.name
    return framed(Group(_tally(attempts), *parts), Text(clean(name, 60), "bold"))


def _tally(attempts: PolicyAttempts) -> Text:
    """How many pass when executed; without tests how many the judge believes, where it says anything."""
    executed = [TRUTH[run.outcome] for run in attempts.judged.executed or ()]
    verdicts = attempts.judged.scored.verdicts
    if executed:
        unknown = f", {executed.count(None)} unknown" if None in executed else ""
        return Text(f"{executed.count(True)} of {len(executed)} pass{unknown}", "bold")
    says = [verdict.correctness >= 0.5 for verdict in verdicts if verdict.trainable]
    return Text(f"the judge believes {sum(says)} of {len(says)}" if says else "the judge does not know", "bold")


def _answer(answer: EqualAttempts) -> Iterator[RenderableType]:
    truth = Text()
    if answer.executed is not None:
        outcome = answer.executed.outcome.value
        truth = Text(f"executed: {outcome}", LOUD if answer.mistaken else OUTCOME_STYLES[outcome])
        if answer.executed.reason:
            truth.append(f", {clean(answer.executed.reason, 80)}", style="dim")
    yield Text.assemble((f"{answer.times} x ", "bold"), truth)
    yield Text(f"   {clean(in_words(answer.verdict), 200)}", STYLES[answer.verdict.status])
    yield show_code(answer.code, CODE_ROWS)
