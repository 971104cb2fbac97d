"""`curve.png`: executed average@n with its 95 % band, and the reward, over iterations."""

# pyright: reportUnknownMemberType=false
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from codezero.monitor.run_types import ExamResult, Series
from codezero.system.files import replacing

TRUTH, REWARD, INK = "#0b7a75", "#d98e04", "#444444"


def draw_curve(path: Path, exams: Sequence[ExamResult], rewards: Series) -> None:
    """Write the picture atomically. `rewards` are (iteration, mean reward); both series may be empty."""
    figure = Figure(figsize=(8, 4.2), dpi=140, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    ends = [_draw_rewards(axes, rewards)] if rewards else []
    if exams:
        ends.append(_draw_exams(axes, exams))
    else:
        axes.text(0.02, 0.95, "executed truth: not measured", transform=axes.transAxes, color=INK, va="top")
    _label(axes, ends)
    _tidy(axes)
    with replacing(path) as stream:
        canvas.print_png(stream)


def _draw_rewards(axes: Axes, rewards: Series) -> tuple[float, float, str, str]:
    steps, values = [iteration for iteration, _ in rewards], [reward for _, reward in rewards]
    axes.plot(steps, values, color=REWARD, linewidth=1.2, alpha=0.9)
    return steps[-1], values[-1], "reward", REWARD


def _draw_exams(axes: Axes, exams: Sequence[ExamResult]) -> tuple[float, float, str, str]:
    steps = [exam.iteration for exam in exams]
    low = [exam.average if exam.low is None else exam.low for exam in exams]
    high = [exam.average if exam.high is None else exam.high for exam in exams]
    averages = [exam.average for exam in exams]
    axes.fill_between(steps, low, high, color=TRUTH, alpha=0.18, linewidth=0)
    axes.errorbar(
        steps[:1] + steps[-1:],
        averages[:1] + averages[-1:],
        yerr=[
            [averages[0] - low[0], averages[-1] - low[-1]],
            [high[0] - averages[0], high[-1] - averages[-1]],
        ],
        fmt="none",
        ecolor=TRUTH,
        capsize=3,
        linewidth=1,
    )
    axes.plot(steps, averages, color=TRUTH, linewidth=2.2, marker="o", markersize=3.5)
    first = exams[0]
    axes.annotate(
        f"{100 * first.average:.1f} %", (steps[0], averages[0]), (10, -12), textcoords="offset points", color=TRUTH
    )
    return steps[-1], averages[-1], f"{exams[-1].label}\n{100 * averages[-1]:.1f} %", TRUTH


def _label(axes: Axes, ends: Sequence[tuple[float, float, str, str]]) -> None:
    """Name each line at its end instead of in a legend; two that end close together are pushed apart."""
    ranked = sorted(ends, key=lambda end: end[1])
    close = len(ranked) == 2 and ranked[1][1] - ranked[0][1] < 0.1
    for (x, y, text, colour), push in zip(ranked, (-12, 12) if close else (0, 0), strict=False):
        axes.annotate(text, (x, y), (10, push), textcoords="offset points", color=colour, va="center", weight="bold")


def _tidy(axes: Axes) -> None:
    axes.set_ylim(0, 1)
    axes.set_xlabel("iteration", color=INK)
    axes.set_ylabel("share of attempts · reward", color=INK)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.1f}")
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color("#bbbbbb")
    axes.tick_params(colors=INK, length=0)
