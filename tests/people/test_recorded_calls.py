"""Replaying recorded calls, and files of anyone: every bit judged, nothing unpickled, one line on damage."""

import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import save_file

import spec
from oracle import cases, cli, replay
from oracle.compare import expect
from oracle.outcome import Finding
from oracle.plan import Target
from oracle.traffic.files import TrafficError
from oracle.traffic.reader import load
from oracle.traffic.record import FOLDER, Recorder, recorded
from spec.host import route

RNG = np.random.default_rng(5)


def record(folder, calls, backend="spec"):
    """Record random calls of every b, with and without metadata, in rows of 256 and of 260."""
    made = recorded(route, "spec", {FOLDER: str(folder)})
    recorder = next(
        each.cell_contents for each in made.__closure__ if isinstance(each.cell_contents, Recorder)
    )
    recorder._backend = backend
    for number in range(calls):
        b = number % 8 + 1
        logits = torch.from_numpy(RNG.standard_normal((b, 260), np.float32))
        logits = logits[:, :256] if number % 3 else logits[:, :256].contiguous()
        ids, weights = torch.empty(b, 8, dtype=torch.int32), torch.empty(b, 8)
        bias = torch.from_numpy(RNG.standard_normal(256, np.float32))
        tile = (0, 1, 7, 8, 64)[number % 5]
        metadata = torch.full((spec.metadata_size(tile),), number, dtype=torch.int32) if tile else None
        offset = 32 * (number % 3)
        made(logits, bias, ids, weights, 2.5, number % 4 > 1, metadata, offset, 64 + number % 100, tile)
    recorder.flush()


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("calls")
    record(folder, 120)
    return folder


@pytest.fixture
def folder(original, tmp_path):
    return Path(shutil.copytree(original, tmp_path / "calls"))


def run(capsys, *arguments):
    code = cli.main(["replay", *map(str, arguments), "--jobs", "1"])
    return code, capsys.readouterr()


def change(path, edit):
    """Change the arrays of a recorded file."""
    with safe_open(path, "np") as file:
        arrays, about = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
    edit(arrays)
    save_file(arrays, path, about)


def test_a_recorded_folder_passes_on_both_kernels_and_is_itself_judged(folder, capsys):
    code, printed = run(capsys, folder, "--backend", "cute,triton,spec")
    assert code == 0, printed.out
    lines = printed.out.splitlines()
    assert lines[0] == f"120 calls of {len(list(folder.iterdir()))} files, outputs of spec"
    assert [line.split()[:4] for line in lines[3:7]] == [
        ["spec", "record", "recorded", "120"],
        ["cute", "sim", "recorded", "120"],
        ["triton", "sim", "recorded", "120"],
        ["spec", "cpu", "recorded", "120"],
    ]
    assert len({line.split()[4] for line in lines[3:7]}) == 1
    assert lines[-1].startswith("PASS: spec on record, cute on sim, triton on sim, spec on cpu: all ")


FLIPS = {
    "R3-an-id": ("ids", (0, 0, 3), "R3", "ids[0][3]"),
    "R6-a-weight": ("weights", (0, 0, 7), "R5/R6", "weights[0][7]"),
    "M5-the-padded-size": ("metadata", (0, 0), "M5", "padded_tokens[0]"),
    "M2-a-cta's-expert": ("metadata", (0, 4), "M2", "cta_batch[0]"),
    "M3-a-cta's-limit": ("metadata", (0, 68), "M3", "cta_limit[0]"),
    "M6-a-route's-row": ("metadata", (0, 132), "M6", "expanded_to_permuted[0]"),
    "M7-a-row's-token": ("metadata", (0, 196), "M7", "permuted_to_token[0]"),
    "M8-an-unused-word": ("metadata", (0, 2), "M8", "unused[0]"),
    "M8-the-guard": ("metadata", (0, -1), "M8", "permuted_to_token["),
}


