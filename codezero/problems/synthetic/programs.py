"""Synthetic programs as data (`Spec`): drawn at random, written as code, computed, mutated; and their questions.

No text is ever evaluated: `render` writes what a solver should find, `solution` composes the atoms' functions.
"""

import functools
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from codezero.problems.synthetic.grammar import KINDS, LEVELS, ProgramKind, Slot
from codezero.problems.synthetic.vocabulary import Atom, Op

_KIND_NAMES = {
    level: tuple(name for name, kind in KINDS.items() if kind.level == level for _ in range(kind.weight))
    for level in LEVELS
}
_HELD_OUT_ONE_IN = 5
_P_NAMED = 0.1
"""How often a style gives the result a name first."""
_P_DROP, _P_SWAP_BRANCHES = 0.25, 0.35
"""Upper ends of the ranges of one uniform draw."""


@dataclass(frozen=True, slots=True)
class Spec:
    """A program: its kind and one operation for each of the kind's slots."""

    kind: str
    ops: tuple[Op, ...]

    @property
    def level(self) -> int:
        return KINDS[self.kind].level

    @property
    def arguments(self) -> str:
        return KINDS[self.kind].arguments


def sample_spec(random: Random, level: int) -> Spec:
    """A random program of `level`, from either side of the split."""
    name = random.choice(_KIND_NAMES[level])
    kind = KINDS[name]
    while True:
        ops = tuple(_draw(slot, random.choice(slot.names), random) for slot in kind.slots)
        if _may_stand_together(kind, ops):
            return Spec(name, ops)


def _draw(slot: Slot, name: str, random: Random) -> Op:
    return Op(name, random.choice(slot.family[name].constants))


def _may_stand_together(kind: ProgramKind, ops: tuple[Op, ...]) -> bool:
    if kind.differ == "name":
        return ops[-1].name != ops[-2].name
    return not kind.differ or ops[-1] != ops[-2]


def signature(spec: Spec) -> str:
    """What the split is decided on: operation names where programs are composed, name and constant where not."""
    if len(spec.ops) == 1:
        return f"{spec.kind}:{spec.ops[0].name}:{spec.ops[0].constant}"
    return f"{spec.kind}:{','.join(op.name for op in spec.ops)}"


def is_held_out(spec: Spec) -> bool:
    """Is the program kept from training? A single operation without a constant never is: nothing else teaches it."""
    if len(spec.ops) == 1 and spec.ops[0].constant is None:
        return False
    return zlib.crc32(signature(spec).encode()) % _HELD_OUT_ONE_IN == 0


def render(spec: Spec, name: str, style: Random | None = None) -> str:
    """The program as a function `name` of one return line; with `style` in one of the ways that it can be written."""
    body = f"return {expression(spec, style)}"
    if style is not None and style.random() < _P_NAMED:
        body = f"result = {body[len('return ') :]}\n    return result"
    return f"def {name}({spec.arguments}):\n    {body}"


def expression(spec: Spec, style: Random | None = None) -> str:
    kind = KINDS[spec.kind]
    atoms = [slot.family[op.name] for slot, op in zip(kind.slots, spec.ops, strict=True)]

    def choose(part: Atom | ProgramKind) -> str:
        return part.code if style is None else style.choice((part.code, *part.others))

    codes = [choose(atom) for atom in atoms]
    parts = [code.format(v=kind.variable, k=op.constant) for code, op in zip(codes, spec.ops, strict=True)]
    body = choose(kind).format(*parts)
    if kind.outer is None:
        return body
    outer = codes[kind.outer]
    if len(atoms) == 2 and body == parts[0] and atoms[0].operator and "({v})" not in outer:
        body = f"({body})"
    return outer.format(v=body, k=spec.ops[kind.outer].constant)


@functools.lru_cache(maxsize=20_000)
def solution(spec: Spec) -> Callable[..., Any]:
    """What the program computes. Calling it raises one of `CALL_ERRORS` where the program would."""
    kind = KINDS[spec.kind]
    run = kind.build([_bind(slot.family[op.name].apply, op) for slot, op in zip(kind.slots, spec.ops, strict=True)])
    return (lambda *pair: run(pair)) if "," in kind.arguments else run


