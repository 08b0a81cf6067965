"""Recording: what `route` was given and what it wrote, and no effect on the call."""

import contextlib
import functools
import inspect
import logging
import os
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

import spec
from oracle.traffic import FORMAT, record
from oracle.traffic.record import FOLDER, MEBIBYTES, RATE, Settings, recorded
from spec.host import route

ROOT = Path(spec.__file__).parents[1]


def call(b=3, tile=0, offset=0, count=256, renormalize=True, seed=0, extra=0, function=route, wide=256):
    """Route random logits with some `route`, and return every tensor of the call."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {
        "logits": torch.randn(b, wide, generator=generator)[:, :256],
        "bias": torch.randn(256, generator=generator),
        "ids": torch.full((b, 8), -9, dtype=torch.int32),
        "weights": torch.full((b, 8), -9.0),
        "metadata": torch.full((spec.metadata_size(tile) + extra,), -9, dtype=torch.int32) if tile else None,
    }
    function(*list(tensors.values())[:4], 2.5, renormalize, tensors["metadata"], offset, count, tile)
    return tensors


def read(folder):
    """Return the arrays and the header of every file."""
    found = []
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "np") as file:
            found.append(({name: file.get_tensor(name) for name in file.keys()}, file.metadata()))  # noqa: SIM118
    return found


def recording(folder, **variables):
    made = recorded(route, "spec", {FOLDER: str(folder), **variables})
    recorder = next(
        cell.cell_contents for cell in made.__closure__ if isinstance(cell.cell_contents, record.Recorder)
    )
    return made, recorder


def test_a_file_holds_inputs_range_tile_and_outputs_of_every_call(tmp_path):
    made, recorder = recording(tmp_path)
    first = call(3, 8, 64, 32, False, seed=1, extra=5, function=made)
    second = call(3, 8, 10, 7, False, seed=2, wide=260, function=made)
    recorder.flush()
    ((arrays, about),) = read(tmp_path)
    assert about["format"] == FORMAT
    assert (about["backend"], about["device"]) == ("spec", "cpu")
    assert '"torch"' in about["versions"]
    for place, tensors in enumerate((first, second)):
        for name in ("logits", "bias", "ids", "weights"):
            assert np.array_equal(arrays[name][place], tensors[name].numpy()), name
        size = spec.metadata_size(8)
        assert np.array_equal(arrays["metadata"][place], tensors["metadata"].numpy()[:size])
        assert np.array_equal(arrays["metadata_before"][place], np.full(size, -9))
    assert arrays["scale"].tolist() == [2.5, 2.5]
    assert arrays["call"].tolist() == [0, 1]
    assert arrays["row_stride"].tolist() == [256, 260]
    assert arrays["local_expert_offset"].tolist() == [64, 10]
    assert arrays["num_local_experts"].tolist() == [32, 7]
    assert (arrays["tile_n"].tolist(), arrays["renormalize"].tolist()) == ([8], [False])


def test_calls_of_each_kind_have_a_file_of_their_own(tmp_path):
    made, recorder = recording(tmp_path)
    for kind in ({"b": 1}, {"b": 2}, {"tile": 4}, {"tile": 5}, {"renormalize": False}):
        call(function=made, **kind)
    recorder.flush()
    names = [path.stem.split("-b")[1] for path in sorted(tmp_path.iterdir())]
    assert names == ["1", "2", "3-tile4", "3-tile5", "3-raw"]
    assert [arrays["call"].tolist() for arrays, _ in read(tmp_path)] == [[0], [1], [2], [3], [4]]


def test_a_recorded_call_gives_what_an_unrecorded_one_gives(tmp_path):
    made, _ = recording(tmp_path)
    for one, other in zip(call(8, 7).values(), call(8, 7, function=made).values(), strict=True):
        assert torch.equal(one, other)


def test_a_call_outside_the_contract_says_what_it_always_says_and_is_not_recorded(tmp_path):
    made, recorder = recording(tmp_path)
    for wrong in (0, 257):
        with pytest.raises(ValueError) as without:  # noqa: PT011
            call(tile=4, count=wrong)
        with pytest.raises(ValueError) as within:  # noqa: PT011
            call(tile=4, count=wrong, function=made)
        assert str(within.value) == str(without.value)
    with pytest.raises(ValueError, match="logits must be a strided tensor"):
        made(None, None, None, None, 1.0)
    call(function=made)
    recorder.flush()
    assert [len(arrays["call"]) for arrays, _ in read(tmp_path)] == [1]


def test_every_argument_of_route_passes_through(tmp_path):
    made, recorder = recording(tmp_path)
    takes = [
        [(each.name, each.default) for each in inspect.signature(f, follow_wrapped=False).parameters.values()]
        for f in (made, route)
    ]
    assert takes[0] == takes[1]
    given = []
    recorder_of = recorded(lambda *arguments: given.append(arguments), "spec", {FOLDER: str(tmp_path)})
    recorder_of(*range(len(takes[1])))
    assert given == [tuple(range(len(takes[1])))]
    call(function=functools.partial(made, early_dependents=True))
    recorder.flush()
    assert [len(arrays["call"]) for arrays, _ in read(tmp_path)] == [1]


def test_the_rate_is_the_share_of_calls(tmp_path):
    made, recorder = recording(tmp_path, **{RATE: "0.25"})
    recorder._random.seed(1)
    for _ in range(400):
        call(1, function=made)
    recorder.flush()
    ((arrays, _),) = read(tmp_path)
    assert 70 < len(arrays["call"]) < 130
    assert len(set(np.diff(arrays["call"]))) > 3


def test_a_process_writes_no_more_than_the_size_and_says_once_that_it_ends(tmp_path, caplog):
    made, recorder = recording(tmp_path, **{MEBIBYTES: "1"})
    for seed in range(40):
        call(8, 64, seed=seed, function=made)
    recorder.flush()
    calls = sum(len(arrays["call"]) for arrays, _ in read(tmp_path))
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert 0.9 * 2**20 < size < 1.05 * 2**20
    assert 20 < calls < 40
    assert [each.message for each in caplog.records] == [
        f"recording ends: {MEBIBYTES} is reached in {tmp_path}"
    ]


def test_a_file_is_written_once_there_is_enough_for_one_or_enough_time_is_over(tmp_path, monkeypatch):
    made, _ = recording(tmp_path)
    call(function=made)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(record, "_FILE_SECONDS", 0.0)
    call(function=made)
    assert len(list(tmp_path.iterdir())) == 1
    monkeypatch.setattr(record, "_FILE_SECONDS", 1e9)
    monkeypatch.setattr(record, "_FILE_BYTES", 1 << 13)
    call(function=made)
    call(function=made)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_folder_that_goes_away_ends_the_recording_and_not_the_call(tmp_path, monkeypatch, caplog):
    made, _ = recording(tmp_path / "deep")
    monkeypatch.setattr(record, "_FILE_SECONDS", 0.0)

    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(record, "write_whole", full)
    for _ in range(3):
        tensors = call(function=made)
        assert (tensors["ids"] >= 0).all()
    assert [each.message for each in caplog.records] == [
        "recording ends: OSError: [Errno 28] No space left on device"
    ]
    assert caplog.records[0].levelno == logging.WARNING


def test_calls_inside_a_graph_capture_are_not_recorded_and_that_is_said_once(tmp_path, monkeypatch, caplog):
    made, recorder = recording(tmp_path)
    capturing = [True]
    cuda = types.SimpleNamespace(
        device=lambda device: contextlib.nullcontext(), is_current_stream_capturing=lambda: capturing[0]
    )
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    check = record.check_route
    monkeypatch.setattr(record, "check_route", lambda *each, device_type: check(*each, device_type="cpu"))
    recorder._device_type = "cuda"
    for _ in range(3):
        call(function=made)
    capturing[0] = False
    call(function=made)
    recorder.flush()
    assert [len(arrays["call"]) for arrays, _ in read(tmp_path)] == [1]
    assert [each.message for each in caplog.records] == [
        "calls inside a CUDA graph are not recorded, neither its capture nor its replays"
    ]


def test_a_forked_process_writes_its_own_calls_alone(tmp_path):
    made, recorder = recording(tmp_path)
    call(1, function=made)
    child = os.fork()
    if child == 0:
        call(2, function=made)
        recorder.flush()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    recorder.flush()
    assert sorted(arrays["logits"].shape for arrays, _ in read(tmp_path)) == [(1, 1, 256), (1, 2, 256)]


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({RATE: "0"}, f"{RATE} must be a number above 0 and up to 1, not '0'"),
        ({RATE: "1.5"}, f"{RATE} must be a number above 0 and up to 1, not '1.5'"),
        ({RATE: "nan"}, "not 'nan'"),
        ({RATE: "often"}, "not 'often'"),
        ({MEBIBYTES: "0"}, f"{MEBIBYTES} must be a positive integer, not '0'"),
        ({MEBIBYTES: "1G"}, "not '1G'"),
    ],
    ids=lambda value: "-".join(value.values()) if isinstance(value, dict) else "",
)
def test_a_variable_that_means_nothing_is_refused(variables, message):
    with pytest.raises(ValueError, match=message.replace("'", ".")):
        Settings.read({FOLDER: "x", **variables})


def door(code, tmp_path, **variables):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MUSESPARK_ROUTING_BACKEND": "spec", **variables}
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_the_variable_the_door_hands_out_the_hosts_own_function(tmp_path):
    code = """
