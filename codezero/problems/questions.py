"""Questions of the synthetic family: a program said in English, and the English read back into the program."""

import functools
import re
from random import Random

from codezero.problems.composition import KINDS, Slot
from codezero.problems.programs import Spec
from codezero.problems.vocabulary import Op

_MAX_QUESTION = 2_000
_QUESTION = re.compile(r"Write a function ([a-z_][a-z0-9_]*)\(([a-z, ]*)\) that ([^\n]+)\.", re.ASCII)


def question_of(spec: Spec, name: str, random: Random) -> str:
    """The program asked for in one of its wordings."""
    kind = KINDS[spec.kind]
    said = [
        random.choice(slot.phrases(op.name)).format(v=kind.variable, k=op.constant)
        for slot, op in zip(kind.slots, spec.ops, strict=True)
    ]
    return f"Write a function {name}({spec.arguments}) that {random.choice(kind.phrases).format(*said)}."


def parse_question(text: str) -> tuple[str, Spec] | None:
    """The inverse of `question_of`: (function name, program), or None when the text is not one of its wordings."""
    match = _QUESTION.fullmatch(text) if len(text) <= _MAX_QUESTION else None
    if match is None:
        return None
    name, arguments, rest = match.groups()
    for kind_name, pattern in _patterns(arguments):
        said = pattern.fullmatch(rest)
        if said is not None:
            slots = KINDS[kind_name].slots
            words = [_lexicon(kind_name, index)[said[f"slot{index}"]] for index in range(len(slots))]
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
    return [
        (name, re.compile(_pattern(name, phrase)))
        for name, kind in KINDS.items()
        if kind.arguments == arguments
        for phrase in kind.phrases
    ]


def _pattern(kind_name: str, phrase: str) -> str:
    groups = [
        f"(?P<slot{index}>{'|'.join(map(re.escape, _lexicon(kind_name, index)))})"
        for index in range(len(KINDS[kind_name].slots))
    ]
    literal = re.split(r"\{(\d)\}", phrase)
    return "".join(groups[int(part)] if place % 2 else re.escape(part) for place, part in enumerate(literal))
