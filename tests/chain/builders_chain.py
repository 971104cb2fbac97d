"""A coordinator on the embedded chain or on Anvil, for tests."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from anvil import CHAIN_ID, anvil

from codezero.chain.contract import Coordinator, deploy
from codezero.chain.devchain_process import start
from codezero.chain.errors import RpcError
from codezero.chain.rpc import Question, Rpc
from codezero.chain.sender import Sender
from codezero.chain.wallet import KeystoreWallet


@dataclass(frozen=True)
class Swarm:
    """A chain with a contract; `owner` deployed it."""

    url: str
    chain_id: int
    contract: str
    rpc: Rpc
    owner: Coordinator

    def member(self, keystore: Path, rpc: Rpc | None = None) -> Coordinator:
        """Another account, with money."""
        wallet = KeystoreWallet.throw_away(keystore)
        fund(self.rpc, wallet.address)
        return Coordinator(rpc or self.rpc, self.contract, Sender(rpc or self.rpc, wallet))

    def open_round(self, number: int) -> None:
        """Advance until `number` is open."""
        while self.owner.round_and_stage().round < number:
            self.owner.advance()


def fund(rpc: Rpc, address: str) -> None:
    try:
        rpc.ask(Question("codezero_fund", [address], bytes))
    except RpcError:
        rpc.ask(Question("anvil_setBalance", [address, hex(10**19)], bytes))


@contextmanager
def served(folder: Path, backend: str) -> Generator[tuple[str, int]]:
    """URL and chain id of a new chain."""
    if backend == "anvil":
        with anvil(folder) as url:
            yield url, CHAIN_ID
    else:
        with start(folder / "chain") as handle:
            yield handle.url, handle.chain_id


@contextmanager
def found(folder: Path, backend: str = "embedded") -> Generator[Swarm]:
    with served(folder, backend) as (url, chain_id):
        rpc = Rpc([url], chain_id, seconds=60.0)  # machines are busy
        try:
            wallet = KeystoreWallet.throw_away(folder / "owner.json")
            fund(rpc, wallet.address)
            sender = Sender(rpc, wallet)
            contract = deploy(sender)
            owner = Coordinator(rpc, contract, sender)
            yield Swarm(url, chain_id, contract, rpc, owner)
            owner.close()
        finally:
            rpc.close()
