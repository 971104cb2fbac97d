"""Small problems, groups and identities for the swarm tests."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from codezero.config import SwarmConfig
from codezero.environment import Environment
from codezero.environments.code import CodeEnvironment
from codezero.swarm.hivemind_swarm import HivemindSwarm
from codezero.swarm.identity import Identity
from codezero.swarm.network_status import FILE, NetworkStatus, replace_file
from codezero.swarm.supervisor import NetworkProcess, network_settings
from codezero.types import Completion, Problem, RolloutGroup, ScoredGroup, Source, Status, Verdict, problem_id

SWARM = "test"
TOKENIZER = "ab" * 32
Result = TypeVar("Result")
WITH_HIVEMIND = [  # For tests that load it in their own process
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@dataclass
class Clock:
    now: float = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Nodes:
    folder: Path
    join: str  # The address of alice
    alice: HivemindSwarm
    bob: HivemindSwarm


def write_status(folder: Path, status: NetworkStatus) -> None:
    replace_file(folder / FILE, msgspec.json.encode(status))


def problem(question: str = "Double it.", **change: Any) -> Problem:
    tests = ("assert double(2) == 4",)
    return replace(Problem(problem_id(question, tests), question, tests, "double", Source.SYNTHETIC, level=2), **change)


def group(peer: str, question: str = "Double it.", *, text: str = "def double(x): return 2 * x") -> RolloutGroup:
    attempts = (Completion(text, (5, 6), (-0.5, -0.25), True), Completion("", (7,), (-1.0,), False))
    return RolloutGroup(problem(question), attempts, peer, 0, 3)


def scored(one: RolloutGroup, *rewards: float) -> ScoredGroup:
    verdicts = [Verdict(reward, reward, 0, 0, 0, 1, Status.JUDGED) for reward in rewards or (1.0, 0.0)]
    return ScoredGroup(one, tuple(verdicts))


def fast_identity(seed: int = 0) -> Identity:
    """The same one for the same seed, for the names of tests; 0: another one each time."""
    key = ed25519.Ed25519PrivateKey
    return Identity(key.from_private_bytes(seed.to_bytes(32)) if seed else key.generate())


def make_swarm(
    folder: Path, name: str, *, bootstrap: Sequence[str] = (), environment: Environment | None = None, **settings: Any
) -> HivemindSwarm:
    """Its network process is not started."""
    identity = folder / f"{name}.pem"
    peer = Identity.load_or_create(identity).peer_id
    settings = {"poll_seconds": 0.1, "bootstrap": list(bootstrap)} | settings
    config = SwarmConfig(kind="hivemind", name=SWARM, identity=str(identity), **settings)
    network = NetworkProcess(network_settings(config), folder / name)
    return HivemindSwarm(network, environment or CodeEnvironment(), peer, TOKENIZER)


@contextmanager
def started(folder: Path, name: str, **settings: Any) -> Iterator[HivemindSwarm]:
    """A node on the network until the end of the block."""
    swarm = make_swarm(folder, name, **settings)
    try:
        swarm.network.start()
        yield swarm
    finally:
        swarm.close()


@asynccontextmanager
async def daemons(folder: Path, *names: str, port: int = 0) -> AsyncIterator[list[Any]]:
    """A peer-to-peer daemon for each of these names, without neighbours, in this process."""
    from codezero.swarm.hivemind_dht import start_daemon

    for name in names:
        Identity.load_or_create(folder / f"{name}.pem")
    running = [await start_daemon(SwarmConfig(identity=str(folder / f"{name}.pem"), port=port)) for name in names]
    try:
        yield running
    finally:
        for daemon in running:
            await daemon.shutdown()


async def address_of(daemon: Any) -> str:
    return str((await daemon.get_visible_maddrs())[0])


@contextmanager
def hostile_peer(folder: Path, round_number: int, *victims: str) -> Iterator[Callable[..., Any]]:
    """`fakes/hostile_peer.py` in a process of its own: attack(name, **arguments) returns what it answers."""
    program = Path(__file__).parents[1] / "fakes" / "hostile_peer.py"
    with (folder / "mallory.log").open("wb") as log:
        mallory = subprocess.Popen(
            [sys.executable, str(program), str(folder), str(round_number), *victims], process_group=0, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=os.environ | {"HIVEMIND_LOGLEVEL": "ERROR"},
        )  # fmt: skip
    with mallory:
        assert mallory.stdin and mallory.stdout
        stdin, stdout = mallory.stdin, mallory.stdout

        def attack(name: str, /, **arguments: Any) -> Any:
            stdin.write(json.dumps([name, arguments]) + "\n")
            stdin.flush()
            answer = stdout.readline()
            assert answer, f"the hostile process ended during {name}: {(folder / 'mallory.log').read_text()}"
            return json.loads(answer)

        try:
            yield attack
        finally:
            stdin.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def eventually(look: Callable[[], Result], seconds: float = 180.0) -> Result:
    """The first true value of `look`; AssertionError when there is none for a long time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if result := look():
            return result
        time.sleep(0.05)
    raise AssertionError(f"nothing within {seconds:g} s")
