"""Two sides of a link: plain data is copied, all else mirrored, and the side of the tests believes nothing."""

import json
import math
import socket
import threading
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codezero.sandbox.jail_link import Link, LinkEnded, Mirror, Undecided

ATOMS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary() | st.dates()
    | st.integers(-9, 9).map(range) | st.complex_numbers(allow_nan=False) | st.decimals(allow_nan=False)
    | st.datetimes() | st.timedeltas() | st.fractions()
)  # fmt: skip
HASHABLE = st.recursive(ATOMS, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=8)
VALUES = st.recursive(
    HASHABLE | st.lists(HASHABLE).map(Counter),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(deque)
        | st.tuples(inner)
        | st.sets(HASHABLE)
        | st.dictionaries(HASHABLE, inner)
    ),
    max_leaves=20,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
FIELDS = ("do", "args", "named", "table", "classes", "value", "changes", "raised", "doubt")


@contextmanager
def linked(**names: Any) -> Iterator[Callable[..., Any]]:
    """Ask an answer that has these names, from a wary side: `ask("name")`."""
    mine, theirs = socket.socketpair()
    answer = Link(theirs, wary=False)
    answer.operations["name"] = names.__getitem__

    def serve() -> None:
        with theirs:
            try:
                while True:
                    answer.serve(answer.receive())
            except (LinkEnded, Undecided):
                return

    thread = threading.Thread(target=serve)
    thread.start()
    tests = Link(mine, wary=True)
    try:
        yield lambda name: tests.ask("name", name)
    finally:
        mine.close()
        thread.join()


@settings(deadline=None, max_examples=60)
@given(VALUES)
def test_a_value_crosses_twice_and_is_the_same(value: object) -> None:
    with linked(echo=lambda value: value, keep=value) as name:
        for again in (name("echo")(value), name("keep")):
            assert type(again) is type(value)
            assert again == value


@given(st.floats() | st.complex_numbers())
@settings(deadline=None, max_examples=30)
def test_a_number_crosses_to_the_last_bit(value: complex) -> None:
    with linked(value=value) as name:
        assert repr(name("value")) == repr(value)


def test_what_is_met_twice_stays_one_and_what_a_call_changes_is_changed() -> None:
    def change(values: list[Any], seen: dict[str, int], rest: deque[int]) -> list[Any]:
        values.append(values[0])
        values[0].add(3)
        seen["x"] = 1
        rest.rotate()
        return values

    with linked(change=change) as name:
        inner = {1}
        values, seen, rest = [inner], dict[str, int](), deque([1, 2], maxlen=2)
        assert name("change")(values, seen, rest) is values
        assert values == [{1, 3}, {1, 3}] and values[0] is values[1] is inner
        assert seen == {"x": 1} and rest == deque([2, 1]) and rest.maxlen == 2
        endless: list[Any] = []
        endless.append(endless)
        assert name("change")([set()], {}, deque())[0] == {3}
        assert name("change")([set(), endless], {}, deque())[1][0] is endless


def test_objects_stay_where_they_are_and_answer_there() -> None:
    class Stack:
        size = 0

        def push(self, item: int) -> "Stack":
            self.size += item
            return self

        def __len__(self) -> int:
            return self.size

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Stack) and other.size == self.size

    class Twice(Stack):
        def push(self, item: int) -> Stack:
            return super().push(2 * item)

    def numbers() -> Iterator[int]:
        yield from (1, 2, 3)

    point = namedtuple("point", "x y")
    with linked(Stack=Stack, Twice=Twice, numbers=numbers, point=point, root=math.sqrt) as name:
        stack = name("Stack")()
        assert isinstance(stack, Mirror) and stack.push(2) is stack
        assert len(stack) == 2 and stack.size == 2 and stack == name("Twice")().push(1)
        assert isinstance(name("Twice")(), name("Stack")) and not isinstance(stack, name("Twice"))
        stack.size = 5
        assert len(stack) == 5
        found = name("numbers")()
        assert next(found) == 1 and list(found) == [2, 3] and found != [2, 3]
        assert name("point")(1, 2).y == 2 and name("point")(1, 2) == (1, 2)
        assert name("root") is math.sqrt
        with pytest.raises(AttributeError, match="pop"):
            stack.pop()
        with pytest.raises(TypeError, match="not iterable"):
            iter(stack)


def test_errors_cross_with_their_types() -> None:
    class Odd(ValueError):
        code = 3

    def fail(kind: str) -> None:
        raise {"odd": Odd("x"), "key": KeyError("k"), "file": FileNotFoundError(2, "No such file", "/proc/x")}[kind]

    with linked(fail=fail, Odd=Odd) as name:
        with pytest.raises(ValueError, match="x") as caught:
            name("fail")("odd")
        assert isinstance(caught.value, name("Odd")) and caught.value.code == 3  # type: ignore[attr-defined]
        with pytest.raises(KeyError, match="k"):
            name("fail")("key")
        with pytest.raises(FileNotFoundError) as missing:
            name("fail")("file")
        assert missing.value.filename == "/proc/x"


