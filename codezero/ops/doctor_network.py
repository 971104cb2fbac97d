"""Checks of the network: free ports, bootstrap addresses that answer, and reachability, with the port to open."""

import contextlib
import http.client
import ipaddress
import re
import secrets
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from codezero.config import NodeConfig, SwarmConfig
from codezero.errors import ConfigError, LoginError
from codezero.inspection.run_files import RunFiles
from codezero.inspection.status import newest_run
from codezero.login.page_process import wanted
from codezero.login.server import open_sockets
from codezero.ops.doctor_machine import Finding, fail, ok, unknown, warn
from codezero.swarm.messages import network_settings
from codezero.swarm.network_status import NetworkStatus

DIAL_SECONDS = 4.0
REQUEST_SECONDS = 3.0
MAX_RESPONSE = 1 << 16
MOST_WAYS_IN = 16
FRESH_SECONDS = 60.0
"""A network process writes its status every few seconds; an older one is of an earlier run."""
_DIALLED = re.compile(r"/(?:ip4|ip6|dns|dns4|dns6)/([^/\s]{1,255})/tcp/(\d{1,5})(?:/|$)")


def page_port(config: NodeConfig) -> Finding:
    if not wanted(config):
        return ok("the page is off")
    where = f"http://localhost:{config.login.port}"
    try:
        for listener in open_sockets(config.login.port):
            listener.close()
    except LoginError as error:
        if _is_page(config.login.port):
            return ok(f"{where} serves the page of a node already; others' processes stand by")
        return warn(f"{error}", "a node trains without its page")
    return ok(f"{where} is free on 127.0.0.1 and ::1")


def _is_page(port: int) -> bool:
    connection = http.client.HTTPConnection("localhost", port, timeout=REQUEST_SECONDS)
    try:
        connection.request("GET", "/healthz")
        return b'"limit_seconds"' in connection.getresponse().read(MAX_RESPONSE)
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def running_network(config: NodeConfig) -> NetworkStatus | None:
    """Of the node that runs here now; None: there is none, or its status is old."""
    with contextlib.suppress(ConfigError):
        run = RunFiles(newest_run(Path(config.run.directory), config.run.name), budget=1 << 16)
        if run.view("").running and run.network and abs(time.time() - run.network.time) < FRESH_SECONDS:
            return run.network
    return None


def p2p_port(config: SwarmConfig, network: NetworkStatus | None) -> Finding:
    """`network`: of a node of this machine that runs now. Raises ConfigError for settings no network can have."""
    if config.kind == "local":
        return ok("a swarm of one uses no port")
    network_settings(config)
    if not config.port:
        return warn(
            "swarm.port=0: any port that is free, so others who come later may not find it",
            "choose one, for example --p2p-port 38331",
        )
    try:
        _bound(config.host, config.port).close()
    except OSError as error:
        if network and any(_port_of(address) == config.port for address in network.addresses):
            return ok(f"TCP port {config.port} is used by this node, which is running")
        return fail(
            f"TCP port {config.port} of {config.host} cannot be listened at ({error.strerror})",
            "end what uses it, or choose another swarm.port or swarm.host",
        )
    return ok(f"TCP port {config.port} of {config.host} is free")


def ways_in(config: SwarmConfig) -> Finding:
    """Does anything listen at the bootstrap addresses? Who it is shows only when a node speaks with it."""
    if config.kind == "local" or not config.bootstrap:
        return ok("none is needed" if config.kind == "local" else "none is set: this node founds a swarm")
    addresses = list(config.bootstrap[:MOST_WAYS_IN])
    opened = _open_of(addresses)
    count = f"{sum(opened)} of {len(addresses)} ways in can be dialled"
    if all(opened):
        return ok(count)
    closed = ", ".join(address for address, is_open in zip(addresses, opened, strict=True) if not is_open)
    if any(opened):
        return warn(f"{count}; not {closed}")
    return fail(f"{count}: {closed}", "ask the founder for a new invitation; until then a node trains alone")


