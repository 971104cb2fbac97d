"""A rank of the trainer: loads the policy, keeps its shard, carries out the node's commands, ends with the node."""

# pyright: reportPrivateImportUsage=false

import logging
import os
import re
import sys
from datetime import timedelta
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Raw
from msgspec.msgpack import decode, encode

from codezero.errors import CodeZeroError, RankMemoryError
from codezero.solver.batch import Batch, Update
from codezero.solver.remote import BEGIN, LEARN, LOAD, LOST, OUT_OF_MEMORY, SAVE, Begin, Progress, Reply
from codezero.system.child import Channel, parent_channel
from codezero.system.signals import end_with_parent

if TYPE_CHECKING:
    from codezero.solver.sharded import ShardedLearner
    from codezero.weights.versions import Publisher

WAIT = timedelta(minutes=30)
"""Longest wait of one rank for another, which may be downloading a model."""
OTHERS = re.compile(r"gloo|nccl|connection (closed|reset)|timed? ?out", re.IGNORECASE)
"""What a collective says that another rank has left."""


def main() -> None:
    """The last line on stderr is why it failed, for the node to tell."""
    end_with_parent()
    channel, code = parent_channel(), 0
    try:
        Rank(channel).serve()
    except EOFError:
        pass  # the node has closed the channel
    except Exception as error:  # noqa: BLE001  # it ends this process
        lost = not isinstance(error, CodeZeroError) and OTHERS.search(str(error))
        code = OUT_OF_MEMORY if isinstance(error, RankMemoryError) else LOST if lost else 1
        print((str(error) or type(error).__name__).splitlines()[0][:300], file=sys.stderr, flush=True)
    os._exit(code)  # the destructors of a process group wait for ranks that are gone


class Rank:
    """Every rank receives the same commands in the same order; rank 0 publishes and answers."""

    learner: "ShardedLearner"
    publisher: "Publisher"

    def __init__(self, channel: Channel) -> None:
        rank, size, folder, self.backend = sys.argv[1:]
        self.channel, self.rank, self.size, self.folder = channel, int(rank), int(size), Path(folder)
        self.warnings = BufferingHandler(sys.maxsize)
        self.warnings.setLevel(logging.WARNING)
        logging.getLogger().addHandler(self.warnings)
        # transformers warns that TRL's trainer, which is only a library here, takes no part in the group
        logging.getLogger("transformers.training_args").setLevel(logging.ERROR)

    def serve(self) -> None:
        """Until a command fails or the node is gone."""
        while True:
            command, body = self.channel.receive(tuple[str, Raw])
            result = encode(self.carry_out(command, body))
            warnings = [(record.levelno, record.getMessage()) for record in self.warnings.buffer]
            self.warnings.flush()
            self.channel.send(Reply(warnings, b"" if self.rank else result))

    def carry_out(self, command: str, body: Raw) -> object:
        if command == BEGIN:
            self.join(decode(body, type=Begin))
        elif command == LOAD:
            self.learner.load(Path(decode(body, type=str)))
        elif command == LEARN:
            return self.progress(self.learner.update(decode(body, type=Batch)))
        elif command == SAVE:
            return self.learner.save(Path(decode(body, type=str)))
        else:
            return self.learner.logprobs(*decode(body, type=tuple[list[list[int]], list[list[int]]]))
        return self.progress()

    def join(self, begin: Begin) -> None:
        """Meet the other ranks, in a file because a server would listen on every interface, and shard the policy."""
        from torch import distributed as dist

        from codezero.models.device import keep_to_share
        from codezero.solver.sharded import ShardedLearner
        from codezero.wiring.hardware import recomputes
        from codezero.wiring.models import build_publisher, load_policy

        config = begin.config
        loopback = "lo0" if sys.platform == "darwin" else "lo"
        os.environ |= {"GLOO_SOCKET_IFNAME": loopback, "NCCL_SOCKET_IFNAME": loopback}
        store = dist.FileStore(str(self.folder / "store"), self.size)
        backends = "cpu:gloo,cuda:nccl" if self.backend == "nccl" else self.backend
        dist.init_process_group(backends, store=store, rank=self.rank, world_size=self.size, timeout=WAIT)
        policy = load_policy(config, lambda _: None)
        keep_to_share(policy.device, config.model.memory_share)
        again = recomputes(config, policy.model.num_parameters())
        tokens = begin.tokens_per_pass
        self.learner = ShardedLearner(policy, config.solver, activation_checkpointing=again, tokens_per_pass=tokens)
        self.publisher = build_publisher(config, Path(begin.versions))

    def progress(self, update: Update | None = None) -> Progress | None:
        """Publish the policy; each weight is gathered from all ranks."""
        import torch

        weights = self.learner.whole_weights(torch.bfloat16)
        if self.rank:
            return None
        learner, version = self.learner, self.publisher.publish(self.learner.updates, weights)
        return Progress(learner.steps, learner.skipped, learner.updates, version, update)


if __name__ == "__main__":
    main()
