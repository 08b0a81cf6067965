"""The rules that make mutants: what they change, what they leave alone, and that ids keep their meaning."""

import ast

import pytest

from oracle.mutants import expressions, sources, statements, tree
from oracle.mutants.run import change, choose, equivalents

GROUPS = ("cute", "triton", "contract")


def changed(source: str, rule: str, numeric: tuple[str, ...] = ()) -> list[str]:
    """Every version of ``source`` that one rule makes."""
    module = ast.parse(source)
    found = []
    for place in tree.places(module):
        edits = list(statements.changes(place, frozenset(numeric)))
        for name, new in expressions.changes(place, frozenset(numeric)):
            edits.append(tree.Edit(name, place.path, (new,)))
        found += [ast.unparse(tree.apply(module, edit)) for edit in edits if edit.rule == rule]
    return found


RULES = {
    "boundary": ("x = a < b", ["x = a <= b"]),
    "boundary-in-a-chain": ("x = 1 <= a < 9", ["x = 1 < a < 9", "x = 1 <= a <= 9"]),
    "negate": ("x = a == b", ["x = a != b"]),
    "negate-a-condition": ("if found:\n    go()", ["if not found:\n    go()"]),
    "operator": ("x = a + b * c", ["x = a - b * c", "x = a + (b + c)"]),
    "operator-in-place": ("x += 1", ["x -= 1"]),
    "order": ("x = load(a) + load(b)", ["x = load(b) + load(a)"]),
    "drop-operand": ("x = a and b", ["x = b", "x = a"]),
    "constant": ("x = 7", ["x = 8"]),
    "constant-of-a-bound": ("x = range(7)", ["x = range(8)", "x = range(6)"]),
    "constant-mask": ("x = 0x88888888", [f"x = {0x88888880}"]),
    "constant-float": ("x = 1.0", ["x = 1.0000001192092896"]),
    "flag": ("f(ordered=True)", ["f(ordered=False)"]),
    "field": ("f(META_CTA_BATCH)", ["f(META_CTA_LIMIT)"]),
    "word": ("f('float32')", ["f('int32')"]),
    "ptx": ("f('redux.sync.max.u32 $0;')", ["f('redux.sync.min.u32 $0;')", "f('redux.sync.max.s32 $0;')"]),
    "function": ("x = gl.maximum(a, b)", ["x = gl.minimum(a, b)"]),
    "plain-reciprocal": ("x = rcp(a)", ["x = 1.0 / a"]),
    "argument-order": ("f(a, b, c)", ["f(b, a, c)", "f(a, c, b)"]),
    "argument-order-of-a-choice": ("x = select_(c, a, b)", ["x = select_(c, b, a)"]),
    "result-order": ("a, b = c, d", ["a, b = (d, c)"]),
    "arms": ("x = a if c else b", ["x = b if c else a"]),
    "width": ("x = y.to(gl.int64)", ["x = y.to(gl.int32)"]),
    "sign": ("x = Int32(w) >> 31", ["x = Uint32(w) >> 31"]),
    "drop-keyword": ("store(a, b, mask=m)", ["store(a, b)"]),
    "drop-statement": ("store(a, b)", ["pass"]),
    "drop-check": ("if bad:\n    raise ValueError(bad)", ["pass"]),
    "drop-with": ("with lock:\n    go()", ["go()"]),
    "unguard": ("if found:\n    go()", ["go()"]),
    "earlier": ("go()\nsync_threads()", ["sync_threads()\ngo()"]),
    "later": ("dependency_wait()\ngo()", ["go()\ndependency_wait()"]),
    "bound": ("for i in range(a):\n    f()", [
        "for i in range(a + 1):\n    f()", "for i in range(a - 1):\n    f()"]),
    "reverse": ("for i in range(8):\n    x = x + f(i)", ["for i in range(8 - 1, -1, -1):\n    x = x + f(i)"]),
}  # fmt: skip


