"""A network in virtual time: an event loop that jumps to the next event and never waits, and calls between hosts.

An hour passes in seconds. The same asyncio program runs on the loop unchanged: timeouts, semaphores, task groups.
Nothing reads a real clock. Does not support threads, signals, sockets or child processes."""

import asyncio
import heapq
import math
import selectors
import struct
import zlib
from collections.abc import Callable, Coroutine, Mapping
from contextvars import Context
from dataclasses import dataclass, field
from random import Random
from typing import Any, Generic, Protocol, TypeVar, TypeVarTuple

EPOCH = 1_700_000_000.0  # Seconds since 1970 at which a virtual clock starts

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


class StalledError(RuntimeError):
    """Every task waits for something that no timer will bring about."""


class Agenda(selectors.SelectSelector):
    """What takes the place of waiting for files: virtual time passes, and what is due by then happens."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        self.disturbed = False  # Has the loop got something to do since it began to wait?
        self._events: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self._count = 0

    def add(self, when: float, act: Callable[[Result], None], argument: Result) -> None:
        """`act(argument)` at `when`; what was added first happens first."""
        self._count += 1
        heapq.heappush(self._events, (when, self._count, act, argument))

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """No file is ever ready. Raises StalledError when nothing is left to come."""
        if timeout is not None and timeout <= 0:
            return []
        end = math.inf if timeout is None else self.seconds + timeout
        self.disturbed = False
        while self._events and self._events[0][0] <= end:
            when, _, act, argument = heapq.heappop(self._events)
            self.seconds = max(self.seconds, when)
            act(argument)
            if self.disturbed:
                return []
        if end == math.inf:
            raise StalledError("nothing is left that could happen")
        self.seconds = end
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """`time()` starts at 0 and is exact; `clock()` is the same in seconds since 1970, for what asks the hour."""

    def __init__(self) -> None:
        self._agenda = Agenda()
        super().__init__(self._agenda)

    def time(self) -> float:
        return self._agenda.seconds

    def clock(self) -> float:
        return EPOCH + self._agenda.seconds

    def at(self, when: float, act: Callable[[Result], None], argument: Result) -> None:
        """As `call_at`, for the millions of events of a network: no handle, no context, a fifth of the time."""
        self._agenda.add(when, act, argument)

    def call_soon(
        self,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> asyncio.Handle:
        self._agenda.disturbed = True
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        self._agenda.disturbed = True
        return super().call_at(when, callback, *args, context=context)


def run(loop: VirtualLoop, main: Coroutine[Any, Any, Result]) -> Result:
    """`main` to its end in virtual time; tasks that are left over are cancelled and the loop is closed."""
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main)


REQUEST, ANSWER = 590, 420
"""Bytes of a call without its content, there and back: a stream is opened, negotiated and closed for each."""
DIAL_BYTES = 11_000
"""Bytes of a new connection, both ways: TCP, handshake, and telling each other addresses and protocols."""
DIAL_TRIPS = 3  # Times there and back before a new connection carries the first request
MOST_CONNECTIONS, FEWEST_CONNECTIONS = 512, 256
"""Of a daemon: above the one, those used longest ago are closed down to the other."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """The weather."""

    latency_seconds: float = 0.05
    """One way between two nodes at a mean distance; links differ, from about a fifth to twice of it."""
    jitter: float = 0.1  # A message takes up to this share longer than its link's latency
    loss: float = 0.0  # Share of the calls of which one message is lost; nothing repeats it but who called
    uplink: float = 2.5e6  # Bytes a second that a node can send


class Host(Protocol):
    """A node as the network sees it."""

    @property
    def id(self) -> int: ...


Node = TypeVar("Node", bound=Host)
Answer = TypeVar("Answer")
Handler = Callable[[Node], tuple[Answer, int]]
"""Runs at the node that was called, at once: the answer, and the bytes of its content."""


@dataclass(slots=True)
class Port(Generic[Node]):
    """A node's access. One that was unplugged stays so: a node that comes back is plugged in anew."""

    host: Node
    place: tuple[float, float]  # In the unit square
    reachable: bool = True  # False: it dials out, and whoever it is connected with can ask it
    plugged: bool = True
    island: int = 0
    sent: int = 0
    received: int = 0  # Bytes; what is lost was sent all the same
    free_at: float = 0.0  # When the uplink has sent all that waits
    connections: dict[int, None] = field(default_factory=dict[int, None])
    """Peers connected to, the one used longest ago first."""


