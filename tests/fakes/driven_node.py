"""A node in a process of its own, so that it can be killed: does what it is told, line by line."""

import contextlib
import json
import sys
from pathlib import Path

from builders.swarm import group, make_swarm, scored

from codezero.errors import SwarmError

ROUND = 5


def main(folder: Path, name: str, host: str, port: str, *bootstrap: str) -> None:
    swarm = make_swarm(folder, name, host=host, port=int(port), bootstrap=bootstrap, poll_seconds=0.3)
    swarm.network.start()
    heard: list[str] = []
    for line in sys.stdin:
        word, question = json.loads(line)
        answer: object = None
        with contextlib.suppress(SwarmError):  # told once of each death of the network process
            heard += [one.problem.question for one in swarm.gather(ROUND)]
            if word == "publish":
                swarm.publish([scored(group(swarm.peer_id, question))], ROUND)
            elif word == "heard":
                answer = question in heard
            elif word == "ready":
                answer = swarm.addresses
            elif word == "process":
                answer = swarm.network.pid
        print(json.dumps(answer), flush=True)
    swarm.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
