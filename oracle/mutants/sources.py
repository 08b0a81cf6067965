"""The mutants: every rule at every place of the files that both backends and the contract are made of."""

import ast
import difflib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from oracle.errors import CannotRunError
from oracle.mutants import expressions, statements
from oracle.mutants.tree import Edit, Place, apply, clause_of, places

CONTRACT: Final = "contract"
_DIGITS: Final = 5
FILES: Final = {
    "cute": ("impl_cute.kernel", "impl_cute.primitives", "impl_cute.compiler", "impl_cute.host"),
    "triton": ("impl_triton.kernel", "impl_triton.compiler", "impl_triton.host"),
    CONTRACT: ("spec.contract", "spec.repeated"),
}
"""The groups of mutants: the modules of each backend; the rules on arguments, judged through both hosts."""


@dataclass(frozen=True)
class Mutant:
    """One changed module.

    id
        ``module:function:rule:digest``; the digest is that of the lines that change, so an edit elsewhere
        leaves it alone.
    group, module
        A key of `FILES`, and one of its modules.
    clause
        What the change is likely to break: clauses, or the function where none is cited.
    line
        Of the changed place in the file.
    before, after
        The lines that change, as the syntax tree prints them.
    """

    id: str
    group: str
    module: str
    clause: str
    line: int
    before: str
    after: str
    edit: Edit

    @property
    def text(self) -> str:
        """The whole changed module."""
        return ast.unparse(apply(_tree(self.module), self.edit)) + "\n"


def path_of(module: str) -> Path:
    """Return the file of ``module``, which is found but not imported.

    Raises
    ------
    CannotRunError
        Its package is not there.
    """
    package, _, name = module.partition(".")
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise CannotRunError(f"the package {package} is not there")
    return Path(next(iter(found.submodule_search_locations))) / f"{name}.py"


@cache
def _source(module: str) -> str:
    return path_of(module).read_text(encoding="utf-8")


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(_source(module))


@cache
def mutants(group: str) -> tuple[Mutant, ...]:
    """Return the mutants of a group, in file order; changes that give the same text are there once."""
    return tuple(mutant for module in FILES[group] for mutant in _of_module(group, module))


def _of_module(group: str, module: str) -> Iterator[Mutant]:
    tree, lines = _tree(module), _source(module).splitlines()
    numeric = _numeric(tree)
    originals = [ast.unparse(node) for node in tree.body]
    seen = set(originals)
    ordinals: dict[str, int] = {}
    for place in places(tree):
        number = place.path[0][1] or 0
        original = originals[number]
        for edit in _edits(place, numeric):
            # Only the one statement of the module is copied and printed.
            within = replace(edit, path=(("body", 0), *edit.path[1:]))
            text = ast.unparse(apply(ast.Module([tree.body[number]], []), within))
            if text in seen:
                continue
            seen.add(text)
            before, after = _difference(original, text)
            digest = hashlib.sha256(f"{before}\n{after}".encode()).hexdigest()[:_DIGITS]
            name = f"{module}:{place.function}:{edit.rule}:{digest}"
            ordinals[name] = ordinals.get(name, 0) + 1
            if ordinals[name] > 1:
                name += f".{ordinals[name]}"
            clause = clause_of(place, lines)
            line = getattr(place.node, "lineno", 1)
            yield Mutant(name, group, module, clause, line, before, after, edit)


def _edits(place: Place, numeric: frozenset[str]) -> Iterator[Edit]:
    yield from statements.changes(place, numeric)
    for rule, replacement in expressions.changes(place, numeric):
        yield Edit(rule, place.path, (replacement,))


def _difference(original: str, text: str) -> tuple[str, str]:
    """Return the lines that differ; of a statement that moved, all that it passed."""
    old, new = original.splitlines(), text.splitlines()
    codes = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    changed = [code[1:] for code in codes if code[0] != "equal"]
    before = [line.strip() for i, j, _, _ in changed for line in old[i:j]]
    after = [line.strip() for _, _, k, m in changed for line in new[k:m]]
    if before == after:
        (i, _, k, _), (_, j, _, m) = changed[0], changed[-1]
        before, after = [line.strip() for line in old[i:j]], [line.strip() for line in new[k:m]]
    return "\n".join(before), "\n".join(after)


def _numeric(tree: ast.Module) -> frozenset[str]:
    """Return the module's constants that are numbers: those of spec, and those made from numbers."""
    names = {
        alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module in ("spec.constants", "spec.layout")
        for alias in node.names
        if alias.name.isupper()
    }
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None)
        if (
            isinstance(target, ast.Name)
            and target.id.isupper()
            and isinstance(value, ast.expr)
            and _is_number(value)
        ):
            names.add(target.id)
    # How Triton's kernel gets them.
    names.update(
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr.isupper()
        and isinstance(node.value, ast.Name)
        and node.value.id in ("constants", "layout")
    )
    return frozenset(names)


def _is_number(value: ast.expr) -> bool:
    if isinstance(value, ast.Call) and expressions.tail(value) == "constexpr":
        value = value.args[0]
    if isinstance(value, ast.Constant):
        return type(value.value) in (int, float)
    return isinstance(value, ast.BinOp | ast.UnaryOp | ast.Name | ast.Attribute)


def packages(backends: tuple[str, ...]) -> dict[str, str]:
    """Return every file of the backends' packages by its path in a copy: a run judges what it began with."""
    return {
        f"{file.parent.name}/{file.name}": file.read_text(encoding="utf-8")
        for backend in backends
        for file in sorted(path_of(f"impl_{backend}.kernel").parent.glob("*.py"))
    }
