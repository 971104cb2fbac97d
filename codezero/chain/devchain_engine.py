"""What of the embedded chain needs py-evm, whose import takes seconds: the EVM, the first block, the faucet."""

import secrets
import time
import warnings
from pathlib import Path

from codezero.chain.devchain_blocks import first_block
from codezero.chain.devchain_evm import Evm
from codezero.chain.devchain_faucet import RICHES, Faucet
from codezero.chain.devchain_store import Store

# Said each time that a contract destroys itself; where warnings are errors it would break the contract's execution.
warnings.filterwarnings("ignore", "SELFDESTRUCT opcode", DeprecationWarning)


class Engine:
    """For the thread that uses the store. A new chain begins here. Raises ChainError."""

    def __init__(self, store: Store, chain_id: int, faucet_key: Path) -> None:
        faucet = Faucet.open(faucet_key, may_create=store.head is None)
        if store.head is None:
            store.add(first_block(int(time.time()), faucet.address, RICHES, secrets.token_bytes(32)))
        self._store, self._chain_id, self._faucet = store, chain_id, faucet
        self.evm = Evm(store, chain_id)

    def fund(self, address: bytes) -> bytes | None:
        """Raises RpcRefusal and ChainError."""
        return self._faucet.fund(address, self._store, self.evm, self._chain_id)
