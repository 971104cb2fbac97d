"""Numbers, readable names of peers and text of others, as a terminal can show them. Knows nothing of a run.

There are 4,096 readable names: enough to tell peers apart, no proof of identity."""

import hashlib
import unicodedata
from collections.abc import Sequence
from itertools import pairwise

_ADJECTIVES = """
agile amber ample azure blithe bold brave bright brisk calm candid cheery clever cosmic crisp curious daring deft
eager earnest fair fancy fleet fluent fresh gentle gifted glad golden grand happy hardy honest humble jolly keen kind
lively loyal lucid lucky mellow merry mighty modest nimble noble patient plucky polite proud quick quiet rapid royal
serene sharp silver sturdy sunny swift tidy vivid witty
"""
_ANIMALS = """
alpaca ant badger bat bear beaver bee bison camel cat cobra crab crane crow deer dingo dolphin dove duck eagle eel
falcon ferret finch fox frog gecko goat goose hare hawk hedgehog heron ibex jackal jaguar koala lark lemur llama lynx
magpie mole moose newt otter owl panda parrot pelican penguin puma quail rabbit raven robin seal shrew sloth stork
swan tapir tiger whale
"""
ADJECTIVES, ANIMALS = _ADJECTIVES.split(), _ANIMALS.split()


def readable_name(peer_id: str) -> str:
    """`adjective-animal`, the same for the same peer id on every machine."""
    digest = hashlib.sha256(peer_id.encode("utf-8", "replace")).digest()
    return f"{ADJECTIVES[digest[0] % len(ADJECTIVES)]}-{ANIMALS[digest[1] % len(ANIMALS)]}"


BLOCKS = "▁▂▃▄▅▆▇█"
# Unicode categories that move the cursor, reverse the line, hide, or cannot be encoded
INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def clean(text: str, limit: int = 200, *, lines: bool = False) -> str:
    """Text of others without anything that could act on a terminal, at most `limit` characters. Newlines stay when
    `lines`, else they become spaces. Of a pile of combining marks the first stays."""
    shown: list[str] = []
    marked = False
    for character in text[: limit + 1].expandtabs(4)[: limit + 1]:
        mark = unicodedata.combining(character) != 0
        if character == "\n":
            shown.append("\n" if lines else " ")
        elif unicodedata.category(character) in INVISIBLE:
            shown.append("·")
        elif not (mark and marked):
            shown.append(character)
        marked = mark
    return "".join(shown[: limit - 1]) + "…" if len(shown) > limit else "".join(shown)


def sparkline(values: Sequence[float], width: int, *, least_span: float = 0.0) -> str:
    """`width` block characters, each the mean of its share of `values`; lowest to highest fills the blocks. A range
    under `least_span` is widened around its middle, so that noise does not look like mountains."""
    if not values or width < 1:
        return ""
    edges = [column * len(values) // width for column in range(width + 1)]
    shares = [values[begin : max(end, begin + 1)] for begin, end in pairwise(edges)]
    columns = [sum(share) / len(share) for share in shares]
    span = max(max(columns) - min(columns), least_span)
    low = (min(columns) + max(columns) - span) / 2
    top = len(BLOCKS) - 1
    return "".join(BLOCKS[round((value - low) / span * top) if span else top // 2] for value in columns)


def gauge(level: float | None) -> str:
    """Five dots, `level` of them filled."""
    filled = 0 if level is None else max(0, min(5, round(level)))
    return "●" * filled + "○" * (5 - filled)


def percent(share: float | None) -> str:
    """`52.1 %`, or a dash when not measured."""
    return "—" if share is None else f"{100 * share:.1f} %"


def interval(low: float | None, high: float | None) -> str:
    """`[48.9, 55.2]` in percent; empty when not measured."""
    return "" if low is None or high is None else f"[{100 * low:.1f}, {100 * high:.1f}]"


def measured(share: float | None, low: float | None, high: float | None) -> str:
    """`52.1 % [48.9, 55.2]`: a share with its interval, as far as they were measured."""
    return f"{percent(share)} {interval(low, high)}".rstrip()


def within_groups(area: float | None, low: float | None, high: float | None, pairs: float | None) -> str:
    """`AUROC 0.96 [0.91, 0.98] within groups, of 695 pairs`; empty when not measured."""
    if area is None or low is None or high is None or pairs is None:
        return ""
    return f"AUROC {area:.2f} [{low:.2f}, {high:.2f}] within groups, of {count(pairs, 'pair')}"


def duration(seconds: float) -> str:
    """`0.6 s`, `4 m 12 s` or `2 h 05 m`."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = int(seconds) // 60
    return f"{minutes} m {int(seconds) % 60:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} m"


def count(number: float, noun: str) -> str:
    """`1 peer`, `2 peers`."""
    return f"{number:.0f} {noun}" if number == 1 else f"{number:.0f} {noun}s"


def print_flushed(line: str) -> None:
    print(line, flush=True)
