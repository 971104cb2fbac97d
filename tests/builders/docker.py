"""A real engine, the image that it builds of this checkout, and nodes in containers of it.

What the build starts from: BASE_IMAGE and BUILD_IMAGE of the environment, else a local `base:bookworm` (a Debian with
Python, for machines that reach no registry of images), else the Dockerfile's own."""

import functools
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from builders.swarm import free_port

ROOT = Path(__file__).parents[2]
LOCAL_BASE = "base:bookworm"
WITH_WHEELS = "codezero-test:wheels"
BUILD_SECONDS = 1500.0
START_SECONDS = 180.0
METRICS = "/node/runs/mine/metrics.jsonl"
QUICK = ("run.name=mine", "evals.every=0")
"""A node that begins with its first iteration, in a folder that is known."""


def docker(*words: str, check: bool = True, seconds: float = 120.0) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(["docker", *words], capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0 or not check, f"docker {' '.join(words)}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done


def engine_problem() -> str:
    """Why there is no engine; empty: there is one."""
    if shutil.which("docker") is None:
        return "there is no `docker` command"
    answered = docker("info", "--format", "{{.ServerVersion}}", check=False)
    return "" if answered.returncode == 0 else f"no engine answers: {answered.stderr.strip()[-200:]}"


def composes() -> list[tuple[str, ...]]:
    """The compose commands that are here, each with what it needs to begin with."""
    found = [("docker-compose",), ("docker", "compose")]
    return [words for words in found if shutil.which(words[0]) and _answers(*words, "version")]


def _answers(*words: str) -> bool:
    return subprocess.run(words, capture_output=True, timeout=60).returncode == 0


def base_problem() -> str:
    """Why there is nothing to build from; empty: there is."""
    if "BASE_IMAGE" in build_arguments():
        return ""
    (default,) = set(re.findall(r"BASE_IMAGE:-([^}]+)}", (ROOT / "Dockerfile").read_text()))
    pulled = docker("pull", "--quiet", default, check=False, seconds=600)
    return "" if pulled.returncode == 0 else f"no BASE_IMAGE is named, and {default} cannot be pulled"


@functools.cache
def build_arguments() -> Mapping[str, str]:
    """The variables that docker-compose.yaml passes to a build."""
    said = {name: os.environ[name] for name in ("BASE_IMAGE", "BUILD_IMAGE") if os.environ.get(name)}
    if not said and docker("image", "inspect", LOCAL_BASE, check=False).returncode == 0:
        said["BASE_IMAGE"] = LOCAL_BASE
    if "BASE_IMAGE" in said and "BUILD_IMAGE" not in said and (wheels := _wheels_of_torch()):
        said["BUILD_IMAGE"] = _with(said["BASE_IMAGE"], wheels)
    return said


def _wheels_of_torch() -> list[Path]:
    """What this machine's pip finds in a folder of its own, where the build would have to download gigabytes."""
    told = subprocess.run(["python3", "-m", "pip", "config", "list"], capture_output=True, text=True, timeout=60).stdout
    folders = [line.partition("=")[2].strip("'\"\n ") for line in told.splitlines() if "find-links" in line]
    return sorted({wheel for folder in folders for wheel in Path(folder).glob("torch-*.whl")})


def _with(base: str, wheels: Sequence[Path]) -> str:
    """`base` and these files, at the same place."""
    recipe = "\n".join([f"FROM {base}", *(f"COPY {wheel.name} {wheel}" for wheel in wheels)])
    return build_of(WITH_WHEELS, recipe, *wheels)


def build_of(tag: str, recipe: str, *files: Path) -> str:
    """An image of a Dockerfile's text, and of files that it copies by their names alone; returns `tag`."""
    with tempfile.TemporaryDirectory() as folder:
        for file in files:
            shutil.copy(file, folder)
        (Path(folder) / "Dockerfile").write_text(f"{recipe.strip()}\n")
        docker("build", "--quiet", "--tag", tag, folder, seconds=300)
    return tag


@dataclass
class Project:
    """docker-compose.yaml under a name and with ports of its own."""

    command: tuple[str, ...]
    variables: dict[str, str] = field(default_factory=lambda: dict(build_arguments()))
    name: str = field(default_factory=lambda: f"codezero-test-{uuid.uuid4().hex[:8]}")

    def __post_init__(self) -> None:
        self.page, self.p2p = free_port(), free_port()
        self.variables |= {"PAGE_PORT": str(self.page), "P2P_PORT": str(self.p2p)}

    def __call__(
        self, *words: str, check: bool = True, seconds: float = START_SECONDS
    ) -> "subprocess.CompletedProcess[str]":
        line = [*self.command, "--project-name", self.name, "--file", str(ROOT / "docker-compose.yaml"), *words]
        done = subprocess.run(
            line, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=os.environ | self.variables,
            timeout=seconds, cwd=ROOT,
        )  # fmt: skip
        assert done.returncode == 0 or not check, f"{line}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done

    def remove(self) -> None:
        """Its containers, networks and volumes."""
        for container in self.containers():
            docker("rm", "--force", "--volumes", container)
        self("down", "--volumes", check=False)

    def node(self) -> "Node":
        """Its one container."""
        containers = self.containers()
        assert len(containers) == 1, containers
        return Node(containers[0])

    def containers(self) -> list[str]:
        label = f"label=com.docker.compose.project={self.name}"
        return docker("ps", "--all", "--quiet", "--no-trunc", "--filter", label).stdout.split()


@dataclass(frozen=True)
class Node:
    """One container."""

    id: str

    def rows(self) -> list[dict[str, Any]]:
        """Of its metrics; none while it is not running or has not written any."""
        text = docker("exec", self.id, "cat", METRICS, check=False).stdout
        return [json.loads(line) for line in text.splitlines() if line.endswith("}")]

    def iteration(self) -> int:
        return max((row["iteration"] for row in self.rows()), default=0)

    def checkpoint(self) -> int:
        """The iteration of the newest whole checkpoint; 0: there is none. Works on one that has ended too."""
        with tempfile.TemporaryDirectory() as folder:
            docker("cp", f"{self.id}:/node/runs/mine/checkpoints", folder)
            names = [one.name for one in (Path(folder) / "checkpoints").iterdir() if one.name.isdigit()]
        return max(map(int, names), default=0)

    def told(self) -> dict[str, Any]:
        return json.loads(docker("inspect", self.id).stdout)[0]

    def logs(self) -> str:
        done = docker("logs", self.id)
        return done.stdout + done.stderr


def until(what: Callable[[], object], node: Node, seconds: float = START_SECONDS) -> None:
    """Waits for it; fails with what the container said."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, node.logs()[-4000:]
        time.sleep(1.0)
