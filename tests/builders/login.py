"""A real page server on a free port, in a thread, and a browser that does only what it is told."""

import contextlib
import http.client
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

from builders.api_server import in_thread
from eth_account import Account
from fakes.authenticator import Authenticator

from codezero.chain.wallet import KeystoreWallet, read_passphrase
from codezero.login.guard import COOKIE, Routes
from codezero.login.login import Login
from codezero.login.server import Entry, build_app, serving
from codezero.system.files import read_private

PASSPHRASE = "nine lives of a cat"
PAGE = {"Sec-Fetch-Site": "same-origin"}


@dataclass
class Clock:
    """Goes on by `step` seconds with each request of `Page`, so that rate limits are met only where they are tested."""

    now: float = 1_800_000_000.0
    step: float = 31.0

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True)
class Answer:
    status: int
    raw: bytes
    headers: http.client.HTTPMessage

    @property
    def json(self) -> Any:
        return json.loads(self.raw)

    @property
    def error(self) -> str:
        """Its one line; the answer has nothing else."""
        assert list(self.json) == ["error"] and "\n" not in self.json["error"], self.raw
        return self.json["error"]


@dataclass
class Page:
    """What a browser's tab at the page can do. `codes`: what the terminal showed."""

    port: int
    login: Login
    codes: list[str]
    clock: Clock
    cookie: str = ""
    cookies: list[str] = field(default_factory=list)
    at: str = ""  # another origin that the tab shows; empty: `origin`

    @property
    def origin(self) -> str:
        return f"http://localhost:{self.port}"

    @property
    def token(self) -> str:
        return (self.login.vault._folder.read("node.token") or b"").decode()

    def ask(
        self, method: str, path: str, body: object = None, *, raw: bytes | None = None, **headers: str | None
    ) -> Answer:
        """Headers are named with underscores; None leaves one out."""
        self.clock.now += self.clock.step
        whole: dict[str, str | None] = {"Host": (self.at or self.origin).partition("://")[2]} | PAGE
        if method not in ("GET", "HEAD"):
            whole |= {"Origin": self.at or self.origin, "Content-Type": "application/json"}
        if self.cookie:
            whole["Cookie"] = f"{COOKIE}={self.cookie}"
        whole |= {name.replace("_", "-"): value for name, value in headers.items()}
        sent = raw if raw is not None or body is None else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request(method, path, sent, {name: value for name, value in whole.items() if value is not None})
            response = connection.getresponse()
            answer = Answer(response.status, response.read(), response.headers)
        finally:
            connection.close()
        for line in answer.headers.get_all("Set-Cookie", []):
            self.cookies.append(line)
            self.cookie = SimpleCookie(line)[COOKIE].value
        return answer

    def get(self, path: str, **headers: str | None) -> Answer:
        return self.ask("GET", path, **headers)

    def post(self, path: str, body: object, **headers: str | None) -> Answer:
        return self.ask("POST", path, body, **headers)

    def sign(self, fields: object) -> Answer:
        """As a program of this machine has it signed."""
        bearer = f"Bearer {self.token}"
        transaction = {"transaction": fields}
        return self.post("/api/sign-transaction", transaction, Origin=None, Sec_Fetch_Site=None, Authorization=bearer)

    def state(self) -> dict[str, Any]:
        return self.get("/api/session").json

    def options(self, path: str, body: object) -> tuple[str, dict[str, Any]]:
        """Ticket and the options of a passkey's ceremony."""
        answer = self.post(path, body)
        assert answer.status == 200, answer.raw
        return answer.json["ticket"], answer.json["options"]

    def claim_body(self, key: Authenticator, origin: str = "") -> dict[str, Any]:
        """The second request's, of a claim. origin: which the browser signs; empty: the tab's."""
        ticket, options = self.options("/api/claim/passkey/options", {"code": self.codes[-1]})
        credential, prf = key.create(options, origin or self.at or self.origin)
        return {"ticket": ticket, "credential": credential, "prf": prf}

    def login_body(self, key: Authenticator, origin: str = "") -> dict[str, Any]:
        ticket, options = self.options("/api/login/passkey/options", {})
        credential, prf = key.get(options, origin or self.at or self.origin)
        return {"ticket": ticket, "credential": credential, "prf": prf}

    def claim_with(self, key: Authenticator, **changes: object) -> Answer:
        return self.post("/api/claim/passkey/verify", self.claim_body(key) | changes)

    def log_in_with(self, key: Authenticator, **changes: object) -> Answer:
        return self.post("/api/login/passkey/verify", self.login_body(key) | changes)


@contextlib.contextmanager
def page(
    folder: Path,
    *routes: Routes,
    accounts: "ThrowAway | None" = None,
    clock: Clock | None = None,
    cookie: str = "",
    entry: Entry | None = None,
    origins: Sequence[str] = (),
) -> Iterator[Page]:
    """A server on `folder`; the next one on the same folder is what a restart leaves."""
    codes, clock = list[str](), clock or Clock()
    before: dict[str, Any] = {"adopt": accounts.adopt, "adopted": accounts.adopted} if accounts else {}
    login = Login(folder, announce=codes.append, clock=clock, chain_id=lambda: 31337, **before)
    with in_thread(serving(build_app(login, *routes, origins=origins), 0, entry)) as (port, _):
        yield Page(port, login, codes, clock, cookie)


class ThrowAway:
    """The node's own account before a claim: a keystore whose passphrase lies beside it."""

    def __init__(self, path: Path) -> None:
        self.path, self.passphrase = path, path.with_name(path.name + ".passphrase")
        self.address: str | None = KeystoreWallet.ephemeral(path).address

    def adopt(self) -> bytes | None:
        if not self.passphrase.exists():
            return None
        return bytes(Account.decrypt(json.loads(read_private(self.path, 4096)), read_passphrase(self.passphrase)))

    def adopted(self) -> None:
        self.passphrase.unlink(missing_ok=True)
