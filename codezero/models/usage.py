"""Use of the machine by this node and its child processes, for a row of metrics."""

import contextlib
import sys
import time

import psutil

from codezero.types import Metrics


class Usage:
    """Call it once an iteration. CPU is what was used since the last call, in cores."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._at, self._cpu = time.monotonic(), 0.0

    def __call__(self) -> Metrics:
        """`system/cpu` in cores (null at first), `system/memory_bytes` resident, `system/gpu_bytes` where CUDA is used.

        Memory that processes share counts for each of them; of the cards, that of all programs counts.
        """
        cpu, memory = 0.0, 0
        for process in [self._process, *self._process.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):  # it ended meanwhile
                times = process.cpu_times()
                cpu += times.user + times.system
                memory += process.memory_info().rss
        now, before = time.monotonic(), self._cpu
        spent = max(0.0, cpu - before)  # a child that ended takes its own
        used = spent / max(now - self._at, 1e-3) if before else None
        self._at, self._cpu = now, cpu
        return {"system/cpu": used, "system/memory_bytes": memory, "system/gpu_bytes": _card_bytes()}


def _card_bytes() -> int | None:
    """Bytes on the cards of this process. torch is not loaded for it."""
    if "torch" not in sys.modules:
        return None
    import torch

    if not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return None
    free = [torch.cuda.mem_get_info(card) for card in range(torch.cuda.device_count())]
    return sum(total - left for left, total in free)
