"""The page is at both loopback addresses, and in a container where a published port arrives, for the host alone."""

import http.client
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from builders.login import page

from codezero.config import NodeConfig
from codezero.errors import LoginError
from codezero.inspection.page import build_page
from codezero.login import server
from codezero.login.guard import ACCESS, Access
from codezero.login.login import Login
from codezero.login.page_process import open_sockets
from codezero.login.server import Entry, default_route, find_entry


def here(host: str, family: socket.AddressFamily) -> bool:
    with socket.socket(family) as probe:
        try:
            probe.bind((host, 0))
        except OSError:  # containers often have no IPv6
            return False
    return True


HOSTS = {"127.0.0.1": socket.AF_INET} | ({"::1": socket.AF_INET6} if here("::1", socket.AF_INET6) else {})


@pytest.mark.parametrize("taken", HOSTS)
def test_either_address_in_use_is_named_and_the_other_is_given_back(taken: str) -> None:
    with socket.socket(HOSTS[taken]) as other:
        other.bind((taken, 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(LoginError, match=rf"{taken}.*:{port} is taken by another process.*login.port"):
            open_sockets(port)
        for host, family in HOSTS.items():
            if host != taken:
                with socket.socket(family) as free:
                    free.bind((host, port))


def test_it_is_reached_at_both_addresses_and_at_no_other(tmp_path: Path) -> None:
    with page(tmp_path) as tab:
        for host in HOSTS:
            connection = http.client.HTTPConnection(host, tab.port, timeout=120)
            connection.request("GET", "/api/session", headers={"Host": f"localhost:{tab.port}"})
            assert connection.getresponse().status == 200
            connection.close()
        held = [one.laddr.ip for one in psutil.Process().net_connections("tcp") if one.status == psutil.CONN_LISTEN]
        assert sorted(held) == sorted(HOSTS)


SERVE = """
import asyncio, sys
from pathlib import Path
from codezero.login.login import Login
from codezero.login.server import build_app, serve
login = Login(Path(sys.argv[1]), announce=lambda code: print(code, flush=True))
asyncio.run(serve(build_app(login), int(sys.argv[2])))
"""


def test_a_signal_ends_the_server_with_its_work_done(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", SERVE, str(tmp_path), str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stderr
        assert len(process.stdout.readline().strip()) == len("1234-5678")
        process.terminate()
        assert process.wait(120) == 0
        assert process.stderr.read() == ""


HEAD = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
OWN = "eth0\t0000FEA9\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
DEFAULT = "eth0\t00000000\t0100007F\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
REJECTED = DEFAULT.replace("0003", "0200")


@pytest.mark.parametrize(
    ("routes", "expected"),
    [
        (HEAD + OWN + DEFAULT, ("eth0", "127.0.0.1")),
        (HEAD + REJECTED + DEFAULT.replace("eth0", "eth1"), ("eth1", "127.0.0.1")),
        *((routes, None) for routes in (HEAD + OWN + REJECTED, HEAD, "")),
    ],
    ids=["one", "second", "none-up", "empty", "nothing"],
)
def test_the_way_to_everywhere_is_read_as_the_kernel_writes_it(routes: str, expected: tuple[str, str] | None) -> None:
    assert default_route(routes) == expected


def machine(folder: Path, monkeypatch: pytest.MonkeyPatch, *, container: bool, far_end: bool, routes: str) -> None:
    """What the kernel and the engine tell, laid out in `folder`."""
    (folder / "eth0").mkdir()
    (folder / "eth0" / "ifindex").write_text("11\n")
    (folder / "eth0" / "iflink").write_text("12\n" if far_end else "11\n")
    (folder / "route").write_text(routes)
    if container:
        (folder / "mark").touch()
    monkeypatch.setattr(server, "MARKS", (folder / "mark",))
    monkeypatch.setattr(server, "ROUTES", folder / "route")
    monkeypatch.setattr(server, "INTERFACES", folder)


def test_a_container_is_reached_from_its_gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(tmp_path, monkeypatch, container=True, far_end=True, routes=HEAD + DEFAULT)
    assert find_entry() == Entry(address="127.0.0.1", gateway="127.0.0.1")


@pytest.mark.parametrize(
    ("container", "far_end", "routes"),
    [(False, True, HEAD + DEFAULT), (True, False, HEAD + DEFAULT), (True, True, HEAD + OWN)],
    ids=["no-container", "network-of-the-host", "no-network"],
)
def test_elsewhere_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, container: bool, far_end: bool, routes: str
) -> None:
    machine(tmp_path, monkeypatch, container=container, far_end=far_end, routes=routes)
    with pytest.raises(LoginError, match=r"login\.publish=true is for a container.*give login\.publish=false"):
        find_entry()


def asked(source: str, address: str, port: int, path: str) -> int:
    """The status of what is answered to `source`."""
    connection = http.client.HTTPConnection(address, port, timeout=120, source_address=(source, 0))
    try:
        connection.request("GET", path, headers={"Host": f"localhost:{port}"})
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize("path", ["/", "/api/session", "/api/nothing"])
def test_the_host_is_answered_and_a_neighbour_is_not(tmp_path: Path, path: str) -> None:
    with page(tmp_path, entry=Entry(address="127.0.0.2", gateway="127.0.0.3")) as tab:
        expected = asked("127.0.0.1", "127.0.0.1", tab.port, path)
        assert expected != 403
        assert asked("127.0.0.3", "127.0.0.2", tab.port, path) == expected
        assert asked("127.0.0.4", "127.0.0.2", tab.port, path) == 403


def test_the_host_has_to_ask_for_localhost_like_anybody(tmp_path: Path) -> None:
    with page(tmp_path, entry=Entry(address="127.0.0.2", gateway="127.0.0.1")) as tab:
        assert tab.get("/api/session").status == 200
        assert tab.get("/api/session", Host=f"rebound.example:{tab.port}").status == 421


ROUTES = {
    Access.OPEN: "session claim/passkey/options claim/passkey/verify claim/passphrase login/passkey/options "
    "login/passkey/verify login/passphrase logout",
    Access.READABLE: "runs runs/{run} runs/{run}/events runs/{run}/rollouts runs/{run}/rollouts/{id} "
    "runs/{run}/settings runs/{run}/log runs/{run}/checkpoints runs/{run}/leaderboard "
    "runs/{run}/market runs/{run}/market/games runs/{run}/market/games/{id}",
    Access.BEARER: "sign-transaction claim/code",
}


def test_each_route_has_the_access_it_is_meant_to_have(tmp_path: Path) -> None:
    config = NodeConfig()
    config.login.directory, config.run.directory = str(tmp_path / "login"), str(tmp_path / "runs")
    (tmp_path / "runs").mkdir()
    login = Login(tmp_path / "login", announce=lambda _: None)
    app = build_page(config, None, login)
    routes = {f"/api/{path}": access for access, paths in ROUTES.items() for path in paths.split()}
    assert dict(app[ACCESS]) == routes | {
        "/healthz": Access.PROBE, "/metrics": Access.PROBE, "/{path}": Access.OPEN,
    }  # fmt: skip
