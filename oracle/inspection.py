"""Reads PTX and SASS text for the float, ordering and load/store facts that tests state.

Both texts become a `Listing`: instructions with their successors. What may happen before or after the wait
for earlier kernels is a question of paths through it, not of the order of lines.
"""

import heapq
import importlib.util
import re
import shutil
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

Origins = frozenset[int]
_Roots = dict[str, Origins]

_NOTHING: Final[Origins] = frozenset()
_LAUNCHES: Final = ("griddepcontrol.launch_dependents", "PREEXIT")
_MEMORY_OR_ORDER: Final = re.compile(
    r"(ld|st|atom|red|bar|barrier|griddepcontrol)\b|(LD|ST|RED|ATOM)[GSL]?\b|(BAR|ACQBULK)\b"
)
_TYPE_BYTES: Final = {"8": 1, "16": 2, "32": 4, "64": 8}
_PARAMETER_BASE: Final = {"sm_90a": 0x210}
_NEWER_PARAMETER_BASE: Final = 0x380


class Access(NamedTuple):
    """One instruction that touches global memory.

    Attributes
    ----------
    kind
        ``"load"`` or ``"store"``; an atomic is a store.
    text
        The instruction.
    origins
        Numbers of the kernel parameters that its address is computed from.
    before, after
        Whether a path reaches it without passing the wait, and whether one reaches it through the wait.
    """

    kind: str
    text: str
    origins: Origins
    before: bool
    after: bool


class Parameter(NamedTuple):
    """One kernel parameter: offset and size in bytes in the parameter block."""

    offset: int
    size: int


@dataclass
class Instruction:
    """One instruction: guard (``""`` if none), opcode with modifiers, operands, places of its successors."""

    guard: str
    opcode: str
    operands: list[str]
    text: str
    successors: list[int] = field(default_factory=list)


Listing = list[Instruction]


