"""In a container the page is also where a published port arrives, for the host alone; elsewhere that is refused."""

import http.client
from pathlib import Path

import pytest
from builders.login import page

from codezero.errors import LoginError
from codezero.login import server
from codezero.login.server import Entry, default_route, find_entry

HEAD = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
OWN = "eth0\t0000FEA9\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
DEFAULT = "eth0\t00000000\t0100007F\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
REJECTED = DEFAULT.replace("0003", "0200")


@pytest.mark.parametrize(
    ("routes", "expected"),
    [
        (HEAD + OWN + DEFAULT, ("eth0", "127.0.0.1")),
        (HEAD + REJECTED + DEFAULT.replace("eth0", "eth1"), ("eth1", "127.0.0.1")),
        (HEAD + OWN + REJECTED, None),
        (HEAD, None),
        ("", None),
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
