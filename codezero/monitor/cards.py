"""The cards of `codezero judge` and `codezero ask`: attempts and verdicts as a person reads them, cleaned."""

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec
from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from codezero.monitor.metrics_file import number
from codezero.monitor.run_view import code_of, within_line
from codezero.monitor.terminal import CODE_ROWS, framed, show_code
from codezero.monitor.text import clean, count, percent
from codezero.sandbox.base import TRUTH, Execution, Outcome
from codezero.stats import auroc, group_order, within_groups
from codezero.types import BELIEF, Metrics, Problem, ScoredGroup, Status, Verdict

STYLES = {
    Status.JUDGED: "default", Status.CERTAIN_FAILURE: "red",
    Status.QUARANTINED: "bold red", Status.UNAVAILABLE: "yellow",
}  # fmt: skip
LOUD = "bold white on red"
# ways to go on, after a task in words, and after one that was drawn
AGAIN = "next: `codezero run` trains on; then the same command shows what that changed"
ANOTHER = 'next: `codezero ask` draws another, `codezero ask "TASK" --tests "…"` takes yours, `codezero run` trains on'
MAX_SHOWN = 6  # different answers of a policy
OUTCOME_STYLES = {Outcome.PASS: "green", Outcome.FAIL: "red", Outcome.UNKNOWN: "yellow"}


@dataclass(frozen=True, slots=True)
class JudgedProblem:
    scored: ScoredGroup
    executed: tuple[Execution, ...] | None  # [G] when the audit was asked for
    same_family: bool  # is it a problem of the family on which the judge was calibrated?

    def _decided(self) -> Iterator[tuple[Verdict, bool | None]]:
        truth = [TRUTH[run.outcome] for run in self.executed or ()]
        return zip(self.scored.verdicts, truth, strict=self.executed is not None)

    def mistaken(self) -> list[bool | None]:
        """Compare judge and execution: True where they differ, None where either says nothing; [] without audit."""
        return [
            (verdict.correctness >= BELIEF) != passed if verdict.trainable and passed is not None else None
            for verdict, passed in self._decided()
        ]

    def compared(self) -> list[tuple[float, bool]]:
        """(judged correctness, passed) of the attempts that were left to the judge, and that execution decided."""
        return [
            (verdict.correctness, passed)
            for verdict, passed in self._decided()
            if verdict.status is Status.JUDGED and passed is not None
        ]

    def contradictions(self) -> Counter[str]:
        """Count where they say different things, of the attempts on which both say something."""
        kinds = Counter(failing=0, failing_believed=0, passing=0, passing_not_believed=0)
        for run, mistaken in zip(self.executed or (), self.mistaken(), strict=True):
            if mistaken is not None:
                passing = run.outcome is Outcome.PASS
                kinds["passing" if passing else "failing"] += 1
                kinds["passing_not_believed" if passing else "failing_believed"] += mistaken
        return kinds

    def to_json(self, known: Metrics) -> dict[str, object]:
        """The object that `--json` prints. known: the judge's figures."""
        verdicts = [msgspec.to_builtins(verdict) for verdict in self.scored.verdicts]
        for verdict, run, mistaken in zip(verdicts, self.executed or (), self.mistaken(), strict=False):
            verdict |= {"executed": run.outcome.value, "executed_reason": run.reason, "judge_mistaken": mistaken}
            verdict |= {"cheats": run.cheats, "unguarded_tests": run.unguarded}
        audit = {} if self.executed is None else {"audit": dict(self.contradictions())}
        family = known.get("judge/calibrated_on")
        return {"verdicts": verdicts, "calibrated_on": family, "same_family": self.same_family, **audit}


def mistakes(problems: Iterable[JudgedProblem]) -> list[str]:
    """Warn of contradictions; nothing where there are none."""
    kinds, lines = sum((each.contradictions() for each in problems), Counter[str]()), list[str]()
    if wrong := kinds["failing_believed"]:
        of = count(kinds["failing"], "attempt")
        lines.append(f"THE JUDGE IS MISTAKEN: it believed {wrong} of {of} that fail when executed")
    if unsure := kinds["passing_not_believed"]:
        of = count(kinds["passing"], "attempt")
        differ = f"JUDGE AND TESTS DISAGREE: it did not believe {unsure} of {of} that pass when executed"
        lines.append(f"{differ}; either it is mistaken, or the tests are too few")
    return lines


def audited_skill(problems: Sequence[JudgedProblem]) -> str:
    """Rate how the judge ranks attempts that were executed, by problem; empty where there is no pair to rank."""
    compared = [each.compared() for each in problems]
    within, rows = within_groups(map(group_order, compared)), [row for rows in compared for row in rows]
    if len({passed for _, passed in rows}) < 2:
        return ""
    over = f"AUROC of the judge on these attempts {auroc(*zip(*rows, strict=True)):.2f} over problems"
    if within is None:
        return f"{over}; no problem has a right and a wrong one"
    known = f"{within.area:.2f} [{within.low:.2f}, {within.high:.2f}] within groups"
    return f"{over}, {known}, of {count(within.pairs, 'pair')}"


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
        shown = list[Text]()
        if marked.executed is not None:
            passed = marked.executed[index].outcome is Outcome.PASS
            loud = Text("PASS, NOT BELIEVED" if passed else "FAIL, BUT BELIEVED", LOUD)
            shown = [loud if mistaken[index] else Text(marked.executed[index].outcome.value)]
        why = clean("; ".join(verdict.reasons), 400) or "nothing to remark"
        table.add_row(str(index + 1), reward, status, *shown, Text(why))
    title = clean(" ".join(problem.question.split()), 90)
    notes = [] if marked.same_family else ["not of the family the judge was calibrated on"]
    notes += [] if problem.level is None else [f"level {problem.level}"]
    return framed(table, Text(title, "bold"), note=Text(" · ".join(notes), "" if marked.same_family else "yellow"))


