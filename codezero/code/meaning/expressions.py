"""A program's expressions as terms: names become what they stand for, calls of helpers what they return."""

import ast
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from codezero.code.meaning import folds
from codezero.code.meaning.kinds import INT, Kind, cannot_fail, element
from codezero.code.meaning.library import IMPURE, KEYWORDS, LIBRARY, METHODS, PURE
from codezero.code.meaning.safety import failures, is_iterator, sure_failures
from codezero.code.meaning.simplify import simplify
from codezero.code.meaning.terms import (
    MOST_NODES,
    Comprehension,
    Names,
    NotUnderstood,
    arguments_of,
    constant,
    each_part,
    generator,
    name,
    parameters,
    part,
    substitute,
    target_names,
    with_fresh_names,
    without_walrus,
)  # fmt: skip

Values = dict[str, ast.expr]
"""The terms that variables stand for."""
Function = ast.FunctionDef | ast.Lambda


class Expressions:
    """What a program's expressions say; `applied` says it of a call of its own functions."""

    def __init__(self, tree: ast.Module, names: Names) -> None:
        self.names = names
        self.functions: dict[str, Function] = {}
        self.imports: dict[str, str] = {}
        self.constants: Values = {}
        for node in tree.body:
            self._module(node)
        self.module = frozenset(self.functions)
        self.opened: list[str] = []
        self.repeated, self.consumed = 0, set[str]()
        """How many loops and functions around, and the variables that were read."""
        self.owed: list[ast.expr] = []
        """Terms of assignments and arguments that may fail: what is made of them must evaluate them too."""

    def _module(self, node: ast.stmt) -> None:
        match node:
            case ast.FunctionDef(name=called, decorator_list=[]) if called not in self.functions:
                self.functions[called] = node
            case ast.Assign(targets=[ast.Name(id=called)], value=ast.Lambda() as value):
                self.functions[called] = value
            case ast.Assign(targets=[ast.Name(id=called)], value=value) if called not in self.constants:
                self.constants[called] = value
            case ast.Import() | ast.ImportFrom():
                self.imported(node)
            case _:
                raise NotUnderstood(type(node).__name__)

    def imported(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            owner = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            if (owner + alias.name).split(".")[0] not in LIBRARY:
                raise NotUnderstood("import")
            self.imports[alias.asname or alias.name] = owner + alias.name

    def applied(self, called: str, function: Function, args: list[ast.expr], around: Values) -> ast.expr:
        """`around`: what is known where a function inside another is called."""
        raise NotImplementedError

    def read(self, node: ast.expr, values: Values) -> ast.expr:
        """The term of an expression."""
        self.names.step()
        match node:
            case ast.Name(id=bound):
                return self._named(bound, values)
            case ast.Attribute() if path := self._path(node, values):
                return self._refuse(node) if path in IMPURE else name(path)
            case ast.Attribute(value=ast.Name(id="str"), attr=attribute):
                return name(f"str.{attribute}") if attribute in METHODS else self._refuse(node)
            case ast.Lambda():
                fresh = {each: name(self.names.fresh()) for each in parameters(node)}
                with self.again():
                    inner = self.read(node.body, values | fresh)
                defaults = [self.read(each, values) for each in node.args.defaults]
                return ast.Lambda(arguments_of([each.id for each in fresh.values()], defaults), inner)
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp() | ast.DictComp():
                return self._comprehension(node, values)
            case ast.Call():
                return self._call(node, values)
            case ast.NamedExpr() | ast.IfExp() | ast.BoolOp():
                return self._conditional(node, values)
            case ast.Await() | ast.Yield() | ast.YieldFrom() | ast.Attribute():
                return self._refuse(node)
            case _:
                return each_part(node, lambda inner: self.read(inner, values))

    def _conditional(self, node: ast.NamedExpr | ast.IfExp | ast.BoolOp, values: Values) -> ast.expr:
        """What a part that may be skipped binds is not known afterwards."""
        match node:
            case ast.NamedExpr(target=ast.Name(id=bound), value=value):
                if bound in values:
                    raise NotUnderstood("a variable that changes in an expression")
                values[bound] = self.kept(self.read(value, values))
                return values[bound]
            case ast.IfExp(test=test, body=body, orelse=orelse):
                decided = self.read(test, values)
                return ast.IfExp(decided, self.read(body, dict(values)), self.read(orelse, dict(values)))
            case ast.BoolOp(op=op, values=[first, *others]):
                begun = self.read(first, values)
                return ast.BoolOp(op, [begun, *(self.read(each, dict(values)) for each in others)])
            case _:
                return self._refuse(node)

    def _refuse(self, node: ast.AST) -> ast.expr:
        raise NotUnderstood(type(node).__name__)

    def _named(self, bound: str, values: Values) -> ast.expr:
        if bound in values:
            if is_iterator(values[bound]) and (self.repeated or bound in self.consumed):
                raise NotUnderstood("an iterator that is read twice")
            self.consumed.add(bound)
            return with_fresh_names(values[bound], self.names)
        if bound in self.functions:
            function = self.functions[bound]
            own = [name(self.names.fresh()) for _ in parameters(function)]
            with self.again():
                inner = self.applied(bound, function, list[ast.expr](own), values)
            return ast.Lambda(arguments_of([each.id for each in own]), inner)
        if bound in self.imports and self.imports[bound] not in IMPURE:
            return name(self.imports[bound])
        if bound in self.constants:
            return self.simple(self.read(self.constants[bound], {}))
        if bound in PURE:
            return name(bound)
        raise NotUnderstood(bound)

    def _comprehension(self, node: Comprehension, values: Values) -> ast.expr:
        inside, heads = dict(values), list[ast.comprehension]()
        for head in node.generators:
            if head.is_async:
                raise NotUnderstood("async")
            iterated = self.simple(self.read(head.iter, inside))
            target, bound = self.fresh_target(head.target, iterated)
            inside |= bound
            with self.again():
                heads.append(generator(target, iterated, [self._condition(each, inside) for each in head.ifs]))
        with self.again():
            if isinstance(node, ast.DictComp):
                return ast.DictComp(self.read(node.key, inside), self.read(node.value, inside), heads)
            return type(node)(self.read(node.elt, inside), heads)

    @contextmanager
    def again(self) -> Generator[None]:
        """Around what may be evaluated more than once."""
        self.repeated += 1
        yield
        self.repeated -= 1

    def _condition(self, node: ast.expr, inside: Values) -> ast.expr:
        """`(y := f(x)) > 2` names a term for what follows."""
        for each in ast.walk(node):
            if isinstance(each, ast.NamedExpr):
                inside[each.target.id] = self.read(each.value, inside)
        return self.read(without_walrus(node), inside)

    def _call(self, node: ast.Call, values: Values) -> ast.expr:
        args = [self.read(arg, values) for arg in node.args]
        keywords = [ast.keyword(each.arg, self.read(each.value, values)) for each in node.keywords]
        match node.func:
            case ast.Name(id=bound) if bound in self.functions and bound not in values:
                function = self.functions[bound]
                return self.applied(bound, function, self._positional(function, args, keywords), values)
            case ast.Attribute(value=owner, attr=method) if not (
                self._path(node.func, values) or (isinstance(owner, ast.Name) and owner.id == "str")
            ):
                if method not in METHODS or keywords:
                    raise NotUnderstood(method)
                return ast.Call(ast.Attribute(self.read(owner, values), method, ast.Load()), args, keywords)
            case _:
                return self._called(self.read(node.func, values), args, keywords)

    def _of_library(self, function: ast.Name, args: list[ast.expr], keywords: list[ast.keyword]) -> ast.expr:
        """Rules look at the arguments by position, and at the few keywords that are common."""
        named = {each.arg for each in keywords}
        if named == {"start"} and function.id in ("sum", "enumerate") and len(args) == 1:
            return ast.Call(function, [*args, keywords[0].value], [])
        if named - KEYWORDS.get(function.id, frozenset()):
            raise NotUnderstood("keywords")
        return ast.Call(function, args, keywords)

    def _called(self, function: ast.expr, args: list[ast.expr], keywords: list[ast.keyword]) -> ast.expr:
        if not isinstance(function, ast.Name):
            function = self.simple(function)
        match function:
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return ast.IfExp(test, self._called(body, args, keywords), self._called(orelse, args, keywords))
            case ast.Lambda():
                given = self._positional(function, args, keywords)
                before, kept = len(self.owed), [self.kept(arg) for arg in given]
                bound = dict(zip(parameters(function), kept, strict=True))
                result = self.simple(substitute(function.body, bound, self.names))
                self.settle(before, [result])
                return result
            case ast.Call(func=ast.Name(id="functools.partial"), args=[inner, *first], keywords=more):
                return self._called(inner, [*first, *args], [*more, *keywords])
            case ast.Name(id="functools.reduce") if not keywords:
                return self._reduced(args)
            case ast.Name():
                return self._of_library(function, args, keywords)
            case _:
                raise NotUnderstood("call")

    def _positional(self, function: Function, args: list[ast.expr], keywords: list[ast.keyword]) -> list[ast.expr]:
        """The arguments in order, defaults among them."""
        own, given = parameters(function), {each.arg: each.value for each in keywords}
        defaults = dict(zip(own[len(own) - len(function.args.defaults) :], function.args.defaults, strict=True))
        rest = own[len(args) :]
        if any(isinstance(each, ast.Starred) for each in args) or not set(given) <= set(rest):
            raise NotUnderstood("arguments")
        if any(each not in given and not isinstance(defaults.get(each), ast.Constant) for each in rest):
            raise NotUnderstood("arguments")
        return [*args, *(given.get(each) or defaults[each] for each in rest)]

    def _reduced(self, args: list[ast.expr]) -> ast.expr:
        function, iterated, *rest = args
        iterated = self.simple(iterated)
        begin = self.simple(rest[0] if rest else part(iterated, constant(0)))
        if not rest:
            iterated = self.simple(part(iterated, ast.Slice(constant(1), None, None)))
        hole, item = self.names.fresh(self.names.kind(begin)), self.names.fresh(element(self.names.kind(iterated)))
        update = self.simple(self._called(function, [name(hole), name(item)], []))
        return folds.fold(begin, update, hole, generator(name(item), iterated, []), self.names)

    def _path(self, node: ast.expr, values: Values) -> str:
        """The full name of what is imported; empty for anything else."""
        match node:
            case ast.Name(id=owner) if owner in self.imports and owner not in values:
                return self.imports[owner]
            case ast.Attribute(value=value, attr=attribute) if path := self._path(value, values):
                return f"{path}.{attribute}"
            case _:
                return ""

    def kept(self, value: ast.expr) -> ast.expr:
        value = self.simple(value)
        if not cannot_fail(value, self.names.kinds):
            self.owed.append(value)
        return value

    def settle(self, before: int, terms: Sequence[ast.expr]) -> None:
        """One of the terms surely evaluates everything that is owed since."""
        if len(self.owed) > before:
            surely = set[str]().union(*map(sure_failures, terms))
            if any(not surely.intersection(failures(each)) for each in self.owed[before:]):
                raise NotUnderstood("what may fail is evaluated less often")
            del self.owed[before:]

    def simple(self, term: ast.expr) -> ast.expr:
        simple = simplify(term, self.names)
        if sum(1 for _ in ast.walk(simple)) > MOST_NODES:
            raise NotUnderstood("too large")
        return simple

    def fresh_target(self, target: ast.expr, iterated: ast.expr) -> tuple[ast.expr, Values]:
        """With a fresh name for each variable, of the kind of what is iterated."""
        fresh = {each: name(self.names.fresh()) for each in target_names(target)}
        match target, iterated:
            case ast.Name(id=bound), _:
                kinds = {bound: element(self.names.kind(iterated))}
            case (
                ast.Tuple(elts=[ast.Name(id=index), ast.Name(id=bound)]),
                ast.Call(func=ast.Name(id="enumerate"), args=[whole]),
            ):
                kinds = {index: INT, bound: element(self.names.kind(whole))}
            case (
                ast.Tuple(elts=[ast.Name(id=one), ast.Name(id=other)]),
                ast.Call(func=ast.Name(id="zip"), args=[first, second]),
            ):
                kinds = {one: element(self.names.kind(first)), other: element(self.names.kind(second))}
            case ast.Tuple(elts=parts), _ if len(fresh) == len(parts):
                kinds = dict[str, Kind]()
            case _:
                raise NotUnderstood("unpacking")
        for each, kind in kinds.items():
            self.names.kinds[fresh[each].id] = kind
        return substitute(target, dict(fresh), self.names), dict(fresh)
