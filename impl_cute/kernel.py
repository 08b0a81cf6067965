"""The kernel: one CTA of 256 threads; a warp a token row, whose lane l holds experts 8 l .. 8 l + 7.

Its stages have the names they have in the specification: score, select, weigh (`spec.selection`) and permute
(`spec.permutation`). Programmatic dependent launch orders them: the bias, a weight complete long before, is
read ahead of the wait for earlier kernels; the logits and every global store come after it.
"""

from itertools import pairwise
from typing import Any, Final

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Constexpr, Float32, Int32, Int64, Pointer, Uint32, select_

from impl_cute.primitives import (
    add_rn,
    bits,
    dependency_wait,
    div_full,
    ex2_approx,
    from_bits,
    highest_set,
    launch_dependents,
    load_4,
    lowest_set,
    mul_rn,
    settled,
    shared_load_2,
    shared_load_4,
    shared_or,
    shared_store_4,
    store,
    store_2,
    store_same_4,
    warp_max,
    warp_sum,
)
from spec.constants import MAX_TOKENS, NEG_LOG2E_BITS, NUM_EXPERTS, SUM_EPSILON, TOP_K
from spec.layout import (
    META_CTA_BATCH,
    META_CTA_LIMIT,
    META_EXPANDED_TO_PERMUTED,
    META_PADDED_TOKENS,
    META_PERMUTED_TO_TOKEN,
)

WARP: Final = 32
WARPS: Final = MAX_TOKENS
THREADS: Final = WARPS * WARP
ROW_CTAS: Final = False
"""Whether the grid has a CTA a token row, with metadata all in one cluster; otherwise it has one in all."""
LANE_EXPERTS: Final = NUM_EXPERTS // WARP
PICK_LANES: Final = WARP // TOP_K
WORD: Final = 4

SORT_NETWORK: Final = (
    (0, 1), (2, 3), (4, 5), (6, 7), (0, 2), (1, 3), (4, 6), (5, 7), (1, 2), (5, 6),
    (0, 4), (1, 5), (2, 6), (3, 7), (2, 4), (3, 5), (1, 2), (3, 4), (5, 6),
)  # fmt: skip
"""Compare-exchange steps that sort eight keys: Batcher's odd-even merge."""

RECIPROCAL_BITS: Final = 20
"""n // tile is exact for n < 264 and tile <= 256 as n * (2^20 // tile + 1) >> 20."""


def score(logit: Float32) -> Float32:
    """R1, A7: the sigmoid of one logit."""
    power = ex2_approx(mul_rn(logit, from_bits(Uint32(NEG_LOG2E_BITS))))
    return div_full(Float32(1.0), add_rn(power, Float32(1.0)))


def ordered_key(key: Float32) -> Uint32:
    """R2: an integer that orders as the key does, NaN (0x7fffffff) on top; 0 is left for 'no key'."""
    word = bits(key)
    sign = Uint32(Int32(word) >> 31)
    return word ^ (sign | Uint32(0x80000000))


@cute.jit
def select(
    keys: list[Uint32], lane: Int32, pick: Int32, row_keys: Pointer, row_scores: Pointer
) -> tuple[Int32, Float32, Boolean]:
    """R3, R4: eight picks; return the expert and score of pick ``pick``, and whether this lane found it.

    In each of eight rounds the lanes give up the largest key left. Then the four lanes of a pick look which
    of its giver's eight experts it was. Equal keys would be given up at once: `select_equals` does such rows.
    """
    key, givers, twins = Uint32(0), Uint32(0), Boolean(False)
    left = _descending(keys)
    for j in cutlass.range_constexpr(TOP_K):
        best = warp_max(left[0])
        gives = left[0] == best
        twins |= gives & (left[1] == best)
        key = _choose(pick == j, best, key)
        givers = _choose(pick == j, _ballot(gives), givers)
        left = [_choose(gives, after, before) for before, after in pairwise(left)]
    expert = highest_set(givers) * LANE_EXPERTS + (lane % PICK_LANES) * 2
    low, high = (word == key for word in shared_load_2(row_keys + expert))
    pair = shared_load_2(row_scores + expert)
    found = low | high
    expert += Int32(high)
    picked = from_bits(_choose(high, pair[1], pair[0]))
    if cute.arch.vote_any_sync(twins | ((givers & (givers - 1)) != 0)):
        expert = select_equals(keys, lane, pick)
        found = lane % PICK_LANES == 0
        picked = (row_scores + expert).load()
    return expert, picked, found


