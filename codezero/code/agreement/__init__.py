"""Decide whether two functions return the same for all arguments of bounded shape, on their text alone, for unknown
numbers and characters at once (symbolic execution: King 1976, "Symbolic execution and program testing").

Lists and texts of each small length, of elements that may be anything: both functions are followed on every path that
their decisions open, and have to return the same there. What one of them does on longer ones is not looked at."""

# pyright: reportUnknownArgumentType=false

import ast
import contextlib
from collections.abc import Iterator, Sequence
from itertools import product
from random import Random
from typing import Any

from codezero.code.agreement.interpreter import CAUGHT, Interpreter
from codezero.code.agreement.paths import BudgetSpent, Infeasible, NotUnderstood, Path
from codezero.code.agreement.values import Number, Text, is_real, unknown
from codezero.code.assertions import BOOL, INT, STR, Kind, element, is_list
from codezero.code.parsing import parse

LENGTHS = (0, 1, 2, 3)
SURE_LENGTH = 2  # shapes up to which every path is followed; of longer ones as many as there is time for
MOST_LENGTH = 8
MOST_PATHS, MOST_STEPS = (150, 20), (15_000, 5_000)
"""Of a shape of the small lengths, and of a longer one; of each the first path answers every question with yes."""
MASKED = "<STR>"
RESULTS = (list, tuple, Number, int, float, Text, type(None))
Shape = tuple[int, ...]  # of each list and each text among the arguments its length


def agree(code: str, other: str, entry: str, kinds: Sequence[Kind]) -> bool | None:
    """None: it is not known. `kinds`: of the arguments that `entry` is called with in both. Of arguments for which
    `other` raises an error nothing is asked. Bounded in time."""
    trees = [tree for text in (code, other) if MASKED not in text for tree, _ in [parse(text)] if tree is not None]
    if not kinds or len(trees) < 2:
        return None
    returned = False
    for shape in _shapes(kinds, trees):
        try:
            for answer in _answers(trees, entry, kinds, shape):
                if answer is False:
                    return False
                returned |= answer is True
        except BudgetSpent:
            if max(shape, default=0) <= SURE_LENGTH:
                return False
        except NotUnderstood:
            return None
        except (RuntimeError, TypeError, AttributeError):  # of ours, or one that no program may catch
            return False
    return returned or None


def _answers(trees: Sequence[ast.Module], entry: str, kinds: Sequence[Kind], shape: Shape) -> Iterator[bool | None]:
    """Say for each path whether both return the same; None: the second raises. Raises NotUnderstood."""
    is_long = max(shape, default=0) > LENGTHS[-1]
    waiting, random, budget = [list[bool]()], Random(0), iter(range(MOST_STEPS[is_long]))

    def returned(tree: ast.Module, path: Path) -> tuple[Any] | None:
        """None: it raises an error."""
        lengths = iter(shape)
        arguments = [_unknown(path, f"{place}", kind, lengths) for place, kind in enumerate(kinds)]
        try:
            return (Interpreter(tree, path, budget).call(entry, arguments),)
        except NotUnderstood:
            raise
        except CAUGHT:
            return None

    for _ in range(MOST_PATHS[is_long]):
        if not waiting:
            return
        path = Path(waiting.pop(random.randrange(len(waiting))))  # the first ones are alike
        with contextlib.suppress(Infeasible):
            expected = returned(trees[1], path)
            yield None if expected is None else _identical(returned(trees[0], path), expected)
        waiting += [[*path.decided[:place], False] for place in path.open]
    raise BudgetSpent("too many paths")


def _identical(first: Any, other: Any) -> bool:
    if not all(isinstance(each, RESULTS) for each in (first, other)):
        raise NotUnderstood("a result of another type")
    match first, other:
        case (list(), list()) | (tuple(), tuple()):
            return len(first) == len(other) and all(map(_identical, first, other))
        case (Number() | int() | float(), Number() | int() | float()):
            kinds = {(isinstance(each, bool), is_real(each)) for each in (first, other)}
            return len(kinds) == 1 and first == other
        case _:
            return type(first) is type(other) and first == other


def _shapes(kinds: Sequence[Kind], trees: Sequence[ast.Module]) -> Iterator[Shape]:
    """Yield the length of each list or text among the arguments, shortest first: small ones, and of a single one those
    about numbers in the programs, where a slice or a comparison may change its mind."""
    sized = sum(1 for kind in kinds if kind == STR or is_list(kind))
    if sized > 1:
        return product(LENGTHS[:3], repeat=sized)
    nodes = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant))
    about = {node.value + more for node in nodes if isinstance(node.value, int) for more in (0, 1, 2)}
    lengths = sorted({*LENGTHS, *(length for length in about if LENGTHS[-1] < length <= MOST_LENGTH)})
    return iter(sorted(product(lengths, repeat=sized), key=sum))


def _unknown(path: Path, name: str, kind: Kind, lengths: Iterator[int]) -> Any:
    if kind == INT:
        return unknown(path, name)
    if kind == BOOL:
        return bool(unknown(path, name))
    if kind == STR:
        return Text([unknown(path, f"{name} {place}") for place in range(next(lengths))])
    if is_list(kind) and element(kind) in (INT, BOOL, STR):
        return [_unknown(path, f"{name}.{each}", element(kind), iter([2])) for each in range(next(lengths))]
    raise NotUnderstood(kind)
