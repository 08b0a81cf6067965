"""The kernel: one CTA a token row, one thread an expert; with metadata the CTAs of a launch form a cluster.

Its stages have the names they have in the specification: score, select, weigh (`spec.selection`) and permute
(`spec.permutation`). Up to `select` a thread serves its expert, in `permute` warp j serves pick j of the row.
Programmatic dependent launch orders kernels: the bias, a weight complete long before, is read ahead of the
wait for earlier kernels; the logits and every global store come after it.
"""

from typing import Any, Final

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Constexpr, Float32, Int32, Int64, Pointer, Uint32, Uint64, select_

from impl_cute.primitives import (
    add_rn,
    ballot,
    bits,
    byte_of,
    cluster_arrive,
    cluster_wait,
    count_above,
    dependency_wait,
    ex2,
    expect_bytes,
    from_bits,
    from_partner,
    in_cta,
    launch_dependents,
    load,
    low_bits,
    mul_rn,
    popc,
    rcp,
    send,
    settled,
    shared_load,
    shared_load_2,
    shared_load_4,
    shared_load_wide,
    shared_store,
    shared_store_2,
    start_barrier,
    store,
    store_2,
    wait_bytes,
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
WARPS: Final = NUM_EXPERTS // WARP
"""Warps of experts."""
ROW_CTAS: Final = True
"""Whether the grid has a CTA a token row, with metadata all in one cluster; otherwise it has one in all."""
WORD: Final = 4

GROUP: Final = 8
GROUPS: Final = NUM_EXPERTS // GROUP
WARP_GROUPS: Final = WARP // GROUP
CANDIDATES: Final = (8, 4, 3, 3, 2, 2, 1, 1)
"""How many experts of each place in their group can be among the best eight: see `candidate`."""
FIRST_SLOTS: Final = tuple(sum(CANDIDATES[:place]) for place in range(GROUP))
WARP_CANDIDATES: Final = sum(CANDIDATES) // WARPS
SELECT_BARRIERS: Final = 3
"""Barriers of the CTA from the entries to the picks."""

COUNT_BITS: Final = MAX_TOKENS.bit_length()
PAD_STORES: Final = 4


def score(logit: Float32) -> Float32:
    """R1, A7: the sigmoid of one logit.

    A3 and A4 without their branches, and with their bits. A power below 2^-126 vanishes in the sum, whether
    or not it is kept. The sum is 1 or more, so a quarter of it is in the reach of A6, and scaling by 1/4 is
    exact but for the last product, whose rounding is that of A4.
    """
    power = ex2(mul_rn(logit, from_bits(Uint32(NEG_LOG2E_BITS))))
    return mul_rn(rcp(mul_rn(add_rn(power, Float32(1.0)), Float32(0.25))), Float32(0.25))


def ordered_key(key: Float32) -> Uint32:
    """R2: an integer that orders as the key does, NaN (0x7fffffff) on top; 0 is left for 'no key'."""
    word = bits(key)
    sign = Uint32(Int32(word) >> 31)
    return word ^ (sign | Uint32(0x80000000))


@cute.jit
def candidate(key: Uint32, thread: Int32, leaders: Pointer) -> tuple[Int32, Boolean]:
    """R3: return this expert's slot among 24 candidates, and whether it has one; a barrier of the CTA.

    The experts are 32 groups of eight. An expert has a place in its group, and the group a rank among the
    groups: by its best for the expert at place 0, by its second best for the others. In front of the best are
    those of the groups ranked higher; in front of the expert at place p are p of its own group, and two of
    each group ranked higher. An expert with eight in front is not picked; the 24 others have a slot each.
    """
    lane, group = thread % WARP, thread // GROUP
    places = [Uint32(0), Uint32(0)]
    for mask in cutlass.range_constexpr(1, GROUP):
        # Among equal keys the lower expert is in front: it lacks the highest bit in which the two differ.
        lower = (thread >> (mask.bit_length() - 1)) & 1
        places[mask % 2] = count_above(places[mask % 2], from_partner(key, mask), key - Uint32(lower))
    place = places[0] + places[1]
    if place < 2:
        (leaders + group * 2 + Int32(place)).store(key)
    is_best = place == 0
    slot = byte_of(*(_bytes(FIRST_SLOTS[i : i + 4]) for i in (0, 4)), place)
    cute.arch.sync_threads()
    others = shared_load_2(leaders + lane * 2)
    first_group = thread // WARP * WARP_GROUPS
    mine = shared_load_4(leaders + first_group * 2) + shared_load_4(leaders + first_group * 2 + 4)
    higher = Uint32(0)
    for i in cutlass.range_constexpr(WARP_GROUPS):
        lower = Uint32(lane < first_group + i)
        by_best = ballot(others[0] > mine[2 * i] - lower)
        by_second = ballot(others[1] > mine[2 * i + 1] - lower)
        higher = _choose(group == first_group + i, _choose(is_best, by_best, by_second), higher)
    rank = Uint32(popc(higher))
    in_front = _choose(is_best, rank, rank * 2 + place)
    return Int32(slot + rank), in_front < TOP_K


@cute.jit
def select(
    key: Uint32, scored: Float32, thread: Int32, entries: Pointer, picks: Pointer, picked: Pointer
) -> None:
    """R3, R4: leave the picks' entries in ``picks`` and their scores in ``picked``; two barriers of the CTA.

    An entry is a key and, below it, the number of experts after its own: none are equal, the best is largest.
    Warp w finds the ranks of candidates 3 w .. 3 w + 2 among the 24: a rank below 8 is the number of a pick.
    """
    leaders = cute.arch.alloc_smem(Uint32, 2 * GROUPS, 16)
    scores = cute.arch.alloc_smem(Float32, WARP, 16)
    lane = thread % WARP
    slot, among = candidate(key, thread, leaders)
    if among:
        shared_store_2(entries + slot, NUM_EXPERTS - 1 - thread, key)
        (scores + slot).store(scored)
    cute.arch.sync_threads()
    first = thread // WARP * WARP_CANDIDATES
    mine = first + cutlass.min(lane, WARP_CANDIDATES - 1)
    other = shared_load_wide(entries + lane)
    entry, score_there = shared_load_wide(entries + mine), shared_load(scores + mine)
    in_front = Uint32(0xFFFFFFFF)
    for i in cutlass.range_constexpr(WARP_CANDIDATES):
        in_front = _choose(lane == i, ballot(other > shared_load_wide(entries + first + i)), in_front)
    pick = popc(in_front)
    shared_store(picks + pick, entry, pick < TOP_K)
    shared_store(picked + pick, score_there, pick < TOP_K)


@cute.jit
def weigh(
    pick: Int32, row: Int32, ids: Pointer, weights: Pointer, scale: Float32, picks: Pointer, picked: Pointer,
    renormalize: Constexpr,
) -> None:  # fmt: skip
    """R5, R6: write the expert of one pick and, from the unbiased scores of all, its weight."""
    inverse = scale
    if cutlass.const_expr(renormalize):
        scores = [from_bits(word) for word in shared_load_4(picked) + shared_load_4(picked + 4)]
        total = scores[0]  # what it and 0.0 add up to, since no score is -0.0
        for picked_score in scores[1:]:
            total = add_rn(total, picked_score)
        # The sum is within 1e-15 .. 9, where A4 is a product with A6.
        inverse = mul_rn(rcp(add_rn(total, Float32(SUM_EPSILON))), scale)
    route = WORD * Int64(row * TOP_K + pick)
    store(ids.toint() + route, _expert(picks, pick))
    store(weights.toint() + route, mul_rn(from_bits(shared_load(picked + pick)), inverse))


@cute.jit
def count_ctas(members: Pointer, lane: Int32, expert: Int32, tile: Int32, tokens: Int32) -> Int32:
    """M1: how many CTAs the local experts below ``expert`` have, by a warp.

    ``members[w, t]`` has bit i where token t picked the local expert 32 w + i.
    """
    word = lane % WARPS
    of_token = shared_load_4(members + word * MAX_TOKENS) + shared_load_4(members + word * MAX_TOKENS + 4)
    below = low_bits(cutlass.max(expert - word * WARP, 0))
    ctas = Int32(0)
    if tile >= tokens:
        # No expert has more than one: most calls come here, and take 6 to 8 % less time for it.
        if lane < WARPS:
            ctas = popc(_any_bits(of_token) & below)
    else:
        # Lane 8 k + w counts, in word w, the experts with more than k, and with more than k + 4, full tiles.
        planes = _add_bits(of_token)
        for k in (0, 4):
            threshold = cutlass.min((lane // WARPS + k) * tile, (1 << COUNT_BITS) - 1)
            ctas += popc(_above(planes, threshold) & below)
    return warp_sum(ctas)


@cute.jit
def permute(
    metadata: Int64, members: Pointer, row: Int32, pick: Int32, lane: Int32, expert: Int32, offset: Int32,
    count: Int32, tile: Int32, tokens: Int32,
) -> None:  # fmt: skip
    """M1-M3, M6, M7 for one pick of one token, by a warp."""
    local = expert - offset
    is_local = Uint32(local) < Uint32(count)
    of_token = shared_load(members + (expert >> 5) * MAX_TOKENS + lane % MAX_TOKENS)
    cta0 = count_ctas(members, lane, expert, tile, tokens)
    pickers = ballot(((of_token >> Uint32(expert % WARP)) & 1) != 0) & ((1 << MAX_TOKENS) - 1)
    hits, earlier = popc(pickers), popc(pickers & low_bits(row))
    first = cta0 * tile
    # M6, M7: the route, and the row of its token
    routed = first + earlier
    permuted = metadata + WORD * META_PERMUTED_TO_TOKEN
    routes = metadata + WORD * META_EXPANDED_TO_PERMUTED
    store(routes + WORD * Int64(row * TOP_K + pick), Int32(select_(is_local, routed, Int32(-1))), lane == 0)
    store(permuted + WORD * Int64(routed), row, is_local & (lane == 0))
    if is_local & (earlier == 0):
        # M2, M3
        opens = lane * tile < hits
        entry = metadata + WORD * Int64(cta0 + lane)
        store(entry + WORD * META_CTA_BATCH, local, opens)
        store(entry + WORD * META_CTA_LIMIT, first + cutlass.min((lane + 1) * tile, hits), opens)
        # M7: the rows of padding
        end = first + popc(ballot(opens)) * tile
        for begin in cutlass.range(first + hits + lane, end, PAD_STORES * WARP, unroll=1):
            at = permuted + WORD * Int64(begin)
            for i in cutlass.range_constexpr(PAD_STORES):
                store(at + i * WARP * WORD, Int32(-1), begin + i * WARP < end)


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
    row = cute.arch.block_idx()[0]
    lane, warp = thread % WARP, thread // WARP
    entries = cute.arch.alloc_smem(Uint64, WARP, 16)
    picks = cute.arch.alloc_smem(Uint64, TOP_K, 16)
    picked = cute.arch.alloc_smem(Float32, TOP_K, 16)
    if cutlass.const_expr(metadata is not None):
        members = cute.arch.alloc_smem(Uint32, WARPS * MAX_TOKENS, 16)
        arrived = cute.arch.alloc_smem(Uint64, 1, 8)
    if warp < WARPS:
        bias_value = load(bias.toint() + WORD * Int64(thread))
        start = settled(logits.toint() + WORD * (Int64(row) * row_stride + thread))
        dependency_wait()
        logit = load(start)
        # What follows takes less time than the logit, which arrives meanwhile.
        if cutlass.const_expr(metadata is not None):
            cluster_arrive()
            is_local = Uint32(thread - offset) < Uint32(count)
            peer = cutlass.min(lane, tokens - 1)
            there = in_cta(members + warp * MAX_TOKENS + row, peer)
            there_arrived = in_cta(arrived, peer)
            cluster_wait()
        elif (thread >= sum(CANDIDATES)) & (thread < WARP):
            (entries + thread).store(Uint64(0))
        scored = score(logit)
        key = ordered_key(add_rn(scored, bias_value))
        select(key, scored, thread, entries, picks, picked)
        cute.arch.sync_threads()
        if cutlass.const_expr(metadata is None):
            if lane == 0:
                weigh(warp, row, ids, weights, scale, picks, picked, renormalize)
        else:
            # An expert is picked if it is no worse than the last pick.
            last = shared_load_2(picks + (TOP_K - 1))
            expert = _expert(picks, warp)
            after = Uint32(NUM_EXPERTS - 1 - thread)
            is_picked = (key > last[1]) | ((key == last[1]) & (after >= last[0]))
            send(there, ballot(is_picked & is_local), there_arrived, lane < tokens)
            wait_bytes(arrived)
            permute(metadata.toint(), members, row, warp, lane, expert, offset, count, tile, tokens)
    elif cutlass.const_expr(metadata is not None):
        # One more warp, whose work is not on the way of the others.
        dependency_wait()
        if lane == 0:
            start_barrier(arrived)
            expect_bytes(arrived, tokens * (WORD * WARPS))
        cluster_arrive()
        for i in cutlass.range_constexpr(WARPS * MAX_TOKENS // WARP):
            if (lane + i * WARP) % MAX_TOKENS >= tokens:
                (members + lane + i * WARP).store(Uint32(0))
        if lane >= sum(CANDIDATES):
            (entries + lane).store(Uint64(0))
        cluster_wait()
        for _ in cutlass.range_constexpr(SELECT_BARRIERS):
            cute.arch.sync_threads()
        if lane < TOP_K:
            weigh(lane, row, ids, weights, scale, picks, picked, renormalize)
        if row == 0:
            # M4, M5
            wait_bytes(arrived)
            num_ctas = count_ctas(members, lane, Int32(NUM_EXPERTS), tile, tokens)
            if lane == 0:
                store_2(metadata.toint() + WORD * META_PADDED_TOKENS, num_ctas * tile, num_ctas)


def threads(metadata: bool) -> int:
    """Return the threads of a CTA: one an expert, and with metadata one more warp."""
    return NUM_EXPERTS + WARP * metadata


@cute.jit
def launch(
    logits: Pointer, row_stride: Int64, bias: Pointer, ids: Pointer, weights: Pointer, tokens: Int32,
    scale: Float32, metadata: Any, offset: Int32, count: Int32, tile: Int32, stream: Any,
    renormalize: Constexpr, early_dependents: Constexpr,
) -> None:  # fmt: skip
    """Launch the kernel on a stream; ``metadata`` is a pointer, or None for the variant without it."""
    has_metadata = cutlass.const_expr(metadata is not None)
    grid = (tokens, 1, 1)
    routing(
        logits, row_stride, bias, ids, weights, tokens, scale, metadata, offset, count, tile, renormalize,
        early_dependents,
    ).launch(
        grid=grid, block=(threads(has_metadata), 1, 1), cluster=grid if has_metadata else None, stream=stream,
        use_pdl=True,
    )  # fmt: skip


def _expert(picks: Pointer, pick: Int32) -> Int32:
    """Return the expert of a pick from its entry."""
    return NUM_EXPERTS - 1 - Int32(shared_load(picks + pick))


def _add_bits(words: tuple[Uint32, ...]) -> list[Uint32]:
    """Add eight words bit by bit: in the sum of their bits i, bit i of word p of the four returned is 2^p."""
    columns = [list(words), [], [], []]
    for here, above in zip(columns, [*columns[1:], []], strict=True):
        while len(here) > 1:
            a, b, c = here.pop(0), here.pop(0), here.pop(0) if here else Uint32(0)
            here.append(a ^ b ^ c)
            above.append((a & b) | (c & (a | b)))
    return [words[0] for words in columns]


def _any_bits(words: tuple[Uint32, ...]) -> Uint32:
    """Return the bits that any of the words has."""
    while len(words) > 1:
        words = [a | b for a, b in zip(words[::2], words[1::2], strict=True)]
    return words[0]


def _above(planes: list[Uint32], number: Int32) -> Uint32:
    """Return the bits i whose sums, the words of `_add_bits`, exceed a number of as many binary digits."""
    above = Uint32(0)
    for digit, plane in enumerate(planes):
        is_clear = Uint32((number >> digit) & 1) - 1
        above = (above & plane) | (is_clear & (above | plane))
    return above


def _choose(condition: Boolean, word: Uint32, otherwise: Uint32) -> Uint32:
    return Uint32(select_(condition, word, otherwise))


def _bytes(values: tuple[int, ...]) -> Uint32:
    return Uint32(int.from_bytes(bytes(values), "little"))