def status_word(verdict: Verdict) -> str:
    return "unknown" if verdict.status is Status.UNAVAILABLE else verdict.status.value.replace("_", " ")


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
    if skill := audited_skill(marked):
        lines.append(Text(skill))
    lines += [*(Text(line, LOUD) for line in mistakes(marked)), Text(skill_line(known), "dim")]
    if (family := known.get("judge/calibrated_on")) is not None:
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


def print_judged(judged: Iterable[tuple[JudgedProblem, Metrics]], *, skipped: int, as_json: bool) -> None:
    """Print each problem as it comes, as a card or a line of JSON, then a summary; beside JSON it is of mistakes alone.
    The metrics are of the judge. skipped: lines of the file that are left out."""
    console, shown, known = Console(file=sys.stdout), list[JudgedProblem](), Metrics()
    for problem, known in judged:
        shown.append(problem)
        if as_json:
            print(json.dumps(problem.to_json(known) | ({"skipped_lines": skipped} if skipped else {})), flush=True)
        else:
            console.print(card(problem))
    if as_json:
        for line in filter(None, (*mistakes(shown), audited_skill(shown))):
            print(f"codezero: {line}", file=sys.stderr)
    else:
        console.print(summary(shown, known))
    if skipped:
        left = f"codezero: {skipped} of {skipped + len(shown)} lines cannot be used and are left out"
        print(left, file=sys.stderr if as_json else sys.stdout)


@dataclass(frozen=True, slots=True)
class PolicyAttempts:
    name: str
    is_start: bool  # is it the model that the run began with?
    judged: JudgedProblem

    def to_json(self) -> dict[str, object]:
        texts = [completion.text for completion in self.judged.scored.group.completions]
        return {"policy": self.name, "starting_model": self.is_start, "attempts": texts, **self.judged.to_json({})}


@dataclass(frozen=True, slots=True)
class AskResult:
    problem: Problem
    number: int | None  # of a held-out problem
    attempts: Sequence[PolicyAttempts]  # the starting model's, then the trained solver's, where there is one
    known: Metrics  # of the judge
    notes: Sequence[str] = field(default_factory=list[str])

    def to_json(self) -> dict[str, object]:
        problem = self.problem
        asked = {"task": problem.question, "tests": problem.tests, "problem": self.number, "level": problem.level}
        return {**asked, "policies": [each.to_json() for each in self.attempts], "notes": self.notes}


def print_answers(result: AskResult) -> None:
    console, problem = Console(file=sys.stdout), result.problem
    console.print(Text(clean(problem.question, 2_000, lines=True), "bold"))
    if problem.tests:
        console.print(Text("\n".join(clean(test, 300) for test in problem.tests[:5]), "dim"))
    table = Table.grid(expand=True, padding=(0, 1))
    for _ in result.attempts:
        table.add_column(ratio=1)
    table.add_row(*map(_column, result.attempts))
    console.print(table)
    lines = [Text(line, LOUD) for line in mistakes(each.judged for each in result.attempts)]
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
    """Show equal attempts once, the most frequent first, below how many of all pass when they are executed. Without
    tests the judge counts, where it says anything."""
    judged, group = attempts.judged, attempts.judged.scored.group
    executed, mistaken, says = judged.executed or (), judged.mistaken(), "the judge does not know"
    if truths := [TRUTH[run.outcome] for run in executed]:
        unknown = f", {truths.count(None)} unknown" if None in truths else ""
        says = f"{truths.count(True)} of {len(truths)} pass{unknown}"
    elif beliefs := [verdict.correctness >= BELIEF for verdict in judged.scored.verdicts if verdict.trainable]:
        says = f"the judge believes {sum(beliefs)} of {len(beliefs)}"
    parts: list[RenderableType] = [Text(says, "bold")]
    codes = [code_of(completion.text, group.problem.entry_point) for completion in group.completions]
    answers = Counter(codes).most_common()
    for code, times in answers[:MAX_SHOWN]:
        verdict, truth = judged.scored.verdicts[codes.index(code)], Text()
        if executed:
            run = executed[codes.index(code)]
            style = LOUD if mistaken[codes.index(code)] else OUTCOME_STYLES[run.outcome]
            reason = f", {clean(run.reason, 80)}" if run.reason else ""
            truth = Text.assemble((f"executed: {run.outcome.value}", style), (reason, "dim"))
        likely = f"{100 * verdict.correctness:.0f} % likely to pass"
        words = likely if verdict.status is Status.JUDGED else f"{status_word(verdict)}, {'; '.join(verdict.reasons)}"
        belief = Text(f"   {clean(f'judge: {words}', 200)}", STYLES[verdict.status])
        parts += [Text(), Text.assemble((f"{times} x ", "bold"), truth), belief, show_code(code, CODE_ROWS)]
    if len(answers) > MAX_SHOWN:
        parts.append(Text(f"and {count(len(answers) - MAX_SHOWN, 'other answer')}", "dim"))
    name = f"before: {attempts.name}" if attempts.is_start else attempts.name
    return framed(Group(*parts), Text(clean(name, 60), "bold"))
