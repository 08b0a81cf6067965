"""The sweep without a card: its expectation against the specification, its loop with computed launches."""

import ctypes

import numpy as np
import pytest

import spec
from oracle.artifacts import Compiled
from oracle.card import build, engine, parameters, points, sweep
from oracle.problem import POISON_WORD

FAKE = 0x1000


@pytest.fixture(scope="module")
def library():
    return build.load("sweep.cu", None)


def expected_by_sweep(library, ids, ranges, pitch):
    n, tokens, _ = ids.shape
    out = np.empty((n, pitch), np.int32)
    arrays = [np.ascontiguousarray(array, np.int32) for array in (ids, ranges)]
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (*arrays, out)]
    library.expected_metadata(pointers[0], pointers[1], tokens, n, pitch, pointers[2])
    return out


def expected_by_spec(ids, ranges, pitch):
    out = np.full((len(ids), pitch), POISON_WORD, np.int32)
    spec.write_metadata_bulk(out, ids, *np.ascontiguousarray(ranges.T, np.int32))
    return out


def random_ids(random, n, tokens, pool):
    """Ids without repetition in a token, from the first ``pool`` experts behind a random start."""
    order = random.random((n, tokens, pool)).argsort(axis=-1)[..., : spec.TOP_K]
    return ((order + random.integers(0, spec.NUM_EXPERTS - pool + 1, (n, 1, 1))) % spec.NUM_EXPERTS).astype(
        np.int32
    )


@pytest.mark.parametrize("tokens", range(1, 9))
def test_M1_M8_expected_words_equal_the_specification_over_random_ranges_and_tiles(library, tokens):  # noqa: N802
    random = np.random.default_rng(tokens)
    for pool in (8, 12, 40, 256):
        ids = random_ids(random, 200, tokens, pool)
        offset = random.integers(0, 256, 200)
        count = 1 + random.integers(0, 256 - offset)
        ranges = np.stack([offset, count, random.integers(1, 257, 200)], 1)
        pitch = spec.metadata_size(256) + 3
        assert (expected_by_sweep(library, ids, ranges, pitch) == expected_by_spec(ids, ranges, pitch)).all()


def test_M1_M8_expected_words_equal_the_specification_over_all_ranges_of_a_problem(library):  # noqa: N802
    random = np.random.default_rng(9)
    table = points.ranges()
    for tile in (1, 3):
        ids = np.broadcast_to(random_ids(random, 1, 3, 20), (len(table), 3, 8))
        ranges = np.column_stack([table, np.full(len(table), tile)])
        pitch = spec.metadata_size(tile) + 3
        assert (expected_by_sweep(library, ids, ranges, pitch) == expected_by_spec(ids, ranges, pitch)).all()


def test_the_points_are_all_of_the_contract_once():
    table = points.ranges()
    assert table.shape == (points.RANGES, 2) == (32896, 2)
    assert len(np.unique(table, axis=0)) == len(table)
    assert (table >= [0, 1]).all()
    assert (table.sum(1) <= spec.NUM_EXPERTS).all()
    numbers = [unit.number for unit in points.units()]
    assert numbers == list(range(0, points.POINTS, points.RANGES))


def test_the_compiled_loop_takes_the_problem_that_mix_names(library):
    library.problem_number.restype = ctypes.c_uint32
    for point in (0, 1, 32895, 32896, points.POINTS - 1):
        assert library.problem_number(ctypes.c_uint64(point)) == points.mix(point) % points.PROBLEMS


def test_problems_share_and_repeat_experts_and_have_ties():
    ids, _ = points.answers(4)
    distinct = np.array([len(np.unique(problem)) for problem in ids])
    assert (distinct == spec.TOP_K).sum() > 100
    assert (distinct > 24).sum() > 100
    made = points.problems(4)
    keys = spec.add_rn(spec.sigmoid(made.logits), made.bias[:, None])
    picked = np.take_along_axis(keys, ids, -1)
    assert (np.diff(picked, axis=-1) == 0).any(-1).sum() > 100


def test_rows_lie_in_memory_at_their_problems_stride():
    made = points.problems(3)
    memory = made.memory()
    for q in (0, 1, 2, 4095):
        stride = int(made.row_stride[q])
        rows = memory[q, : 3 * stride].reshape(3, stride)
        assert (rows[:, :256] == made.logits[q]).all()
        assert np.isnan(rows[:, 256:]).all()
        assert np.isnan(memory[q, 3 * stride :]).all()


WIDE = ("logits", "row_stride", "bias", "ids", "weights", "metadata")


