"""Replay files: whole, without pickle, and a clear line on every kind of damage."""

import io
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from oracle import cases, cli, replay
from oracle.compare import expect
from oracle.files import write_whole
from oracle.outcome import Finding
from oracle.plan import Target
from oracle.problem import Batch, Ranges


def finding(backend="spec", device="cpu", family="nan", expected=None):
    ranges = None
    index = np.array([5])
    if cases.FAMILIES[family].kind == "permutation":
        ranges = Ranges(*(np.array([value], np.int32) for value in (37, 101, 7)))
    batch = cases.batch(cases.FAMILIES[family], 3, index, 3, True, ranges)
    return Finding(
        Target(backend, device), batch, expect(batch) if expected is None else expected, None, "race: x"
    )


@pytest.mark.parametrize("family", ["nan", "strided-rows", "permute-mixed"])
def test_a_saved_problem_loads_bit_for_bit(tmp_path, family):
    saved = finding(family=family)
    target, batch, expected = replay.load(replay.save(saved, tmp_path))
    assert target == saved.target
    assert (batch.family, batch.seed, batch.renormalize) == (family, 3, True)
    assert batch.index.tolist() == [5]
    for name in ("logits", "bias", "scale"):
        assert np.array_equal(
            getattr(batch, name).view(np.uint32), getattr(saved.batch, name).view(np.uint32)
        )
    assert np.array_equal(expected.weights.view(np.uint32), saved.expected.weights.view(np.uint32))
    assert (batch.ranges is None) == (saved.batch.ranges is None)


def test_the_name_of_a_file_says_the_problem(tmp_path):
    path = replay.save(finding(family="permute-mixed"), tmp_path / "new")
    assert path.name == "spec-cpu-permute-mixed-b3-tile7-experts37+101-renormalize-seed3.npz"
    assert [each.name for each in (tmp_path / "new").iterdir()] == [path.name]


def replayed(path, capsys):
    code = cli.main(["replay", str(path)])
    return code, capsys.readouterr()


def test_a_problem_that_is_right_now_matches_with_exit_0(tmp_path, capsys):
    code, printed = replayed(replay.save(finding(), tmp_path), capsys)
    assert code == 0
    assert printed.out.startswith(
        "MATCH spec on cpu: every bit is as expected now\n  problem: family nan, seed 3"
    )


def test_a_problem_that_is_still_wrong_prints_its_difference_with_exit_1(plant, tmp_path, capsys):
    plant(lambda batch, outputs: outputs.ids.__setitem__((0, 0, 0), -1))
    code, printed = replayed(replay.save(finding("faulty"), tmp_path), capsys)
    assert code == 1
    assert "MISMATCH faulty on cpu: R3\n  R3    ids[0][0]: expected 0x" in printed.out
    assert "actual 0xffffffff (-1)" in printed.out


def test_outputs_that_the_specification_no_longer_gives_are_said_to_be_old(tmp_path, capsys):
    saved = finding()
    saved.expected.ids[0, 0, 0] = 77
    code, printed = replayed(replay.save(saved, tmp_path), capsys)
    assert code == 1
    assert "note: the specification has changed since" in printed.out


def archive(**arrays) -> bytes:
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


def pickled() -> bytes:
    return archive(format=np.array([{"an": "object"}], dtype=object))


