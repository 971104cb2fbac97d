"""The live view of a node, drawn with rich.

`render` is pure: a state in, a renderable out. Questions, attempts and reasons are foreign text: they are cleaned,
bounded, and never read as markup.
"""

import io
import re
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.panel import Panel
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from codezero.monitor.run_types import ExamView
from codezero.monitor.summaries import PlainView, RunState, best_and_worst, code_of, rehearsal
from codezero.monitor.text import (
    clean,
    count,
    duration,
    gauge,
    interval,
    percent,
    readable_name,
    sparkline,
    within_groups,
)
from codezero.types import ScoredGroup, Verdict

HINT = "Ctrl-C saves and stops; the same command goes on from there."
MODELS = ("solver", "evaluator", "proposer")
FIXED_ROWS = 17
"""Rows of the view that are not code, and one for the cursor."""
CODE_ROWS = (3, 14)
"""Least and most rows of code; the height of the terminal decides."""
LABEL_WIDTH = 19


class Trendline:
    """A sparkline that fills the columns it is given."""

    def __init__(self, values: Iterable[float], style: str) -> None:
        self.values = tuple(values)
        self.style = style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = min(options.max_width, 4 * len(self.values))  # few values are not stretched over the whole row
        yield Text(sparkline(self.values, columns, least_span=0.1), style=self.style, no_wrap=True)


def framed(body: RenderableType, title: Text, style: str = "dim", note: Text | None = None) -> Panel:
    return Panel(body, title=title, title_align="left", subtitle=note, subtitle_align="right", border_style=style)


def render(state: RunState, *, height: int = 24, now: float | None = None, line: str = "") -> RenderableType:
    """The whole view, at most `height` rows; `now` (unix seconds) drives the clock; `line` is the last row."""
    low, high = CODE_ROWS
    more = sum(
        map(
            bool, (state.tolerated, state.attempts, state.audit, state.trouble, rehearsal(state.stand_ins, state.facts))
        )
    )
    code_rows = max(low, min(high, height - FIXED_ROWS - more))
    body = Group(_head(state, now), Rule(style="dim"), _curves(state), _facts(state))
    models = ((name, state.facts[name]) for name in MODELS if name in state.facts)
    names = (f"{name} {clean(value.rpartition('/')[2], 40)}" for name, value in models)
    note = Text(" · ".join(names), style="dim") if state.facts else None
    run = framed(body, Text("codezero", style="bold cyan"), "cyan", note)
    busy, style = (f"{clean(state.busy, 80)} …", "yellow") if state.busy else (HINT, "dim")
    foot = Text(f" {line or busy}", "bold yellow" if line else style, no_wrap=True, overflow="ellipsis")
    return Group(run, _problem(state.problem, code_rows), foot)


def _head(state: RunState, now: float | None) -> RenderableType:
    name, peer = readable_name(state.identity), clean(state.identity, 128)
    beginning_and_end = peer if len(peer) <= 16 else f"{peer[:4]}…{peer[-6:]}"
    who = Text.assemble(("● ", "green"), (name, "bold"), "  ", (beginning_and_end, "dim"))
    where = Text(f"{clean(state.swarm_kind, 20)} swarm · {count(state.peers, 'peer')}")
    if state.external_share:
        where.append(f" · learns {100 * state.external_share:.0f} % from them")
    at = Text.assemble(("iteration ", "dim"), (str(state.iteration), "bold"), ("  round ", "dim"), str(state.round))
    at.append("  level ", style="dim").append(gauge(state.level), style="magenta")
    if state.level is not None:
        at.append(f" {state.level:.0f}")
    clock = Text("" if now is None else f"running {duration(max(0.0, now - state.began))}", style="dim")
    return Group(_between(who, where), _between(at, clock))


def _between(left: Text, right: Text) -> RenderableType:
    row = _grid()
    row.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    row.add_column(no_wrap=True, overflow="ellipsis", justify="right")
    row.add_row(left, right)
    return row


