"""Draws for a terminal: one node, drawn with rich or in lines, and one row for each node of a swarm on this machine.

`render` and `render_rows` are pure. Questions, attempts and reasons are text of others: they are cleaned, bounded, and
never read as markup."""

import io
import math
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.panel import Panel
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from codezero.monitor.metrics_file import NODE_FILE
from codezero.monitor.run_state import History
from codezero.monitor.run_types import ExamView, RunView
from codezero.monitor.run_view import best_and_worst, code_of, plain_line, trouble_line, view_of
from codezero.monitor.text import clean, count, duration, gauge, interval, percent, print_flushed, sparkline
from codezero.system.child import read_process
from codezero.types import ScoredGroup, Verdict

HINT = "Ctrl-C saves and stops; the same command goes on from there."
CODE_ROWS = 14  # most rows of code; the height of the terminal decides
PAUSE_SECONDS = 10.0  # least time between two lines that tell of no exam
MAX_BYTES = 1 << 19  # read of each node's metrics for its row: their beginning, with the first exam, and their end


@dataclass
class Trendline:
    values: Sequence[float]
    style: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = min(options.max_width, 4 * len(self.values))  # few values are not stretched over the whole row
        yield Text(sparkline(self.values, columns, least_span=0.1), style=self.style, no_wrap=True)


def framed(body: RenderableType, title: Text, style: str = "dim", note: Text | None = None) -> Panel:
    return Panel(body, title=title, title_align="left", subtitle=note, subtitle_align="right", border_style=style)


def render(
    view: RunView, problem: ScoredGroup | None, height: int, doing: str = "", now: float | None = None, line: str = ""
) -> RenderableType:
    """The whole view, at most `height` rows; `now` (unix seconds) drives the clock; `line` is the last row."""
    notes = (view.tolerated, view.attempts, view.judge.audit, trouble_line(view), view.stand_ins)
    code_rows = max(3, min(CODE_ROWS, height - 17 - sum(map(bool, notes))))  # 17 rows are no code, or the cursor's
    body = Group(_head(view, now), Rule(style="dim"), _curves(view), _facts(view))
    models = ((name, view.facts[name]) for name in ("solver", "evaluator", "proposer") if name in view.facts)
    names = " · ".join(f"{name} {clean(value.rpartition('/')[2], 40)}" for name, value in models)
    run = framed(body, Text("codezero", style="bold cyan"), "cyan", Text(names, style="dim") if names else None)
    busy, style = (f"{clean(doing, 80)} …", "yellow") if doing else (HINT, "dim")
    foot = Text(f" {line or busy}", "bold yellow" if line else style, no_wrap=True, overflow="ellipsis")
    return Group(run, _problem(problem, code_rows), foot)


def _head(view: RunView, now: float | None) -> RenderableType:
    peer = clean(view.peer_id, 128)
    beginning_and_end = peer if len(peer) <= 16 else f"{peer[:4]}…{peer[-6:]}"
    who = Text.assemble(("● ", "green"), (view.name, "bold"), "  ", (beginning_and_end, "dim"))
    kind, peers = clean(view.facts.get("swarm", ""), 20), count(view.latest.get("peers", 0), "peer")
    where = Text(f"{kind} swarm · {peers}")
    if share := view.latest.get("external_share"):
        where.append(f" · learns {100 * share:.0f} % from them")
    at = Text.assemble(("iteration ", "dim"), (str(view.iteration or 0), "bold"), ("  round ", "dim"))
    at.append(str(view.round or 0)).append("  level ", style="dim").append(gauge(view.level), style="magenta")
    if view.level is not None:
        at.append(f" {view.level}")
    clock = Text("", style="dim")
    if now is not None and view.began is not None:
        clock.append(f"running {duration(max(0.0, now - view.began))}")
    return Group(_between(who, where), _between(at, clock))


