"""Duplicate detection: the ids seen last; and the problems seen last, by their tests and by their questions.

Tests are compared in canonical form, questions by MinHash signatures over their runs of three words: the share of equal
minima estimates the Jaccard similarity of the two sets, with a standard deviation of at most .044 (Broder 1997, "On the
resemblance and containment of documents"). The function's name counts in neither.
"""

import ast
import contextlib
import hashlib
import re
from typing import Annotated, Any, Literal

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
REMEMBERED = 512
"""Problems that a new one is compared with."""
SIMILAR = 0.9
"""From this share of equal minima on two questions are the same. One changed word among 50 leaves .89 of the runs."""
PERMUTATIONS = 128
RUN = 3
_EMPTY: Any = MinHash(num_perm=PERMUTATIONS, seed=1, scheme="affine32")
_WORD = re.compile(r"\w+|[^\w\s]")
_SIGNATURE = np.dtype("<u4")
_UNSIGNED = np.zeros(PERMUTATIONS, _SIGNATURE)

Key = Annotated[str, Meta(max_length=KEY_DIGITS)]
Keys = Annotated[list[Key], Meta(max_length=REMEMBERED_IDS)]


def remember(recent: dict[str, None], identifier: str) -> bool:
    """Add to the last REMEMBERED_IDS that were, oldest first; False when it is among them already."""
    key = identifier[:KEY_DIGITS]
    if key in recent:
        return False
    recent[key] = None
    if len(recent) > REMEMBERED_IDS:
        del recent[next(iter(recent))]
    return True


class NoveltyState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tests: Annotated[list[Key], Meta(max_length=REMEMBERED)] = []
    signatures: Annotated[bytes, Meta(max_length=REMEMBERED * PERMUTATIONS * _SIGNATURE.itemsize)] = b""
    """One after the other, in the order of `tests`."""

    def __post_init__(self) -> None:
        if len(self.signatures) != len(self.tests) * PERMUTATIONS * _SIGNATURE.itemsize:
            raise ValueError("not one signature for each problem")


class Novelty:
    """The last `most` problems that were added."""

    def __init__(self, state: NoveltyState | None = None, most: int = REMEMBERED) -> None:
        state, self._most = state or NoveltyState(), most
        signatures = np.frombuffer(state.signatures, _SIGNATURE).reshape(-1, PERMUTATIONS)
        self._known = dict(zip(state.tests, signatures, strict=True))
        """Signature by the key of the tests, oldest first."""

    def add(self, problem: Problem) -> Literal["tests", "question"] | None:
        """Remember it, unless it repeats one that is remembered: then say in what."""
        key, signature = tests_key(problem), signature_of(problem)
        if (repeat := self._repeats(key, signature)) is None:
            self._known[key] = _UNSIGNED if signature is None else signature
            if len(self._known) > self._most:
                del self._known[next(iter(self._known))]
        return repeat

    def repeats(self, problem: Problem) -> bool:
        """Is it one that is remembered, or much like it?"""
        return bool(self._known) and self._repeats(tests_key(problem), signature_of(problem)) is not None

    def _repeats(self, key: str, signature: NDArray[np.uint32] | None) -> Literal["tests", "question"] | None:
        if key in self._known:
            return "tests"
        known = list(self._known.values()) if signature is not None else []
        if known and float((np.stack(known) == signature).mean(axis=1).max()) >= SIMILAR:
            return "question"
        return None

    def state(self) -> NoveltyState:
        return NoveltyState(list(self._known), b"".join(row.tobytes() for row in self._known.values()))


def tests_key(problem: Problem) -> str:
    """16 hex digits, the same for tests that differ in order, spelling, or the function's name; of an item its id."""
    if problem.item is not None:
        return problem.id[:KEY_DIGITS]
    if problem.style is Style.STDIO:
        forms = [f"{case.input.split()} {case.output.split()}" for case in cases_of(problem.tests)]
    else:
        forms = [_canonical(_unnamed(test, problem.entry_point)) for test in problem.tests]
    return hashlib.sha256("\n".join(sorted(forms)).encode("utf-8", "replace")).hexdigest()[:KEY_DIGITS]


def signature_of(problem: Problem) -> NDArray[np.uint32] | None:
    """[PERMUTATIONS] minima over the question's runs of RUN words, its ends marked; None: only its equal repeats it."""
    if problem.item is not None:
        return None
    words = _WORD.findall(_unnamed(problem.question, problem.entry_point).lower())
    padded = [""] * (RUN - 1) + words + [""] * (RUN - 1)
    runs = {" ".join(padded[start : start + RUN]) for start in range(len(padded) - RUN + 1)}
    minima = _EMPTY.copy()
    minima.update_batch([run.encode("utf-8", "replace") for run in sorted(runs)])
    return np.asarray(minima.hashvalues, _SIGNATURE)


def _canonical(test: str) -> str:
    tree, _ = parse(test)
    with contextlib.suppress(RecursionError):
        if tree is not None:
            return ast.dump(tree)
    return " ".join(test.split())


def _unnamed(text: str, entry: str) -> str:
    return re.sub(rf"\b{re.escape(entry)}\b", "f", text) if entry else text