import sys, musespark_routing, spec.host
assert musespark_routing.route is spec.host.route
assert not any(name.startswith("oracle") for name in sys.modules)
"""
    done = door(code, tmp_path)
    assert done.returncode == 0, done.stderr


def test_with_the_variable_the_door_records_until_the_process_ends(tmp_path):
    code = """
import torch, musespark_routing as door
ids, weights = torch.empty(2, 8, dtype=torch.int32), torch.empty(2, 8)
door.route(torch.zeros(2, 256), torch.zeros(256), ids, weights, 1.0)
"""
    done = door(code, tmp_path, **{FOLDER: "calls"})
    assert done.returncode == 0, done.stderr
    ((arrays, _),) = read(tmp_path / "calls")
    assert arrays["ids"].tolist() == [[list(range(8))] * 2]


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({FOLDER: "calls", RATE: "2"}, "calls cannot work here: MUSESPARK_ROUTING_RECORD_RATE must be"),
        ({FOLDER: "/proc/none/calls"}, "/proc/none/calls cannot work here: [Errno 2]"),
    ],
    ids=["a wrong rate", "a folder that cannot be made"],
)
def test_a_recording_that_cannot_work_is_an_import_error_that_says_why(tmp_path, variables, words):
    done = door("import musespark_routing", tmp_path, **variables)
    assert done.returncode == 1
    assert f"ImportError: MUSESPARK_ROUTING_RECORD={words}" in done.stderr.strip().splitlines()[-1]
