"""Cases of loads, stores, atomics and matrix moves: what is written is read back, byte by byte."""

import random
from collections.abc import Iterator

from ptxsim_tests_isa_case import WIDTH, Case, mask, samples, signed, typed

TYPES = ("b8", "u8", "s8", "b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64")
SHARED = ".shared .align 16 .b8 room[8192];"
SHARED_SPACES = (".shared", ".shared::cta", ".shared::cluster")
LOCAL = ".local .align 16 .b8 depot[64];"


def vectors(space: str) -> Iterator[tuple[str, int]]:
    """Yield ``(type, count)`` of every vector length that a space has."""
    for kind in TYPES:
        yield kind, 1
        yield kind, 2
        if WIDTH[kind] <= 32 or space.startswith(".global"):
            yield kind, 4
        if WIDTH[kind] == 32 and space.startswith(".global"):
            yield kind, 8


def register(kind: str) -> str:
    """Return the type of register that holds an element."""
    return {8: "b16", 16: "b16", 32: "b32", 64: "b64"}[WIDTH[kind]]


def extended(kind: str, source: str, target: str) -> str:
    """Return PTX that widens a register to 64 bits as its type says."""
    width = {8: 16}.get(WIDTH[kind], WIDTH[kind])
    letter = "s" if kind.startswith("s") else "u"
    return (
        f"mov.b64 {target}, {source};"
        if width == 64
        else f"cvt.{letter}64.{letter}{width} {target}, {source};"
    )


def place(space: str) -> tuple[str, str]:
    """Return declarations, and PTX that puts the address of 64 bytes of the thread's own in ``%spot``."""
    if space in SHARED_SPACES:
        return SHARED, ".reg .b32 %spot; mov.b32 %spot, room; mad.lo.u32 %spot, %thread, 64, %spot;"
    if space == ".local":
        return LOCAL, ".reg .b64 %spot; mov.b64 %spot, depot;"
    if space == "":
        return SHARED, (
            ".reg .b64 %spot, %base; mov.b64 %base, room; cvta.shared.u64 %base, %base;"
            "mul.wide.u32 %spot, %thread, 64; add.s64 %spot, %spot, %base;"
        )
    return "", ""


def inputs(seed: int) -> list[list[int]]:
    """Return four columns of random 64-bit words: 32 bytes of each of 16 threads."""
    draw = random.Random(seed)
    return [[draw.getrandbits(64) for _ in range(16)] for _ in range(4)]


def elements(row: list[int], kind: str, count: int, skip: int = 0) -> list[int]:
    """Return the first elements of a thread's bytes, widened to 64 bits as their type says."""
    octets = b"".join(word.to_bytes(8, "little") for word in row)
    size = WIDTH[kind] // 8
    found = [int.from_bytes(octets[skip + k * size : skip + (k + 1) * size], "little") for k in range(count)]
    return [mask(signed(v, WIDTH[kind]) if kind.startswith("s") else v, 64) for v in found]


def loads() -> Iterator[Case]:
    """Store four words, load elements of every type."""
    for space in (".global", ".global.nc", *SHARED_SPACES, ".local", ""):
        for kind, count in vectors(space):
            vector = f".v{count}" if count > 1 else ""
            form = f"ld{space}{vector}.{kind}"
            declare, spot = place(space)
            names = [f"%e{k}" for k in range(count)]
            base = space[:7] if space.startswith((".shared", ".global")) else space
            if space.startswith(".global"):
                # The input buffers are one word a thread: read the words of the neighbours.
                yield global_load(form, kind, count)
                continue
            store = base or ""
            lines = [
                declare,
                f".reg .{register(kind)} {', '.join(names)};",
                spot,
                f"st{store}.v2.b64 [%spot], {{%in0, %in1}};",
                f"st{store}.v2.b64 [%spot+16], {{%in2, %in3}};",
            ]
            target = names[0] if count == 1 else "{" + ", ".join(names) + "}"
            lines.append(f"{form} {target}, [%spot];")
            lines += [extended(kind, name, f"%out{k}") for k, name in enumerate(names)]
            columns = inputs(len(form))
            rows = [elements(list(row), kind, count) for row in zip(*columns, strict=True)]
            yield Case(form, form, "\n".join(lines), columns, [list(c) for c in zip(*rows, strict=True)], 16)


