"""Event files for TensorBoard: `tensorboard --logdir runs` reads them. Imported only when they are asked for."""

import importlib
import os
from pathlib import Path
from typing import Any

from codezero.monitor.sinks import figures
from codezero.types import Metrics

_library: Any = importlib.import_module("tensorboardX")
"""By name, so that types are checked alike with and without the extra."""

FOLDER = "tensorboard"
"""In the run's folder."""
FLUSH_SECONDS = 10


class TensorBoardSink:
    """A scalar for each figure, by iteration."""

    def __init__(self, folder: Path, iteration: int) -> None:
        """Figures after `iteration`, which a crashed run left, are not shown any more."""
        self._writer: Any = _library.SummaryWriter(
            str(folder / FOLDER),
            purge_step=iteration + 1 if iteration else None,
            flush_secs=FLUSH_SECONDS,
            filename_suffix=f".{os.getpid()}.{iteration}",  # its own names tell only the second and the machine
        )

    def observe(self, row: Metrics, seconds: float) -> None:
        step = int(row["iteration"] or 0)
        for key, value in figures(row):
            self._writer.add_scalar(key, value, step, walltime=seconds)

    def close(self) -> None:
        self._writer.close()
