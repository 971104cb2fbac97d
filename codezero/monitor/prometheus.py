"""What Prometheus reads at /metrics: its text format 0.0.4."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.registry import Collector

from codezero.monitor.run_types import Health, RunView

NUMBERS: tuple[tuple[str, str, Callable[[RunView], float | None]], ...] = (
    ("running", "1 while its process is there.", lambda view: view.running),
    ("iteration", "Iterations done.", lambda view: view.iteration),
    ("round", "Round of the swarm it plays in.", lambda view: view.round),
    ("last_step_timestamp_seconds", "When its last step was recorded.", lambda view: view.updated),
    ("step_seconds", "Median of its last steps.", lambda view: view.seconds_per_iteration),
    ("tokens_per_second", "Sampled by its solver.", lambda view: view.tokens_per_second),
    ("judge_weight", "How far the judge counts; 0: without proven skill.", lambda view: view.judge.weight),
    (
        "peers_kept_away_from",
        "Peers that are not dealt with for now.",
        lambda view: sum(peer.state != "ok" for peer in view.peers),
    ),
)
"""Metrics with one value a run."""
OUTBOX_STATES = ("collecting", "pending", "accepted", "refused")
Samples = Iterable[tuple[Mapping[str, str], float | None]]
"""Labels and value. None: not measured, and left out."""


class RunCollector(Collector):
    """The samples of each run are labelled with its key in the API."""

    def __init__(self, views: Sequence[RunView], health: Health) -> None:
        self._views, self._health = views, health

    def collect(self) -> Iterator[Metric]:
        """Metrics without a sample are left out."""
        return (metric for metric in self._metrics() if metric.samples)

    def _metrics(self) -> Iterator[Metric]:
        views = self._views
        healthy = self._health.healthy
        yield metric("healthy", "1 unless a run that is meant to learn has stalled or died.", [({}, healthy)])
        for name, text, read in NUMBERS:
            yield metric(name, text, (({"run": view.run}, read(view)) for view in views))
        curves = (({"run": view.run, "curve": name}, value) for view in views for name, value in view.latest.items())
        yield metric("measured", "The newest value of each curve of the page.", curves)
        exams = (
            ({"run": view.run, "measure": f"{measure}@{exam.samples}", "source": exam.source}, value)
            for view in views
            for exam in view.exams[-1:]
            for measure, value in (("average", exam.average), ("pass", exam.passed))
        )
        yield metric("exam", "Share of the held-out problems solved: average@k and pass@k.", exams)
        levels = (
            ({"run": view.run, "level": str(skill.level)}, skill.mean) for view in views for skill in view.difficulty
        )
        yield metric("level_success", "Mean posterior of the success rate at each level of difficulty.", levels)
        points = (
            ({"run": view.run, "state": state}, getattr(view.outbox, state))
            for view in views
            if view.outbox is not None
            for state in OUTBOX_STATES
        )
        yield metric("submissions", "What became of the points, by state.", points)
        errors = (({"run": view.run, "kind": kind}, times) for view in views for kind, times in view.tolerated.items())
        yield metric("tolerated", "Errors that the run survived, by kind.", errors, "counter", suffix="_total")


def metric(name: str, text: str, samples: Samples, kind: str = "gauge", *, suffix: str = "") -> Metric:
    """suffix: what the text format adds to the names of this kind."""
    result = Metric(f"codezero_{name}", text, kind)
    for labels, value in samples:
        if value is not None:
            result.add_sample(f"{result.name}{suffix}", dict(labels), value)
    return result


def exposition(views: Sequence[RunView], health: Health) -> bytes:
    """The page of /metrics, without figures of this process itself."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(RunCollector(views, health))
    return generate_latest(registry)