def _between(left: Text, right: Text) -> RenderableType:
    row = _grid()
    row.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    row.add_column(no_wrap=True, overflow="ellipsis", justify="right")
    row.add_row(left, right)
    return row


def _curves(view: RunView) -> RenderableType:
    table = _grid(labelled=True)
    table.add_column(no_wrap=True, min_width=22)
    table.add_column(no_wrap=True, ratio=1)
    table.add_column(no_wrap=True, justify="right")
    if view.exams:
        first, last = view.exams[0], view.exams[-1]
        value = Text.assemble((percent(last.average), "bold green"), " ", (interval(last.low, last.high), "dim"))
        line = Trendline([exam.average for exam in view.exams], "green")
        table.add_row(clean(last.label, 24), value, line, _way(first, last))
    else:
        table.add_row("executed average@n", Text("first exam to come", style="dim"), "", "")
    rewards = [value for _, value in view.series.get("reward", [])]
    if view.reward is not None and rewards:
        began = Text(f"from {rewards[0]:.2f}", style="dim")
        table.add_row("reward", Text(f"{view.reward:.2f}", style="bold yellow"), Trendline(rewards, "yellow"), began)
    else:
        table.add_row("reward", Text("first attempts are being sampled", style="dim"), "", "")
    return table


def _way(first: ExamView, last: ExamView) -> Text:
    if first is last:
        return Text("start value", style="dim")
    points = 100 * (last.average - first.average)
    arrow, style = ("▲", "bold green") if points >= 0 else ("▼", "bold red")
    return Text.assemble((f"from {percent(first.average)} ", "dim"), (f"{arrow} {points:+.1f}", style))


def _facts(view: RunView) -> RenderableType:
    table = _grid(labelled=True)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_row("judge", _trust(view.exams[-1] if view.exams else None))
    if view.attempts:
        table.add_row("attempts", view.attempts)
    if view.judge.audit:
        table.add_row("audit", view.judge.audit)
    if view.stand_ins:
        table.add_row("problems", Text(clean(view.stand_ins, 200), style="bold yellow"))
    if trouble := trouble_line(view):
        table.add_row("", Text(trouble, style="bold red"))
    tokens, seconds = view.tokens_per_second, view.seconds_per_iteration
    sampled = "" if tokens is None else f"{tokens:,.0f} tokens/s sampled"
    pace = "" if seconds is None else f"{duration(seconds)} an iteration"
    table.add_row("speed", " · ".join(filter(None, (sampled, pace))) or "—")
    if view.tolerated:
        survived = " · ".join(f"{clean(name, 40)} ({times})" for name, times in sorted(view.tolerated.items()))
        table.add_row("tolerated errors", Text(survived, style="red"))
    return table


def _trust(exam: ExamView | None) -> str:
    """`believes 61.0 %, executed 58.2 %, AUROC 0.96 [0.91, 0.98] within groups, 0.98 over problems`."""
    if exam is None or exam.believed is None:
        return "not compared with executed truth yet"
    line = f"believes {percent(exam.believed)}, {exam.source} {percent(exam.average)}"
    over = "" if exam.auroc is None else f"{'' if exam.ranks else 'AUROC '}{exam.auroc:.2f} over problems"
    return ", ".join(filter(None, (line, exam.ranks.partition(", of ")[0], over)))


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
    whys = (clean("; ".join(verdict.reasons[:8]), 300) or "no remarks" for _, verdict in attempts)
    table.add_row(*(Text(f"↳ {why}", style="dim italic", no_wrap=True, overflow="ellipsis") for why in whys))
    level = "" if problem.level is None else f" · level {problem.level}"
    return framed(Group(question, Rule(style="dim"), table), Text(f"last problem{level}", style="dim"))


def _verdict(which: str, verdict: Verdict, style: str) -> Text:
    return Text.assemble((f"{which} ", style), (f"{verdict.reward:.2f}", f"bold {style}"), (" reward", "dim"), end="")


