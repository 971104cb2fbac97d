"""Rules for texts: joining, formatting, counting and removing characters."""

import ast

from codezero.code.meaning.conditions import Rules
from codezero.code.meaning.kinds import INT, STR, is_list
from codezero.code.meaning.terms import Names, call, is_reverse, mentions, number, reverse, same, target_names


def _formatted(term: ast.JoinedStr, names: Names) -> ast.expr | None:
    """`f"{s}a"` as a sum of texts; a whole number is written by `str`."""
    parts: list[ast.expr] = []
    for each in term.values:
        match each:
            case ast.Constant():
                parts.append(each)
            case ast.FormattedValue(value=value, conversion=-1 | 115, format_spec=None):
                kind = names.kind(value)
                if kind not in (STR, INT):
                    return None
                parts.append(value if kind == STR else call("str", value))
            case _:
                return None
    return _added(parts)


def _added(parts: list[ast.expr]) -> ast.expr:
    total: ast.expr | None = None
    for each in parts:
        total = each if total is None else ast.BinOp(total, ast.Add(), each)
    return total or ast.Constant("")


def _method(term: ast.Call, names: Names) -> ast.expr | None:
    match term:
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=""), attr="join"), args=[items], keywords=[]):
            return _joined(items, names)
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(form)), attr="format"), args=args, keywords=[]):
            pieces = (form.replace("{0}", "{}") if len(args) == 1 else form).split("{}")
            fits = len(pieces) == len(args) + 1 and not any(sign in piece for piece in pieces for sign in "{}")
            if not fits or any(names.kind(arg) not in (STR, INT) for arg in args):
                return None
            parts: list[ast.expr] = []
            for piece, arg in zip(pieces, [*args, None], strict=True):
                parts += [ast.Constant(piece)] if piece else []
                parts += [] if arg is None else [arg if names.kind(arg) == STR else call("str", arg)]
            return _added(parts)
        case ast.Call(func=ast.Attribute(value=value, attr="__len__"), args=[]) if names.kind(value) == STR:
            return call("len", value)
        case _:
            return None


def _joined(items: ast.expr, names: Names) -> ast.expr | None:
    """`"".join(..)`: of characters of one text, of pieces that are named, of what was split."""
    match items:
        case ast.Call(func=ast.Name(id="iter" | "list" | "tuple"), args=[inner], keywords=[]):
            return _join(inner)
        case ast.ListComp(elt=elt, generators=heads):
            return _join(ast.GeneratorExp(elt, heads))
        case ast.List(elts=parts) | ast.Tuple(elts=parts) if all(names.kind(each) == STR for each in parts):
            return _added(parts)
        case ast.BinOp(left=ast.List(elts=[only]), op=ast.Mult(), right=times) if names.kind(only) == STR:
            return ast.BinOp(only, ast.Mult(), times)
        case ast.BinOp(left=left, op=ast.Add(), right=right) if is_list(names.kind(items)):
            return ast.BinOp(_join(left), ast.Add(), _join(right))
        case ast.Subscript(value=inner, slice=index) if names.kind(inner) == "[str]" and is_reverse(index):
            return _turned(inner, names)
        case ast.Call(func=ast.Attribute(value=whole, attr="split"), args=[ast.Constant(value=str(sign))]) if sign:
            replaced = ast.Attribute(whole, "replace", ast.Load())
            return call(replaced, ast.Constant(sign), ast.Constant("")) if names.kind(whole) == STR else None
        case ast.GeneratorExp():
            return _characters(items, names)
        case _:
            return items if names.kind(items) == STR else None


def _turned(inner: ast.expr, names: Names) -> ast.expr | None:
    """`"".join(..)` of characters from the last to the first."""
    match inner:
        case ast.ListComp(elt=elt, generators=[head]) if same(elt, head.target) and names.kind(head.iter) == STR:
            return reverse(_join(inner))
        case ast.Call(func=ast.Name(id="list"), args=[whole]) if names.kind(whole) == STR:
            return reverse(whole)
        case _:
            return None


def _join(items: ast.expr) -> ast.Call:
    return call(ast.Attribute(ast.Constant(""), "join", ast.Load()), items)


def _characters(items: ast.GeneratorExp, names: Names) -> ast.expr | None:
    match items:
        case ast.GeneratorExp(
            elt=ast.Name(id=item), generators=[ast.comprehension(target=ast.Name(id=target)) as head]
        ):
            if item != target or names.kind(head.iter) != STR:
                return None
        case ast.GeneratorExp(
            elt=elt, generators=[ast.comprehension(iter=ast.Call(func=ast.Name(id="range"), args=[n]))]
        ):
            own = target_names(items.generators[0].target)
            plain = names.kind(elt) == STR and (number(n) or 0) > 0 and not mentions(elt, *own)
            repeats = plain and not items.generators[0].ifs
            return ast.BinOp(elt, ast.Mult(), n) if repeats else None
        case _:
            return None
    match head.ifs:
        case []:
            return head.iter
        case [ast.Compare(left=ast.Name(id=left), ops=[ast.NotEq()], comparators=[ast.Constant(value=str(sign))])]:
            replaced = ast.Attribute(head.iter, "replace", ast.Load())
            fits = left == target and len(sign) == 1
            return call(replaced, ast.Constant(sign), ast.Constant("")) if fits else None
        case _:
            return None


