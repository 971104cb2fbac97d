"""Rollout servers: their processes on loopback, one decoder over all of them, and the door for other machines.

Requests have vLLM's form. Servers are not trusted: answers are bounded and checked, and a server that fails, hangs, or
names a version that it was not given is unfit, with all that it was decoding, until it has taken the newest version."""

import asyncio
import contextlib
import hashlib
import http.client
import logging
import math
import socket
import threading
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import aiohttp
import msgspec
from aiohttp import web
from msgspec import Meta

from codezero.config import host_and_port
from codezero.errors import ConfigError, EndpointError, RolloutError, translated
from codezero.models.base import Prompts
from codezero.models.generation import Drawn, Ended
from codezero.system.child import Child, how_it_ended
from codezero.system.files import UNDECODABLE, Hex, set_aside
from codezero.system.http_client import LoopThread, proxy_for, trusted
from codezero.system.signals import Backoff, Stop
from codezero.system.web import HEAD_SECONDS, check_bearer
from codezero.types import Metrics
from codezero.weights import TOKEN
from codezero.weights.versions import PolicyVersion

logger = logging.getLogger(__name__)

FIRST_SECONDS, LEAST_RATE = 20.0, 50.0  # limit of a group; a second more for so many tokens that its server decodes
PUSH_SECONDS, LEAST_BYTES = 60.0, 8 << 20  # limit of a version; a second more for so many bytes of a whole one
TRIES, POLL_SECONDS = 6, 0.01  # failures that a group survives; between two looks at what changes
TOKEN_BYTES, MAX_SMALL = 512, 1 << 16  # most that an answer has for each token, and beside them
FAULTS = (aiohttp.ClientError, TimeoutError, EndpointError)
HOST = "127.0.0.1"
WATCH_SECONDS, START_SECONDS, HUNG_SECONDS = 0.5, 1800.0, 60.0  # of polls; until a first answer; after one
MAX_ANSWER = 256 << 20
Count = Annotated[int, Meta(ge=1)]
Tokens = list[Annotated[int, Meta(ge=0)]]