@pytest.mark.parametrize("name", RULES)
def test_a_rule_changes_what_it_says(name):
    source, expected = RULES[name]
    rule = next(rule for rule in sorted(_rules(), key=len, reverse=True) if name.startswith(rule))
    assert changed(source, rule) == expected


def _rules() -> set[str]:
    return {mutant.id.split(":")[2] for group in GROUPS for mutant in sources.mutants(group)}


def test_every_rule_is_shown_here():
    shown = {rule for rule in _rules() if any(name == rule or name.startswith(f"{rule}-") for name in RULES)}
    assert _rules() - shown <= {"drop-try", "drop-not", "drop-sign", "drop-element", "add-element"}


@pytest.mark.parametrize(
    "source",
    [
        "import a",
        '"""A docstring of 8 words."""',
        "def f(a: 'cuda') -> 8:\n    return a",
        "x = gl.BlockedLayout([1, 8], [1, 32], [8, 1], [1, 0])",
        "raise ValueError(f'{a} of {8}')",
        "Routing = Callable[[Any, Any], None]",
    ],
    ids=["import", "docstring", "annotation", "layout", "text", "type"],
)
def test_what_only_people_or_types_read_is_left_alone(source):
    module = ast.parse(source)
    numeric = frozenset()
    for place in tree.places(module):
        assert not list(statements.changes(place, numeric))
        assert not [new for _, new in expressions.changes(place, numeric)]


def test_the_nearest_citation_is_the_clause():
    source = 'def f(x):\n    """R3: a stage.\n\n    R9 M1."""\n    y = 1\n    # M4, M5: here.\n    z = 2\n'
    module, lines = ast.parse(source), source.splitlines()
    found = {
        p.node.value: tree.clause_of(p, lines)
        for p in tree.places(module)
        if isinstance(p.node, ast.Constant)
    }
    assert (found[1], found[2]) == ("R3", "M4, M5")


@pytest.mark.parametrize("group", GROUPS)
class TestMutants:
    def test_there_are_enough_and_each_has_its_own_id(self, group):
        mutants = sources.mutants(group)
        assert len(mutants) >= 80
        assert len({mutant.id for mutant in mutants}) == len(mutants)

    def test_each_changes_its_module_and_still_parses(self, group):
        originals = {
            module: ast.dump(ast.parse(sources.path_of(module).read_text()))
            for module in sources.FILES[group]
        }
        for mutant in sources.mutants(group)[::19]:
            assert mutant.before != mutant.after
            assert ast.dump(ast.parse(mutant.text)) != originals[mutant.module]


@pytest.mark.parametrize("group", ["cute", "triton"])
# M8 has no statements of its own: the masks and bounds of every store keep it.
@pytest.mark.parametrize("clause", [*(f"R{i}" for i in range(1, 7)), *(f"M{i}" for i in range(1, 8))])
def test_every_clause_is_changed_in_both_kernels(group, clause):
    letter, number = clause[0], int(clause[1])
    cited = set()
    for mutant in sources.mutants(group):
        for found in tree.clauses(mutant.clause):
            first, _, last = found.partition("-")
            if first[0] == letter:
                cited.update(range(int(first[1]), int((last or first)[1]) + 1))
    assert number in cited


def test_a_sample_is_a_fixed_choice_over_all_groups():
    sample = choose(("cute", "triton"), None, 12)
    assert sample == choose(("cute", "triton"), None, 12)
    assert [mutant.group for mutant in sample] == [*GROUPS] * 4


def test_an_unknown_id_is_refused():
    with pytest.raises(ValueError, match=r"no mutant 'impl_cute\.kernel:nothing'"):
        choose(("cute", "triton"), "impl_cute.kernel:nothing", None)


def test_every_mutant_held_for_equivalent_is_there_is_that_change_and_has_a_reason():
    made = {mutant.id: change(mutant) for group in GROUPS for mutant in sources.mutants(group)}
    for name, held in equivalents().items():
        assert name in made, name
        assert held.change == made[name], name
        assert len(held.reason.split()) >= 5, name
