"""The port on both loopback addresses, or nothing: a browser asks ::1 or 127.0.0.1 as it likes, and whoever held the
other one would be the same site to it and could ask for our passkey.
"""

import errno
import logging
import socket

from codezero.errors import LoginError

logger = logging.getLogger("codezero.login")

ADDRESSES = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
LOOPBACK = tuple(host for _, host in ADDRESSES)
ABSENT = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
"""This machine has no such address, so nobody else can hold it either."""


def open_sockets(port: int, also: str = "") -> list[socket.socket]:
    """Bound, one for each address; port 0 takes a free one. also: another IPv4 address of this machine, empty for none.

    Raises LoginError that names the address in the way.
    """
    bound: list[socket.socket] = []
    try:
        for family, host in [*ADDRESSES, *([(socket.AF_INET, also)] if also else [])]:
            try:
                bound.append(_bind(family, host, bound[0].getsockname()[1] if bound else port))
            except OSError as error:
                if error.errno not in ABSENT:
                    raise _refused(host, port, error) from error
                logger.info("this machine has no address %s; the page is served at the other one", host)
    except LoginError:
        for one in bound:
            one.close()
        raise
    if not bound:
        raise LoginError("this machine has neither 127.0.0.1 nor ::1; the page cannot be served")
    return bound


def _bind(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener


def _refused(host: str, port: int, error: OSError) -> LoginError:
    shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if error.errno == errno.EADDRINUSE:
        return LoginError(f"{shown} is taken by another process; end it, or set login.port to another number")
    return LoginError(f"{shown} cannot be listened at: {error.strerror}; set login.port to another number")
