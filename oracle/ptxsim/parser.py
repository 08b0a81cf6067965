"""Reads PTX text: one entry becomes a `Kernel`. Of debug directives only ``.loc`` counts."""

import re
from dataclasses import replace

from oracle.ptxsim.declarations import launch_bounds, parse_params, parse_variable
from oracle.ptxsim.errors import PtxError
from oracle.ptxsim.lexer import Statement, statements
from oracle.ptxsim.operands import WIDTHS, parse_immediate, split_offset, split_operands
from oracle.ptxsim.syntax import (
    Address,
    Bounds,
    Guard,
    Immediate,
    Instruction,
    Kernel,
    Negated,
    Operand,
    Pair,
    Param,
    Register,
    Sink,
    Special,
    Symbol,
    Variable,
    Vector,
)

_ENTRY = re.compile(r"(?:\.(?:visible|weak)\s+)*\.entry\s+([\w$]+)\s*(?:\((.*)\))?(.*)", re.DOTALL)
_GUARD = re.compile(r"@(!?)\s*([\w$%]+)\s+")
_OPCODE = re.compile(r"[a-z][a-z0-9_]*(?:\.[A-Za-z0-9_:]+)*")
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+(?:"([^"]*)"\s+)?"([^"]*)"', re.MULTILINE)
_LOCATION = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+\d+(?:.*\binlined_at\s+(\d+)\s+(\d+)\s+\d+)?")
_NUMBERED = re.compile(r"(.*?)(\d+)$")
_SPECIALS = frozenset(
    [f"%{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"]
    + [
        f"%{name}.{axis}"
        for name in ("cluster_ctaid", "cluster_nctaid", "clusterid", "nclusterid")
        for axis in "xyz"
    ]
    + ["%cluster_ctarank", "%cluster_nctarank", "%is_explicit_cluster"]
    + ["%laneid", "%warpid", "%nwarpid"]
    + [f"%lanemask_{which}" for which in ("eq", "le", "lt", "ge", "gt")]
)


CARRY = "the carry"
"""The name of the register that add.cc and its like write and addc and its like read; PTX has none for it."""


class _Scope:
    """The names of one ``{ }``: registers by name, register ranges by prefix, variables, labels.

    ``start`` is the first instruction.
    """

    def __init__(self, start: int = 0) -> None:
        self.registers: dict[str, Register] = {}
        self.ranges: dict[str, tuple[int, str]] = {}
        self.symbols: dict[str, str] = {}
        self.labels: dict[str, int] = {}
        self.start = start


class _Body:
    """Collects the instructions, registers and labels of one entry's body."""

    def __init__(self, variables: list[Variable], params: tuple[Param, ...], files: dict[str, str]) -> None:
        self.scopes = [_Scope()]
        self.registers: list[Register] = []
        self.instructions: list[Instruction] = []
        self.labels: dict[str, int] = {}
        self.variables = list(variables)
        self.files = files
        self.source = ""
        self.scopes[0].symbols.update({v.name: v.name for v in variables} | {p.name: p.name for p in params})

    def register(self, name: str) -> Register | None:
        """Return the register that ``name`` means here: the innermost scope's."""
        for scope in reversed(self.scopes):
            if name in scope.registers:
                return scope.registers[name]
            numbered = _NUMBERED.match(name)
            # PTX registers are %r0..%r<n-1>; a leading zero would name the same number twice.
            if numbered and numbered[1] in scope.ranges and str(int(numbered[2])) == numbered[2]:
                count, kind = scope.ranges[numbered[1]]
                if int(numbered[2]) < count:
                    return self._declare(scope, name, kind)
        return None

    def _declare(self, scope: _Scope, name: str, kind: str) -> Register:
        register = Register(len(self.registers), name, kind)
        self.registers.append(register)
        scope.registers[name] = register
        return register

    def symbol(self, name: str) -> str:
        """Return the unique name of a variable in scope; any other name may be a label still ahead."""
        for scope in reversed(self.scopes):
            if name in scope.symbols:
                return scope.symbols[name]
        return name

    def declare_registers(self, statement: Statement) -> None:
        """``.reg .b32 %r<100>, a;``."""
        match = re.match(r"\.reg\s+\.(\w+)\s+(.*)$", statement.text)
        if not match or match[1] not in WIDTHS.keys() | {"pred"}:
            raise PtxError("an unknown register declaration", statement.line, statement.text)
        for item in match[2].split(","):
            name = item.strip()
            if many := re.match(r"(.*)<(\d+)>$", name):
                self.scopes[-1].ranges[many[1]] = (int(many[2]), match[1])
            else:
                self._declare(self.scopes[-1], name, match[1])

    def declare_variable(self, statement: Statement) -> None:
        """Declare a variable inside the body; shadowed names are made unique."""
        variable = parse_variable(statement)
        unique = variable.name
        if any(v.name == unique for v in self.variables):
            unique = f"{variable.name}@{statement.line}"
        self.scopes[-1].symbols[variable.name] = unique
        self.variables.append(
            Variable(variable.space, unique, variable.size, variable.align, variable.extern, variable.data)
        )

    def label(self, statement: Statement) -> None:
        """Record a label of the innermost scope."""
        name = statement.text.rstrip(":").strip()
        if name in self.scopes[-1].labels:
            raise PtxError("a label is defined twice", statement.line, statement.text)
        self.scopes[-1].labels[name] = len(self.instructions)

    def open(self) -> None:
        """Enter a scope."""
        self.scopes.append(_Scope(len(self.instructions)))

    def close(self) -> None:
        """Leave a scope: its labels hide their namesakes outside and are unknown there."""
        scope = self.scopes.pop()
        for name, index in scope.labels.items():
            unique = f"{name}@{len(self.labels)}" if self.scopes else name
            self.labels[unique] = index
            for k in range(scope.start, len(self.instructions)) if self.scopes else ():
                found = self.instructions[k]
                if found.opcode.startswith("bra") and found.operands == (Symbol(name),):
                    self.instructions[k] = replace(found, operands=(Symbol(unique),))

    def locate(self, statement: Statement) -> None:
        """``.loc``: where the following instructions come from, and if inlined, where that was called."""
        if match := _LOCATION.match(statement.text):
            places = [
                f"{self.files.get(file, file)}:{line}"
                for file, line in (match.groups()[:2], match.groups()[2:])
                if line not in (None, "0")
            ]
            self.source = ", called at ".join(places)

    def instruction(self, statement: Statement) -> None:
        """Parse and append one instruction."""
        text = statement.text
        guard = None
        if match := _GUARD.match(text):
            register = self.register(match[2])
            if register is None or register.type != "pred":
                raise PtxError(f"the guard {match[2]} is no predicate register", statement.line, text)
            guard = Guard(register, bool(match[1]))
            text = text[match.end() :]
        match = _OPCODE.match(text)
        if not match:
            raise PtxError("not an instruction", statement.line, statement.text)
        rest = text[match.end() :].strip()
        operands = tuple(self.operand(piece, statement) for piece in split_operands(rest)) if rest else ()
        operands += self._carries(match.group())
        self.instructions.append(
            Instruction(statement.line, statement.text, guard, match.group(), operands, self.source)
        )

    def _carries(self, opcode: str) -> tuple[Register, ...]:
        """Return what an instruction reads and writes beside its operands: the condition code's carry."""
        head, *modifiers = opcode.split(".")
        count = (head in ("addc", "subc")) + (head in ("add", "sub", "addc", "subc") and "cc" in modifiers)
        if count == 0:
            return ()
        outermost = self.scopes[0]
        carry = outermost.registers.get(CARRY) or self._declare(outermost, CARRY, "pred")
        return (carry,) * count

    def operand(self, text: str, statement: Statement) -> Operand:
        """Parse one operand."""
        if text.startswith("["):
            return self._address(text[1:].removesuffix("]").strip(), statement)
        if text.startswith("{"):
            items = tuple(
                self.operand(piece, statement) for piece in split_operands(text[1:].removesuffix("}"))
            )
            return items[0] if len(items) == 1 else Vector(items)
        if "|" in text:
            first, second = (self.operand(piece.strip(), statement) for piece in text.split("|", 1))
            if not isinstance(first, Register | Sink) or not isinstance(second, Register | Sink):
                raise PtxError(f"{text} is no pair of registers", statement.line, statement.text)
            return Pair(first, second)
        if text.startswith("!"):
            register = self.register(text[1:].strip())
            if register is None:
                raise PtxError(f"unknown register {text}", statement.line, statement.text)
            return Negated(register)
        if text == "_":
            return Sink()
        if (immediate := parse_immediate(text)) is not None:
            return immediate
        if (register := self.register(text)) is not None:
            return register
        if text in _SPECIALS:
            return Special(text)
        if text.startswith("%"):
            raise PtxError(f"unknown register {text}", statement.line, statement.text)
        name, offset = split_offset(text)
        return Symbol(self.symbol(name), offset)

    def _address(self, text: str, statement: Statement) -> Address:
        name, offset = split_offset(text)
        base = self.operand(name, statement)
        if not isinstance(base, Register | Symbol | Immediate):
            raise PtxError(f"[{text}] is no address", statement.line, statement.text)
        return Address(base, offset)


def parse_kernel(text: str, entry: str) -> Kernel:
    """Parse one entry of a PTX module.

    Parameters
    ----------
    text
        A whole PTX module.
    entry
        The kernel's name; an empty string takes the only entry.

    Raises
    ------
    PtxError
        The text cannot be read, or has no such entry.
    """
    variables: list[Variable] = []
    # The files are named at the end of the text.
    files = {
        number: "/".join(f"{folder}/{path}".strip("/").split("/")[-2:])
        for number, folder, path in _FILE.findall(text)
    }
    target, body, depth, found = "", None, 0, []
    kernel: tuple[str, tuple[Param, ...], _Body, Bounds] | None = None
    for statement in statements(text):
        if depth == 0:
            if statement.kind == "directive":
                words = statement.text.split()
                if words[0] == ".target":
                    target = words[1].rstrip(",")
            elif statement.kind == "header":
                match = _ENTRY.match(statement.text)
                if match:
                    found.append(match[1])
                    if entry in ("", match[1]) and kernel is None:
                        bounds = launch_bounds(match[3], statement)
                        params = parse_params(match[2] or "", statement.line)
                        body = _Body(variables, params, files)
                        kernel = match[1], params, body, bounds
            elif statement.kind == "code" and not statement.text.startswith(".pragma"):
                variables.append(parse_variable(statement))
        if statement.kind == "open":
            depth += 1
        elif statement.kind == "close":
            depth -= 1
            if depth == 0 and body is not None:
                body.close()
                body = None
        if body is not None:
            _body_statement(body, statement, depth)
    if kernel is None:
        raise PtxError(f"no entry {entry!r} among {found}")
    name, params, parsed, bounds = kernel
    return Kernel(
        name,
        params,
        tuple(parsed.registers),
        tuple(parsed.variables),
        tuple(parsed.instructions),
        parsed.labels,
        target,
        bounds,
    )


def _body_statement(body: _Body, statement: Statement, depth: int) -> None:
    if statement.kind == "open" and depth > 1:
        body.open()
    elif statement.kind == "close":
        body.close()
    elif statement.kind == "directive":
        body.locate(statement)
    elif statement.kind == "label":
        body.label(statement)
    elif statement.kind == "code":
        if statement.text.startswith(".reg"):
            body.declare_registers(statement)
        elif statement.text.startswith((".shared", ".local")):
            body.declare_variable(statement)
        elif not statement.text.startswith(".pragma"):
            body.instruction(statement)
