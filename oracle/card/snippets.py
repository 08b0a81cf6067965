"""A small kernel for every instruction form of the simulator: operands in, one instruction, results out.

Thread t finds operand i in the 32 bytes at ``in + (i * THREADS + t) * 32`` and leaves result i at that place
of ``out``. Forms that need more than that (shared memory, barriers, labels) have frames of their own.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from oracle.ptxsim.forms import CARRIES

THREADS: Final = 256
SLOT: Final = 32
"""Bytes of an operand or a result of one thread."""

_INTEGER: Final = re.compile(r"cvt\.sat\.([us])(\d+)\.([us])(\d+)")


def absent(name: str) -> str | None:
    """Why there is no kernel for a form, in one line; None if there is one."""
    if name == "trap":
        return "it ends the context"
    if name == "exit.uni":
        return "PTX has ret.uni, and no such instruction"
    if re.fullmatch(r"cvta(\.to)?\.(const|param)\.u64", name):
        return "nothing else of the simulator's table reaches that space"
    if "f32x2" in name or re.search(r"\.global.*\.(v8|v4\.(b|u|s|f)64)", name):
        return "sm_90 has no such instruction, sm_100 has"
    if match := _INTEGER.fullmatch(name):
        (to, to_bits), (of, of_bits) = (match[1], int(match[2])), (match[3], int(match[4]))
        holds = to_bits >= of_bits if to == of else to == "s" and to_bits > of_bits
        return "it cannot saturate, so PTX has no such instruction" if holds else None
    return None


_REGISTERS: Final = {"b16": "h", "b32": "r", "b64": "d", "f32": "f", "f64": "e", "pred": "p"}


@dataclass(frozen=True)
class Snippet:
    """One kernel.

    roles
        What each operand slot holds, for whoever makes operands: a kind of `values.make`.
    ptx
        The entry, named ``entry``.
    """

    entry: str
    roles: tuple[str, ...]
    results: int
    ptx: str


class _Frame:
    """Collects a kernel's lines; registers of each kind are numbered as they come."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.roles: list[str] = []
        self.results = 0
        self._count = dict.fromkeys(_REGISTERS, 0)

    def register(self, kind: str) -> str:
        self._count[kind] += 1
        return f"%{_REGISTERS[kind]}{self._count[kind]}"

    def add(self, *lines: str) -> None:
        self.lines += lines

    def operand(self, kind: str, role: str) -> str:
        """Load the next operand slot into a register."""
        at = f"[%in+{len(self.roles) * THREADS * SLOT}]"
        self.roles.append(role)
        register = self.register(kind)
        if kind == "pred":
            word = self.register("b32")
            self.add(
                f"ld.global.b32 {word}, {at};",
                f"and.b32 {word}, {word}, 1;",
                f"setp.ne.s32 {register}, {word}, 0;",
            )
        else:
            self.add(f"ld.global.{kind} {register}, {at};")
        return register

    def quads(self, role: str) -> list[str]:
        """Load 32 bytes of the next operand slot as four 64-bit registers."""
        first = self.operand("b64", role)
        at = (len(self.roles) - 1) * THREADS * SLOT
        rest = [self.register("b64") for _ in range(3)]
        self.add(*(f"ld.global.b64 {register}, [%in+{at + 8 * (i + 1)}];" for i, register in enumerate(rest)))
        return [first, *rest]

    def result(self, register: str, kind: str, offset: int = 0) -> None:
        """Store a register into the current result slot."""
        at = f"[%out+{self.results * THREADS * SLOT + offset}]"
        if kind == "pred":
            word = self.register("b32")
            self.add(f"selp.b32 {word}, 1, 0, {register};")
            register, kind = word, "b32"
        self.add(f"st.global.{kind} {at}, {register};")

    def next_result(self) -> None:
        self.results += 1

    def snippet(self, entry: str) -> Snippet:
        registers = [
            f".reg .{kind} %{letter}<{self._count[kind] + 1}>;" for kind, letter in _REGISTERS.items()
        ]
        head = [
            f".visible .entry {entry}(",
            ".param .u64 source, .param .u64 target, .param .align 16 .b8 blob[32]) {",
            *registers,
            ".reg .b64 %in, %out, %at;",
            ".reg .b32 %thread, %base, %mine, %peer;",
            f".shared .align 16 .b8 shared_room[{THREADS * SLOT}];",
            ".local .align 16 .b8 local_room[32];",
            "ld.param.u64 %in, [source];",
            "ld.param.u64 %out, [target];",
            "mov.u32 %thread, %tid.x;",
            f"mul.wide.u32 %at, %thread, {SLOT};",
            "add.s64 %in, %in, %at;",
            "add.s64 %out, %out, %at;",
            "mov.u32 %base, shared_room;",
            f"mad.lo.u32 %mine, %thread, {SLOT}, %base;",
        ]
        text = "\n".join([*head, *self.lines, "ret;", "}", ""])
        return Snippet(entry, tuple(self.roles), max(self.results, 1), text)