def ptx_parameters(ptx: str, entry: str) -> list[Parameter]:
    """Return the parameters of a kernel in order.

    Raises
    ------
    ValueError
        There is no such entry, or a parameter is no scalar.
    """
    found = re.search(rf"\.entry\s+{re.escape(entry)}\s*\(([^)]*)\)", ptx)
    if found is None:
        raise ValueError(f"the PTX has no entry {entry}")
    parameters: list[Parameter] = []
    end = 0
    for declaration in filter(str.strip, found[1].split(",")):
        scalar = re.search(r"\.param\s+\.[busf](8|16|32|64)\b(?!.*\[)", declaration, re.DOTALL)
        if scalar is None:
            raise ValueError(f"not a scalar parameter: {declaration.strip()}")
        size = _TYPE_BYTES[scalar[1]]
        offset = -(-end // size) * size
        parameters.append(Parameter(offset, size))
        end = offset + size
    return parameters


def ptx_listing(ptx: str, entry: str) -> Listing:
    """Return the instructions of one kernel's PTX.

    Raises
    ------
    ValueError
        There is no such entry, or a branch goes where no label is.
    """
    text = re.sub(r"//[^\n]*", "", ptx)
    start = re.search(rf"\.entry\s+{re.escape(entry)}\s*\(", text)
    if start is None:
        raise ValueError(f"the PTX has no entry {entry}")
    body = text[text.index("{", text.index(")", start.end())) :]
    listing: Listing = []
    labels: dict[str, int] = {}
    depth = 0
    for part in re.findall(r"[{}](?=\s|$)|[\w$]+:(?!:)|[^;:{}\n]+(?:\{[^}]*\}[^;{}]*)*;", body):
        piece = part.strip().rstrip(";")
        if piece in "{}":
            depth += 1 if piece == "{" else -1
            if depth == 0:
                break
        elif piece.endswith(":"):
            labels[piece[:-1]] = len(listing)
        elif not piece.startswith("."):
            listing.append(_instruction(piece))
    _connect(listing, labels, branches=("bra",), ends=("ret", "exit", "trap"))
    return listing


def sass_listing(sass: str) -> Listing:
    """Return the instructions of SASS text with one kernel, as `disassemble` gives it."""
    listing: Listing = []
    labels: dict[str, int] = {}
    for line in sass.splitlines():
        label = re.match(r"\s*(\.L_x_\d+):", line)
        if label:
            labels[label[1]] = len(listing)
        code = re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", line)
        if code:
            listing.append(_instruction(code[1].replace(".reuse", "")))
    _connect(listing, labels, branches=("BRA",), ends=("EXIT", "RET"))
    return listing


def disassembler() -> str | None:
    """Return the nvdisasm on the path, else the one in Triton's wheel; None if there is neither."""
    tool = shutil.which("nvdisasm")
    triton = importlib.util.find_spec("triton")
    if tool is None and triton is not None and triton.origin is not None:
        return shutil.which(str(Path(triton.origin).parent / "backends" / "nvidia" / "bin" / "nvdisasm"))
    return tool


def disassemble(cubin: bytes) -> str:
    """Return the SASS of a cubin, by `disassembler`.

    Raises
    ------
    RuntimeError
        There is none, or it fails.
    """
    tool = disassembler()
    if tool is None:
        raise RuntimeError("there is no nvdisasm, neither on the path nor in Triton's wheel")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run([tool, "-c", file.name], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"nvdisasm failed: {done.stderr.strip()}")
    return done.stdout


def contractible(listing: Listing) -> list[str]:
    """Return PTX float operations that a compiler may fuse, or has: add, sub, mul without .rn, any fma."""
    found = []
    for instruction in listing:
        name, *modifiers = instruction.opcode.split(".")
        floats = any(re.fullmatch(r"b?f(16|32|64)(x2)?", modifier) for modifier in modifiers)
        if floats and (name in ("fma", "mad") or (name in ("add", "sub", "mul") and "rn" not in modifiers)):
            found.append(instruction.text)
    return found


def fused(listing: Listing) -> list[str]:
    """Return the SASS instructions that fuse a float product with a sum."""
    return [i.text for i in listing if re.match(r"[FD]FMA", i.opcode)]


def launches_dependents(listing: Listing) -> bool:
    """Return whether PTX or SASS lets dependent kernels launch before this one ends."""
    return any(i.opcode in _LAUNCHES for i in listing)


def launches_dependents_first(listing: Listing) -> bool:
    """Return whether PTX or SASS does so once, in every thread, ahead of all memory, barriers and the wait.

    Parameters and special registers may have been read by then: that is where compilers put such reads.
    """
    places = [place for place, i in enumerate(listing) if i.opcode in _LAUNCHES]
    if len(places) != 1 or listing[places[0]].guard:
        return False
    for place, instruction in enumerate(listing):
        ahead = place < places[0]
        if ahead and (instruction.successors != [place + 1] or _touches(instruction.opcode)):
            return False
        if not ahead and any(successor <= places[0] for successor in instruction.successors):
            return False
    return True


def _touches(opcode: str) -> bool:
    return _MEMORY_OR_ORDER.match(opcode) is not None and not opcode.startswith("ld.param")


def ptx_accesses(listing: Listing, ptx: str, entry: str) -> list[Access]:
    """Return a PTX listing's accesses to global memory, with the parameters their addresses come from."""
    names = {f"{entry}_param_{number}": number for number in range(len(ptx_parameters(ptx, entry)))}
    roots = _flow(listing, lambda instruction, known: _ptx_roots(instruction, known, names))
    return _accesses(listing, roots, "griddepcontrol.wait", _ptx_kind, re.compile(r"%\w+|\b[a-z]\w*"))


def sass_accesses(listing: Listing, parameters: list[Parameter], arch: str) -> list[Access]:
    """Return a SASS listing's accesses to global memory; ``arch`` says where the parameter block begins."""
    base = _PARAMETER_BASE.get(arch, _NEWER_PARAMETER_BASE)
    owners = {
        base + parameter.offset + byte: number
        for number, parameter in enumerate(parameters)
        for byte in range(parameter.size)
    }
    roots = _flow(listing, lambda instruction, known: _sass_roots(instruction, known, owners))
    kinds = {"LDG": "load", "STG": "store", "RED": "store", "REDG": "store", "ATOMG": "store"}
    return _accesses(
        listing, roots, "ACQBULK", lambda opcode: kinds.get(opcode.split(".")[0]), re.compile(r"\bU?R\d+")
    )


def _instruction(text: str) -> Instruction:
    parts = text.split(None, 1)
    guard = ""
    if parts[0].startswith("@"):
        guard, parts = parts[0], parts[1].split(None, 1)
    operands = re.findall(r"(?:\{[^}]*\}|\[[^\]]*\]|[^,{\[])+", parts[1]) if len(parts) > 1 else []
    return Instruction(guard, parts[0], [operand.strip() for operand in operands], " ".join(text.split()))


def _connect(
    listing: Listing, labels: Mapping[str, int], branches: tuple[str, ...], ends: tuple[str, ...]
) -> None:
    for place, instruction in enumerate(listing):
        name = instruction.opcode.split(".")[0]
        always = not instruction.guard and len(instruction.operands) < 2
        if name in branches:
            label = instruction.operands[-1].strip("`()")
            if label not in labels:
                raise ValueError(f"a branch to no label: {instruction.text}")
            instruction.successors.append(labels[label])
        elif name.lower().startswith(("brx", "call", "jmp")):
            raise ValueError(f"a jump that this reader does not follow: {instruction.text}")
        if place + 1 < len(listing) and not (always and name in branches + ends):
            instruction.successors.append(place + 1)


def _reached(listing: Listing, wait: str) -> tuple[set[int], set[int]]:
    """Return the places that are reached without passing ``wait``, and those reached through it."""
    seen: tuple[set[int], set[int]] = (set(), set())
    queue = deque([(0, 0)])
    while queue:
        place, waited = queue.popleft()
        if place in seen[waited]:
            continue
        seen[waited].add(place)
        waited |= listing[place].opcode == wait
        queue.extend((successor, waited) for successor in listing[place].successors)
    return seen


def _flow(listing: Listing, step: Callable[[Instruction, _Roots], _Roots]) -> list[_Roots]:
    """Return what each register may come from ahead of each instruction; ``step`` says what one changes."""
    known: list[_Roots] = [{} for _ in listing]
    heap = list(range(len(listing)))  # the lowest first: code without loops takes one pass
    waiting = set(heap)
    while heap:
        place = heapq.heappop(heap)
        waiting.remove(place)
        instruction = listing[place]
        made = step(instruction, known[place])
        after = dict(known[place])
        for register, origins in made.items():
            after[register] = origins | (after.get(register, _NOTHING) if instruction.guard else _NOTHING)
        for successor in instruction.successors:
            merged = known[successor]
            changed = False
            for register, origins in after.items():
                if not origins <= merged.get(register, _NOTHING):
                    merged[register] = merged.get(register, _NOTHING) | origins
                    changed = True
            if changed and successor not in waiting:
                waiting.add(successor)
                heapq.heappush(heap, successor)
    return known


def _accesses(
    listing: Listing,
    roots: list[_Roots],
    wait: str,
    kind_of: Callable[[str], str | None],
    register: re.Pattern[str],
) -> list[Access]:
    before, after = _reached(listing, wait)
    found = []
    for place, instruction in enumerate(listing):
        kind = kind_of(instruction.opcode)
        if kind is not None:
            brackets = re.findall(r"\[([^\]]*)\]", " ".join(instruction.operands))
            address = brackets[-1]  # SASS puts a descriptor ahead of it
            origins = [roots[place].get(name, _NOTHING) for name in register.findall(address)]
            found.append(
                Access(kind, instruction.text, _NOTHING.union(*origins), place in before, place in after)
            )
    return found


def _ptx_kind(opcode: str) -> str | None:
    name, *modifiers = opcode.split(".")
    spaces = {"shared", "param", "local", "const", "shared::cta"}
    if name not in ("ld", "st", "atom", "red") or spaces & set(modifiers):
        return None
    return "load" if name == "ld" else "store"


def _ptx_roots(instruction: Instruction, known: _Roots, names: Mapping[str, int]) -> _Roots:
    name = instruction.opcode.split(".")[0]
    if not instruction.operands or name in ("st", "red", "bra", "bar"):
        return {}
    target, *sources = instruction.operands
    if instruction.opcode.startswith("ld.param"):
        origins = frozenset(n for parameter, n in names.items() if re.search(rf"\b{parameter}\b", sources[0]))
    elif name in ("ld", "atom"):
        origins = _NOTHING
    else:
        origins = _NOTHING.union(*(known.get(r, _NOTHING) for s in sources for r in re.findall(r"%?\w+", s)))
    return dict.fromkeys(re.findall(r"%\w+|\b[a-z]\w*", target), origins)


def _sass_roots(instruction: Instruction, known: _Roots, owners: Mapping[int, int]) -> _Roots:
    name = instruction.opcode.split(".")[0]
    operands = instruction.operands
    place = next((i for i, operand in enumerate(operands) if re.fullmatch(r"U?R\d+", operand)), None)
    if place is None or name in ("STG", "STS", "RED", "BRA"):
        return {}
    words = next((n for size, n in ((".128", 4), (".64", 2), (".WIDE", 2)) if size in instruction.opcode), 1)
    targets = list(_registers(operands[place], words))
    sources = " ".join(operands[place + 1 :])
    registers = re.findall(r"\bU?R\d+", sources)
    constant = re.search(r"c\[0x0\]\[(0x[0-9a-f]+)\]", sources)
    if name in ("LDC", "ULDC", "LDCU") and constant:
        start = int(constant[1], 16)
        owned = (owners.get(start + 4 * word) for word in range(words))
        return {target: _NOTHING if owner is None else frozenset({owner})
                for target, owner in zip(targets, owned, strict=True)}  # fmt: skip
    if name.startswith(("LD", "ATOM", "S2")):
        return dict.fromkeys(targets, _NOTHING)
    origins = _NOTHING.union(*(known.get(register, _NOTHING) for register in registers))
    if constant:
        owner = owners.get(int(constant[1], 16))
        origins |= _NOTHING if owner is None else frozenset({owner})
    return dict.fromkeys(targets, origins)


def _registers(first: str, words: int) -> Iterator[str]:
    letters, number = re.fullmatch(r"(U?R)(\d+)", first).groups()  # type: ignore[union-attr]
    return (f"{letters}{int(number) + word}" for word in range(words))
