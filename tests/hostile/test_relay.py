"""Relays that lie and askers that misuse one, over real daemons on loopback; alice and bob are reached by nobody.

Does not show: many networks in one hand, which may use up a relay; a majority of hostile relays."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders.swarm import SWARM, TOKENIZER, WITH_HIVEMIND, group

from codezero.config import SwarmConfig
from codezero.swarm.calls import EACH_ASKER, Call, RelayRequest
from codezero.swarm.exchange import Exchange
from codezero.swarm.identity import Identity, open_to_all
from codezero.swarm.records import PeerRecordValidator
from codezero.swarm.supervisor import Publish, ReceivedBody
from codezero.swarm.trust import Offence, PeerTrust
from codezero.swarm.wire import GROUPS, body_digest, decode_body, encode_body

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("left_sockets"),
    *WITH_HIVEMIND,
]
ROUND = 30
CLOSED = ("/ip4/127.0.0.1/tcp/1",)  # Where nobody listens: what a router makes of a node's addresses
pack = msgspec.msgpack.encode


class Node:
    """A member in this process, with a daemon of its own; `lie` answers in place of its relay."""

    def __init__(self, folder: Path, name: str, *, announce: tuple[str, ...] = ()) -> None:
        path = folder / f"{name}.pem"
        self.identity, self.announce = Identity.load_or_create(path), announce
        self.id = self.identity.peer_id
        self.settings = SwarmConfig(identity=str(path), announce=list(announce))
        self.bodies: list[ReceivedBody] = []
        self.lie: Callable[[], Awaitable[bytes]] | None = None
        self.asked = self.published = 0

    async def start(self, *ways_in: "Node") -> None:
        from codezero.swarm.hivemind_dht import HivemindTransport, create_node, start_daemon, take_part
        from codezero.swarm.network_monitor import PeerStore

        self.p2p = await start_daemon(self.settings)
        validator = PeerRecordValidator(self.identity, SWARM)
        node = await create_node(self.p2p, validator)
        await take_part(node.protocol, serving=not self.announce)
        self.transport, self.trust = HivemindTransport(node, validator), PeerTrust(open_to_all)
        self.exchange = Exchange(
            self.transport, validator, self.trust, pull_groups=32, on_body=self.bodies.append
        )  # fmt: skip
        await self.transport.serve(self._answer)
        self.addresses = [str(address) for address in await self.p2p.get_visible_maddrs()]
        await PeerStore(node, [way for other in ways_in for way in other.addresses]).rejoin()
        self.exchange.open_round(ROUND)

    async def _answer(self, call: Call, peer: str, request: bytes) -> bytes:
        if call != "relay" or self.lie is None:
            return await self.exchange._answer(call, peer, request)
        self.asked += 1
        return await self.lie()

    async def publish(self) -> str:
        self.published += 1
        question = f"{self.id} {self.published}"
        body = encode_body([group(self.id, question)], peer=self.id, round_number=ROUND)
        self.exchange.publish(Publish(GROUPS, ROUND, body, [0.5], bytes.fromhex(TOKENIZER)))
        await self.exchange.poll()
        return question

    def heard(self, author: "Node") -> list[str]:
        """Questions of the groups that came under this author's name."""
        bodies = [received.body for received in self.bodies if received.peer == author.id]
        return [item.problem.question for body in bodies for item in decode_body(body)[2]]

    async def hears(self, author: "Node", question: str) -> bool:
        """Within some polls."""
        for _ in range(20):
            self.exchange.open_round(ROUND)
            await self.exchange.poll()
            if question in self.heard(author):
                return True
            await asyncio.sleep(0.5)
        return False

    def failures(self, of: "Node") -> set[str]:
        return {name for line in self.trust.report() if line.peer == of.id for name in line.failures}


class Scene:
    def __init__(self, folder: Path, run: Callable[[Any], Any]) -> None:
        self.run = run
        self.hub, self.mallory = Node(folder, "hub"), Node(folder, "mallory")
        self.alice, self.bob = (Node(folder, name, announce=CLOSED) for name in ("alice", "bob"))
        self.nodes = [self.hub, self.mallory, self.alice, self.bob]
        self.folder = folder

    async def start(self) -> None:
        for number, node in enumerate(self.nodes):
            await node.start(*self.nodes[: min(number, 2)])


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with asyncio.Runner() as runner:
        made = Scene(tmp_path_factory.mktemp("relay"), runner.run)
        made.run(made.start())
        yield made
        for node in made.nodes:
            made.run(node.p2p.shutdown())


async def nothing() -> bytes:
    return b""


async def late() -> bytes:
    await asyncio.sleep(60)
    return b""


