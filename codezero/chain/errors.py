"""Errors of a chain and its contract by name, each with one line for people."""

import re
from collections.abc import Mapping
from typing import cast

from codezero.errors import ChainError

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602  # of JSON-RPC
HOPELESS = {PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS}  # another try is no help
ERROR_STRING, PANIC = bytes.fromhex("08c379a0"), bytes.fromhex("4e487b71")
TEXTS = {  # the contract's errors that a call of this version can meet, by name; none has arguments
    "InvalidBootnode": "a bootnode's address has 1 to 256 bytes",
    "InvalidPeerId": "a peer id has 1 to 128 bytes",
    "InvalidReward": "the reward is too large a number",
    "InvalidRoundNumber": "the round has not been opened yet",
    "InvalidStageNumber": "the stage has not been opened yet",
    "InvalidVote": "the vote names nobody, somebody twice, too many, or the voter itself",
    "InvalidVoterPeerId": "the peer id is not registered to this account; register it first",
    "OnlyBootnodeManager": "only the bootnode manager of the swarm may change bootnodes",
    "OnlyStageManager": "only the stage manager of the swarm may open rounds",
    "PeerIdAlreadyRegistered": "this peer id is already registered",
    "RewardAlreadySubmitted": "a reward was already submitted for this round and stage",
    "TooManyBootnodes": "the contract holds as many bootnodes as it may; remove one first",
    "TooManyPeers": "this account has as many peer ids as one account may have; use another account",
    "WinnerAlreadyVoted": "this peer has already voted in this round",
}
REGISTERED, REWARDED, VOTED = "PeerIdAlreadyRegistered", "RewardAlreadySubmitted", "WinnerAlreadyVoted"
NOT_REGISTERED = "InvalidVoterPeerId"
# The same call can never be accepted later, whatever happens.
FINAL = frozenset({REGISTERED, REWARDED, VOTED, "InvalidVote", "InvalidPeerId", "InvalidReward"})


class ChainUnreachableError(ChainError):
    """No endpoint answered usably in time. Nothing was sent, or only questions were."""


class UnknownOutcomeError(ChainError):
    """A transaction went out and its fate is not known. Look at the chain before sending another."""


class WrongChainError(ChainError):
    """An endpoint serves another chain id than the one expected."""


class RpcError(ChainError):
    """The endpoint answered with a JSON-RPC error that is not the contract's."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"the RPC endpoint answered: {printable(message)} (code {code})")
        self.code = code


class InsufficientFundsError(ChainError):
    """The account cannot pay for a transaction."""


class ForeignOwnerError(ChainError):
    """The peer id belongs to another account, so nothing earned under it would count for this one."""


# Failures that the next submission would meet as well.
BLOCKING = ChainUnreachableError, WrongChainError, ForeignOwnerError, InsufficientFundsError, UnknownOutcomeError


class ContractError(ChainError):
    """The contract refused. `name`: which error of the contract; "Reverted" and "Panic" are Solidity's own,
    "" is one this version does not know. `final`: the same call can never be accepted later."""

    def __init__(self, name: str, detail: str = "") -> None:
        super().__init__(detail or TEXTS[name])
        self.name, self.final = name, name in FINAL


def refusal(message: str, data: object = None) -> ContractError | None:
    """The contract's refusal in an answer; None when it is something else.

    `data` is hexadecimal text, perhaps after a word, or a dictionary with it as `data` or `revertData`, or nested so.
    """
    while isinstance(data, Mapping):
        fields = cast("Mapping[str, object]", data)
        data = fields.get("data", fields.get("revertData"))
    if isinstance(data, str) and (digits := re.search(r"0x((?:[0-9a-fA-F]{2}){4,})\Z", data)):
        return decode_revert(bytes.fromhex(digits[1]))
    if "revert" not in message.lower():
        return None
    words = re.search(r"revert(?:ed)?\b(?: with reason string)?:? *['\"]?([^'\"]+)", message)
    reason = f": {printable(words[1])}" if words else " without a reason"
    return ContractError("Reverted", f"the contract refused{reason}")


def decode_revert(raw: bytes) -> ContractError:
    from eth_abi.abi import decode  # slow import (0.5 s): only needed once a call was refused
    from eth_abi.exceptions import DecodingError
    from eth_utils.crypto import keccak

    selector, rest = raw[:4], raw[4:]
    if name := next((name for name in TEXTS if keccak(text=f"{name}()")[:4] == selector), ""):
        return ContractError(name)
    try:
        if selector == ERROR_STRING:
            text = cast(str, decode(["string"], rest)[0])
            return ContractError("Reverted", f"the contract refused: {printable(text)}")
        if selector == PANIC:
            return ContractError("Panic", f"the contract broke down (panic {decode(['uint256'], rest)[0]:#x})")
    except (DecodingError, UnicodeDecodeError, OverflowError):
        pass  # reported below: refused, by something that cannot be read
    unknown = f"the contract refused with an error this version does not know (selector 0x{selector.hex()})"
    return ContractError("", unknown)


def printable(text: str) -> str:
    """Another's words, the first 300 characters, fit for one line of a log."""
    return "".join(letter if letter.isprintable() else " " for letter in text[:300])
