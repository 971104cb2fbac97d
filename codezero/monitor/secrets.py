"""What must not get into a log: this process's passphrases, keys and tokens, wherever a message has them from.

A library's error may quote a header, an address or a variable. What is known to be secret is replaced by its value;
what only looks secret (a login in an address, a bearer token, a token of the hub) by its form. A secret that is neither
known nor looks like one is not found.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

HIDDEN = "[hidden]"
SHORTEST = 8
"""Characters; what is shorter would hide words of the language."""
MAX_FILE = 1 << 16
NAMES = re.compile(r"(KEY|TOKEN|PASSPHRASE|PASSWORD|SECRET|CREDENTIALS)$", re.IGNORECASE)
"""Of variables whose values are secret."""
SHORTEST_KEY = 16
"""Characters from which a part of an address that a provider gave is taken for its key."""
FORMS = re.compile(
    r"(?<=://)[^/\s@]{1,200}@"  # user:password@
    r"|(?<=\bBearer )[\w.~+/=-]{8,}"
    r"|\bhf_[A-Za-z0-9]{16,}"
)


class Secrets:
    """Values to be hidden. Nothing of them is ever shown by `repr`."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        known = {part for value in values for part in (value, value.strip()) if len(part) >= SHORTEST}
        longest_first = sorted(known, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def hide(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(HIDDEN, text)
        return FORMS.sub(HIDDEN, text)


def known_secrets(
    environment: Mapping[str, str] = os.environ,
    *,
    variables: Iterable[str] = (),
    files: Iterable[str | Path] = (),
    addresses: Iterable[str] = (),
) -> Secrets:
    """Of the environment by the names, and what the settings name: variables, files that hold one, providers' URLs.

    A file that is not there or cannot be read holds nothing that could be logged.
    """
    named = {name for name in variables if name}
    values = [value for name, value in environment.items() if NAMES.search(name) or name in named]
    values += [text for file in files if file and (text := _read(Path(file)))]
    return Secrets([*values, *(part for address in addresses for part in _keys_in(address))])


def _read(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as stream:
            return stream.read(MAX_FILE).strip()
    except OSError:
        return ""


def _keys_in(address: str) -> Iterator[str]:
    try:
        parts = urlsplit(address)
    except ValueError:
        return
    words = re.split(r"[/&=]", f"{parts.path}&{parts.query}")
    yield from (word for word in words if len(word) >= SHORTEST_KEY)
    if parts.password:
        yield parts.password
