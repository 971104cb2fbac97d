"""What a chain can answer other than yes, by name, each with one line for people.

* ChainError
  - ChainUnreachableError  nothing was done, as far as can be told: try again later
  - UnknownOutcomeError    it may have been done: look at the chain before trying again
  - WrongChainError        another chain than expected answers
  - RpcError               the endpoint answered with an error of its own, not the contract's
  - InsufficientFundsError the account cannot pay for a transaction
  - ForeignOwnerError      the peer id is registered to another account
  - ContractError          the contract refused; a subclass for each error it declares
"""

import ast
import re
from collections.abc import Mapping
from typing import ClassVar, cast

from eth_abi.abi import decode
from eth_abi.exceptions import DecodingError
from eth_utils.crypto import keccak

from codezero.errors import ChainError

MAX_TEXT = 300
"""Characters of an endpoint's or contract's own words that are repeated."""
ERROR_STRING = bytes.fromhex("08c379a0")
PANIC = bytes.fromhex("4e487b71")
PANICS = {
    0x01: "an assertion failed",
    0x11: "a number left its bounds",
    0x12: "division by zero",
    0x21: "no such enum value",
    0x22: "storage is damaged",
    0x31: "pop from an empty array",
    0x32: "index out of bounds",
    0x41: "too much memory",
    0x51: "an uninitialised function was called",
}


class ChainUnreachableError(ChainError):
    """No endpoint answered usably in time. Nothing was sent, or only questions were."""


class UnknownOutcomeError(ChainError):
    """A transaction went out and its fate is not known. Look at the chain before sending another."""

    def __init__(self, message: str, transaction: str) -> None:
        super().__init__(message)
        self.transaction = transaction
        """0x and 64 digits."""


class WrongChainError(ChainError):
    """An endpoint serves another chain id than the one expected."""


class RpcError(ChainError):
    """The endpoint answered with a JSON-RPC error that is not the contract's."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(f"the RPC endpoint answered: {printable(message)} (code {code})")
        self.code, self.message, self.data = code, message, data


class InsufficientFundsError(ChainError):
    """The account cannot pay for a transaction."""

    def __init__(self, account: str, has: int, needs: int) -> None:
        super().__init__(
            f"account {account} has {has / 1e18:.6f} of the chain's coin, and a transaction may cost "
            f"{needs / 1e18:.6f}; send it some"
        )
        self.account, self.has, self.needs = account, has, needs


class ForeignOwnerError(ChainError):
    """The peer id belongs to another account, so nothing earned under it would count for this one."""

    def __init__(self, peer: str, owner: str, own: str) -> None:
        super().__init__(
            f"peer {peer} is registered to {owner}, not to this node's account {own}; use the account that registered "
            "it, or move swarm.pem away so that the next start makes a new peer id"
        )
        self.peer, self.owner, self.own = peer, owner, own


class ContractError(ChainError):
    """The contract refused. `final`: the same call can never be accepted later, whatever happens."""

    text: ClassVar[str] = ""
    final: ClassVar[bool] = False

    def __init__(self, detail: str = "") -> None:
        super().__init__(detail or self.text)


class PeerIdAlreadyRegisteredError(ContractError):
    text = "this peer id is already registered"
    final = True


class RewardAlreadySubmittedError(ContractError):
    text = "a reward was already submitted for this round and stage"
    final = True


class WinnerAlreadyVotedError(ContractError):
    text = "this peer has already voted in this round"
    final = True


class InvalidVoterPeerIdError(ContractError):
    text = "the peer id is not registered to this account; register it first"


class InvalidRoundNumberError(ContractError):
    text = "the round has not been opened yet"


class InvalidStageNumberError(ContractError):
    text = "the stage has not been opened yet"


class InvalidVoteError(ContractError):
    text = "the vote names nobody, somebody twice, too many, or the voter itself"
    final = True


class InvalidBootnodeIndexError(ContractError):
    text = "there is no bootnode of this number"


class OnlyOwnerError(ContractError):
    text = "only the owner of the swarm may do this"


class OnlyStageManagerError(ContractError):
    text = "only the stage manager of the swarm may open rounds"


class OnlyBootnodeManagerError(ContractError):
    text = "only the bootnode manager of the swarm may change bootnodes"


class StageOutOfBoundsError(ContractError):
    text = "there is no stage of this number"


class InvalidInitializationError(ContractError):
    text = "the contract has been initialised already"


class InvalidOwnerError(ContractError):
    text = "the swarm's owner cannot be the zero address"


class InvalidPeerIdError(ContractError):
    text = "a peer id has 1 to 128 bytes"
    final = True


class TooManyPeersError(ContractError):
    text = "this account has as many peer ids as one account may have; use another account"


class InvalidRewardError(ContractError):
    text = "the reward is too large a number"
    final = True


class InvalidBootnodeError(ContractError):
    text = "a bootnode's address has 1 to 256 bytes"


class TooManyBootnodesError(ContractError):
    text = "the contract holds as many bootnodes as it may; remove one first"


class RevertedError(ContractError):
    """Refused in words (`require(..., "words")`), or without any."""

    text = "the contract refused without a reason"


class PanicError(ContractError):
    """Solidity's own checks failed inside the contract."""

    text = "the contract broke down"


