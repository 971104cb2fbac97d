"""Data parallelism over the GPUs of one machine: the node is rank 0, each further GPU has a worker process.

`torch.distributed.elastic` starts the workers and reports how they end; torch.distributed carries gradients, commands
and replies over loopback alone, by NCCL between GPUs and by gloo between CPUs. The ranks meet in a file of a private
folder, because torchrun's rendezvous server listens on every interface. Micro-batches differ in size between ranks, so
nothing wraps the model: the learner sums the gradients.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false, reportPrivateImportUsage=false

import contextlib
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import TypeVar, cast

import msgspec
import torch
from torch import Tensor
from torch import distributed as dist
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, RunProcsResult, start_processes
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from codezero.errors import RankError
from codezero.models.generation import Backend, Drawn

logger = logging.getLogger(__name__)

WORKER = "codezero.wiring.rank"
"""The module that a worker runs, as WORKER PARENT RANK SIZE FOLDER BACKEND."""
SAMPLE = "sample"
WAIT = timedelta(minutes=30)
"""Longest wait of one rank for another, which may be downloading a model."""
IDLE = timedelta(days=365)
"""Longest wait of a worker for its next command."""
POLL_SECONDS = 0.5
CLOSE_SECONDS = 5
GRACE_SECONDS = 10.0
"""From a worker's end to the end of a node that waits in NCCL, which would wait for ever."""

T = TypeVar("T")


class RankGroup:
    """The process group of all ranks; creating it waits for all of them. Methods raise RankError without a rank."""

    def __init__(
        self, rank: int, size: int, folder: Path, backend: str, failure: Callable[[Exception], RankError] | None = None
    ) -> None:
        """`folder`: where the ranks meet; `backend`: nccl or gloo; `failure`: explains what a collective raised."""
        self.rank, self.size = rank, size
        self._failure = failure or (lambda error: RankError(f"another rank: {error}"))
        self._warnings = BufferingHandler(sys.maxsize)  # a worker's; rank 0 logs them
        self._warnings.setLevel(logging.WARNING)
        if rank:
            logging.getLogger().addHandler(self._warnings)
        # transformers warns that TRL's trainer, which is only a library here, takes no part in the group
        logging.getLogger("transformers.training_args").setLevel(logging.ERROR)
        loopback = "lo0" if sys.platform == "darwin" else "lo"
        os.environ |= {"GLOO_SOCKET_IFNAME": loopback, "NCCL_SOCKET_IFNAME": loopback}
        store = dist.FileStore(str(folder / "store"), size)
        backends = "cpu:gloo,cuda:nccl" if backend == "nccl" else backend
        with self._explained():
            dist.init_process_group(backends, store=store, rank=rank, world_size=size, timeout=WAIT)
            self._commands = cast(dist.ProcessGroup, dist.new_group(backend="gloo", timeout=IDLE))

    def send(self, command: str, body: object) -> None:
        """Rank 0: have every worker carry out `command`."""
        with self._explained():
            for tensor in _framed((command, body)):
                work = dist.broadcast(tensor, 0, group=self._commands, async_op=True)
                assert work is not None
                work.wait(WAIT)

    def replies(self, kind: type[T]) -> list[T]:
        """Rank 0: what each worker returns for the last command, by rank. Logs the workers' warnings."""
        results: list[T] = []
        for rank in range(1, self.size):
            with self._explained():
                warnings, body = _receive(lambda tensor, rank=rank: dist.recv(tensor, rank), list[tuple[int, str]])
            for level, text in warnings:
                logger.log(level, "rank %d: %s", rank, text)
            results.append(msgspec.msgpack.decode(body, type=kind))
        return results

    def receive(self) -> tuple[str, msgspec.Raw]:
        """A worker: the next command and its body."""
        with self._explained():
            return _receive(lambda tensor: dist.broadcast(tensor, 0, group=self._commands), str)

    def reply(self, result: object) -> None:
        """A worker: answer the last command."""
        warnings = [(record.levelno, record.getMessage()) for record in self._warnings.buffer]
        self._warnings.flush()
        with self._explained():
            for tensor in _framed((warnings, result)):
                dist.send(tensor, 0)

    def serve(self, handlers: Mapping[str, Callable[[msgspec.Raw], object]]) -> None:
        """A worker: carry out commands until a handler or a collective raises."""
        while True:
            command, body = self.receive()
            self.reply(handlers[command](body))

    def sum_gradients(self, parameters: Sequence[Tensor], *figures: float) -> list[float]:
        """Add up the gradients of all ranks in place, the same to the bit everywhere; returns the sums of `figures`."""
        touched = [float(parameter.grad is not None) for parameter in parameters]
        counts = torch.tensor([*figures, *touched], dtype=torch.float64, device=parameters[0].device)
        with self._explained():
            dist.all_reduce(counts)
            sums = counts.tolist()
            for parameter, ranks in zip(parameters, sums[len(figures) :], strict=True):
                if ranks:
                    parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                    dist.all_reduce(parameter.grad)
        return sums[: len(figures)]

    @contextlib.contextmanager
    def _explained(self) -> Generator[None]:
        try:
            yield
        except RuntimeError as error:
            raise self._failure(error) from error


