"""Weights & Biases, through a process of its own; `wandb_process` says what it sends."""

import contextlib
import json
import subprocess
import sys
from pathlib import Path

from codezero.errors import EndpointError
from codezero.monitor.sinks import About, figures
from codezero.monitor.wandb_process import Begin, Row
from codezero.system.files import set_aside
from codezero.types import Metrics

LOG = "wandb.log"
"""What the process had to say."""


class WandbSink:
    def __init__(self, project: str, about: About, folder: Path, logs: Path) -> None:
        """`project`: PROJECT or ENTITY/PROJECT; `folder`: the run's."""
        logs.mkdir(parents=True, exist_ok=True)
        self._log = logs / LOG
        with set_aside(self._log).open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "codezero.monitor.wandb_process"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the node, at whose end its input ends
            )
        facts = {"peer": about.peer_id, **dict(about.facts)}
        self._send(Begin(project=project, run=about.run, facts=facts, folder=str(folder), logs=str(logs)))

    def observe(self, row: Metrics, seconds: float) -> None:
        """Raises EndpointError when the process is gone."""
        self._send(Row(step=int(row["iteration"] or 0), figures=dict(figures(row))))

    def close(self) -> None:
        """The process sends what is left and ends by itself, if need be after this one. Raises EndpointError."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        if self._process.wait() != 0:
            raise self._gone()

    def _send(self, what: Begin | Row) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(what).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise self._gone() from error

    def _gone(self) -> EndpointError:
        return EndpointError(f"its process ended with {self._process.wait()}; see {self._log}")
