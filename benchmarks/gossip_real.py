"""Real peer-to-peer daemons on loopback: our gossip, and everybody's values under one key of the DHT.

All nodes live in one process with a daemon each. Bytes are those of the loopback interface: every packet between two
nodes once, headers and acknowledgements included. `gossip.py` runs this file as a program, in a network namespace of
its own where the kernel allows it, so that nothing else is counted.

    unshare -rn sh -c 'ip link set lo up; exec python benchmarks/gossip_real.py ours 8 --body 100000'
"""

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

ROUND_SECONDS = 90.0  # Most that a round may take; who has not heard enough by then counts with this time
STARTS_AT_ONCE = 4


@dataclass(frozen=True)
class Round:
    """What one round cost."""

    size: int  # Bytes on the loopback interface, of all nodes
    seconds: list[float]  # By node, until it had what it wanted
    heard: int  # Bodies, of all nodes
    cpu: float  # Seconds, of this process and the daemons


def loopback_bytes() -> int:
    """Received on the loopback interface of this network namespace; /sys would show that of another one."""
    lines = Path("/proc/self/net/dev").read_text().splitlines()
    return next(int(line.split(":")[1].split()[0]) for line in lines if line.strip().startswith("lo:"))


def cpu_seconds() -> float:
    import psutil

    me, total = psutil.Process(), 0.0
    for process in [me, *me.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total


async def measured(turns: Sequence[Callable[[], Awaitable[int]]]) -> Round:
    """Every node's part in a round, all at once. A part returns the number of bodies heard."""
    size, cpu, began = loopback_bytes(), cpu_seconds(), time.monotonic()

    async def timed(turn: Callable[[], Awaitable[int]]) -> tuple[int, float]:
        heard = 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ROUND_SECONDS):
                heard = await turn()
        return heard, time.monotonic() - began

    done = await asyncio.gather(*(timed(turn) for turn in turns))
    return Round(
        loopback_bytes() - size,
        [seconds for _, seconds in done],
        sum(heard for heard, _ in done),
        cpu_seconds() - cpu,
    )


async def in_batches(count: int, start: Callable[[int], Awaitable[Any]]) -> list[Any]:
    started: list[Any] = [await start(0)]
    for at in range(1, count, STARTS_AT_ONCE):
        started += await asyncio.gather(*(start(number) for number in range(at, min(count, at + STARTS_AT_ONCE))))
    return started


# ---------------------------------------------------------------- ours


async def ours(options: argparse.Namespace, folder: Path) -> list[Round]:
    from simulation.swarm import SWARM, TOKENIZER, attempts

    from codezero.config import SwarmConfig
    from codezero.swarm.exchange import Exchange
    from codezero.swarm.hivemind_dht import HivemindTransport, create_node, start_daemon
    from codezero.swarm.identity import Identity
    from codezero.swarm.network_monitor import PeerStore
    from codezero.swarm.records import PeerRecordValidator
    from codezero.swarm.supervisor import Publish, ReceivedBody
    from codezero.swarm.trust import PeerTrust
    from codezero.swarm.wire import GROUPS, encode_body

    first: list[str] = []

    class Node:
        def __init__(self, number: int) -> None:
            self.number, self.random = number, Random(number)
            self.heard: list[ReceivedBody] = []

        async def start(self) -> "Node":
            path = folder / f"{self.number}.pem"
            self.identity = Identity.load_or_create(path)
            self.p2p = await start_daemon(SwarmConfig(identity=str(path)))
            validator = PeerRecordValidator(self.identity, SWARM)
            node = await create_node(self.p2p, validator)
            self.exchange = Exchange(
                HivemindTransport(node, validator),
                validator,
                PeerTrust(validator.member),
                pull_groups=options.want,
                on_body=self.heard.append,
                random=self.random,
            )
            await self.exchange.start()
            if not first:
                first.extend(str(address) for address in await self.p2p.get_visible_maddrs())
            self.neighbourhood = PeerStore(node, first[:1])
            await self.neighbourhood.rejoin()
            return self

        async def play(self, number: int) -> int:
            group = attempts(self.identity.peer_id, number, options.body, self.random)
            body = encode_body([group], peer=self.identity.peer_id, round_number=number)
            self.exchange.open_round(number)
            self.exchange.publish(Publish(GROUPS, number, body, [0.5], TOKENIZER))
            wanted, before = min(options.want, options.nodes - 1), len(self.heard)
            while True:
                await self.exchange.poll()
                heard = len(self.heard) - before
                if heard >= wanted:
                    return heard
                await asyncio.sleep(self.exchange.listener.pause(options.poll))

    nodes: list[Node] = await in_batches(options.nodes, lambda number: Node(number).start())
    await asyncio.gather(*(node.neighbourhood.rejoin() for node in nodes))
    played: list[Round] = []
    for number in range(options.rounds + options.warm):
        played.append(await measured([lambda node=node: node.play(number) for node in nodes]))  # noqa: B023
        progress(options, number, played[-1])
    await asyncio.gather(*(node.p2p.shutdown() for node in nodes))
    return played[options.warm :]


