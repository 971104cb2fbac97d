"""Rollout servers as one decoder: which draws which group, which version each has, what a failure costs.

Servers are strangers: answers are bounded and checked, and whichever fails, hangs, or names a version that it was not
given is unfit, with all that it was drawing, until it has taken the newest version.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import aiohttp
import msgspec
from msgspec.structs import replace

from codezero.errors import EndpointError, RolloutError
from codezero.models.generation import Drawn
from codezero.rollout.wire import GenerateRequest, Sampling, parse_answer, requests
from codezero.system.http_client import LoopThread, proxy_for, trusted
from codezero.system.signals import Backoff
from codezero.types import Metrics
from codezero.weights.versions import PolicyVersion

logger = logging.getLogger(__name__)

FIRST_SECONDS, LEAST_RATE = 20.0, 50.0
"""A group may take so long, and a second more for every so many tokens of all that its server decodes."""
PUSH_SECONDS, LEAST_BYTES = 60.0, 8 << 20
"""A version may take so long, and a second more for every so many bytes of a whole one."""
TRIES, POLL_SECONDS = 6, 0.01
"""Failures that a group survives; between two looks at what changes."""
TOKEN_BYTES, MAX_SMALL = 512, 1 << 16
"""Most that an answer has for each token, and beside them."""
FAULTS = (aiohttp.ClientError, TimeoutError, EndpointError)
T = TypeVar("T")


@dataclass(eq=False)
class RolloutServer:
    """As the client sees it; whoever looks after its process writes `address` and `restarts`."""

    address: str = ""
    """http://HOST:PORT; empty: it is down."""
    token: str = ""
    """Borne by requests to it; empty: none."""
    restarts: int = 0
    given: tuple[str, PolicyVersion] | None = None
    """The address and what it took there; None: unfit."""
    active: int = 0
    """Attempts under way."""
    losses: int = 0
    pause: Backoff = field(default_factory=lambda: Backoff(1.0, 300.0))

    @property
    def version(self) -> PolicyVersion | None:
        return self.given[1] if self.given and self.given[0] == self.address else None