def reach(config: SwarmConfig, network: NetworkStatus | None) -> Finding:
    """Can others reach this node? A running one has asked its neighbours; else only a view from inside is possible."""
    if config.kind == "local":
        return ok("a swarm of one is reached by nobody")
    if network is not None:
        return {True: ok, False: warn, None: unknown}[network.reachable](network.reachability)
    if config.reachable == "no":
        return ok("as set: this node is relayed (swarm.reachable=no)")
    host = ipaddress.ip_address(config.host)
    if host.is_loopback and not config.announce:
        return warn(f"swarm.host={config.host}: this machine's own nodes alone reach it", "set swarm.host=0.0.0.0")
    if config.announce:
        return _announced(config)
    outward = str(host) if not host.is_unspecified else outward_address()
    return judge_outward(outward, config.port)


def judge_outward(outward: str | None, port: int) -> Finding:
    """outward: this machine's address towards others; None: it has none."""
    if outward is None:
        return fail("this machine has no way out", "connect it to a network")
    open_it = f"open TCP port {port or '(set one with --p2p-port)'} in the firewall"
    if ipaddress.ip_address(outward).is_global:
        return unknown(f"from inside: others dial {outward}", f"{open_it}; a running node asks its neighbours")
    return unknown(
        f"from inside: {outward} is an address of a local network",
        f"{open_it} and forward it in the router to {outward}, and set swarm.announce=[/ip4/YOUR_ADDRESS/tcp/{port}]; "
        "a running node asks its neighbours",
    )


def _announced(config: SwarmConfig) -> Finding:
    """Listen at the own port, and dial the own announced addresses."""
    token = secrets.token_bytes(16)
    try:
        listener = _bound(config.host, config.port)
    except OSError as error:
        return unknown(f"TCP port {config.port} is in use ({error.strerror}), and no node of this folder uses it")
    with listener:
        listener.listen(8)
        listener.settimeout(DIAL_SECONDS)
        reached = [address for address in config.announce if _comes_back(address, listener, token)]
    if len(reached) == len(config.announce):
        return ok(f"own announced addresses lead back here: {', '.join(reached)}")
    missed = ", ".join(address for address in config.announce if address not in reached)
    return unknown(
        f"{missed} does not lead back here, seen from inside, which some routers never allow",
        f"open TCP port {_port_of(missed)} and forward it to this machine's port {config.port}",
    )


def _comes_back(address: str, listener: socket.socket, token: bytes) -> bool:
    """Does a connection to the address arrive at this very listener?"""
    try:
        with _dial(address) as out:
            out.sendall(token)
            arrived, _ = listener.accept()
            with arrived:
                arrived.settimeout(DIAL_SECONDS)
                return arrived.recv(len(token)) == token
    except (OSError, OverflowError):
        return False


def _open_of(addresses: Sequence[str]) -> list[bool]:
    """Of each. A name that hangs in its look-up counts as closed, and is left behind."""
    opened = [False] * len(addresses)

    def dial(at: int) -> None:
        with contextlib.suppress(OSError, OverflowError):
            _dial(addresses[at]).close()
            opened[at] = True

    threads = [threading.Thread(target=dial, args=(at,), daemon=True) for at in range(len(addresses))]
    for thread in threads:
        thread.start()
    until = time.monotonic() + DIAL_SECONDS + 1
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return list(opened)


def _dial(address: str) -> socket.socket:
    """Raises OSError, also for what is no address, and OverflowError."""
    match = _DIALLED.match(address)
    if match is None:
        raise OSError(f"{address} is no address")
    return socket.create_connection((match[1], int(match[2])), DIAL_SECONDS)


def _bound(host: str, port: int) -> socket.socket:
    """Raises OSError."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(1)  # two may be bound to a port that nobody listens at yet
    except OSError:
        listener.close()
        raise
    return listener


def outward_address() -> str | None:
    """Of the interface that leads out; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        return str(probe.getsockname()[0])


def _port_of(address: str) -> int:
    match = _DIALLED.match(address)
    return int(match[2]) if match else 0
