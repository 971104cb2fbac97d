"""Small problems, groups and identities for the swarm tests."""

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from cryptography.hazmat.primitives.asymmetric import ed25519

from codezero.config import SwarmConfig
from codezero.environment import Environment
from codezero.environments.code import CodeEnvironment
from codezero.swarm.hivemind_swarm import HivemindSwarm
from codezero.swarm.identity import Identity
from codezero.types import Completion, Problem, RolloutGroup, ScoredGroup, Source, Status, Verdict, problem_id

SWARM = "test"
TOKENIZER = "ab" * 32
Result = TypeVar("Result")


@dataclass
class Nodes:
    folder: Path
    join: str
    """The address of alice."""
    alice: HivemindSwarm
    bob: HivemindSwarm


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
    folder: Path,
    name: str,
    *,
    port: int = 0,
    bootstrap: tuple[str, ...] = (),
    environment: Environment | None = None,
) -> HivemindSwarm:
    path = folder / f"{name}.pem"
    Identity.load_or_create(path)
    config = SwarmConfig(
        kind="hivemind", name=SWARM, identity=str(path), port=port, bootstrap=list(bootstrap), poll_seconds=0.1
    )
    return HivemindSwarm(config, folder / name, environment or CodeEnvironment(), TOKENIZER)


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
