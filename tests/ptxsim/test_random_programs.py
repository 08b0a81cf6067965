"""Random programs with branches, loops, guards, shuffles and barriers do what a plain interpreter does.

The interpreter runs one lane after the other and knows nothing of PTX text, blocks, masks or schedules: it
walks the tree that the text is printed from.
"""

import random

import numpy as np
import pytest

THREADS = 96
WORD = 0xFFFFFFFF
REGISTERS = 6


def signed(value):
    return value - (1 << 32) if value >> 31 else value


OPERATIONS = {
    "add.s32": lambda a, b: a + b,
    "sub.s32": lambda a, b: a - b,
    "mul.lo.s32": lambda a, b: a * b,
    "xor.b32": lambda a, b: a ^ b,
    "and.b32": lambda a, b: a & b,
    "or.b32": lambda a, b: a | b,
    "min.s32": lambda a, b: min(signed(a), signed(b)),
    "max.u32": max,
    "min.u32": min,
    "max.s32": lambda a, b: max(signed(a), signed(b)),
    "shl.b32": lambda a, b: a << min(b, 32),
    "shr.u32": lambda a, b: a >> min(b, 32),
    "shr.s32": lambda a, b: signed(a) >> min(b, 32),
}
COMPARISONS = {
    "lt.s32": lambda a, b: signed(a) < signed(b),
    "eq.b32": lambda a, b: a == b,
    "gt.u32": lambda a, b: a > b,
    "ne.b32": lambda a, b: a != b,
}


class Writer:
    """Draws a program, and prints it as PTX."""

    def __init__(self, seed):
        self.draw = random.Random(seed)
        self.count = 0

    def fresh(self):
        self.count += 1
        return self.count

    def register(self):
        return self.draw.randrange(REGISTERS)

    def operand(self):
        return self.draw.choice(
            [
                ("r", self.register()),
                ("r", self.register()),
                ("k", self.draw.choice([0, 1, 2, 5, 31, 0x7FFFFFFF, self.draw.getrandbits(32)])),
            ]
        )

    def condition(self):
        # Few bits are compared, so that lanes part in all ways.
        return (
            self.draw.choice(list(COMPARISONS)),
            self.register(),
            self.draw.choice([1, 3, 7]),
            self.operand(),
        )

    def block(self, depth, size):
        return [self.statement(depth) for _ in range(self.draw.randint(1, size))]

    def statement(self, depth):
        kind = self.draw.choices(
            ["set", "guarded", "if", "loop", "meet", "select"],
            [6, 3, 3 if depth else 0, 2 if depth else 0, 3 if depth == 3 else 0, 2],
        )[0]
        if kind in ("set", "guarded"):
            guard = (self.condition(), self.draw.random() < 0.5) if kind == "guarded" else None
            return (
                kind,
                self.draw.choice(list(OPERATIONS)),
                self.register(),
                self.operand(),
                self.operand(),
                guard,
            )
        if kind == "select":
            return kind, self.register(), self.operand(), self.operand(), self.condition()
        if kind == "if":
            other = self.block(depth - 1, 3) if self.draw.random() < 0.6 else []
            return kind, self.condition(), self.block(depth - 1, 4), other
        if kind == "loop":
            return kind, self.register(), self.draw.choice([1, 3, 7]), self.block(depth - 1, 3)
        return (
            kind,
            self.draw.choice(["bfly", "ballot", "shared", "redux"]),
            self.register(),
            self.register(),
            self.draw.choice([1, 2, 5, 16]),
        )


def text_of(operand):
    return f"%r{operand[1]}" if operand[0] == "r" else str(operand[1])


def print_condition(condition, writer, lines):
    comparison, register, bits, operand = condition
    name = writer.fresh()
    lines.append(
        f".reg .b32 %a{name}, %b{name}; .reg .pred %q{name}; and.b32 %a{name}, %r{register}, {bits};"
    )
    lines.append(
        f"and.b32 %b{name}, {text_of(operand)}, {bits}; setp.{comparison} %q{name}, %a{name}, %b{name};"
    )
    return f"%q{name}"


def print_block(block, writer, lines):
    for statement in block:
        kind, *rest = statement
        if kind in ("set", "guarded"):
            opcode, target, a, b, guard = rest
            prefix = ""
            if guard:
                prefix = f"@{'!' if guard[1] else ''}{print_condition(guard[0], writer, lines)} "
            lines.append(f"{prefix}{opcode} %r{target}, {text_of(a)}, {text_of(b)};")
        elif kind == "select":
            target, a, b, condition = rest
            name = print_condition(condition, writer, lines)
            lines.append(f"selp.b32 %r{target}, {text_of(a)}, {text_of(b)}, {name};")
        elif kind == "if":
            condition, then, other = rest
            name, label = print_condition(condition, writer, lines), writer.fresh()
            lines.append(f"@!{name} bra ELSE{label};")
            print_block(then, writer, lines)
            lines.append(f"bra.uni DONE{label}; ELSE{label}:")
            print_block(other, writer, lines)
            lines.append(f"DONE{label}:")
        elif kind == "loop":
            register, bits, body = rest
            label = writer.fresh()
            lines.append(
                f".reg .b32 %n{label}; .reg .pred %m{label}; and.b32 %n{label}, %r{register}, {bits};"
            )
            lines.append(f"LOOP{label}: setp.eq.b32 %m{label}, %n{label}, 0; @%m{label} bra END{label};")
            print_block(body, writer, lines)
            lines.append(f"sub.s32 %n{label}, %n{label}, 1; bra LOOP{label}; END{label}:")
        else:
            print_meeting(rest, writer, lines)