# ---------------------------------------------------------------- one key


async def one_key(options: argparse.Namespace, _folder: Path) -> list[Round]:
    """A round's values all under the round's key, each under its author's name, and everybody reads that key."""
    from hivemind.dht.node import DHTNode
    from hivemind.utils.timed_storage import get_dht_time

    first: list[str] = []

    async def start(_number: int) -> Any:
        node = await DHTNode.create(host_maddrs=["/ip4/127.0.0.1/tcp/0"], initial_peers=list(first[:1]) or None)
        if not first:
            first.extend(str(address) for address in await node.get_visible_maddrs())
        return node

    async def play(node: Any, number: int) -> int:
        name, value = node.peer_id.to_base58(), os.urandom(options.body)
        await node.store(str(number), value, get_dht_time() + 600, subkey=name, beam_size=10)
        wanted = min(options.want, options.nodes - 1)
        while True:
            found = await node.get(str(number), latest=True, beam_size=10)
            heard = len(found.value.keys() - {name}) if found and isinstance(found.value, dict) else 0
            if heard >= wanted:
                return heard
            await asyncio.sleep(options.poll)

    nodes = await in_batches(options.nodes, start)
    played: list[Round] = []
    for number in range(options.rounds + options.warm):
        played.append(await measured([lambda node=node: play(node, number) for node in nodes]))  # noqa: B023
        progress(options, number, played[-1])
    await asyncio.gather(*(node.shutdown() for node in nodes))
    return played[options.warm :]


def progress(options: argparse.Namespace, number: int, done: Round) -> None:
    mean = sum(done.seconds) / len(done.seconds)
    print(
        f"{options.way} N={options.nodes} round {number}: {done.size / options.nodes / 1e3:.0f} kB a node, "
        f"{mean:.1f} s, CPU {done.cpu:.1f} s",
        file=sys.stderr,
        flush=True,
    )


async def print_rounds(options: argparse.Namespace, folder: Path) -> None:
    rounds = await {"ours": ours, "one-key": one_key}[options.way](options, folder)
    print(json.dumps([vars(one) for one in rounds]), flush=True)
    shutil.rmtree(folder)
    os._exit(0)  # hivemind leaves threads, tasks and pipes that complain when their loop is closed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("way", choices=["ours", "one-key"])
    parser.add_argument("nodes", type=int)
    parser.add_argument("--body", type=int, default=100_000, help="bytes of a node's rollouts in a round")
    parser.add_argument("--want", type=int, default=4, help="other nodes' rollouts that a node wants in a round")
    parser.add_argument("--poll", type=float, default=1.0, help="seconds between two looks")
    parser.add_argument("--rounds", type=int, default=2, help="measured")
    parser.add_argument("--warm", type=int, default=1, help="rounds before that")
    options = parser.parse_args()
    multiprocessing.set_start_method("fork", force=True)
    os.environ.update(HIVEMIND_LOGLEVEL="ERROR", OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")
    warnings.simplefilter("ignore")  # of hivemind's own imports
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(print_rounds(options, Path(folder)))


if __name__ == "__main__":
    main()
