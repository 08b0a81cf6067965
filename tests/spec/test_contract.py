"""The rules on arguments: each broken alone, seen as a ValueError that names it, with no byte written.

Tensors here are stand-ins over one block of memory, so that strides, addresses and overlaps are free to
choose; `test_contract_torch.py` has real ones.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import spec
from spec import contract, host
from spec.repeated import RepeatedCheck

BLOCK_BYTES = 1 << 17
POISON = 0x5A
PLACES = {"logits": 0, "bias": 8192, "ids": 9216, "weights": 9472, "metadata": 9728}


@dataclass(frozen=True)
class Device:
    type: str
    index: int = 0


CPU, CUDA = Device("cpu"), Device("cuda")


class Block:
    """A poisoned piece of memory on 16 bytes, and tensors in it at chosen places."""

    def __init__(self) -> None:
        room = np.full(BLOCK_BYTES + 16, POISON, np.uint8)
        start = -room.ctypes.data % 16
        self.bytes = room[start : start + BLOCK_BYTES]

    def tensor(self, dtype, shape, strides, at, device=CPU):
        return Tensor(self, dtype, tuple(shape), tuple(strides), at, device)


@dataclass
class Tensor:
    """What `spec.contract` reads of a tensor, and what `spec.host` does."""

    block: Block
    dtype: str
    shape: tuple
    strides: tuple
    at: int
    device: Device

    def stride(self):
        return self.strides

    def data_ptr(self):
        return self.block.bytes.ctypes.data + self.at

    def detach(self):
        return self

    def numpy(self):
        memory = self.block.bytes[self.at :].view(self.dtype)
        strides = [4 * stride for stride in self.strides]
        return np.lib.stride_tricks.as_strided(memory, self.shape, strides)


def arguments(batch=3, device=CPU, **change):
    """Return (block, arguments) of a call within the contract, then changed.

    A dict changes some properties of that tensor, anything else replaces the argument.
    """
    block = Block()
    tensors = {
        "logits": {"dtype": "float32", "shape": (batch, 256), "strides": (256, 1)},
        "bias": {"dtype": "float32", "shape": (256,), "strides": (1,)},
        "ids": {"dtype": "int32", "shape": (batch, 8), "strides": (8, 1)},
        "weights": {"dtype": "float32", "shape": (batch, 8), "strides": (8, 1)},
        "metadata": {"dtype": "int32", "shape": (spec.metadata_size(8),), "strides": (1,)},
    }
    given = {
        "scale": 1.0, "renormalize": True, "local_expert_offset": 0, "num_local_experts": 256, "tile_n": 8,
        "early_dependents": False,
    }  # fmt: skip
    for name, properties in tensors.items():
        given[name] = block.tensor(**{"at": PLACES[name], "device": device, **properties})
    for name, value in change.items():
        if isinstance(value, dict):
            given[name] = block.tensor(**{"at": PLACES[name], "device": device, **tensors[name], **value})
        else:
            given[name] = value
    return block, given


def check(given, device_type="cpu"):
    return contract.check_route(**given, device_type=device_type)


HUGE = 10**5000  # more digits than Python puts into a text
ROW = 4 * 256
BOTH = "local_expert_offset [+] num_local_experts must be at most 256"
RULES = {
    # logits
    "logits-a-list": ({"logits": [[0.0] * 256]}, "logits must be a strided tensor, not list"),
    "logits-none": ({"logits": None}, "logits must be a strided tensor, not NoneType"),
    "logits-a-numpy-array": ({"logits": np.zeros((3, 256), np.float32)}, "logits must be a strided tensor"),
    "logits-one-axis": ({"logits": {"shape": (256,), "strides": (1,)}}, "logits must have shape"),
    "logits-three-axes": ({"logits": {"shape": (1, 3, 256), "strides": (768, 256, 1)}}, "logits must have"),
    "logits-255-experts": ({"logits": {"shape": (3, 255)}}, "logits must have shape"),
    "logits-no-token": ({"logits": {"shape": (0, 256)}}, r"logits must have shape .*not \[0, 256\]"),
    "logits-nine-tokens": ({"logits": {"shape": (9, 256)}}, "logits must have shape"),
    "logits-float64": ({"logits": {"dtype": "float64"}}, "logits must have dtype float32, not float64"),
    "logits-bfloat16": ({"logits": {"dtype": "torch.bfloat16"}}, "logits must .* float32, not bfloat16"),
    "logits-int32": ({"logits": {"dtype": "int32"}}, "logits must have dtype float32, not int32"),
    "logits-column-stride": ({"logits": {"strides": (512, 2)}}, "logits must have column stride 1, not 2"),
    "logits-column-stride-0": ({"logits": {"strides": (256, 0)}}, "logits must have column stride 1"),
    "logits-row-stride-258": ({"logits": {"strides": (258, 1)}}, "logits must have row stride .*not 258"),
    "logits-row-stride-1": ({"logits": {"strides": (1, 1)}}, "logits must have row stride .*not 1"),
    "logits-row-stride-negative": ({"logits": {"strides": (-256, 1), "at": 2048}}, "must have row stride"),
    "logits-row-stride-at-b1": ({"batch": 1, "logits": {"strides": (257, 1)}}, "logits must have row stride"),
    "logits-misaligned": ({"logits": {"at": 4}}, "logits must start on 16 bytes"),
    # bias
    "bias-none": ({"bias": None}, "bias must be a strided tensor"),
    "bias-255": ({"bias": {"shape": (255,)}}, r"bias must have shape \[256\], not \[255\]"),
    "bias-two-axes": ({"bias": {"shape": (1, 256), "strides": (256, 1)}}, "bias must have shape"),
    "bias-float16": ({"bias": {"dtype": "float16"}}, "bias must have dtype float32"),
    "bias-stride": ({"bias": {"strides": (2,), "at": 32768}}, "bias must have strides"),
    "bias-stride-0": ({"bias": {"strides": (0,)}}, "bias must have strides"),
    "bias-misaligned": ({"bias": {"at": 8200}}, "bias must start on 16 bytes"),
    # ids and weights
    **{
        f"{name}-{what}": ({"batch": batch, name: change}, f"{name} must {rule}")
        for name, other in (("ids", "int64"), ("weights", "float64"))
        for what, batch, change, rule in (
            ("none", 3, None, "be a strided tensor"),
            ("dtype", 3, {"dtype": other}, f"have dtype .*, not {other}"),
            ("seven-picks", 3, {"shape": (3, 7)}, "have shape"),
            ("of-another-batch", 3, {"shape": (4, 8)}, r"have shape \[3, 8\], not \[4, 8\]"),
            ("flat", 3, {"shape": (24,), "strides": (1,)}, "have shape"),
            ("strided-rows", 3, {"strides": (16, 1)}, "have strides"),
            ("transposed", 3, {"strides": (1, 3)}, "have strides"),
            ("strided-rows-at-b1", 1, {"strides": (16, 1)}, "have strides"),
            ("strided-columns-at-b1", 1, {"strides": (8, 2)}, "have strides"),
        )
    },
    "ids-float32": ({"ids": {"dtype": "float32"}}, "ids must have dtype int32"),
    "weights-int32": ({"weights": {"dtype": "int32"}}, "weights must have dtype float32"),
    # scale
    **{
        f"scale-{type(value).__name__}": ({"scale": value}, "scale must be a real number")
        for value in (True, None, "1.0", 1j, Decimal(1), [1.0], np.ones(1, np.float32), np.True_)
    },
    # renormalize and early_dependents
    **{
        f"{name}-{type(value).__name__}": ({name: value}, f"{name} must be a bool")
        for name in ("renormalize", "early_dependents")
        for value in (1, None, "yes", np.True_, 1.0)
    },
    # metadata
    "metadata-a-list": ({"metadata": [0] * 709}, "metadata must be a strided tensor"),
    "metadata-int64": ({"metadata": {"dtype": "int64"}}, "metadata must have dtype int32"),
    "metadata-float32": ({"metadata": {"dtype": "float32"}}, "metadata must have dtype int32"),
    "metadata-two-axes": ({"metadata": {"shape": (1, 709), "strides": (709, 1)}}, "metadata must have shape"),
    "metadata-stride": ({"metadata": {"strides": (2,)}}, "metadata must have strides"),
    "metadata-one-short": ({"metadata": {"shape": (708,)}}, r"metadata must have shape .*709, not \[708\]"),
    "metadata-short-for-its-tile": ({"tile_n": 9}, "metadata must have shape .*773"),
    "metadata-misaligned": ({"metadata": {"at": 9732}}, "metadata must start on 16 bytes"),
    # the range and the tile
    "offset-negative": ({"local_expert_offset": -1}, "local_expert_offset must be 0 or more, not -1"),
    "offset-256": ({"local_expert_offset": 256, "num_local_experts": 1}, BOTH),
    "offset-huge": ({"local_expert_offset": HUGE}, BOTH),
    "count-zero": ({"num_local_experts": 0}, "num_local_experts must be 1 or more, not 0"),
    "count-negative": ({"num_local_experts": -256}, "num_local_experts must be 1 or more"),
    "count-257": ({"num_local_experts": 257}, BOTH),
    "range-ends-at-257": ({"local_expert_offset": 1}, BOTH),
    "tile-zero": ({"tile_n": 0}, "tile_n must be an integer in 1..256, not 0"),
    "tile-257": ({"tile_n": 257}, "tile_n must be an integer in 1..256, not 257"),
    "tile-negative": ({"tile_n": -8}, "tile_n must be an integer in 1..256, not -8"),
    "tile-huge": ({"tile_n": HUGE}, "tile_n must be an integer in 1..256"),
    **{
        f"{name}-{type(value).__name__}": ({name: value}, f"{name} must be an integer")
        for name in ("local_expert_offset", "num_local_experts", "tile_n")
        for value in (True, np.True_, 1.0, "1", None, Fraction(1))
    },
    # overlaps: every output with every other argument
    "ids-on-weights": ({"ids": {"at": 9472 + 92}}, "ids must not overlap weights"),
    "ids-on-logits": ({"ids": {"at": 3 * ROW - 4}}, "ids must not overlap logits"),
    "ids-on-bias": ({"ids": {"at": 8192 - 92}}, "ids must not overlap bias"),
    "weights-on-logits": ({"weights": {"at": 2 * ROW}}, "weights must not overlap logits"),
    "weights-on-bias": ({"weights": {"at": 8192 - 92}}, "weights must not overlap bias"),
    "metadata-on-ids": ({"ids": {"at": 9728 + 708 * 4}}, "metadata must not overlap ids"),
    "metadata-on-weights": ({"weights": {"at": 9728 - 92}}, "metadata must not overlap weights"),
    "metadata-on-logits": ({"logits": {"at": 9728 + 708 * 4 - 4 * 4}}, "metadata must not overlap logits"),
    "metadata-on-bias": ({"bias": {"at": 9728}}, "metadata must not overlap bias"),
    "ids-in-a-gap-between-strided-rows": (
        {"logits": {"strides": (512, 1), "at": 32768}, "ids": {"at": 32768 + 1024}},
        "ids must not overlap logits",
    ),
    "metadata-beyond-what-is-written": (
        {"metadata": {"shape": (1000,), "at": 40960}, "weights": {"at": 40960 + 999 * 4}},
        "metadata must not overlap weights",
    ),
}


@pytest.mark.parametrize(("change", "message"), RULES.values(), ids=RULES)
class TestEveryRule:
    def test_route_raises_and_writes_nothing(self, change, message):
        block, given = arguments(**change)
        with pytest.raises(ValueError, match=message):
            host.route(**given)
        assert (block.bytes == POISON).all()

    def test_a_call_that_has_passed_lets_none_pass_that_breaks_the_rule(self, change, message):
        check = RepeatedCheck("cpu")
        _, right = arguments(batch=change.get("batch", 3))
        for _ in range(2):
            check(**right)
        _, given = arguments(**change)
        for _ in range(2):
            with pytest.raises(ValueError, match=message):
                check(**given)

    def test_the_rule_comes_before_the_device(self, change, message):
        _, given = arguments(**change)
        with pytest.raises(ValueError, match=message):
            check(given, "cuda")


@pytest.mark.parametrize("name", PLACES)
class TestDevices:
    def test_another_device_is_named_and_nothing_is_written(self, name):
        for device in (CUDA, Device("cpu", 1), Device("meta")):
            block, given = arguments(**{name: {"device": device}})
            with pytest.raises(ValueError, match="must be on") as raised:
                host.route(**given)
            # Two of several cards: the other one is seen first at the tensor after logits.
            seen = "bias" if name == "logits" and device.type == "cpu" else name
            assert str(raised.value).startswith(f"{seen} must be on")
            assert (block.bytes == POISON).all()

    def test_another_card_is_named(self, name):
        _, given = arguments(device=CUDA, **{name: {"device": Device("cuda", 1)}})
        seen = "bias" if name == "logits" else name
        with pytest.raises(ValueError, match=f"{seen} must be on the device of logits"):
            check(given, "cuda")


def test_tensors_of_the_wrong_kind_of_device_are_refused_as_a_whole():
    with pytest.raises(ValueError, match="logits must be on a cuda device, not on Device"):
        check(arguments()[1], "cuda")
    assert check(arguments(device=CUDA)[1], "cuda").batch == 3


ACCEPTED = {
    "every-batch": [{"batch": batch} for batch in range(1, 9)],
    "row-stride-0": [{"batch": batch, "logits": {"strides": (0, 1)}} for batch in (1, 8)],
    "row-stride-4": [{"logits": {"strides": (4, 1)}}],
    "a-column-slice-of-a-wider-buffer": [{"logits": {"strides": (1024, 1), "at": 65536 + 16}}],
    "dtype-names-of-torch": [{"logits": {"dtype": "torch.float32"}, "ids": {"dtype": "torch.int32"}}],
    "ids-and-weights-on-4-bytes": [{"ids": {"at": 9220}, "weights": {"at": 9476}}],
    "outputs-that-touch": [{"ids": {"at": 3 * ROW}, "weights": {"at": 3 * ROW + 96}}],
    "inputs-that-overlap": [{"batch": 1, "logits": {"at": 7424}}],
    "metadata-longer-than-needed": [{"metadata": {"shape": (5000,)}}],
    "every-edge-of-the-range": [
        {"local_expert_offset": 255, "num_local_experts": 1},
        {"local_expert_offset": np.int32(128), "num_local_experts": np.int64(128)},
        {"tile_n": 1},
    ],
    "no-metadata-and-anything-for-its-parameters": [
        {"metadata": None, "local_expert_offset": "x", "num_local_experts": -1, "tile_n": None}
    ],
}


@pytest.mark.parametrize("changes", ACCEPTED.values(), ids=ACCEPTED)
def test_the_contract_holds_all_of_these(changes):
    for change in changes:
        call = check(arguments(**change)[1])
        assert call.batch == change.get("batch", 3)
        with_metadata = change.get("metadata", True) is not None
        assert (call.tile > 0) is with_metadata
        assert [type(x) for x in (call.scale, call.offset, call.count, call.tile)] == [float, int, int, int]


def test_a_row_stride_beyond_2_to_31_is_legal():
    change = {"logits": {"strides": (2**31 + 4, 1), "at": 0}}
    for name, at in PLACES.items():
        if name != "logits":  # before the rows: everything behind their first element is within their range
            change[name] = {"at": at - BLOCK_BYTES}
    assert check(arguments(**change)[1]).batch == 3


def test_route_writes_ids_weights_and_metadata_only():
    block, given = arguments()
    logits = np.random.default_rng(1).standard_normal((3, 256)).astype(np.float32)
    given["logits"].numpy()[:] = logits
    given["bias"].numpy()[:] = 0
    before = block.bytes.copy()
    host.route(**given)
    ids, weights = spec.route(logits, np.zeros(256, np.float32), 1.0)
    np.testing.assert_array_equal(given["ids"].numpy(), ids)
    np.testing.assert_array_equal(given["weights"].numpy(), weights)
    metadata = np.full(spec.metadata_size(8), 0x5A5A5A5A, np.int32)
    spec.write_metadata(metadata, ids, 0, 256, 8)
    np.testing.assert_array_equal(given["metadata"].numpy(), metadata)
    written = [slice(at, at + size) for at, size in ((9216, 96), (9472, 96), (9728, 709 * 4))]
    for place in written:
        block.bytes[place] = before[place]
    np.testing.assert_array_equal(block.bytes, before)


@pytest.mark.parametrize("value", [1, None, "True", np.True_], ids=repr)
def test_prepare_takes_bools_only(value):
    contract.check_prepare(True, False, True)
    with pytest.raises(ValueError, match="renormalize must be a bool"):
        contract.check_prepare(False, value, True)
    with pytest.raises(ValueError, match="metadata must be a bool"):
        contract.check_prepare(value, True, True)
    with pytest.raises(ValueError, match="early_dependents must be a bool"):
        contract.check_prepare(True, True, value)
    for wrong in ({"renormalize": value}, {"early_dependents": value}):
        with pytest.raises(ValueError, match="must be a bool"):
            host.prepare(**wrong)
        with pytest.raises(ValueError, match="must be a bool"):
            host.compile_routing(**{"metadata": False, "renormalize": True} | wrong)
        with pytest.raises(ValueError, match="must be a bool"):
            host.compiled_routing(**{"metadata": False, "renormalize": True} | wrong)


def test_python_o_changes_none_of_it():
    root = Path(__file__).parents[2]
    run = subprocess.run(
        [sys.executable, "-O", "-m", "pytest", "-q", "-pno:cacheprovider", "-k", "not python_o", __file__],
        cwd=root, env={**os.environ, "PYTHONPATH": str(root)}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    passed = re.search(r"(\d+) passed", run.stdout)
    assert passed, run.stdout
    assert int(passed[1]) >= 2 * len(RULES)