CALL_ERRORS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What a program may raise on inputs or operations that do not fit (only mutants have such operations)."""


def _bind(apply: Callable[[Any, Any], Any], op: Op) -> Callable[[Any], Any]:
    return lambda value: apply(value, op.constant)


def mutate(spec: Spec, random: Random) -> Spec:
    """Another program with the same arguments: a step dropped, branches swapped, an operation or constant changed.

    It may compute the same on many inputs; whether tests tell the two apart is for the caller to find out.
    """
    while True:
        mutant = _mutate_once(spec, random)
        if mutant != spec:
            return mutant


def _mutate_once(spec: Spec, random: Random) -> Spec:
    kind, roll = KINDS[spec.kind], random.random()
    if kind.drops and roll < _P_DROP:
        name, kept = random.choice(kind.drops)
        return Spec(name, tuple(spec.ops[index] for index in kept))
    if kind.differ == "name or constant" and roll < _P_SWAP_BRANCHES:
        return replace(spec, ops=(*spec.ops[:-2], spec.ops[-1], spec.ops[-2]))
    index = random.randrange(len(spec.ops))
    slot, op = kind.slots[index], spec.ops[index]
    others = [constant for constant in slot.family[op.name].constants if constant != op.constant]
    if others and random.random() < 0.5:
        changed = Op(op.name, random.choice(others))
    else:
        changed = _swap_operation(slot, op, random)
    return replace(spec, ops=(*spec.ops[:index], changed, *spec.ops[index + 1 :]))


def _swap_operation(slot: Slot, op: Op, random: Random) -> Op:
    """Another operation of the slot, with the same constant where it has one that fits."""
    name = random.choice([other for other in slot.swaps if other != op.name])
    if op.constant in slot.family[name].constants:
        return Op(name, op.constant)
    return _draw(slot, name, random)


_MAX_QUESTION = 2_000
_QUESTION = re.compile(r"Write a function ([a-z_][a-z0-9_]*)\(([a-z, ]*)\) that ([^\n]+)\.", re.ASCII)


def question_of(spec: Spec, name: str, random: Random) -> str:
    """The program asked for in one of its wordings."""
    kind = KINDS[spec.kind]
    phrases = [
        random.choice(slot.phrases(op.name)).format(v=kind.variable, k=op.constant)
        for slot, op in zip(kind.slots, spec.ops, strict=True)
    ]
    return f"Write a function {name}({spec.arguments}) that {random.choice(kind.phrases).format(*phrases)}."


def parse_question(text: str) -> tuple[str, Spec] | None:
    """The inverse of `question_of`: (function name, program), or None when the text is not one of its wordings."""
    match = _QUESTION.fullmatch(text) if len(text) <= _MAX_QUESTION else None
    if match is None:
        return None
    name, arguments, rest = match.groups()
    for kind_name, pattern in _patterns(arguments):
        phrases = pattern.fullmatch(rest)
        if phrases is not None:
            slots = KINDS[kind_name].slots
            words = [_lexicon(kind_name, index)[phrases[f"slot{index}"]] for index in range(len(slots))]
            return name, Spec(kind_name, tuple(words))
    return None


@functools.cache
def _lexicon(kind_name: str, index: int) -> dict[str, Op]:
    """Every phrase that can stand in a slot -> the operation it says."""
    kind = KINDS[kind_name]
    slot: Slot = kind.slots[index]
    return {
        phrase.format(v=kind.variable, k=constant): Op(name, constant)
        for name in slot.names
        for phrase in slot.phrases(name)
        for constant in slot.family[name].constants
    }


@functools.cache
def _patterns(arguments: str) -> list[tuple[str, re.Pattern[str]]]:
    """(kind, pattern with a group `slotN` for each slot) for every wording of a kind with these arguments."""
    kinds = [(name, kind.phrases) for name, kind in KINDS.items() if kind.arguments == arguments]
    return [(name, re.compile(_pattern(name, phrase))) for name, phrases in kinds for phrase in phrases]


def _pattern(kind_name: str, phrase: str) -> str:
    groups = [
        f"(?P<slot{index}>{'|'.join(map(re.escape, _lexicon(kind_name, index)))})"
        for index in range(len(KINDS[kind_name].slots))
    ]
    literal = re.split(r"\{(\d)\}", phrase)
    return "".join(groups[int(part)] if place % 2 else re.escape(part) for place, part in enumerate(literal))