def register_kind(kind: str) -> str:
    """Return the register for a PTX type: 8-bit values travel in 32 bits."""
    if kind in ("f32", "f64", "pred"):
        return kind
    bits = kind[1:]
    return {"8": "b32", "f16": "b16"}.get(bits, f"b{bits}")


def _types(name: str) -> list[str]:
    known = {f"{letter}{bits}" for letter in "bus" for bits in (8, 16, 32, 64)} | {
        "f32",
        "f64",
        "pred",
        "bf16",
    }
    return [part for part in name.split(".") if part in known]


def value_types(name: str, sources: int) -> tuple[str, list[tuple[str, str]]]:
    """Return the type of a value form's destination, and the type and role of each of its ``sources``."""
    parts, types = name.split("."), _types(name)
    head, kind = parts[0], types[-1]
    if head == "cvt":
        to, of = (types[0], types[-1]) if len(types) > 1 else (kind, kind)
        return to, [(of if of != "bf16" else "b16", of)]
    target = kind
    if "wide" in parts:
        target = kind[0] + str(2 * int(kind[1:]))
    if head in ("bfind", "clz", "popc"):
        target = "u32"
    given = [(kind, kind)] * sources
    if "wide" in parts and sources == 3:
        given[2] = (target, target)
    if head in ("shl", "shr"):
        given[1] = ("u32", "shift")
    if head == "bmsk":
        given = [("b32", "shift")] * 2
    if head == "bfe":
        given[1:] = [("u32", "field")] * 2
    if head == "bfi":
        given[2:] = [("u32", "field")] * 2
    if head == "shf":
        given[2] = ("u32", "shift")
    if head in ("div", "rem") and kind != "f32":
        given[1] = (kind, f"nonzero-{kind}")
    if head == "setp":
        target = "pred"
    if head in ("setp", "selp") and sources == 3:
        given[2] = ("pred", "pred")
    return target, given


def _value(frame: _Frame, name: str, signature: Sequence[str]) -> None:
    opcode = ".".join(part for part in name.split(".") if not part.startswith(("pack", "unpack")))
    if ".pack" in name or ".unpack" in name:
        _packing(frame, opcode, name)
        return
    if name == "lop3.b32":
        for table in (0x80, 0xE8, 0x96, 0xCA, 0x1B):
            a, b, c = (frame.operand("b32", "b32") for _ in range(3))
            d = frame.register("b32")
            frame.add(f"lop3.b32 {d}, {a}, {b}, {c}, {table};")
            frame.result(d, "b32")
            frame.next_result()
        return
    target, given = value_types(name, len(signature) - 1)
    sources = [frame.operand(register_kind(kind), role) for kind, role in given]
    d = frame.register(register_kind(target))
    frame.add(f"{opcode} {', '.join([d, *sources])};")
    frame.result(d, register_kind(target))
    frame.next_result()
    if signature[0] == "q":
        p, q = frame.register("pred"), frame.register("pred")
        frame.add(f"{opcode} {p}|{q}, {', '.join(sources)};")
        for register in (p, q):
            frame.result(register, "pred")
            frame.next_result()


def _carrying(frame: _Frame, name: str) -> None:
    """Make the carry from two operands, use two more, and read the carry that is left."""
    head, kind = name.split(".")[0].removesuffix("c"), name.split(".")[-1]
    register = register_kind(kind)
    a, b, c, d = (frame.operand(register, kind) for _ in range(4))
    result, carry = frame.register(register), frame.register(register)
    frame.add(
        f"{head}.cc.{kind} {carry}, {c}, {d};",
        f"{name} {result}, {a}, {b};",
        f"{head}c.{kind} {carry}, 0, 0;",
    )
    for made in (result, carry):
        frame.result(made, register)
        frame.next_result()


