"""The README's two commands by somebody new: no privileges, an empty home, no Node.js, nobody at the keyboard.

The first time with a network, then with none. Of the tests that `./run_tests.sh` runs in there, FRESH_TESTS names those
that are wanted (files, or nothing at all for every one); by default a few, as the others were run outside.
Does not show another distribution than the base image's."""

import io
import json
import os
import re
import subprocess
import tarfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from builders.docker import BUILD_SECONDS, ROOT, base_problem, build_arguments, build_of, docker, engine_problem

pytestmark = [pytest.mark.docker, pytest.mark.timeout(7200)]
IMAGE = "codezero-test:newcomer"
ROWS = 3
FEW_TESTS = "tests/test_house.py tests/unit/test_settings.py tests/unit/test_cli.py tests/e2e/docker/test_container.py"
TESTS_SECONDS = 5400.0
OF_THIS_NETWORK = re.compile(r"(PIP|UV|NPM_CONFIG)_\w+|(\w+_PROXY)|SSL_CERT_FILE|NODE_EXTRA_CA_CERTS", re.IGNORECASE)
"""Variables that say where packages come from, passed on as they are."""
PRIVILEGED = ("sudo", "su", "doas", "pkexec", "runuser", "apt", "apt-get", "dpkg", "mount", "chroot")
"""Each is a stand-in that writes down that it was called; what could really raise a privilege cannot any more."""
RECIPE = """
FROM {base}
RUN rm -f /usr/bin/su /bin/su && find / -xdev -type f -perm /6000 -exec chmod a-s {{}} + \\
 && printf '#!/bin/sh\\necho "$0 $*" >>/var/privileged\\nexit 1\\n' >/usr/local/bin/sudo \\
 && chmod 755 /usr/local/bin/sudo \\
 && for name in {others}; do ln -s sudo /usr/local/bin/$name; done \\
 && touch /var/privileged && chmod 666 /var/privileged \\
 && mkdir /var/no-skeleton && useradd --create-home --skel /var/no-skeleton newcomer
USER newcomer
ENV HOME=/home/newcomer
WORKDIR /home/newcomer
COPY counted_command.py /opt/counted.py
CMD ["sleep", "infinity"]
"""


@dataclass(frozen=True)
class Life:
    """What happened, in order."""

    home_before: str
    tools_before: str
    swarm: dict[str, Any]
    tests: dict[str, Any]
    interfaces: str
    swarm_again: dict[str, Any]
    tests_again: dict[str, Any]
    privileged: str
    home_after: list[str]
    new_files: list[str]

    @property
    def commands(self) -> list[dict[str, Any]]:
        return [self.swarm, self.tests, self.swarm_again, self.tests_again]


