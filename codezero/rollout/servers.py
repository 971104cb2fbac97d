"""Rollout servers as child processes on loopback, and the one door through which another machine reaches them."""

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path

import aiohttp
from aiohttp import web

from codezero.config.training import host_and_port
from codezero.errors import ConfigError, EndpointError, RolloutError, translated
from codezero.rollout.client import RolloutServer, read_answer
from codezero.system.child import Child, how_it_ended
from codezero.system.files import set_aside
from codezero.system.http_client import LoopThread
from codezero.system.signals import Backoff, Stop
from codezero.system.web import HEAD_SECONDS, check_bearer
from codezero.weights import TOKEN

HOST = "127.0.0.1"
POLL_SECONDS, START_SECONDS, HUNG_SECONDS = 0.5, 1800.0, 60.0
"""Between two looks at a server; without an answer before its first one, and after."""
MAX_ANSWER = 256 << 20
GET = "health|weight_info"
POST = "inference/v1/generate|pause|start_weight_update|update_weights|finish_weight_update|resume"


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
            self._stop.wait(POLL_SECONDS)


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
        time.sleep(POLL_SECONDS / 10)


def build_door(servers: Sequence[RolloutServer], token: str, max_body: int) -> web.Application:
    """/N/ROUTE leads to that route of server N, for who bears the token; nothing else of the servers is reachable."""
    app = web.Application(client_max_size=max_body)

    async def pass_on(request: web.Request) -> web.Response:
        check_bearer(request, token)
        number, route, body = int(request.match_info["server"]), request.match_info["route"], await request.read()
        if number >= len(servers) or not servers[number].address:
            raise web.HTTPServiceUnavailable(text="there is no such server, or it is down")
        url = f"{servers[number].address}/{route}" + ("?mode=keep" if route == "pause" else "")
        headers = {"Content-Type": "application/json"}
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session,
                session.request(request.method, url, data=body, headers=headers, allow_redirects=False) as answer,
            ):
                return web.Response(status=answer.status, body=await read_answer(answer, MAX_ANSWER))
        except (aiohttp.ClientError, EndpointError) as error:
            raise web.HTTPBadGateway(text=f"the server failed: {type(error).__name__}") from error

    for method, names in (("GET", GET), ("POST", POST)):
        app.router.add_route(method, f"/{{server:[0-9]{{1,3}}}}/{{route:{names}}}", pass_on)
    return app


@contextlib.contextmanager
def serving(app: web.Application, listen: str, setting: str, token: str, variable: str = TOKEN) -> Generator[int]:
    """While this lasts, `app` is served at `listen`; the port. Raises ConfigError that names the setting.

    variable: of the environment, which holds `token`.
    """
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
