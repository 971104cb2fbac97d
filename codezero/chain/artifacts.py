"""The compiled contracts that ship with the package: made by `contracts/compile.mjs`, read here, never edited."""

from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from codezero.errors import ChainError

DIRECTORY = Path(__file__).parent / "artifacts"


class Artifact(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One contract as the compiler left it."""

    contract_name: str
    compiler: str
    settings: dict[str, Any]
    source_sha256: str
    """Hex, of the bytes of the Solidity file."""
    abi: list[dict[str, Any]]
    bytecode: str
    """0x and hex: the code that deploys, constructor arguments to be appended."""
    deployed_bytecode: str
    """0x and hex: the code on the chain, with zeros where the constructor puts the contract's own address."""


@cache
def coordinator_artifact() -> Artifact:
    """`contracts/SwarmCoordinator.sol`. Raises ChainError when the installation lacks it."""
    path = DIRECTORY / "SwarmCoordinator.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=Artifact)
    except (OSError, msgspec.MsgspecError) as error:
        raise ChainError(f"{path} is missing or damaged; install codezero again: {error}") from None
