"""Which versions are run, and what is installed for each."""

import pytest

from oracle.errors import CannotRunError
from oracle.matrix import cells
from oracle.matrix.cells import Cell, parse
from spec.compilers import COMPILERS

RELEASES = {
    "nvidia-cutlass-dsl": ["4.4.2", "4.5.3", "4.6.0", "4.8.1", "4.9.0", "5.0.0"],
    "triton": ["3.5.0", "3.5.1", "3.6.0", "3.9.0"],
}


def test_a_run_has_the_supported_releases_the_oldest_twice_and_the_nearest_beside_them():
    found = cells.every(RELEASES.__getitem__)
    oldest = ("numpy==1.26", "safetensors==0.4.3")
    assert found == [
        Cell("cute", "4.5.3", required=False),
        Cell("cute", "4.6.0", (*oldest, "apache-tvm-ffi==0.1.15")),
        Cell("cute", "4.6.0"),
        Cell("cute", "4.8.1"),
        Cell("cute", "4.9.0", required=False),
        Cell("triton", "3.5.1", required=False),
        Cell("triton", "3.6.0", oldest),
        Cell("triton", "3.6.0"),
        Cell("triton", "3.9.0"),
    ]
    assert [cell.supported for cell in found] == [cell.required for cell in found]


def test_a_range_without_releases_is_told():
    with pytest.raises(CannotRunError, match=r"no release for nvidia-cutlass-dsl>=.*, only 3.0.0$"):
        cells.every(lambda name: ["3.0.0"])


def test_a_cell_has_the_projects_other_requirements_but_no_torch_and_no_other_compiler():
    assert Cell("triton", "3.9.0").requirements == ("triton==3.9.0", "numpy>=1.26", "safetensors>=0.4.3")
    pinned = Cell("cute", "4.8.1", ("numpy==2.0.1",))
    assert pinned.requirements == (
        "nvidia-cutlass-dsl==4.8.1", "numpy==2.0.1", "safetensors>=0.4.3", "apache-tvm-ffi>=0.1.15",
    )  # fmt: skip


@pytest.mark.parametrize("text", ["triton==3.9.0", "nvidia-cutlass-dsl==4.8.0.dev1,numpy==1.26,a-b==2"])
def test_a_cell_is_read_as_it_is_written(text):
    assert str(parse(text)) == text
    assert parse(text).required


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("triton", "must be NAME==VERSION"),
        ("triton>=3", "must be NAME==VERSION"),
        ("triton==3.9.0,numpy", "must be NAME==VERSION"),
        ("triton==", "must be NAME==VERSION"),
        ("triton==../..", "must be NAME==VERSION"),
        ("numpy==1.26", "must start with nvidia-cutlass-dsl or triton, not 'numpy'"),
    ],
)
def test_what_is_no_cell_is_told(text, words):
    with pytest.raises(ValueError, match=words):
        parse(text)


def test_releases_are_those_that_pip_finds_in_order_of_their_numbers(release):
    for version in ("3.10.0", "3.9.0", "3.9.10", "3.9.2"):
        release("triton", version)
    assert cells.released("triton") == ["3.9.0", "3.9.2", "3.9.10", "3.10.0"]


def test_that_pip_finds_none_is_told(release):
    release("triton", "3.9.0")
    with pytest.raises(CannotRunError, match="pip finds no releases of nvidia-cutlass-dsl: ERROR: No match"):
        cells.released(COMPILERS["cute"].distribution)
