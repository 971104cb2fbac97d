"""Real server processes: what they decode, which version they are of, and what a failure of one costs."""

import os
import signal
import threading
import time
from collections.abc import Generator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import psutil
import pytest
from aiohttp import web
from builders.rollout import PROMPTS, VersionedPolicy, client_of, little_servers, nearly

from codezero.errors import RolloutError
from codezero.models.generation import Drawn
from codezero.rollout import client as client_module
from codezero.rollout.client import RolloutServer, RolloutServers, ServerProcess, build_door, serving
from codezero.weights.versions import VersionSource, delta_file, read_manifest

pytestmark = pytest.mark.slow
Parts = tuple[VersionedPolicy, list[RolloutServer]]


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Generator[Parts]:
    folder = tmp_path_factory.mktemp("rollout")
    policy = VersionedPolicy(folder / "weights")
    with little_servers(policy.folder, 2, folder / "logs") as servers:
        yield policy, servers


@pytest.fixture
def client(parts: Parts) -> Generator[RolloutServers]:
    with client_of(parts[0], parts[1]) as client:
        yield client


def draw(client: RolloutServers, repeats: int = 4, most: int = 12) -> list[Drawn]:
    return client.draw(PROMPTS, repeats, most, 1.0, 5)


def pid_of(server: RolloutServer) -> int:
    port = server.address.rpartition(":")[2]
    (pid,) = (each.pid for each in psutil.Process().children() if f'"port":{port}' in " ".join(each.cmdline()))
    return pid


def wait_for_fit(client: RolloutServers, count: int) -> None:
    deadline = time.monotonic() + 120
    while client.metrics()["rollout/servers_fit"] != count:
        assert time.monotonic() < deadline, client.metrics()
        time.sleep(0.05)


def ask(address: str, route: str, body: object = None) -> tuple[int, Any]:
    """Status, and the JSON of a 200 or the text of another answer."""
    method, content = ("GET", None) if body is None else ("POST", msgspec.json.encode(body))
    answer = httpx2.request(method, f"{address}/{route}", content=content, timeout=60, trust_env=False)
    return answer.status_code, answer.json() if answer.status_code == 200 else answer.text


def test_servers_draw_what_this_process_draws_before_and_after_pushes(parts: Parts, client: RolloutServers) -> None:
    policy, servers = parts
    for push in range(6):
        client.follow(policy.publish(anchor=push in (0, 3)))
        assert nearly(draw(client), policy.draw())
    for server in servers:  # whichever answers
        with client_of(policy, [server]) as alone:
            alone.follow(read_manifest(VersionSource(policy.folder)).versions[-1])
            assert nearly(draw(alone), policy.draw())
    assert client.metrics()["rollout/failed_requests"] == 0


def test_a_server_that_is_killed_costs_a_try_and_comes_back_with_the_newest_version(parts: Parts) -> None:
    policy, servers = parts
    stop, restarts = threading.Event(), servers[0].restarts

    def kill() -> None:
        stop.wait(0.3)
        os.kill(pid_of(servers[0]), signal.SIGKILL)

    with client_of(policy, servers) as client:
        client.follow(policy.publish(anchor=True))
        killer = threading.Thread(target=kill)
        killer.start()
        drawn = client.draw(PROMPTS * 20, 8, 40, 1.0, 5)
        killer.join()
        assert len(drawn) == 20 * len(PROMPTS) * 8 and {each.version for each in drawn} == {policy.number}
        assert client.metrics()["rollout/failed_requests"]
        wait_for_fit(client, 2)
    assert servers[0].restarts == restarts + 1
    with client_of(policy, [servers[0]]) as alone:  # of two at once each would push its own version
        alone.follow(policy.publish())
        wait_for_fit(alone, 1)
        assert nearly(draw(alone), policy.draw())


def test_closing_ends_what_is_drawn_and_blames_no_server(parts: Parts, caplog: pytest.LogCaptureFixture) -> None:
    policy, servers = parts
    with ThreadPoolExecutor(1) as pool:
        with client_of(policy, servers) as client:
            client.follow(policy.publish(anchor=True))
            caplog.clear()
            drawing = pool.submit(client.draw, PROMPTS * 100, 8, 40, 1.0, 5)
            while not any(server.active for server in servers):
                time.sleep(0.01)
        with pytest.raises(CancelledError):
            drawing.result(timeout=60)
    assert "unfit" not in caplog.text


