"""The page a run leaves behind: `report.md` and `curve.png`, from what `metrics.jsonl` holds.

It claims only what was executed, and says "not measured" where nothing was."""

# pyright: reportUnknownMemberType=false
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from codezero.monitor.rollouts_db import measured_levels
from codezero.monitor.run_state import Fold
from codezero.monitor.run_types import ExamView, RunView, Series
from codezero.monitor.run_view import attempts_line, best_and_worst, code_of, problem_lines
from codezero.monitor.text import clean, count, duration, measured, percent
from codezero.system.files import replacing, write_atomic
from codezero.types import ScoredGroup

NOT_MEASURED, CURVE = "not measured", "curve.png"
TRUTH, REWARD, INK = "#0b7a75", "#d98e04", "#444444"


def write_report(
    folder: Path, fold: Fold, view: RunView, problem: ScoredGroup | None, reason: str, *, picture: bool = True
) -> Path:
    """Write `report.md` and, for a `picture`, `curve.png` into `folder`, atomically each; returns the page.

    problem: the last one, of which some attempts could be judged; None: there was none."""
    curve = folder / CURVE
    if picture:
        draw_curve(curve, fold.exams, fold.series["reward"].points)
    else:
        curve.unlink(missing_ok=True)
    lines = [*_page(folder, fold, view, reason, picture), *_run(fold, view), *_last_problem(problem)]
    page = folder / "report.md"
    write_atomic(page, "\n".join([*lines, *_next(view, folder.name)]) + "\n")
    return page