def global_load(form: str, kind: str, count: int) -> Case:
    """Load from the first input's buffer, at multiples of the vector's size."""
    size = WIDTH[kind] // 8 * count
    names = [f"%e{k}" for k in range(count)]
    target = names[0] if count == 1 else "{" + ", ".join(names) + "}"
    align = f"add.s64 %spot, %spot, {size - 16};" if size > 16 else ""
    lines = [
        f".reg .{register(kind)} {', '.join(names)}; .reg .b64 %spot, %step;",
        "ld.param.u64 %spot, [in0];",
        align,
        f"rem.u32 %thread, %thread, {128 // size - (size > 16)};",
        f"mul.wide.u32 %step, %thread, {size};",
        "add.s64 %spot, %spot, %step;",
        f"{form} {target}, [%spot];",
        *[extended(kind, name, f"%out{k}") for k, name in enumerate(names)],
    ]
    column = inputs(len(form))[0]
    skip = size - 16 if size > 16 else 0
    wrap = 128 // size - (size > 16)
    rows = [elements(column, kind, count, skip + t % wrap * size) for t in range(16)]
    return Case(form, form, "\n".join(lines), [column], [list(c) for c in zip(*rows, strict=True)], 16)


def params() -> Iterator[Case]:
    """Load parts of the parameters, through a name and through a register."""
    for kind in TYPES:
        for count in (1, 2, 4):
            if count == 4 and (WIDTH[kind] > 32 or kind == "f64"):
                continue
            vector = f".v{count}" if count > 1 else ""
            form = f"ld.param{vector}.{kind}"
            names = [f"%e{k}" for k in range(count)]
            target = names[0] if count == 1 else "{" + ", ".join(names) + "}"
            # The first parameter is the address of in0: 0x10000001010.
            octets = (0x10000001010).to_bytes(8, "little") + (0x20000001010).to_bytes(8, "little")
            words = [int.from_bytes(octets[:8], "little"), int.from_bytes(octets[8:], "little"), 0, 0]
            expected = [[value] * 16 for value in elements(words, kind, count)]
            widen = [extended(kind, name, f"%out{k}") for k, name in enumerate(names)]
            declare = f".reg .{register(kind)} {', '.join(names)}; .reg .b64 %spot;"
            yield Case(
                form, form, "\n".join([declare, f"{form} {target}, [in0];", *widen]), [[0] * 16], expected, 16
            )
            # The thread number makes the address unknown when the kernel is compiled.
            through = (
                "cvt.u64.u32 %spot, %thread; and.b64 %spot, %spot, 0; add.s64 %spot, %spot, 8;"
                f"{form} {target}, [%spot+-8];"
            )
            yield Case(
                f"{form}-through-a-register",
                form,
                "\n".join([declare, through, *widen]),
                [[0] * 16],
                expected,
                16,
            )


def stores() -> Iterator[Case]:
    """Store elements of every type over known bytes, load all words."""
    for space in (".global", *SHARED_SPACES, ".local", ""):
        for kind, count in vectors(space):
            vector = f".v{count}" if count > 1 else ""
            form = f"st{space}{vector}.{kind}"
            if space == ".global":
                yield global_store(form, kind, count)
                continue
            declare, spot = place(space)
            base = ".shared" if space.startswith(".shared") else space
            columns = inputs(len(form) + 1)
            lines = [declare, spot]
            lines += [f"st{base}.v2.b64 [%spot+{16 * k}], {{%in{2 * k}, %in{2 * k + 1}}};" for k in range(2)]
            lines += values(kind, count)
            lines.append(f"{form} [%spot], {vector_of(count)};")
            for k in range(2):
                lines.append(f"ld{base}.v2.b64 {{%out{2 * k}, %out{2 * k + 1}}}, [%spot+{16 * k}];")
            rows = [overwritten(list(row), kind, count) for row in zip(*columns, strict=True)]
            yield Case(form, form, "\n".join(lines), columns, [list(c) for c in zip(*rows, strict=True)], 16)


def vector_of(count: int) -> str:
    """Return the operand for the registers made by `values`."""
    return "%v0" if count == 1 else "{" + ", ".join(f"%v{k}" for k in range(count)) + "}"


def values(kind: str, count: int) -> list[str]:
    """Return PTX that puts the inverted input 0, plus k, into registers."""
    reg = register(kind)
    lines = [
        f".reg .{reg} {', '.join(f'%v{k}' for k in range(count))}; .reg .b64 %inverted, %sum;",
        "not.b64 %inverted, %in0;",
    ]
    for k in range(count):
        lines.append(f"add.s64 %sum, %inverted, {k};")
        lines.append(f"mov.b64 %v{k}, %sum;" if reg == "b64" else f"cvt.u{reg[1:]}.u64 %v{k}, %sum;")
    return lines


def overwritten(row: list[int], kind: str, count: int) -> list[int]:
    """Return the four words after the store."""
    size = WIDTH[kind] // 8
    octets = bytearray(b"".join(word.to_bytes(8, "little") for word in row))
    for k in range(count):
        octets[k * size : (k + 1) * size] = mask(~row[0] + k, WIDTH[kind]).to_bytes(size, "little")
    return [int.from_bytes(octets[8 * k : 8 * k + 8], "little") for k in range(4)]


