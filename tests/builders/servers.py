"""A server in a thread of this process, for as long as a test asks it."""

from collections.abc import Generator
from contextlib import contextmanager
from socketserver import BaseServer
from threading import Thread
from typing import TypeVar

Served = TypeVar("Served", bound=BaseServer)


@contextmanager
def running(server: Served) -> Generator[Served]:
    with server:
        thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
