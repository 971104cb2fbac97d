"""Lists what Monty is known to do exactly as CPython; `silent_gap` names what a program says beyond that.

Compared over some 70,000 expressions and 240 programs, Monty 1.4 and CPython agree on what is listed here. Some of it
they agree on only in its usual places: a set keeps the order of insertion, so no order may be seen; a generator is a
list, and what is lazy is computed to its end, so it has to be consumed; annotations are never evaluated, so that must
raise nothing; and code that catches exceptions catches Monty's own too. Not found: a set handed on by a longer way,
and `repr` of floats above 1e15."""

import ast
import itertools
import re
from collections.abc import Iterator

from codezero.code.dead_code import plain_targets
from codezero.code.parsing import BUILTINS, UNPARSEABLE, FunctionNode, called, dotted, names, names_given, parse_quietly
from codezero.sandbox.base import ALL_HOLD, Execution, Outcome

_LISTED = """
Module Expr Assign AugAssign AnnAssign Return If For While Break Continue Pass Assert Raise Try ExceptHandler Import
ImportFrom alias FunctionDef ClassDef Lambda arguments arg keyword Call Name Attribute Subscript Slice Starred Constant
List Tuple Dict Set ListComp SetComp DictComp GeneratorExp comprehension BinOp UnaryOp BoolOp Compare IfExp NamedExpr
JoinedStr FormattedValue Global Nonlocal Load Store Add Sub Mult Div FloorDiv Mod Pow MatMult BitAnd BitOr BitXor
LShift RShift Invert Not UAdd USub And Or Eq NotEq Lt LtE Gt GtE Is IsNot In NotIn
| abs all any bin bool bytes callable chr dict divmod enumerate exit filter float frozenset hex input int isinstance
iter len list map max min next object oct ord pow print property quit range repr reversed round set sorted staticmethod
str sum tuple type zip __name__
| Counter Dict Iterable List Optional Sequence Set Tuple Union accumulate acos annotations appendleft args argv
ascii_letters ascii_lowercase ascii_uppercase asin atan atan2 cache ceil chain comb combinations
combinations_with_replacement compile compress cos count cycle defaultdict degrees deque digits dist dropwhile dumps e
elements end exit exp fabs factorial filterfalse findall finditer floor flush fmod from_iterable fsum fullmatch gcd
group groupby groups hypot inf isclose islice isqrt itemgetter lcm loads log log10 log2 lru_cache match maxsize
most_common mul perm permutations pi pop popleft pow prod product radians read readline readlines reduce repeat search
set_int_max_str_digits setrecursionlimit sin sleep sqrt start stderr stdin stdout sub takewhile tan time trunc write
zip_longest
| init post_init iter next getitem setitem delitem contains call enter exit hash str repr int float index abs neg pos
invert round eq lt gt le ge add radd sub rsub mul rmul truediv rtruediv floordiv mod pow rpow matmul divmod and or xor
lshift rshift
| len set frozenset sum any all bool isinstance type sorted min max
| sum list tuple set frozenset sorted max min dict Counter join extend update
"""
_NODES, _NAMES, _MEMBERS, _METHODS, _ORDER_FREE, _CONSUMING = (frozenset(part.split()) for part in _LISTED.split("|"))
_OTHER_NAMES = {name for name in BUILTINS - _NAMES if not name[0].isupper()}  # exceptions are as they should be
_OF_TYPES = {name for kind in (str, list, dict, set, int, float) for name in dir(kind) if name[0] != "_"}
_SET_METHODS = {name for name in dir(set) if name[0] != "_"} - {"pop"}
_SET_MAKERS = {"union", "intersection", "difference", "symmetric_difference"}
_SET_OPERATORS = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.Sub)
_TERM = r"(?:\\[^1-9]|\[(?:\\.|[^]\\])+\]|[^]\\[*+?{}|()^$])"  # of a pattern: it matches one character
_PATTERN = re.compile(
    rf"(?s)(?:{_TERM}(?:[*+?]\??|\{{\d+(?:,\d*)?\}})?|\)\+|[()^$](?![*+?{{])|\|(?!\Z)|\\[1-9](?!\w))*"
)
_NOT_EMPTY = re.compile(rf"(?s)\Z|(?:{_TERM}[*?]\??|[()^$])*{_TERM}(?![*?{{])")
_FORMAT = re.compile(r"(?:[<>^]?\d*[,_]?(?:\.\d+)?[bcdefgoxX%])?")


