"""openai's client with bounds: many small requests to one server at once, within one deadline that nothing can stretch.

The requests run on an event loop in a private thread, so that whatever hangs, a name look-up included, is left behind.
Retries and status errors are openai's; connections, headers and sizes are ours."""

import asyncio
import logging
import os
import ssl
from collections.abc import Callable, Collection, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Annotated, Generic, TypeVar

import httpx2
import msgspec
import openai

from codezero.errors import ConfigError, EndpointError, translated
from codezero.system.http_client import LoopThread, check_url, first_cause, is_loopback, proxy_for, trusted, why
from codezero.system.signals import Backoff

logger = logging.getLogger(__name__)

MAX_BODY = 1 << 20  # bytes of one response; an honest one has some kilobytes
RETRIES = 2  # of a request that failed to connect or got a passing status; openai doubles its pause of half a second
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 60.0  # seconds without requests after no answer; doubled by each further failure

_SENT_HEADERS = ("Host", "Content-Length", "Transfer-Encoding")
Answer = TypeVar("Answer")
Schema = TypeVar("Schema", bound=msgspec.Struct)


class InvalidResponse(EndpointError):
    """A response that no working server sends."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"sent an invalid response: {problem}")


def decode(body: bytes, schema: type[Schema]) -> Schema:
    """Unknown fields are ignored. Raises InvalidResponse."""
    fault = "not the JSON that was requested"
    with translated(InvalidResponse, fault, msgspec.DecodeError, UnicodeDecodeError, RecursionError, reason=False):
        return msgspec.json.decode(body, type=schema)


class _Message(msgspec.Struct, frozen=True):
    content: str | None = None


class _Choice(msgspec.Struct, frozen=True):
    message: _Message
    finish_reason: str | None = None


class ChatAnswer(msgspec.Struct, frozen=True):
    """An answer of `/v1/chat/completions`."""

    choices: Annotated[list[_Choice], msgspec.Meta(min_length=1)]


class RejectedRequest(EndpointError):
    """The server refuses this request; others it may answer."""


class UnusableEndpoint(EndpointError):
    """The server answers no request, now or as it is configured."""


class UnavailableEndpoint(UnusableEndpoint):
    """The server cannot be reached, fails, or is overloaded; later it may answer."""


_STATUSES = (
    ((400, 413, 422), RejectedRequest, "refused to read it {code}"),
    ((401, 403), UnusableEndpoint, "refuses the key {code}; set {key}"),
    ((429,), UnavailableEndpoint, "is asked too often {code}; lower {section}.requests"),
    ((501,), UnusableEndpoint, "fails {code}; see its own log"),
    (range(300, 400), UnusableEndpoint, "points elsewhere {code}; give the final address as {section}.url"),
    (range(400, 500), UnusableEndpoint, "does not know the address {code}; correct {section}.url or {section}.model"),
    (range(1000), UnavailableEndpoint, "fails {code}; see its own log"),
)  # HTTP statuses and their errors, to be read after "the judge"; the first match counts


@dataclass(frozen=True)
class EndpointRequest(Generic[Answer]):
    """Equal requests have the same answer. Not slotted: Python 3.11 makes no frozen, slotted generic."""

    path: str
    body: bytes
    parse: Callable[[bytes], Answer] = field(compare=False)  # raises InvalidResponse
    optional: bool = field(default=False, compare=False)  # not every server has this path


Answers = dict[EndpointRequest[Answer], Answer | EndpointError]


class EndpointClient(Generic[Answer]):
    """One server. role: what it is to this node, `judge`. section: of the config, where its address stands.

    A key is read from CODEZERO_<ROLE>_KEY and goes nowhere but into the request header. Raises ConfigError when the
    address or the key cannot be used."""

    def __init__(self, role: str, section: str, url: str, *, requests: int, seconds: float) -> None:
        """requests: most under way at once. seconds: deadline of one `ask`."""
        url = check_url(url, f"{section}.url", plain_http=True, mend=f"put a key into {_key_variable(role)}")
        if "?" in url or "#" in url:
            raise ConfigError(f"{section}.url must be a bare address like http://127.0.0.1:8000")
        self.url = url.rstrip("/").removesuffix("/v1").rstrip("/")
        self.failure: EndpointError | None = None  # why the last `ask` was not answered; None: the server is alive
        self._role, self._section, self._seconds = role, section, seconds
        self._too_late = EndpointError(f"did not answer in {seconds:g} s; start it, or raise {section}.seconds")
        self._backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        self._slots = asyncio.Semaphore(requests)
        transport = _BoundedTransport(self.url, _headers(self.url, role), requests)
        self._openai = openai.AsyncOpenAI(
            api_key="unused",  # else openai takes one from OPENAI_API_KEY; the transport adds the key of this server
            base_url=self.url,
            max_retries=RETRIES,
            timeout=None,
            http_client=httpx2.AsyncClient(transport=transport, trust_env=False),
        )
        self._thread: LoopThread | None = None

    @property
    def pause(self) -> float:
        """Seconds until the server is asked again; 0 after an answer."""
        return self._backoff.left

    def ask(self, requests: Collection[EndpointRequest[Answer]], seconds: float | None = None) -> Answers[Answer]:
        """An answer or its error for each, within `seconds` in all; early when the server proves unusable at once.
        Sends nothing during the `pause` after a failure."""
        if self.pause:
            return dict.fromkeys(requests, UnusableEndpoint(f"{self.failure}; next try in {self.pause:.0f} s"))
        if not requests:
            return {}
        self._thread = self._thread or LoopThread(f"{self._role} endpoint")
        answers = self._thread.run(self._send_all(requests, seconds or self._seconds))
        failures = [answer for answer in answers.values() if isinstance(answer, EndpointError)]
        if len(failures) < len(answers) or any(isinstance(failure, RejectedRequest) for failure in failures):
            self.failure = None
            self._backoff.succeeded()
        else:
            self.failure = failures[0] if failures else self._too_late
            self._backoff.failed()
        return {request: answers.get(request, self.failure or self._too_late) for request in requests}

    def close(self) -> None:
        """Drop what is under way and end the thread. May be called twice."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.run(self._openai.close())
            thread.close()

    async def _send_all(self, requests: Collection[EndpointRequest[Answer]], seconds: float) -> Answers[Answer]:
        """The answers, without those that were not answered in time."""
        answers: Answers[Answer] = {}
        try:
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                for request in requests:
                    group.create_task(self._send(request, answers))
        except* (TimeoutError, UnusableEndpoint):
            pass  # what was answered stands
        return answers

    async def _send(self, request: EndpointRequest[Answer], answers: Answers[Answer]) -> None:
        async with self._slots:
            try:
                response = await self._openai.post(request.path, cast_to=httpx2.Response, content=request.body)
                answers[request] = request.parse(response.content)
                return
            except openai.APIStatusError as error:
                status = error.status_code  # its text is the server's
                kind, text = next((kind, text) for statuses, kind, text in _STATUSES if status in statuses)
                key = _key_variable(self._role)
                failure = kind(text.format(code=f"(HTTP {status})", key=key, section=self._section))
            except (openai.APIConnectionError, UnavailableEndpoint) as error:
                reason = why(error, self.url, "start it")
                failure = UnavailableEndpoint(f"cannot be reached: {reason}, or correct {self._section}.url")
            except EndpointError as error:
                failure = error
            answered = any(not isinstance(answer, EndpointError) for answer in answers.values())
            answers[request] = failure
            if isinstance(failure, UnusableEndpoint) and not request.optional and not answered:
                raise failure


