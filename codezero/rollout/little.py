"""A small rollout server: those routes of vLLM that we use, over this package's own decoder.

Requests are decoded one after another, each with a generator of its own: what else waits changes no token. The weights
change between two of them. A process of its own, `python -m codezero.rollout.little`, which ends with its parent."""

import asyncio
import os
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import msgspec
import torch
from aiohttp import web

from codezero.errors import WeightsError
from codezero.models import isolate
from codezero.models.generation import OwnLoop
from codezero.models.load import LoadedModel, load_model, use_threads
from codezero.rollout.client import Choice, Count, GenerateAnswer, GenerateRequest, LogProb, Span, Target, UpdateRequest
from codezero.system.files import UNDECODABLE
from codezero.system.signals import end_with_parent
from codezero.system.web import HEAD_SECONDS
from codezero.weights import TOKEN
from codezero.weights.delta import layout_of
from codezero.weights.versions import HostCopy, VersionSource

UNFIT = ""  # in place of a version, while the weights are of none
T = TypeVar("T")


class LittleSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """weights: folder or address of the versions. rows: most attempts of a request. context: most tokens of each."""

    model: str
    weights: str
    device: str
    precision: str
    port: int
    rows: Count
    context: Count


class LittleServer:
    """A server whose model begins as it was loaded, in no version."""

    def __init__(self, loaded: LoadedModel, source: VersionSource, settings: LittleSettings) -> None:
        self._loop, self._settings, self._version = OwnLoop(loaded), settings, "default"
        self._weights = dict(loaded.model.named_parameters())
        self._vocabulary = int(loaded.model.get_input_embeddings().weight.shape[0])  # pyright: ignore
        self._copy = HostCopy(source, layout_of(self._weights))
        self._thread, self._turn, self._running = ThreadPoolExecutor(1), asyncio.Lock(), asyncio.Event()
        self._running.set()

    def app(self) -> web.Application:
        app = web.Application(client_max_size=4096 + 12 * self._settings.context)
        app.add_routes([web.get(path, self._answer) for path in ("/health", "/weight_info")])
        app.add_routes([web.post(f"/{name}_weight_update", self._answer) for name in ("start", "finish")])
        app.add_routes([web.post(path, self._pause) for path in ("/pause", "/resume")])
        app.add_routes([web.post("/update_weights", self._update), web.post("/inference/v1/generate", self._generate)])
        return app

    async def _answer(self, _: web.Request) -> web.Response:
        return web.json_response({"weight_version": self._version})

    async def _pause(self, request: web.Request) -> web.Response:
        """Pause or go on. The request under way ends first, in its version."""
        (self._running.clear if request.path == "/pause" else self._running.set)()
        return await self._answer(request)

    async def _update(self, request: web.Request) -> web.Response:
        target = (await _read(request, UpdateRequest)).update_info
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._follow, target)
        except WeightsError as error:
            raise web.HTTPConflict(text=str(error)) from error
        return await self._answer(request)

    def _follow(self, target: Target) -> None:
        """Take a version in place. Raises WeightsError: version and weights are as they were."""
        weights = self._copy.reach(target.number, target.state)
        self._version = UNFIT
        weights.copy_to(self._weights)
        self._version = str(target.number)

    async def _generate(self, request: web.Request) -> web.Response:
        wanted, most = await _read(request, GenerateRequest), self._settings
        params = wanted.sampling_params
        if max(*wanted.token_ids, 0, *params.stop_token_ids) >= self._vocabulary:
            raise web.HTTPBadRequest(text=f"a token is not below {self._vocabulary}, the size of the vocabulary")
        if params.n > most.rows or len(wanted.token_ids) + params.max_tokens > most.context:
            raise web.HTTPBadRequest(text=f"above {most.rows} attempts, or {most.context} tokens of prompt and attempt")
        async with self._turn:
            await self._running.wait()
            choices = await asyncio.get_running_loop().run_in_executor(self._thread, self._draw, wanted)
        if choices is None:
            raise web.HTTPServiceUnavailable(text="an update failed half-way; the weights are of no version")
        return web.Response(body=msgspec.json.encode(GenerateAnswer(choices)), content_type="application/json")

    def _draw(self, wanted: GenerateRequest) -> list[Choice] | None:
        if self._version == UNFIT:
            return None
        params = wanted.sampling_params
        self._loop.stops = torch.tensor(params.stop_token_ids, dtype=torch.long, device=self._loop.stops.device)
        drawn = self._loop.draw([wanted.token_ids], params.n, params.max_tokens, params.temperature, params.seed)
        version = self._version
        return [
            Choice(index, ids, {"content": [*map(LogProb, logprobs)]}, [Span(version, 0, len(ids))])
            for index, (ids, logprobs, _) in enumerate(drawn)
        ]


async def _read(request: web.Request, schema: type[T]) -> T:
    try:
        return msgspec.json.decode(await request.read(), type=schema)
    except UNDECODABLE as error:
        raise web.HTTPBadRequest(text=f"the request breaks its schema: {error}") from error


def main() -> None:
    """The argument is LittleSettings as JSON; the port is printed, as 0 takes any."""
    end_with_parent()
    isolate()
    settings = msgspec.json.decode(sys.argv[1], type=LittleSettings)
    loaded = load_model(settings.model, device=settings.device, precision=settings.precision, role="rollout server")
    use_threads(loaded.model, 0)
    server = LittleServer(loaded, VersionSource(settings.weights, os.environ.get(TOKEN, "")), settings)
    listener = socket.create_server(("127.0.0.1", settings.port))
    print(listener.getsockname()[1], flush=True)
    web.run_app(
        server.app(), sock=listener, print=None, access_log=None, handler_cancellation=True,
        keepalive_timeout=HEAD_SECONDS,
    )  # fmt: skip


if __name__ == "__main__":
    main()
