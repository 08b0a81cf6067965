"""A1-A8 on this card, on every input, against what `spec.arithmetic` models.

``ex2.approx.ftz`` (A5), ``ex2.approx`` (A3), ``rcp.approx.ftz`` (A6) and the composed sigmoid (A7), once as
A7 states it and once in the short form that kernels compute, run on all 2^32 inputs, ``div.full`` (A4) on
2^33 operand pairs, ``add.rn`` and ``mul.rn`` (A1, A2) on 2^30, half of them random bits and half aimed at the
borders. NaN results are compared like all others (A8). The whole takes seconds on an H200; most of it is the
compiler. A model with one wrong coefficient is run first and must be noticed.
"""

import argparse
import ctypes
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from oracle import evidence
from oracle.card import build, device, tables
from oracle.commands.base import ENDING, FILE, Parser, checked
from oracle.commands.examples import TOOLS
from oracle.commands.values import number
from oracle.exits import MISMATCH, PASS, ended
from oracle.files import write_whole
from oracle.report import Reporter
from spec import arithmetic

SEED: Final = 20261201
EXAMPLES: Final = 16
SEGMENTS: Final = {"ex2": 64, "rcp": 128}


class Unit(ctypes.Structure):
    """The special function unit's integers as arithmetic.h reads them."""

    _fields_ = [(name, ctypes.c_int64 * (3 * segments)) for name, segments in SEGMENTS.items()]


class Report(ctypes.Structure):
    """What one operation answered; see calibrate.cu."""

    _fields_ = [
        ("tested", ctypes.c_uint64),
        ("mismatches", ctypes.c_uint64),
        ("nans", ctypes.c_uint64),
        ("example", ctypes.c_uint32 * 4 * EXAMPLES),
    ]


@dataclass(frozen=True)
class Operation:
    """One operation: its PTX, its number in calibrate.cu, the clause that states it, its number of inputs."""

    ptx: str
    number: int
    clause: str
    inputs: int


OPERATIONS: Final = (
    Operation("ex2.approx.ftz.f32", 0, "A5", 1 << 32),
    Operation("ex2.approx.f32", 1, "A3", 1 << 32),
    Operation("rcp.approx.ftz.f32", 2, "A6", 1 << 32),
    Operation("sigmoid", 3, "A7", 1 << 32),
    Operation("short sigmoid", 4, "A7", 1 << 32),
    Operation("div.full.f32", 5, "A4", 1 << 33),
    Operation("add.rn.f32", 6, "A2", 1 << 30),
    Operation("mul.rn.f32", 7, "A1", 1 << 30),
)


def unit() -> Unit:
    """Return the integers of `spec.arithmetic` in the form that arithmetic.h reads."""
    made = Unit()
    for name, coefficients in (("ex2", arithmetic._EX2_COEFFICIENTS), ("rcp", arithmetic._RCP_COEFFICIENTS)):
        field = getattr(made, name)
        field[:] = np.concatenate(coefficients).tolist()
    return made


class Library:
    """calibrate.cu, compiled for ``arch``, or its model alone for this host (None)."""

    def __init__(self, arch: str | None) -> None:
        self._library = build.load("calibrate.cu", arch)
        if self._library.report_size() != ctypes.sizeof(Report):
            raise build.BuildError("calibrate.cu and calibrate.py disagree about the size of a report")

    def model(
        self, operation: int, a: npt.NDArray[np.uint32], b: npt.NDArray[np.uint32]
    ) -> npt.NDArray[np.uint32]:
        """Return the model's result bits for operand bits ``a`` and ``b``, uint32 ``[n]`` each."""
        out = np.empty_like(a)
        pointers = (ctypes.c_void_p(array.ctypes.data) for array in (a, b, out))
        self._library.model_bits(ctypes.byref(unit()), operation, *pointers, ctypes.c_int64(a.size))
        return out

    def operands(self, first: int, n: int) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
        """Return the bits of operand pairs ``first`` to ``first + n - 1`` of the seed."""
        a, b = np.empty(n, np.uint32), np.empty(n, np.uint32)
        pointers = (ctypes.c_void_p(array.ctypes.data) for array in (a, b))
        self._library.operand_bits(
            ctypes.c_uint64(SEED), ctypes.c_uint64(first), *pointers, ctypes.c_int64(n)
        )
        return a, b

    def run(self, operation: Operation, model: Unit, inputs: int) -> Report:
        """Compare the card with ``model`` on the first ``inputs`` inputs of ``operation``."""
        report = Report()
        error = self._library.calibrate(
            ctypes.byref(model),
            operation.number,
            ctypes.c_uint64(SEED),
            ctypes.c_uint64(inputs),
            ctypes.byref(report),
        )
        if error:
            raise device.CardError(f"{operation.ptx}: CUDA error {error}")
        return report

    def table(self, name: str) -> npt.NDArray[np.uint32]:
        """Return the card's 2^23 results of one of `tables.NAMES`."""
        operation, base = {"rcp": (2, 0x3F800000), "ex2_pos": (0, 0), "ex2_neg": (0, 0x80000000)}[name]
        out = np.empty(1 << 23, np.uint32)
        error = self._library.measured_table(
            operation, ctypes.c_uint32(base), ctypes.c_void_p(out.ctypes.data)
        )
        if error:
            raise device.CardError(f"table {name}: CUDA error {error}")
        return out

    def sigmoid_sums(self) -> npt.NDArray[np.uint64]:
        """Return the checksum of the card's sigmoid for each top byte of its input, uint64 ``[256]``."""
        out = np.empty(256, np.uint64)
        if error := self._library.sigmoid_sums(ctypes.c_void_p(out.ctypes.data)):
            raise device.CardError(f"sigmoid checksums: CUDA error {error}")
        return out


