"""One row for each node of a swarm on this machine, read from the files the nodes write. It talks to no node."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from codezero.monitor.metrics_file import NODE_FILE
from codezero.monitor.run_state import History
from codezero.monitor.summaries import PAUSE_SECONDS, RunState, plain_line
from codezero.monitor.terminal import Trendline, framed, live_console
from codezero.monitor.text import clean, count, percent, print_flushed, readable_name
from codezero.system.pidfile import read_process

MAX_BYTES = 1 << 19
"""Read of each node's metrics a look: its beginning, where the start value is, and its newest rows."""
HINT = "Ctrl-C saves and stops every node; the same command goes on from there."


@dataclass(frozen=True, slots=True)
class NodeRow:
    name: str
    alive: bool
    state: RunState


def summarise(folders: Sequence[Path]) -> list[NodeRow]:
    """A row for each run folder, in order; a node that has written nothing yet has an empty one."""
    rows: list[NodeRow] = []
    for folder in folders:
        node = read_process(folder / NODE_FILE)
        name = readable_name(node.peer_id) if node.peer_id else clean(folder.name, 24)
        rows.append(NodeRow(name, node.alive, RunState().after(History(folder, budget=MAX_BYTES).read())))
    return rows


def render_rows(rows: Sequence[NodeRow]) -> RenderableType:
    table = Table(box=None, expand=True, header_style="dim", padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("node", no_wrap=True, overflow="ellipsis", min_width=12)
    for heading in ("iter", "round"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("start → now", no_wrap=True, min_width=15)
    table.add_column("", no_wrap=True, ratio=1)
    for heading in ("reward", "peers", "shared", "s/it"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*_cells(row))
    samples = next((row.state.exams[-1].samples for row in rows if row.state.exams), "n")
    title = Text.assemble(
        ("codezero", "bold cyan"), (f" · {count(len(rows), 'node')} · executed average@{samples}", "dim")
    )
    return Group(framed(table, title, "cyan"), Text(f" {HINT}", style="dim", no_wrap=True, overflow="ellipsis"))


def _cells(row: NodeRow) -> list[RenderableType]:
    state, exams = row.state, row.state.exams
    name = Text.assemble(("● " if row.alive else "○ ", "green" if row.alive else "red"), (row.name, "bold"))
    way = Text("—", style="dim")
    if exams:
        way = Text.assemble((f"{percent(exams[0].average)} → ", "dim"), (percent(exams[-1].average), "bold green"))
    trend = Trendline((exam.average for exam in exams), "green")
    reward = "—" if state.reward is None else f"{state.reward:.2f}"
    shared = "—" if state.external_share is None else f"{100 * state.external_share:.0f} %"
    speed = "—" if state.seconds_per_iteration is None else f"{state.seconds_per_iteration:.1f}"
    return [name, str(state.iteration), str(state.round), way, trend, reward, f"{state.peers:.0f}", shared, speed]


def plain_row(row: NodeRow) -> str:
    """The node's name and its line, with its first and its newest exam."""
    way = ""
    if exams := row.state.exams:
        way = f"executed average@{exams[-1].samples} {percent(exams[0].average)} → {percent(exams[-1].average)}"
    line = f"{row.name} · {plain_line(row.state, way)}"
    begun = row.state.exams or row.state.iteration
    return line if row.alive else f"{line} · {'not running' if begun else 'not begun yet'}"


class SwarmView:
    """The rows of a swarm, redrawn in place on a terminal and as lines each PAUSE_SECONDS elsewhere."""

    def __init__(self, view: str, write: Callable[[str], None] = print_flushed) -> None:
        """`view` is auto, live, plain or off."""
        terminal = live_console(view)
        self._live = Live(console=terminal, auto_refresh=False, vertical_overflow="crop") if terminal else None
        self._write: Callable[[str], None] = write if view != "off" else lambda _: None
        self._written: float | None = None
        self._shown: list[NodeRow] = []

    def update(self, rows: Sequence[NodeRow]) -> None:
        """Show `rows` from now on; as lines, those that have moved, not more often than each PAUSE_SECONDS."""
        now = time.monotonic()
        if self._live is not None:
            self._live.start()
            self._live.update(render_rows(rows), refresh=True)
        elif self._written is None or now - self._written >= PAUSE_SECONDS:
            self._written = now
            for row in rows:
                if row not in self._shown:
                    self._write(plain_row(row))
            self._shown = list(rows)

    def close(self) -> None:
        """Leave the last picture standing and give the terminal back."""
        if self._live is not None:
            self._live.stop()
