"""The knobs of where problems come from. Imports nothing heavy; `config.py` has all the others."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from codezero.config_model import bounded

DATA_SETS = ("synthetic", "mbpp", "mbpp_sanitized", "code_contests")
"""Sources of problems that have a name."""
MAX_SOURCES = 16


@dataclass(kw_only=True)
class DataConfig:
    """Where problems come from."""

    proposer_share: float = bounded(0.25, ge=0, le=1)
    """Share of an iteration's problems taken from proposers when there are enough."""
    sources: list[str] = field(default_factory=lambda: ["synthetic"])
    """Where the rest comes from, each with its weight behind a colon, 1 without: synthetic, mbpp, mbpp_sanitized,
    code_contests, or a path: a JSONL or Parquet file with rows in the form of these sets, or a directory of such files.
    For example [mbpp:3,synthetic]. NAME@REVISION reads another commit of a set of the hub. Where none of them can be
    read, synthetic problems stand in."""
    wait_seconds: float = bounded(10.0, gt=0, le=600)
    """How long an iteration waits for rows from the hub; when they do not come, other sources stand in."""


def source_weights(sources: Sequence[str]) -> dict[str, float]:
    """`NAME` or `NAME:WEIGHT` -> weight by name. Raises ValueError that says what is wrong with which."""
    weights: dict[str, float] = {}
    for text in sources:
        name, colon, given = text.rpartition(":")
        try:
            weight = float(given) if colon else 1.0
        except ValueError:
            name, weight = text, 1.0  # a path may hold a colon
        name = name if colon and name else text
        if name.partition("@")[0] not in DATA_SETS and "/" not in name and not name.endswith((".jsonl", ".parquet")):
            raise ValueError(f"{name} is unknown; choose some of: {', '.join(DATA_SETS)}, or a path with a / in it")
        if not 0 < weight < float("inf"):
            raise ValueError(f"{text} has no weight above 0")
        if name in weights:
            raise ValueError(f"{name} is named twice")
        weights[name] = weight
    if not 0 < len(weights) <= MAX_SOURCES:
        raise ValueError(f"{len(weights)} sources, not 1 to {MAX_SOURCES}")
    return weights
