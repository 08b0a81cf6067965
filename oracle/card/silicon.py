"""The simulator against silicon: one kernel on both, all results compared bit for bit."""

import random as plain_random
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from oracle import ptxsim
from oracle.card import device
from oracle.card.snippets import (
    SLOT,
    THREADS,
    Frame,
    Snippet,
    absent,
    build,
    register_kind,
    value_types,
)
from oracle.card.snippets_together import specials

HEADER: Final = ".version 8.8\n.target sm_90a\n.address_size 64\n"
LAUNCHES: Final = 6
"""Launches of a form's kernel: 6 * 256 operand sets."""

_ALIGNED: Final = 0xFF0
"""Moves a buffer of the simulator onto 32 bytes."""

U8 = npt.NDArray[np.uint8]


def table() -> dict[str, Any]:
    """Return the simulator's forms by name."""
    found: dict[str, Any] = sys.modules["oracle.ptxsim.forms"].TABLE
    return found


def form_snippets() -> dict[str, Snippet]:
    """Return a kernel for every form of the simulator that sm_90 has, and one for the special registers."""
    made = {}
    for number, name in enumerate(ptxsim.forms()):
        if absent(name) is None:
            form = table()[name]
            made[name] = build(name, form.signature, form.kind, f"form{number}")
    frame = Frame()
    specials(frame)
    made["special registers"] = frame.snippet("special_registers")
    return made


def group(name: str) -> str:
    """Return the opcode's first word, or two where that splits a large group."""
    parts = re.split(r"[. ]", name)
    return ".".join(parts[:2]) if parts[0] in ("ld", "st", "setp", "cvt", "atom", "red") else parts[0]


def simulate(snippet: Snippet, operands: U8, blob: U8, schedule: int = 0) -> U8:
    """Run the kernel in the simulator; return its results, uint8 ``[launches, results * THREADS * SLOT]``."""
    program = ptxsim.parse(HEADER + snippet.ptx, snippet.entry)
    launches = len(operands)
    results = np.zeros((launches, snippet.results * THREADS * SLOT), np.uint8)
    memory = ptxsim.Memory(launches=launches)
    source = memory.add("operands", operands, address_offset=_ALIGNED)
    target = memory.add("results", results, writable=True, address_offset=_ALIGNED)
    ptxsim.launch(program, memory, [source.address, target.address, blob], block=THREADS, schedule=schedule)
    return results


class OnCard:
    """Many kernels in one module on the card."""

    def __init__(self, snippets: Sequence[Snippet]) -> None:
        text = HEADER + "\n".join(snippet.ptx for snippet in snippets)
        device.current()
        self._module = device.call("cuModuleLoadData", text.encode())

    def run(self, snippet: Snippet, operands: U8, blob: U8) -> U8:
        """Run the kernel on the card; return its results as `simulate` does."""
        function = device.call("cuModuleGetFunction", self._module, snippet.entry.encode())
        source = device.Memory(operands)
        target = device.Memory(np.zeros((len(operands), snippet.results * THREADS * SLOT), np.uint8))
        pitch, step = operands.shape[1], snippet.results * THREADS * SLOT
        for launch in range(len(operands)):
            at = (source.address + launch * pitch, target.address + launch * step)
            params = [address.to_bytes(8, "little") for address in at]
            # Where no cluster is named, asynchronous stores and their like are illegal instructions.
            device.launch(function, [*params, blob[launch].tobytes()], threads=THREADS, cluster=1)
        results = target.read()
        source.free()
        target.free()
        return results


def blob_of(seed: int) -> U8:
    """Return the 32 bytes of parameter that each launch gets."""
    return np.random.default_rng(seed).integers(0, 256, (LAUNCHES, 32), np.uint8)


def differences(name: str, snippet: Snippet, operands: U8, simulated: U8, measured: U8) -> list[str]:
    """Return a line for each of the first results that differ: where, and the operands that led there."""
    shape = (len(operands), -1, THREADS, SLOT)
    ours, theirs, given = (array.reshape(shape) for array in (simulated, measured, operands))
    lines = []
    for launch, result, thread in np.argwhere((ours != theirs).any(-1))[:4]:
        words = ", ".join(f"{role}={given[launch, i, thread, :8].view(np.uint64)[0]:#x}"
                          for i, role in enumerate(snippet.roles))  # fmt: skip
        pair = [array[launch, result, thread].view(np.uint64) for array in (ours, theirs)]
        shown = ["/".join(f"{word:x}" for word in words_) for words_ in pair]
        lines.append(
            f"{name} result {result} thread {thread}: simulator {shown[0]} card {shown[1]} of {words}"
        )
    return lines


_POOL: Final = {"b32": 8, "b64": 5, "f32": 5, "b16": 3, "pred": 4}
_LENGTH: Final = 60


def program_forms() -> list[str]:
    """Return the forms that random programs are made of: plain values, no contraction, no special operands.

    PTX leaves the bits open of a NaN that `neg.f32` or `abs.f32` turns, and ptxas folds both into others. It
    takes integer `abs` and 16-bit `neg` not to overflow: what follows sees 32768 where the ISA has -32768.
    ptxas 13.0 gives the lowest number for a `cvt.sat` from unsigned to signed of what `cnot` made 1.
    """
    left_out = re.compile(
        r"pack|f64|bf16|lop3|cvta|mov\.|ld\.|^(add|sub|mul)\.f32$|^(div|rem)\.[us]|^(neg|abs)\.f32"
        r"|^abs\.s|^neg\.s16|^cvt\.sat\.s\d+\.u|^(add|sub)c|\.cc\."
    )
    return [
        name
        for name in ptxsim.forms()
        if table()[name].kind == "value" and absent(name) is None and not left_out.search(name)
    ]


def program(seed: int) -> Snippet:
    """Return a random straight-line program: it loads a pool of registers, works on it, and stores it."""
    random = plain_random.Random(seed)
    frame = Frame()
    roles = {"b32": ("b32", "shift"), "b64": ("b64",), "f32": ("f32",), "b16": ("b16",), "pred": ("pred",)}
    pool = {
        kind: [frame.operand(kind, random.choice(roles[kind])) for _ in range(n)] for kind, n in _POOL.items()
    }
    heads: dict[str, list[str]] = {}
    for name in program_forms():
        heads.setdefault(group(name), []).append(name)
    pick: Callable[[str], str] = lambda kind: random.choice(pool[kind])  # noqa: E731
    for _ in range(_LENGTH):
        name = random.choice(heads[random.choice(sorted(heads))])
        signature = table()[name].signature
        target, given = value_types(name, len(signature) - 1)
        sources = [pick(register_kind(kind)) for kind, _ in given]
        if re.match(r"(min|max|copysign)\.", name) and target == "f32":
            sources = random.sample(pool["f32"], 2)  # of one value ptxas makes the value, NaN bits and all
        if name.startswith("rcp."):
            del heads[group(name)]  # the reciprocal of a reciprocal is the value, says ptxas
        d = pick(register_kind(target))
        if signature[0] == "q" and random.random() < 0.3:
            other = random.choice([p for p in pool["pred"] if p != d])
            d = f"{d}|{other}"
        guard = f"@{random.choice(['', '!'])}{pick('pred')} " if random.random() < 0.15 else ""
        frame.add(f"{guard}{name} {', '.join([d, *sources])};")
    for kind, registers in pool.items():
        for register in registers:
            frame.result(register, kind)
            frame.next_result()
    return frame.snippet(f"program{seed}")
