"""Eight nodes, two hundred rounds, and every minute one of them dies: who lives hears who lives, and memory stays flat.

Real processes on loopback. Does not show: more nodes, or hosts that differ; `test_simulation.py` has a thousand nodes.
"""

import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
from builders.driven_node import Node
from builders.swarm import free_port

from codezero.swarm.identity import Identity

NAMES = ("alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi")
ROUNDS = 200
ROUND_SECONDS = 3.0
DEATHS_EVERY, DEAD_ROUNDS, FRESH_ROUNDS = 20, 4, 4
"""Rounds between two deaths, until the dead comes back, and until it counts as living again."""
WARM_ROUNDS = 40
"""Until memory is compared."""

Pair = tuple[str, int]
"""A node and a round."""


@dataclass
class Crowd:
    """The nodes, what each told in which round, and what each heard."""

    folder: Path
    living: dict[str, Node] = field(default_factory=dict[str, Node])
    since: dict[str, int] = field(default_factory=dict[str, int])
    """By node: the round from which on it counts."""
    published: set[Pair] = field(default_factory=set[Pair])
    heard: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    memory: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    """By process: (round, resident bytes)."""
    bootstrap: str = ""

    def start(self, name: str, round_number: int, port: int = 0) -> None:
        bootstrap = "" if name == NAMES[0] else self.bootstrap
        self.living[name] = Node(self.folder, name, "127.0.0.1", port, bootstrap, [])
        self.since[name] = round_number + FRESH_ROUNDS
        self.heard[name] = set()

    def play(self, round_number: int) -> None:
        for name, node in self.living.items():
            node.tell("publish", f"{name} {round_number}", round_number=round_number)
            self.published.add((name, round_number))
        time.sleep(ROUND_SECONDS)
        for name, node in self.living.items():
            self.heard[name].update(node.tell("news", round_number=round_number))

    def weigh(self, round_number: int) -> None:
        for name, node in self.living.items():
            for kind, process in (("network", node.network()), ("daemon", node.daemon())):
                if process is not None:
                    self.memory[f"{name} {kind}"].append((round_number, process.memory_info().rss))


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Crowd]:
    made, port = Crowd(tmp_path), free_port()
    peer = Identity.load_or_create(tmp_path / f"{NAMES[0]}.pem").peer_id
    made.bootstrap = f"/ip4/127.0.0.1/tcp/{port}/p2p/{peer}"
    try:
        for name in NAMES:
            made.start(name, 0, port if name == NAMES[0] else 0)
        for node in made.living.values():
            assert node.tell("ready")
        yield made
    finally:
        for node in made.living.values():
            node.close()


def delivered(crowd: Crowd, round_number: int) -> Iterator[bool]:
    """Of each pair of nodes that lived in this round and the next: was it heard?"""
    there = [name for name in crowd.living if crowd.since[name] <= round_number]
    for author in there:
        for reader in there:
            if author != reader and (author, round_number) in crowd.published:
                yield f"{author} {round_number}" in crowd.heard[reader]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_living_hear_the_living_while_one_after_the_other_dies(crowd: Crowd) -> None:
    random, dead, heard = Random(0), dict[str, int](), list[bool]()
    for round_number in range(1, ROUNDS + 1):
        crowd.play(round_number)
        heard += delivered(crowd, round_number - 1)
        if round_number % 10 == 0:
            crowd.weigh(round_number)
        for name in [name for name, back in dead.items() if back <= round_number]:
            crowd.start(name, round_number)
            del dead[name]
        if round_number % DEATHS_EVERY == 0:
            victim = random.choice(NAMES[2:])  # two live all the time, so that their memory can be looked at
            crowd.living.pop(victim).kill()
            dead[victim] = round_number + DEAD_ROUNDS
    assert len(heard) > 7 * 6 * ROUNDS / 2
    assert sum(heard) / len(heard) >= 0.99, f"{sum(heard)} of {len(heard)}"
    for name in (f"{node} {kind}" for node in NAMES[:2] for kind in ("network", "daemon")):
        sizes = [(at, size) for at, size in crowd.memory[name] if at >= WARM_ROUNDS]
        early = statistics.median(size for at, size in sizes if at <= ROUNDS // 2)
        late = statistics.median(size for at, size in sizes if at > ROUNDS // 2)
        print(f"{name}: {early / 1e6:.0f} MB, then {late / 1e6:.0f} MB")
        assert late < 1.15 * early, f"{name}: {early} bytes, then {late}"
    print(f"delivered {sum(heard)} of {len(heard)}")
