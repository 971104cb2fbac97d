"""The original's routes on a server here, over a real contract on the embedded chain; and the bytes of a client."""

import http.client
import json
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from builders.login import page

from codezero.chain.contract import ContractCoordinator, fund, own_contracts
from codezero.chain.devchain_process import DevChainHandle
from codezero.chain.provider import ChainClient
from codezero.chain.sender import Sender
from codezero.chain.wallet import KeystoreWallet
from codezero.login.node_api import NodeApi, Transact, legacy_id
from codezero.login.store import Folder
from codezero.wiring.page import contract_calls

ADDRESS = "0x" + "Ab" * 20


@dataclass(frozen=True)
class Member:
    """An account that can pay, and its way to the contract."""

    coordinator: ContractCoordinator
    transact: Transact


@contextmanager
def contract(folder: Path) -> Generator[list[Member]]:
    """Two members of one swarm; the first may open rounds."""
    with ExitStack() as stack:
        handle = stack.enter_context(DevChainHandle(folder / "chain"))
        rpc = ChainClient([handle.url], handle.chain_id, seconds=60.0)  # machines are busy
        members: list[Member] = []
        address = ""
        for name in ("first", "second"):
            sender = Sender(rpc, KeystoreWallet.ephemeral(folder / f"{name}.json"))
            fund(rpc, sender.address)
            address = address or own_contracts(folder / "chain", rpc, sender).contract
            coordinator = ContractCoordinator(rpc, address, sender)
            stack.callback(coordinator.close)
            members.append(Member(coordinator, contract_calls(lambda coordinator=coordinator: coordinator)))
        yield members


@contextmanager
def serving(transact: Transact, *, address: str | None = ADDRESS, legacy: bool = False) -> Generator["Client"]:
    """The page server with these routes; legacy: clients of the original are admitted."""
    with TemporaryDirectory() as folder:
        org_id = legacy_id(Folder(Path(folder))) if legacy else ""
        with page(Path(folder), NodeApi(transact, lambda: address, org_id).routes()) as served:
            yield Client(served.port, served.token, org_id)


@dataclass(frozen=True)
class Client:
    """Asks as a program of this node (`ask`), or byte for byte as the original's client does (`old`)."""

    port: int
    token: str
    org_id: str

    def ask(self, path: str, body: object = None, **headers: str) -> tuple[int, object]:
        """GET without a body, else POST. A header set to "" is left out."""
        sent = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        raw = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        connection = http.client.HTTPConnection("localhost", self.port, timeout=120)
        try:
            method = "GET" if body is None else "POST"
            connection.request(method, f"/api/{path}", raw, {name: value for name, value in sent.items() if value})
            return _told(connection.getresponse())
        finally:
            connection.close()

    def old(self, method: str, org_id: str | None = None, **arguments: object) -> tuple[int, object]:
        """What `requests.post(url, json=...)` puts on the wire."""
        body = json.dumps({"orgId": self.org_id if org_id is None else org_id} | arguments).encode()
        connection = http.client.HTTPConnection("localhost", self.port, timeout=120)
        try:
            connection.putrequest("POST", f"/api/{method}", skip_accept_encoding=True)
            connection.putheader("User-Agent", "python-requests/2.32.3")
            connection.putheader("Accept-Encoding", "gzip, deflate")
            connection.putheader("Accept", "*/*")
            connection.putheader("Connection", "keep-alive")
            connection.putheader("Content-Length", str(len(body)))
            connection.putheader("Content-Type", "application/json")
            connection.endheaders(body)
            return _told(connection.getresponse())
        finally:
            connection.close()


def _told(response: http.client.HTTPResponse) -> tuple[int, object]:
    raw = response.read()
    plain = response.headers.get_content_type() == "text/plain"
    return response.status, raw.decode() if plain else json.loads(raw)