class Workers:
    """The processes of all ranks but rank 0, this one. When a worker ends before `close`, this process ends too."""

    def __init__(self, environments: Sequence[Mapping[str, str]], backend: str = "gloo") -> None:
        """One for each of `environments`. `backend`: see `RankGroup`."""
        self.size, self.backend = len(environments) + 1, backend
        self.folder = Path(tempfile.mkdtemp(prefix="codezero-ranks-"))
        self._closing, self._failed = threading.Event(), threading.Event()
        self._message = ""
        logging.getLogger(start_processes.__module__).setLevel(logging.CRITICAL)  # `_message` says the same
        shared = (self.size, self.folder, backend)
        arguments = {i: ("-m", WORKER, os.getpid(), i + 1, *shared) for i in range(len(environments))}
        variables = {i: dict(environment) for i, environment in enumerate(environments)}
        logs = DefaultLogsSpecs(str(self.folder))
        with ThreadPoolExecutor(1) as thread:  # in the main thread it would replace the handlers of signals
            self.processes = thread.submit(
                start_processes, "codezero", sys.executable, arguments, variables, logs
            ).result()
        self._watcher = threading.Thread(target=self._watch, name="ranks", daemon=True)
        self._watcher.start()

    def join(self) -> RankGroup:
        """Wait for every worker. To be called once."""
        return RankGroup(0, self.size, self.folder, self.backend, self.failure)

    def failure(self, error: Exception) -> RankError:
        """The error for a collective that raised `error`: which worker ended first, and how."""
        self._failed.wait(CLOSE_SECONDS)
        return RankError(self._message or f"the ranks lost touch: {error}")

    def close(self) -> None:
        """End every worker. May be called twice."""
        self._closing.set()
        self._watcher.join()
        if dist.is_initialized() and not self._failed.is_set():  # without a rank NCCL could wait for ever
            dist.destroy_process_group()
        self.processes.close(timeout=CLOSE_SECONDS)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _watch(self) -> None:
        while not self._closing.wait(POLL_SECONDS):
            if ended := self.processes.wait(0):
                self._message = _explain(ended, self.size)
                self._failed.set()
                if not self._closing.wait(GRACE_SECONDS):
                    give_up(self._message)
                return


class SampleRequest(msgspec.Struct, frozen=True):
    """What `Backend.draw` takes."""

    prompts: list[list[int]]
    repeats: int
    max_new_tokens: int
    temperature: float
    seed: int


class ParallelDecoder:
    """A `Backend` in which every rank decodes a part of the prompts. The tokens depend on the number of ranks."""

    def __init__(self, own: Backend, group: RankGroup) -> None:
        self.own, self.group = own, group

    def draw(
        self, prompts: Sequence[Sequence[int]], repeats: int, max_new_tokens: int, temperature: float, seed: int
    ) -> list[Drawn]:
        request = SampleRequest([list(prompt) for prompt in prompts], repeats, max_new_tokens, temperature, seed)
        self.group.send(SAMPLE, request)
        try:
            own = self.draw_part(request)
        finally:  # an error here leaves no reply behind for the next command
            replies = self.group.replies(list[Drawn])
        groups: list[list[Drawn]] = [[] for _ in prompts]
        for indices, rows in zip(split(prompts, self.group.size), [own, *replies], strict=True):
            for at, i in enumerate(indices):
                groups[i] = rows[at * repeats : (at + 1) * repeats]
        return [row for group in groups for row in group]

    def draw_part(self, request: SampleRequest) -> list[Drawn]:
        """The completions of this rank's prompts."""
        prompts = [request.prompts[i] for i in split(request.prompts, self.group.size)[self.group.rank]]
        seed = random.Random(f"rank {self.group.rank} {request.seed}").getrandbits(63)
        if not prompts:
            return []
        return self.own.draw(prompts, request.repeats, request.max_new_tokens, request.temperature, seed)


def split(prompts: Sequence[Sequence[int]], ranks: int) -> list[list[int]]:
    """Indices for each rank, long and short prompts alike."""
    ordered = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    return [ordered[rank::ranks] for rank in range(ranks)]


def _framed(message: tuple[object, object]) -> tuple[Tensor, Tensor]:
    """Its length, and its bytes as msgpack."""
    raw = bytearray(msgspec.msgpack.encode(message))
    return torch.tensor([len(raw)]), torch.frombuffer(raw, dtype=torch.uint8)


def _receive(receive: Callable[[Tensor], object], head: type[T]) -> tuple[T, msgspec.Raw]:
    """A message of `_framed`, its second half encoded. `receive` fills a tensor."""
    length = torch.zeros(1, dtype=torch.int64)
    receive(length)
    raw = torch.empty(int(length), dtype=torch.uint8)
    receive(raw)
    return msgspec.msgpack.decode(raw.numpy().tobytes(), type=tuple[head, msgspec.Raw])


def _explain(ended: RunProcsResult, size: int) -> str:
    """Which worker ended first, and how. The others end because of it, or by SIGTERM."""

    def text(failure: ProcessFailure) -> str:
        message = cast("dict[str, str] | str", failure.message)
        return message["message"] if isinstance(message, dict) else ""

    def follows(failure: ProcessFailure) -> tuple[bool, int]:
        return text(failure).startswith("RankError") or failure.exitcode == -signal.SIGTERM, failure.timestamp

    first = min(ended.failures.values(), key=follows)
    why = f": {text(first).partition(': ')[2]}" if text(first) else ""
    how = f"killed by {first.signal_name()}" if first.exitcode < 0 else f"exit code {first.exitcode}{why}"
    return f"rank {first.local_rank + 1} of {size} is gone ({how})"


def give_up(message: str) -> None:
    """End this process as an error would, without the thread that waits."""
    logger.critical(message)
    with contextlib.suppress(OSError):  # nobody may be reading
        os.write(2, f"codezero: RankError: {message}\n".encode())
    os._exit(1)