def test_a_server_that_hangs_costs_a_try_and_is_replaced(
    parts: Parts, client: RolloutServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, servers = parts
    client.follow(policy.publish())
    wait_for_fit(client, 2)
    monkeypatch.setattr(client_module, "FIRST_SECONDS", 3.0)
    monkeypatch.setattr(client_module, "PUSH_SECONDS", 3.0)
    monkeypatch.setattr(client_module, "HUNG_SECONDS", 6.0)
    time.sleep(3 * client_module.WATCH_SECONDS)  # until it holds
    os.kill(pid_of(servers[1]), signal.SIGSTOP)
    assert nearly(draw(client), policy.draw())
    assert client.metrics()["rollout/failed_requests"]
    client.follow(policy.publish())
    assert nearly(draw(client), policy.draw())
    monkeypatch.undo()
    wait_for_fit(client, 2)


@pytest.mark.parametrize("claim", ["999", "0"])
def test_a_server_that_lies_about_its_version_is_left_out(parts: Parts, claim: str) -> None:
    policy, servers = parts
    version = policy.publish()

    async def lie(request: web.Request) -> web.Response:
        if request.path != "/inference/v1/generate":
            return web.json_response({"weight_version": str(version.number)})
        params = (await request.json())["sampling_params"]
        token = {"token_ids": [params["stop_token_ids"][0]], "logprobs": {"content": [{"logprob": -0.1}]}}
        spans = [{"version": claim, "start": 0, "end": 1}]
        return web.json_response({"choices": [{**token, "index": i, "weight_versions": spans} for i in range(4)]})

    app = web.Application()
    app.router.add_route("*", "/{route:.*}", lie)
    with serving(app, "127.0.0.1:0", "test", "") as port:
        liar = RolloutServer(f"http://127.0.0.1:{port}")
        with client_of(policy, [liar, servers[0]]) as client:
            client.follow(version)
            assert client.metrics()["rollout/servers_fit"] == 2
            assert nearly(draw(client), policy.draw())
            assert liar.losses and client.metrics()["rollout/failed_requests"]
        liar = RolloutServer(liar.address)
        with client_of(policy, [liar], patience=0.3) as client, pytest.raises(RolloutError, match="names versions"):
            client.follow(version)
            draw(client)


def test_cookies_of_a_server_are_not_kept(parts: Parts) -> None:
    version = parts[0].publish()

    async def bake(_: web.Request) -> web.Response:
        headers = {"Set-Cookie": f"{time.monotonic_ns()}=x; Domain=localhost"}
        return web.json_response({"weight_version": str(version.number)}, headers=headers)

    app = web.Application()
    app.router.add_route("*", "/{route:.*}", bake)
    server = RolloutServer()
    with serving(app, "127.0.0.1:0", "test", "") as port, client_of(parts[0], [server]) as client:
        server.address = f"http://localhost:{port}"
        client.follow(version)
        assert client.metrics()["rollout/servers_fit"] == 1 and not list(client._session.cookie_jar)


def test_a_broken_delta_changes_nothing_and_an_anchor_heals(parts: Parts, client: RolloutServers) -> None:
    policy, servers = parts
    client.follow(policy.publish(anchor=True))
    wait_for_fit(client, 2)
    address, before = servers[0].address, str(policy.number)
    params = {"n": 1, "max_tokens": 5, "temperature": 1.0, "seed": 1, "stop_token_ids": [0], "logprobs": 0}
    request = {"model": "policy", "token_ids": PROMPTS[0], "sampling_params": params, "cache_salt": "0" * 64}
    drawn = ask(address, "inference/v1/generate", request)
    version = policy.publish()
    path = policy.folder / delta_file(version)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    client.follow(version)
    assert client.metrics()["rollout/servers_fit"] == 0
    assert ask(address, "weight_info") == (200, {"weight_version": before})
    assert ask(address, "inference/v1/generate", request) == drawn
    status, reason = ask(address, "update_weights", {"update_info": {"number": version.number, "state": version.state}})
    assert status == 409 and "is not what versions.json names" in reason
    client.follow(policy.publish(anchor=True))
    assert nearly(draw(client), policy.draw())


def test_another_version_than_the_announced_is_refused(parts: Parts, client: RolloutServers) -> None:
    policy, servers = parts
    client.follow(policy.publish())
    wait_for_fit(client, 2)
    target = {"update_info": {"number": policy.number, "state": "0" * 64}}
    assert ask(servers[0].address, "update_weights", target)[0] == 409
    assert nearly(draw(client), policy.draw())


def test_nothing_is_drawn_before_a_version(tmp_path: Path) -> None:
    policy = VersionedPolicy(tmp_path / "weights")
    with client_of(policy, [], patience=0.1) as client, pytest.raises(RolloutError, match="no version was pushed"):
        client.draw(PROMPTS, 2, 4, 1.0, 5)


@pytest.mark.parametrize(
    ("program", "log", "reason"),
    [("false", "log", r"a rollout server ended with code 1; see .*log"), ("true", "nowhere/log", "nowhere")],
)
def test_a_server_that_does_not_start_is_named(tmp_path: Path, program: str, log: str, reason: str) -> None:
    process = ServerProcess(lambda _: [program], os.environ, tmp_path / log)
    with pytest.raises(RolloutError, match=reason):
        try:
            client_module.wait_until_up([process], lambda _: None)
        finally:
            process.close()


def test_another_version_of_the_same_number_is_pushed_too(parts: Parts, client: RolloutServers) -> None:
    policy, _ = parts
    client.follow(policy.publish())
    policy.number -= 1  # the trainer went back to a checkpoint
    client.follow(policy.publish())
    assert nearly(draw(client), policy.draw())


def test_the_door_leads_to_the_named_routes_of_servers_that_are_up_and_to_nothing_else() -> None:
    async def name(request: web.Request) -> web.Response:
        return web.json_response(request.path_qs)

    inner = web.Application()
    inner.router.add_route("*", "/{route:.*}", name)
    with serving(inner, "127.0.0.1:0", "test", "") as port:
        servers = [RolloutServer(f"http://127.0.0.1:{port}"), RolloutServer()]
        with serving(build_door(servers, "", 100), "127.0.0.1:0", "test", "") as port:
            door = f"http://127.0.0.1:{port}"
            assert ask(f"{door}/0", "health") == (200, "/health")
            assert ask(f"{door}/0", "pause", {}) == (200, "/pause?mode=keep")
            assert ask(f"{door}/0", "inference/v1/generate", {}) == (200, "/inference/v1/generate")
            assert {ask(f"{door}/{number}", "health")[0] for number in (1, 2)} == {503}
            for route in ("collective_rpc", "healthy", "0/health", "inference%2fv1%2fgenerate/x"):
                assert ask(f"{door}/0", route)[0] == 404
            assert ask(f"{door}/0", "resume", " " * 200)[0] == 413
        with serving(build_door(servers, "secret", 100), "127.0.0.1:0", "test", "secret") as port:
            assert ask(f"http://127.0.0.1:{port}/0", "health")[0] == 401
