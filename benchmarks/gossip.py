"""What a round of gossip costs a node, and how that grows with the swarm: ours, and everybody's values under one key.

Every node publishes rollouts of --body bytes in each round and wants those of --want others. Ours: signed headers in
places of the DHT, bodies pulled from their authors. One key: every node stores its whole value under the round's key of
the DHT and reads that key until it has enough, which is how the swarm that this one is modelled on was designed; this
is our own program of that design.

Up to 32 nodes are real: daemons on loopback (`gossip_real.py`), all packets of the loopback interface counted. More are
simulated in virtual time (`simulation/`): the same exchange over a DHT whose message sizes were measured on real
daemons, with 50 ms from node to node; the simulation at 32 stands beside the real one. Not simulated: the daemons' own
talk, and congestion.

    codezero bench gossip --json --picture docs/gossip.svg
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import picture

REAL = Path(__file__).with_name("gossip_real.py")
OWN_NAMESPACE = ["unshare", "-rn", "sh", "-c", 'ip link set lo up; exec "$@"', "sh"]
"""A loopback interface that nobody else uses."""
GROWTH = 3  # By which a simulated swarm grows in a round, from 32 nodes on
SETTLING = 8  # Rounds between the end of growth and the first that counts


SHOWN = (
    ("bytes_per_node", "real", "headers and pulls, real"),
    ("bytes_per_node", "simulated", "headers and pulls, simulated"),
    ("one_key_bytes_per_node", "real", "everything under one key, real"),
)  # Figure, kind of its rows and name of each curve of the picture


@dataclass(frozen=True)
class Row:
    """Means over nodes and rounds."""

    nodes: int
    kind: str  # real or simulated
    bytes_per_node: float  # Sent, of one round
    one_key_bytes_per_node: float | None  # The same with everything under one key; None where that was not run
    bytes_per_useful_byte: float  # Sent for each byte of the rollouts wanted
    seconds_to_j: float  # From the beginning of a round until a node has what it wants
    cpu_seconds: float  # Of one node and round, its daemon included; of a simulated one, what simulating it took


def say(text: str) -> None:
    print(f"gossip: {text}", file=sys.stderr, flush=True)


# ------------------------------------------------------------------ real


def namespace() -> list[str]:
    """How to run a program on a loopback interface of its own; empty where the system does not allow it."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return []
    allowed = subprocess.run([*OWN_NAMESPACE, "true"], stderr=subprocess.DEVNULL).returncode == 0
    return OWN_NAMESPACE if allowed else []


