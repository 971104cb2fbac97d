"""The network process's status: a small file, rewritten every few seconds, and its reader."""

import asyncio
import contextlib
import ipaddress
import logging
import re
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from codezero.errors import SwarmError
from codezero.system.files import PeerId, read_json, write_atomic

logger = logging.getLogger(__name__)

FOLDER = "network"  # Below a run's folder: what its network process writes
ADDRESSES = "addresses.txt"  # In a node's run folder: one multiaddress a line, written when others can join
DIRECT_ADDRESS = re.compile(r"/ip[46]/([0-9A-Fa-f:.]{2,45})/tcp/(\d{1,5})\b")
CONNECT_SECONDS = 3.0
FILE, MAX_FILE = "status.json", 4 << 20
DIRECT = "direct"
MAX_PEERS = 500  # In the file, the most recent first

Text = Annotated[str, Meta(max_length=512)]


class PeerLine(msgspec.Struct, frozen=True, kw_only=True):
    """One peer, as this node knows it."""

    peer: PeerId
    heard_seconds_ago: float
    bodies: int
    groups: int
    size: int  # Bytes of its bodies
    failures: dict[str, int]  # By offence, those that happened
    penalty: float
    state: str  # ok or quarantined
    reason: Text  # Why it is refused; empty when it is not
    way: Text = ""  # How its last body came: DIRECT, or the peer that relayed it; empty: none came since the start


class NetworkStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The network process at one moment."""

    time: float  # Seconds since 1970
    me: PeerId
    addresses: list[Text]  # That others can join with
    neighbours: int  # Nodes in the DHT's routing table
    round: int | None
    shards: int  # Shards of a round, as this node estimates
    reachable: bool | None  # None: not known yet
    reachability: Text  # In words, with the remedy; and what is wrong where nodes answer and nobody of the swarm is met
    peers: Annotated[list[PeerLine], Meta(max_length=MAX_PEERS)]


def replace_file(path: Path, content: bytes, *, private: bool = False) -> None:
    """Write all or nothing, without waiting for the disk. A failure is a warning."""
    try:
        write_atomic(path, content, private=private)
    except OSError as error:
        logger.warning("%s cannot be written: %s", path, error.strerror)


def read_status(folder: Path) -> NetworkStatus:
    """Raises SwarmError that says what is missing or broken."""
    path = folder / FILE
    try:
        return read_json(path, NetworkStatus, MAX_FILE)
    except FileNotFoundError as error:
        raise SwarmError(f"{path} is not there: no node with a network runs, or ran, in this folder") from error
    except (OSError, ValueError) as error:
        raise SwarmError(f"{path} cannot be read: {error}") from error


def port_of(*addresses: str) -> int:
    """Return the TCP port in the first multiaddress that has one; 0: none has."""
    match = re.search(r"/tcp/(\d{1,5})/", "\n".join(addresses))
    return int(match[1]) if match else 0


async def anybody_listens(addresses: Sequence[str]) -> bool:
    """Open a TCP connection to one of these multiaddresses; True where that tells nothing, as of a relayed one."""
    matches = [None if "p2p-circuit" in address else DIRECT_ADDRESS.match(address) for address in addresses]
    direct = [(match[1], int(match[2])) for match in matches if match]
    return len(direct) < max(1, len(addresses)) or any(await asyncio.gather(*(opens(*way) for way in direct)))


async def opens(host: str, port: int) -> bool:
    """Open a TCP connection, to tell whether something listens there."""
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, OverflowError):
        return False
    writer.close()
    with contextlib.suppress(OSError):
        async with asyncio.timeout(CONNECT_SECONDS):
            await writer.wait_closed()
    return True


def remembered_port(addresses: Path, host: str) -> int:
    """Return the port of the last start if it is free, so that peers find this node again; else 0."""
    port = port_of(addresses.read_text()) if addresses.is_file() else 0
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, OverflowError):
            return 0
    return port


def outward_address(version: int = 4) -> str | None:
    """Find the address of the interface that leads out, if there is one; nothing is sent. version: of IP."""
    family, outside = (socket.AF_INET6, "2001:db8::1") if version == 6 else (socket.AF_INET, "192.0.2.1")
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((outside, 9))
        return str(probe.getsockname()[0])
    return None


def own_addresses(version: int = 4) -> list[str]:
    """List the outward address, or in a closed network those of all interfaces but loopback and links."""
    if outward := outward_address(version):
        return [outward]
    import psutil

    family = socket.AF_INET6 if version == 6 else socket.AF_INET
    every = [entry.address for entries in psutil.net_if_addrs().values() for entry in entries if entry.family == family]
    addresses = [ipaddress.ip_address(address.partition("%")[0]) for address in every]
    return [str(address) for address in addresses if not address.is_loopback and not address.is_link_local]
