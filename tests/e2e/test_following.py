"""A trainer that shares its policy, a node that begins from it, and a sampler that keeps up with it, on loopback."""

import json
from pathlib import Path
from typing import Any

import pytest
from e2e.test_two_nodes import node, rows, wait_until

from codezero.ops.fleet import ADDRESSES
from codezero.swarm.identity import Identity
from codezero.weights.state import read_weights

SHARING = ["weights.share=true", "weights.check_every=1", "weights.keep=50"]


def contents(base: Path, name: str) -> set[str]:
    """Of the versions that the trainer published until now."""
    path = base / name / "weights" / "versions.json"
    return {version["content"] for version in json.loads(path.read_bytes())["versions"]} if path.is_file() else set()


def steps(base: Path, name: str) -> list[Any]:
    return [row["train/policy_step"] for row in rows(base, name) if "train/policy_step" in row]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_one_learns_another_begins_there_and_a_third_attempts_for_it(tmp_path: Path) -> None:
    with node(tmp_path, "trainer", *SHARING) as trainer:
        wait_until("it can be joined", (tmp_path / "trainer" / ADDRESSES).is_file, trainer)
        join = f"swarm.bootstrap=[{','.join((tmp_path / 'trainer' / ADDRESSES).read_text().split())}]"
        peer = Identity.load(tmp_path / "trainer" / "swarm.pem").peer_id
        wait_until("it has learned", lambda: len(contents(tmp_path, "trainer")) > 3, trainer)
        known = contents(tmp_path, "trainer")
        follow = [join, f"weights.follow={peer}"]
        with node(tmp_path, "follower", "seed=1", *follow) as follower:
            begun = tmp_path / "follower" / "followed" / "model"
            wait_until("the follower begins", begun.is_dir, trainer, follower)
            known |= contents(tmp_path, "trainer")
            assert read_weights(begun).content() in known
            wait_until("it learns on", lambda: len(rows(tmp_path, "follower")) > 1, trainer, follower)
        with node(tmp_path, "sampler", "seed=2", "role=sampler", *follow) as sampler:
            wait_until("the sampler keeps up", lambda: len(set(steps(tmp_path, "sampler"))) > 2, trainer, sampler)
            name = Identity.load(tmp_path / "sampler" / "swarm.pem").peer_id
            judged = f"swarm/external_judged/{name}"
            wait_until(
                "the trainer has its groups",
                lambda: any(row.get(judged) for row in rows(tmp_path, "trainer")),
                trainer,
                sampler,
            )
            sampler.kill()
            sampler.wait()
        last = steps(tmp_path, "sampler")[-1]
        with node(tmp_path, "sampler", "seed=2", "role=sampler", *follow) as sampler:
            wait_until("it goes on where it was", lambda: steps(tmp_path, "sampler")[-1] > last, trainer, sampler)
    assert steps(tmp_path, "sampler") == sorted(steps(tmp_path, "sampler"))
    facts = json.loads((tmp_path / "follower" / "node.json").read_text())["facts"]
    assert facts["followed"].startswith(f"{peer}, version ")
