"""What Prometheus reads at /metrics: its text format 0.0.4. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from codezero.monitor.run_types import Health, RunView

CONTENT_TYPE = "text/plain; version=0.0.4"

Sample = tuple[Mapping[str, str], float | None]
"""Labels and value; None: not measured, and left out."""


@dataclass(frozen=True)
class Family:
    """All samples of one name."""

    name: str
    help: str
    samples: Sequence[Sample]
    kind: Literal["gauge", "counter"] = "gauge"


def exposition(views: Sequence[RunView], health: Health) -> str:
    """One sample of each kind for each run, labelled with its key in the API."""
    families = [
        Family(
            "codezero_healthy", "1 unless a run that is meant to learn has stalled or died.", [({}, health.healthy)]
        ),
        *_numbers(views),
        _series(views),
        _exams(views),
        Family(
            "codezero_level_success",
            "Mean posterior of the success rate at each level of difficulty.",
            [({"run": view.run, "level": str(one.level)}, one.mean) for view in views for one in view.difficulty],
        ),
        Family(
            "codezero_peers_kept_away_from",
            "Peers that are not dealt with for now.",
            [({"run": view.run}, sum(one.state != "ok" for one in view.peers)) for view in views],
        ),
        Family("codezero_submissions", "What became of the points, by state.", list(_submissions(views))),
        Family(
            "codezero_tolerated_total",
            "Errors that the run survived, by kind.",
            [({"run": view.run, "kind": kind}, times) for view in views for kind, times in view.tolerated.items()],
            "counter",
        ),
    ]
    return "".join(line for family in families for line in lines(family))


def lines(family: Family) -> Iterable[str]:
    """Nothing of a family without values."""
    known = [(labels, value) for labels, value in family.samples if value is not None]
    if not known:
        return
    yield f"# HELP {family.name} {_escaped(family.help)}\n"
    yield f"# TYPE {family.name} {family.kind}\n"
    for labels, value in known:
        told = ",".join(f'{name}="{_escaped(text, quoted=True)}"' for name, text in labels.items())
        yield f"{family.name}{{{told}}} {float(value)!r}\n" if told else f"{family.name} {float(value)!r}\n"


def _escaped(text: str, *, quoted: bool = False) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n")
    return escaped.replace('"', '\\"') if quoted else escaped


def _numbers(views: Sequence[RunView]) -> list[Family]:
    """Those with one value a run."""
    told: list[tuple[str, str, list[float | None]]] = [
        ("running", "1 while its process is there.", [view.running for view in views]),
        ("iteration", "Iterations done.", [view.iteration for view in views]),
        ("round", "Round of the swarm it plays in.", [view.round for view in views]),
        ("last_step_timestamp_seconds", "When its last step was recorded.", [view.updated for view in views]),
        ("step_seconds", "Median of its last steps.", [view.seconds_per_iteration for view in views]),
        ("tokens_per_second", "Sampled by its solver.", [view.tokens_per_second for view in views]),
        ("judge_weight", "How far the judge counts; 0: without proven skill.", [view.judge.weight for view in views]),
    ]
    return [
        Family(
            f"codezero_{name}", text, [({"run": view.run}, value) for view, value in zip(views, values, strict=True)]
        )
        for name, text, values in told
    ]


def _series(views: Sequence[RunView]) -> Family:
    return Family(
        "codezero_measured",
        "The newest value of each curve of the page.",
        [({"run": view.run, "curve": curve}, value) for view in views for curve, value in view.latest.items()],
    )


def _exams(views: Sequence[RunView]) -> Family:
    """Of the newest exam of each run."""
    sat = [(view.run, view.exams[-1]) for view in views if view.exams]
    return Family(
        "codezero_exam",
        "Share of the held-out problems solved: average@k and pass@k.",
        [
            ({"run": run, "measure": f"{measure}@{exam.samples}", "source": exam.source}, value)
            for run, exam in sat
            for measure, value in (("average", exam.average), ("pass", exam.passed))
        ],
    )


def _submissions(views: Sequence[RunView]) -> Iterable[Sample]:
    for view in views:
        if view.outbox is not None:
            for state in ("collecting", "pending", "accepted", "refused"):
                yield {"run": view.run, "state": state}, getattr(view.outbox, state)