@pytest.mark.parametrize("flip", FLIPS)
def test_one_flipped_bit_is_found_with_clause_and_index(flip, folder, capsys):
    name, index, clause, place = FLIPS[flip]
    path = next(path for path in sorted(folder.iterdir()) if "tile7" in path.name and "raw" not in path.name)

    def edit(arrays):
        arrays[name].view(np.int32)[index] ^= 1

    change(path, edit)
    code, printed = run(capsys, folder, "--backend", "spec")
    assert code == 1
    lines = printed.out.splitlines()
    assert lines[0] == f"MISMATCH spec on record: {clause}"
    assert lines[1].startswith(f"  {clause:5} {place}")
    assert any(line.startswith("  call ") and line.endswith(f": in {path.name}") for line in lines)
    assert "  spec on cpu is right here" in lines
    assert lines[-1].startswith("FAIL: spec on record: 1 mismatches in 240 launches")
    again = next(line for line in lines if "again: " in line).split("python -m oracle replay ")[1].split()
    code, printed = run(capsys, *again, "--backend", "spec")
    assert code == 1
    assert "1 call of " in printed.out
    assert printed.out.splitlines()[:2] == lines[:2]


def test_what_a_backend_gets_wrong_is_saved_and_replays(folder, fault, capsys):
    fault(lambda batch, outputs: outputs.ids.__setitem__((0, 0, 0), 300))
    code, printed = run(capsys, folder, "--backend", "spec")
    assert code == 1
    assert "MISMATCH spec on cpu: R3" in printed.out
    assert "spec on record is right here" in printed.out
    saved = next(line for line in printed.out.splitlines() if "again: " in line).split()[-1]
    assert saved.startswith("replays/spec-cpu-recorded-")
    assert cli.main(["replay", saved]) == 1


def test_a_call_that_is_not_there_is_one_line_with_exit_2(folder, capsys):
    code, printed = run(capsys, folder, "--call", "120")
    assert (code, printed.out) == (2, "")
    assert printed.err == f"python -m oracle replay: {folder} has no call 120: they are 0..119\n"


def test_a_folder_of_saved_problems_runs_on_other_backends(tmp_path, capsys):
    for family in ("nan", "ties"):
        batch = cases.batch(cases.FAMILIES[family], 3, np.array([5]), 3, True)
        replay.save(
            Finding(Target("triton", "cuda"), batch, expect(batch), None, "race: x"), tmp_path / "saved"
        )
    code, printed = run(capsys, tmp_path / "saved", "--backend", "spec")
    assert code == 0
    assert printed.out.startswith("2 calls of 2 files, without outputs\n")


def arrays(rows=5):
    logits, bias = RNG.standard_normal((rows, 256), np.float32), RNG.standard_normal(256, np.float32)
    ids, weights = spec.route(logits, bias, 1.0)
    return {"logits": logits, "bias": bias, "ids": ids, "weights": weights}


def write(path, content):
    if path.suffix == ".npz":
        np.savez(path, **content)
    elif path.suffix == ".pt":
        torch.save({name: torch.from_numpy(np.asarray(value)) for name, value in content.items()}, path)
    else:
        save_file({name: np.asarray(value) for name, value in content.items()}, path)
    return path


KINDS = (".safetensors", ".npz", ".pt")


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_anyone_is_judged_with_what_it_leaves_out_assumed(kind, tmp_path, capsys):
    path = write(tmp_path / f"mine{kind}", arrays() | {"hidden": np.zeros(3, np.float32)})
    code, printed = run(capsys, path, "--backend", "spec")
    assert code == 0
    assert printed.out.startswith("1 call of 1 file, outputs of unknown; not looked at: hidden; assumed: ")
    assert "PASS: unknown on record, spec on cpu: all 5,120 output bits of 2 launches" in printed.out


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_weight_of_anyone_is_found(kind, tmp_path, capsys):
    content = arrays()
    content["weights"].view(np.uint32)[4, 2] += 1
    code, printed = run(capsys, write(tmp_path / f"mine{kind}", content), "--backend", "spec")
    assert code == 1
    assert "R5/R6 weights[4][2]: expected 0x" in printed.out


