"""Rows, judged groups and states for the tests of the monitor."""

import json
from pathlib import Path

from codezero.monitor.metrics_file import Tail, parse
from codezero.monitor.run_state import Fold
from codezero.monitor.run_types import RunView
from codezero.monitor.run_view import view_of
from codezero.system.child import ProcessReport
from codezero.types import Completion, Metrics, Problem, RolloutGroup, ScoredGroup, Source, Status, Verdict

PEER = "12D3KooWQx7vT3mPZk9rN4fJ8sYbH2cLwEaUdRgVoX5iMtF6qB1n"
GOOD = "Sure:\n```python\ndef total(numbers):\n    # add them up\n    return sum(numbers)\n```"
BAD = "```python\ndef total(numbers):\n    for n in numbers:\n        return n\n```"


def read_metrics(path: Path) -> list[Metrics]:
    """The rows, oldest first."""
    return [row for line in Tail(path).poll()[1] if (row := parse(line)) is not None]


def exam_row(iteration: int, average: float, *, n: int = 8, reach: float = 0.03) -> Metrics:
    return {
        "iteration": iteration, "round": iteration // 10,
        f"eval/average_at_{n}": average, "eval/ci_low": average - reach, "eval/ci_high": average + reach,
        f"eval/pass_at_{n}": min(1.0, average + 0.2), "eval/pass_ci_low": average,
        "eval/pass_ci_high": min(1.0, average + 0.3),
        "eval/source": "executed", "eval/problems": 200, "eval/unknown_share": 0.01,
        "eval/level_1": min(1.0, average + 0.1), "eval/level_5": max(0.0, average - 0.1),
        "judge/believed": 0.61, "judge/auroc": 0.98, "judge/exam_within_auroc": 0.71,
        "judge/exam_within_auroc_low": 0.64, "judge/exam_within_auroc_high": 0.77,
        "judge/exam_within_auroc_pairs": 695, "judge/false_positive_share": 0.05, "judge/false_negative_share": 0.04,
    }  # fmt: skip


def row(iteration: int, reward: float | None = 0.5, **more: float) -> Metrics:
    measured: Metrics = {
        "iteration": iteration, "round": iteration // 10, "seconds": 0.6, "reward/mean": reward, "difficulty/level": 3,
        "swarm/peers": 2, "swarm/external_share": 0.18, "tokens/sampled_per_second": 12_345.6,
    }  # fmt: skip
    return measured | {key.replace("__", "/"): value for key, value in more.items()}


def verdict(reward: float, *reasons: str, status: Status = Status.JUDGED) -> Verdict:
    return Verdict(reward, reward, 1.0, 1.0, 1.0, 1.0, status, reasons)


def group(
    question: str = "Return the sum of the numbers.", texts: tuple[str, ...] = (GOOD, BAD), *why: str
) -> ScoredGroup:
    problem = Problem("0" * 64, question, ("assert total([1]) == 1",), "total", Source.SYNTHETIC, level=3)
    completions = tuple(Completion(text, (1,), (0.0,), True) for text in texts)
    verdicts = tuple(verdict(0.9 if index == 0 else 0.1, *why) for index in range(len(texts)))
    return ScoredGroup(RolloutGroup(problem, completions, PEER, 1, 1), verdicts)


def folded(*rows: Metrics) -> Fold:
    return Fold().extend(json.dumps(row).encode() for row in rows)


def after(*rows: Metrics) -> RunView:
    """The view of a run with these rows."""
    facts = {"swarm": "hivemind", "solver": "nano", "judge": "nano"}
    return view_of(folded(*rows), ProcessReport(peer_id=PEER, began=0.0, facts=facts))


def rows_of(exams: int = 3) -> list[Metrics]:
    """A run of 25 iterations an exam, from 21 % upwards."""
    rows: list[Metrics] = []
    for iteration in range(25 * exams or 5):
        exam = exam_row(iteration, 0.21 + 0.004 * iteration) if exams and iteration % 25 == 0 else {}
        rows.append(row(iteration, 0.3 + 0.002 * iteration) | exam)
    return rows


def learned(exams: int = 3) -> RunView:
    return after(*rows_of(exams))
