"""The special function unit's integers from tables that `oracle.card.calibrate` has measured on a card.

Per segment, least squares through its 2^16 or 2^17 results come within a hundredth of C0, C1 and C2, which
are integers. With these the formula of A5 and A6 must then give every measured result: one that it misses
says that the unit of that card is no such parabola.
"""

import argparse
import csv
import io
import lzma
import sys
from importlib import resources
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from oracle import exits
from oracle.card import tables
from oracle.files import write_whole
from spec import arithmetic
from spec.constants import COEFFICIENTS_FILE

I64 = npt.NDArray[np.int64]

SEGMENT_BITS: Final = {"rcp": 16, "ex2": 17}
"""Fraction bits below those that name the segment: k has so many."""

_MODELLED: Final = {"rcp": arithmetic._RCP_COEFFICIENTS, "ex2": arithmetic._EX2_COEFFICIENTS}
_ENTRIES: Final = 1 << 23
_CONSTANT: Final = 1 << 13
"""What C0 is multiplied by; the bias is the rest of the constant term."""


def results(folder: Path) -> dict[str, tuple[I64, ...]]:
    """Return what the formula's y must be for every fraction, by function, int64 ``[2^23]`` a table.

    -1 stands where a table has no interpolated result for a fraction: RCP of 1, and 2^-0.
    """
    rcp, positive, negative = (
        tables.unpack((folder / f"{name}.d2.xz").read_bytes()).astype(np.int64) for name in tables.NAMES
    )
    rcp -= 0x3F000000
    rcp[0] = -1
    # 2^-x for x = m / 2^23 lies in the octave below, at the fraction ~m; m = 0 gives 1.
    negative = negative[::-1] - 0x3F000000
    negative[-1] = -1
    return {"rcp": (rcp,), "ex2": (positive - 0x3F800000, negative)}


def fit(function: str, y: I64) -> tuple[I64, I64, I64]:
    """Return C0, C1 and C2 of every segment, int64 each, rounded from least squares through ``y``."""
    bits = SEGMENT_BITS[function]
    bias = int(_MODELLED[function][0][0]) % _CONSTANT
    k = np.arange(1 << bits)
    terms = np.stack([np.full(k.size, float(_CONSTANT)), k, arithmetic._SQUARES[k >> (bits - 15)]], axis=1)
    rows = y.reshape(-1, k.size)
    # The floor takes half of 2^15 on average. RCP of 1 is left out, and with it k = 0 of every segment.
    targets = (rows[:, 1:].T + 0.5) * 2.0**15 - bias
    found = np.rint(np.linalg.lstsq(terms[1:], targets, rcond=None)[0]).astype(np.int64)
    return found[0], found[1], found[2]


def missed(function: str, coefficients: tuple[I64, I64, I64], y: I64) -> int:
    """Return for how many fractions the formula with these integers gives something else than ``y``."""
    constant = coefficients[0] * _CONSTANT + int(_MODELLED[function][0][0]) % _CONSTANT
    fraction = np.arange(_ENTRIES, dtype=np.int32)
    made = arithmetic._interpolate((constant, *coefficients[1:]), fraction, SEGMENT_BITS[function])
    return int(((made != y) & (y >= 0)).sum())


def as_csv(found: dict[str, tuple[I64, I64, I64]]) -> str:
    """Return the text of a file of spec/data."""
    text = io.StringIO()
    lines = csv.writer(text)
    lines.writerow(("function", "segment", "c0", "c1", "c2"))
    for function, coefficients in found.items():
        for segment, integers in enumerate(zip(*coefficients, strict=True)):
            lines.writerow((function, segment, *integers))
    return text.getvalue()


def run(folder: Path, file: Path) -> int:
    """Fit the tables of ``folder`` and write ``file``; return the exit code."""
    try:
        measured = results(folder)
    except (OSError, ValueError, EOFError, lzma.LZMAError) as error:
        print(f"fit: {folder}: {error}", file=sys.stderr)
        return exits.BAD_ARGUMENTS
    found = {function: fit(function, each[0]) for function, each in measured.items()}
    for function, coefficients in found.items():
        wrong = sum(missed(function, coefficients, each) for each in measured[function])
        if wrong:
            print(f"{function}: no integers give {wrong:,} of the results: this card's formula is another")
            return exits.MISMATCH
        print(f"{function}: integers give every result")
    text = as_csv(found).encode()
    write_whole(file, text)
    modelled = (resources.files("spec") / "data" / COEFFICIENTS_FILE).read_bytes()
    print(f"{file}: {'the' if text == modelled else 'other than the'} integers of {COEFFICIENTS_FILE}")
    return exits.PASS


def main(arguments: list[str] | None = None) -> int:
    """Run the command; exit 0, 1 where no integers give what was measured, 2 where it cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m oracle.card.fit", description=__doc__.splitlines()[0])
    parser.add_argument("tables", type=Path, help="the folder that calibrate has written")
    parser.add_argument("file", type=Path, help="the file to write, such as spec/data/mufu_sm100.csv")
    options = parser.parse_args(arguments)
    return exits.ended("fit", lambda: run(options.tables, options.file))


if __name__ == "__main__":
    sys.exit(main())
