"""What `up -d` starts: it comes back by itself, says how it is, and its page is answered to the host alone."""

import http.client
import json

import pytest
from builders.docker import Node, Project, docker, until

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1800)]
ASK = """
import http.client, sys
connection = http.client.HTTPConnection(sys.argv[1], int(sys.argv[2]), timeout=20)
connection.request("GET", "/api/session", headers={"Host": f"localhost:{sys.argv[2]}"})
print(connection.getresponse().status)
"""
KILL = """
import os, pathlib, signal
for process in pathlib.Path("/proc").glob("[0-9]*"):
    words = (process / "cmdline").read_bytes().split(b"\\0")
    if int(process.name) != os.getpid() and b"run" in words and any(one.endswith(b"codezero") for one in words):
        os.kill(int(process.name), signal.SIGKILL)
"""


@pytest.fixture
def node(project: Project) -> Node:
    project("up", "--detach", "swarm-cpu")
    return project.node()


def status(node: Node) -> dict[str, object]:
    """What `codezero status` says; nothing before there is a run."""
    done = docker("exec", node.id, "codezero", "status", "--json", check=False)
    return json.loads(done.stdout) if done.returncode == 0 else {}


def from_host(port: int, path: str, host: str) -> tuple[int, bytes]:
    """Status and body; 0 while nothing answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("GET", path, headers={"Host": host})
        answer = connection.getresponse()
        return answer.status, answer.read()
    except OSError:
        return 0, b""
    finally:
        connection.close()


def test_its_page_is_answered_to_the_host_and_to_no_neighbour(project: Project, node: Node) -> None:
    here = f"localhost:{project.page}"
    until(lambda: from_host(project.page, "/healthz", here)[0] == 200, node)
    found, page = from_host(project.page, "/", here)
    assert found == 200 and b"<title>" in page
    assert from_host(project.page, "/", f"elsewhere.example:{project.page}")[0] == 421
    (network,) = node.told()["NetworkSettings"]["Networks"].items()
    name, address = network[0], network[1]["IPAddress"]
    asked = docker("run", "--rm", f"--network={name}", "--entrypoint=python", "codezero:cpu", "-c", ASK, address,
                   str(project.page))  # fmt: skip
    assert asked.stdout.strip() == "403"
    bound = node.told()["NetworkSettings"]["Ports"]
    assert {one["HostIp"] for one in bound[f"{project.page}/tcp"]} == {"127.0.0.1"}
    assert "0.0.0.0" in {one["HostIp"] for one in bound[f"{project.p2p}/tcp"]}


def test_it_says_that_it_is_healthy_and_comes_back_when_it_dies(node: Node) -> None:
    until(lambda: node.told()["State"]["Health"]["Status"] == "healthy", node)
    until(lambda: status(node).get("iteration"), node)
    before = status(node)
    docker("exec", node.id, "python", "-c", KILL)
    until(lambda: node.told()["RestartCount"] >= 1 and status(node).get("running"), node)
    until(lambda: (status(node).get("iteration") or 0) > before["iteration"], node)
    after = status(node)
    assert (after["run"], after["peer_id"]) == (before["run"], before["peer_id"])