class RolloutServers:
    """A `generation.Backend`, for any thread. Nothing is drawn before the first `follow`."""

    def __init__(
        self,
        servers: Sequence[RolloutServer],
        *,
        vocabulary: int,
        stop_ids: Sequence[int],
        bias: dict[int, float] | None = None,
        max_requests: int,
        patience: float,
    ) -> None:
        """bias: of logits, where servers do not bar ids by themselves. max_requests: attempts that a server decodes at
        once. patience: seconds of a draw without any fit server."""
        self._servers, self._vocabulary, self._stop_ids, self._bias = servers, vocabulary, stop_ids, bias
        self._max_requests, self._patience, self._failed, self._push_seconds = max_requests, patience, 0, 0.0
        self._newest: PolicyVersion | None = None
        self._pushed: set[int] = set()
        self._whole = 0  # bytes
        self._reason = "no version was pushed"
        self._thread = LoopThread("rollout")
        self._session = self._thread.run(self._open())

    def draw(
        self, prompts: Sequence[Sequence[int]], repeats: int, max_new_tokens: int, temperature: float, seed: int
    ) -> list[Drawn]:
        """Prompts that are the same share requests. Raises RolloutError."""
        asked: list[tuple[Sequence[int], list[int]]] = []
        newest: dict[tuple[int, ...], list[int]] = {}
        for place, prompt in enumerate(prompts):
            places = newest.get(tuple(prompt), [])
            # a greedy request has a single draw, as vLLM asks for it
            if not places or not temperature or (len(places) + 1) * repeats > self._max_requests:
                places = newest[tuple(prompt)] = []
                asked.append((prompt, places))
            places.append(place)
        params = requests(len(asked), repeats, max_new_tokens, temperature, seed, self._stop_ids, self._bias)
        params = [replace(each, n=repeats * len(places)) for each, (_, places) in zip(params, asked, strict=True)]
        groups: list[Sequence[Drawn]] = [()] * len(prompts)
        drawn = self._thread.run(self._draw([prompt for prompt, _ in asked], params))
        for (_, places), draws in zip(asked, drawn, strict=True):
            for number, place in enumerate(places):
                groups[place] = draws[number * repeats : (number + 1) * repeats]
        return [draw for group in groups for draw in group]

    def follow(self, version: PolicyVersion) -> None:
        """Return when every fit server decodes with this version or is unfit; an unfit one comes after when it can."""
        begun = time.monotonic()
        self._thread.run(self._follow(version))
        self._push_seconds = time.monotonic() - begun

    def metrics(self) -> Metrics:
        return {
            "rollout/servers_fit": sum(server.version is not None for server in self._servers),
            "rollout/restarts": sum(server.restarts for server in self._servers),
            "rollout/failed_requests": self._failed,
            "rollout/push_seconds": self._push_seconds,
        }

    def close(self) -> None:
        self._thread.run(self._end())
        self._thread.close()

    async def _open(self) -> aiohttp.ClientSession:
        self._tasks: set[asyncio.Task[Any]] = {asyncio.create_task(self._keep_up(each)) for each in self._servers}
        connector = aiohttp.TCPConnector(limit=0, ssl=trusted())
        options: dict[str, Any] = {"connector": connector, "cookie_jar": aiohttp.DummyCookieJar()}
        return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None), auto_decompress=False, **options)

    async def _end(self) -> None:
        for task in self._tasks:  # a draw that is under way too: its server has done nothing wrong
            task.cancel()
        await self._session.close()

    async def _draw(self, prompts: Sequence[Sequence[int]], params: Sequence[Sampling]) -> list[list[Drawn]]:
        groups = [asyncio.create_task(self._group(*each)) for each in zip(prompts, params, strict=True)]
        self._tasks.update(groups)
        try:
            return await asyncio.gather(*groups)
        finally:
            for group in groups:
                group.cancel()
            self._tasks.difference_update(groups)

    async def _group(self, prompt: Sequence[int], params: Sampling) -> list[Drawn]:
        body, count, most = GenerateRequest("policy", list(prompt), params), params.n, params.max_tokens
        for _ in range(TRIES):
            server, number = await self._free_server(count)
            losses = server.losses
            try:
                async with asyncio.timeout(FIRST_SECONDS + server.active * most / LEAST_RATE):
                    limit = MAX_SMALL + TOKEN_BYTES * count * most
                    answer = await self._post(server, "inference/v1/generate", body, limit)
                drawn = parse_answer(answer, params, self._vocabulary, {n for n in self._pushed if n >= number})
                if server.losses == losses:
                    server.pause.succeeded()
                    return drawn
            except FAULTS as error:
                self._failed += 1
                self._lose(server, losses, error)
            finally:
                server.active -= count
        raise RolloutError(f"{TRIES} tries at one group failed, the last because {self._reason}")

    async def _free_server(self, attempts: int) -> tuple[RolloutServer, int]:
        """One with room for these attempts, counted from here on, and its version. Raises RolloutError."""
        deadline = time.monotonic() + self._patience
        while True:
            fit = [(server, server.version.number) for server in self._servers if server.version is not None]
            for server, number in sorted(fit, key=lambda each: each[0].active):
                if server.active + attempts <= self._max_requests or not server.active:
                    server.active += attempts
                    return server, number
            deadline = time.monotonic() + self._patience if fit else deadline
            if time.monotonic() > deadline:
                raise RolloutError(f"no rollout server was fit for {self._patience:g} s: {self._reason}")
            await asyncio.sleep(POLL_SECONDS)

    def _lose(self, server: RolloutServer, losses: int, error: Exception) -> None:
        """losses: of it when that began which failed."""
        if server.losses == losses:
            server.given, server.losses = None, losses + 1
            self._reason = f"{server.address or 'a server'} {error or type(error).__name__}"
            logger.warning("unfit for %.0f s: %s", server.pause.failed(), self._reason)

    async def _follow(self, version: PolicyVersion) -> None:
        self._newest, self._whole = version, max(version.anchor, self._whole)
        self._pushed.add(version.number)
        while any((s.given or not s.losses) and s.address and s.version != version for s in self._servers):
            await asyncio.sleep(POLL_SECONDS)

    async def _keep_up(self, server: RolloutServer) -> None:
        while True:
            newest = self._newest
            if newest and server.address and server.version != newest and (server.given or not server.pause.left):
                await self._push(server, newest)
            await asyncio.sleep(POLL_SECONDS)

    async def _push(self, server: RolloutServer, version: PolicyVersion) -> None:
        address, losses, label = server.address, server.losses, {"weight_version": str(version.number)}
        target = {"update_info": {"number": version.number, "state": version.state}}
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
        data = msgspec.json.encode(body or {})
        way: Any = {"headers": headers, "proxy": proxy_for(url), "allow_redirects": False}
        async with self._session.request(method, url, data=data, **way) as response:
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
