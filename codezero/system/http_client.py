"""Shared by our HTTP clients: a thread, checked addresses, the environment's proxy and authorities, and reasons."""

import asyncio
import contextlib
import http.client
import ipaddress
import os
import re
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Coroutine
from functools import cache
from typing import Any, TypeVar
from urllib.parse import urlsplit

from codezero.errors import ConfigError, translated

T = TypeVar("T")
AUTHORITIES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
MAX_BEGINNING = 1 << 16  # Bytes


class LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self, name: str) -> None:
        self._loop, self._closing = asyncio.new_event_loop(), asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._closing.wait())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run from another thread; an exception raised in that one cancels the work."""
        running = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return running.result()
        finally:
            running.cancel()

    def close(self) -> None:
        """Cancel the work that still runs, and end."""
        self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join()


def check_url(url: str, name: str, *, plain_http: bool = False, mend: str = "it would end up in logs") -> str:
    """`url` if it may be asked; `name` is the setting that holds it. Raises ConfigError, without repeating the URL.
    Plain http goes to this machine only, unless `plain_http`: between machines anyone could read and change it."""
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0 or not url.isprintable():
            raise ValueError
    except ValueError:  # its text may hold the URL
        raise ConfigError(f"{name} holds no http or https address; give one like http://127.0.0.1:8545") from None
    if parts.username is not None or parts.password is not None:
        raise ConfigError(f"{name} must hold no password; {mend}")
    if parts.scheme == "http" and not plain_http and not is_loopback(url):
        raise ConfigError(f"{name}: {parts.hostname} is another machine; use https, or allow plain http to it")
    return url


def is_loopback(url: str) -> bool:
    """Tell whether a URL is on this machine, by a name or number that no name server decides."""
    with contextlib.suppress(ValueError):
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    return False


def proxy_for(url: str) -> str | None:
    """HTTPS_PROXY, HTTP_PROXY or ALL_PROXY, unless NO_PROXY has the host; one of SOCKS is not spoken to."""
    with contextlib.suppress(ValueError):  # of an address that whoever asks it refuses
        parts, proxies = urlsplit(url), urllib.request.getproxies()
        proxy = proxies.get(parts.scheme) or proxies.get("all") or ""
        proxy = proxy if "://" in proxy or not proxy else f"http://{proxy}"
        if urlsplit(proxy).scheme in ("http", "https") and not is_loopback(url):
            return None if urllib.request.proxy_bypass(parts.netloc.rpartition("@")[2]) else proxy
    return None


def trusted() -> ssl.SSLContext:
    """Make the client's side of TLS. Raises ConfigError that names the variable."""
    return _trusted(tuple((name, place) for name in AUTHORITIES if (place := os.environ.get(name))))


@cache
def _trusted(places: tuple[tuple[str, str], ...]) -> ssl.SSLContext:
    context = ssl.create_default_context()
    for name, place in places:
        with translated(ConfigError, f"{name}={place} has no certificates that can be read", OSError):
            context.load_verify_locations(**{"capath" if os.path.isdir(place) else "cafile": place})
    return context


def answer_of(url: str, seconds: float) -> bytes | None:
    """The beginning of what is answered to a GET, with whatever status; None: nobody answers."""
    proxy = proxy_for(url)
    try:
        secure = urllib.request.HTTPSHandler(context=trusted())
        proxies = urllib.request.ProxyHandler({"http": proxy, "https": proxy} if proxy else {})
        with urllib.request.build_opener(proxies, secure).open(url, timeout=seconds) as response:
            return response.read(MAX_BEGINNING)
    except urllib.error.HTTPError as error:
        return error.read(MAX_BEGINNING)
    except (OSError, ValueError, http.client.HTTPException):
        return None


def first_cause(error: BaseException) -> BaseException:
    """The system's error that a client's comes from, else the client's."""
    causes = [error]
    while inner := causes[-1].__cause__ or causes[-1].__context__:
        causes.append(inner)
    return next((cause for cause in reversed(causes) if isinstance(cause, OSError)), error)


def why(error: BaseException, url: str, mend: str = "") -> str:
    """Why a request to `url` failed, in a few words without an address, and what mends it: `mend` for the server."""
    first = first_cause(error)
    if isinstance(first, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {first.verify_message}; name the authority's file in SSL_CERT_FILE"
    number = 0 if isinstance(first, ssl.SSLError) else getattr(first, "errno", None) or 0
    text = os.strerror(number) if number > 0 else getattr(first, "strerror", None) or str(first) or type(first).__name__
    words, proxy = re.sub(r"\S+://\S+|[^ -~]", "", text)[:200], urlsplit(proxy_for(url) or "")
    if proxy.hostname:
        return f"{words}, through the proxy {proxy.hostname}:{proxy.port}; see HTTPS_PROXY and NO_PROXY"
    return f"{words}{'' if is_loopback(url) else ', without a proxy'}{mend and f'; {mend}'}"
