"""A node in a process of its own, so that it can be killed: does what it is told, line by line."""

import contextlib
import json
import sys
from pathlib import Path

from builders.swarm import SWARM, TOKENIZER, group, scored

from codezero.config import SwarmConfig
from codezero.environments.code import CodeEnvironment
from codezero.errors import SwarmError
from codezero.swarm.hivemind_swarm import HivemindSwarm
from codezero.swarm.identity import Identity


def main(folder: Path, name: str, host: str, port: str, *bootstrap: str) -> None:
    path = folder / f"{name}.pem"
    Identity.load_or_create(path)
    config = SwarmConfig(
        kind="hivemind", name=SWARM, identity=str(path), host=host, port=int(port), bootstrap=list(bootstrap),
        poll_seconds=0.3,
    )  # fmt: skip
    swarm = HivemindSwarm(config, folder / name, CodeEnvironment(), TOKENIZER)
    swarm.start()
    heard: list[str] = []
    told = 0
    for line in sys.stdin:
        word, round_number, question = json.loads(line)
        answer: object = None
        with contextlib.suppress(SwarmError):  # told once of each death of the network process
            heard += [one.problem.question for one in swarm.gather(round_number)]
            if word == "publish":
                swarm.publish([scored(group(swarm.peer_id, question))], round_number)
            elif word == "heard":
                answer = question in heard
            elif word == "news":
                answer, told = heard[told:], len(heard)
            elif word == "ready":
                answer = swarm.addresses
            elif word == "process":
                answer = swarm._network.pid
            elif word == "neighbours":
                answer = swarm.metrics()["swarm/neighbours"]
        print(json.dumps(answer), flush=True)
    swarm.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
