"""What Prometheus reads at /metrics: its text format 0.0.4. The samples of each run are labelled with its key."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prometheus_client import Metric, generate_latest
from prometheus_client.registry import Collector

from codezero.monitor.run_types import Health, RunView

Samples = Iterable[tuple[Mapping[str, str], float | None]]
"""Labels and value. None: not measured, and left out."""
OUTBOX_STATES = ("collecting", "pending", "accepted", "refused")
METRICS: dict[str, tuple[str, Callable[[RunView], Samples]]] = {
    "running": ("1 while its process is there.", lambda view: [({}, view.running)]),
    "iteration": ("Iterations done.", lambda view: [({}, view.iteration)]),
    "round": ("Round of the swarm it plays in.", lambda view: [({}, view.round)]),
    "last_step_timestamp_seconds": ("When its last step was recorded.", lambda view: [({}, view.updated)]),
    "step_seconds": ("Median of its last steps.", lambda view: [({}, view.seconds_per_iteration)]),
    "tokens_per_second": ("Sampled by its solver.", lambda view: [({}, view.tokens_per_second)]),
    "judge_weight": ("How far the judge counts; 0: without proven skill.", lambda view: [({}, view.judge.weight)]),
    "peers_kept_away_from": ("Peers that are not dealt with for now.",
                             lambda view: [({}, sum(peer.state != "ok" for peer in view.peers))]),
    "measured": ("The newest value of each curve of the page.",
                 lambda view: (({"curve": name}, value) for name, value in view.latest.items())),
    "exam": ("Share of the held-out problems solved: average@k and pass@k.", lambda view: (
        ({"measure": f"{measure}@{exam.samples}", "source": exam.source}, value)
        for exam in view.exams[-1:]
        for measure, value in (("average", exam.average), ("pass", exam.passed))
    )),
    "level_success": ("Mean posterior of the success rate at each level of difficulty.",
                      lambda view: (({"level": str(skill.level)}, skill.mean) for skill in view.difficulty)),
    "submissions": ("What became of the points, by state.",
                    lambda view: (({"state": state}, getattr(view.outbox, state, None)) for state in OUTBOX_STATES)),
}  # fmt: skip


class RunCollector(Collector):
    def __init__(self, views: Sequence[RunView], health: Health) -> None:
        self._views, self._health = views, health

    def collect(self) -> Iterator[Metric]:
        """Metrics without a sample are left out."""
        healthy = Metric("codezero_healthy", "1 unless a run that is meant to learn has stalled or died.", "gauge")
        healthy.add_sample(healthy.name, {}, self._health.healthy)
        yield healthy
        for name, (text, read) in METRICS.items():
            yield from self._metric(Metric(f"codezero_{name}", text, "gauge"), read)
        errors = Metric("codezero_tolerated", "Errors that the run survived, by kind.", "counter")
        yield from self._metric(errors, lambda view: (({"kind": k}, n) for k, n in view.tolerated.items()), "_total")

    def _metric(self, metric: Metric, read: Callable[[RunView], Samples], suffix: str = "") -> Iterator[Metric]:
        """suffix: what the text format adds to the names of this kind."""
        for view in self._views:
            for labels, value in read(view):
                if value is not None:
                    metric.add_sample(f"{metric.name}{suffix}", {"run": view.run, **labels}, value)
        if metric.samples:
            yield metric


def exposition(views: Sequence[RunView], health: Health) -> bytes:
    """The page of /metrics, without figures of this process itself."""
    return generate_latest(RunCollector(views, health))
