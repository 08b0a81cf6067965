"""Rules that change one expression."""

import ast
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from oracle.mutants.tree import Place

Found = Iterator[tuple[str, ast.AST]]

_BOUNDARY: Final[dict[type, type]] = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_COMPLEMENT: Final[dict[type, type]] = {
    ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS: Final[dict[type, type]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitOr,
}  # fmt: skip
_CALLS: Final = {
    "max": "min", "min": "max", "maximum": "minimum", "minimum": "maximum", "add_rn": "mul_rn",
    "mul_rn": "add_rn",
    "sum": "max", "sync_threads": "sync_warp", "int64": "int32", "Int64": "Int32", "sym_int64": "sym_int32",
}  # fmt: skip
_SIGNS: Final = {"Int32": "Uint32", "Uint32": "Int32"}
_SYMMETRIC: Final = (
    "add_rn", "mul_rn", "min", "max", "minimum", "maximum", "isinstance", "getattr", "removeprefix", "field",
)  # fmt: skip
_ARGUMENTS: Final = (
    "logits", "bias", "ids", "weights", "scale", "renormalize", "metadata", "local_expert_offset",
    "num_local_experts", "tile_n",
)  # fmt: skip
_WORDS: Final = {
    **dict(zip(_ARGUMENTS, (*_ARGUMENTS[1:], _ARGUMENTS[0]), strict=True)),
    "float32": "int32", "int32": "float32", "cuda": "cpu", "cpu": "cuda", "i64": "i32", "i32": "i64",
    "fp32": "i32",
    "*fp32": "*i32", "*i32": "*fp32",
}  # fmt: skip
_FIELDS: Final = (
    "META_PADDED_TOKENS", "META_NUM_CTAS", "META_CTA_BATCH", "META_CTA_LIMIT", "META_EXPANDED_TO_PERMUTED",
    "META_PERMUTED_TO_TOKEN",
)  # fmt: skip
_DROPPED_KEYWORDS: Final = ("mask", "other", "options")
_FREE_KEYWORDS: Final = (
    "unroll",
    "is_pure",
    "pack",
    "assert_trivial",
    "strict",
    "maxsize",
    "prefix",
    "slots",
)
"""Keywords that change how fast or how safe something is made, not what it does."""

_ALLOCATES: Final = "alloc_smem"
_TYPED: Final = (
    _ALLOCATES, "full", "convert_layout", "inline_asm_elementwise", "inline_asm", "_ptx", "ptrtoint",
    "bitcast", "extractvalue", "shared_or", "unpack", "pack",
)  # fmt: skip
"""Calls whose neighbouring arguments are of different kinds: exchanged, they do not compile."""
_CHOICES: Final = ("select_", "where", "_choose")
_TABLE: Final = 8
"""A tuple of more elements is a table."""

_PTX: Final = re.compile(r"^(@\$\d )?[a-z0-9]+(\.[a-z0-9]+)+[^;]*;$")
_PTX_EDITS: Final = (
    (r"\.max\.", ".min."), (r"\.rn\.", ".rz."), (r"ex2\.approx\.f32", "ex2.approx.ftz.f32"),
    (r"div\.full\.f32", "div.approx.f32"), (r"div\.full\.f32", "div.rn.f32"), (r"^mul\.", "add."),
    (r"^add\.", "mul."),
    (r"\.or\.", ".xor."), (r"\.or\.", ".and."), (r"\.idx\.", ".bfly."), (r"\.idx\.", ".up."),
    (r" 31,", " 15,"),
    (r"^@\$0 ", ""), (r"^@\$0 ", "@!$0 "), (r"\.u32", ".s32"), (r"^brev\.", "mov."), (r"^clz\.", "popc."),
    (r"wait;", "launch_dependents;"), (r"\{\$1, \$2", "{$2, $1"), (r"\$0, \$1, \$2;", "$0, $2, $1;"),
    (r"\{\$0, \$1", "{$1, $0"), (r"\.v4\.(b32) (\[\$0\], \{\$1), \$1, \$1, \$1", r".v2.\1 \2, $1"),
)  # fmt: skip


def changes(place: Place, numeric: frozenset[str]) -> Found:
    """Yield (rule, replacement) for the expression at ``place``; ``numeric`` names the module's constants."""
    for kind, rule in _RULES:
        if isinstance(place.node, kind):
            yield from rule(place, numeric)


def tail(call: ast.AST) -> str:
    """Return the last name of what is called, "" where there is none."""
    function = call.func if isinstance(call, ast.Call) else call
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def shifted(node: ast.expr, by: int) -> ast.expr:
    """Return ``node + 1`` or ``node - 1``."""
    return ast.BinOp(node, ast.Add() if by > 0 else ast.Sub(), ast.Constant(abs(by)))


def _compare(place: Place, numeric: frozenset[str]) -> Found:
    node: Any = place.node
    for index, operator in enumerate(node.ops):
        for rule, table in (("boundary", _BOUNDARY), ("negate", _COMPLEMENT)):
            if type(operator) in table and (rule == "boundary" or len(node.ops) == 1):
                operators = [*node.ops[:index], table[type(operator)](), *node.ops[index + 1 :]]
                yield rule, ast.Compare(node.left, operators, node.comparators)


def _binary(place: Place, numeric: frozenset[str]) -> Found:
    node: Any = place.node
    sides = (node.left, node.right)
    if any(isinstance(side, ast.JoinedStr) or _is_text(side) for side in sides):
        return
    if isinstance(node.op, ast.Add) and (
        any(isinstance(side, ast.Tuple | ast.List) for side in sides)
        or (all(isinstance(side, ast.Call) for side in sides) and tail(sides[0]) == tail(sides[1]))
    ):
        yield "order", ast.BinOp(node.right, node.op, node.left)
        return
    yield "operator", ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right)
    if isinstance(node.op, ast.BitAnd | ast.BitOr | ast.BitXor):
        yield "drop-operand", node.left
        if not isinstance(node.right, ast.Constant):
            yield "drop-operand", node.right


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _unary(place: Place, numeric: frozenset[str]) -> Found:
    node: Any = place.node
    if not (isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant)):
        yield "drop-sign" if isinstance(node.op, ast.USub) else "drop-not", node.operand


