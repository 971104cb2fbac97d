"""Gossip nodes at home and in the open, and how long they take to hear each other, for tests and the benchmark."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from builders.internet import Internet, Node, Router
from builders.swarm import eventually

PORT = 38331
OPEN = {"host": "0.0.0.0", "port": PORT}
PATIENCE = 300.0  # Seconds for what has to happen; a busy machine takes one or two minutes to start a node
DELAY, LONGEST = 0.1, 30.0  # Seconds each way of a proxy, and the most that its connections last


def open_node(net: Internet, folder: Path, name: str = "F", **settings: object) -> tuple[Node, list[str]]:
    """And the way to it."""
    address = net.open(name)
    node = net.node(name, folder, **OPEN, **settings)
    addresses = eventually(lambda: node.state.get("addresses", []), PATIENCE)
    return node, [way for way in addresses if address in way]


def two_homes(net: Internet, folder: Path, way: list[str], kind: Router = "restricted") -> list[Node]:
    for name in ("N1", "N2"):
        net.home(f"R{name}", name, kind=kind)
    return [net.node(name, folder, **OPEN, bootstrap=way) for name in ("N1", "N2")]


def behind_proxies(net: Internet, folder: Path, way: list[str]) -> tuple[list[Node], list[Node]]:
    """Two members that get out through a proxy each and no other way, and the proxies."""
    homes, proxies = list[Node](), list[Node]()
    for name in ("N1", "N2"):
        net.home(f"R{name}", name)
        outside = way[0].split("/")[2]
        inside, proxy = net.proxy(f"R{name}", outside, PORT, DELAY, LONGEST)
        eventually(lambda proxy=proxy: bool(proxy.state), PATIENCE)
        proxies.append(proxy)
        homes.append(net.node(name, folder, **OPEN, bootstrap=[way[0].replace(outside, inside)]))
    return homes, proxies


def received(reader: Node, author: Node) -> int:
    """Groups."""
    return reader.state.get("received", {}).get(author.state.get("me", ""), 0)


def within(seconds: float, look: Callable[[], bool]) -> float:
    """Seconds until it is so; AssertionError when it is not in time."""
    start = time.monotonic()
    eventually(look, seconds)
    return time.monotonic() - start


def all_hear(nodes: Sequence[Node], seconds: float) -> float:
    """Seconds until each hears something new of each other one; AssertionError after `seconds`."""
    pairs = [(reader, author) for reader in nodes for author in nodes if reader is not author]
    before = [received(*pair) for pair in pairs]
    return within(seconds, lambda: all(received(*pair) > was + 4 for pair, was in zip(pairs, before, strict=True)))
