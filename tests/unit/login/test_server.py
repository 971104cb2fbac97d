"""Both loopback addresses are held, or the server does not start and says which one is in the way."""

import http.client
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from builders.login import page

from codezero.errors import LoginError
from codezero.login.page_process import open_sockets


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
from builders.login import NO_ACCOUNT
from codezero.login.login import Login
from codezero.login.server import build_app, serve
login = Login(Path(sys.argv[1]), announce=lambda code: print(code, flush=True), accounts=NO_ACCOUNT)
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
