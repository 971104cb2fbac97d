"""The model card of a pushed policy: the run's own figures, each with how it was measured, and nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measured:
    """One figure of the run."""

    name: str
    label: str
    """executed, judged."""
    iteration: int
    value: float
    low: float | None = None
    high: float | None = None
    """95 % interval."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a card is made of."""

    name: str
    """The repository's."""
    base: str
    """The model that the run began with."""
    judge: str
    adapter: bool
    iteration: int
    settings: dict[str, str]
    measured: Sequence[Measured]


def model_card(facts: Facts) -> str:
    """Markdown with the hub's front matter."""
    front = ["---", f"library_name: {'peft' if facts.adapter else 'transformers'}"]
    front += ["pipeline_tag: text-generation", "tags:", "- codezero", "- grpo"]
    if _is_hub_id(facts.base):
        front += [f"base_model: {facts.base}"]
    what = "A LoRA adapter for" if facts.adapter else "All weights, learned from"
    lines = [
        *front,
        "---",
        "",
        f"# {_cell(facts.name)}",
        "",
        f"{what} `{_cell(_base_name(facts.base))}`, after {facts.iteration} iterations of GRPO in a codezero swarm. "
        f"Rewards came from the frozen judge `{_cell(_base_name(facts.judge))}`.",
        "",
        "| figure | how | iteration | value | 95 % interval |",
        "|---|---|---|---|---|",
        *(_row(one) for one in facts.measured),
        "",
        "*executed*: attempts were run against their tests in a sandbox. *judged*: what a model believes of them.",
        "" if facts.measured else "\nNothing has been measured yet.\n",
        "| setting | value |",
        "|---|---|",
        *(f"| {_cell(name)} | {_cell(value)} |" for name, value in facts.settings.items()),
        "",
    ]
    return "\n".join(lines)


def _row(one: Measured) -> str:
    interval = "" if one.low is None or one.high is None else f"{one.low:.3f} to {one.high:.3f}"
    return f"| {_cell(one.name)} | {_cell(one.label)} | {one.iteration} | {one.value:.3f} | {interval} |"


def _is_hub_id(name: str) -> bool:
    return name.count("/") == 1 and not name.startswith(("/", ".", "~"))


def _base_name(name: str) -> str:
    """A folder of this machine is told by its last part alone."""
    return name if _is_hub_id(name) else name.rstrip("/").rpartition("/")[2]


def _cell(text: str) -> str:
    """On one line, and within its cell."""
    return " ".join(text.split()).replace("|", "/").replace("`", "'")[:200]