def _mapped(term: ast.Call, names: Names) -> ast.expr | None:
    """`"".join(c.upper() for c in s)`: `upper` goes letter by letter."""
    match term:
        case ast.Call(
            func=ast.Attribute(value=ast.Constant(value=""), attr="join"),
            args=[
                ast.GeneratorExp(
                    elt=ast.Call(func=ast.Attribute(value=ast.Name(id=item), attr="upper"), args=[]),
                    generators=[ast.comprehension(target=ast.Name(id=target), iter=whole, ifs=[])],
                )
            ],
        ) if item == target and names.kind(whole) == STR:
            return call(ast.Attribute(whole, "upper", ast.Load()))
        case _:
            return None


def _without(term: ast.BinOp, names: Names) -> ast.expr | None:
    """`len(s.split("a")) - 1` and `len(s) - len(s.replace("a", ""))` are `s.count("a")`."""
    match term:
        case ast.BinOp(left=ast.Call(func=ast.Name(id="len"), args=[first]), op=ast.Sub(), right=right):
            pass
        case _:
            return None
    match first, right:
        case (
            ast.Call(func=ast.Attribute(value=whole, attr="split"), args=[ast.Constant(value=str(sign))]),
            ast.Constant(value=1),
        ):
            fits = True
        case whole, ast.Call(
            func=ast.Name(id="len"),
            args=[
                ast.Call(func=ast.Attribute(value=again, attr="replace"), args=[ast.Constant(value=str(sign)), nothing])
            ],
        ):
            fits = same(whole, again) and isinstance(nothing, ast.Constant) and nothing.value == ""
        case _:
            return None
    if not fits or len(sign) != 1 or names.kind(whole) != STR:
        return None
    return call(ast.Attribute(whole, "count", ast.Load()), ast.Constant(sign))


def _counted(term: ast.Call, names: Names) -> ast.expr | None:
    """`len([c for c in s if c == "a"])` is `s.count("a")`."""
    match term:
        case ast.Call(
            func=ast.Name(id="len"),
            args=[
                ast.ListComp(
                    elt=ast.Name(id=item),
                    generators=[
                        ast.comprehension(
                            target=ast.Name(id=target),
                            iter=whole,
                            ifs=[ast.Compare(left=ast.Name(id=left), ops=[ast.Eq()], comparators=[sign])],
                        )
                    ],
                )
            ],
        ) if item == target == left and isinstance(sign, ast.Constant):
            kind = names.kind(whole)
            single = isinstance(sign.value, str) and len(sign.value) == 1 and kind == STR
            return call(ast.Attribute(whole, "count", ast.Load()), sign) if single or is_list(kind) else None
        case ast.Call(
            func=ast.Attribute(value=ast.Call(func=ast.Name(id="list"), args=[whole]), attr="count"), args=[sign]
        ):
            single = isinstance(sign, ast.Constant) and isinstance(sign.value, str) and len(sign.value) == 1
            return (
                call(ast.Attribute(whole, "count", ast.Load()), sign) if single and names.kind(whole) == STR else None
            )
        case _:
            return None


def _percent(term: ast.BinOp, names: Names) -> ast.expr | None:
    """`"%sa" % s`; and a text and another is one."""
    match term:
        case ast.BinOp(left=ast.Constant(value=str(form)), op=ast.Mod(), right=value):
            args = value.elts if isinstance(value, ast.Tuple) else [value]
            pieces = form.split("%s")
            fits = len(pieces) == len(args) + 1 and not any("%" in piece for piece in pieces)
            if not fits or any(names.kind(each) != STR for each in args):
                return None
            pairs = zip(pieces, [*args, None], strict=True)
            return _added([part for piece, arg in pairs for part in (piece and ast.Constant(piece), arg) if part])
        case ast.BinOp(left=ast.Constant(value=str(first)), op=ast.Add(), right=ast.Constant(value=str(second))):
            return ast.Constant(first + second) if len(first + second) < 200 else None
        case ast.BinOp(left=ast.Constant(value=""), op=ast.Add(), right=other) if names.kind(other) == STR:
            return other
        case ast.BinOp(left=other, op=ast.Add(), right=ast.Constant(value="")) if names.kind(other) == STR:
            return other
        case _:
            return None


RULES: Rules = {
    ast.JoinedStr: (_formatted,),
    ast.Call: (_method, _counted, _mapped),
    ast.BinOp: (_percent, _without),
}
