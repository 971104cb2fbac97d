"""A node that only gossips, as a program: publishes small groups, counts whose arrive, and prints that every second.

Arguments: a folder, and settings of SwarmConfig as JSON. It ends with its input."""

import json
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from builders.swarm import group, make_swarm, problem, scored  # noqa: E402

from codezero.config import SwarmConfig  # noqa: E402
from codezero.errors import SwarmError  # noqa: E402
from codezero.swarm.network_status import read_status  # noqa: E402

ROUND, PUBLISH_SECONDS, GROUPS = 5, 3.0, 4


def main(folder: Path, settings: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    swarm = make_swarm(folder, "network", poll_seconds=SwarmConfig().poll_seconds, **settings)
    swarm.network.start()
    me = swarm.peer_id
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    received, start, published = Counter[str](), time.monotonic(), 0
    while not ended.wait(1.0):
        try:
            if time.monotonic() >= start + published * PUBLISH_SECONDS:
                published += 1
                some = [group(me, text=f"def double(x): return 2 * x  # {published}") for _ in range(GROUPS)]
                some = [replace(one, problem=problem(f"{me} {start} {published} {n}")) for n, one in enumerate(some)]
                swarm.publish([scored(one) for one in some], ROUND)
            received.update(one.peer_id for one in swarm.gather(ROUND))
            addresses = swarm.addresses
            status = read_status(folder / "network")
        except SwarmError as error:
            print(error, file=sys.stderr)
            continue
        state = {
            "me": me, "addresses": addresses, "received": dict(received), "published": published * GROUPS,
            "reachable": status.reachable, "reachability": status.reachability, "neighbours": status.neighbours,
            "ways": {line.peer: getattr(line, "way", "") for line in status.peers},
            "counts": {name: value for name, value in swarm.metrics().items() if value},
            "seconds": round(time.monotonic() - start, 1),
        }  # fmt: skip
        print(json.dumps(state), flush=True)
    swarm.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
