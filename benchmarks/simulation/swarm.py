"""A whole swarm in virtual time: the real exchange on every node, rounds by the clock, nodes that come, go and lie.

    swarm = Swarm(1, Settings(nodes=64))
    swarm.simulate(lambda: swarm.rounds(3))

Deterministic: the same seed and settings give the same `trace`, on every machine. Leaves out: the trainer's side of
the pipe and the supervisor; a node's clock is everybody's; what `network.py` and `kademlia.py` leave out."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from cryptography.hazmat.primitives.asymmetric import ed25519

from codezero.swarm.exchange import Exchange
from codezero.swarm.identity import Identity
from codezero.swarm.supervisor import Publish, ReceivedBody
from codezero.swarm.trust import PeerTrust
from codezero.swarm.wire import GROUPS, body_digest, encode_body
from codezero.types import Completion, Problem, RolloutGroup, Source, problem_id
from simulation.kademlia import DHTNode
from simulation.network import Conditions, Network, VirtualLoop, run
from simulation.transport import Accepted, Neighbourhood, SharedValidator, SimulatedTransport

SWARM = "simulated"
TOKENIZER = bytes(32)
REJOIN_SECONDS = 5.0
ALONE_SECONDS = 1.0
GOOD_WEATHER = Conditions()

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Settings:
    """What is simulated."""

    nodes: int = 32  # At the start, all of them honest and reachable
    bootstraps: int = 3  # The first so many nodes, which every node dials at its start
    round_seconds: float = 60.0
    poll_seconds: float = 5.0  # Between two looks
    pull_groups: int = 64  # Each time the trainer asks, which it does at every look unless it is `slow`
    slow: bool = False  # It asks once a round
    body_bytes: int = 1000  # About, of each node's body of one group a round
    conditions: Conditions = GOOD_WEATHER


@dataclass(frozen=True, slots=True)
class Delivery:
    """A body that one node heard of another."""

    reader: str
    author: str
    round: int
    seconds: float  # Since its round began
    heard_in: int  # The round that was open then
    genuine: bool  # Did the author publish these very attempts?


def identity(seed: int, number: int) -> Identity:
    """Always the same for a seed and number."""
    secret = hashlib.sha256(f"simulated identity {seed} {number}".encode()).digest()
    return Identity(ed25519.Ed25519PrivateKey.from_private_bytes(secret))


def attempts(peer: str, round_number: int, size: int, random: Random) -> RolloutGroup:
    """A group whose body has about `size` bytes: chance that zlib cannot know."""
    question, tests = f"Of {peer} in round {round_number}.", ("assert f() == 1",)
    # hex of random bytes compresses to 0.565 of its length
    raw = max(1, int(size / 1.13))
    texts = [random.randbytes(min(30_000, raw - at)).hex() for at in range(0, raw, 30_000)]
    problem = Problem(problem_id(question, tests), question, tests, "f", Source.SYNTHETIC)
    return RolloutGroup(problem, tuple(Completion(text, (1,), (-1.0,), True) for text in texts), peer, round_number, 0)


class SimulatedNode:
    """One honest participant, or the body that an attacker lives in. It can be killed, and start again as itself."""

    def __init__(self, swarm: "Swarm", number: int, *, reachable: bool) -> None:
        self.identity = identity(swarm.seed, number)
        self.peer = self.identity.peer_id
        self.number, self.reachable = number, reachable
        self.random = Random(f"{swarm.seed} {number}")
        self.trust = PeerTrust(lambda _peer: True, swarm.loop.clock)  # It outlives the node, as its file does
        self.counts: Counter[str] = Counter()
        self.heard_of_round: Counter[int] = Counter()
        self.looks = 0
        self._swarm = swarm
        self._task: asyncio.Task[None] | None = None
        self._met: dict[int, int] = {}
        self._set_up()

    def _set_up(self) -> None:
        """What every life begins with: of the last one the identity is left, and what files keep."""
        swarm, settings = self._swarm, self._swarm.settings
        self.validator = SharedValidator(self.identity, SWARM, clock=swarm.loop.clock, accepted=swarm.accepted)
        self.dht = DHTNode(swarm.network, self.peer, self.validator, self.random, reachable=self.reachable)
        self.transport = SimulatedTransport(swarm.network, self.dht, self.validator)
        self.neighbourhood = Neighbourhood(self.dht, swarm.bootstraps, self.random, self._met)
        self._met = self.neighbourhood.known
        self.exchange = Exchange(
            self.transport,
            self.validator,
            self.trust,
            pull_groups=settings.pull_groups,
            on_body=self._hear,
            random=self.random,
        )

    @property
    def alive(self) -> bool:
        return self._task is not None and not self._task.done()

    def start(self, live: Callable[[], Awaitable[None]] | None = None) -> None:
        """Begin to live, as an honest node unless told how else."""
        if not self.dht.port.plugged:
            self._set_up()
        self._task = asyncio.get_running_loop().create_task(self._live(live or self._look))

    def kill(self) -> None:
        """Without a word to anybody."""
        assert self._task is not None, "not started"
        self._task.cancel()
        self._swarm.network.unplug(self.dht.port)

    def check(self) -> None:
        """Raises what the node died of, if it was not killed."""
        if self._task is not None and self._task.done() and not self._task.cancelled():
            self._task.result()

    def open(self, round_number: int) -> None:
        """The trainer enters a round, with a group of its own."""
        group = attempts(self.peer, round_number, self._swarm.settings.body_bytes, self.random)
        body = encode_body([group], peer=self.peer, round_number=round_number)
        self._swarm.published[self.peer, round_number] = body_digest(body)
        self.exchange.open_round(round_number)
        self.exchange.publish(Publish(GROUPS, round_number, body, [0.5], TOKENIZER))

    def _hear(self, heard: ReceivedBody) -> None:
        self.heard_of_round[heard.round] += 1
        self._swarm.note(self, heard)

    async def _live(self, live: Callable[[], Awaitable[None]]) -> None:
        await self.exchange.start()
        await self.neighbourhood.rejoin()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._rejoin())
            tasks.create_task(_forever(live))

    async def _look(self) -> None:
        """As the network process does, and no more in a round of which enough was heard."""
        settings = self._swarm.settings
        await self.exchange.poll()
        self.looks += 1
        self.counts.update(self.exchange.take_counts())
        # nodes that do everything at the same instant would be a worse case than there is
        await asyncio.sleep(self.exchange.listener.pause(settings.poll_seconds) * self.random.uniform(0.9, 1.1))
        if not settings.slow:
            self.exchange.listener.refill()

    async def _rejoin(self) -> None:
        while True:
            await asyncio.sleep(REJOIN_SECONDS if len(self.dht.table) else ALONE_SECONDS)
            await self.neighbourhood.rejoin()


async def _forever(live: Callable[[], Awaitable[None]]) -> None:
    while True:
        await live()


class Swarm:
    """All nodes, and the clock that opens rounds for them."""

    def __init__(self, seed: int, settings: Settings | None = None) -> None:
        self.seed, self.settings = seed, settings or Settings()
        self.loop = VirtualLoop()
        self.random = Random(f"swarm {seed}")
        self.network: Network[DHTNode] = Network(self.loop, Random(f"network {seed}"), self.settings.conditions)
        self.accepted = Accepted()
        self.bootstraps: list[int] = []
        self.nodes: list[SimulatedNode] = []
        self.deliveries: list[Delivery] = []
        self.published: dict[tuple[str, int], bytes] = {}  # By author and round
        self.round = -1
        self._began: list[float] = []  # When each round did
        for _ in range(self.settings.nodes):
            node = self.add()
            if len(self.bootstraps) < self.settings.bootstraps:
                self.bootstraps.append(node.dht.id)

    def add(self, *, reachable: bool = True) -> SimulatedNode:
        """Another node, which its `start` brings to life."""
        node = SimulatedNode(self, len(self.nodes), reachable=reachable)
        self.nodes.append(node)
        return node

    @property
    def living(self) -> list[SimulatedNode]:
        return [node for node in self.nodes if node.alive]

    def simulate(self, scenario: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Run `scenario`, a function of virtual time, to its end; then everything is over. Once for each swarm.

        Raises what a node's task raised: a node that dies of an error is an error of the program.
        """
        return run(self.loop, self._simulate(scenario))

    async def _simulate(self, scenario: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        result = await scenario()
        self._check()
        return result

    def _check(self) -> None:
        for node in self.nodes:
            node.check()

    def start(self) -> None:
        """All nodes that were added, those first that others dial."""
        for node in self.nodes:
            node.start()

    async def rounds(self, count: int) -> None:
        """Let `count` rounds pass; every living node begins each of them with a group of its own."""
        for _ in range(count):
            self.round += 1
            self._began.append(self.loop.time())
            for node in self.living:
                node.open(self.round)
            await asyncio.sleep(self.settings.round_seconds)
            self._check()

    def note(self, reader: SimulatedNode, heard: ReceivedBody) -> None:
        """`reader` hands a body to its trainer."""
        genuine = self.published.get((heard.peer, heard.round)) == body_digest(heard.body)
        seconds = self.loop.time() - self._began[heard.round]
        self.deliveries.append(Delivery(reader.peer, heard.peer, heard.round, seconds, self.round, genuine))
