"""Every clause is stated by a named function or constant of the module that owns it."""

import inspect
import re
from types import ModuleType

import pytest

from spec import arithmetic, constants, layout, permutation, scalar, selection

OWNERS = {
    **{f"A{n}": arithmetic for n in range(1, 9)},
    **{f"R{n}": selection for n in range(1, 7)},
    **{f"M{n}": permutation for n in range(1, 9)},
}


def cited(module: ModuleType) -> set[str]:
    """Return the clauses a module cites, ranges such as M1-M8 included."""
    text = inspect.getsource(module)
    clauses = set()
    for letter, first, _, last in re.findall(r"\b([ARM])(\d)(-\1(\d))?\b", text):
        clauses |= {f"{letter}{n}" for n in range(int(first), int(last or first) + 1)}
    return clauses


@pytest.mark.parametrize(("clause", "module"), OWNERS.items(), ids=OWNERS)
def test_the_clause_is_cited_alone_where_it_is_stated(clause, module):
    assert re.search(rf"(?<!-)\b{clause}\b(?!-)", inspect.getsource(module))


def test_the_second_version_covers_every_clause():
    assert cited(scalar) == set(OWNERS)


def test_no_clause_is_cited_that_does_not_exist():
    for module in (arithmetic, constants, layout, permutation, selection):
        assert cited(module) <= set(OWNERS), module.__name__