def test_rows_beyond_eight_are_calls_of_eight(tmp_path, capsys):
    code, printed = run(capsys, write(tmp_path / "rows.npz", arrays(21)), "--backend", "spec")
    assert code == 0
    assert printed.out.startswith("3 calls of 1 file")


def test_metadata_of_anyone_is_judged_where_something_must_be_written(tmp_path, capsys):
    content = arrays(4)
    metadata = np.full(spec.metadata_size(8) + 3, 77, np.int32)
    spec.write_metadata(metadata, content["ids"], 64, 64, 8)
    content |= {"tile_n": np.array(8), "local_expert_offset": np.array(64), "num_local_experts": np.array(64)}
    path = write(tmp_path / "meta.npz", content | {"metadata": metadata})
    assert run(capsys, path, "--backend", "spec")[0] == 0
    metadata[spec.META_EXPANDED_TO_PERMUTED + 9] += 1
    write(path, content | {"metadata": metadata})
    code, printed = run(capsys, path, "--backend", "spec")
    assert code == 1
    assert "M6    expanded_to_permuted[9]: expected 0x" in printed.out


def test_the_python_numbers_of_a_pt_file_are_read(tmp_path, capsys):
    content = {
        name: torch.from_numpy(value) for name, value in arrays(2).items() if name in ("logits", "bias")
    }
    torch.save(content | {"scale": 2.5, "renormalize": False, "tile_n": 16}, tmp_path / "numbers.pt")
    code, printed = run(capsys, tmp_path / "numbers.pt", "--backend", "spec")
    assert code == 0
    assert printed.out.startswith("1 call of 1 file, without outputs; assumed: ")


class Trap:
    """Touches a file when it is unpickled."""

    def __reduce__(self):
        return Path.touch, (Path("sprung"),)


def trap_pt(path):
    torch.save({"logits": Trap()}, path)


def trap_npz(path):
    np.savez(path, logits=np.array([Trap()], dtype=object), bias=np.zeros(256, np.float32))


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("trap.pt", trap_pt),
        ("trap.npz", trap_npz),
        ("plain.pt", lambda path: path.write_bytes(pickle.dumps({"logits": Trap()}))),
        ("plain.npz", lambda path: path.write_bytes(pickle.dumps({"logits": Trap()}))),
    ],
    ids=["pt", "npz", "a pickle named pt", "a pickle named npz"],
)
def test_nothing_is_ever_unpickled(name, make, tmp_path, capsys):
    make(tmp_path / name)
    code, printed = run(capsys, tmp_path / name)
    assert code == 2
    assert printed.err.count("\n") == 1
    assert name in printed.err
    assert not Path("sprung").exists()


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("damage", [cut, lambda path: path.write_bytes(b""), lambda path: path.unlink()],
                         ids=["cut off", "empty", "not there"])  # fmt: skip
def test_a_damaged_file_is_one_line_with_exit_2(kind, damage, tmp_path, capsys):
    path = write(tmp_path / f"damaged{kind}", arrays())
    damage(path)
    code, printed = run(capsys, path)
    assert (code, printed.out) == (2, "")
    assert printed.err.count("\n") == 1
    assert str(path) in printed.err


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_changed_anywhere_give_calls_or_one_line_that_names_the_file(kind, tmp_path):
    whole = write(tmp_path / f"whole{kind}", arrays()).read_bytes()
    path = tmp_path / f"changed{kind}"
    random = np.random.default_rng(1)
    refused = []
    for _ in range(80):
        changed = bytearray(whole)
        ends = random.integers(-600, 600, 3)  # where headers and directories are
        for place in [*random.integers(0, len(whole), 2), *ends]:
            changed[place] = random.integers(0, 256)
        path.write_bytes(changed)
        try:
            list(load(path))
        except TrafficError as error:
            refused.append(str(error))
    assert len(refused) > 20
    assert all(str(path) in line and "\n" not in line for line in refused)