class Sampling(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of `vllm.SamplingParams`."""

    n: Count
    max_tokens: Count
    temperature: Annotated[float, Meta(ge=0, le=2)]
    seed: Annotated[int, Meta(ge=0, lt=1 << 53)]
    stop_token_ids: Annotated[Tokens, Meta(max_length=64)]
    logprobs: Literal[0] = 0  # of the chosen token, and no others
    top_p: Annotated[float, Meta(ge=1, le=1)] = 1.0
    top_k: Literal[0] = 0
    ignore_eos: bool = True  # what the engine takes for EOS; ours are listed
    detokenize: bool = False
    # bars the ids that the tokenizer has not, which a server without a tokenizer cannot know
    logit_bias: dict[Annotated[int, Meta(ge=0)], Annotated[float, Meta(ge=-1e4, le=0)]] | None = None


class GenerateRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    model: Literal["policy"]
    token_ids: Annotated[Tokens, Meta(min_length=1)]
    sampling_params: Sampling
    cache_salt: Hex  # state of the weights: of no others are keys and values of a prompt used again


def requests(prompts: int, params: Sampling) -> list[Sampling]:
    """One for each prompt. vLLM gives its draws the seeds s, s + 1, ...; so s is far from those of other prompts."""
    digests = [hashlib.sha256(f"{params.seed} {at}".encode()).digest()[:6] for at in range(prompts)]
    return [msgspec.structs.replace(params, seed=int.from_bytes(digest)) for digest in digests]


class LogProb(msgspec.Struct, frozen=True):
    logprob: Annotated[float, Meta(le=0)]


class Span(msgspec.Struct, frozen=True):
    version: Annotated[str, Meta(pattern=r"\A[0-9]{1,16}\Z")]
    start: int
    end: int


class Choice(msgspec.Struct, frozen=True):
    index: int
    token_ids: Annotated[Tokens, Meta(min_length=1)]
    logprobs: dict[Literal["content"], list[LogProb]]
    weight_versions: Annotated[list[Span], Meta(min_length=1)]


class GenerateAnswer(msgspec.Struct, frozen=True):
    choices: list[Choice]


class Target(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """See `PolicyVersion`."""

    number: Annotated[int, Meta(ge=0, lt=1 << 53)]
    state: Hex


class UpdateRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    update_info: Target


def parse_answer(body: bytes, params: Sampling, vocabulary: int, versions: Collection[int]) -> list[Drawn]:
    """The attempts in an answer to sampling parameters; `versions` may have drawn them. Raises EndpointError."""
    with translated(EndpointError, "sent an answer that breaks its schema", *UNDECODABLE):
        choices = sorted(msgspec.json.decode(body, type=GenerateAnswer).choices, key=lambda choice: choice.index)
    if [choice.index for choice in choices] != list(range(params.n)):
        raise EndpointError(f"sent {len(choices)} attempts, and {params.n} were asked for")
    drawn, most, stops = list[Drawn](), params.max_tokens, params.stop_token_ids
    for choice in choices:
        ids, logprobs = choice.token_ids, [token.logprob for token in choice.logprobs.get("content", [])]
        if max(ids) >= vocabulary or len(ids) != len(logprobs) or not all(map(math.isfinite, logprobs)):
            raise EndpointError("sent tokens that the model has not, or no log-probability for each")
        if len(ids) > most or any(token in stops for token in ids[:-1]) or (len(ids) < most and ids[-1] not in stops):
            raise EndpointError("sent an attempt that ends too early or too late")
        spans, numbers = choice.weight_versions, {int(span.version) for span in choice.weight_versions}
        whole = spans[0].start == 0 and spans[-1].end == len(ids) and all(a.end == b.start for a, b in pairwise(spans))
        if not whole or not numbers <= set(versions):
            raise EndpointError(f"names versions {sorted(numbers)}, and not all its tokens can be of them")
        drawn.append(Drawn(ids, logprobs, min(numbers)))
    return drawn


@dataclass(eq=False)
class RolloutServer:
    """A server as the client sees it; whoever looks after its process writes `address` and `restarts`."""

    address: str = ""  # http://HOST:PORT; empty: it is down
    token: str = ""  # borne by requests to it; empty: none
    restarts: int = 0
    given: tuple[str, PolicyVersion] | None = None  # the address and what it took there; None: unfit
    active: int = 0  # attempts under way
    losses: int = 0
    pause: Backoff = field(default_factory=lambda: Backoff(1.0, 300.0))

    @property
    def version(self) -> PolicyVersion | None:
        return self.given[1] if self.given and self.given[0] == self.address else None


@dataclass(eq=False, kw_only=True)
class RolloutServers:
    """A `generation.Backend`, for any thread. Nothing is drawn before the first `follow`."""

    servers: Sequence[RolloutServer]
    vocabulary: int
    stop_ids: Sequence[int]
    max_requests: int  # attempts that a server decodes at once
    patience: float  # seconds of a draw without any fit server
    bias: dict[int, float] | None = None  # of logits, where servers do not bar ids by themselves

    def __post_init__(self) -> None:
        self._newest: PolicyVersion | None = None
        self._pushed: list[int] = []
        self._whole = self._failed = 0  # bytes of a whole version; requests
        self._push_seconds = 0.0
        self._reason = "no version was pushed"
        self._thread = LoopThread("rollout")
        self._session = self._thread.run(self._open())

    def draw(
        self, prompts: Prompts, repeats: int, max_new_tokens: int, temperature: float, seed: int, ended: Ended = None
    ) -> list[Drawn]:
        """A request for each prompt. Raises RolloutError."""
        params = Sampling(repeats, max_new_tokens, temperature, seed, list(self.stop_ids), logit_bias=self.bias)
        return self._thread.run(self._draw(prompts, requests(len(prompts), params), ended))

    def follow(self, version: PolicyVersion) -> None:
        """Return when every fit server decodes with this version or is unfit; an unfit one comes after when it can."""
        begun = time.monotonic()
        self._pushed.append(version.number)
        self._whole = max(version.anchor, self._whole)
        self._newest = version  # last: a push reads the others
        while any((s.given or not s.losses) and s.address and s.version != version for s in self.servers):
            time.sleep(POLL_SECONDS)
        self._push_seconds = time.monotonic() - begun

    def metrics(self) -> Metrics:
        return {
            "rollout/servers_fit": sum(server.version is not None for server in self.servers),
            "rollout/restarts": sum(server.restarts for server in self.servers),
            "rollout/failed_requests": self._failed,
            "rollout/push_seconds": self._push_seconds,
        }

    def close(self) -> None:
        self._thread.run(self._end())
        self._thread.close()

    async def _open(self) -> aiohttp.ClientSession:
        self._tasks: set[asyncio.Task[Any]] = {asyncio.create_task(self._keep_up(each)) for each in self.servers}
        connector = aiohttp.TCPConnector(limit=0, ssl=trusted())
        options: dict[str, Any] = {"connector": connector, "cookie_jar": aiohttp.DummyCookieJar()}
        return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None), auto_decompress=False, **options)

    async def _end(self) -> None:
        for task in self._tasks:  # a draw that is under way too: its server has done nothing wrong
            task.cancel()
        await self._session.close()

    async def _draw(self, prompts: Prompts, params: Sequence[Sampling], ended: Ended) -> list[Drawn]:
        async def drawn(at: int) -> list[Drawn]:
            group = await self._group(prompts[at], params[at])
            if ended:
                ended(at, group)
            return group

        groups = [asyncio.create_task(drawn(at)) for at in range(len(prompts))]
        self._tasks.update(groups)
        try:
            return [draw for group in await asyncio.gather(*groups) for draw in group]
        finally:
            for group in groups:
                group.cancel()
            self._tasks.difference_update(groups)

    async def _group(self, prompt: Sequence[int], params: Sampling) -> list[Drawn]:
        """Draw with whichever server is fit and has room, at the TRIES-th time at the latest. Raises RolloutError."""
        count, most = params.n, params.max_tokens
        tries, deadline = 0, time.monotonic() + self.patience
        while tries < TRIES:
            fit = [(server, server.version) for server in self.servers if server.version is not None]
            free = [each for each in fit if each[0].active + count <= self.max_requests or not each[0].active]
            deadline = time.monotonic() + self.patience if fit else deadline
            if time.monotonic() > deadline:
                raise RolloutError(f"no rollout server was fit for {self.patience:g} s: {self._reason}")
            if not free:
                await asyncio.sleep(POLL_SECONDS)
                continue
            server, version = min(free, key=lambda each: each[0].active)
            body = GenerateRequest("policy", list(prompt), params, version.state)
            tries, losses = tries + 1, server.losses
            server.active += count
            try:
                async with asyncio.timeout(FIRST_SECONDS + server.active * most / LEAST_RATE):
                    limit = MAX_SMALL + TOKEN_BYTES * count * most
                    answer = await self._post(server, "inference/v1/generate", body, limit)
                versions = [each for each in self._pushed if each >= version.number]
                drawn = parse_answer(answer, params, self.vocabulary, versions)
                if server.losses == losses:
                    server.pause.succeeded()
                    return drawn
            except FAULTS as error:
                self._failed += 1
                self._lose(server, losses, error)
            finally:
                server.active -= count
        raise RolloutError(f"{TRIES} tries at one group failed, the last because {self._reason}")

    def _lose(self, server: RolloutServer, losses: int, error: Exception) -> None:
        """losses: of it when that began which failed."""
        if server.losses == losses:
            server.given, server.losses = None, losses + 1
            self._reason = f"{server.address or 'a server'} {error or type(error).__name__}"
            logger.warning("unfit for %.0f s: %s", server.pause.failed(), self._reason)

    async def _keep_up(self, server: RolloutServer) -> None:
        while True:
            newest = self._newest
            if newest and server.address and server.version != newest and (server.given or not server.pause.left):
                await self._push(server, newest)
            await asyncio.sleep(POLL_SECONDS)

    async def _push(self, server: RolloutServer, version: PolicyVersion) -> None:
        address, losses, label = server.address, server.losses, {"weight_version": str(version.number)}
        target = UpdateRequest(Target(version.number, version.state))
        try:
            async with asyncio.timeout(PUSH_SECONDS + self._whole / LEAST_BYTES):
                await self._post(server, "pause?mode=keep")
                await self._post(server, "start_weight_update")
                await self._post(server, "update_weights", target)
                await self._post(server, "finish_weight_update", label)
                await self._post(server, "resume")
                if f'"{version.number}"'.encode() not in await self._post(server, "weight_info"):
                    raise EndpointError(f"does not say that it has version {version.number}")
            server.given = address, version
        except FAULTS as error:
            self._lose(server, losses, error)
            for route in ("finish_weight_update", "resume"):  # without a label: it keeps its own
                with contextlib.suppress(*FAULTS):
                    async with asyncio.timeout(FIRST_SECONDS):
                        await self._post(server, route)

    async def _post(self, server: RolloutServer, route: str, body: object = None, limit: int = MAX_SMALL) -> bytes:
        """GET of weight_info. Raises aiohttp.ClientError and EndpointError."""
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        headers |= {"Authorization": f"Bearer {server.token}"} if server.token else {}
        method, url = "GET" if route == "weight_info" else "POST", f"{server.address}/{route}"
        way: Any = {"headers": headers, "proxy": proxy_for(url), "allow_redirects": False}
        async with self._session.request(method, url, data=msgspec.json.encode(body or {}), **way) as response:
            answer = await read_answer(response, limit)
        if response.status != 200:
            reason = (answer[:200].decode(errors="replace").splitlines() or [""])[0]
            raise EndpointError(f"answers {response.status} to {route}: {reason}")
        return answer


async def read_answer(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """Raises EndpointError above `limit` bytes."""
    answer = bytearray()
    async for piece in response.content.iter_any():
        answer += piece
        if len(answer) > limit:
            raise EndpointError(f"sends more than {limit} bytes")
    return bytes(answer)


class ServerProcess:
    """Starts a server again whenever it dies or hangs, at another port, with a pause of a second to a minute."""

    def __init__(self, command: Callable[[int], Sequence[str]], env: Mapping[str, str], log: Path) -> None:
        self.server, self.problem = RolloutServer(), ""
        self._command, self._env, self._log, self._stop = command, env, log, Stop()
        self._thread = threading.Thread(target=self._supervise, name="rollout server", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.ask()
        self._thread.join()

    def _supervise(self) -> None:
        pause = Backoff(1.0, 60.0)
        while not self._stop:
            try:
                with socket.create_server((HOST, 0)) as free:
                    port = free.getsockname()[1]
                with set_aside(self._log).open("a+b") as log:
                    with Child(self._command(port), env=self._env, stdout=log, stderr=log) as child:
                        self._watch(child, port, pause)
                    self.server.address = ""
                    self.problem = f"a rollout server {how_it_ended(child.returncode, log)}; see {self._log}"
            except OSError as error:
                self.problem = f"a rollout server cannot be started: {error}"
            self.server.restarts += not self._stop
            self._stop.wait(pause.failed())

    def _watch(self, child: Child, port: int, pause: Backoff) -> None:
        answered, patience = time.monotonic(), START_SECONDS
        while child.poll() is None and not self._stop and time.monotonic() < answered + patience:
            if _answers(port):
                self.server.address, answered, patience = f"http://{HOST}:{port}", time.monotonic(), HUNG_SECONDS
                pause.succeeded()
            self._stop.wait(WATCH_SECONDS)


def _answers(port: int) -> bool:
    with contextlib.closing(http.client.HTTPConnection(HOST, port, timeout=5)) as connection:
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False


def wait_until_up(processes: Sequence[ServerProcess], say: Callable[[str], None]) -> None:
    """Raises RolloutError when one ends before all have served."""
    up = -1
    while up < len(processes):
        if problem := next((each.problem for each in processes if each.problem), ""):
            raise RolloutError(problem)
        before, up = up, sum(bool(each.server.address) for each in processes)
        if up > before:
            say(f"starting rollout servers, {up} of {len(processes)} are up")
        time.sleep(WATCH_SECONDS / 10)


def build_door(servers: Sequence[RolloutServer], token: str, max_body: int) -> web.Application:
    """/N/ROUTE leads to that route of server N, for who bears the token; nothing else of the servers is reachable."""
    app = web.Application(client_max_size=max_body)

    async def pass_on(request: web.Request) -> web.Response:
        check_bearer(request, token)
        number, route, body = int(request.match_info["server"]), request.match_info["route"], await request.read()
        if number >= len(servers) or not servers[number].address:
            raise web.HTTPServiceUnavailable(text="there is no such server, or it is down")
        url = f"{servers[number].address}/{route}" + ("?mode=keep" if route == "pause" else "")
        way: Any = {"headers": {"Content-Type": "application/json"}, "allow_redirects": False}
        way["timeout"] = aiohttp.ClientTimeout(total=None)
        try:
            async with aiohttp.request(request.method, url, data=body, **way) as answer:
                return web.Response(status=answer.status, body=await read_answer(answer, MAX_ANSWER))
        except (aiohttp.ClientError, EndpointError) as error:
            raise web.HTTPBadGateway(text=f"the server failed: {type(error).__name__}") from error

    changes = "inference/v1/generate|pause|start_weight_update|update_weights|finish_weight_update|resume"
    app.router.add_get("/{server:[0-9]{1,3}}/{route:health|weight_info}", pass_on, allow_head=False)
    app.router.add_post(f"/{{server:[0-9]{{1,3}}}}/{{route:{changes}}}", pass_on)
    return app


@contextlib.contextmanager
def serving(app: web.Application, listen: str, setting: str, token: str, variable: str = TOKEN) -> Generator[int]:
    """While this lasts, `app` is served at `listen`; the port. Raises ConfigError that names the setting.

    variable: of the environment, which holds `token`."""
    try:
        host, port = host_and_port(listen)
    except ValueError as error:
        raise ConfigError(f"{setting}{error}") from error
    if not token and host not in (HOST, "::1", "localhost"):
        raise ConfigError(f"{setting}={listen} is open to other machines; set {variable} to a secret, here and there")
    with translated(ConfigError, f"{setting}={listen} cannot be listened at", OSError):
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    thread = LoopThread("rollout")
    runner = web.AppRunner(
        app, access_log=None, handle_signals=False, handler_cancellation=True, shutdown_timeout=1.0,
        keepalive_timeout=HEAD_SECONDS,
    )  # fmt: skip
    with listener, contextlib.closing(thread):
        thread.run(runner.setup())
        thread.run(web.SockSite(runner, listener).start())
        try:
            yield listener.getsockname()[1]
        finally:
            thread.run(runner.cleanup())
