"""What the gossip promises, kept over hours of virtual time: partitions, churn, liars, firewalls, and a growing swarm.

The nodes run the real exchange; network and DHT are simulated, with latency and loss. Does not show: the daemon."""

import asyncio
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from typing import Any

import pytest
from simulation.attackers import KINDS
from simulation.network import Conditions
from simulation.swarm import Delivery, Settings, SimulatedNode, Swarm

from codezero.swarm.records import shard_of

DELIVERED = 0.99
POLL_SECONDS = 12.0  # Longer than a node's default, so that a round takes little of a test's time


def make(nodes: int, seed: int = 1, **change: Any) -> Swarm:
    return Swarm(seed, Settings(**{"nodes": nodes, "poll_seconds": POLL_SECONDS, "pull_groups": 32} | change))


def play(swarm: Swarm, scenario: Callable[[], Coroutine[Any, Any, None]] | int) -> Swarm:
    """Start all nodes, then `scenario`, or so many rounds."""

    async def all_of_it() -> None:
        swarm.start()
        await (swarm.rounds(scenario) if isinstance(scenario, int) else scenario())

    swarm.simulate(all_of_it)
    return swarm


def total(nodes: Iterable[SimulatedNode]) -> Counter[str]:
    return sum((node.counts for node in nodes), Counter[str]())


def delivered(swarm: Swarm) -> float:
    """Share of the pulls begun that ended with a body."""
    counts = total(swarm.nodes)
    heard = len(swarm.deliveries)
    failed = counts["pulls_in_vain"] + sum(n for name, n in counts.items() if name in ("refused_gone", "refused_size"))
    return heard / (heard + failed)


def pairs(deliveries: Iterable[Delivery], round_number: int) -> set[tuple[str, str]]:
    """(reader, author) of a round."""
    return {(one.reader, one.author) for one in deliveries if one.round == round_number}


TRACE = "from unit.swarm.test_simulation import make, play; print(play(make(8, seed={}), 2).network.trace)"