def _curves(state: RunState) -> RenderableType:
    """Executed truth and reward, each with its value, its way and its beginning."""
    table = _grid()
    table.add_column(style="dim", no_wrap=True, min_width=LABEL_WIDTH)
    table.add_column(no_wrap=True, min_width=22)
    table.add_column(no_wrap=True, ratio=1)
    table.add_column(no_wrap=True, justify="right")
    if state.exams:
        first, last = state.exams[0], state.exams[-1]
        value = Text.assemble((percent(last.average), "bold green"), " ", (interval(last.low, last.high), "dim"))
        line = Trendline((exam.average for exam in state.exams), "green")
        table.add_row(clean(last.label, 24), value, line, _way(first, last))
    else:
        table.add_row("executed average@n", Text("first exam to come", style="dim"), "", "")
    rewards = state.rewards
    if state.reward is not None and rewards:
        began = Text(f"from {rewards[0]:.2f}", style="dim")
        table.add_row("reward", Text(f"{state.reward:.2f}", style="bold yellow"), Trendline(rewards, "yellow"), began)
    else:
        table.add_row("reward", Text("first attempts are being sampled", style="dim"), "", "")
    return table


def _way(first: ExamView, last: ExamView) -> Text:
    if first is last:
        return Text("start value", style="dim")
    points = 100 * (last.average - first.average)
    arrow, style = ("▲", "bold green") if points >= 0 else ("▼", "bold red")
    return Text.assemble((f"from {percent(first.average)} ", "dim"), (f"{arrow} {points:+.1f}", style))


def _facts(state: RunState) -> RenderableType:
    """Speed, trust in the judge, and what went wrong without ending the run."""
    table = _grid()
    table.add_column(style="dim", no_wrap=True, min_width=LABEL_WIDTH)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_row("judge", _trust(state.exams[-1] if state.exams else None))
    if state.attempts:
        table.add_row("attempts", state.attempts)
    if state.audit:
        table.add_row("audit", state.audit)
    if stand_ins := rehearsal(state.stand_ins, state.facts):
        table.add_row("problems", Text(clean(stand_ins, 200), style="bold yellow"))
    if state.trouble:
        table.add_row("", Text(state.trouble, style="bold red"))
    tokens, seconds = state.tokens_per_second, state.seconds_per_iteration
    sampled = "" if tokens is None else f"{tokens:,.0f} tokens/s sampled"
    pace = "" if seconds is None else f"{duration(seconds)} an iteration"
    table.add_row("speed", " · ".join(filter(None, (sampled, pace))) or "—")
    if state.tolerated:
        survived = " · ".join(f"{clean(name, 40)} ({times})" for name, times in sorted(state.tolerated.items()))
        table.add_row("tolerated errors", Text(survived, style="red"))
    return table


def _trust(exam: ExamView | None) -> str:
    """`believes 61.0 %, executed 58.2 %, AUROC 0.96 [0.91, 0.98] within groups, 0.98 over problems`."""
    if exam is None or exam.believed is None:
        return "not compared with executed truth yet"
    line = f"believes {percent(exam.believed)}, {exam.source} {percent(exam.average)}"
    ranks = within_groups(exam.within_auroc, exam.within_auroc_low, exam.within_auroc_high, exam.within_auroc_pairs)
    over = "" if exam.auroc is None else f"{'' if ranks else 'AUROC '}{exam.auroc:.2f} over problems"
    return ", ".join(filter(None, (line, ranks.partition(", of ")[0], over)))


def _problem(scored: ScoredGroup | None, code_rows: int) -> RenderableType:
    if scored is None:
        waiting = Text("The first problem and its attempts appear here.", style="dim")
        return framed(waiting, Text("last problem", style="dim"))
    problem, attempts = scored.group.problem, list(best_and_worst(scored))
    question = Text(clean(" ".join(problem.question[:1_000].split()), 400), no_wrap=True, overflow="ellipsis")
    table = _grid()
    table.add_column(ratio=1)
    table.add_column(ratio=1)
    table.add_row(_verdict("best", attempts[0][1], "green"), _verdict("worst", attempts[1][1], "red"))
    table.add_row(*(show_code(code_of(attempt.text, problem.entry_point), code_rows) for attempt, _ in attempts))
    table.add_row(*(_reasons(verdict) for _, verdict in attempts))
    level = "" if problem.level is None else f" · level {problem.level}"
    return framed(Group(question, Rule(style="dim"), table), Text(f"last problem{level}", style="dim"))


