"""The image is built once for all of these tests; without an engine they fail, as nobody asks for them there."""

from collections.abc import Iterator

import pytest
from builders.docker import BUILD_SECONDS, Project, base_problem, composes, engine_problem


@pytest.fixture(scope="session")
def image() -> str:
    """The image of swarm-cpu, by its name."""
    problem = engine_problem()
    assert not problem, f"tests marked `docker` need an engine: {problem}"
    if missing := base_problem():
        pytest.skip(missing)
    commands = composes()
    assert commands, "tests marked `docker` need docker-compose 1.29 or newer"
    Project(commands[0])("build", "swarm-cpu", seconds=BUILD_SECONDS)
    return "codezero:cpu"


@pytest.fixture
def project(image: str) -> Iterator[Project]:
    made = Project(composes()[0])
    try:
        yield made
    finally:
        made.remove()