def global_store(form: str, kind: str, count: int) -> Case:
    """Store to the first output's buffer, every ``size`` bytes, and read it back."""
    size = WIDTH[kind] // 8 * count
    threads = 16
    skip = size - 16 if size > 16 else 0
    live = (8 * threads - skip) // size
    # Threads beyond the buffer stay idle; each thread then reads its word back and stores it again.
    lines = [
        ".reg .b64 %spot, %step, %word; .reg .pred %p, %q;",
        "ld.param.u64 %word, [out0];",
        *values(kind, count),
        "add.s64 %where, %word, %at;",
        f"setp.lt.u32 %p, %thread, {live};",
        f"add.s64 %spot, %word, {skip};",
        f"mul.wide.u32 %step, %thread, {size};",
        "add.s64 %spot, %spot, %step;",
        "mov.b64 %out0, 0; st.global.b64 [%where], %out0; bar.sync 0;",
        f"@%p {form} [%spot], {vector_of(count)};",
        "bar.sync 0;",
        "ld.global.b64 %out0, [%where];",
    ]
    column = inputs(len(form) + 2)[0]
    octets = bytearray(8 * threads)
    for t in range(min(live, threads)):
        for k in range(count):
            at = skip + t * size + k * size // count
            octets[at : at + size // count] = mask(~column[t] + k, WIDTH[kind]).to_bytes(
                size // count, "little"
            )
    expected = [int.from_bytes(octets[8 * t : 8 * t + 8], "little") for t in range(threads)]
    return Case(form, form, "\n".join(lines), [column], [expected], threads)


ATOMIC = {
    "add": lambda old, v: old + v,
    "min": min,
    "max": max,
    "and": lambda old, v: old & v,
    "or": lambda old, v: old | v,
    "xor": lambda old, v: old ^ v,
    "exch": lambda old, v: v,
    "inc": lambda old, v: 0 if old >= v else old + 1,
    "dec": lambda old, v: v if old == 0 or old > v else old - 1,
}


def atomics() -> Iterator[Case]:
    """Pairs of threads change one word of each of 8: the second sees what the first left."""
    kinds = {
        "add": ("u32", "s32", "u64"),
        "min": ("u32", "s32", "u64", "s64"),
        "max": ("u32", "s32", "u64", "s64"),
        "inc": ("u32",),
        "dec": ("u32",),
        "and": ("b32", "b64"),
        "or": ("b32", "b64"),
        "xor": ("b32", "b64"),
        "exch": ("b32", "b64"),
        "cas": ("b32", "b64"),
    }
    for space in (".global", *SHARED_SPACES, ""):
        for name, types in kinds.items():
            for kind in types:
                yield atomic("atom", space, name, kind)
                if name not in ("exch", "cas"):
                    yield atomic("red", space, name, kind)


def atomic(opcode: str, space: str, name: str, kind: str) -> Case:
    """Threads t and t + 8 share a word; output 0 is what each found (0 for red), output 1 what is left."""
    form = f"{opcode}{space}.{name}.{kind}"
    n = WIDTH[kind]
    first, operand, extra = samples([kind] * 3, 16, seed=len(form))
    if name == "cas":
        operand[:4] = first[:4]
    lines = [
        f".reg .b{n} %old, %value, %swap, %start; .reg .b64 %spot, %base;",
        ".reg .b32 %slot, %near; .reg .pred %p;",
        "and.b32 %slot, %thread, 7; setp.lt.u32 %p, %thread, 8;",
        "mul.wide.u32 %spot, %slot, 8;",
    ]
    for reg, k in (("%start", 0), ("%value", 1), ("%swap", 2)):
        lines.append(f"mov.b64 {reg}, %in{k};" if n == 64 else f"cvt.u32.u64 {reg}, %in{k};")
    where = "[%spot]"
    if space == ".global":
        lines += ["ld.param.u64 %base, [out1];", "add.s64 %spot, %spot, %base;"]
    elif space == "":
        lines += ["mov.b64 %base, room; cvta.shared.u64 %base, %base;", "add.s64 %spot, %spot, %base;"]
    else:
        lines += ["mov.b32 %near, room; mad.lo.u32 %near, %slot, 8, %near;"]
        where = "[%near]"
    plain = ".shared" if space.startswith(".shared") else space
    lines += [f"@%p st{plain}.b{n} {where}, %start;", "bar.sync 0;", "mov.b64 %out0, 0;"]
    arguments = "%value, %swap" if name == "cas" else "%value"
    lines.append(
        f"{form} %old, {where}, {arguments};" if opcode == "atom" else f"{form} {where}, {arguments};"
    )
    if opcode == "atom":
        lines.append("mov.b64 %out0, %old;" if n == 64 else "cvt.u64.u32 %out0, %old;")
    lines += [
        "bar.sync 0;",
        f"ld{plain}.b{n} %old, {where};",
        "bar.sync 0;",
        "mov.b64 %out1, %old;" if n == 64 else "cvt.u64.u32 %out1, %old;",
    ]
    words = [mask(v, n) for v in first[:8]]
    found = [0] * 16
    for t in range(16):
        old = words[t % 8]
        if opcode == "atom":
            found[t] = old
        if name == "cas":
            new = extra[t] if old == operand[t] else old
        else:
            new = ATOMIC[name](typed(old, kind), typed(operand[t], kind))
        words[t % 8] = mask(new, n)
    return Case(
        form,
        form,
        "\n".join(lines),
        [first, operand, extra],
        [found, words * 2],
        16,
        "" if space == ".global" else SHARED,
    )


