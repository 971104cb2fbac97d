"""The faucet: an account that owns everything at the start and fills up whoever asks. Its key is a 0600 file.

Funding is an ordinary signed transaction. Money here is worth nothing; the bounds keep clients from flooding it.
"""

import secrets
import time
from collections.abc import Callable
from pathlib import Path

from eth.constants import SECPK1_N
from eth.vm.forks.prague.transactions import PragueTransactionBuilder
from eth_keys.datatypes import PrivateKey
from eth_typing import Address

from codezero.chain.devchain_evm import Evm
from codezero.chain.devchain_rules import BASE_FEE, TIP
from codezero.chain.devchain_store import Store
from codezero.chain.devchain_wire import OVER_LIMIT, REFUSED, RpcRefusal
from codezero.errors import ChainError
from codezero.system.files import read_private, write_new

ETHER = 10**18
RICHES = 10**9 * ETHER
"""What the faucet owns at the start, in wei."""
FULL = 10 * ETHER
"""An account is filled up to this; one that has half of it or more is left alone."""
BURST, PER_SECOND = 200, 2.0
"""How often it gives: at once, and in the long run."""
GAS = 100_000
"""More than a plain transfer needs, for accounts that are contracts."""


class Faucet:
    """Gives within its bounds. `now`: monotonic seconds."""

    def __init__(self, key: PrivateKey, now: Callable[[], float] = time.monotonic) -> None:
        self._key, self._now = key, now
        self.address: bytes = key.public_key.to_canonical_address()
        self._left, self._counted = float(BURST), now()

    @classmethod
    def open(cls, path: Path, may_create: bool) -> "Faucet":
        """With the key in `path`; a new one only for a chain that has not begun. Raises ChainError."""
        if may_create:
            write_new(path, secrets.token_bytes(32).hex().encode())
        if not path.exists():
            raise ChainError(f"{path} is missing: put the faucet's key back, or begin a new chain in another directory")
        text = read_private(path, 128).strip()
        try:
            number = int(text, 16)
        except ValueError:
            number = 0
        if not 0 < number < SECPK1_N:
            raise ChainError(f"{path} does not hold a key: put the faucet's key back")
        return cls(PrivateKey(number.to_bytes(32, "big")))

    def fund(self, address: bytes, store: Store, evm: Evm, chain_id: int) -> bytes | None:
        """Fill the account up; the transaction's hash, or None when it has enough. Raises RpcRefusal and ChainError."""
        head = store.head
        if head is None:
            raise RuntimeError("the chain has no first block")
        account = store.account(address, head.number)
        have = 0 if account is None else account.balance
        if have * 2 >= FULL:
            return None
        own = store.account(self.address, head.number)
        if own is None or own.balance < FULL:
            raise RpcRefusal(REFUSED, "the faucet is empty")
        self._take_turn()
        unsigned = PragueTransactionBuilder.new_unsigned_dynamic_fee_transaction(
            chain_id=chain_id,
            nonce=own.nonce,
            max_priority_fee_per_gas=TIP,
            max_fee_per_gas=BASE_FEE + TIP,
            gas=GAS,
            to=Address(address),
            value=FULL - have,
            data=b"",
            access_list=(),
        )
        return evm.send(unsigned.as_signed_transaction(self._key).encode())

    def _take_turn(self) -> None:
        now = self._now()
        self._left = min(BURST, self._left + (now - self._counted) * PER_SECOND)
        self._counted = now
        if self._left < 1:
            raise RpcRefusal(OVER_LIMIT, "the faucet gives no faster; ask again in a second")
        self._left -= 1
