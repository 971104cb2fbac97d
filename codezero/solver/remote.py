"""A learner in processes of its own, a rank for each card: the node sends them batches and receives versions.

A rank that dies ends all of them and costs the node the iteration in flight; `load` starts new ones."""

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TypeVar

import msgspec

from codezero.config import NodeConfig
from codezero.errors import CheckpointError, RankError, RankMemoryError
from codezero.models.load import LoadedModel
from codezero.solver.batch import Batch, IdRows, Update
from codezero.solver.policy_files import OPTIMIZER, LearnerCounters
from codezero.system.child import Channel, Child, how_it_ended, python, spawn
from codezero.weights.versions import PolicyVersion

logger = logging.getLogger(__name__)

BEGIN, LEARN, SCORE, SAVE, LOAD = "begin", "learn", "score", "save", "load"  # commands to ranks
OUT_OF_MEMORY, LOST = 75, 76  # exit codes of a rank: its memory did not suffice; another rank is gone
Reply = tuple[list[tuple[int, str]], bytes]  # warnings; what rank 0 computed, as msgpack, and nothing of the others
POLL_SECONDS, LAST_WORDS_SECONDS, CLOSE_SECONDS = 0.2, 3.0, 5.0
T = TypeVar("T")


class Begin(msgspec.Struct, frozen=True):
    """The first command's body, for every rank."""

    config: NodeConfig
    versions: str  # the folder that the policy's versions are published in
    tokens_per_pass: int


class Progress(LearnerCounters, frozen=True):
    """Rank 0's result of a command that may have moved the policy."""

    version: PolicyVersion  # as it was published
    update: Update | None = None


class Ranks:
    """The processes of a trainer. They end with this one; when one ends before `close`, all are ended."""

    def __init__(self, module: str, environments: Sequence[Mapping[str, str]], backend: str) -> None:
        """`module` is run as MODULE RANK SIZE FOLDER BACKEND for each of `environments`; backend: nccl or gloo."""
        self.children: list[Child] = []
        self._channels: list[Channel] = []
        self._errors: list[IO[bytes]] = []
        with ExitStack() as stack:  # of what is started before something fails
            folder = stack.enter_context(TemporaryDirectory(prefix="codezero-trainer-", ignore_cleanup_errors=True))
            for rank, environment in enumerate(environments):
                command = python("-m", module, *map(str, (rank, len(environments), folder, backend)))
                errors = stack.enter_context(Path(folder, f"rank-{rank}.log").open("w+b"))
                child, channel = spawn(command, env=os.environ | environment, stdout=errors, stderr=errors)
                stack.callback(channel.close)
                stack.callback(child.close, CLOSE_SECONDS)
                self.children.append(child)
                self._channels.append(channel)
                self._errors.append(errors)
            self._stack = stack.pop_all()

    def ask(self, command: str, body: object, kind: type[T]) -> T:
        """Rank 0's result, once all ranks have carried out the command. Raises RankError when one is gone."""
        try:
            for channel in self._channels:
                channel.send((command, body))
            replies: list[Reply] = []
            for channel in self._channels:
                while not channel.readable(POLL_SECONDS):  # if a rank ended, the others may wait for half an hour
                    if any(child.poll() is not None for child in self.children):
                        raise EOFError
                replies.append(channel.receive(Reply))
        except EOFError as error:
            raise self._failure() from error
        for rank, (warnings, _) in enumerate(replies):
            for level, text in warnings:
                logger.log(level, "rank %d: %s", rank, text)
        return msgspec.msgpack.decode(replies[0][1], type=kind)

    def close(self) -> None:
        """End every rank. May be called twice."""
        for child in self.children:
            child.stop()
        self._stack.close()

    def _failure(self) -> RankError:
        """The rank that ended first, and how; the others end because of it."""
        deadline = time.monotonic() + LAST_WORDS_SECONDS
        while time.monotonic() < deadline and all(child.poll() in (None, LOST) for child in self.children):
            time.sleep(POLL_SECONDS)
        codes = [child.poll() for child in self.children]
        rank = min(range(len(codes)), key=lambda each: (codes[each] is None, codes[each] == LOST))
        code = codes[rank]
        how = "does not answer" if code is None else how_it_ended(code, self._errors[rank])
        kind = RankMemoryError if code == OUT_OF_MEMORY else RankError
        return kind(f"rank {rank} of {len(codes)} {how}")


class RemoteLearner:
    """A `TrlLearner` for the solver, by its methods. Every update is a version of the policy, which `follow` brings to
    those who decode before `update` returns."""

    def __init__(
        self, policy: LoadedModel, start: Callable[[], Ranks], begin: Begin, follow: Callable[[PolicyVersion], None]
    ) -> None:
        """policy: for its tokenizer and shapes. start: new processes, which wait for `begin`. Raises RankError."""
        self.policy, self._start, self._begin, self._follow = policy, start, begin, follow
        self.ranks: Ranks | None = start()
        self.steps = self.skipped = self.updates = 0
        try:
            self._advance(BEGIN, begin)
        except BaseException:
            self.close()
            raise

    def update(self, batch: Batch) -> Update:
        """See `TrlLearner.update`. Raises RankError."""
        update = self._advance(LEARN, batch).update
        assert update is not None
        return update

    def logprobs(self, prompts: IdRows, completions: IdRows) -> list[tuple[float, ...]]:
        """See `TrlLearner.logprobs`. Raises RankError."""
        return self._ask(SCORE, (prompts, completions), list[tuple[float, ...]])

    def save(self, folder: Path) -> None:
        self._ask(SAVE, str(folder.resolve()), msgspec.Raw)

    def load(self, folder: Path) -> None:
        """Become what was saved, on new ranks where those before have ended. Raises CheckpointError and RankError."""
        if (folder / OPTIMIZER).exists():
            raise CheckpointError(f"{folder} was saved by a node that trains itself; set trainer.ranks=0")
        if self.ranks is None:
            logger.warning("starting the trainer again, with up to %d tokens a pass", self._begin.tokens_per_pass)
            self.ranks = self._start()
            self._ask(BEGIN, self._begin, Progress)
        self._advance(LOAD, str(folder.resolve()))

    def close(self) -> None:
        if self.ranks is not None:
            self.ranks.close()
            self.ranks = None

    def _advance(self, command: str, body: object) -> Progress:
        progress = self._ask(command, body, Progress)
        self.steps, self.skipped, self.updates = progress.steps, progress.skipped, progress.updates
        self._follow(progress.version)
        return progress

    def _ask(self, command: str, body: object, kind: type[T]) -> T:
        if self.ranks is None:
            raise RankError("the trainer has ended")
        try:
            return self.ranks.ask(command, body, kind)
        except RankError as error:
            self.close()
            if isinstance(error, RankMemoryError):
                fewer = max(1, self._begin.tokens_per_pass // 2)
                self._begin = msgspec.structs.replace(self._begin, tokens_per_pass=fewer)
            raise