class Network(Generic[Node]):
    """Calls between nodes. Deterministic: the same random numbers, the same trace."""

    def __init__(self, loop: VirtualLoop, random: Random, conditions: Conditions) -> None:
        self.loop, self.conditions = loop, conditions
        self.trace = 0  # A running checksum of every message: when, from, to, bytes
        self.messages = 0
        self.ports: dict[int, Port[Node]] = {}
        self._random = random
        self._past = 0  # Bytes sent by nodes that are no more

    @property
    def total_bytes(self) -> int:
        """Sent by all nodes so far."""
        return self._past + sum(port.sent for port in self.ports.values())

    def plug(self, host: Node, *, reachable: bool = True) -> Port[Node]:
        """Take part from now on, at the same place as before if it took part already."""
        before = self.ports.get(host.id)
        self._past += before.sent if before else 0
        place = before.place if before else (self._random.random(), self._random.random())
        port = Port(host, place, reachable=reachable, island=before.island if before else 0)
        self.ports[host.id] = port
        return port

    def unplug(self, port: Port[Node]) -> None:
        """The node is gone, without a word to anybody; its connections are gone as well."""
        port.plugged = False
        for peer in port.connections:
            self.ports[peer].connections.pop(port.host.id, None)
        port.connections.clear()

    def divide(self, islands: Mapping[int, int]) -> None:
        """Node id -> number of its island; nothing passes between islands, and who is not named is on island 0."""
        for node, port in self.ports.items():
            port.island = islands.get(node, 0)
            for peer in [peer for peer in port.connections if islands.get(peer, 0) != port.island]:
                del port.connections[peer]

    def call(
        self,
        source: Port[Node],
        target: int,
        size: int,
        handler: Handler[Node, Answer],
        done: Callable[[Answer | None], None],
        seconds: float,
    ) -> None:
        """Ask `target`, with `size` bytes of content; `done` gets None after `seconds` without an answer.

        A node that is unplugged meanwhile hears nothing more.
        """
        deadline = self.loop.time() + seconds

        def finish(answer: Answer | None) -> None:
            if source.plugged:
                done(answer)

        def arrive(port: Port[Node]) -> None:
            if not port.plugged:
                self.loop.at(deadline, finish, None)
                return
            port.received += REQUEST + size
            answer, length = handler(port.host)
            travel = self._carry(port, source, ANSWER + length)
            if self.loop.time() + travel <= deadline:
                source.received += ANSWER + length
                self.loop.at(self.loop.time() + travel, finish, answer)
            else:
                self.loop.at(deadline, finish, None)

        port = self.ports.get(target)
        dialled = self._dial(source, port) if port is not None else math.inf
        if port is not None and dialled < math.inf:
            travel = dialled + self._carry(source, port, REQUEST + size)
            if self.loop.time() + travel <= deadline:
                self.loop.at(self.loop.time() + travel, arrive, port)
                return
        self.loop.at(deadline, finish, None)

    def _dial(self, source: Port[Node], target: Port[Node]) -> float:
        """Seconds until there is a connection; infinity when there can be none."""
        new = target.host.id not in source.connections
        if not (target.plugged and (target.reachable or not new) and source.island == target.island):
            source.sent += 60  # a connection attempt into the dark
            return math.inf
        for one, other in ((source, target), (target, source)):
            one.connections.pop(other.host.id, None)
            one.connections[other.host.id] = None
            if new:
                one.sent += DIAL_BYTES // 2
                one.received += DIAL_BYTES // 2
                self._trim(one)
        return DIAL_TRIPS * 2 * self.latency(source, target) if new else 0.0

    def _trim(self, port: Port[Node]) -> None:
        if len(port.connections) <= MOST_CONNECTIONS:
            return
        for peer in list(port.connections)[: len(port.connections) - FEWEST_CONNECTIONS]:
            del port.connections[peer]
            self.ports[peer].connections.pop(port.host.id, None)

    def latency(self, source: Port[Node], target: Port[Node]) -> float:
        """Seconds one way."""
        # 0.52: mean distance of two points in the unit square; a fifth is spent near the ends whatever the distance
        return self.conditions.latency_seconds * (0.2 + 0.8 * math.dist(source.place, target.place) / 0.52)

    def _carry(self, source: Port[Node], target: Port[Node], size: int) -> float:
        """Seconds until a message of `size` bytes is there; infinity for a lost one."""
        now = self.loop.time()
        source.sent += size
        self.messages += 1
        self.trace = zlib.crc32(struct.pack("<dQQQ", now, source.host.id >> 96, target.host.id >> 96, size), self.trace)
        source.free_at = max(now, source.free_at) + size / self.conditions.uplink
        if source.island != target.island or self._random.random() < self.conditions.loss / 2:
            return math.inf
        jitter = 1 + self.conditions.jitter * self._random.random()
        return source.free_at - now + self.latency(source, target) * jitter
