"""A coordinator on the embedded chain or on Anvil, and endpoints that answer whatever a test wants."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
from builders.anvil import CHAIN_ID, anvil
from builders.servers import running

from codezero.chain.contract import FUND, ContractCoordinator, Sender, deploy
from codezero.chain.devchain_process import DevChainHandle
from codezero.chain.errors import RpcError
from codezero.chain.provider import ChainClient
from codezero.chain.rounds import STAGE
from codezero.chain.wallet import KeystoreWallet


@dataclass(frozen=True)
class Swarm:
    """A chain with a contract; `owner` deployed it."""

    url: str
    chain_id: int
    contract: str
    client: ChainClient
    owner: ContractCoordinator

    def member(self, keystore: Path, client: ChainClient | None = None) -> ContractCoordinator:
        """Another account, with money."""
        wallet = KeystoreWallet.ephemeral(keystore)
        fund(self.client, wallet.address)
        return ContractCoordinator(client or self.client, self.contract, Sender(client or self.client, wallet))

    def open_round(self, number: int) -> None:
        """Advance until `number` is open."""
        while self.owner.read_round() < number:
            self.owner.send("updateStageAndRound")


def reward_of(coordinator: ContractCoordinator, round_number: int, peer: str) -> int | None:
    """The reward submitted for the peer; None: nothing yet."""
    [submitted], [reward] = coordinator._ask("getPeerRoundStageReward", round_number, STAGE, [peer])
    return reward if submitted else None


def fund(client: ChainClient, address: str) -> None:
    try:
        client.provider.make_request(FUND, [address])
    except RpcError:
        client.manager.request_blocking("anvil_setBalance", [address, hex(10**19)])


@contextmanager
def served(folder: Path, backend: str) -> Generator[tuple[str, int]]:
    """URL and chain id of a new chain."""
    if backend == "anvil":
        with anvil(folder) as url:
            yield url, CHAIN_ID
    else:
        with DevChainHandle(folder / "chain") as handle:
            yield handle.url, handle.chain_id


@contextmanager
def found(folder: Path, backend: str = "embedded") -> Generator[Swarm]:
    with served(folder, backend) as (url, chain_id):
        client = ChainClient([url], chain_id, seconds=60.0)  # machines are busy
        wallet = KeystoreWallet.ephemeral(folder / "owner.json")
        fund(client, wallet.address)
        sender = Sender(client, wallet)
        contract = deploy(sender)
        owner = ContractCoordinator(client, contract, sender)
        yield Swarm(url, chain_id, contract, client, owner)
        owner.close()


class Scripted(BaseHTTPRequestHandler):
    """Answers what `script` returns for a request: the bytes of a body, None to hang up, or what writes by itself."""

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.received.append(f"{self.path}\n{self.headers}".encode() + asked)  # pyright: ignore
        body = self.server.script(msgspec.json.decode(asked or b"null"))  # pyright: ignore[reportAttributeAccessIssue]
        if isinstance(body, bytes):
            self.reply(200, body)
        elif body is not None:
            body(self)

    do_GET = do_POST

    def reply(self, status: int, body: bytes, reason: str | None = None) -> None:
        self.send_response(status, reason)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@contextmanager
def endpoint(script: Callable[..., object], received: list[bytes] | None = None) -> Generator[str]:
    """Its URL. received: gets all that arrives there."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Scripted)
    server.script = script  # pyright: ignore[reportAttributeAccessIssue]
    server.received = [] if received is None else received  # pyright: ignore[reportAttributeAccessIssue]
    with running(server):
        yield f"http://127.0.0.1:{server.server_port}"
