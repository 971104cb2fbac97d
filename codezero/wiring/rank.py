"""A worker of a node with several ranks: loads the model that rank 0 loads, carries out its commands, ends with it."""

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from msgspec.msgpack import decode

POLL_SECONDS = 0.5


def main() -> None:
    """Ends when rank 0 does, however that ends. Prints nothing: rank 0 reports why a worker ended."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    parent, rank, size, folder, backend = sys.argv[1:]
    threading.Thread(target=_end_with, args=(int(parent),), daemon=True).start()
    from torch.distributed.elastic.multiprocessing.errors import record

    record(serve)(int(rank), int(size), Path(folder), backend)


def serve(rank: int, size: int, folder: Path, backend: str) -> None:
    """The arguments are those of `RankGroup`. The first command brings the config. Raises RankError at rank 0's end."""
    from codezero.config import NodeConfig
    from codezero.models.device import keep_to_share
    from codezero.models.distributed import SAMPLE, ParallelDecoder, RankGroup, SampleRequest
    from codezero.models.generation import OwnLoop
    from codezero.solver.batch import Batch
    from codezero.solver.learner import LEARN, LOAD
    from codezero.wiring.models import build_learner, load_policy

    group = RankGroup(rank, size, folder, backend)
    config = decode(group.receive()[1], type=NodeConfig)
    policy = load_policy(config, lambda _: None)
    keep_to_share(policy.device, config.model.memory_share)
    decoder = ParallelDecoder(OwnLoop(policy), group)
    learner = build_learner(config, policy, group=group)

    def learn(update: Callable[[], object]) -> int:
        update()
        return learner.fingerprint()

    group.reply(learner.fingerprint())
    group.serve(
        {
            LEARN: lambda body: learn(lambda: learner.update(decode(body, type=Batch))),
            LOAD: lambda body: learn(lambda: learner.load(Path(decode(body, type=str)))),
            SAMPLE: lambda body: decoder.draw_part(decode(body, type=SampleRequest)),
        }
    )


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(POLL_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    main()
