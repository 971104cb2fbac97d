"""A signed transaction: light enough to be read back without loading what signs."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Signed:
    """Anybody who has it can send it."""

    hash: str
    """0x and 64 digits."""
    nonce: int
    raw: bytes = field(repr=False)