def test_the_same_seed_gives_the_same_trace_in_another_process() -> None:
    traces = {
        (seed, hash_seed): subprocess.run(
            [sys.executable, "-c", TRACE.format(seed)],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed, hash_seed in ((1, "1"), (1, "2"), (2, "1"))
    }
    assert traces[1, "1"] == traces[1, "2"] != traces[2, "1"]


@pytest.mark.slow
def test_everybody_hears_everybody_it_samples() -> None:
    swarm = play(make(64, conditions=Conditions(loss=0.01)), 3)
    assert delivered(swarm) >= DELIVERED
    assert all(one.genuine for one in swarm.deliveries)
    everybody = {node.peer for node in swarm.nodes}
    for number in (0, 1):
        assert {author for _, author in pairs(swarm.deliveries, number)} == everybody
        readers = {reader for reader, _ in pairs(swarm.deliveries, number)}
        assert len(everybody - readers) <= 1  # a message in a hundred is lost: one of a thousand rounds is missed


def test_a_partition_heals_within_two_rounds() -> None:
    swarm = make(12)

    async def divided() -> None:
        await swarm.rounds(1)
        swarm.network.divide({node.dht.id: node.number % 2 for node in swarm.nodes})
        asyncio.get_running_loop().call_later(126.0, swarm.network.divide, {})
        await swarm.rounds(4)

    play(swarm, divided)
    islands = {node.peer: node.number % 2 for node in swarm.nodes}
    during = {(islands[reader], islands[author]) for reader, author in pairs(swarm.deliveries, 1)}
    assert during == {(0, 0), (1, 1)}
    assert len(pairs(swarm.deliveries, 4)) == 12 * 11


def sizes(node: SimulatedNode) -> dict[str, int]:
    """Everything that a node remembers of others or of itself."""
    exchange = node.exchange
    return {
        "bodies": len(exchange.server.bodies), "announced": len(exchange.announcer._announced),
        "pending": len(exchange.announcer._queued), "attempts": len(exchange.listener._attempts),
        "levels": len(exchange.sharding._seen), "peers": len(node.trust._records), "digests": len(node.trust.read),
        "declared": len(node.validator._keys), "places": len(node.dht.storage), "bans": len(node.dht._bans),
        "known": len(node.neighbourhood.known), "neighbours": len(node.dht.table),
        "connections": len(node.dht.port.connections),
    }  # fmt: skip


BOUNDS = {"bodies": 32, "announced": 4, "pending": 4, "attempts": 8192, "levels": 11, "digests": 8192, "declared": 64}


@pytest.mark.long
def test_a_death_a_minute_for_two_hundred_rounds() -> None:
    swarm = make(8, round_seconds=30.0, poll_seconds=10.0, body_bytes=200)
    flat: list[dict[str, int]] = []

    async def churning() -> None:
        for number in range(200):
            if number % 2:
                node = swarm.random.choice(swarm.nodes)
                node.kill()
                asyncio.get_running_loop().call_later(swarm.random.uniform(1, 20), node.start)
            await swarm.rounds(1)
            if number in (99, 199):
                flat.append({key: max(sizes(node)[key] for node in swarm.nodes) for key in sizes(swarm.nodes[0])})

    play(swarm, churning)
    assert delivered(swarm) >= DELIVERED
    half, whole = flat
    for name, size in whole.items():
        if name in BOUNDS:
            assert size <= BOUNDS[name], name
        else:
            assert size <= 1.5 * half[name] + 8, name


def test_who_finds_no_living_bootstrap_joins_later() -> None:
    swarm = make(6)
    early, late = swarm.nodes[3:], swarm.nodes[:3]

    async def later() -> None:
        for node in late:
            swarm.network.unplug(node.dht.port)  # the bootstraps
        for node in early:
            node.start()
        await swarm.rounds(1)
        assert not pairs(swarm.deliveries, 0)
        for node in late:
            node.start()
        await swarm.rounds(2)

    swarm.simulate(later)
    assert len(pairs(swarm.deliveries, 2)) == 6 * 5


@pytest.mark.slow
def test_a_third_of_liars_gets_nothing_believed_and_is_kept_away_from() -> None:
    swarm = make(20)
    honest = [node.peer for node in swarm.nodes]
    liars: dict[str, str] = {}

    async def attacked() -> None:
        for at in range(9):
            kind = list(KINDS)[at % len(KINDS)]
            node = swarm.add()
            liars[node.peer] = kind
            node.start(KINDS[kind](swarm, node))
        await swarm.rounds(6)

    play(swarm, attacked)
    assert set(KINDS) == set(liars.values())
    assert all(one.genuine and one.author not in liars for one in swarm.deliveries)
    assert len({author for _, author in pairs(swarm.deliveries, 5)}) == len(honest)
    counts = total(swarm.nodes[: len(honest)])
    for reason in ("digest", "gone", "schema", "owner"):
        assert counts[f"refused_{reason}"] > 0, reason
    shunned = Counter(
        kind
        for node in swarm.nodes[: len(honest)]
        for peer, kind in liars.items()
        if any(
            one.peer == peer and one.failures and node.trust._records[peer].quarantines for one in node.trust.report()
        )
    )
    for kind in ("liar", "thief", "babbler"):
        assert shunned[kind] > len(honest) / 2, kind
    assert not any(node.trust.refusal(peer) for node in swarm.nodes[: len(honest)] for peer in honest)


def test_who_cannot_be_reached_is_heard_all_the_same() -> None:
    swarm = make(8)
    hidden, other = (swarm.add(reachable=False) for _ in range(2))
    play(swarm, 3)
    heard = {reader for reader, author in pairs(swarm.deliveries, 1) if author == hidden.peer}
    assert len(heard) == 9 and other.peer in heard
    assert any(author != hidden.peer for reader, author in pairs(swarm.deliveries, 1) if reader == hidden.peer)
    assert total(swarm.nodes)["bytes_relayed"] > 0


def crowded(swarm: Swarm, round_number: int) -> int:
    """Most headers that lie in one place of this round."""
    places: Counter[tuple[int, int]] = Counter()
    for node in swarm.nodes:
        for announcement in node.exchange.announcer._announced.values():
            place = announcement.place
            if place.round == round_number and announcement.expiry:
                assert place.shard == shard_of(place.round, node.peer, place.shards)
                places[place.shards, place.shard] += 1
    return max(places.values())


def grow(swarm: Swarm, to: int, per_round: int) -> Callable[[], Coroutine[Any, Any, None]]:
    """As swarms do: not everybody comes at the same moment."""

    async def growing() -> None:
        while len(swarm.nodes) < to:
            for _ in range(min(per_round, to - len(swarm.nodes))):
                swarm.add().start()
            await swarm.rounds(1)

    return growing


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [100, pytest.param(300, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
def test_a_crowd_spreads_out_and_a_newcomer_is_heard(nodes: int) -> None:
    swarm = make(nodes // 2, slow=True, pull_groups=4, poll_seconds=15.0, round_seconds=45.0)
    newcomer: list[SimulatedNode] = []

    async def crowd() -> None:
        await swarm.rounds(1)
        await grow(swarm, nodes, nodes // 4)()
        await swarm.rounds(3)
        assert crowded(swarm, swarm.round) <= 64
        swarm.settings = replace(swarm.settings, poll_seconds=3.0)
        newcomer.append(swarm.add())
        newcomer[0].start()
        await swarm.rounds(2)

    play(swarm, crowd)
    assert newcomer[0].looks <= 30
    assert newcomer[0].heard_of_round.total() >= 8
    # each node takes 4 of all groups in a round, so that one round may pass an author by, though not all its rounds
    its_rounds = (swarm.round - 1, swarm.round)
    assert newcomer[0].peer in {author for number in its_rounds for _, author in pairs(swarm.deliveries, number)}


def bytes_per_node_and_round(nodes: int) -> float:
    """Once the swarm has grown and judged its size; with 100 kB of rollouts a node, and four others' wanted."""
    swarm = make(min(nodes, 32), slow=True, pull_groups=4, poll_seconds=1.0, body_bytes=500)
    before: list[int] = []

    async def settled() -> None:
        await swarm.rounds(1)
        while len(swarm.nodes) < nodes:
            await grow(swarm, min(nodes, 3 * len(swarm.nodes)), 3 * len(swarm.nodes))()
        await swarm.rounds(8)
        swarm.settings = replace(swarm.settings, body_bytes=100_000)
        before.append(swarm.network.total_bytes)
        await swarm.rounds(3)

    play(swarm, settled)
    return (swarm.network.total_bytes - before[0]) / nodes / 3


@pytest.mark.long
def test_what_a_node_sends_does_not_grow_with_the_swarm() -> None:
    assert bytes_per_node_and_round(128) <= 1.5 * bytes_per_node_and_round(32)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_what_a_node_sends_does_not_grow_with_a_thousand() -> None:
    assert bytes_per_node_and_round(1000) <= 1.5 * bytes_per_node_and_round(32)
