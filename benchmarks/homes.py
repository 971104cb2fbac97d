"""Who learns from whom where members sit behind routers, and what it costs the open member that relays.

Nodes that only gossip announce 4 groups every 3 seconds: F with an open port, and N1 and N2, in network namespaces
that `tests/builders/internet.py` makes. `open`: all three can be dialled. `restricted`: each home behind a router that
keeps source ports and lets nothing in. `symmetric`: a random source port for each connection, no UDP, forgets what is
idle for a minute. `one router`: both homes behind the same. `proxy`: homes that get out by a TCP proxy alone, which
adds 100 ms each way and lets no connection last longer than 30 s. For each: seconds from the last start until all three
hear each other, and then, for --seconds, the groups of each other that N1 and N2 use, those of F, and the bytes that F
takes in and sends out as their relay for each byte that comes to them over it. `share_of_open`: N1's and N2's groups of
each other against those of `open`. `again`: seconds until all three hear each other anew after a change, behind routers
of the first kind: a router's other outside address, a minute without a link, a process stopped for 90 s, the same
identity in another home. Needs root, `ip` and `iptables`. Prints JSON.

    codezero bench homes --json
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

sys.path.insert(1, str(Path(__file__).parents[1] / "tests"))

from builders.homes import OPEN, PATIENCE, all_hear, behind_proxies, open_node, received, two_homes
from builders.internet import Internet, Node, missing
from builders.swarm import eventually

ARRANGEMENTS = ("open", "restricted", "symmetric", "one router", "proxy")


def arranged(net: Internet, folder: Path, name: str) -> list[Node]:
    """F, N1 and N2."""
    f, way = open_node(net, folder)
    if name == "open":
        return [f, *(open_node(net, folder, home, bootstrap=way)[0] for home in ("N1", "N2"))]
    if name == "one router":
        net.home("R1", "N1", "N2")
        return [f, *(net.node(home, folder, **OPEN, bootstrap=way) for home in ("N1", "N2"))]
    if name == "proxy":
        return [f, *behind_proxies(net, folder, way)[0]]
    return [f, *two_homes(net, folder, way, "symmetric" if name == "symmetric" else "restricted")]


def counted(nodes: Sequence[Node], name: str) -> int:
    return sum(int(node.state["counts"].get(f"swarm/{name}", 0)) for node in nodes)


def started(nodes: Sequence[Node]) -> None:
    eventually(lambda: all(node.state for node in nodes), PATIENCE)


def compared(name: str, seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, closing(Internet()) as net:
        f, *homes = nodes = arranged(net, Path(folder), name)
        started(nodes)
        first = all_hear(nodes, PATIENCE)
        pairs = [*zip(homes, reversed(homes), strict=True), *((home, f) for home in homes)]
        before = [received(*pair) for pair in pairs]
        time.sleep(seconds)
        groups = [received(*pair) - start for pair, start in zip(pairs, before, strict=True)]
        relayed = counted([f], "bytes_relayed")
        taken = counted(homes, "bytes_out") - counted([f], "bytes_in")  # what F takes for itself is its own
        return {
            "seconds_to_all": round(first, 1),
            "groups_of_each_other": groups[:2],
            "groups_of_the_open": groups[2:],
            "ways": [
                "relayed" if home.state["ways"].get(other.state["me"]) == f.state["me"] else "direct"
                for home, other in pairs[:2]
            ],
            "bytes_relayed": relayed,
            "bytes_at_relay_per_delivered": round((taken + relayed) / relayed, 2) if relayed else None,
        }


def again() -> dict[str, float]:
    """Seconds after each change."""
    with tempfile.TemporaryDirectory() as name, closing(Internet()) as net:
        folder = Path(name)
        f, way = open_node(net, folder)
        address = net.home("R1", "N1")
        net.home("R2", "N2")
        net.home("R3", "N3")
        first, second = (net.node(home, folder, **OPEN, bootstrap=way) for home in ("N1", "N2"))
        nodes, seconds = [f, first, second], dict[str, float]()
        all_hear(nodes, PATIENCE)
        net.renumber("R1", address, "45.50.77.1")
        seconds["another outside address"] = all_hear(nodes, PATIENCE)
        net.link("N1", "down")
        time.sleep(60)
        net.link("N1", "up")
        seconds["a minute without a link"] = all_hear(nodes, PATIENCE)
        first.sleep(90)
        seconds["stopped for 90 s"] = all_hear(nodes, PATIENCE)
        first.kill()
        (folder / "N1").rename(folder / "N3")
        moved = net.node("N3", folder, **OPEN, bootstrap=way)
        started([moved])
        seconds["in another home"] = all_hear([f, moved, second], PATIENCE)
        return {change: round(after, 1) for change, after in seconds.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="that groups are counted for (default 60)")
    parser.add_argument("--json", action="store_true", help="one JSON object on one line")
    options = parser.parse_args()
    if why := missing():
        raise SystemExit(f"homes: {why}")
    rows: dict[str, dict[str, Any]] = {}
    for name in ARRANGEMENTS:
        rows[name] = compared(name, options.seconds)
        print(f"homes: {name}: {rows[name]}", file=sys.stderr, flush=True)
    reference = sum(rows["open"]["groups_of_each_other"])
    for row in rows.values():
        row["share_of_open"] = round(sum(row["groups_of_each_other"]) / reference, 3)
    result = {"arrangements": rows, "again": again(), "seconds": options.seconds}
    print(json.dumps(result, indent=None if options.json else 2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