def draw_curve(path: Path, exams: Sequence[ExamView], rewards: Series) -> None:
    """Executed average@n with its 95 % band, and the reward, over iterations; atomically. Both may be empty."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # takes a second; only the end of a run needs it
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.2), dpi=140, layout="constrained")
    axes = figure.add_subplot()
    if rewards:
        axes.plot(*zip(*rewards, strict=True), color=REWARD, linewidth=1.2, label=f"reward, {rewards[-1][1]:.2f}")
    if exams:
        steps, averages = [exam.iteration for exam in exams], [exam.average for exam in exams]
        low = [exam.average if exam.low is None else exam.low for exam in exams]
        high = [exam.average if exam.high is None else exam.high for exam in exams]
        axes.fill_between(steps, low, high, color=TRUTH, alpha=0.18, linewidth=0)
        label = f"{exams[-1].label}, {percent(averages[0])} to {percent(averages[-1])}"
        axes.plot(steps, averages, color=TRUTH, linewidth=2.2, marker="o", markersize=3.5, label=label)
    else:
        axes.plot([], [], color=TRUTH, label=f"executed truth: {NOT_MEASURED}")
    axes.legend(loc="best", frameon=False, labelcolor=INK)
    axes.set_ylim(0, 1)
    axes.set_xlabel("iteration", color=INK)
    axes.set_ylabel("share of attempts · reward", color=INK)
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(colors=INK, length=0)
    with replacing(path) as stream:
        FigureCanvasAgg(figure).print_png(stream)


def headline(exams: Sequence[ExamView]) -> str:
    if not exams:
        return f"executed average@n: {NOT_MEASURED}"
    first, last = exams[0], exams[-1]
    if len(exams) == 1:
        at = f"at iteration {first.iteration}"
        return f"{first.label} {first.interval} {at}; measured once, so nothing to compare with"
    points = 100 * (last.average - first.average)
    moved = f"{'rose' if points > 0 else 'fell'} by {abs(points):.1f} points" if points else "stayed"
    sure = "no intervals"
    if last.gain_low is not None and last.gain_high is not None:
        chance = "so it may be chance" if last.gain_low <= 0 <= last.gain_high else "hardly by chance"
        sure = f"by pairs of problems 95 % [{100 * last.gain_low:+.1f}, {100 * last.gain_high:+.1f}], {chance}"
    elif first.low is not None and first.high is not None and last.low is not None and last.high is not None:
        apart = last.low > first.high or last.high < first.low
        sure = f"the 95 % intervals {'do not overlap' if apart else 'overlap, so it may be chance'}"
    return f"{last.label} {moved}: {first.interval} to {last.interval}; {sure}"


def _page(folder: Path, fold: Fold, view: RunView, reason: str, picture: bool) -> Iterator[str]:
    exams, line = fold.exams, headline(fold.exams)
    yield f"# codezero run `{_inline(folder.resolve().name)}`"
    yield f"\n**{line[0].upper()}{line[1:]}.**"
    yield f"\nEnded: {_inline(reason)}, after iteration {view.iteration or 0}."
    if view.best:
        yield f"\n{_inline(view.best[0].upper() + view.best[1:])}."
    if picture:
        yield f"\n![Average at the exam and reward over iterations]({CURVE})"
    yield from start_and_end(exams)
    shown = _ends(exams)
    if levels := sorted({level for exam in shown for level in exam.levels}):
        yield ""
        rows = [[str(level), *(percent(exam.levels.get(level)) for exam in shown)] for level in levels]
        yield from _table(["level", *(f"iteration {exam.iteration}" for exam in shown)], *rows)
    if "environment" in view.facts:
        yield f"\n## Who scores\n\nThe {_inline(view.facts['evaluator'])} scores every answer; there is no judge."
    else:
        yield from _judge(fold, view)
    if lines := problem_lines(fold.last, measured_levels(folder)):
        yield "\n## Problems\n"
        yield from (f"- {what}: {_inline(figure, 400)}" for what, figure in lines)


def _next(view: RunView, run: str) -> Iterator[str]:
    yield "\n## What next\n"
    yield "- the same command goes on from where this run stopped"
    yield f"- take it home: `{command()} export {_inline(run)} --merged DIR`, or `--adapter`, `--gguf`, `--ollama`"
    more = "more peers" if view.latest.get("peers") else "learn together with peers"
    yield f"- {more}: `{command()} swarm up --nodes 3`"
    if view.facts.get("solver") == "nano":
        yield f"- real models: `{command()} run model=qwen`"


def command() -> str:
    """The command that a person types here: the script of a checkout, or the installed one."""
    return "./run_swarm.sh" if Path("run_swarm.sh").is_file() else "codezero"


def start_and_end(exams: Sequence[ExamView]) -> Iterator[str]:
    yield f"\n## {'Measured once' if len(exams) == 1 else 'Start and end'}\n"
    if not exams:
        yield f"Executed truth: {NOT_MEASURED}; no exam was sat (`evals.every`)."
        return
    shown, last = _ends(exams), exams[-1]
    iterations = [f"iteration {exam.iteration}" for exam in shown]
    passes = [measured(exam.passed, exam.pass_low, exam.pass_high) for exam in shown]
    yield from _table(
        ["", *iterations],
        [_inline(last.label), *(exam.interval for exam in shown)],
        [_inline(f"{last.source} pass@{last.samples}"), *passes],
        ["undecided attempts, left out", *(percent(exam.unknown_share) for exam in shown)],
        ["attempts that answer for their tests, wrong", *(percent(exam.cheats_share) for exam in shown)],
        ["attempts whose tests cannot find a cheat", *(percent(exam.unguarded_share) for exam in shown)],
    )
    if last.set:
        yield f"\nThe exam: {_inline(last.set, 300)}."
    if last.control is not None:
        control = " to ".join(percent(exam.control) for exam in shown)
        yield f"\nControl, attempts at embedded problems that pass: {control}."
    problems = "" if last.problems is None else f"{count(last.problems, 'held-out problem')}, "
    yield f"\n{problems}{last.samples} attempts each, the same every time; 95 % intervals over problems."


def _ends(exams: Sequence[ExamView]) -> Sequence[ExamView]:
    return exams if len(exams) < 2 else (exams[0], exams[-1])


def _table(*rows: Sequence[str]) -> Iterator[str]:
    for row in (rows[0], ["---"] * len(rows[0]), *rows[1:]):
        yield f"| {' | '.join(row)} |"


def _judge(fold: Fold, view: RunView) -> Iterator[str]:
    yield "\n## Can the judge be believed?\n"
    for iteration, trouble in fold.troubles:
        yield f"- iteration {iteration}: {_inline(trouble, 500)}"
    yield from (f"- {line}\n" for line in (view.judge.summary, view.judge.audit) if line)
    known = [exam for exam in view.exams if exam.believed is not None]
    if not known:
        yield f"Against executed truth: {NOT_MEASURED}."
        return
    yield "The judge never runs code; here it is held against the execution of the same attempts.\n"
    head = ["iteration", "judge believes", "executed truth", "AUROC within groups", "AUROC over problems",
            "wrong but believed", "right but not believed"]  # fmt: skip
    rows: list[list[str]] = []
    for exam in _ends(known):
        area = "—" if exam.auroc is None else f"{exam.auroc:.3f}"
        wrong, right = percent(exam.false_positive_share), percent(exam.false_negative_share)
        ranks = exam.ranks.removeprefix("AUROC ").replace(" within groups", "") or "—"
        rows.append([str(exam.iteration), percent(exam.believed), percent(exam.average), ranks, area, wrong, right])
    yield from _table(head, *rows)


def _run(fold: Fold, view: RunView) -> Iterator[str]:
    yield "\n## The run\n"
    rewards, peers = fold.series["reward"], fold.series["peers"]
    seconds, tokens, shared = (fold.series[name].mean for name in ("seconds", "tokens", "external_share"))
    yield f"- node: {view.name} (`{_inline(view.peer_id)}`), {_inline(view.facts.get('swarm', ''))} swarm"
    yield from (f"- {_inline(key)}: `{_inline(value, 300)}`" for key, value in view.facts.items() if key != "swarm")
    yield f"- reward: {NOT_MEASURED if rewards.newest is None else f'{rewards.first:.2f} to {rewards.newest:.2f}'}"
    yield f"- speed: {NOT_MEASURED if seconds is None else duration(seconds) + ' an iteration'}" + (
        "" if tokens is None else f", {tokens:,.0f} tokens sampled a second"
    )
    most = NOT_MEASURED if peers.newest is None else f"{peers.newest:.0f} at the end, {peers.highest:.0f} at most"
    yield f"- attempts: {_inline(attempts_line(fold, whole=True), 400) or NOT_MEASURED}"
    yield from (f"- from iteration {at} on: {_inline(words, 500)}" for at, words in fold.obstacles.values())
    yield f"- peers: {most}" + ("" if shared is None else f"; {percent(shared)} of what was learnt came from them")
    errors = ", ".join(f"{_inline(name)} ({times})" for name, times in sorted(fold.survived.items()))
    yield f"- tolerated errors: {errors or 'none'}"


def _last_problem(scored: ScoredGroup | None) -> Iterator[str]:
    if scored is None:
        return
    problem = scored.group.problem
    yield "\n## The last problem, its best and its worst attempt\n"
    yield _fenced(" ".join(problem.question[:4_000].split()), "text", lines=False)
    for which, (attempt, verdict) in zip(("Best", "Worst"), best_and_worst(scored), strict=True):
        why = _inline("; ".join(verdict.reasons[:8]), 300)
        yield f"\n{which}, reward {verdict.reward:.2f}{f': `{why}`' if why else ''}\n"
        text = attempt.text if problem.item else code_of(attempt.text, problem.entry_point)
        yield _fenced(text, "text" if problem.item else "python", lines=True)


def _inline(text: str, limit: int = 120) -> str:
    """Put text of others on one line of Markdown: without what could end a code span or a table cell, or start HTML."""
    return re.sub(r"[`|<>\[\]]", "'", clean(text, limit))


def _fenced(text: str, language: str, *, lines: bool) -> str:
    """Put text of others in a fence longer than any within it."""
    shown = clean(text, 1_500, lines=lines)
    fence = "`" * (1 + max(2, *map(len, re.findall(r"`*", shown))))
    return f"{fence}{language}\n{shown}\n{fence}"