def _verdict(which: str, verdict: Verdict, style: str) -> Text:
    return Text.assemble((f"{which} ", style), (f"{verdict.reward:.2f}", f"bold {style}"), (" reward", "dim"), end="")


def show_code(code: str, rows: int) -> RenderableType:
    lines = clean(code, 160 * CODE_ROWS[1], lines=True).split("\n")
    shown = lines if len(lines) <= rows else [*lines[: rows - 1], f"# … {count(len(lines) - rows + 1, 'more line')}"]
    code = "\n".join(line[:160] for line in shown)
    return Syntax(code, "python", theme="ansi_dark", background_color="default", word_wrap=False)


def _reasons(verdict: Verdict) -> Text:
    why = clean("; ".join(verdict.reasons[:8]), 300) or "no remarks"
    return Text(f"↳ {why}", style="dim italic", no_wrap=True, overflow="ellipsis")


def _grid() -> Table:
    return Table.grid(expand=True, padding=(0, 2, 0, 0))


class LiveView:
    """The view on a terminal, redrawn in place; lines printed meanwhile scroll by above it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._state, self._line = RunState(), ""
        self._live = Live(get_renderable=self._draw, console=console, refresh_per_second=2, vertical_overflow="crop")

    def show(self, state: RunState) -> None:
        self._state = state
        if not self._live.is_started:
            self._live.start(refresh=True)

    busy = show

    def say(self, line: str) -> None:
        """The same picture with this line below it."""
        self._line = line
        self._live.refresh()

    def close(self) -> None:
        """Leave the last picture standing and give the terminal back."""
        self._live.stop()

    def _draw(self) -> RenderableType:
        return render(self._state, height=self._console.height, now=time.time(), line=self._line)


class StartView(PlainView):
    """While a node starts: one line that says what takes time, and since when; on a terminal."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._doing, self._since = "", time.monotonic()
        self._live = Live(get_renderable=self._draw, console=console, refresh_per_second=2, transient=True)

    def busy(self, state: RunState) -> None:
        self._doing, self._since = state.busy, time.monotonic()
        self._live.start(refresh=True)

    def close(self) -> None:
        self._live.stop()

    def _draw(self) -> RenderableType:
        seconds = time.monotonic() - self._since
        line = f"codezero: {clean(self._doing, 100)} … {f'{seconds:.0f} s' if seconds >= 1 else ''}"
        return Text(line, no_wrap=True, overflow="ellipsis")


Drawn = TypeVar("Drawn", LiveView, StartView)


def choose_view(view: str, drawn: Callable[[Console], Drawn]) -> Drawn | PlainView:
    """`drawn` where it can be; else lines, with `view` off such that go nowhere."""
    if console := live_console(view):
        return drawn(console)
    return PlainView(lambda _: None) if view == "off" else PlainView()


def live_console(view: str) -> Console | None:
    """Stdout to draw on; None: lines are written. `view` auto draws on a terminal that can redraw, live on anything."""
    if reconfigure := getattr(sys.stdout, "reconfigure", None):
        reconfigure(errors="replace")  # a terminal without Unicode costs a question mark, not the run
    console = Console(file=sys.stdout)
    redraws = console.is_terminal and not console.is_dumb_terminal
    return console if view == "live" or (view == "auto" and redraws) else None


def save_picture(path: Path, state: RunState) -> None:
    """The view as an SVG that needs nothing from elsewhere."""
    height = 30
    console = Console(record=True, width=100, height=height, file=io.StringIO(), force_terminal=True)
    console.print(render(replace(state, began=0.0), height=height))
    svg = console.export_svg(title="codezero", unique_id="codezero")
    path.write_text(re.sub(r"@font-face\s*\{.*?\}", "", svg, flags=re.DOTALL), encoding="utf-8")
