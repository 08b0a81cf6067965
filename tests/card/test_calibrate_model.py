"""The model that the card is calibrated against is `spec.arithmetic`, compiled here for the host."""

from pathlib import Path

import numpy as np
import pytest

import spec
from oracle.card import build, calibrate, tables
from spec.constants import COEFFICIENTS_FILE

DATA = Path(__file__).resolve().parents[1] / "data" / COEFFICIENTS_FILE.removesuffix(".csv")
SPEC = {
    "ex2.approx.ftz.f32": lambda a, b: spec.ex2_approx_ftz(a),
    "ex2.approx.f32": lambda a, b: spec.ex2_approx(a),
    "rcp.approx.ftz.f32": lambda a, b: spec.rcp_approx(a),
    "sigmoid": lambda a, b: spec.sigmoid(a),
    "short sigmoid": lambda a, b: spec.sigmoid(a),
    "div.full.f32": spec.div_full,
    "add.rn.f32": spec.add_rn,
    "mul.rn.f32": spec.mul_rn,
}


@pytest.fixture(scope="module")
def library():
    return calibrate.Library(arch=None)


def boundary_bits() -> np.ndarray:
    """Both signs of every exponent with fractions at both ends, and of every segment's borders."""
    exponent = np.arange(256, dtype=np.uint32) << 23
    ends = np.array([0, 1, 2, 0x3FFFFF, 0x400000, 0x7FFFFE, 0x7FFFFF], np.uint32)
    segment = np.arange(128, dtype=np.uint32)[:, None] << 16
    borders = (segment + np.array([0, 1, 0xFFFF], np.uint32)).ravel()
    near = (0x3F800000 | borders[None]) + (np.arange(-3, 8, dtype=np.int64)[:, None] << 23)
    words = np.concatenate([(exponent[:, None] | ends).ravel(), near.astype(np.uint32).ravel()])
    return np.concatenate([words, words | np.uint32(0x80000000)])


@pytest.mark.parametrize("operation", calibrate.OPERATIONS, ids=lambda op: f"{op.clause}-{op.ptx}")
def test_model_equals_the_specification_on_operand_pairs(library, operation):
    a, b = library.operands(1 << 20, 1 << 20)
    want = SPEC[operation.ptx](a.view(np.float32), b.view(np.float32)).view(np.uint32)
    assert np.flatnonzero(library.model(operation.number, a, b) != want).size == 0


@pytest.mark.parametrize("operation", calibrate.OPERATIONS[:5], ids=lambda op: f"{op.clause}-{op.ptx}")
def test_model_equals_the_specification_at_all_borders(library, operation):
    a = boundary_bits()
    want = SPEC[operation.ptx](a.view(np.float32), None).view(np.uint32)
    assert np.flatnonzero(library.model(operation.number, a, a) != want).size == 0


def test_operand_pairs_reach_every_kind_of_result(library):
    a, b = library.operands(0, 1 << 18)
    quotient = spec.div_full(a.view(np.float32), b.view(np.float32))
    magnitude = np.abs(quotient)
    divisor = np.abs(b.view(np.float32))
    kinds = {
        "NaN": np.isnan(quotient),
        "infinite": np.isinf(quotient),
        "zero": quotient == 0,
        "subnormal": (magnitude > 0) & (magnitude < 2.0**-126),
        "divisor beyond 2^126": divisor > 2.0**126,
        "subnormal divisor": (divisor > 0) & (divisor < 2.0**-126),
    }
    assert {kind: int(where.sum()) for kind, where in kinds.items() if where.sum() < 1000} == {}


def test_a_wrong_coefficient_changes_results(library, monkeypatch):
    wrong = calibrate.unit()
    wrong.rcp[calibrate.SEGMENTS["rcp"] + 77] += 1
    monkeypatch.setattr(calibrate, "unit", lambda: wrong)
    a = np.arange(77 << 16, 78 << 16, dtype=np.uint32) | np.uint32(0x3F800000)
    assert (library.model(2, a, a) != spec.rcp_approx(a.view(np.float32)).view(np.uint32)).any()


@pytest.mark.parametrize("name", tables.NAMES)
def test_a_table_is_packed_as_the_measured_ones_are(library, name):
    table = tables.unpack((DATA / f"{name}.d2.xz").read_bytes())
    m = np.arange(1 << 23, dtype=np.uint32)
    fraction = (m / np.float64(1 << 23)).astype(np.float32)
    operation, x = {"rcp": (2, 1 + fraction), "ex2_pos": (0, fraction), "ex2_neg": (0, -fraction)}[name]
    bits = x.astype(np.float32).view(np.uint32)
    assert (table == library.model(operation, bits, bits)).all()
    assert (tables.unpack(tables.pack(table)) == table).all()


def test_a_table_that_is_no_curve_is_refused():
    with pytest.raises(ValueError, match="second differences"):
        tables.pack(np.array([0, 1000, 0, 1000], np.uint32))


def test_a_compiler_that_refuses_a_source_is_quoted(tmp_path, monkeypatch):
    (tmp_path / "broken.cu").write_text("this is no C++")
    monkeypatch.setattr(build, "FOLDER", tmp_path)
    with pytest.raises(build.BuildError, match="this is no C"):
        build.library("broken.cu", None)
