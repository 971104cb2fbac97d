"""As much of the Hugging Face Hub's interface as pushing a model takes, on loopback: creating, LFS and commits."""

import base64
import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from builders.servers import running

TOKEN = "hf_ours"


class Hub:
    """What it was given."""

    def __init__(self) -> None:
        self.url = ""
        self.repositories: dict[str, bool] = {}  # Is it private?
        self.files: dict[str, bytes] = {}
        self.objects: dict[str, bytes] = {}
        self.messages: list[str] = []
        self.tokens: set[str] = set()  # That anybody showed
        self.refuses = False  # Answer 401 to everything?
        self.hangs = False


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    hub: Hub


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *arguments: object) -> None: ...

    def do_GET(self) -> None:
        self._answer()

    do_POST = do_PUT = do_HEAD = do_GET

    def _answer(self) -> None:
        hub, path = self.server.hub, urlsplit(self.path).path
        body = self._body()
        while hub.hangs:
            time.sleep(0.05)
        if not path.startswith("/lfs/"):  # signed addresses of a storage take no token
            hub.tokens.add(self.headers.get("Authorization", "none").removeprefix("Bearer "))
        if hub.refuses:
            return self._send(401, {"error": f"Invalid token {TOKEN}"})
        self._send(*self._told(hub, path, body))

    def _told(self, hub: Hub, path: str, body: bytes) -> tuple[int, object]:
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}"
            there = name in hub.repositories
            hub.repositories.setdefault(name, asked.get("visibility") == "private" or asked.get("private", False))
            return (409 if there else 200), {"url": f"{hub.url}/{name}", "error": "there already"}
        if path == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)", path):
            return 200, {"id": found[1], "private": hub.repositories[found[1]], "siblings": [], "tags": []}
        if re.fullmatch(r"/api/models/[^/]+/[^/]+/preupload/main", path):
            modes = [(one["path"], "lfs" if one["path"].endswith(".safetensors") else "regular")
                     for one in json.loads(body)["files"]]  # fmt: skip
            return 200, {"files": [{"path": name, "uploadMode": mode, "shouldIgnore": False} for name, mode in modes]}
        if path.endswith(".git/info/lfs/objects/batch"):
            actions = [{"oid": one["oid"], "size": one["size"],
                        "actions": {"upload": {"href": f"{hub.url}/lfs/{one['oid']}"}}}
                       for one in json.loads(body)["objects"]]  # fmt: skip
            return 200, {"transfer": "basic", "objects": actions}
        if path.startswith("/lfs/"):
            hub.objects[path.removeprefix("/lfs/")] = body
            return 200, {}
        if re.fullmatch(r"/api/models/[^/]+/[^/]+/commit/main", path):
            return 200, self._commit(hub, body)
        return 404, {"error": path}

    def _commit(self, hub: Hub, body: bytes) -> object:
        for entry in map(json.loads, body.splitlines()):
            held = entry["value"]
            if entry["key"] == "header":
                hub.messages.append(held["summary"])
            elif entry["key"] == "lfsFile":
                hub.files[held["path"]] = hub.objects[held["oid"]]
            elif entry["key"] == "file":
                hub.files[held["path"]] = base64.b64decode(held["content"])
        number = len(hub.messages)
        return {"commitUrl": f"{hub.url}/o/n/commit/{number:040x}", "commitOid": f"{number:040x}"}

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            pieces: list[bytes] = []
            while size := int(self.rfile.readline(), 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(pieces)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _send(self, status: int, told: object) -> None:
        made = json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(made)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(made)


@contextmanager
def serving() -> Iterator[Hub]:
    hub, server = Hub(), _Server(("127.0.0.1", 0), _Handler)
    server.hub, hub.url = hub, f"http://127.0.0.1:{server.server_port}"
    with running(server):
        try:
            yield hub
        finally:
            hub.hangs = False
