"""New names for a module's bindings that depend on structure alone.

Two programs that differ only in how locals, parameters and helpers are called come out the same. The entry point,
imports, attributes, class members and names nobody binds (builtins, mistakes) keep theirs, and no new name ever
captures one of them: renaming must not repair a program that was wrong.
"""

import ast
from collections.abc import Iterable, Sequence

from codezero.code.scopes import Binding, Finder, Kind, Scope


def rename(tree: ast.Module, entry: str, parameters: Sequence[str] | None) -> None:
    """Give every renameable binding of `tree` its new name, in place. `parameters` name the entry's parameters."""
    finder = Finder(tree, entry)
    uses = [(use, use.binding()) for use in finder.uses]
    bound = [binding for scope in finder.scopes for binding in scope.bindings.values()]
    kept = {use.name for use, binding in uses if binding is None}
    kept |= {binding.old for binding in bound if binding.kind is Kind.FIXED}
    given = dict(zip(finder.entry_parameters, parameters or (), strict=False))
    for scope in finder.scopes:
        _name_bindings(scope, kept, given)
    for use, binding in uses:
        if binding is not None:
            use.write(binding.new)


def rename_global(tree: ast.Module, old: str, new: str) -> bool:
    """Call the module's own `old` by another name everywhere; False, and nothing is changed, when `new` is in use."""
    finder = Finder(tree, old)
    module = finder.scopes[0].bindings[old]
    uses = [use for use in finder.uses if use.callee is None and use.binding() is module]
    taken = {use.name for use in finder.uses} | {name for scope in finder.scopes for name in scope.bindings}
    if new in taken:
        return False
    for use in uses:
        use.write(new)
    return True


def free_names(tree: ast.Module) -> set[str]:
    """Names that are used where nothing in the module binds them: builtins, and mistakes."""
    return {use.name for use in Finder(tree, "").uses if use.callee is None and use.binding() is None}


def _name_bindings(scope: Scope, kept: Iterable[str], given: dict[Binding, str]) -> None:
    """Names follow from the order of first appearance, outer scopes first."""
    taken = set(kept)
    outer = scope.parent
    while outer is not None:
        taken |= {binding.new for binding in outer.bindings.values()}
        outer = outer.parent
    for binding in scope.bindings.values():
        if binding.kind is Kind.FIXED:
            binding.new = binding.old
            continue
        wanted = given.get(binding, "")
        if not wanted or wanted in taken:
            wanted = next(name for name in binding.kind.series() if name not in taken)
        binding.new = wanted
        taken.add(wanted)
