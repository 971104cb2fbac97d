"""A coordinator on the embedded chain or on Anvil, for tests."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from builders.anvil import CHAIN_ID, anvil

from codezero.chain.contract import FUND, ContractCoordinator, deploy
from codezero.chain.devchain_process import DevChainHandle
from codezero.chain.errors import RpcError
from codezero.chain.provider import ChainClient
from codezero.chain.sender import Sender
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
