"""The local network: a founder announces the code of a swarm there by multicast (mDNS, RFC 6762), newcomers listen.

Whoever is on the network may announce anything: what is heard is bounded text, and proves nothing.
"""

import contextlib
import threading
import time
from collections.abc import Generator, Sequence

from zeroconf import Error as ZeroconfError
from zeroconf import InterfaceChoice, ServiceBrowser, ServiceInfo, ServiceStateChange, Zeroconf

from codezero.errors import ConfigError
from codezero.swarm.network_status import own_addresses

SERVICE = "_codezero._tcp.local."
CODE = "code"
MAX_CODE = 240
"""Characters; a text of a DNS record has 255 bytes."""
MOST = 16
"""Announcements that are looked at; a swarm has one."""
ASK_SECONDS = 1.0
"""For the record of an announcement whose name alone was heard."""

Interfaces = Sequence[str] | InterfaceChoice
"""Addresses of the network cards in use, or all of them."""


@contextlib.contextmanager
def announced(code: str, port: int, interfaces: Interfaces = InterfaceChoice.All) -> Generator[None]:
    """Answer whoever asks the local network for swarms with `code`, until the context is left.

    port: TCP port of the node. Raises ConfigError for a code that does not fit and where there is no multicast.
    """
    if len(code) > MAX_CODE:
        raise ConfigError(f"the code has {len(code)} characters and --lan carries {MAX_CODE}; announce fewer addresses")
    # The end of a code is its checksum, so that two swarms have two names.
    name, here = f"{code[-20:]}.{SERVICE}", own_addresses() or ["127.0.0.1"]
    info = ServiceInfo(SERVICE, name, port=port, properties={CODE: code}, parsed_addresses=here)
    with _multicast(interfaces) as network:
        network.register_service(info)
        yield


def listen(seconds: float, interfaces: Interfaces = InterfaceChoice.All) -> list[str]:
    """The texts that are announced as codes, each once, after so long; they may be anybody's. Raises ConfigError."""
    names, answered = dict[str, None](), threading.Event()

    def note(name: str, state_change: ServiceStateChange, **_: object) -> None:
        if state_change is not ServiceStateChange.Removed and len(names) < MOST:
            names[name] = None
            answered.set()

    end = time.monotonic() + seconds
    with _multicast(interfaces) as network:
        ServiceBrowser(network, SERVICE, handlers=[note])
        answered.wait(seconds)
        time.sleep(max(0.0, min(seconds / 3, end - time.monotonic())))  # a second swarm may be slower to answer
        codes = dict[str, None]()
        for name in list(names):
            info = network.get_service_info(SERVICE, name, timeout=int(ASK_SECONDS * 1000))
            raw = info.properties.get(CODE.encode()) if info else None
            if raw and len(raw) <= MAX_CODE and raw.isascii():
                codes[raw.decode()] = None
    return list(codes)


@contextlib.contextmanager
def _multicast(interfaces: Interfaces) -> Generator[Zeroconf]:
    try:
        network = Zeroconf(interfaces=interfaces)
    except (OSError, ZeroconfError) as error:
        raise ConfigError(f"--lan needs a network with multicast: {error}; join by the code instead") from error
    with contextlib.closing(network):
        yield network
