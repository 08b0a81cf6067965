"""The special function unit's integers, found again in what a card has answered."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from oracle.card import fit, tables
from spec import arithmetic
from spec.constants import COEFFICIENTS_FILE

ROOT = Path(__file__).resolve().parents[2]
MEASURED = ROOT / "tests" / "data" / COEFFICIENTS_FILE.removesuffix(".csv")
MODEL = ROOT / "spec" / "data" / COEFFICIENTS_FILE


@pytest.fixture
def changed(tmp_path):
    """Copy the measured tables, one of them changed."""

    def made(name, change):
        for table in tables.NAMES:
            shutil.copy(MEASURED / f"{table}.d2.xz", tmp_path)
        path = tmp_path / f"{name}.d2.xz"
        table = tables.unpack(path.read_bytes())
        change(table)
        path.write_bytes(tables.pack(table))
        return tmp_path

    return made


def test_the_model_is_what_its_card_answered(tmp_path, capsys):
    assert fit.main([str(MEASURED), str(tmp_path / "found.csv")]) == 0
    assert (tmp_path / "found.csv").read_bytes() == MODEL.read_bytes()
    assert capsys.readouterr().out.endswith(f"found.csv: the integers of {COEFFICIENTS_FILE}\n")


def test_the_integers_of_another_unit_are_found(changed, tmp_path, capsys):
    segment, (c0, c1, c2) = 77, (column.copy() for column in arithmetic._RCP_COEFFICIENTS)
    c0[segment] += 3 * fit._CONSTANT
    c1[segment] -= 5
    c2[segment] += 1

    def another(table):
        fraction = np.arange(segment << 16, (segment + 1) << 16, dtype=np.int32)
        table[fraction] = arithmetic._interpolate((c0, c1, c2), fraction, 16) - (127 << 23)

    assert fit.main([str(changed("rcp", another)), str(tmp_path / "found.csv")]) == 0
    assert f"other than the integers of {COEFFICIENTS_FILE}" in capsys.readouterr().out
    found, old = ((path.read_text().splitlines()) for path in (tmp_path / "found.csv", MODEL))
    (line,) = [number for number, pair in enumerate(zip(found, old, strict=True)) if pair[0] != pair[1]]
    name, place, *before = old[line].split(",")
    after = [int(number) + change for number, change in zip(before, (3, -5, 1), strict=True)]
    assert (name, place) == ("rcp", str(segment))
    assert found[line] == ",".join([name, place, *map(str, after)])


@pytest.mark.parametrize(("name", "place"), [("rcp", 9 << 16 | 5), ("ex2_pos", 1 << 22), ("ex2_neg", 3)])
def test_a_result_that_no_integers_give_is_told(changed, tmp_path, capsys, name, place):
    def off(table):
        table[place] += 1

    assert fit.main([str(changed(name, off)), str(tmp_path / "found.csv")]) == 1
    assert f"{name[:3]}: no integers give 1 of the results" in capsys.readouterr().out
    assert not (tmp_path / "found.csv").exists()


def test_a_folder_without_tables_is_told(tmp_path, capsys):
    assert fit.main([str(tmp_path), str(tmp_path / "found.csv")]) == 2
    assert "rcp.d2.xz" in capsys.readouterr().err
    for name in tables.NAMES:
        (tmp_path / f"{name}.d2.xz").write_bytes(b"no table")
    assert fit.main([str(tmp_path), str(tmp_path / "found.csv")]) == 2
