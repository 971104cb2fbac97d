"""One style for all pictures of the pages: SVG, drawn from the JSON that a benchmark prints, or that `results/` holds.

The background is transparent, and text and colours have a contrast of 3 at least on white and on dark pages, so that a
picture is readable in both themes. A band is an interval of 95 %. The same JSON gives the same bytes."""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#777777"
COLOURS = (
    "#2f81d9", "#c96a00", "#23935a", "#9a62d3", "#d64550", "#0f8f99",
    "#8a7a1f", "#c0569b", "#6f7fa8", "#a0714f", "#7b8a2e",
)  # fmt: skip
"""An arm has the same one in every picture: its place in the benchmark's list of all arms, not among those shown."""
STYLE = {
    "svg.fonttype": "none",  # text stays text: searchable, and in the reader's own font
    "svg.hashsalt": "codezero",
    "font.size": 10,
    "axes.titlesize": 10,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "legend.labelcolor": INK,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": INK,
    "grid.alpha": 0.25,
}
Point = Sequence[float]
"""x, y, and the ends of the interval where there is one."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--picture", type=Path, metavar="FILE.svg", help="draw the result into this file")
    parser.add_argument("--from", nargs="+", type=Path, default=[], dest="stored", metavar="FILE",
                        help="run nothing; draw what these files hold: of results/, or what was printed")  # fmt: skip


def drawn(options: argparse.Namespace, draw: Callable[[Any, Path], None]) -> bool:
    """Whether the picture is of stored results, which is then drawn."""
    if options.stored:
        if options.picture is None:
            raise SystemExit("--from draws a picture: name its file with --picture FILE.svg")
        read = [json.loads(path.read_text()) for path in options.stored]
        draw(merged([each["result"] if "commit" in each else each for each in read]), options.picture)
    return bool(options.stored)


def merged(results: Sequence[Any]) -> Any:
    """Maps by key, lists one after the other; of anything else the last."""
    if all(isinstance(each, dict) for each in results):
        keys = dict.fromkeys(key for each in results for key in each)
        return {key: merged([each[key] for each in results if key in each]) for key in keys}
    if all(isinstance(each, list) for each in results):
        return [item for each in results for item in each]
    return results[-1]


def colour(arm: Any, arms: Sequence[Any]) -> str:
    return COLOURS[arms.index(arm) % len(COLOURS)]


def panels(rows: int, columns: int, **shared: Any) -> "tuple[Figure, list[list[Axes]]]":
    """A figure and its panels by row. shared: `sharex` and `sharey`, as matplotlib takes them."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update(STYLE)
    from matplotlib import pyplot

    size = (8, 4.2) if rows == columns == 1 else (4 * columns if columns > 1 else 8, 3 * rows + 0.4)
    figure, axes = pyplot.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False, **shared)
    return figure, [list(row) for row in axes]


def line(axes: "Axes", points: Sequence[Point], colour: str, label: str | None = None, **style: Any) -> None:
    """A curve with the band of its interval, where each point has one. Raises SystemExit for no points."""
    if not points:
        raise SystemExit("a result has no curve: it was stored before curves were, so measure it again")
    at, values, *bounds = zip(*points, strict=True)
    axes.plot(at, values, color=colour, label=label, **{"linewidth": 1.6, **style})
    if bounds:
        axes.fill_between(at, *bounds, color=colour, alpha=0.15, linewidth=0)


def save(figure: "Figure", path: Path) -> None:
    """As SVG without the time. Raises SystemExit for another kind of file."""
    from matplotlib import pyplot

    if path.suffix != ".svg":
        raise SystemExit(f"{path}: pictures are SVG; name a file that ends in .svg")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, transparent=True, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