def matrices() -> Iterator[Case]:
    """``ldmatrix`` and ``stmatrix`` on rows at scattered places."""
    for space in (".shared", ".shared::cta"):
        for trans in ("", ".trans"):
            for count in (1, 2, 4):
                for opcode in ("ldmatrix", "stmatrix"):
                    yield matrix(opcode, count, trans, space)


def matrix(opcode: str, count: int, trans: str, space: str) -> Case:
    """Row r of the matrices lies at ``16 * ((5 r) mod 32)``; lanes hold elements as in the ISA's figure."""
    form = f"{opcode}.sync.aligned.m8n8.x{count}{trans}{space}.b16"
    draw = random.Random(len(form))
    items = "%m0" if count == 1 else "{" + ", ".join(f"%m{k}" for k in range(count)) + "}"
    lines = [
        ".reg .b32 %m<4>, %row, %mine, %turn; .reg .b64 %wide;",
        "mul.lo.u32 %turn, %thread, 5;",
        "and.b32 %turn, %turn, 31; mov.b32 %row, room; mad.lo.u32 %row, %turn, 16, %row;",
        "mov.b32 %mine, room; mad.lo.u32 %mine, %thread, 16, %mine;",
    ]
    if opcode == "ldmatrix":
        columns = [[draw.getrandbits(64) for _ in range(32)] for _ in range(2)]
        octets = [b"".join(columns[k][t].to_bytes(8, "little") for k in range(2)) for t in range(32)]
        lines += ["st.shared.v2.b64 [%mine], {%in0, %in1};", "bar.warp.sync -1;", f"{form} {items}, [%row];"]
        lines += [f"cvt.u64.u32 %out{k}, %m{k};" for k in range(count)]
        expected = []
        for m in range(count):
            # Row i of matrix m is named by lane 8 m + i.
            rows = [octets[5 * (8 * m + i) % 32] for i in range(8)]
            element = [[int.from_bytes(row[2 * j : 2 * j + 2], "little") for j in range(8)] for row in rows]
            if trans:
                element = [list(column) for column in zip(*element, strict=True)]
            expected.append(
                [element[t // 4][t % 4 * 2] | element[t // 4][t % 4 * 2 + 1] << 16 for t in range(32)]
            )
        return Case(form, form, "\n".join(lines), columns, expected, 32, SHARED)
    columns = [[draw.getrandbits(32) for _ in range(32)] for _ in range(count)]
    lines += ["st.shared.v2.b64 [%mine], {0, 0};", "bar.warp.sync -1;"]
    lines += [f"cvt.u32.u64 %m{k}, %in{k};" for k in range(count)]
    lines += [f"{form} [%row], {items};", "bar.warp.sync -1;", "ld.shared.v2.b64 {%out0, %out1}, [%mine];"]
    memory = [bytearray(16) for _ in range(32)]
    for m in range(count):
        for t in range(32):
            for half in (0, 1):
                i, j = t // 4, t % 4 * 2 + half
                if trans:
                    i, j = j, i
                value = columns[m][t] >> 16 * half & 0xFFFF
                memory[5 * (8 * m + i) % 32][2 * j : 2 * j + 2] = value.to_bytes(2, "little")
    expected = [[int.from_bytes(memory[t][8 * k : 8 * k + 8], "little") for t in range(32)] for k in range(2)]
    return Case(form, form, "\n".join(lines), columns, expected, 32, SHARED)


def cases() -> list[Case]:
    """Return every case of this file."""
    return [*loads(), *params(), *stores(), *atomics(), *matrices()]