@cute.jit
def select_equals(keys: list[Uint32], lane: Int32, pick: Int32) -> Int32:
    """R3 one by one, the lowest expert id first among equal keys; return the expert of pick ``pick``."""
    first = lane * LANE_EXPERTS
    mine = Int32(0)
    for j in cutlass.range(TOP_K, unroll=1):
        most = _largest(keys)
        best = warp_max(most)
        place = Int32(LANE_EXPERTS - 1)
        for i in cutlass.range_constexpr(LANE_EXPERTS - 2, -1, -1):
            place = Int32(select_(keys[i] == best, Int32(i), place))
        expert = cute.arch.shuffle_sync(first + place, lowest_set(_ballot(most == best)))
        mine = Int32(select_(pick == j, expert, mine))
        keys = [_choose(expert == first + i, Uint32(0), key) for i, key in enumerate(keys)]
    return mine


def weigh(picked: Float32, row_total: Float32, scale: Float32, renormalize: bool) -> Float32:
    """R5, R6: the weight of one pick, from its unbiased score."""
    inverse = div_full(scale, add_rn(row_total, Float32(SUM_EPSILON))) if renormalize else scale
    return mul_rn(picked, inverse)


@cute.jit
def permute(
    metadata: Int64, my_routes: Pointer, warp_ctas: Pointer, thread: Int32, count: Int32, tile: Int32,
    reciprocal: Uint32,
) -> None:  # fmt: skip
    """M1-M8, but for the routes that are not local: thread e serves local expert e.

    ``my_routes`` points to the expert's word: nibble t is 1 + j where token t picked it as pick j, else 0.
    """
    lane, warp = thread % WARP, thread // WARP
    nibbles = Uint32(0)
    if thread < count:
        nibbles = Uint32(my_routes.load())
    # M1: bit 4 t + 3 is set where token t picked this expert; ctas = ceil(hits / tile), and their prefix sum.
    tokens = (nibbles + Uint32(0x77777777)) & Uint32(0x88888888)
    hits = _popc(tokens)
    ctas = Int32((Uint32(hits + tile - 1) * reciprocal) >> RECIPROCAL_BITS)
    of_warp = warp_sum(ctas)
    if lane == 0:
        (warp_ctas + warp).store(of_warp)
    below = (Uint32(1) << Uint32(lane)) - 1
    cta0, num_ctas = Int32(0), Int32(0)
    for bit in cutlass.range_constexpr(MAX_TOKENS.bit_length()):
        cta0 += _popc(_ballot((ctas & (1 << bit)) != 0) & below) << bit
    cute.arch.sync_threads()
    parts = shared_load_4(warp_ctas) + shared_load_4(warp_ctas + 4)
    for w in cutlass.range_constexpr(WARPS):
        cta0 += Int32(select_(w < warp, Int32(parts[w]), Int32(0)))
        num_ctas += Int32(parts[w])
    cta0 = settled(cta0)

    # M4, M5; and the padding of M7: -1 everywhere, the tokens after a barrier.
    rows = num_ctas * tile
    if thread == 0:
        store_2(metadata + WORD * META_PADDED_TOKENS, rows, num_ctas)
    permuted = metadata + WORD * META_PERMUTED_TO_TOKEN
    whole = rows & ~3
    for i in cutlass.range(thread * 4, whole, THREADS * 4, unroll=1):
        store_same_4(permuted + WORD * Int64(i), Int32(-1))
    if whole + thread < rows:
        store(permuted + WORD * Int64(whole + thread), Int32(-1))
    # M2, M3
    row = cta0 * tile
    last = row + hits
    for c in cutlass.range(cta0, cta0 + ctas, unroll=1):
        entry = metadata + WORD * Int64(c)
        store(entry + WORD * META_CTA_BATCH, thread)
        store(entry + WORD * META_CTA_LIMIT, cutlass.min((c + 1) * tile, last))
    # M6
    left = tokens
    while left != 0:
        place = lowest_set(left)
        route = (place >> 2) * TOP_K + Int32((nibbles >> Uint32(place - 3)) & 15) - 1
        store(metadata + WORD * (META_EXPANDED_TO_PERMUTED + Int64(route)), row)
        row += 1
        left &= left - 1
    # M7
    cute.arch.sync_threads()
    while tokens != 0:
        place = highest_set(tokens)
        row -= 1
        store(permuted + WORD * Int64(row), place >> 2)
        tokens ^= Uint32(1) << Uint32(place)


