import json
from pathlib import Path

import pytest

from oracle.errors import CannotRunError
from oracle.peers import manifest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "kernel.ptx").write_text(".version 9.0\n")
    made = manifest.entry(tmp_path, "1.2.3", "a compiler", ("kernel.ptx",))
    manifest.write(tmp_path, {"flashinfer": made})
    return tmp_path


def test_a_manifest_reads_back_as_it_was_written(folder: Path):
    read = manifest.verified(folder, "flashinfer")
    assert (read.version, read.made_by, list(read.files)) == ("1.2.3", "a compiler", ["kernel.ptx"])
    assert len(read.files["kernel.ptx"]) == 64


def test_any_user_may_read_the_manifest(folder: Path):
    assert (folder / manifest.NAME).stat().st_mode & 0o444 == 0o444


@pytest.mark.parametrize(
    ("content", "says"),
    [
        pytest.param(None, "cannot be read", id="a folder without a manifest says so"),
        pytest.param("{", "is not JSON", id="half a manifest says so"),
        pytest.param("[]", "is no manifest", id="a list is no manifest"),
        pytest.param('{"format": 1}', "is no manifest", id="a manifest without kernels is none"),
        pytest.param('{"format": 1, "peers": {"vllm": 3}}', "is no manifest", id="a number is no entry"),
        pytest.param('{"format": 2, "peers": {}}', "has format 2, not 1", id="a later format says so"),
        pytest.param('{"format": 1, "peers": {}}', "has no flashinfer", id="a kernel left out says so"),
    ],
)
def test_a_bad_manifest_is_one_clear_line(tmp_path: Path, content: str | None, says: str):
    if content is not None:
        (tmp_path / manifest.NAME).write_text(content)
    with pytest.raises(CannotRunError, match=says) as raised:
        manifest.verified(tmp_path, "flashinfer")
    assert "\n" not in str(raised.value)
    assert manifest.NAME in str(raised.value)


def test_a_file_with_other_content_is_refused(folder: Path):
    (folder / "kernel.ptx").write_text(".version 9.1\n")
    with pytest.raises(CannotRunError, match=r"kernel\.ptx is not the manifest's file"):
        manifest.verified(folder, "flashinfer")


def test_a_missing_file_is_refused(folder: Path):
    (folder / "kernel.ptx").unlink()
    with pytest.raises(CannotRunError, match=r"kernel\.ptx cannot be read"):
        manifest.verified(folder, "flashinfer")


def test_the_manifest_is_plain_json(folder: Path):
    text = json.loads((folder / manifest.NAME).read_text())
    assert text["format"] == 1
    assert set(text["peers"]["flashinfer"]) == {"version", "made_by", "files"}