def test_functions_and_objects_of_the_tests_are_lent_for_their_use_alone() -> None:
    class Node:
        def __init__(self, value: int, rest: "Node | None" = None) -> None:
            self.value, self.rest = value, rest

    Node.__module__ = "tests"

    def total(node: Any) -> int:
        return node.value + (total(node.rest) if node.rest else 0)

    def reach(thing: Any) -> Any:
        return thing.__globals__ if callable(thing) else thing.__class__.__init__.__globals__

    with linked(total=total, twice=lambda call: call(call(3)), reach=reach) as name:
        assert name("total")(Node(1, Node(2))) == 3
        assert name("twice")(lambda value: value + 1) == 5
    for thing in (lambda: 0, Node):
        with linked(reach=reach) as name, pytest.raises(Undecided, match="looks into"):
            name("reach")(thing)


@pytest.mark.parametrize(
    "use", [lambda x: x == 3, lambda x: [x] == [3], lambda x: 3 in [x], lambda x: abs(x - 3.0) < 1]
)
def test_what_may_equal_anything_is_not_believed(use: Callable[[Any], bool]) -> None:
    class All:
        def __eq__(self, other: object) -> bool:
            return True

        def __sub__(self, other: float) -> float:
            return 0.0

    class Number(int):
        def __eq__(self, other: object) -> bool:
            return True

        def __sub__(self, other: float) -> float:  # type: ignore[override]
            return 0.0

    for thing in (All(), Number(7)):
        with linked(thing=thing) as name, pytest.raises(Undecided, match="may equal anything"):
            use(name("thing"))


def test_what_can_equal_no_plain_data_is_decided() -> None:
    class Plain:
        pass

    with linked(made=Plain(), lazy=(i for i in [1]), pairs=zip([1], [2], strict=True), f=len, g=lambda: 0) as name:
        for thing in map(name, ("made", "lazy", "pairs", "f", "g")):
            assert thing != [1] and thing != 1 and not thing == "x"  # noqa: SIM201


def test_library_values_are_themselves() -> None:
    values = [Decimal("1.50"), Fraction(1, 3), date(2024, 2, 29), timedelta(1, 2, 3), Counter("aab"), OrderedDict(a=1)]
    with linked(values=[*values, defaultdict(list, a=[1])], keys={1: 2}.keys(), kind=Decimal) as name:
        again = name("values")
        assert again[:6] == values and [type(value) for value in again[:6]] == [type(value) for value in values]
        assert again[6]["b"] == [] and name("keys") == {1} and name("kind") is Decimal


def test_what_is_too_large_or_dangerous_is_doubted() -> None:
    wide: list[Any] = [1] * 300_000
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for thing in (wide, deep, "x" * 9_000_000):
        with linked(thing=thing) as name, pytest.raises(Undecided, match="too"):
            name("thing")
    with linked(thing=eval) as name:
        assert isinstance(name("thing"), Mirror)  # it stays on the side of the answer


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(JSON | st.dictionaries(st.sampled_from(FIELDS), JSON))
def test_whatever_an_answer_says_the_tests_get_a_value_or_a_doubt(said: Any) -> None:
    mine, theirs = socket.socketpair()
    with mine, theirs:
        text = json.dumps(said).encode()
        theirs.sendall(len(text).to_bytes(4, "little") + text)
        theirs.shutdown(socket.SHUT_WR)
        try:
            Link(mine, wary=True).ask("name", "f")
        except (Undecided, LinkEnded):
            return


@pytest.mark.parametrize(
    "value",
    [
        ["library", "builtins", "eval"],
        ["library", "os", "system"],
        ["library", "builtins", "__import__"],
        ["module", "os"],
        ["yours", 0],
        ["yours", -1],
        ["@", -1],
        ["value", "os", "system", "true"],
        ["value", "builtins", "eval", "1"],
        ["own", 0, 99],
        ["class", 0],
        ["error", ["library", "builtins", "int"], None, None],
        ["lambda"],
        [],
        1,
    ],
)
def test_forged_values_are_doubted(value: Any) -> None:
    mine, theirs = socket.socketpair()
    with mine, theirs:
        message = {"value": value, "changes": [], "table": [], "classes": []}
        text = json.dumps(message).encode()
        theirs.sendall(len(text).to_bytes(4, "little") + text)
        with pytest.raises(Undecided, match="no value"):
            Link(mine, wary=True).ask("name", "f")