@cute.kernel
def routing(
    logits: Pointer, row_stride: Int64, bias: Pointer, ids: Pointer, weights: Pointer, tokens: Int32,
    scale: Float32, metadata: Any, offset: Int32, count: Int32, tile: Int32, renormalize: Constexpr,
    early_dependents: Constexpr,
) -> None:  # fmt: skip
    """R1-R6, and with metadata M1-M8, of one call; pointers and numbers are those of the contract.

    The parameters of the variant without metadata come first: they fill one line of the constant cache.
    """
    if cutlass.const_expr(early_dependents):
        launch_dependents()
    thread = cute.arch.thread_idx()[0]
    lane, row = thread % WARP, thread // WARP
    first = lane * LANE_EXPERTS
    half = WORD * LANE_EXPERTS // 2
    bias_start = bias.toint() + WORD * Int64(first)
    biases = load_4(bias_start) + load_4(bias_start + half)
    row_scores = cute.arch.alloc_smem(Float32, MAX_TOKENS * NUM_EXPERTS, 16) + row * NUM_EXPERTS
    row_keys = cute.arch.alloc_smem(Uint32, MAX_TOKENS * NUM_EXPERTS, 16) + row * NUM_EXPERTS
    row_picked = cute.arch.alloc_smem(Float32, MAX_TOKENS * TOP_K, 16) + row * TOP_K
    pick = lane // PICK_LANES
    route = row * TOP_K + pick
    start = settled(logits.toint() + WORD * (Int64(row) * row_stride + first))
    if cutlass.const_expr(metadata is not None):
        routes = cute.arch.alloc_smem(Uint32, NUM_EXPERTS, 16)
        warp_ctas = cute.arch.alloc_smem(Int32, WARPS, 16)
        reciprocal = settled(Uint32(1 << RECIPROCAL_BITS) // Uint32(tile) + 1)
        my_expert = settled(offset + thread)
        (routes + thread).store(Uint32(0))
        cute.arch.sync_threads()
    dependency_wait()
    if row < tokens:
        scores = [score(logit) for logit in load_4(start) + load_4(start + half)]
        keys = [ordered_key(add_rn(s, b)) for s, b in zip(scores, biases, strict=True)]
        for i in cutlass.range_constexpr(0, LANE_EXPERTS, 4):
            shared_store_4(row_scores + first + i, scores[i : i + 4])
            shared_store_4(row_keys + first + i, keys[i : i + 4])
        cute.arch.sync_warp()
        expert, picked, found = select(keys, lane, pick, row_keys, row_scores)
        if found:
            (row_picked + pick).store(picked)
        cute.arch.sync_warp()
        if found:
            total = Float32(0.0)
            if cutlass.const_expr(renormalize):
                for word in shared_load_4(row_picked) + shared_load_4(row_picked + 4):
                    total = add_rn(total, from_bits(word))
            store(ids.toint() + WORD * Int64(route), expert)
            store(weights.toint() + WORD * Int64(route), weigh(picked, total, scale, renormalize))
            if cutlass.const_expr(metadata is not None):
                if Uint32(expert - offset) < Uint32(count):
                    shared_or(routes + expert, Uint32(pick + 1) << Uint32(row * 4))
                else:
                    unrouted = metadata.toint() + WORD * (META_EXPANDED_TO_PERMUTED + Int64(route))
                    store(unrouted, Int32(-1))
    if cutlass.const_expr(metadata is not None):
        cute.arch.sync_threads()
        permute(metadata.toint(), routes + my_expert, warp_ctas, thread, count, tile, reciprocal)


@cute.jit
def launch(
    logits: cute.Tensor, bias: cute.Tensor, ids: cute.Tensor, weights: cute.Tensor, metadata: Any,
    scale: Float32, offset: Int32, count: Int32, tile: Int32, stream: Any, renormalize: Constexpr,
    early_dependents: Constexpr,
) -> None:  # fmt: skip
    """Launch the kernel on a stream; ``metadata`` is an int32 vector, or None for the variant without it."""
    buffer = None if cutlass.const_expr(metadata is None) else metadata.iterator
    routing(
        logits.iterator, Int64(logits.stride[0]), bias.iterator, ids.iterator, weights.iterator,
        Int32(logits.shape[0]), scale, buffer, offset, count, tile, renormalize, early_dependents,
    ).launch(grid=(1, 1, 1), block=(THREADS, 1, 1), stream=stream, use_pdl=True)  # fmt: skip


def _descending(keys: list[Uint32]) -> list[Uint32]:
    """Sort one lane's keys, and end the list with 'no key'."""
    keys = list(keys)
    for low, high in SORT_NETWORK:
        keys[low], keys[high] = cutlass.max(keys[low], keys[high]), cutlass.min(keys[low], keys[high])
    return [*keys, Uint32(0)]


def _largest(keys: list[Uint32]) -> Uint32:
    while len(keys) > 1:
        keys = [cutlass.max(a, b) for a, b in zip(keys[::2], keys[1::2], strict=True)]
    return keys[0]


def _choose(condition: Boolean, word: Uint32, otherwise: Uint32) -> Uint32:
    return Uint32(select_(condition, word, otherwise))


def _ballot(condition: Boolean) -> Uint32:
    return Uint32(cute.arch.vote_ballot_sync(condition))


def _popc(word: Uint32) -> Int32:
    return Int32(cute.arch.popc(word))
