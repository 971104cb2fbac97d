"""Open pages: the newest view at once and after each change, and no more streams than there is room for."""

import asyncio
import http.client
import json
import time
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from builders.api_server import Served, full_row, played, served

from codezero.monitor import api as events
from codezero.monitor.api import MAX_STREAMS


class Stream:
    """An EventSource."""

    def __init__(self, site: Served, run: str = "one") -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=120)
        self.connection.request("GET", f"/api/runs/{run}/events")
        self.response = self.connection.getresponse()

    def lines(self) -> list[str]:
        """Up to the next empty line; none at the end."""
        found: list[str] = []
        while line := self.response.readline().decode().rstrip("\n"):
            found.append(line)
        return found

    def view(self) -> Any:
        event, data = self.lines()
        assert event == "event: view"
        return json.loads(data.removeprefix("data: "))

    def close(self) -> None:
        self.response.close()
        self.connection.close()


def test_a_view_comes_at_once_and_another_after_a_row(tmp_path: Path) -> None:
    running = played(tmp_path / "one", 3)
    with served(tmp_path) as site:
        stream = Stream(site)
        assert stream.response.headers["Content-Type"] == "text/event-stream"
        first = stream.view()
        assert (first["iteration"], first["running"]) == (3, True)
        running.observe(4, full_row(4), [])
        assert stream.view()["iteration"] == 4
        running.close("asked to stop")
        while (last := stream.view())["running"]:
            pass
        assert last["stopped"] == "asked to stop"
        stream.close()


def test_silence_is_broken_by_a_comment(tmp_path: Path) -> None:
    played(tmp_path / "one", 1).close("asked to stop")
    with served(tmp_path, silence=0.0) as site:
        stream = Stream(site)
        stream.view()
        assert stream.lines() == [": nothing new"]
        stream.close()


def test_there_is_room_for_so_many_and_for_others_once_they_leave(tmp_path: Path) -> None:
    played(tmp_path / "one", 1).close("asked to stop")
    with served(tmp_path) as site:
        streams = [Stream(site) for _ in range(MAX_STREAMS)]
        refused = Stream(site)
        assert refused.response.status == 503 and refused.response.headers["Retry-After"]
        refused.close()
        for stream in streams:
            stream.close()
        deadline = time.monotonic() + 180
        while (again := Stream(site)).response.status == 503:
            again.close()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert again.view()["iteration"] == 1
        again.close()


def test_open_streams_end_when_the_server_does(tmp_path: Path) -> None:
    played(tmp_path / "one", 1).close("asked to stop")
    with served(tmp_path) as site:
        stream = Stream(site)
        stream.view()
        site.stop()
        assert stream.lines() == []
        stream.close()


def test_a_file_that_cannot_be_read_for_a_while_ends_no_stream(tmp_path: Path) -> None:
    played(tmp_path / "one", 1).close("asked to stop")
    with served(tmp_path, silence=0.0) as site:
        stream = Stream(site)
        stream.view()
        metrics = tmp_path / "one" / "metrics.jsonl"
        metrics.rename(tmp_path / "aside")
        metrics.mkdir()
        assert stream.lines() == [": nothing new"]
        stream.close()


def test_who_does_not_listen_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "SLOW_SECONDS", 0.2)
    told: list[int] = []

    async def play() -> None:
        streams = events.Streams(pause=0.0)
        ended = asyncio.Event()

        async def read() -> bytes:
            told.append(len(told))
            return b"%d " % len(told) + b"x" * (1 << 20)

        async def handler(request: web.Request) -> web.StreamResponse:
            response = await streams.serve(request, read)
            ended.set()
            return response

        app = web.Application()
        app.add_routes([web.get("/", handler)])
        async with TestServer(app) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await ended.wait()
            assert len(told) < 100  # as much as the system's buffers hold, and no more
            writer.close()
            del reader

    asyncio.run(play())