def _boolean(place: Place, numeric: frozenset[str]) -> Found:
    node: Any = place.node
    yield "operator", ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    for index in range(len(node.values)):
        rest = [*node.values[:index], *node.values[index + 1 :]]
        yield "drop-operand", rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)


def _constant(place: Place, numeric: frozenset[str]) -> Found:
    value = place.node.value if isinstance(place.node, ast.Constant) else None
    keyword = place.parent.arg if isinstance(place.parent, ast.keyword) else None
    if keyword in _FREE_KEYWORDS:
        return
    if isinstance(value, bool):
        yield "flag", ast.Constant(not value)
    elif isinstance(value, int) and not _in_table(place) and not _is_shape(place):
        if not _is_room(place):
            yield "constant", ast.Constant(_next(value))
        if (_is_bound(place) or _is_room(place)) and value:
            yield "constant", ast.Constant(value - 1)
    elif isinstance(value, float):
        yield "constant", ast.Constant(value + 2.0**-23 if value else 1.0)
    elif isinstance(value, str):
        yield from _text(place, value)


def _next(value: int) -> int:
    """Return one more, of a mask the mask without its lowest bit."""
    return value & (value - 1) if value > 255 else value + 1


def _is_bound(place: Place) -> bool:
    """Whether the place limits something: a comparison, a range or a slice."""
    return isinstance(place.parent, ast.Compare | ast.Slice) or tail(place.parent).endswith("range")


def _is_room(place: Place) -> bool:
    """Whether the place sizes memory: more of it changes nothing."""
    return any(tail(parent) == _ALLOCATES for parent in place.parents if isinstance(parent, ast.Call))


def _is_shape(place: Place) -> bool:
    """Whether the place is part of a tensor's shape, which other shapes must fit."""
    calls = [tail(parent) for parent in place.parents if isinstance(parent, ast.Call)]
    shape = isinstance(place.parent, ast.List) and calls and calls[-1] in ("full", "reshape")
    return bool(shape or (calls and calls[-1] == "arange"))


def _in_table(place: Place) -> bool:
    """Whether the place belongs to a table of pairs, whose elements are dropped instead."""
    return any(isinstance(parent, ast.Tuple) and len(parent.elts) > _TABLE for parent in place.parents)


def _text(place: Place, value: str) -> Found:
    if _PTX.fullmatch(value):
        for pattern, new in _PTX_EDITS:
            changed = re.sub(pattern, new, value, count=1)
            if changed != value:
                yield "ptx", ast.Constant(changed)
    elif value in _WORDS and not isinstance(place.parent, ast.FormattedValue):
        first = place.raised and isinstance(place.parent, ast.Call) and place.parent.args[0] is place.node
        if not place.raised or first:
            yield "word", ast.Constant(_WORDS[value])