DAMAGE = {
    "cut-off": lambda whole: whole[: len(whole) // 2],
    "empty": lambda whole: b"",
    "text": lambda whole: b"not a replay file\n",
    "a-pickle": lambda whole: pickle.dumps({"format": 1}),
    "an-archive-with-a-pickle": lambda whole: pickled(),
    "a-plain-array": lambda whole: _plain(),
    "another-archive": lambda whole: archive(a=np.zeros(3)),
    "another-format": lambda whole: archive(format=np.int64(99), logits=np.zeros((1, 1, 256), np.uint32)),
    "a-flipped-byte": lambda whole: whole[:2000] + bytes([whole[2000] ^ 1]) + whole[2001:],
}


def _plain() -> bytes:
    content = io.BytesIO()
    np.save(content, np.zeros(3))
    return content.getvalue()


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_one_line_with_exit_2(tmp_path, capsys, damage):
    path = replay.save(finding(), tmp_path)
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    code, printed = replayed(path, capsys)
    assert code == 2
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert str(path) in printed.err


def test_a_missing_file_is_one_line_with_exit_2(tmp_path, capsys):
    code, printed = replayed(tmp_path / "none.npz", capsys)
    assert code == 2
    path = tmp_path / "none.npz"
    assert printed.err == f"python -m oracle replay: cannot read {path}: No such file or directory\n"


def test_a_file_of_an_unknown_backend_is_one_line_with_exit_2(tmp_path, capsys):
    code, printed = replayed(replay.save(finding("other"), tmp_path), capsys)
    assert code == 2
    assert "is for the unknown backend 'other'" in printed.err


def test_a_device_that_is_not_here_is_exit_3_with_the_reason(tmp_path, capsys):
    code, printed = replayed(replay.save(finding("spec", "cuda"), tmp_path), capsys)
    assert code == 3
    assert printed.err == "could not run: spec on cuda: backend spec does not run on cuda, only on cpu\n"


def test_a_write_that_is_interrupted_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(self, target):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_whole(tmp_path / "half", b"content")
    assert list(tmp_path.iterdir()) == []


def changed(path, **arrays):
    """Rewrite some arrays of a replay file."""
    with np.load(path) as file:
        content = {name: file[name] for name in file.files} | arrays
    np.savez(path, **content)
    return path


@pytest.mark.parametrize(
    ("name", "array", "words"),
    [
        ("ranges", [[37], [101], [0]], "tile_n must be an integer in 1..256, not 0"),
        ("ranges", [[300], [1], [7]], "300"),
        ("ranges", [[37], [0], [7]], "num_local_experts"),
        ("ranges", [[37], [101], [250]], "fewer than its tile needs"),
        ("row_stride", [257], "row_stride is 257"),
        ("row_stride", [0], "row_stride is 0"),
        ("row_stride", [1 << 62], "row_stride is 4611686018427387904"),
        ("row_stride", [-256], "row_stride is -256"),
        ("index", [1.5], "index is float64"),
    ],
)
def test_a_file_whose_values_are_no_call_is_refused_in_one_line(tmp_path, capsys, name, array, words):
    path = replay.save(finding(family="permute-mixed"), tmp_path)
    dtype = {"ranges": np.int32, "row_stride": np.int64, "index": np.float64}[name]
    code, printed = replayed(changed(path, **{name: np.array(array, dtype)}), capsys)
    assert (code, printed.out) == (2, "")
    assert words in printed.err
    assert printed.err.count("\n") == 1


def test_a_file_of_nine_rows_is_refused(tmp_path, capsys):
    path = replay.save(finding(), tmp_path)
    code, printed = replayed(changed(path, logits=np.zeros((1, 9, 256), np.uint32)), capsys)
    assert code == 2
    assert "logits have 9 rows, not 1..8" in printed.err


def test_a_folder_where_a_file_should_go_is_one_line(tmp_path, capsys):
    options = ["--backend", "spec", "--family", "known-selection", "--jobs", "1", "--json", str(tmp_path)]
    code = cli.main(["check", *options])
    assert code == 3
    assert f"cannot write {tmp_path}: Is a directory" in capsys.readouterr().err


def test_files_are_as_readable_as_the_umask_says(tmp_path):
    before = tmp_path / "plain"
    before.touch()
    write_whole(tmp_path / "whole", b"x")
    assert (tmp_path / "whole").stat().st_mode == before.stat().st_mode


def test_joined_batches_keep_where_ids_and_weights_start():
    batch = replace(finding().batch, shift=(0, 2))
    assert Batch.joined([batch, batch]).shift == (0, 2)
