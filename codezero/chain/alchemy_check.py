"""Is what was prepared for signing exactly what was asked for? A signature on anything else could cost the account.

A server that is hostile, broken or overheard could prepare other calls, for another chain, from another account, make
the account follow a contract of its own (EIP-7702: that contract could then do anything in the account's name), or
name a hash that belongs to something else. Each is refused with one line; nothing of it is signed.
"""

from dataclasses import dataclass

from codezero.chain.alchemy_wire import Authorization, Operation, Prepared
from codezero.chain.user_operation import UserOperation, calls_only, delegate_of
from codezero.errors import ChainError


class UnaskedError(ChainError):
    """Something else was prepared than was asked for. Nothing was signed."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the paymaster's service prepared something else than it was asked for: {what}")


@dataclass(frozen=True, slots=True)
class Asked:
    """The one call that is wanted, and what the chain itself says of the account."""

    account: str
    chain_id: int
    to: str
    data: bytes
    delegates: frozenset[str]
    """Contracts that the account may follow, in lower case."""
    code: bytes
    """Of the account now."""
    count: int
    """Nonce of the account's own next transaction."""


@dataclass(frozen=True, slots=True)
class ToSign:
    """What may be signed."""

    operation: UserOperation
    hash: bytes
    """[32] bytes, computed here."""
    authorization: Authorization | None
    """None: the account follows a contract of the list already."""


def checked(prepared: Prepared, asked: Asked) -> ToSign:
    """Raises UnaskedError."""
    authorization, operation = _parts(prepared)
    followed = delegate_of(asked.code)
    if authorization is not None:
        _check_authorization(authorization, asked)
    elif not asked.code:
        raise UnaskedError("the account follows no contract yet, and no authorization is offered")
    elif followed is None or followed.lower() not in asked.delegates:
        raise UnaskedError(f"the account follows {followed or 'code of its own'}, which chain.alchemy_delegates lacks")
    hash = _check_operation(operation, asked)
    return ToSign(operation.data, hash, authorization)


def _parts(prepared: Prepared) -> tuple[Authorization | None, Operation]:
    match prepared:
        case Operation():
            return None, prepared
        case _ if len(prepared.data) == 1 and isinstance(prepared.data[0], Operation):
            return None, prepared.data[0]
        case _ if len(prepared.data) == 2:
            first, second = prepared.data
            if isinstance(first, Authorization) and isinstance(second, Operation):
                return first, second
        case _:
            pass
    raise UnaskedError("not one operation, with at most one authorization before it")


def _check_authorization(authorization: Authorization, asked: Asked) -> None:
    delegate = authorization.data.address.lower()
    if delegate not in asked.delegates:
        raise UnaskedError(f"the account is to follow {delegate}, which chain.alchemy_delegates lacks")
    if int(authorization.chain_id, 16) != asked.chain_id:
        raise UnaskedError("an authorization for another chain")
    if int(authorization.data.nonce, 16) != asked.count:
        raise UnaskedError("an authorization for another time: its nonce is not the account's")


def _check_operation(prepared: Operation, asked: Asked) -> bytes:
    operation = prepared.data
    if int(prepared.chain_id, 16) != asked.chain_id:
        raise UnaskedError("an operation for another chain")
    if operation.sender.lower() != asked.account.lower():
        raise UnaskedError("an operation of another account")
    if not calls_only(bytes.fromhex(operation.call_data[2:]), asked.to, asked.data):
        raise UnaskedError("another call, or more than one")
    if not prepared.fee_payment.sponsored or int(operation.paymaster, 16) == 0:
        raise UnaskedError("the account itself would pay; correct the gas manager's policy")
    hash = operation.hash(asked.chain_id)
    if prepared.signature_request.data.raw.lower() != "0x" + hash.hex():
        raise UnaskedError("the hash to be signed is not the operation's")
    return hash