def show_code(code: str, rows: int) -> RenderableType:
    lines = clean(code, 160 * CODE_ROWS, lines=True).split("\n")
    shown = lines if len(lines) <= rows else [*lines[: rows - 1], f"# … {count(len(lines) - rows + 1, 'more line')}"]
    code = "\n".join(line[:160] for line in shown)
    return Syntax(code, "python", theme="ansi_dark", background_color="default", word_wrap=False)


def _grid(labelled: bool = False) -> Table:
    table = Table.grid(expand=True, padding=(0, 2, 0, 0))
    if labelled:
        table.add_column(style="dim", no_wrap=True, min_width=19)
    return table


class PlainView:
    """A line for every exam, and one each PAUSE_SECONDS at most otherwise; none twice, and the newest in the end."""

    def __init__(self, write: Callable[[str], None] = print_flushed) -> None:
        self._write, self._written = write, -math.inf
        self._shown: tuple[int | None, bool] | None = None  # iteration of the newest line, and whether it has an exam
        self._held: RunView | None = None  # the newest view, while no line shows it

    def show(self, view: RunView, problem: ScoredGroup | None = None, doing: str = "") -> None:
        """Write where the run is, if it is time to; the first call only notes where it begins."""
        row = view.iteration, view.exam_now is not None
        self._shown = self._shown or row
        self._held = view if row != self._shown else None
        if row[1] or time.monotonic() - self._written >= PAUSE_SECONDS:
            self.close()

    def busy(self, doing: str) -> None:
        self.say(f"{doing} …")

    def say(self, line: str) -> None:
        self._write(f"codezero: {line}")

    def close(self) -> None:
        if held := self._held:
            self._held, self._shown = None, (held.iteration, held.exam_now is not None)
            self._written = self._written if self._shown[1] else time.monotonic()
            self._write(plain_line(held))