def plain_layout():
    """A kernel that takes every field as a parameter of its own, the row stride in units of four elements."""

    def pack(values):
        whole = values | {"row_stride": values["row_stride"] // 4}
        made = [whole[name].to_bytes(8 if name in WIDE else 4, "little") for name in parameters.FIELDS]
        return [*made, bytes(8)]

    return parameters.find(pack)


def test_the_layout_of_parameters_is_found_in_their_bytes():
    layout = plain_layout()
    assert [parameters.FIELDS[patch.field] for patch in layout.patches] == list(parameters.FIELDS)
    assert [patch.divisor for patch in layout.patches] == [1, 4, *[1] * 9]
    assert len(layout.param_at) == 12


def test_parameters_that_are_no_copies_are_refused():
    with pytest.raises(parameters.LayoutError, match="another way"):
        parameters.find(lambda values: [(values["tile"] * 3).to_bytes(4, "little")])


class FakeKernel:
    """Stands for a kernel: writes what the specification says, and what a fault adds."""

    def __init__(self, faults=()):
        self.faults = dict(faults)
        self.launches = 0
        self.ctas = []

    def __call__(self, function, grid, cluster, params):
        def word(name, kind):
            return ctypes.cast(params[parameters.FIELDS.index(name)], ctypes.POINTER(kind))[0]

        def array(name, kind, *shape):
            address = ctypes.cast(word(name, ctypes.c_uint64), ctypes.POINTER(ctypes.c_uint32))
            return np.ctypeslib.as_array(address, shape).view(kind)

        tokens, tile = word("tokens", ctypes.c_int32), word("tile", ctypes.c_int32)
        stride = 4 * word("row_stride", ctypes.c_int64)
        rows = array("logits", np.float32, (tokens - 1) * stride + 256)
        logits = np.lib.stride_tricks.as_strided(rows, (tokens, 256), (4 * stride, 4))
        bias, scale = array("bias", np.float32, 256), word("scale", ctypes.c_float)
        ids, weights = spec.route(logits, bias, scale, bool(function & 1))
        array("ids", np.int32, tokens, 8)[...] = ids
        array("weights", np.float32, tokens, 8)[...] = weights
        metadata = array("metadata", np.int32, spec.metadata_size(tile) + 2)
        offset, count = word("offset", ctypes.c_int32), word("count", ctypes.c_int32)
        spec.write_metadata(metadata, ids, offset, count, tile)
        fault = self.faults.get(self.launches)
        if fault:
            fault(array("ids", np.int32, 68), array("weights", np.int32, 68), metadata)
        self.launches += 1
        self.ctas.append((grid, cluster))
        return 0


def code(row_ctas=False, cluster=False):
    return Compiled("", b"", "", 256, 0, row_ctas, cluster)


ONE_CTA = code(), code()


def swept(faults=(), tokens=3, tile=5, step=257, rounds=2, codes=ONE_CTA, fake=None):
    layout = plain_layout()
    kernels = [
        tuple(engine.Kernel(FAKE + 2 * side + bit, codes[side], layout) for bit in (0, 1)) for side in (0, 1)
    ]
    number = len(range(0, points.RANGES, step))
    with engine.Engine(None, kernels, streams=1, threads=1, points=number, tile=tile) as made:
        keep = made.on_launch(fake or FakeKernel(faults))
        made.load(tokens, points.problems(tokens), *points.answers(tokens))
        run = sum(made.run(points.Unit(tokens, tile), start, step) for start in range(rounds))
        report = made.report()
        del keep
    return report, run


def test_a_right_kernel_passes_and_every_sum_agrees():
    report, run = swept()
    assert run == 256
    assert list(report.mismatches) == [0, 0]
    assert report.between == 0
    assert report.sum[0] == report.sum[1] == report.sum[2] != 0
    assert report.words == run * 2 * (2 * 68 + 520)


@pytest.mark.parametrize("tokens", [1, 8])
def test_a_launch_has_the_ctas_and_the_cluster_that_its_kernel_asks_for(tokens):
    number = len(range(0, points.RANGES, 8192))
    for codes, ctas in [
        ((code(row_ctas=True), code(row_ctas=True, cluster=True)), [(tokens, 0), (tokens, tokens)]),
        ((code(), code(cluster=True)), [(1, 0), (1, 1)]),
    ]:
        fake = FakeKernel()
        swept(tokens=tokens, step=8192, rounds=1, codes=codes, fake=fake)
        assert fake.ctas == ctas * number


def test_the_sum_is_that_of_the_specifications_words():
    tokens, tile, step = 3, 5, 4099
    report, _ = swept(tokens=tokens, tile=tile, step=step, rounds=1)
    ids, weights = points.answers(tokens)
    total = 0
    for r in range(0, points.RANGES, step):
        point = points.Unit(tokens, tile).number + r
        q = points.mix(point) % points.PROBLEMS
        metadata = np.full(520, POISON_WORD, np.int32)
        spec.write_metadata(metadata, ids[q], *map(int, points.ranges()[r]), tile)
        guard = np.full(44, POISON_WORD, np.int32)
        areas = [np.append(ids[q], guard), np.append(weights[q].view(np.int32), guard), metadata]
        words = [
            (points.mix(area << 32 | index) | 1) * int(word)
            for area, array in enumerate(areas)
            for index, word in enumerate(array.view(np.uint32))
        ]
        total += sum(words) * (points.mix(point) | 1)
    assert report.sum[2] == total % (1 << 64)


FAULTS = {
    "a wrong id": (lambda ids, weights, metadata: ids.__setitem__(1, 7777), 0, 1),
    "a weight's last bit": (lambda ids, weights, metadata: weights.__setitem__(2, weights[2] ^ 1), 1, 2),
    "a metadata word": (lambda ids, weights, metadata: metadata.__setitem__(1, metadata[1] + 1), 2, 1),
    "an unused word": (lambda ids, weights, metadata: metadata.__setitem__(2, 0), 2, 2),
    "the guard": (lambda ids, weights, metadata: metadata.__setitem__(516, -1), 2, 516),
    "past the ids": (lambda ids, weights, metadata: ids.__setitem__(24, 0), 0, 24),
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda name: name.replace(" ", "-"))
def test_a_fault_of_one_launch_is_found_and_located(fault):
    change, area, index = FAULTS[fault]
    report, _ = swept({5: change})  # the second backend's third launch
    assert list(report.mismatches) == [0, 1]
    assert report.between == 1
    assert report.sum[0] == report.sum[2] != report.sum[1]
    assert report.examples == 1
    example = report.example[0]
    found = (example.backend, example.area, example.index, example.point)
    assert found == (1, area, index, points.Unit(3, 5).number + 2 * 257)


def test_the_slots_are_poisoned_again_for_later_launches():
    report, _ = swept({0: FAULTS["the guard"][0]}, rounds=4)  # rounds 3 and 4 use the slots of 1 and 2 again
    assert list(report.mismatches) == [1, 0]


@pytest.fixture
def host_sweep(monkeypatch, tmp_path):
    """The command on this host: every 1031st point, fake kernels, records in a folder of the test's own."""
    faults = {}

    class Part(engine.Engine):
        def __init__(self, arch, kernels, streams, threads, tile=16):
            super().__init__(None, kernels, 1, 1, points=32, tile=tile)
            self.keep = self.on_launch(FakeKernel(faults))

        def run(self, unit, step=1):
            return super().run(unit, start=0, step=1031 * step)

    pair = tuple(engine.Kernel(FAKE + bit, code(), plain_layout()) for bit in (0, 1))
    monkeypatch.setattr(sweep, "Engine", Part)
    monkeypatch.setattr(sweep, "SETTINGS", ((1, 1), (1, 2)))
    monkeypatch.setattr(sweep.kernels, "load", lambda backend, metadata, arch: pair)
    monkeypatch.setattr(sweep.kernels, "fingerprint", lambda backend, arch: "f" * 16)
    monkeypatch.setattr(sweep.device, "card", lambda: sweep.device.Card("a host", "sm_90", "none", 1))
    monkeypatch.setattr(sweep, "explain", lambda backend, example: f"explained {backend} {example.index}")
    monkeypatch.setattr(sweep.evidence, "write", lambda command, record: faults.update(record=record))

    def run(*arguments):
        code = sweep.main([*arguments, "--ledger", str(tmp_path / "ledger.jsonl")])
        return code, faults.pop("record", None)

    return run, faults


def test_the_command_runs_a_shard_once_and_then_finds_it_in_the_ledger(host_sweep):
    run, _ = host_sweep
    code, record = run("--shard", "4/2048")  # b 1, tile 5
    assert code == 0
    assert (record["verdict"], record["points"], record["launches"], record["mismatches"]) == (
        "pass",
        32,
        64,
        0,
    )
    assert record["units_left"] == 2047
    assert run("--shard", "4/2048") == (0, None)


def test_the_command_fails_on_a_mismatch_and_explains_it(host_sweep, capsys):
    run, faults = host_sweep
    faults[5] = FAULTS["the guard"][0]
    code, record = run("--shard", "4/2048")
    assert code == 1
    assert (record["verdict"], record["mismatches"]) == ("fail", 2)  # of a backend, and between the two
    assert "explained triton 516" in capsys.readouterr().out
    del faults[5]
    assert run("--shard", "4/2048")[0] == 0, "a shard with mismatches counts as done"
