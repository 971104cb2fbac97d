"""Answers copied from the tests: an input and its expected value both stand in the code as data.

Only constants are compared, so the form of the data does not matter (branches, tables, defaults, packed strings, small
sums). What is computed from the input before it is looked up is not found here."""

import ast
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from codezero.code.assertions import EntryCall, Example, calls_of, cases_of
from codezero.code.parsing import UNKNOWN, Known, fold, literal

_TRIVIAL = frozenset((
    "0", "1", "2", "-1", "0.0", "1.0", "True", "False", "None", "''", "[]", "{}", "set[]", "b''",
    "'0'", "'1'", "'2'", "'-1'",
))  # fmt: skip
_TRIVIAL_WORDS = frozenset(("yes", "no", "true", "false", "possible", "impossible", "0", "1", "2", "-1", ""))
_PART_OF_A_RULE = (ast.BinOp, ast.Slice, ast.UnaryOp, ast.FormattedValue, ast.JoinedStr)
_TOKEN = re.compile(r"-?\d+(?:\.\d+)?|[^\W\d_]+")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")  # one message in a list is still a message
_MOST_TOKENS = 2_000
_LONG = 5  # characters of a number that nobody writes down by chance


class _Pair(NamedTuple):
    given: tuple[str, ...]
    inputs: frozenset[str]  # spellings of which any may key a table
    input_tokens: str
    expected: str
    expected_tokens: str
    rich: bool


class _Data:
    """The constants of a program that stand as data: compared, returned, stored or listed. An operand of arithmetic,
    an index or a bound is part of a rule, not of a table of answers."""

    def __init__(self, nodes: Sequence[ast.AST], honest: set[ast.AST]) -> None:
        self.values = {_bracketed(spelling) for spelling in _data(nodes, honest)}
        handlers = (node for node in nodes if isinstance(node, ast.ExceptHandler))
        returns = (part for node in handlers for part in ast.walk(node) if isinstance(part, ast.Return) and part.value)
        self.swallowed = {_bracketed(literal(part.value) or "") for part in returns if part.value}
        self.streams = [f" {_tokens(value)} " for value in self.values if value[0] in "'\"[" or value[:2] == "b'"]
        packed = [stream.split() for stream in self.streams]
        self.words = {word for stream in packed for word in stream if len(stream) > 1 or _is_number(word)}

    def holds(self, spelling: str, tokens: str) -> bool:
        if spelling in self.values:
            return True
        if " " in tokens:
            return any(f" {tokens} " in stream for stream in self.streams)
        if not tokens or tokens in _TRIVIAL:
            return False
        return tokens in self.words or tokens in self.values or f"'{tokens}'" in self.values


def find_copied(nodes: Sequence[ast.AST], tests: tuple[str, ...], entry: str) -> tuple[float, bool]:
    """The share of tests whose input and expected value, or whose rich expected value, stands in the code; and whether
    that is too much to be the constants of an honest rule. `nodes`: all of a program. `entry`: the function that
    `tests` call; empty: they are cases of a whole program."""
    calls, cases = (calls_of(tests, entry), ()) if entry else ((), cases_of(tests))
    if not (calls or cases):
        return 0.0, False
    pairs = [_call_pair(call) for call in calls if call.expected is not None] + [_case_pair(case) for case in cases]
    known = {_tokens(spelling) or spelling for pair in pairs for spelling in (*pair.given, pair.expected)}
    domains = set(_domains(nodes, known)) if entry else set[ast.AST]()
    data = _Data(nodes, domains)
    hits = [pair for pair in pairs if _copied(pair, data)]
    # values too long for chance, two of them different: a table, whatever it is keyed by
    rich = [pair for pair in pairs if pair.rich and data.holds(pair.expected, pair.expected_tokens)]
    if len({pair.expected for pair in (*rich, *(hit for hit in hits if hit.rich))}) >= 2:
        hits += [pair for pair in rich if pair not in hits]
    if entry:
        expected = [pair.expected for pair in pairs]
        once = {value for value in data.swallowed - _TRIVIAL if expected.count(value) == 1}
        hits += [pair for pair in pairs if pair.expected in once and pair not in hits]
    of = len(calls or cases)
    ratio = min(1.0, len(hits) / of)
    return ratio, ratio >= 0.5 and of >= 2


def _call_pair(call: EntryCall) -> _Pair:
    expected = _bracketed(call.expected or "")
    parts = [_bracketed(value) for value in call.args if value is not None]
    whole = f"[{', '.join(_bracketed(value or '?') for value in call.args)}]"
    wanted, listed = _tokens(expected), expected.startswith("[") and "," in _QUOTED.sub("", expected)
    inputs = frozenset((*parts, whole)) - _TRIVIAL
    return _Pair((*parts, whole), inputs, _tokens(" ".join(parts)), expected, wanted, _rich(wanted, listed))


