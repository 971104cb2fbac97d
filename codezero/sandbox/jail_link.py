"""Two processes that use each other's objects: an answer in one jail, the tests of it in another.

codezero itself calls nothing here: a bare Python 3.8 or newer runs this file in a jail. Plain data is copied. All else
stays where it was made; the other side has a mirror of it, and asks here whatever the mirror is asked. A list, dict,
set or the like that a call changes is changed on both sides when the call returns.

The side of the tests is wary. What an object of the answer says when it meets plain data in an operator is the
answer's own word, so that leaves the tests undecided, unless its type can equal no plain data. And the answer may do
nothing with objects of the tests but call them, use their operators, and read attributes of classes the tests define.
"""

# pyright: strict, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

import builtins
import json
import operator
import socket
import struct
import types
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from codezero.sandbox.jail_values import MODULES, Incoming, Outgoing

MAX_MESSAGE = 8 * 1024 * 1024
"""Bytes of one message."""
TESTS = "tests"
"""Module of the classes that tests define."""
_LENGTH = struct.Struct("<I")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge", "contains")
_BINARY = ("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift", "and", "or", "xor")
_OTHERS = ("neg", "pos", "abs", "invert", "index", "getitem", "setitem", "delitem")
_BUILTIN = (iter, next, len, bool, str, repr, hash, format, int, float, complex, round, reversed, divmod)


def _reflected(name: str) -> Callable[[Any, Any], Any]:
    apply = getattr(operator, f"__{name}__")
    return lambda own, other: apply(other, own)


OPERATIONS: dict[str, Callable[..., Any]] = {
    "call": lambda target, *args, **named: target(*args, **named),
    "enter": lambda target: type(target).__enter__(target),
    "exit": lambda target, *args: type(target).__exit__(target, *args),
    **{kind.__name__: kind for kind in (*_BUILTIN, getattr, setattr, delattr)},
    **{name: getattr(operator, name) for name in (*COMPARISONS, *_OTHERS)},
    **{name: getattr(operator, f"__{name}__") for name in _BINARY},
    **{f"r{name}": _reflected(name) for name in _BINARY},
}
"""What one side may have the other do."""
_SPECIAL = tuple(name for name in OPERATIONS if name not in ("getattr", "setattr", "delattr"))


class Undecided(BaseException):
    """What the tests ask cannot be told by two processes; the message says why."""


class LinkEnded(BaseException):
    """The other side is gone."""


