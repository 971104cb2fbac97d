"""A whole node whose judge dies, sleeps, raves and comes back while it trains."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders.users import wait_until
from e2e.test_data_sets import node, rows
from fakes.judge_server import MODEL, Judge, serving

WHOLE = 1.0
SILENT = "the judge cannot be asked, so nothing is learned"
SETTINGS = [
    "evaluator.kind=openai", f"evaluator.model={MODEL}", "evaluator.seconds=10", "evaluator.questions=[yes_no]",
    "evaluator.canaries_per_iteration=2", "evaluator.on_alarm=tighten", "solver.problems_per_iteration=2",
    "solver.group_size=4", "solver.refill=2",
]  # fmt: skip


def masked(rows: list[dict[str, Any]]) -> bool:
    """Two iterations in a row went by without a verdict."""
    return len(rows) >= 2 and all(row["judge/unavailable_share"] == WHOLE for row in rows[-2:])


def judged(rows: list[dict[str, Any]]) -> bool:
    """Something was judged, and learned from."""
    return bool(rows) and rows[-1]["judge/unavailable_share"] < WHOLE and rows[-1]["reward/mean"] is not None


@pytest.mark.slow
def test_training_outlives_a_judge_that_sleeps_raves_and_dies(tmp_path: Path) -> None:
    brain = Judge()
    with serving(brain) as server, node(tmp_path, *SETTINGS, f"evaluator.url={server.url}") as process:

        def until(what: str, holds: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
            """The rows since the call, once they are as described."""
            before, fresh = len(rows(tmp_path)), list[dict[str, Any]]()

            def there() -> bool:
                fresh[:] = rows(tmp_path)[before:]
                return holds(fresh)

            wait_until(what, there, process)
            return fresh

        def until_logged(times: int) -> None:
            wait_until("it is logged", lambda: (tmp_path / "out").read_text().count(SILENT) >= times, process)

        until("judged at first", judged)
        for outage, (mode, seconds) in enumerate((("slow", 60.0), ("bytes", 0.0)), start=1):
            server.state.seconds, server.state.body, server.state.mode = seconds, b'{"choices": [{"score": 1e9}]}', mode
            fresh = until(f"masked while the judge is {mode}", masked)
            until_logged(outage)
            assert all(row["reward/mean"] is None and not row["train/loss"] for row in fresh[-2:])
            server.state.mode = "ok"
            until(f"judged again after {mode}", judged)

        port = server.server_port
        server.state.stopping.set()
        server.shutdown()
        server.hang_up()
        server.server_close()
        until("masked while nobody listens", masked)
        until_logged(3)
        with serving(brain, port):
            until("judged again by a new server", judged)
            process.send_signal(signal.SIGTERM)
            assert process.wait(120) == 0, (tmp_path / "out").read_text()
