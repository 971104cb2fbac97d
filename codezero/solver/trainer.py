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
from codezero.solver.remote import LEARN, LOST, OUT_OF_MEMORY, SAVE, SCORE, Begin, Progress
from codezero.system.child import Channel, parent_channel
from codezero.system.signals import end_with_parent

if TYPE_CHECKING:
    from codezero.solver.sharded import ShardedLearner

WAIT = timedelta(minutes=30)  # longest wait of one rank for another, which may be downloading a model
OTHERS = re.compile(r"gloo|nccl|connection (closed|reset)|timed? ?out", re.IGNORECASE)  # a collective: a rank has left


def main() -> None:
    """The last line on stderr is why it failed, for the node to tell."""
    end_with_parent()
    channel, code = parent_channel(), 0
    try:
        serve(channel)
    except EOFError:
        pass  # the node has closed the channel
    except Exception as error:  # noqa: BLE001  # it ends this process
        lost = not isinstance(error, CodeZeroError) and OTHERS.search(str(error))
        code = OUT_OF_MEMORY if isinstance(error, RankMemoryError) else LOST if lost else 1
        print((str(error) or type(error).__name__).splitlines()[0][:300], file=sys.stderr, flush=True)
    os._exit(code)  # the destructors of a process group wait for ranks that are gone


def serve(channel: Channel) -> None:
    """Carry out the commands, which every rank receives in the same order, until one fails or the node is gone. The
    rank of number 0 publishes the policy and answers."""
    warnings = BufferingHandler(sys.maxsize)
    warnings.setLevel(logging.WARNING)
    logging.getLogger().addHandler(warnings)
    # transformers warns that TRL's trainer, which is only a library here, takes no part in the group
    logging.getLogger("transformers.training_args").setLevel(logging.ERROR)
    _, begin = channel.receive(tuple[str, Begin])
    learner = meet(begin)
    import torch

    from codezero.weights.versions import Publisher

    publisher = Publisher(Path(begin.versions), deltas=begin.config.weights.transfer == "delta")

    def progress(update: Update | None = None) -> Progress | None:
        """Publish the policy; each weight is gathered from all ranks."""
        weights = learner.whole_weights(torch.bfloat16)
        if learner.rank:
            return None
        version = publisher.publish(learner.updates, weights)
        return Progress(learner.steps, learner.skipped, learner.updates, version, update)

    result: object = progress()
    while True:
        lines = [(record.levelno, record.getMessage()) for record in warnings.buffer]
        warnings.flush()
        channel.send((lines, b"" if learner.rank else encode(result)))
        command, body = channel.receive(tuple[str, Raw])
        if command == LEARN:
            result = progress(learner.update(decode(body, type=Batch)))
        elif command == SCORE:
            result = learner.logprobs(*decode(body, type=tuple[list[list[int]], list[list[int]]]))
        elif command == SAVE:
            result = learner.save(Path(decode(body, type=str)))
        else:
            learner.load(Path(decode(body, type=str)))
            result = progress()


def meet(begin: Begin) -> "ShardedLearner":
    """Meet the other ranks, in a file because a server would listen on every interface, and shard the policy."""
    from torch import distributed as dist

    from codezero.models.device import keep_to_share
    from codezero.models.hardware import recomputes
    from codezero.solver.build import load_policy
    from codezero.solver.sharded import ShardedLearner

    number, size, folder, backend = sys.argv[1:]
    config = begin.config
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    os.environ |= {"GLOO_SOCKET_IFNAME": loopback, "NCCL_SOCKET_IFNAME": loopback}
    store = dist.FileStore(os.path.join(folder, "store"), int(size))
    backends = "cpu:gloo,cuda:nccl" if backend == "nccl" else backend
    dist.init_process_group(backends, store=store, rank=int(number), world_size=int(size), timeout=WAIT)
    policy = load_policy(config, lambda _: None)
    keep_to_share(policy.device, config.model.memory_share)
    again = recomputes(config, policy.model.num_parameters())
    tokens = begin.tokens_per_pass
    return ShardedLearner(policy, config.solver, activation_checkpointing=again, tokens_per_pass=tokens)


if __name__ == "__main__":
    main()