class _BoundedTransport(httpx2.AsyncHTTPTransport):
    """Sends only the headers that it is given, and takes of a response only the status and the body of a 200."""

    def __init__(self, url: str, headers: Mapping[str, str], requests: int) -> None:
        limits = httpx2.Limits(max_connections=requests)
        super().__init__(limits=limits, trust_env=False, proxy=proxy_for(url), verify=trusted())
        self._headers = headers

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        kept = {name: request.headers[name] for name in _SENT_HEADERS if name in request.headers}
        request.headers = httpx2.Headers({**kept, **self._headers})
        try:
            response = await super().handle_async_request(request)
        except httpx2.ConnectError as error:
            if not isinstance(first_cause(error), ssl.SSLCertVerificationError):
                raise  # and openai tries again
            await self.aclose()  # httpcore keeps the place of a tunnel in which TLS failed
            raise UnavailableEndpoint from error
        body = bytearray()
        try:
            async with aclosing(response.aiter_raw()) as chunks:
                async for chunk in chunks:
                    if response.status_code != 200:
                        break
                    body += chunk
                    if len(body) > MAX_BODY:
                        raise InvalidResponse(f"more than {MAX_BODY >> 20} MiB")
        finally:
            await response.aclose()
        return httpx2.Response(response.status_code, content=bytes(body))


def _key_variable(role: str) -> str:
    return f"CODEZERO_{role.upper()}_KEY"


def _headers(address: str, role: str) -> dict[str, str]:
    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
    key = os.environ.get(_key_variable(role), "").strip()
    if not key:
        return headers
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ConfigError(f"{_key_variable(role)} holds characters that no key has; set it again")
    url = httpx2.URL(address)
    if url.scheme == "http" and not is_loopback(address):
        logger.warning("the key for the %s goes unencrypted to %s; use https", role, url.host)
    return headers | {"Authorization": f"Bearer {key}"}