NAMED: dict[bytes, type[ContractError]] = {
    keccak(text=f"{error.__name__.removesuffix('Error')}()")[:4]: error
    for error in (
        PeerIdAlreadyRegisteredError,
        RewardAlreadySubmittedError,
        WinnerAlreadyVotedError,
        InvalidVoterPeerIdError,
        InvalidRoundNumberError,
        InvalidStageNumberError,
        InvalidVoteError,
        InvalidBootnodeIndexError,
        OnlyOwnerError,
        OnlyStageManagerError,
        OnlyBootnodeManagerError,
        StageOutOfBoundsError,
        InvalidInitializationError,
        InvalidOwnerError,
        InvalidPeerIdError,
        TooManyPeersError,
        InvalidRewardError,
        InvalidBootnodeError,
        TooManyBootnodesError,
    )
}
"""By selector: the first 4 bytes of keccak256 of the signature."""


def refusal(message: str, data: object = None) -> ContractError | None:
    """The contract's refusal in an answer; None when it is something else.

    Three shapes are met: `data` is hexadecimal text; `data` is a dictionary that holds `data`, perhaps nested; the
    message holds the bytes as Python would write them.
    """
    raw = _revert_data(data)
    if raw is None:
        raw = _bytes_in(message)
    if raw:
        return decode_revert(raw)
    lowered = message.lower()
    if "revert" not in lowered:
        return None
    words = re.search(r"revert(?:ed)?(?: with reason string)?:? *['\"]?([^'\"]+)", message)
    return RevertedError(f"the contract refused: {printable(words[1])}" if words else "")


def decode_revert(raw: bytes) -> ContractError:
    """The error in a call's revert data."""
    selector, rest = raw[:4], raw[4:]
    if named := NAMED.get(selector):
        return named()
    try:
        if selector == ERROR_STRING:
            return RevertedError(f"the contract refused: {printable(cast(str, decode(['string'], rest)[0]))}")
        if selector == PANIC:
            code = cast(int, decode(["uint256"], rest)[0])
            return PanicError(f"the contract broke down: {PANICS.get(code, 'unknown reason')} (panic {code:#x})")
    except (DecodingError, UnicodeDecodeError, OverflowError):
        pass  # said below: refused, by something that cannot be read
    return ContractError(f"the contract refused with an error this version does not know (selector 0x{selector.hex()})")


def printable(text: str) -> str:
    """A stranger's words, fit for one line of a log."""
    return "".join(letter if letter.isprintable() else " " for letter in text[:MAX_TEXT])


def _revert_data(data: object) -> bytes | None:
    for _ in range(4):
        if not isinstance(data, Mapping):
            break
        data = cast("Mapping[str, object]", data).get("data")
    if isinstance(data, bytes):
        return data
    if isinstance(data, str):
        digits = re.search(r"0x((?:[0-9a-fA-F]{2}){4,})$", data)
        return bytes.fromhex(digits[1]) if digits else None
    return None


def _bytes_in(message: str) -> bytes | None:
    literal = re.search(r"""b'(?:[^'\\]|\\.)*'|b"(?:[^"\\]|\\.)*\"""", message[:10_000], re.DOTALL)
    if literal is None:
        return None
    try:
        value = ast.literal_eval(literal[0])
    except (ValueError, SyntaxError):
        return None
    return value if isinstance(value, bytes) and len(value) >= 4 else None
