"""A node in a container trains, is stopped, is killed and goes on, and can do no more than it needs."""

import json

import pytest
from builders.docker import METRICS, QUICK, Node, Project, docker, until

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1800)]


def detached(project: Project, *settings: str) -> Node:
    project("run", "--detach", "--service-ports", "swarm-cpu", *QUICK, *settings)
    return project.node()


def test_the_node_of_the_compose_file_trains_and_ends_as_it_was_told(project: Project) -> None:
    done = project("run", "--rm", "-T", "swarm-cpu", *QUICK, "run.max_iterations=3", "login.page=off")
    assert "iteration 3" in done.stdout
    kept = project("run", "--rm", "-T", "--entrypoint", f"cat {METRICS}", "swarm-cpu").stdout
    assert [json.loads(line)["iteration"] for line in kept.splitlines()][-3:] == [1, 2, 3]


def test_settings_that_are_wrong_come_back_as_exit_code_2(project: Project) -> None:
    done = project("run", "--rm", "-T", "swarm-cpu", "run.max_iterations=-1", check=False)
    assert done.returncode == 2 and "run.max_iterations=-1 is out of bounds" in done.stdout + done.stderr


def test_its_root_cannot_be_written_and_it_has_no_privileges(project: Project) -> None:
    look = 'sh -c \'grep -E " / " /proc/mounts; grep -E "^(CapEff|CapBnd|NoNewPrivs)" /proc/self/status; id -u\''
    told = project("run", "--rm", "-T", "--entrypoint", look, "swarm-cpu").stdout.split()
    assert "ro" in told[told.index("/") + 2].split(",")
    assert told[told.index("CapEff:") + 1] == told[told.index("CapBnd:") + 1] == "0" * 16
    assert told[told.index("NoNewPrivs:") + 1] == "1" and told[-1] == "1000"


def test_stop_lets_it_save_and_leave(project: Project) -> None:
    node = detached(project)
    until(lambda: node.iteration() >= 2, node)
    last = node.iteration()
    docker("stop", "--time", "60", node.id)
    state = node.told()["State"]
    assert state["ExitCode"] == 0 and not state["OOMKilled"]
    assert node.checkpoint() >= last and "Traceback" not in node.logs()


def test_killed_without_a_word_it_goes_on_from_its_newest_checkpoint(project: Project) -> None:
    node = detached(project)
    until(lambda: node.iteration() >= 3, node)
    docker("kill", "--signal", "KILL", node.id)
    assert node.told()["State"]["ExitCode"] == 137
    saved = node.checkpoint()
    assert saved >= 2
    docker("start", node.id)
    until(lambda: node.iteration() >= saved + 2, node)
    iterations = [row["iteration"] for row in node.rows()]
    assert iterations == list(range(iterations[0], iterations[-1] + 1)), "an iteration is missing or twice there"
    assert iterations[0] <= 1 and docker("exec", node.id, "ls", "/node/runs").stdout.split().count("mine") == 1