def notices_a_wrong_coefficient(library: Library) -> bool:
    """Whether a model with one coefficient off by one is caught: or no mismatch means nothing."""
    wrong = unit()
    wrong.rcp[SEGMENTS["rcp"] + 77] += 1
    return bool(library.run(OPERATIONS[2], wrong, 1 << 32).mismatches)


def write_tables(library: Library, folder: Path) -> list[str]:
    """Write what this card computes: three tables and the sigmoid's checksums. Return the file names."""
    written = []
    for name in tables.NAMES:
        write_whole(folder / f"{name}.d2.xz", tables.pack(library.table(name)))
        written.append(f"{name}.d2.xz")
    lines = ["top_byte,checksum"] + [
        f"{top:02x},{int(value):016x}" for top, value in enumerate(library.sigmoid_sums())
    ]
    write_whole(folder / "sigmoid_checksums.csv", ("\n".join(lines) + "\n").encode())
    return [*written, "sigmoid_checksums.csv"]


def _row(operation: Operation, report: Report, seconds: float) -> dict[str, Any]:
    shown = [
        [f"{word:08x}" for word in example] for example in report.example[: min(EXAMPLES, report.mismatches)]
    ]
    return {
        "operation": operation.ptx,
        "clause": operation.clause,
        "inputs": report.tested,
        "nan_results": report.nans,
        "mismatches": report.mismatches,
        "seconds": round(seconds, 3),
        "first": shown,
    }


def run(shift: int, folder: Path, reporter: Reporter) -> dict[str, Any]:
    """Run every operation on its inputs divided by ``2**shift`` and return the record of the run."""
    card = device.card()
    reporter.note(f"{card.name}, driver {card.driver}: compiling, which takes longer than all that follows")
    library = Library(card.arch)
    if not notices_a_wrong_coefficient(library):
        raise device.CardError(
            "a model with a wrong coefficient was not noticed: this comparison cannot fail"
        )
    rows = []
    with reporter.over(sum(operation.inputs >> shift for operation in OPERATIONS), "inputs"):
        for operation in OPERATIONS:
            start = time.perf_counter()
            report = library.run(operation, unit(), operation.inputs >> shift)
            rows.append(_row(operation, report, time.perf_counter() - start))
            row = rows[-1]
            found = f"{report.tested:>13,} inputs {report.mismatches:,} differ"
            reporter.say(f"{operation.clause} {operation.ptx:20} {found}")
            for a, b, got, want in row["first"]:
                reporter.say(f"    {a} {b} measured {got} expected {want}")
            reporter.advance(operation.inputs >> shift, report.tested)
    mismatches = sum(row["mismatches"] for row in rows)
    record: dict[str, Any] = {
        "verdict": "fail" if mismatches else "pass",
        "inputs": sum(row["inputs"] for row in rows),
        "mismatches": mismatches,
        "rows": rows,
    }
    if mismatches:
        record["tables"] = write_tables(library, folder)
        reporter.say(f"this card computes something else; {folder} holds what: {', '.join(record['tables'])}")
    else:
        reporter.say("this card computes what spec.arithmetic models")
    return record


def parser() -> Parser:
    """Return the parser of the command line."""
    made = Parser(
        prog="ci/gpu calibrate",
        description="A1-A8 on this card, on every input, against what `spec.arithmetic` models. Takes "
        "seconds on an H200, most of them the compiler's, and leaves a record in evidence/.",
        examples=TOOLS["oracle.card.calibrate"],
        ending=ENDING,
    )
    made.add_argument(
        "--shift",
        type=checked(number(0, 30)),
        default=0,
        metavar="N",
        help="a 2^-N part of every operation's inputs, N of 0..30; default 0",
    )
    made.take(
        "--tables",
        FILE,
        type=Path,
        default=Path("measured"),
        metavar="FOLDER",
        help="for the tables of a card that differs; default measured",
    )
    return made


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    return ended("calibrate", lambda: _run(parser().parse(words)))


def _run(options: argparse.Namespace) -> int:
    start = time.perf_counter()
    record = run(options.shift, options.tables, Reporter(unit="inputs"))
    record["seconds"] = round(time.perf_counter() - start, 1)
    print(f"evidence: {evidence.write('calibrate', record)}")
    return MISMATCH if record["mismatches"] else PASS


if __name__ == "__main__":
    sys.exit(main())
