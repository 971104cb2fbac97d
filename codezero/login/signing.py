"""`POST /api/sign-transaction`: the node's programs have their transactions signed and never see the key.

    {"transaction": {"type": 2, "chainId": n, "nonce": n, "to": "0x..", "value": 0, "data": "0x..", "gas": n,
                     "maxFeePerGas": n, "maxPriorityFeePerGas": n}}         without "to" for a deployment
    200 {"raw": "0x..", "address": "0x.."}      401: another token      409: the key is locked

It signs no transaction that sends value.

`POST /api/claim/code` with {} makes a new code for claiming the node: {"code": "1234-5678"}, 409 once it has an owner.
"""

import logging
from typing import Annotated, Any, Literal

import msgspec
from aiohttp import web
from eth_account import Account
from eth_utils.address import to_checksum_address
from msgspec import Meta

from codezero.errors import HttpRefusal
from codezero.login.guard import LOGIN, answer, read_body
from codezero.login.schema import Body, EmptyBody
from codezero.login.vault import Address, already_claimed

logger = logging.getLogger("codezero.login")

Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class TransactionFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """EIP-1559. Fees in wei for each unit of gas."""

    type: Literal[2]
    chain_id: Count
    nonce: Count
    value: Literal[0]
    data: Annotated[str, Meta(pattern=r"^0x([0-9a-fA-F]{2})*\Z")]
    gas: Count
    max_fee_per_gas: Count
    max_priority_fee_per_gas: Count
    to: Address | msgspec.UnsetType = msgspec.UNSET

    def fields(self) -> dict[str, Any]:
        """As eth-account takes them."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return fields if isinstance(self.to, msgspec.UnsetType) else fields | {"to": to_checksum_address(self.to)}


class SignBody(Body, frozen=True):
    transaction: TransactionFields


class NewCode(msgspec.Struct, frozen=True):
    """code: as the terminal shows it too."""

    code: str


def signing_routes() -> list[web.RouteDef]:
    """For programs with the bearer token."""
    return [web.post("/api/sign-transaction", sign_transaction), web.post("/api/claim/code", new_code)]


async def new_code(request: web.Request) -> web.Response:
    await read_body(request, EmptyBody)
    login = request.app[LOGIN]
    if login.vault.owner() is not None:
        raise already_claimed()
    return answer(NewCode(login.code.renew()))


async def sign_transaction(request: web.Request) -> web.Response:
    transaction = (await read_body(request, SignBody)).transaction
    account = Account.from_key(request.app[LOGIN].vault.key())
    try:
        signed = account.sign_transaction(transaction.fields())
    except (TypeError, ValueError) as error:  # its text may hold a field, and none is secret
        raise HttpRefusal(400, f"the transaction cannot be signed: {error}") from error
    logger.info("signed transaction %d of %s on chain %d", transaction.nonce, account.address, transaction.chain_id)
    return answer({"raw": signed.raw_transaction.to_0x_hex(), "address": account.address})