_kind = "int|str|float|bool|bytes|object|None|[lL]ist|[sS]et|[dD]ict|[tT]uple"
for _ in range(2):  # what CPython surely evaluates, two levels deep
    _kind += (
        rf"|(?:[lL]ist|[sS]et|Optional|Iterable|Sequence|[tT]uple)\[(?:{_kind})(?:(?<=uple\[int), \.\.\.)?\]"
        rf"|(?:[dD]ict\[(?:{_kind})|(?:[tT]uple|Union)\[(?:{_kind})(?:, (?:{_kind}))*), (?:{_kind})\]"
    )
_ANNOTATION = re.compile(rf"(?!None \| None)(?:{_kind})(?: \| (?:{_kind}))*")
_Parents = dict[ast.AST, ast.AST]


def silent_gap(code: str, shown: Execution = ALL_HOLD) -> str:
    """Name what of `code`, behind which its tests may stand, Monty is not known to do as CPython; empty when it does
    everything so. `shown`: its execution there."""
    try:
        tree = parse_quietly(code)
    except UNPARSEABLE:
        return ""
    nodes = list(ast.walk(tree))
    parents = {child: node for node in nodes for child in ast.iter_child_nodes(node)}
    fails = shown.outcome is Outcome.FAIL and not shown.reason.endswith(" limit")
    if fails and any(isinstance(node, ast.ExceptHandler) and dotted(node.type) != "EOFError" for node in nodes):
        return "the code may catch what only Monty raises"
    own = names_given(tree)
    annotations = _annotation_gaps(tree, nodes, own) if shown.outcome is Outcome.PASS else ()
    lazy, sets = _lazy_gaps(nodes, parents, own, shown.provisional), _set_gaps(nodes, parents)
    return next(itertools.chain(_unlisted(nodes, parents, own, shown.reason), sets, lazy, annotations), "")