@pytest.mark.slow
@pytest.mark.parametrize("attack", ["another", "an old one", "drops", "delays", "floods"])
def test_a_relay_that_lies_hides_nobody_and_is_believed_in_nothing(scene: Scene, attack: str) -> None:
    alice, bob, hub, mallory = scene.alice, scene.bob, scene.hub, scene.mallory
    assert scene.run(bob.hears(alice, scene.run(alice.publish())))
    assert bob.exchange.listener.ways[alice.id] in (hub.id, mallory.id)
    (old,) = list(alice.exchange.server.bodies.values())[-1:]
    hers = encode_body([group(mallory.id)], peer=mallory.id, round_number=ROUND)

    async def told(body: bytes) -> bytes:
        return body

    mallory.lie = {
        "another": lambda: told(hers), "an old one": lambda: told(old), "drops": nothing, "delays": late,
        "floods": lambda: told(bytes(3 << 20)),
    }[attack]  # fmt: skip
    bob.trust._records.clear()
    bob.exchange.listener.ways[alice.id] = mallory.id  # she told the truth before
    before = mallory.asked
    question = scene.run(alice.publish())
    assert scene.run(bob.hears(alice, question))
    mallory.lie = None
    assert mallory.asked > before and bob.exchange.listener.ways[alice.id] == hub.id
    assert set(bob.heard(alice)) <= {f"{alice.id} {number}" for number in range(1, alice.published + 1)}
    assert bob.failures(alice) <= {Offence.TIMEOUT}
    assert bool(bob.failures(mallory)) is (attack not in ("drops", "delays"))


@pytest.mark.slow
def test_a_flood_of_requests_leaves_room_for_others(scene: Scene) -> None:
    alice, bob, hub, mallory = scene.alice, scene.bob, scene.hub, scene.mallory
    question = scene.run(alice.publish())
    (body,) = list(alice.exchange.server.bodies.values())[-1:]
    request = pack(RelayRequest(alice.id, body_digest(body), len(body), 0))

    async def flood() -> int:
        answers = [await mallory.transport.ask(hub.id, "relay", request) for _ in range(600)]
        return sum(answer == body for answer in answers)

    async def both() -> tuple[int, bool]:
        return await asyncio.gather(flood(), bob.hears(alice, question))

    hub.exchange.take_counts()
    answered, heard = scene.run(both())
    counts = hub.exchange.take_counts()
    print(f"{answered} of 600 answered")
    assert heard and answered >= EACH_ASKER.requests_burst and counts["refused_relay"] > 0


@pytest.mark.slow
def test_a_relay_dials_nobody_on_request(scene: Scene) -> None:
    """A member names a service of the relay's own machine as its address and leaves; others ask the relay for it."""
    from codezero.errors import UnreachableError

    alice, bob, hub = scene.alice, scene.bob, scene.hub
    dialled: list[object] = []

    def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        dialled.append(writer.get_extra_info("peername"))
        writer.close()

    async def attack(service: asyncio.Server) -> None:
        from codezero.swarm.hivemind_dht import split_address, start_daemon

        port: int = service.sockets[0].getsockname()[1]
        path = scene.folder / "carol.pem"
        carol = Identity.load_or_create(path).peer_id
        p2p = await start_daemon(SwarmConfig(identity=str(path), announce=[f"/ip4/127.0.0.1/tcp/{port}"]))
        peer, way = split_address(hub.addresses[0])
        await p2p._client.connect(peer, [way])
        while carol not in await hub.transport.connected():
            await asyncio.sleep(0.1)
        with pytest.raises(UnreachableError):  # she serves nothing; a stream waits until her addresses are known
            await hub.transport.ask(carol, "chunk", b"")
        await p2p.shutdown()
        while carol in await hub.transport.connected():
            await asyncio.sleep(0.1)
        asked, ask = list[str](), hub.transport.ask

        async def noted(peer: str, call: Call, request: bytes) -> bytes:
            asked.append(peer)
            return await ask(peer, call, request)

        hub.transport.ask = noted
        for author in (carol, f"/ip4/127.0.0.1/tcp/{port}", f"127.0.0.1:{port}", f"{carol}/../{alice.id}"):
            for _ in range(3):
                assert await bob.transport.ask(hub.id, "relay", pack([author, bytes(32), 1, 0])) == b""
        assert not asked  # the daemon may look for her on its own account, as libp2p's DHT does
        hub.transport.ask = ask
        with pytest.raises(UnreachableError):  # that address would have been dialled
            await hub.transport.ask(carol, "chunk", b"")
        assert dialled

    async def with_service() -> None:
        async with await asyncio.start_server(accept, "127.0.0.1", 0) as service:
            await attack(service)

    scene.run(with_service())