NOT_CALLS = {
    "no logits": ({"logits": None}, "there is no array logits"),
    "no bias": ({"bias": None}, "there is no array bias"),
    "halves": ({"logits": np.zeros((2, 256), np.float16)}, "logits must be float32, as the kernel takes it"),
    "too few experts": ({"logits": np.zeros((2, 255), np.float32)}, "logits must have the shape [n, b, 256]"),
    "nine rows a call": ({"logits": np.zeros((1, 9, 256), np.float32)}, "1 <= b <= 8 rows a call, not 9"),
    "no rows": ({"logits": np.zeros((0, 256), np.float32)}, "logits hold no row"),
    "other ids": ({"ids": np.zeros((4, 8), np.int32)}, "ids must have the shape [5, 8], not [4, 8]"),
    "ids as floats": ({"ids": np.zeros((5, 8), np.float32)}, "ids must be int32, not float32"),
    "large ids": ({"ids": np.full((5, 8), 1 << 40)}, "ids must be int32, and holds larger numbers"),
    "a tile of 257": ({"tile_n": np.array(257)}, "tile_n must be an integer in 1..256, not 257"),
    "a range past the end": (
        {"tile_n": np.array(8), "local_expert_offset": np.array(200), "num_local_experts": np.array(57)},
        "must be at most 256, not 200 + 57",
    ),
    "metadata without a tile": ({"metadata": np.zeros(800, np.int32)}, "there is metadata but no tile_n"),
    "a short buffer": (
        {"tile_n": np.array(8), "metadata": np.zeros(100, np.int32)},
        "metadata must have 709 elements or more, not 100",
    ),
    "two scales": ({"scale": np.array([1.0, 2.0])}, "scale must be one for all or 1, not [2]"),
    "renormalize as a number": ({"renormalize": np.array(1)}, "renormalize must be one bool"),
    "an odd stride": ({"row_stride": np.array(257)}, "row_stride must be a multiple of 4 from 0 up"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", NOT_CALLS)
def test_arrays_that_are_no_calls_are_one_line_with_exit_2(wrong, tmp_path, capsys):
    changes, message = NOT_CALLS[wrong]
    content = {name: value for name, value in (arrays() | changes).items() if value is not None}
    path = write(tmp_path / "wrong.npz", content)
    code, printed = run(capsys, path)
    assert (code, printed.out) == (2, "")
    assert printed.err.startswith(f"python -m oracle replay: {path}: ")
    assert message in printed.err
    assert printed.err.count("\n") == 1


def test_numbers_that_torch_alone_has_are_one_line_with_exit_2(tmp_path, capsys):
    content = {"logits": torch.zeros(2, 256, dtype=torch.bfloat16), "bias": torch.zeros(256)}
    torch.save(content, tmp_path / "half.pt")
    code, printed = run(capsys, tmp_path / "half.pt")
    assert code == 2
    assert "logits has the type bfloat16" in printed.err


def test_a_folder_without_calls_is_one_line_with_exit_2(tmp_path, capsys):
    (tmp_path / "none").mkdir()
    code, printed = run(capsys, tmp_path / "none")
    assert code == 2
    assert (
        printed.err == f"python -m oracle replay: {tmp_path}/none holds no .safetensors, .npz or .pt file\n"
    )


def test_a_backend_that_cannot_run_here_is_exit_3_with_the_reason(folder, capsys):
    code, printed = run(capsys, folder, "--backend", "spec", "--device", "sim")
    assert code == 3
    assert printed.err == "could not run: spec on sim: backend spec does not run on sim, only on cpu\n"