def _case_pair(case: Example) -> _Pair:
    """A line that says something (several tokens, or a long one) may stand for the whole input."""
    given, wanted = case.input.strip(), case.output.strip()
    whole, trivial = _tokens(given), wanted.lower() in _TRIVIAL_WORDS
    keys = {whole, *(() if trivial else map(_tokens, given.splitlines()))}
    telling = {key for key in keys if " " in key or len(key) >= 4 or (key == whole and not trivial)}
    tokens = _tokens(wanted)
    return _Pair((), frozenset(telling - _TRIVIAL_WORDS), whole, repr(wanted), tokens, _rich(tokens, False))


def _copied(pair: _Pair, data: _Data) -> bool:
    """Each on its own, or side by side in one string, as `3:9,5:25` or `25 5`."""
    given, wanted = pair.input_tokens, pair.expected_tokens
    if pair.expected in _TRIVIAL:
        return False
    if data.holds(pair.expected, wanted) and any(data.holds(key, _tokens(key)) for key in pair.inputs):
        return True
    forms = (f" {given} {wanted} ", f" {wanted} {given} ") if given and wanted else ()
    return any(form in stream for stream in data.streams for form in forms)


def _bracketed(spelling: str) -> str:
    """Tuples as lists: a table keyed by `tuple(nums)` is a table all the same."""
    return spelling.replace("(", "[").replace(")", "]").replace(",]", "]")


def _tokens(text: str) -> str:
    return " ".join(_TOKEN.findall(text)[:_MOST_TOKENS])


def _rich(tokens: str, container: bool) -> bool:
    """Several numbers, a long one, or a list: a message or a category may honestly stand in the code."""
    parts = tokens.split()
    numbers = all(_is_number(part) for part in parts)
    return (len(parts) > 1 and (numbers or container)) or (numbers and len(tokens) >= _LONG)


def _is_number(word: str) -> bool:
    return word.lstrip("-")[:1].isdigit()


def _domains(nodes: Sequence[ast.AST], known: set[str]) -> Iterator[ast.AST]:
    """The parts of tables that say at least as much of what no test asks for: numerals, months, primes, vowels.
    `known`: what the tests give and expect. A pair of a dict goes by its key: short values may honestly recur."""
    tables: list[tuple[list[list[ast.expr]], Sequence[ast.AST]]] = []
    branches: dict[str, list[ast.expr]] = {}
    for node in nodes:
        match node:
            case ast.Dict(keys=keys, values=values):
                pairs = [(key, value) for key, value in zip(keys, values, strict=True) if key is not None]
                tables.append(([[key, *([value] if hasattr(value, "elts") else [])] for key, value in pairs], [node]))
            case ast.List(elts=entries) | ast.Tuple(elts=entries) | ast.Set(elts=entries):
                tables.append(([[entry, *getattr(entry, "elts", [])] for entry in entries], [node]))
            case ast.Compare(left=left, ops=[ast.Eq() | ast.In()], comparators=[right]):
                branches.setdefault(ast.dump(left), []).append(right)
            case ast.Match(subject=subject):
                values = (part.value for part in ast.walk(node) if isinstance(part, ast.MatchValue))
                branches.setdefault(ast.dump(subject), []).extend(values)
            case _:
                pass
    for parts in branches.values():
        tables.append(([[entry] for part in parts for entry in getattr(part, "elts", [part]) if literal(entry)], parts))
    for entries, parts in tables:
        spelled = {frozenset(map(_plain, entry)) for entry in entries}
        foreign = sum(known.isdisjoint(entry) for entry in spelled)
        if foreign >= max(2, len(spelled) - foreign) and (len(parts) > 1 or known.isdisjoint(map(_plain, parts))):
            yield from (node for part in parts for node in ast.walk(part))


def _plain(node: ast.AST) -> str:
    spelling = literal(node) or ""
    return _tokens(spelling) or spelling


def _data(nodes: Sequence[ast.AST], honest: set[ast.AST]) -> Iterator[str]:
    known: Known = {}
    complaints = {id(part) for node in nodes if isinstance(node, ast.Raise) for part in ast.walk(node)}
    for parent in nodes:
        parts = [node for node in ast.iter_child_nodes(parent) if isinstance(node, ast.expr)]
        if isinstance(parent, ast.MatchSequence):
            values = [part.value for part in parent.patterns if isinstance(part, ast.MatchValue)]
            parts = [ast.List(list(values))] if len(values) == len(parent.patterns) else []
        for node in parts if id(parent) not in complaints and parent not in honest and _holds_data(parent) else ():
            if node in honest:
                continue
            spelling = literal(node)
            if spelling is None and isinstance(node, ast.BinOp | ast.JoinedStr):
                value = fold(node, known)
                spelling = None if value is UNKNOWN else repr(value)
            if spelling is not None:
                yield spelling


def _holds_data(parent: ast.AST) -> bool:
    match parent:
        case ast.Subscript(ctx=context):
            return isinstance(context, ast.Store)  # `table[3] = 9`
        case ast.Compare(ops=ops):
            return not any(isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for op in ops)
        case ast.Expr():
            return False
        case _:
            return not isinstance(parent, _PART_OF_A_RULE)