class LiveView:
    """The view on a terminal, redrawn in place; lines printed meanwhile scroll by above it. Before there is one: a line
    that says what takes time, and since when; it is gone afterwards."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._view: RunView | None = None
        self._problem: ScoredGroup | None = None
        self._doing = self._line = ""
        self._since = time.monotonic()
        self._live = Live(get_renderable=self._draw, console=console, refresh_per_second=2, vertical_overflow="crop")

    def show(self, view: RunView, problem: ScoredGroup | None = None, doing: str = "") -> None:
        self._view, self._problem, self._doing = view, problem, doing
        self._live.start(refresh=True)

    def busy(self, doing: str) -> None:
        self._doing, self._since = doing, time.monotonic()
        self._live.start(refresh=True)

    def say(self, line: str) -> None:
        """The same picture with this line below it."""
        self._line = line
        self._live.refresh()

    def close(self) -> None:
        self._live.transient = self._view is None
        self._live.stop()

    def _draw(self) -> RenderableType:
        if self._view is None:
            seconds = time.monotonic() - self._since
            line = f"codezero: {clean(self._doing, 100)} … {f'{seconds:.0f} s' if seconds >= 1 else ''}"
            return Text(line, no_wrap=True, overflow="ellipsis")
        height = self._console.height
        return render(self._view, self._problem, height, self._doing, time.time(), self._line)


Screen = LiveView | PlainView


def choose_view(view: str) -> Screen:
    """The live one where it can be drawn; else lines, with `view` off such that go nowhere."""
    if console := live_console(view):
        return LiveView(console)
    return PlainView(lambda _: None) if view == "off" else PlainView()


def live_console(view: str) -> Console | None:
    """Stdout to draw on; None: lines are written. `view` auto draws on a terminal that can redraw, live on anything."""
    if reconfigure := getattr(sys.stdout, "reconfigure", None):
        reconfigure(errors="replace")  # a terminal without Unicode costs a question mark, not the run
    console = Console(file=sys.stdout)
    redraws = console.is_terminal and not console.is_dumb_terminal
    return console if view == "live" or (view == "auto" and redraws) else None


def save_picture(path: Path, view: RunView, problem: ScoredGroup | None) -> None:
    console = Console(record=True, width=100, height=30, file=io.StringIO(), force_terminal=True)
    console.print(render(view, problem, console.height))
    svg = console.export_svg(title="codezero", unique_id="codezero")
    path.write_text(re.sub(r"@font-face\s*\{.*?\}", "", svg, flags=re.DOTALL), encoding="utf-8")


def summarise(folders: Sequence[Path]) -> list[RunView]:
    """A view for each run folder, in order, from the files that the nodes write; it talks to no node."""
    views: list[RunView] = []
    for folder in folders:
        view = view_of(History(folder, budget=MAX_BYTES).read(), read_process(folder / NODE_FILE), curves=())
        views.append(view if view.peer_id else replace(view, name=clean(folder.name, 24)))
    return views


def render_rows(views: Sequence[RunView]) -> RenderableType:
    table = Table(box=None, expand=True, header_style="dim", padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("node", no_wrap=True, overflow="ellipsis", min_width=12)
    for heading in ("iter", "round"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("start → now", no_wrap=True, min_width=15)
    table.add_column("", no_wrap=True, ratio=1)
    for heading in ("reward", "peers", "shared", "s/it"):
        table.add_column(heading, justify="right", no_wrap=True)
    for view in views:
        exams, share, speed = view.exams, view.latest.get("external_share"), view.seconds_per_iteration
        way = Text("—", style="dim")
        if exams:
            way = Text.assemble((f"{percent(exams[0].average)} → ", "dim"), (percent(exams[-1].average), "bold green"))
        table.add_row(
            Text.assemble(("● ", "green") if view.running else ("○ ", "red"), (view.name, "bold")),
            str(view.iteration or 0),
            str(view.round or 0),
            way,
            Trendline([exam.average for exam in exams], "green"),
            "—" if view.reward is None else f"{view.reward:.2f}",
            f"{view.latest.get('peers', 0):.0f}",
            "—" if share is None else f"{100 * share:.0f} %",
            "—" if speed is None else f"{speed:.1f}",
        )
    samples = next((view.exams[-1].samples for view in views if view.exams), "n")
    measure = f" · {count(len(views), 'node')} · executed average@{samples}"
    title = Text.assemble(("codezero", "bold cyan"), (measure, "dim"))
    hint = HINT.replace("stops", "stops every node")
    return Group(framed(table, title, "cyan"), Text(f" {hint}", style="dim", no_wrap=True, overflow="ellipsis"))


def plain_row(view: RunView) -> str:
    way = ""
    if exams := view.exams:
        way = f"executed average@{exams[-1].samples} {percent(exams[0].average)} → {percent(exams[-1].average)}"
    state = "" if view.running else " · not running" if exams or view.iteration else " · not begun yet"
    return f"{view.name} · {plain_line(view, way)}{state}"


class SwarmView:
    """The rows of a swarm, redrawn in place on a terminal and as lines each PAUSE_SECONDS elsewhere."""

    def __init__(self, view: str, write: Callable[[str], None] = print_flushed) -> None:
        """`view` is auto, live, plain or off."""
        terminal = live_console(view)
        self._live = Live(console=terminal, auto_refresh=False, vertical_overflow="crop") if terminal else None
        self._write: Callable[[str], None] = write if view != "off" else lambda _: None
        self._written, self._shown = -math.inf, list[RunView]()

    def update(self, views: Sequence[RunView]) -> None:
        """Show `views` from now on; as lines, those that have moved, not more often than each PAUSE_SECONDS."""
        now = time.monotonic()
        if self._live is not None:
            self._live.start()
            self._live.update(render_rows(views), refresh=True)
        elif now - self._written >= PAUSE_SECONDS:
            self._written = now
            for view in views:
                if view not in self._shown:
                    self._write(plain_row(view))
            self._shown = list(views)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
