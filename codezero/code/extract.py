"""The code inside a completion: exactly one fenced Python block. Everything around it is ignored.

`answers.py` reads more kindly what was not written for this project.
"""

import re
from dataclasses import dataclass

_OPENING = re.compile(r"^[ \t]*```(?:python|py)[ \t]*\r?$", re.MULTILINE | re.IGNORECASE)
_CLOSING = re.compile(r"^[ \t]*```", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Extraction:
    """What was found between the fences."""

    code: str | None
    """None unless there is exactly one opening fence."""
    fences: int
    """Opening Python fences in the completion."""
    closed: bool
    """The one fence has an end; False when the completion was cut off."""


def extract_code(completion_text: str) -> Extraction:
    """The text of the only ```python (or ```py) block. Two blocks are ambiguous, so neither counts."""
    openings = list(_OPENING.finditer(completion_text))
    if len(openings) != 1:
        return Extraction(None, len(openings), False)
    start = min(openings[0].end() + 1, len(completion_text))
    closing = _CLOSING.search(completion_text, start)
    end = closing.start() if closing else len(completion_text)
    return Extraction(completion_text[start:end].rstrip("\r\n"), 1, closing is not None)


def fence(code: str) -> str:
    """The form every solver is taught to answer in, and every judge reads."""
    return f"```python\n{code}\n```"