def real(way: str, nodes: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """The rounds as `gossip_real.py` prints them; none when it did not end well."""
    say(f"{nodes} real nodes, {way}")
    told = ["--body", options.body, "--want", options.want, "--poll", options.poll, "--rounds", options.rounds]
    command = [*namespace(), sys.executable, str(REAL), way, str(nodes), *map(str, told)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else []


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def real_row(nodes: int, options: argparse.Namespace) -> Row:
    ours, one_key = real("ours", nodes, options), real("one-key", nodes, options)
    if not ours:
        raise SystemExit(f"the run with {nodes} real nodes failed; its error stands above")
    size = mean([one["size"] for one in ours]) / nodes
    return Row(
        nodes=nodes,
        kind="real",
        bytes_per_node=round(size),
        one_key_bytes_per_node=round(mean([one["size"] for one in one_key]) / nodes) if one_key else None,
        bytes_per_useful_byte=round(size / useful(nodes, options), 3),
        seconds_to_j=round(mean([seconds for one in ours for seconds in one["seconds"]]), 3),
        cpu_seconds=round(mean([one["cpu"] for one in ours]) / nodes, 4),
    )


def useful(nodes: int, options: argparse.Namespace) -> int:
    """Bytes of the rollouts that a node wants in a round."""
    return min(options.want, nodes - 1) * options.body


# ------------------------------------------------------------------ simulated


def simulated_row(nodes: int, options: argparse.Namespace) -> Row:
    from simulation.swarm import Settings, Swarm

    say(f"{nodes} simulated nodes")
    small = Settings(
        nodes=min(nodes, 32), poll_seconds=options.poll, pull_groups=options.want, slow=True, body_bytes=500
    )
    swarm = Swarm(options.seed, small)
    sent, cpu = 0, 0.0

    async def scenario() -> None:
        nonlocal sent, cpu
        swarm.start()
        await swarm.rounds(1)
        while len(swarm.nodes) < nodes:
            for _ in range(min(nodes, GROWTH * len(swarm.nodes)) - len(swarm.nodes)):
                swarm.add().start()
            await swarm.rounds(1)
            say(f"{len(swarm.nodes)} nodes take part")
        await swarm.rounds(SETTLING)
        swarm.settings = replace(small, body_bytes=options.body)
        sent, cpu = swarm.network.total_bytes, time.process_time()
        await swarm.rounds(options.rounds)
        sent, cpu = swarm.network.total_bytes - sent, time.process_time() - cpu

    swarm.simulate(scenario)
    longest = small.round_seconds
    heard: dict[tuple[str, int], list[float]] = {
        (node.peer, swarm.round - ago): [] for node in swarm.nodes for ago in range(options.rounds)
    }
    for one in swarm.deliveries:
        if (one.reader, one.heard_in) in heard:
            late = one.seconds - (one.heard_in - one.round) * longest
            heard[one.reader, one.heard_in].append(late)
    wanted = min(options.want, nodes - 1)
    seconds = [sorted(times)[wanted - 1] if len(times) >= wanted else longest for times in heard.values()]
    size = sent / nodes / options.rounds
    say(f"{nodes} simulated nodes: {size / 1e3:.0f} kB a node and round, {mean(seconds):.1f} s, CPU {cpu:.0f} s")
    return Row(
        nodes=nodes,
        kind="simulated",
        bytes_per_node=round(size),
        one_key_bytes_per_node=None,
        bytes_per_useful_byte=round(size / useful(nodes, options), 3),
        seconds_to_j=round(mean(seconds), 3),
        cpu_seconds=round(cpu / nodes / options.rounds, 4),
    )


# ------------------------------------------------------------------


def summary(rows: Sequence[Row], options: argparse.Namespace) -> dict[str, Any]:
    sent = {(row.kind, row.nodes): row.bytes_per_node for row in rows}
    one_key = {row.nodes: row.one_key_bytes_per_node for row in rows if row.kind == "real"}

    def ratio(above: float | None, below: float | None) -> float | None:
        return round(above / below, 3) if above and below else None

    return {
        "rows": [asdict(row) for row in rows],
        "ratio_1000_over_32": ratio(sent.get(("simulated", 1000)), sent.get(("simulated", 32))),
        "ratio_one_key_over_ours_at_32": ratio(one_key.get(32), sent.get(("real", 32))),
        "ratio_simulated_over_real_at_32": ratio(sent.get(("simulated", 32)), sent.get(("real", 32))),
        "body_bytes": options.body,
        "wanted": options.want,
        "poll_seconds": options.poll,
        "counted_on": "a loopback interface of its own" if namespace() else "the loopback interface of all programs",
    }


def draw(result: dict[str, Any], path: Path) -> None:
    """Bytes per node and round against the number of nodes."""
    figure, [[axes]] = picture.panels(1, 1)
    for place, (key, kind, label) in enumerate(SHOWN):
        points = sorted([row["nodes"], row[key]] for row in result["rows"] if row["kind"] == kind and row[key])
        if points:
            picture.line(axes, points, picture.COLOURS[place], label, marker="so"[kind == "real"])
    axes.set(xscale="log", yscale="log", xlabel="nodes", ylabel="bytes per node and round")
    axes.set_title("What a round of gossip costs a node")
    axes.legend()
    picture.save(figure, path)


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one line instead of many")
    picture.add_options(parser)
    parser.add_argument("--real", type=numbers, default=[8, 16, 32], metavar="N,N", help="real nodes; empty: none")
    parser.add_argument("--simulated", type=numbers, default=[32, 100, 300, 1000], metavar="N,N")
    parser.add_argument("--body", type=int, default=100_000, help="bytes of a node's rollouts in a round")
    parser.add_argument("--want", type=int, default=4, help="other nodes' rollouts that a node wants in a round")
    parser.add_argument("--poll", type=float, default=1.0, help="seconds between two looks")
    parser.add_argument("--rounds", type=int, default=3, help="measured at each size")
    parser.add_argument("--seed", type=int, default=0, help="of the simulation")
    options = parser.parse_args(argv)
    if picture.drawn(options, draw):
        return 0
    rows = [real_row(nodes, options) for nodes in options.real]
    rows += [simulated_row(nodes, options) for nodes in options.simulated]
    result = summary(rows, options)
    print(json.dumps(result, indent=None if options.json else 1))
    if options.picture:
        draw(result, options.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
