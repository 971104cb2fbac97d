"""A memory of the last ids, which stays small however long a run is."""

from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec

REMEMBERED = 4096
KEY_DIGITS = 16
"""Of a problem's id; enough to tell 20,000 apart."""

Key = Annotated[str, msgspec.Meta(max_length=KEY_DIGITS)]
Keys = Annotated[list[Key], msgspec.Meta(max_length=REMEMBERED)]


class Recent:
    """The last ids that were added, oldest first."""

    def __init__(self, keys: Sequence[str] = ()) -> None:
        self._keys = dict.fromkeys(keys)

    def add(self, identifier: str) -> bool:
        """Remember it; False when it is remembered already."""
        key = identifier[:KEY_DIGITS]
        if key in self._keys:
            return False
        self._keys[key] = None
        if len(self._keys) > REMEMBERED:
            del self._keys[next(iter(self._keys))]
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)
