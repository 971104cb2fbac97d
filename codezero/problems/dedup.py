"""Near-duplicate detection: canonical tests, MinHash signatures of questions, and the ids seen last.

A memory of the last ids, which stays small however long a run is.

Have we had this problem before, or nearly? Its tests in canonical form, and MinHash signatures of its question.

A signature has 128 minima over the question's runs of three words; the share of equal minima of two signatures
estimates the Jaccard similarity of the two sets of runs, with a standard deviation of at most .044 (Broder 1997, "On
the resemblance and containment of documents"). The function's name counts neither in the tests nor in the question.
"""

import ast
import functools
import hashlib
import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import numpy as np
from datasketch import MinHash
from msgspec import Meta
from numpy.typing import NDArray

from codezero.code.assertions import cases_of
from codezero.code.parsing import parse
from codezero.types import Problem, Style

REMEMBERED_IDS = 4096
KEY_DIGITS = 16
"""Of a problem's id; enough to tell 20,000 apart."""

Key = Annotated[str, msgspec.Meta(max_length=KEY_DIGITS)]
Keys = Annotated[list[Key], msgspec.Meta(max_length=REMEMBERED_IDS)]


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
        if len(self._keys) > REMEMBERED_IDS:
            del self._keys[next(iter(self._keys))]
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)


REMEMBERED = 512
"""Problems that a new one is compared with."""
SIMILAR = 0.9
"""From this share of equal minima on two questions are the same. One changed word among 50 leaves .89 of the runs."""
PERMUTATIONS = 128
RUN = 3
_WORD = re.compile(r"\w+|[^\w\s]")
_SIGNATURE = np.dtype("<u4")

Signature = NDArray[np.uint32]


class Repeat(StrEnum):
    """In what a problem is no news."""

    TESTS = "tests"
    QUESTION = "question"


class NoveltyState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a checkpoint keeps."""

    tests: Annotated[list[Annotated[str, Meta(max_length=16)]], Meta(max_length=REMEMBERED)] = []
    signatures: Annotated[bytes, Meta(max_length=REMEMBERED * PERMUTATIONS * _SIGNATURE.itemsize)] = b""
    """One after the other, in the order of `tests`."""

    def __post_init__(self) -> None:
        if len(self.signatures) != len(self.tests) * PERMUTATIONS * _SIGNATURE.itemsize:
            raise ValueError("not one signature for each problem")


class Novelty:
    """The last REMEMBERED problems that were added."""

    def __init__(self, state: NoveltyState | None = None) -> None:
        self._tests: dict[str, None] = {}
        self._signatures = np.zeros((REMEMBERED, PERMUTATIONS), _SIGNATURE)
        self._next = 0
        if state is not None:
            self._tests = dict.fromkeys(state.tests)
            held = np.frombuffer(state.signatures, _SIGNATURE).reshape(-1, PERMUTATIONS)[: len(self._tests)]
            self._signatures[: len(held)] = held
            self._next = len(held) % REMEMBERED

    def add(self, problem: Problem) -> Repeat | None:
        """Remember it, unless it repeats one that is remembered: then say in what."""
        key, signature = tests_key(problem), signature_of(problem)
        if key in self._tests:
            return Repeat.TESTS
        known = self._signatures[: len(self._tests)]
        if len(known) and float((known == signature).mean(axis=1).max()) >= SIMILAR:
            return Repeat.QUESTION
        if len(self._tests) == REMEMBERED:
            del self._tests[next(iter(self._tests))]  # the oldest, whose row is the next to be written
        self._tests[key] = None
        self._signatures[self._next] = signature
        self._next = (self._next + 1) % REMEMBERED
        return None

    def state(self) -> NoveltyState:
        """Oldest first."""
        rows = self._signatures[: len(self._tests)]
        if len(self._tests) == REMEMBERED:
            rows = np.roll(rows, -self._next, axis=0)
        return NoveltyState(list(self._tests), rows.tobytes())


def tests_key(problem: Problem) -> str:
    """16 hex digits, the same for tests that differ in order, spelling, or the function's name."""
    if problem.style is Style.STDIO:
        forms = [f"{case.input.split()} {case.output.split()}" for case in cases_of(problem.tests)]
    else:
        forms = [_canonical(test, problem.entry_point) for test in problem.tests]
    return hashlib.sha256("\n".join(sorted(forms)).encode("utf-8", "replace")).hexdigest()[:16]


def signature_of(problem: Problem) -> Signature:
    """[PERMUTATIONS] minima over the question's runs of RUN words, its ends marked."""
    words = _WORD.findall(_unnamed(problem.question, problem.entry_point).lower())
    padded = [""] * (RUN - 1) + words + [""] * (RUN - 1)
    runs = {" ".join(padded[start : start + RUN]) for start in range(len(padded) - RUN + 1)}
    return _minima(sorted(runs))


def _minima(texts: Sequence[str]) -> Signature:
    made: Any = MinHash(num_perm=PERMUTATIONS, seed=1, permutations=_permutations(), scheme="affine32")
    made.update_batch([text.encode("utf-8", "replace") for text in texts])
    return np.asarray(made.hashvalues, _SIGNATURE)


@functools.cache
def _permutations() -> Any:
    made: Any = MinHash(num_perm=PERMUTATIONS, seed=1, scheme="affine32")
    return made.permutations


def _canonical(test: str, entry: str) -> str:
    text = _unnamed(test, entry)
    tree, _ = parse(text)
    try:
        return " ".join(text.split()) if tree is None else ast.dump(tree)
    except RecursionError:
        return " ".join(text.split())


def _unnamed(text: str, entry: str) -> str:
    return re.sub(rf"\b{re.escape(entry)}\b", "f", text) if entry else text
