"""Places in a syntax tree where something can be changed, and the change of one of them."""

import ast
import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

Step = tuple[str, int | None]
Scope = ast.FunctionDef | ast.ClassDef | ast.Module

_SKIPPED: Final = (
    "annotation",
    "returns",
    "decorator_list",
    "type_params",
    "names",
    "ctx",
    "op",
    "ops",
    "optional_vars",
)
_TYPES: Final = ("Callable", "dict", "tuple")
_CLAUSE: Final = re.compile(r"\b([ARM][1-8])(?:-([ARM][1-8]))?\b")


class Place(NamedTuple):
    """One node: how to get to it, what is around it.

    path
        Steps (field, index or None) from the root.
    parents
        The nodes on the way, the root first.
    function
        The qualified name of the innermost function or class, ``module`` outside of them.
    """

    node: ast.AST
    path: tuple[Step, ...]
    parents: tuple[ast.AST, ...]
    function: str

    @property
    def parent(self) -> ast.AST:
        """The node that holds this one."""
        return self.parents[-1]

    @property
    def raised(self) -> bool:
        """Whether this is part of a ``raise``: of a message, mostly."""
        return any(isinstance(parent, ast.Raise) for parent in self.parents)

    def scope(self) -> Scope:
        """Return the innermost function, class or module around."""
        return next(
            p for p in reversed(self.parents) if isinstance(p, ast.FunctionDef | ast.ClassDef | ast.Module)
        )


@dataclass(frozen=True)
class Edit:
    """Replace ``span`` items at ``path`` (one node, or neighbouring statements) by ``replacement``."""

    rule: str
    path: tuple[Step, ...]
    replacement: tuple[ast.AST, ...]
    span: int = 1


def places(tree: ast.Module) -> Iterator[Place]:
    """Yield every node that may be changed: no annotations, imports, decorators, or texts to read."""
    yield from _below(tree, (), (), "module")


def _below(
    node: ast.AST, path: tuple[Step, ...], parents: tuple[ast.AST, ...], function: str
) -> Iterator[Place]:
    if parents:
        yield Place(node, path, parents, function)
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        function = node.name if function == "module" else f"{function}.{node.name}"
    for field, value in ast.iter_fields(node):
        if field in _SKIPPED:
            continue
        children = value if isinstance(value, list) else [value]
        for index, child in enumerate(children):
            if isinstance(child, ast.AST) and not _to_read(child):
                step = (field, index if isinstance(value, list) else None)
                yield from _below(child, (*path, step), (*parents, node), function)


def _to_read(node: ast.AST) -> bool:
    """Whether the node is for readers or the type checker, or says where in the machine something lies."""
    if isinstance(node, ast.Import | ast.ImportFrom | ast.JoinedStr):
        return True
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.Call) and getattr(node.func, "attr", "").endswith("Layout"):
        return True
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript):
        return isinstance(node.value.value, ast.Name) and node.value.value.id in _TYPES
    return False


def apply(tree: ast.Module, edit: Edit) -> ast.Module:
    """Return ``tree`` with the edit made, in new nodes along its path; an empty body gets a ``pass``."""
    changed: ast.Module = copy.copy(tree)
    holder: Any = changed
    for field, index in edit.path[:-1]:
        if index is None:
            child = copy.copy(getattr(holder, field))
            setattr(holder, field, child)
        else:
            items = list(getattr(holder, field))
            child = items[index] = copy.copy(items[index])
            setattr(holder, field, items)
        holder = child
    field, index = edit.path[-1]
    if index is None:
        setattr(holder, field, edit.replacement[0])
        return changed
    items = list(getattr(holder, field))
    items[index : index + edit.span] = edit.replacement
    setattr(holder, field, items if items or field != "body" else [ast.Pass()])
    return changed


def clauses(text: str) -> list[str]:
    """Return the clauses cited in ``text``, ranges as M1-M8 kept as they stand, in order, each once."""
    return list(dict.fromkeys(match[0] for match in _CLAUSE.finditer(text)))


def clause_of(place: Place, lines: list[str]) -> str:
    """Return what is cited nearest: in a comment above within the function, else in a docstring around."""
    scope = place.scope()
    line = getattr(place.node, "lineno", 1)
    start = 1 if isinstance(scope, ast.Module) else scope.lineno
    for number in range(line, start - 1, -1):
        _, mark, comment = lines[number - 1].partition("#")
        if mark and (found := clauses(comment)):
            return ", ".join(found)
    for parent in reversed(place.parents):
        if isinstance(parent, ast.FunctionDef) and (
            found := clauses((ast.get_docstring(parent) or "").split("\n\n")[0])
        ):
            return ", ".join(found)
    return place.function.split(".")[-1]