def print_meeting(rest, writer, lines):
    how, target, source, number = rest
    name = writer.fresh()
    if how == "bfly":
        lines.append(f"shfl.sync.bfly.b32 %r{target}, %r{source}, {number}, 31, -1;")
    elif how == "redux":
        lines.append(f"redux.sync.add.s32 %r{target}, %r{source}, -1;")
    elif how == "ballot":
        lines.append(f".reg .pred %v{name}; .reg .b32 %w{name}; and.b32 %w{name}, %r{source}, {number};")
        lines.append(f"setp.ne.b32 %v{name}, %w{name}, 0; vote.sync.ballot.b32 %r{target}, %v{name}, -1;")
    else:
        lines.append(f".shared .align 4 .b8 s{name}[{4 * THREADS}]; .reg .b32 %s{name}, %t{name};")
        lines.append(f"mov.b32 %s{name}, s{name}; mad.lo.u32 %t{name}, %thread, 4, %s{name};")
        lines.append(
            f"st.shared.b32 [%t{name}], %r{source}; bar.sync 0; add.s32 %t{name}, %thread, {number};"
        )
        lines.append(f"rem.u32 %t{name}, %t{name}, {THREADS}; mad.lo.u32 %t{name}, %t{name}, 4, %s{name};")
        lines.append(f"ld.shared.b32 %r{target}, [%t{name}];")


def value(operand, lane):
    return lane[operand[1]] if operand[0] == "r" else operand[1] & WORD


def holds(condition, lane):
    comparison, register, bits, operand = condition
    return COMPARISONS[comparison](lane[register] & bits, value(operand, lane) & bits)


def interpret_one(block, lane):
    for kind, *rest in block:
        if kind in ("set", "guarded"):
            opcode, target, a, b, guard = rest
            if guard is None or holds(guard[0], lane) != guard[1]:
                lane[target] = OPERATIONS[opcode](value(a, lane), value(b, lane)) & WORD
        elif kind == "select":
            target, a, b, condition = rest
            lane[target] = value(a if holds(condition, lane) else b, lane)
        elif kind == "if":
            condition, then, other = rest
            interpret_one(then if holds(condition, lane) else other, lane)
        else:
            register, bits, body = rest
            for _ in range(lane[register] & bits):
                interpret_one(body, lane)


def interpret(program, lanes):
    for statement in program:
        if statement[0] != "meet":
            for lane in lanes:
                interpret_one([statement], lane)
            continue
        _, how, target, source, number = statement
        before = [lane[source] for lane in lanes]
        for t, lane in enumerate(lanes):
            warp = before[t // 32 * 32 : t // 32 * 32 + 32]
            if how == "bfly":
                lane[target] = warp[t % 32 ^ number]
            elif how == "redux":
                lane[target] = sum(warp) & WORD
            elif how == "ballot":
                lane[target] = sum(1 << k for k, word in enumerate(warp) if word & number)
            else:
                lane[target] = before[(t + number) % THREADS]


@pytest.mark.parametrize("seed", range(60))
def test_random_program(seed, run):
    writer = Writer(seed)
    program = [writer.statement(3) for _ in range(12)]
    lines = [f".reg .b32 %r<{REGISTERS}>;"]
    words = random.Random(seed + 1000)
    launches = 3
    inputs = [
        [words.getrandbits(32) if words.random() < 0.7 else t % 5 for t in range(THREADS)]
        for _ in range(launches)
    ]
    for k in range(0, REGISTERS, 2):
        lines.extend(
            [
                f"mov.b32 %r{k}, %thread;",
                f"cvt.u32.u64 %r{k + 1}, %in0; add.s32 %r{k + 1}, %r{k + 1}, {77 * (k + 1)};",
            ]
        )
    print_block(program, writer, lines)
    lines.append("cvt.u64.u32 %out0, %r0;")
    lines += [
        f"mul.lo.s64 %out0, %out0, 1000003; cvt.u64.u32 %at, %r{k}; add.s64 %out0, %out0, %at;"
        for k in range(1, REGISTERS)
    ]
    lines.append("mul.wide.u32 %at, %thread, 8;")
    expected = []
    for column in inputs:
        lanes = [
            [word + k * 77 & WORD if k % 2 else t for k in range(REGISTERS)] for t, word in enumerate(column)
        ]
        interpret(program, lanes)
        totals = []
        for lane in lanes:
            total = lane[0]
            for word in lane[1:]:
                total = total * 1000003 + word & (1 << 64) - 1
            totals.append(total)
        expected.append(totals)
    for schedule in (0, 1, 2):
        found = run(
            "\n".join(lines),
            [np.array(inputs, np.uint64)],
            threads=THREADS,
            launches=launches,
            schedule=schedule,
            lanes_at_once=200 if schedule == 1 else 100000,
        )[0]
        assert (found == np.array(expected, np.uint64)).all(), "\n".join(lines)