def _unlisted(nodes: list[ast.AST], parents: _Parents, own: set[str], raised: str) -> Iterator[str]:
    """`raised`: an error that names an attribute was found to be CPython's too."""
    methods = {node.name for node in nodes if isinstance(node, FunctionNode)}
    stored = {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    matches = any(isinstance(node, ast.alias) and node.name == "re" for node in nodes)
    lines = any(isinstance(node, ast.Constant) and "\n" in str(node.value) for node in nodes)
    for node in nodes:
        match node:
            case ast.FunctionDef(name=name) if isinstance(parents[node], ast.ClassDef) and name[:2] == "__":
                listed = name.strip("_") in _METHODS
            case ast.Name(id=name):
                listed = name not in _OTHER_NAMES - own
            case ast.Attribute(attr=name):
                kept = name in methods and isinstance(node.ctx, ast.Load) and called(parents[node]) != dotted(node)
                listed = (not kept and name in _MEMBERS | _OF_TYPES | own | stored) or f"'{name}'" in raised
            case ast.alias(name=name) if isinstance(parents[node], ast.ImportFrom):
                listed = name in _MEMBERS
            case ast.Constant(value=str(text)) if matches and not isinstance(parents[node], ast.Expr):
                whole = _PATTERN.fullmatch(text) and _NOT_EMPTY.match(text)
                name, listed = f"pattern {text[:20]!r}", bool(whole) and not (lines and "$" in text)
            case ast.Constant(value=str(text)):
                name, listed = "NaN", text.strip(" +-").lower() != "nan"
            case ast.FormattedValue(format_spec=ast.JoinedStr(values=parts)):
                name, listed = "a format", all(_FORMAT.fullmatch(str(getattr(part, "value", "{"))) for part in parts)
            case _:
                name, listed = type(node).__name__, type(node).__name__ in _NODES
        if not listed:
            yield f"{name} is not known to be as in CPython"


def _set_gaps(nodes: list[ast.AST], parents: _Parents) -> Iterator[str]:
    """Follow each set to where its value goes, also under names and out of functions: no order may be seen there."""
    uses: dict[str, list[ast.AST | str]] = {}
    waiting: list[ast.AST | str] = ["set", "frozenset"]
    for node in nodes:
        match node:
            case ast.Set() | ast.SetComp():
                waiting.append(node)
            case ast.Attribute(attr=name) if name in _SET_MAKERS:
                waiting.append(node)
            case ast.Name(id=name, ctx=ast.Load()):
                uses.setdefault(name, []).append(node)
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                uses.setdefault(f"{name}()", []).append(node)
            case ast.BinOp(left=ast.Call(func=ast.Attribute(attr="keys" | "items"))):
                yield "the order of a set"
            case _:
                pass
    done = set[ast.AST | str]()
    while waiting:
        if (use := waiting.pop()) not in done:
            done.add(use)
            more = uses.get(use, ()) if isinstance(use, str) else _handed_on(use, parents)
            if more is None:
                yield "the order of a set"
            waiting += more or ()


def _handed_on(node: ast.AST, parents: _Parents) -> list[ast.AST | str] | None:
    """The expressions and names that a set goes on to from its place; None: its order may be seen there."""
    match parents[node]:
        case ast.Call(func=func) | ast.Attribute(attr="copy", value=func) as whole if func is node:
            return [whole]
        case ast.Call(func=ast.Name(id=name), keywords=[]) as call:
            unseen = name in _ORDER_FREE or (name in ("list", "tuple") and called(parents[call]) in _ORDER_FREE)
        case ast.Call(func=ast.Attribute(attr=name)):
            unseen = name in _SET_METHODS
        case ast.Attribute(attr=name) as method:
            unseen = name in _SET_METHODS and isinstance(parents[method], ast.Call)
        case ast.comprehension(iter=source) as loop if source is node:
            unseen = isinstance(parents[loop], ast.SetComp) or called(parents[parents[loop]]) in _ORDER_FREE
        case ast.IfExp() | ast.BoolOp() | ast.BinOp() as whole:
            return [whole] if not isinstance(whole, ast.BinOp) or isinstance(whole.op, _SET_OPERATORS) else None
        case ast.Return() as function:
            while not isinstance(function, FunctionNode | ast.Module):
                function = parents[function]
            return [f"{getattr(function, 'name', '')}()"]
        case ast.Assign() | ast.AnnAssign() as assignment:
            return list(names(*plain_targets(assignment))) or None
        case parent:
            unseen = isinstance(parent, ast.Compare | ast.UnaryOp | ast.If | ast.While | ast.Assert | ast.Expr)
            unseen |= isinstance(parent, ast.AugAssign) and isinstance(parent.op, _SET_OPERATORS)
    return [] if unseen else None


def _lazy_gaps(nodes: list[ast.AST], parents: _Parents, own: set[str], raised: bool) -> Iterator[str]:
    assigned = [node for node in nodes if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)]
    iterators = names(*(node.targets[0] for node in assigned if called(node.value) in ("iter", "map", "filter", "zip")))
    for node in nodes:
        if isinstance(node, ast.GeneratorExp) or called(node) in ("map", "filter", "iter"):
            place = parents[node]
            func = getattr(place, "func", None)
            name = getattr(func, "attr", getattr(func, "id", "")) if func is not node else ""
            unpacked = isinstance(getattr(place, "targets", [place])[0], ast.Tuple | ast.List | ast.Starred)
            listed = isinstance(place, ast.comprehension) and not isinstance(parents[place], ast.GeneratorExp)
            if raised and not (unpacked or listed or name in _CONSUMING - own):
                yield "what is lazy is computed to its end"
            used = unpacked or name in (_CONSUMING | {"any", "all"}) - own
            if isinstance(node, ast.GeneratorExp) and (not used or names(node.generators[0].iter) & iterators):
                yield "a generator is a list"


def _annotation_gaps(tree: ast.Module, nodes: list[ast.AST], own: set[str]) -> Iterator[str]:
    """Those of which it is not sure that CPython evaluates them, to whatever."""
    head = itertools.takewhile(lambda node: isinstance(node, ast.Import | ast.ImportFrom | ast.Expr), tree.body)
    known = {alias.name for node in head if isinstance(node, ast.ImportFrom) for alias in node.names}
    every = [getattr(node, field, None) for node in nodes for field in ("annotation", "returns")]
    for annotation in every if "annotations" not in known else ():
        text = "" if annotation is None or isinstance(annotation, ast.Constant) else ast.unparse(annotation)
        if text and not (_ANNOTATION.fullmatch(text) and {*re.findall(r"\w+", text)} <= (known | BUILTINS) - own):
            yield f"the annotation {text[:40]} is not evaluated"