def readme_commands() -> tuple[str, str]:
    """The two of its first block, without what it says of them."""
    (block, *_) = re.findall(r"^```sh\n(.*?)^```$", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    swarm, tests = [line.partition("#")[0].strip() for line in block.splitlines()]
    return swarm, tests


def shipped() -> list[str]:
    """What somebody gets who takes the repository as it is here: no file that git ignores."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def build() -> None:
    said = build_arguments()
    base = said.get("BUILD_IMAGE") or said.get("BASE_IMAGE") or "python:3.12-slim-bookworm"
    recipe = RECIPE.format(base=base, others=" ".join(PRIVILEGED[1:]))
    build_of(IMAGE, recipe, ROOT / "tests" / "fakes" / "counted_command.py")


@dataclass(frozen=True)
class Newcomer:
    """A container in which somebody sits who has just downloaded the repository."""

    id: str

    def sh(self, line: str) -> str:
        return docker("exec", self.id, "sh", "-c", line).stdout.strip()

    def download(self) -> None:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for name in shipped():
                archive.add(ROOT / name, f"codezero/{name}")
        words = ["docker", "exec", "--interactive", self.id, "tar", "--extract", "--no-same-owner"]
        subprocess.run(words, input=packed.getvalue(), check=True, timeout=120)

    def types(self, command: str, rows: int = 0, *, seconds: float, **variables: str) -> dict[str, Any]:
        """See counted.py; the answer's `said` has the output's end."""
        passed = [f"--env={name}={value}" for name, value in variables.items()]
        words = ("python3", "/opt/counted.py", str(rows), command)
        done = docker("exec", *passed, "--workdir=/home/newcomer/codezero", self.id, *words, seconds=seconds)
        told = json.loads(done.stdout.splitlines()[-1])
        return told | {"said": told["said"][-4000:]}

    def new_files(self) -> list[str]:
        """Below the repository, those that came with no download; packages left out, which are a folder's own."""
        line = (
            "cd codezero && find . -type f -not -path './.venv/*' -not -path '*/node_modules/*' -not -path '*/.node/*'"
        )
        there = {name.removeprefix("./") for name in self.sh(line).splitlines()}
        return sorted(there - set(shipped()))


@pytest.fixture(scope="module")
def life() -> Iterator[Life]:
    problem = engine_problem()
    assert not problem, f"tests marked `docker` need an engine: {problem}"
    if missing := base_problem():
        pytest.skip(missing)
    build()
    network = f"codezero-test-{uuid.uuid4().hex[:8]}"
    docker("network", "create", "--driver", "bridge", network)
    settings = [f"--env={name}" for name in os.environ if OF_THIS_NETWORK.fullmatch(name)]
    limits = ("--init", "--cap-drop=ALL", "--security-opt=no-new-privileges")
    container = docker("run", "--detach", f"--network={network}", *limits, *settings, IMAGE).stdout.strip()
    try:
        yield live(Newcomer(container), network)
    finally:
        docker("rm", "--force", "--volumes", container)
        docker("network", "rm", network)


def live(newcomer: Newcomer, network: str) -> Life:
    swarm, tests = readme_commands()
    few = {"PYTEST_ADDOPTS": os.environ.get("FRESH_TESTS", FEW_TESTS)}
    before = newcomer.sh("ls -A"), newcomer.sh("command -v node npm nodejs git uv || echo none")
    newcomer.download()
    first = newcomer.types(swarm, ROWS, seconds=BUILD_SECONDS)
    tested = newcomer.types(tests, seconds=BUILD_SECONDS, PYTEST_ADDOPTS="tests/test_house.py")
    docker("network", "disconnect", network, newcomer.id)
    return Life(
        *before,
        swarm=first,
        tests=tested,
        interfaces=newcomer.sh("ls /sys/class/net"),
        swarm_again=newcomer.types(swarm, ROWS, seconds=BUILD_SECONDS),
        tests_again=newcomer.types(tests, seconds=TESTS_SECONDS, **few),
        privileged=newcomer.sh("cat /var/privileged"),
        home_after=newcomer.sh("ls -A").split(),
        new_files=newcomer.new_files(),
    )


def test_there_was_nothing_to_lean_on(life: Life) -> None:
    assert life.home_before == "" and life.tools_before == "none"


def test_the_first_command_installs_and_trains(life: Life) -> None:
    assert life.swarm["code"] == 0 and life.swarm["rows"] >= ROWS, life.swarm["said"]


def test_it_goes_on_without_a_network(life: Life) -> None:
    assert life.interfaces == "lo"
    again = life.swarm_again
    assert again["code"] == 0 and again["rows"] >= life.swarm["rows"] + ROWS, again["said"]
    assert "installing" not in again["said"] and "building" not in again["said"]


def test_the_second_command_passes_and_does_so_without_a_network(life: Life) -> None:
    assert life.tests["code"] == 0, life.tests["said"]
    assert life.tests_again["code"] == 0, life.tests_again["said"]
    assert " passed" in life.tests["said"] and " passed" in life.tests_again["said"]


def test_nobody_was_asked_anything_and_no_privilege_was_used(life: Life) -> None:
    assert [one["read"] for one in life.commands] == [0, 0, 0, 0]
    assert life.privileged == ""


def test_nothing_lies_where_the_readme_does_not_say(life: Life) -> None:
    caches = re.findall(r"`~/([\w.]+)[/`]", (ROOT / "README.md").read_text())
    assert set(life.home_after) == {"codezero", *caches}
    ignored = subprocess.run(
        ["git", "check-ignore", "--stdin"], cwd=ROOT, input="\n".join(life.new_files), capture_output=True, text=True
    )
    assert set(ignored.stdout.splitlines()) == set(life.new_files)
