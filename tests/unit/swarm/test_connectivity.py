"""Ways in and out: a bootnode, a private swarm, what is remembered for the next start, and whether others reach us.

Real processes on loopback; a router and its closed port are not to be had here."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from builders.swarm import SWARM, WITH_HIVEMIND, eventually, fast_identity, group, scored, started, write_status

from codezero.config import SwarmConfig
from codezero.errors import ConfigError, SwarmError
from codezero.monitor.metrics_file import LABEL
from codezero.swarm import network_status
from codezero.swarm.hivemind_swarm import HivemindSwarm
from codezero.swarm.identity import Identity
from codezero.swarm.network_status import (
    FILE,
    FOLDER,
    MAX_FILE,
    NetworkStatus,
    outward_address,
    own_addresses,
    port_of,
    read_status,
)
from codezero.swarm.supervisor import network_settings

pytestmark = [
    pytest.mark.timeout(200),
    *WITH_HIVEMIND,
]
ROUND = 5
NUMBERS = count()


def talks_to(author: HivemindSwarm, reader: HivemindSwarm, seconds: float = 180.0) -> bool:
    """Is what one publishes heard by the other?"""
    question = f"question {next(NUMBERS)} from {author.peer_id}"  # the same body twice would be a replay
    author.publish([scored(group(author.peer_id, question))], ROUND)
    try:
        return bool(eventually(lambda: [g for g in reader.gather(ROUND) if g.problem.question == question], seconds))
    except AssertionError:
        return False


@pytest.mark.slow
def test_a_bootnode_is_a_way_in_for_two_who_do_not_know_each_other(tmp_path: Path) -> None:
    settings = [f"swarm.identity={tmp_path}/boot.pem", f"run.directory={tmp_path}/runs", f"swarm.name={SWARM}"]
    command = [sys.executable, "-m", "codezero", "swarm", "bootnode", *settings]
    boot = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert boot.stdout is not None
    address = boot.stdout.readline().strip()
    assert address.startswith("/ip4/127.0.0.1/tcp/")
    try:
        way = {"bootstrap": [address]}
        with started(tmp_path, "alice", **way) as alice, started(tmp_path, "bob", **way) as bob:
            # What is published before is lost: a node publishes again in its next iteration.
            assert alice.addresses and bob.addresses
            assert talks_to(alice, bob)
            boot.send_signal(signal.SIGTERM)
            assert boot.wait(120) == 0
            assert talks_to(bob, alice)  # it showed the way and is not needed any more
            assert eventually(lambda: any(line.peer == alice.peer_id for line in read_status(tmp_path / "bob").peers))
            assert eventually(lambda: read_status(tmp_path / "bob").reachable)
    finally:
        boot.kill()
        boot.communicate()
    port = port_of(*read_status(tmp_path / "alice").addresses)
    with started(tmp_path, "alice", port=port) as alice, started(tmp_path, "bob") as again:  # what was remembered
        assert alice.addresses and again.addresses
        assert talks_to(alice, again)


@pytest.mark.slow
def test_a_private_swarm_hears_its_members_only(tmp_path: Path) -> None:
    members = tmp_path / "members.txt"
    peers = {name: Identity.load_or_create(tmp_path / f"{name}.pem").peer_id for name in ("alice", "bob", "eve")}
    members.write_text(f"# us\n{peers['alice']}\n{peers['bob']}  # a friend\n")
    with (
        started(tmp_path, "alice", members=str(members)) as alice,
        started(tmp_path, "bob", bootstrap=alice.addresses, members=str(members)) as bob,
        started(tmp_path, "eve", bootstrap=alice.addresses) as eve,
    ):
        assert bob.addresses and eve.addresses
        assert talks_to(bob, alice)
        assert not talks_to(eve, alice, seconds=5)
        assert eventually(lambda: (alice.gather(ROUND), alice.metrics().get("swarm/refused_member"))[1])


def test_a_witness_that_answers_nonsense_says_nothing_and_ends_nothing() -> None:
    from codezero.swarm.network_monitor import is_reachable

    class Daemon:
        answer = b"\x0a\x01\x01"

        async def call_protobuf_handler(self, _peer: object, _name: str, _request: object, kind: Any) -> Any:
            return kind.FromString(self.answer)

        async def list_peers(self) -> list[Any]:
            return [SimpleNamespace(peer_id=1, addrs=["/ip4/127.0.0.1/tcp/1"])]

    daemon = Daemon()
    node: Any = SimpleNamespace(p2p=daemon)
    assert asyncio.run(is_reachable(node, SWARM, 1, lambda _: False)) is True
    daemon.answer = b"\xff"  # no message
    assert asyncio.run(is_reachable(node, SWARM, 1, lambda _: False)) is None


def test_strangers_who_say_no_outvote_nobody_who_sent_something_fine() -> None:
    from codezero.swarm.network_monitor import NO, YES, is_reachable

    class Daemon:
        async def call_protobuf_handler(self, peer: object, _name: str, _request: object, kind: Any) -> Any:
            return kind(value=YES if peer == "friend" else NO)

        async def list_peers(self) -> list[Any]:
            peers = ["friend", *(f"sybil {number}" for number in range(200))]
            return [SimpleNamespace(peer_id=peer, addrs=["/ip4/45.50.1.1/tcp/1"]) for peer in peers]

    node: Any = SimpleNamespace(p2p=Daemon())
    assert asyncio.run(is_reachable(node, SWARM, 1, lambda peer: peer == "friend")) is True


def test_a_way_in_that_was_away_is_asked_until_it_answers_and_dialled_only_where_somebody_listens() -> None:
    from hivemind.p2p import PeerID

    from codezero.swarm.network_monitor import AGAIN, TRIED, PeerStore

    me, founder = (PeerID.from_base58(fast_identity(seed).peer_id) for seed in (1, 2))
    connected, calls = list[Any](), list[str]()

    async def called(name: str, answer: object) -> Any:
        calls.append(name)
        return answer

    async def list_peers() -> list[Any]:
        return connected

    table: Any = SimpleNamespace(get=lambda peer_id: None, peer_id_to_uid={})
    node: Any = SimpleNamespace(
        peer_id=me,
        blacklist=SimpleNamespace(register_success=calls.append),
        p2p=SimpleNamespace(list_peers=list_peers, _client=SimpleNamespace(connect=lambda *_: called("dial", None))),
        protocol=SimpleNamespace(call_ping=lambda _: called("ping", None), routing_table=table),
    )

    async def rounds(count: int) -> int:
        calls.clear()
        for _ in range(count):
            await store.rejoin()
        return calls.count("ping")

    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        store = PeerStore(node, [f"/ip4/127.0.0.1/tcp/{closed.getsockname()[1]}/p2p/{founder}"])
        assert asyncio.run(rounds(TRIED + 2)) == 0 and not calls
    connected.append(SimpleNamespace(peer_id=founder, addrs=[]))
    assert asyncio.run(rounds(TRIED)) == TRIED  # it is there, and its DHT is not yet
    assert 1 <= asyncio.run(rounds(AGAIN)) <= TRIED


@pytest.mark.parametrize(
    ("near", "words"),
    [(0, "no open member answers in swarm"), (2, "none of 2 nodes that answer has a record of swarm")],
)
def test_that_nobody_is_met_is_said_once_and_again_after_somebody_was(
    near: int, words: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from codezero.swarm.network_monitor import ALONE_POLLS, NetworkMonitor

    some: Any = SimpleNamespace(load=print, recall=print, size=near)
    exchange: Any = SimpleNamespace(listener=SimpleNamespace(alone=ALONE_POLLS))
    monitor = NetworkMonitor(some, exchange, some, some, SwarmConfig(name=SWARM, reachable="no"), tmp_path)
    for alone in (ALONE_POLLS, ALONE_POLLS + 1, 0, ALONE_POLLS):
        exchange.listener.alone = alone
        said = monitor._note_alone()
        assert said == (f"{words} {SWARM}; add a way in to swarm.bootstrap" if alone else "")
    assert caplog.messages == [said] * 2


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"members": "/nowhere/members.txt"}, "/nowhere/members.txt"),
        ({"announce": ["/ip4/1.2.3.4/tcp/0"]}, "swarm.announce"),
        ({"announce": ["1.2.3.4:80"]}, "swarm.announce"),
        ({"bootstrap": ["127.0.0.1:80"]}, "swarm.bootstrap"),
        ({"name": "two words"}, "swarm.name"),
        ({"name": "a/b"}, "swarm.name"),
        ({"name": ""}, "swarm.name"),
        ({"host": "localhost"}, "swarm.host"),
    ],
)
def test_what_cannot_be_used_is_named_before_anything_starts(settings: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        network_settings(SwarmConfig(**settings))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("version", [4, 6])
def test_without_a_way_out_the_addresses_of_the_interfaces_are_taken(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    outward = outward_address(version)
    if outward is None:
        pytest.skip(f"this machine has no way out over IPv{version}")
    assert own_addresses(version) == [outward]
    monkeypatch.setattr(network_status, "outward_address", lambda _: None)
    assert outward in own_addresses(version)
    assert not {"127.0.0.1", "::1"} & {*own_addresses(version)}


def status(**change: object) -> NetworkStatus:
    known = NetworkStatus(
        time=time.time(), me="1" * 40, addresses=[], neighbours=0, round=None, shards=1, reachable=None,
        reachability="", peers=[],
    )  # fmt: skip
    return msgspec.structs.replace(known, **change)


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff" * 99, b"[" * 9999, b'{"time": 1e999}', b" " * MAX_FILE])
def test_a_broken_status_is_one_line_of_why(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(SwarmError, match=FILE):
        read_status(tmp_path)


def test_the_peers_command_reads_the_newest_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from codezero.cli import main

    assert main(["swarm", "peers", f"run.directory={tmp_path}"]) == 2
    assert "network=peer" in capsys.readouterr().err
    (tmp_path / "one" / FOLDER).mkdir(parents=True)
    (tmp_path / "one" / LABEL).write_text("{}")
    write_status(tmp_path / "one" / FOLDER, status(neighbours=4, reachability="\x1b[31m others reach TCP port 1"))
    assert main(["swarm", "peers", f"run.directory={tmp_path}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["neighbours"] == 4
    assert main(["swarm", "peers", f"run.directory={tmp_path}"]) == 0
    shown = capsys.readouterr().out
    assert "4 neighbours" in shown and "no peer was heard yet" in shown and "\x1b[31m" not in shown


@pytest.mark.slow
def test_who_says_that_nobody_reaches_it_keeps_no_records_and_is_heard(tmp_path: Path) -> None:
    with (
        started(tmp_path, "alice") as alice,
        started(tmp_path, "bob", bootstrap=alice.addresses, reachable="no") as bob,
    ):
        assert bob.addresses
        assert talks_to(bob, alice) and talks_to(alice, bob)
        assert eventually(lambda: read_status(tmp_path / "alice").neighbours == 1)