class Mirror:
    """Of an object on the other side. Its class has the special methods of that object's; each asks there."""

    __slots__ = ("__weakref__",)
    _link_: Any = None

    def __getattr__(self, name: str) -> Any:
        return self._link_.ask("getattr", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._link_.ask("setattr", self, name, value)

    def __delattr__(self, name: str) -> None:
        self._link_.ask("delattr", self, name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise self._link_.doubt("the tests copy an object of the code's own")


class MirrorClass(type):
    """Of a class on the other side: its instances are made there."""

    def __call__(cls, *args: Any, **named: Any) -> Any:
        return cls._link_.ask("call", cls, *args, **named)

    def __getattr__(cls, name: str) -> Any:
        return cls._link_.ask("getattr", cls, name)


def _method(name: str) -> Callable[..., Any]:
    return lambda self, *args, **named: self._link_.ask(name, self, *args, **named)


def _operator(name: str) -> Callable[[Any, Any], Any]:
    def meet(self: Any, other: Any, *modulus: Any) -> Any:
        link = self._link_
        if link.plain(self) is not self:
            return OPERATIONS[name](link.plain(self), link.plain(other), *modulus)
        if link.wary and not isinstance(other, (Mirror, MirrorClass)):
            kind = type(self).__name__
            raise link.doubt(f"compares an object of the code's own type {kind}, which may equal anything")
        return link.ask(name, self, other, *modulus)

    return meet


@contextmanager
def _checked(link: Link) -> Generator[None]:
    """Turns what goes wrong while a message is read into doubt: it is no value of ours."""
    try:
        yield
    except Exception as error:
        raise link.doubt("an answer that is no value") from error


class Link:
    """One end. wary: it is the tests' end."""

    def __init__(self, end: socket.socket, *, wary: bool) -> None:
        self._end, self.wary = end, wary
        self.operations = dict(OPERATIONS)
        self.own: list[Any] = []
        """What the other side has mirrors of, by number."""
        self._numbers: dict[int, int] = {}
        self._classes: dict[int, dict[str, Any]] = {}
        self.mirrors: dict[int, Any] = {}
        self._plain: dict[int, Any] = {}
        self.mirrored: dict[int, int] = {}
        """Numbers of mirrors, by id."""
        self.unclear = ""
        """Why the tests cannot be decided; whatever they caught, that stands."""
        self.ended = False  # is the other side gone? whatever the tests caught, that stands too
        self.foreign: BaseException | None = None
        """The last exception that came from the other side."""

    def doubt(self, why: str) -> Undecided:
        self.unclear = self.unclear or why
        return Undecided(why)

    def plain(self, value: Any) -> Any:
        """What a mirror is as plain data; itself when it is none."""
        return self._plain.get(id(value), value)

    def ask(self, operation: str, *args: Any, **named: Any) -> Any:
        """Have the other side do it. Raises what it raises there, LinkEnded, and Undecided."""
        outgoing = Outgoing(self, [])
        items = [outgoing.item(value) for value in args]
        pairs = {name: outgoing.item(value) for name, value in named.items()}
        self._send({"do": operation, "args": items, "named": pairs}, outgoing)
        while "do" in (message := self.receive()):
            self.serve(message)
        if "doubt" in message:
            raise self.doubt(str(message["doubt"])[:200])
        value = error = None
        with _checked(self):
            incoming = Incoming(self, outgoing.values, outgoing.table + message["table"])
            if "raised" in message:
                error = incoming.value(message["raised"])
            else:
                value = incoming.value(message["value"])
            for place, entry in message["changes"]:
                incoming.change(place, entry)
        if error is None:
            return value
        self.foreign = error
        raise error

    def serve(self, message: dict[str, Any]) -> None:
        """Do what the other side asks, and answer."""
        incoming = Incoming(self, [], message["table"])
        with _checked(self):
            args = [incoming.value(item) for item in message["args"]]
            named = {name: incoming.value(item) for name, item in message["named"].items()}
            operation = self.operations[message["do"]]
            incoming.complete()
        if self.wary and not _is_lent(message["do"], args):
            raise self.doubt("the code looks into what the tests handed to it")
        outgoing = Outgoing(self, incoming.values)
        try:
            try:
                answer = {"value": outgoing.item(operation(*args, **named))}
            except (LinkEnded, Undecided):
                raise
            except BaseException as error:  # noqa: BLE001 - whatever it raises is raised on the other side
                answer = {"raised": outgoing.error(error)}
            answer["changes"] = list(outgoing.changes(message["table"]))
            self._send(answer, outgoing)
        except Undecided as reason:
            if self.wary:
                raise
            self._send({"doubt": str(reason)}, Outgoing(self, []))

    def _send(self, message: dict[str, Any], outgoing: Outgoing) -> None:
        text = json.dumps({**message, "table": outgoing.table, "classes": outgoing.classes}).encode()
        if len(text) > MAX_MESSAGE:
            raise self.doubt("a value that is too large")
        try:
            self._end.sendall(_LENGTH.pack(len(text)) + text)
        except OSError as error:
            self.ended = True
            raise LinkEnded from error

    def receive(self) -> dict[str, Any]:
        """The next message. Raises LinkEnded, and Undecided for what is none."""
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size))
        if length > MAX_MESSAGE:
            raise self.doubt("a value that is too large")
        text = self._read(length)
        with _checked(self):
            message = json.loads(text)
            for description in message["classes"]:
                self._mirror_class(**description)
            if not isinstance(message["table"], list):
                raise TypeError
            return message

    def _read(self, length: int) -> bytes:
        data = bytearray()
        while len(data) < length:
            try:
                piece = self._end.recv(length - len(data))
            except OSError:
                piece = b""
            if not piece:
                self.ended = True
                raise LinkEnded
            data += piece
        return bytes(data)

    def number(self, value: Any) -> int:
        """Of an object of this side, which is kept from now on."""
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self.own)
            self.own.append(value)
        return self._numbers[id(value)]

    def class_number(self, kind: type, classes: list[dict[str, Any]]) -> int:
        """Of a class of this side. What the other side has to know to mirror its instances is added to `classes`."""
        number = self.number(kind)
        if number in self._classes:
            return number
        line = [base for base in kind.__mro__ if base is not object]
        methods = {name: value for base in reversed(line) for name, value in vars(base).items()}
        library = kind.__module__ in MODULES
        same = [name for name, value in vars(types).items() if value is kind]
        self._classes[number] = description = {
            "number": number,
            "name": kind.__name__[:100],
            "special": [name for name in _SPECIAL if methods.get(f"__{name}__") is not None],
            "base": next((base.__name__ for base in line if getattr(builtins, base.__name__, None) is base), "object"),
            "like": same[0] if same else "",
            "parents": [
                self.class_number(base, classes) for base in line[1:] if not library and base.__module__ not in MODULES
            ],
        }
        classes.append(description)
        return number

    def _mirror_class(
        self, number: int, name: str, special: list[str], base: str, like: str, parents: list[int]
    ) -> None:
        """Make the class that mirrors one of the other side. Raises TypeError, ValueError and KeyError."""
        known: Any = getattr(builtins, base)
        parent = self.mirrors[parents[0]] if parents else None
        methods: dict[str, Any] = {f"__{each}__": _method(each) for each in special if each in _SPECIAL}
        meeting = (*COMPARISONS, *_BINARY, *(f"r{name}" for name in _BINARY))
        methods.update({f"__{each}__": _operator(each) for each in special if each in meeting})
        seems: Any = getattr(types, like) if like.endswith("Type") else known
        if issubclass(known, BaseException):
            parent, methods = parent or known, {"__getattr__": Mirror.__getattr__}
        elif seems is not object:
            methods["__class__"] = property(lambda self: seems)
        methods.update(_link_=self, __slots__=(), __module__="code")
        self.add_mirror(number, MirrorClass(name, (parent or Mirror,), methods))

    def add_mirror(self, number: int, mirror: Any) -> Any:
        self.mirrors[number] = mirror
        self.mirrored[id(mirror)] = number
        return mirror

    def instance(self, number: int, kind: int, *plain: Any) -> Any:
        """The mirror of an object. plain: what it is as plain data."""
        if number not in self.mirrors:
            self.add_mirror(number, object.__new__(self.mirrors[kind]))
        if plain:
            self._plain[id(self.mirrors[number])] = plain[0]
        return self.mirrors[number]


def _is_lent(operation: str, args: list[Any]) -> bool:
    """May an answer do this with an object of the tests?"""
    if operation not in ("getattr", "setattr", "delattr"):
        return operation in OPERATIONS and not isinstance(args[0], types.ModuleType)
    owner = args[0] if isinstance(args[0], type) else type(args[0])
    return owner.__module__ == TESTS and isinstance(args[1], str) and not args[1].startswith("__")
