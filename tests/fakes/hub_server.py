"""As much of the Hugging Face Hub's interface as reading a data set takes, on loopback, from files in memory."""

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

from builders.servers import running


class Hub:
    """What it serves: files by path, for each repository and commit."""

    def __init__(self, repositories: dict[tuple[str, str], dict[str, bytes]]) -> None:
        self.repositories = repositories
        self.asked: list[str] = []
        self.silent = False  # does it answer nothing but 503?
        self.url = ""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    hub: Hub


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *arguments: object) -> None: ...

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_POST(self) -> None:
        self.posted = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        self.server.hub.asked.append(f"{self.command} {path}")
        if self.server.hub.silent:
            self._send(503, b"", {}, body)
        elif path == "/":
            self._send(200, b"hub", {}, body)
        elif found := re.fullmatch(r"/datasets/(\w[\w-]*/\w+)/resolve/(\w+)/(.+)", path):
            self._file(found[1], found[2], found[3], body)
        elif found := re.fullmatch(r"/api/datasets/(\w[\w-]*/\w+)/(revision|tree|paths-info)/(\w+)(?:/(.*))?", path):
            self._told(found[1], found[2], found[3], found[4] or "", body)
        else:
            self._missing("RepoNotFound", body)

    def _told(self, repository: str, what: str, revision: str, below: str, body: bool) -> None:
        commit = self._commit(repository, revision)
        files = self.server.hub.repositories.get((repository, commit))
        if files is None:
            return self._missing("RevisionNotFound", body)
        if what == "revision":
            siblings = [{"rfilename": name} for name in files]
            told: object = {"id": repository, "sha": commit, "siblings": siblings, "private": False, "tags": []}
        else:
            folders = {name.rpartition("/")[0] for name in files} - {""}
            entries = [{"type": "directory", "path": name, "oid": "0" * 40, "size": 0} for name in sorted(folders)]
            entries += [_file_entry(name, data) for name, data in files.items()]
            if what == "tree":
                told = [one for one in entries if not below or str(one["path"]).startswith(f"{below}/")]
            else:
                asked = json.loads(self.posted)["paths"]
                told = [one for one in entries if one["path"] in asked]
        self._send(200, json.dumps(told).encode(), {"Content-Type": "application/json"}, body)

    def _commit(self, repository: str, revision: str) -> str:
        """Where a branch is: the only commit of its repository."""
        commits = [commit for known, commit in self.server.hub.repositories if known == repository]
        return commits[0] if revision == "main" and len(commits) == 1 else revision

    def _file(self, repository: str, revision: str, name: str, body: bool) -> None:
        commit = self._commit(repository, revision)
        files = self.server.hub.repositories.get((repository, commit))
        if files is None or name not in files:
            return self._missing("RevisionNotFound" if files is None else "EntryNotFound", body)
        data = files[name]
        headers = {"ETag": f'"{_digest(data)}"', "X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if asked:
            start, end = int(asked[1]), min(int(asked[2] or len(data)), len(data) - 1)
            headers["Content-Range"] = f"bytes {start}-{end}/{len(data)}"
            return self._send(206, data[start : end + 1], headers, body)
        self._send(200, data, headers, body)

    def _missing(self, code: str, body: bool) -> None:
        self._send(404, b"", {"X-Error-Code": code}, body)

    def _send(self, status: int, data: bytes, headers: dict[str, str], body: bool) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            self.wfile.write(data)


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    server = _Server(("127.0.0.1", 0), _Handler)
    server.hub = hub
    hub.url = f"http://127.0.0.1:{server.server_port}"
    with running(server):
        yield hub


def _file_entry(name: str, data: bytes) -> dict[str, object]:
    return {"type": "file", "path": name, "oid": _digest(data)[:40], "size": len(data)}


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
