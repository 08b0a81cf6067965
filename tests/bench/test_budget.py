"""The instruction budget holds for this tree's kernels, and a change of a count does not pass unseen."""

import json
import warnings

import pytest

from oracle.bench import budget
from oracle.bench.budget import ARCHITECTURES, COMPILERS, VARIANTS


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("backend", list(COMPILERS))
def test_the_kernels_have_as_many_instructions_as_budgeted(backend, arch):
    whole = budget.load()
    known = budget.budgeted(whole, backend, arch)
    if known is None:
        assert budget.version(backend) not in whole[backend], "a version has all architectures or none"
        warnings.warn(budget.no_budget(whole, backend, arch), stacklevel=1)
        return
    found = budget.differences(backend, arch, known, budget.counts(backend, arch))
    assert not found, "\n".join(map(str, found))


def test_the_file_names_every_backend_architecture_and_variant():
    whole = budget.load()
    assert list(whole) == list(COMPILERS)
    for versions in whole.values():
        assert versions
        for architectures in versions.values():
            assert list(architectures) == list(ARCHITECTURES)
            for counts in architectures.values():
                assert list(counts) == list(VARIANTS)
                assert all(100 < number < 10_000 for number in counts.values())


SASS = """
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @!P0 FADD R2, R2, R3 ;
        /*0020*/                   EXIT ;
.L_x_0:
        /*0030*/                   BRA `(.L_x_0);
        /*0040*/                   NOP;
        /*0050*/                   NOP;
"""


def test_nops_do_not_count():
    assert budget.instructions(SASS) == 4


def test_one_more_instruction_counts():
    line = "        /*0010*/              @!P0 FADD R2, R2, R3 ;\n"
    assert budget.instructions(SASS.replace(line, line * 2)) == 5


COUNTS = dict.fromkeys(VARIANTS, 400)


@pytest.mark.parametrize(
    ("count", "words"), [(403, "403 instructions, 3 more"), (399, "399 instructions, 1 fewer")]
)
def test_more_and_fewer_are_both_told_with_the_command_that_settles_it(count, words):
    (found,) = budget.differences("cute", "sm_90a", COUNTS, COUNTS | {"plain-raw": count})
    assert f"cute plain-raw for sm_90a: {words} than the budget of 400; if that is meant, run" in str(found)
    assert budget.UPDATE in str(found)


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A budget of this tree's compilers, all counts 400."""
    monkeypatch.setattr(budget, "version", lambda backend: "9.9")
    monkeypatch.setattr(budget, "missing_compiler", lambda backend: None)
    place = tmp_path / "budget.json"
    whole = {backend: {"9.9": {arch: COUNTS for arch in ARCHITECTURES}} for backend in COMPILERS}
    place.write_text(json.dumps(whole))
    return place


def steady(backend, arch, counted):
    return COUNTS


def grown(backend, arch, counted):
    return COUNTS | ({"metadata-raw": 401} if (backend, arch) == ("triton", "sm_100a") else {})


def test_the_command_passes_where_all_is_as_budgeted(file, capsys):
    assert budget.main([], steady, file) == 0
    assert "budget" not in capsys.readouterr().out


def test_the_command_fails_on_one_instruction_more_and_names_it(file, capsys):
    assert budget.main([], grown, file) == 1
    said = capsys.readouterr().out
    assert said.count("(budget 400)") == 1
    assert "metadata-raw 401 (budget 400)" in said


def test_writing_makes_the_counts_the_budget(file):
    assert budget.main(["--write"], grown, file) == 0
    assert json.loads(file.read_text())["triton"]["9.9"]["sm_100a"]["metadata-raw"] == 401
    assert budget.main([], grown, file) == 0
    assert budget.main([], steady, file) == 1


def test_another_compiler_version_is_reported_and_not_failed(file, monkeypatch, capsys):
    monkeypatch.setattr(budget, "version", lambda backend: "10.0")
    assert budget.main(["--backend", "cute"], grown, file) == 0
    said = capsys.readouterr().out
    assert "no budget for nvidia-cutlass-dsl 10.0 on sm_90a; there is one for: 9.9" in said


def test_a_second_version_of_the_same_code_is_kept_and_of_changed_code_dropped(file, monkeypatch):
    whole = budget.load(file)
    whole["cute"]["8.0"] = whole["cute"]["9.9"]
    same = {arch: COUNTS for arch in ARCHITECTURES}
    assert list(budget.updated(whole, "cute", same)["cute"]) == ["8.0", "9.9"]
    changed = same | {"sm_90a": COUNTS | {"plain-raw": 1}}
    assert list(budget.updated(whole, "cute", changed)["cute"]) == ["9.9"]
    monkeypatch.setattr(budget, "version", lambda backend: "9.8")
    assert list(budget.updated(whole, "cute", changed)["cute"]) == ["8.0", "9.8", "9.9"]


def test_a_missing_compiler_is_told(file, monkeypatch, capsys):
    monkeypatch.setattr(budget, "missing_compiler", lambda backend: "it is not installed")
    assert budget.main([], steady, file) == 3
    assert "cute: it is not installed" in capsys.readouterr().err
