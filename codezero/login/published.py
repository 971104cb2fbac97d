"""Inside a container: the one address at which a port that the engine publishes arrives, and from whom.

A published port does not reach a container's loopback: the engine passes it to the container's own address, where it
comes from the gateway, which is the host. The other containers of that network reach the same address and come from
theirs. So the page listens there too and answers the gateway alone: still nobody but this machine.
"""

import socket
import struct
from dataclasses import dataclass
from pathlib import Path

from codezero.errors import LoginError

MARKS = (Path("/.dockerenv"), Path("/run/.containerenv"))
"""One of them is in every container of Docker or Podman."""
ROUTES = Path("/proc/net/route")
INTERFACES = Path("/sys/class/net")
UP_BY_GATEWAY = 0x3
"""RTF_UP and RTF_GATEWAY of linux/route.h."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Where the published port arrives."""

    address: str
    """IPv4, of this container."""
    gateway: str
    """IPv4, of the host in the container's network."""


def default_route(routes: str) -> tuple[str, str] | None:
    """Interface and gateway of the first way to everywhere, in the form of /proc/net/route: addresses in hexadecimal,
    in the machine's byte order. None: there is none."""
    for line in routes.splitlines()[1:]:
        interface, destination, gateway, flags, _, _, _, mask, *_ = line.split()
        if int(destination, 16) == int(mask, 16) == 0 and int(flags, 16) & UP_BY_GATEWAY == UP_BY_GATEWAY:
            return interface, socket.inet_ntoa(struct.pack("=I", int(gateway, 16)))
    return None


def is_far_end(interface: Path) -> bool:
    """Is it one end of a pair whose other end is elsewhere, as an engine gives it to a container? A machine's own
    cards are not, and they are what a container with the host's network sees."""
    return _number(interface / "iflink") != _number(interface / "ifindex")


def find_entry() -> Entry:
    """Raises LoginError where no port is published like that."""
    found = None
    if any(mark.exists() for mark in MARKS) and ROUTES.exists():
        found = default_route(ROUTES.read_text())
    if found is None or not is_far_end(INTERFACES / found[0]):
        raise LoginError(
            "login.publish=true is for a container with a network of its own, and this is none; "
            "give login.publish=false: the page is at localhost here"
        )
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as towards:
        towards.connect((found[1], 9))  # sends nothing; the system chooses the address it would send from
        return Entry(address=towards.getsockname()[0], gateway=found[1])


def _number(file: Path) -> int:
    return int(file.read_text())
