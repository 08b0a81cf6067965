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
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name in tables.NAMES:
        (folder / f"{name}.d2.xz").write_bytes(tables.pack(library.table(name)))
        written.append(f"{name}.d2.xz")
    lines = ["top_byte,checksum"] + [
        f"{top:02x},{int(value):016x}" for top, value in enumerate(library.sigmoid_sums())
    ]
    (folder / "sigmoid_checksums.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
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


def run(shift: int, folder: Path) -> dict[str, Any]:
    """Run every operation on its inputs divided by ``2**shift`` and return the record of the run."""
    card = device.card()
    library = Library(card.arch)
    if not notices_a_wrong_coefficient(library):
        raise device.CardError(
            "a model with a wrong coefficient was not noticed: this comparison cannot fail"
        )
    rows = []
    for operation in OPERATIONS:
        start = time.perf_counter()
        report = library.run(operation, unit(), operation.inputs >> shift)
        rows.append(_row(operation, report, time.perf_counter() - start))
        row = rows[-1]
        print(
            f"{operation.clause} {operation.ptx:20} {report.tested:>13,} inputs {report.mismatches:,} differ",
            flush=True,
        )
        for a, b, got, want in row["first"]:
            print(f"    {a} {b} measured {got} expected {want}")
    mismatches = sum(row["mismatches"] for row in rows)
    record: dict[str, Any] = {
        "verdict": "fail" if mismatches else "pass",
        "inputs": sum(row["inputs"] for row in rows),
        "mismatches": mismatches,
        "rows": rows,
    }
    if mismatches:
        record["tables"] = write_tables(library, folder)
        print(f"this card computes something else; {folder} holds what: {', '.join(record['tables'])}")
    else:
        print("this card computes what spec.arithmetic models")
    return record


def main(arguments: list[str] | None = None) -> int:
    """Run the command; exit 0, 1 on a mismatch, 3 if it could not run."""
    parser = argparse.ArgumentParser(prog="ci/gpu calibrate", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--shift", type=int, default=0, metavar="N", help="a 2^-N part of every operation's inputs"
    )
    parser.add_argument(
        "--tables", type=Path, default=Path("measured"), help="folder for the tables of a card that differs"
    )
    options = parser.parse_args(arguments)
    if not 0 <= options.shift <= 30:
        parser.error(f"--shift must be 0..30, not {options.shift}")
    start = time.perf_counter()
    try:
        record = run(options.shift, options.tables)
    except (device.CardError, build.BuildError) as error:
        print(f"calibrate: {error}", file=sys.stderr)
        return 3
    record["seconds"] = round(time.perf_counter() - start, 1)
    print(f"evidence: {evidence.write('calibrate', record)}")
    return 1 if record["mismatches"] else 0


if __name__ == "__main__":
    sys.exit(main())
