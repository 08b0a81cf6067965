import re

import numpy as np
import pytest

import spec
from oracle import backends
from oracle.backends.flashinfer import allocate, assemble
from oracle.peers import build
from oracle.peers.flashinfer import CALL, dynamic_shared, entry_of
from oracle.problem import POISON_WORD, Batch, Outputs, Ranges

C_TYPES = {"std::uint64_t": np.uint64, "std::int32_t": np.int32, "float": np.float32}


def problems(tokens: int, tiles: list[int], offset: int = 0, count: int = 256) -> Batch:
    length = len(tiles)
    rng = np.random.default_rng(tokens)

    def each(value: int) -> np.ndarray:
        return np.full(length, value, np.int32)

    return Batch(
        family="permute-natural",
        logits=rng.standard_normal((length, tokens, 256), np.float32),
        bias=rng.standard_normal((length, 256), np.float32),
        scale=np.ones(length, np.float32),
        renormalize=True,
        row_stride=np.full(length, 256, np.int64),
        ranges=Ranges(each(offset), each(count), np.array(tiles, np.int32)),
    )


def test_a_call_in_numpy_is_the_struct_of_the_driver():
    text = (build.folder() / "flashinfer_driver.cu").read_text()
    body = re.search(r"struct Call \{\n(.*?)\};", text, re.DOTALL)
    assert body is not None
    fields = re.findall(r"(\S+) (\w+);", body[1])
    assert [(name, C_TYPES[kind]) for kind, name in fields] == [
        (name, CALL[name].type) for name in CALL.names
    ]
    assert CALL.itemsize == 11 * 8 + 6 * 4
    assert CALL.isalignedstruct


def test_shared_memory_is_768_bytes_a_token_and_192_more():
    assert [dynamic_shared(tokens) for tokens in (1, 8)] == [960, 6336]


def test_every_field_has_the_room_that_our_buffer_has_for_it():
    batch = problems(3, [5, 64])
    buffers = allocate(batch, Outputs.poisoned(batch), from_logits=False)
    assert {name: array.shape[1] for name, array in buffers.items() if name != "ids"} == {
        "padded_tokens": 1,
        "num_ctas": 1,
        "cta_batch": 64,
        "cta_limit": 64,
        "expanded_to_permuted": 64,
        "permuted_to_token": 64 * 64 + 1,
    }


def test_the_ids_that_go_in_are_those_of_the_specification():
    batch = problems(2, [1])
    buffers = allocate(batch, Outputs.poisoned(batch), from_logits=False)
    assert np.array_equal(buffers["ids"], spec.route(batch.logits, batch.bias, batch.scale)[0])
    assert {"logits", "bias", "weights", "replay"}.isdisjoint(buffers)


def test_every_output_is_poisoned_before_a_launch():
    batch = problems(2, [1])
    buffers = allocate(batch, Outputs.poisoned(batch), from_logits=True)
    inputs = {"logits", "bias"}
    assert all(
        (array.view(np.int16) == 0x5A5A).all() for name, array in buffers.items() if name not in inputs
    )


def test_m1_to_m8_fields_kept_apart_become_our_buffer_word_for_word():
    batch = problems(8, [1, 3, 8, 256], offset=5, count=130)
    outputs, right = Outputs.poisoned(batch), Outputs.poisoned(batch)
    assert outputs.metadata is not None
    assert right.metadata is not None
    buffers = allocate(batch, outputs, from_logits=False)
    for place, tile in enumerate(batch.ranges.tile if batch.ranges else ()):
        made = spec.metadata(buffers["ids"][place], 5, 130, int(tile))
        for field in spec.FIELDS:
            if field.name in buffers:
                words = np.atleast_1d(getattr(made, field.name))
                buffers[field.name][place, : len(words)] = words
        spec.write_metadata(right.metadata[place], buffers["ids"][place], 5, 130, int(tile))
    assemble(buffers, outputs.metadata)
    assert np.array_equal(outputs.metadata, right.metadata)


@pytest.mark.parametrize("field", ["cta_batch", "cta_limit", "expanded_to_permuted", "permuted_to_token"])
def test_m8_a_word_written_past_the_end_of_a_field_stays_visible(field: str):
    batch = problems(1, [8])
    outputs = Outputs.poisoned(batch)
    assert outputs.metadata is not None
    buffers = allocate(batch, outputs, from_logits=False)
    buffers[field][0, -1] = 7
    assemble(buffers, outputs.metadata)
    assert np.count_nonzero(outputs.metadata != POISON_WORD) == 1


@pytest.mark.parametrize(
    ("text", "says"), [("", "0 kernels"), (".visible .entry a(\n.visible .entry b(\n", "2 kern")]
)
def test_ptx_without_exactly_one_kernel_is_refused(text: str, says: str):
    with pytest.raises(Exception, match=says):
        entry_of(text)


def test_vllm_is_not_asked_without_renormalize():
    batch = problems(1, [8])
    raw = Batch(batch.family, batch.logits, batch.bias, batch.scale, False, batch.row_stride)
    with pytest.raises(ValueError, match="always renormalizes"):
        backends.get("vllm").run(raw, Outputs.poisoned(raw), "sim")
