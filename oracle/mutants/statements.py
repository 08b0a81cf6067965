"""Rules that drop, move or unguard statements, and that change loops."""

import ast
from collections.abc import Iterator
from typing import Any, Final

from oracle.mutants.expressions import OPERATORS, shifted, tail
from oracle.mutants.tree import Edit, Place

_ORDERING: Final = ("sync_threads", "sync_warp", "debug_barrier", "dependency_wait", "gdc_wait")
"""Calls whose place among the other statements is what they are for."""

_HINT: Final = "settled"
"""Says when a value is to be computed, not what it is."""


def changes(place: Place, numeric: frozenset[str]) -> Iterator[Edit]:
    """Yield the edits of the statement at ``place``; ``numeric`` names the module's constants."""
    node: Any = place.node
    path = place.path
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield Edit("drop-statement", path, ())
        if tail(node.value) in _ORDERING:
            yield from _moved(place)
    elif isinstance(node, ast.AugAssign):
        yield Edit("drop-statement", path, ())
        yield Edit("operator", path, (ast.AugAssign(node.target, OPERATORS[type(node.op)](), node.value),))
    elif isinstance(node, ast.Assign) and tail(node.value) != _HINT and _assigned_before(place):
        yield Edit("drop-statement", path, ())
    elif isinstance(node, ast.If):
        yield from _if(node, path)
    elif isinstance(node, ast.With):
        yield Edit("drop-with", path, tuple(node.body))
    elif isinstance(node, ast.Try):
        yield Edit("drop-try", path, tuple(node.body))
    elif isinstance(node, ast.For):
        yield from _for(node, path, numeric)
    elif isinstance(node, ast.While) and not isinstance(node.test, ast.Compare):
        yield Edit("negate", (*path, ("test", None)), (_negated(node.test),))


def _moved(place: Place) -> Iterator[Edit]:
    """Exchange the statement with the one before, and with the one behind."""
    *front, (field, index) = place.path
    around: list[ast.stmt] = getattr(place.parent, field)
    if index is None:
        return
    for rule, first in (("earlier", index - 1), ("later", index)):
        if first >= 0 and first + 1 < len(around) and not _to_read(around[first]):
            yield Edit(rule, (*front, (field, first)), (around[first + 1], around[first]), 2)


def _to_read(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _assigned_before(place: Place) -> bool:
    """Whether the one name that is assigned has a value already: a parameter, or an earlier assignment."""
    node, scope = place.node, place.scope()
    if not isinstance(node, ast.Assign) or not isinstance(scope, ast.FunctionDef):
        return False
    target = node.targets[0]
    if not isinstance(target, ast.Name):
        return False
    known = {argument.arg for argument in (*scope.args.args, *scope.args.kwonlyargs)}
    for other in ast.walk(scope):
        if isinstance(other, ast.Name) and isinstance(other.ctx, ast.Store) and other.lineno < node.lineno:
            known.add(other.id)
    return target.id in known


def _negated(test: ast.expr) -> ast.expr:
    return ast.UnaryOp(ast.Not(), test)


def _if(node: ast.If, path: tuple[Any, ...]) -> Iterator[Edit]:
    if not isinstance(node.test, ast.Compare):
        yield Edit("negate", (*path, ("test", None)), (_negated(node.test),))
    if isinstance(node.body[-1], ast.Raise) and not node.orelse:
        yield Edit("drop-check", path, ())
        return
    yield Edit("unguard", path, tuple(node.body))
    if node.orelse:
        yield Edit("unguard", path, tuple(node.orelse))


def _for(node: ast.For, path: tuple[Any, ...], numeric: frozenset[str]) -> Iterator[Edit]:
    call = node.iter
    ranged = isinstance(call, ast.Call) and tail(call).endswith("range")
    if isinstance(call, ast.Call) and ranged:
        for index, bound in enumerate(call.args):
            if not isinstance(bound, ast.Constant) and tail(bound) not in numeric:
                for by in (1, -1):
                    yield Edit("bound", (*path, ("iter", None), ("args", index)), (shifted(bound, by),))
    if not _accumulates(node):
        return
    if isinstance(call, ast.Call) and ranged:
        if len(call.args) == 1:
            args = [shifted(call.args[0], -1), ast.Constant(-1), ast.Constant(-1)]
            yield Edit("reverse", (*path, ("iter", None)), (ast.Call(call.func, args, call.keywords),))
    elif isinstance(call, ast.BinOp):
        whole = ast.Call(ast.Name("reversed", ast.Load()), [call], [])
        yield Edit("reverse", (*path, ("iter", None)), (whole,))


def _accumulates(node: ast.For) -> bool:
    """Whether the loop's first statement is ``x = ... x ...``: a sum, whose order may count."""
    first = node.body[0]
    if not isinstance(first, ast.Assign) or not isinstance(first.targets[0], ast.Name):
        return False
    name = first.targets[0].id
    return any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(first.value))