def _packing(frame: _Frame, opcode: str, name: str) -> None:
    whole, count = opcode.split(".")[1], int(name[-1])
    part = f"b{int(whole[1:]) // count}"
    parts = [frame.operand(part, part) if ".pack" in name else frame.register(part) for _ in range(count)]
    vector = "{" + ", ".join(parts) + "}"
    if ".pack" in name:
        d = frame.register(whole)
        frame.add(f"{opcode} {d}, {vector};")
        frame.result(d, whole)
        frame.next_result()
        return
    source = frame.operand(whole, whole)
    frame.add(f"{opcode} {vector}, {source};")
    for register in parts:
        frame.result(register, part)
        frame.next_result()


def _vector(registers: Sequence[str]) -> str:
    return registers[0] if len(registers) == 1 else "{" + ", ".join(registers) + "}"


def _width(name: str) -> int:
    return next((int(part[1:]) for part in name.split(".") if part in ("v2", "v4", "v8")), 1)


def _space(name: str) -> str:
    spaces = ("param", "global", "shared", "local")
    return next((space for space in spaces if f".{space}" in name), "generic")


_ROOM: Final = {"shared": "%mine", "local": "local_room", "global": "%out", "generic": "%out"}


def _load(frame: _Frame, name: str) -> None:
    kind, space = register_kind(_types(name)[-1]), _space(name)
    targets = [frame.register(kind) for _ in range(_width(name))]
    at = {"param": "blob", "global": "%in", "generic": "%in"}.get(space, _ROOM.get(space, ""))
    words = frame.quads("b64")
    if space in ("shared", "local"):
        frame.add(*(f"st.{space}.b64 [{at}+{8 * i}], {word};" for i, word in enumerate(words)))
    frame.add(f"{name} {_vector(targets)}, [{at}];")
    for register in targets:
        frame.result(register, kind)
        frame.next_result()


def _store(frame: _Frame, name: str) -> None:
    kind, space = register_kind(_types(name)[-1]), _space(name)
    words = frame.quads("b64")
    sources = [frame.operand(kind, kind) for _ in range(_width(name))]
    at = _ROOM[space]
    through = space if space in ("shared", "local") else "global"
    frame.add(*(f"st.{through}.b64 [{at}+{8 * i}], {word};" for i, word in enumerate(words)))
    frame.add(f"{name} [{at}], {_vector(sources)};")
    frame.next_result()
    if through != "global":
        _read_back(frame, through, at)


def _read_back(frame: _Frame, space: str, at: str) -> None:
    for i in range(4):
        word = frame.register("b64")
        frame.add(f"ld.{space}.b64 {word}, [{at}+{8 * i}];")
        frame.result(word, "b64", 8 * i)
    frame.next_result()


def _atomic(frame: _Frame, name: str, sources: int) -> None:
    kind, space = _types(name)[-1], _space(name)
    register = register_kind(kind)
    start = frame.operand(register, kind)
    given = [frame.operand(register, f"like-0-{kind}") for _ in range(sources)]
    at, through = (_ROOM["shared"], "shared") if space == "shared" else (_ROOM["global"], "global")
    frame.add(f"st.{through}.{register} [{at}], {start};")
    frame.next_result()
    if name.startswith("atom"):
        d = frame.register(register)
        frame.add(f"{name} {', '.join([d, f'[{at}]', *given])};")
        frame.result(d, register)
        frame.next_result()
    else:
        frame.add(f"{name} [{at}], {', '.join(given)};")
    if through == "shared":
        after = frame.register(register)
        frame.add("bar.sync 0;", f"ld.shared.{register} {after}, [{at}];")
        frame.result(after, register)
        frame.next_result()


def build(name: str, signature: Sequence[str], kind: str, entry: str) -> Snippet:
    """Return the kernel of one form, given its signature and kind in the simulator's table.

    Raises
    ------
    KeyError
        No frame fits the form.
    """
    from oracle.card import snippets_cluster as clusters
    from oracle.card import snippets_together as together

    frame = _Frame()
    head = name.split(".")[0]
    if special := clusters.frame_of(name):
        special(frame, name)
    elif head == "ld":
        _load(frame, name)
    elif head == "st":
        _store(frame, name)
    elif head in ("atom", "red"):
        _atomic(frame, name, sum(token == "s" for token in signature))
    elif head in together.FRAMES:
        together.FRAMES[head](frame, name)
    elif CARRIES & set(signature):
        _carrying(frame, name)
    elif kind == "value":
        _value(frame, name, signature)
    else:
        raise KeyError(f"no frame for {name} ({kind})")
    return frame.snippet(entry)


Frame = _Frame
