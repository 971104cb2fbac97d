"""The code in the terminal: who can read it may claim the node, once."""

import hmac
import logging
import secrets
from collections.abc import Callable

from codezero.login.refusal import Refusal

logger = logging.getLogger("codezero.login")

TRIES = 5
"""Wrong ones, after which there is another code: one in 20 million hits."""


class ClaimCode:
    """8 digits. `announce` shows it, grouped 4-4, where only the owner of this machine looks; it goes into no log."""

    def __init__(self, announce: Callable[[str], None]) -> None:
        self._announce = announce
        self._digits, self._wrong = _random(), 0

    def renew(self) -> str:
        """As announced. The code before it is worth nothing."""
        self._digits, self._wrong = _random(), 0
        code = f"{self._digits[:4]}-{self._digits[4:]}"
        self._announce(code)
        return code

    def spend(self) -> None:
        """It has claimed the node, and nobody knows the one after it."""
        self._digits = _random()

    def check(self, typed: str) -> None:
        """Raises Refusal when it is another one."""
        digits = "".join(character for character in typed if character not in " -")
        if hmac.compare_digest(digits.encode(), self._digits.encode()):
            return
        self._wrong += 1
        logger.warning("a wrong code was entered (%d of %d)", self._wrong, TRIES)
        if self._wrong < TRIES:
            raise Refusal(403, "this is not the code in the terminal; type its 8 digits")
        self.renew()
        raise Refusal(403, f"{TRIES} wrong codes; the terminal shows a new one")


def _random() -> str:
    return f"{secrets.randbelow(10**8):08d}"