def _name(place: Place, numeric: frozenset[str]) -> Found:
    node: Any = place.node
    if not isinstance(node.ctx, ast.Load) or (
        isinstance(place.parent, ast.Call) and place.parent.func is node
    ):
        return
    if isinstance(place.parent, ast.Attribute):
        return
    name = tail(node)
    if name in numeric and not place.raised and not _is_shape(place):
        if not _is_room(place):
            yield "constant", shifted(node, 1)
        if _is_bound(place) or _is_room(place):
            yield "constant", shifted(node, -1)
    if name in _FIELDS:
        yield "field", _renamed(node, _FIELDS[(_FIELDS.index(name) + 1) % len(_FIELDS)])
    if name in ("int64", "Int64"):
        yield "width", _renamed(node, _CALLS[name])


def _renamed(node: ast.AST, name: str) -> ast.expr:
    if isinstance(node, ast.Attribute):
        return ast.Attribute(node.value, name, ast.Load())
    return ast.Name(name, ast.Load())


def _call(place: Place, numeric: frozenset[str]) -> Found:
    node: Any = place.node
    name = tail(node)
    if name in _CALLS and not (name in ("max", "min", "sum") and isinstance(node.func, ast.Name)):
        yield "function", ast.Call(_renamed(node.func, _CALLS[name]), node.args, node.keywords)
    if name in _SIGNS and isinstance(place.parent, ast.Compare | ast.BinOp):
        operator: Any = place.parent.op if isinstance(place.parent, ast.BinOp) else ast.Lt()
        if isinstance(operator, ast.RShift | ast.FloorDiv | ast.Lt) and len(node.args) == 1:
            yield "sign", ast.Call(_renamed(node.func, _SIGNS[name]), node.args, node.keywords)
    if name in ("rcp", "rcp_approx"):
        yield "plain-reciprocal", ast.BinOp(ast.Constant(1.0), ast.Div(), node.args[0])
    for index, keyword in enumerate(node.keywords):
        if keyword.arg in _DROPPED_KEYWORDS:
            rest = [*node.keywords[:index], *node.keywords[index + 1 :]]
            yield "drop-keyword", ast.Call(node.func, node.args, rest)
    for args in _swapped(place, name, node.args):
        yield "argument-order", ast.Call(node.func, args, node.keywords)


def _swapped(place: Place, name: str, args: list[ast.expr]) -> Iterator[list[ast.expr]]:
    """Yield the arguments with two neighbours exchanged: a choice's arms, a message's last two."""
    if (
        name in (*_SYMMETRIC, *_TYPED)
        or name.endswith("range")
        or any(isinstance(arg, ast.Starred) for arg in args)
    ):
        return
    starts = range(len(args) - 1)
    if "store" in name:  # not the address
        starts = starts[1:]
    if name in _CHOICES or (place.raised and len(args) > 1):
        starts = starts[-1:]
    for i in starts:
        if ast.dump(args[i]) != ast.dump(args[i + 1]):
            yield [*args[:i], args[i + 1], args[i], *args[i + 2 :]]


def _tuple(place: Place, numeric: frozenset[str]) -> Found:
    node: Any = place.node
    unpacked = isinstance(place.parent, ast.Assign) and isinstance(place.parent.targets[0], ast.Tuple)
    if (unpacked or isinstance(place.parent, ast.Return)) and isinstance(node.ctx, ast.Load):
        for i in range(len(node.elts) - 1):
            first, second = node.elts[i : i + 2]
            if ast.dump(first) != ast.dump(second):
                yield (
                    "result-order",
                    ast.Tuple([*node.elts[:i], second, first, *node.elts[i + 2 :]], ast.Load()),
                )
    texts = node.elts and all(_is_text(element) for element in node.elts)
    if texts or len(node.elts) > _TABLE:
        for i in range(len(node.elts)):
            yield "drop-element", ast.Tuple([*node.elts[:i], *node.elts[i + 1 :]], ast.Load())
    values = [getattr(element, "value", None) for element in node.elts]
    if texts and set(values) <= set(_ARGUMENTS):
        for name in ("ids", "weights"):
            yield "add-element", ast.Tuple([*node.elts, ast.Constant(name)], ast.Load())


def _choice(place: Place, numeric: frozenset[str]) -> Found:
    node: Any = place.node
    yield "arms", ast.IfExp(node.test, node.orelse, node.body)


_RULES: Final[tuple[tuple[type | tuple[type, ...], Callable[[Place, frozenset[str]], Found]], ...]] = (
    (ast.Compare, _compare),
    (ast.BinOp, _binary),
    (ast.UnaryOp, _unary),
    (ast.BoolOp, _boolean),
    (ast.Constant, _constant),
    ((ast.Name, ast.Attribute), _name),
    (ast.Call, _call),
    (ast.Tuple, _tuple),
    (ast.IfExp, _choice),
)
