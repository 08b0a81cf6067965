"""The kernel in Gluon: one program of eight warps, a warp a token row, a lane eight neighbouring experts.

The stages carry the names of the specification: score, select, weigh, permute. Gluon, not plain Triton, since
the layout is the algorithm: with a row in one warp, its maximum is a warp reduction and needs no barrier.
Compiled with ``enable_fp_fusion=False``, every float add and multiply below is ``.rn`` (A1, A2).
"""
# Triton's language has no starred expressions, so tuples grow by concatenation.
# ruff: noqa: RUF005

import struct

import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from spec import constants, layout

WARPS = constants.MAX_TOKENS

TOKENS: gl.constexpr = gl.constexpr(constants.MAX_TOKENS)
EXPERTS: gl.constexpr = gl.constexpr(constants.NUM_EXPERTS)
TOP_K: gl.constexpr = gl.constexpr(constants.TOP_K)
SUM_EPSILON: gl.constexpr = gl.constexpr(constants.SUM_EPSILON)
NEG_LOG2E: gl.constexpr = gl.constexpr(struct.unpack("f", struct.pack("I", constants.NEG_LOG2E_BITS))[0])
LANES: gl.constexpr = gl.constexpr(32)
# Expert e is place e & 7 of lane e >> 3. What is counted for a lane's experts is one word, four bits a place.
PLACES: gl.constexpr = gl.constexpr(8)
PLACE_BITS: gl.constexpr = gl.constexpr(3)
REMOVED: gl.constexpr = gl.constexpr(-(1 << 31))

PADDED_TOKENS: gl.constexpr = gl.constexpr(layout.META_PADDED_TOKENS)
NUM_CTAS: gl.constexpr = gl.constexpr(layout.META_NUM_CTAS)
CTA_BATCH: gl.constexpr = gl.constexpr(layout.META_CTA_BATCH)
CTA_LIMIT: gl.constexpr = gl.constexpr(layout.META_CTA_LIMIT)
EXPANDED_TO_PERMUTED: gl.constexpr = gl.constexpr(layout.META_EXPANDED_TO_PERMUTED)
PERMUTED_TO_TOKEN: gl.constexpr = gl.constexpr(layout.META_PERMUTED_TO_TOKEN)

# [token, expert]: two 16-byte loads a lane.
ROWS: gl.constexpr = gl.constexpr(gl.BlockedLayout([1, 8], [1, 32], [8, 1], [1, 0]))
# [token, other token, lane]: a warp a token, the other tokens in registers.
CUBE: gl.constexpr = gl.constexpr(gl.BlockedLayout([1, 8, 1], [1, 1, 32], [8, 1, 1], [2, 1, 0]))
# [token, lane]: one value a thread.
WARP: gl.constexpr = gl.constexpr(gl.SliceLayout(1, CUBE.value))
# [other token, lane]: all of it in every warp.
OTHERS: gl.constexpr = gl.constexpr(gl.SliceLayout(0, CUBE.value))
# [lane], the same in every warp.
LANE: gl.constexpr = gl.constexpr(gl.SliceLayout(0, WARP.value))
# [permuted row]: 16-byte stores.
FILL: gl.constexpr = gl.constexpr(gl.BlockedLayout([4], [32], [8], [0]))
FILL_ROWS: gl.constexpr = gl.constexpr(4 * 32 * WARPS)

# Batcher's odd-even merge sort of eight.
NETWORK: gl.constexpr = gl.constexpr((
    (0, 1), (2, 3), (4, 5), (6, 7), (0, 2), (1, 3), (4, 6), (5, 7), (1, 2), (5, 6),
    (0, 4), (1, 5), (2, 6), (3, 7), (2, 4), (3, 5), (1, 2), (3, 4), (5, 6),
))  # fmt: skip
COMPARATORS: gl.constexpr = gl.constexpr(len(NETWORK.value))


@gluon.jit
def ex2_approx_ftz(x):
    """A5."""
    return gl.inline_asm_elementwise(
        "ex2.approx.ftz.f32 $0, $1;", "=r,r", [x], dtype=gl.float32, is_pure=True, pack=1
    )


@gluon.jit
def rcp_approx(x):
    """A6."""
    return gl.inline_asm_elementwise(
        "rcp.approx.ftz.f32 $0, $1;", "=r,r", [x], dtype=gl.float32, is_pure=True, pack=1
    )


@gluon.jit
def shuffle(value, source):
    """Give each lane the value that lane `source` (modulo 32) of its warp holds."""
    return gl.inline_asm_elementwise(
        "shfl.sync.idx.b32 $0, $1, $2, 31, -1;", "=r,r,r", [value, source],
        dtype=value.dtype, is_pure=True, pack=1,
    )  # fmt: skip


@gluon.jit
def ballot(a, b):
    """Give the lanes of a warp a word with a bit for each of them whose `a` equals its `b`."""
    return gl.inline_asm_elementwise(
        "{ .reg .pred p; setp.eq.s32 p, $1, $2; vote.sync.ballot.b32 $0, p, -1; }", "=r,r,r", [a, b],
        dtype=gl.int32, is_pure=True, pack=1,
    )  # fmt: skip


@gluon.jit
def lowest_bit(word):
    """Find the place of the lowest bit that is set."""
    return gl.inline_asm_elementwise(
        "{ .reg .b32 r; brev.b32 r, $1; bfind.shiftamt.u32 $0, r; }", "=r,r", [word],
        dtype=gl.int32, is_pure=True, pack=1,
    )  # fmt: skip


@gluon.jit
def as_warp(x):
    """Name the layout of a `[8, 32]` tensor; no data moves."""
    return gl.convert_layout(x, WARP, assert_trivial=True)


@gluon.jit
def as_lane(x):
    """Name the layout of a `[32]` tensor and let it broadcast over tokens; no data moves."""
    return gl.convert_layout(x, LANE, assert_trivial=True)[None, :]


@gluon.jit
def split_places(x):
    """Split `[8, 256]` into the eight places of each lane: a tuple of `[8, 32]`; no data moves."""
    even, odd = gl.split(x.reshape([TOKENS, LANES, 2, 2, 2]))
    x04, x26 = gl.split(even)
    x15, x37 = gl.split(odd)
    x0, x4 = gl.split(x04)
    x1, x5 = gl.split(x15)
    x2, x6 = gl.split(x26)
    x3, x7 = gl.split(x37)
    return (
        as_warp(x0), as_warp(x1), as_warp(x2), as_warp(x3),
        as_warp(x4), as_warp(x5), as_warp(x6), as_warp(x7),
    )  # fmt: skip


@gluon.jit
def score(logits):
    """R1, A7, in the unit's own operations, with the bits that A3 and A4 would give.

    A3 treats powers below 2^-126 apart, and A5 makes them +0: added to 1 they vanish either way. A4 scales
    divisors above 2^126 by 1/4; here every sum is, which is exact, since no sum is below 1. The reciprocal of
    a quarter is in A6's reach and has the fraction that the sum's has. A quarter of it is A4's product: exact
    down to 2^-126, and below that A4 multiplies, and rounds, the same.
    """
    return rcp_approx((ex2_approx_ftz(logits * NEG_LOG2E) + 1.0) * 0.25) * 0.25


@gluon.jit
def ordered_key(key):
    """R2: the int32 that orders as the float32 key does, NaN (0x7fffffff) above all.

    No key is -0.0, since no score is, so the two zeros need no care; and none maps to `REMOVED`.
    """
    bits = key.to(gl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@gluon.jit
def exchange(items, i: gl.constexpr, j: gl.constexpr):
    """Put the larger of items i and j, i < j, at i and the other at j."""
    # One comparison for both: a maximum and a minimum would be two.
    high, low = gl.inline_asm_elementwise(
        "{ .reg .pred p; setp.gt.s64 p, $2, $3; selp.b64 $0, $2, $3, p; selp.b64 $1, $3, $2, p; }",
        "=l,=l,l,l", [items[i], items[j]], dtype=(gl.int64, gl.int64), is_pure=True, pack=1,
    )  # fmt: skip
    return items[:i] + (high,) + items[i + 1 : j] + (low,) + items[j + 1 :]


@gluon.jit
def sort_places(keys):
    """R3: sort the eight keys of each lane, largest first, among equals the lowest expert first.

    Returns the sorted keys and a word of the places they came from.
    """
    items = ()
    for i in gl.static_range(PLACES):
        # The place below the key breaks ties, and comes along.
        items = items + ((keys[i].to(gl.int64) << 32) | (PLACES - 1 - i),)
    for k in gl.static_range(COMPARATORS):
        items = exchange(items, NETWORK[k][0], NETWORK[k][1])
    heads = ()
    places = gl.full([TOKENS, LANES], 0, gl.int32, WARP)
    for i in gl.static_range(PLACES):
        heads = heads + ((items[i] >> 32).to(gl.int32),)
        places = places | ((PLACES - 1 - items[i].to(gl.int32)) << (4 * i))
    return heads, places


@gluon.jit
def select(keys):
    """R3, R4: eight rounds, each takes the best head of the 32 sorted lanes.

    Returns the ids, pick j in lane j (0 in lanes past 7), and a word of what each lane's experts were picked.
    """
    lane = gl.arange(0, LANES, LANE)[None, :]
    below = (1 << lane) - 1
    heads, places = sort_places(keys)
    ids = gl.full([TOKENS, LANES], 0, gl.int32, WARP)
    picked = gl.full([TOKENS, LANES], 0, gl.int32, WARP)
    for j in gl.static_range(TOP_K):
        place = places & (PLACES - 1)
        best = gl.max(heads[0], axis=1)[:, None]
        equal = ballot(heads[0], best)
        won = (heads[0] == best) & ((equal & below) == 0)
        pick = shuffle((lane << PLACE_BITS) + place, lowest_bit(equal))
        ids = gl.where(lane == j, pick, ids)
        picked = gl.where(won, picked | (1 << (4 * place)), picked)
        # The winner's next key becomes its head. Only the first 7 - j can still matter.
        places = gl.where(won, places >> 4, places)
        behind = heads[1:] + (gl.full([TOKENS, LANES], REMOVED, gl.int32, WARP),)
        rest = ()
        for i in gl.static_range(TOP_K - 1 - j):
            rest = rest + (gl.where(won, behind[i], heads[i]),)
        heads = rest
    return ids, picked


@gluon.jit
def weigh(scores, ids, scale, renormalize: gl.constexpr):
    """R5, R6: the weight of pick j in lane j.

    A sum of eight scores and the epsilon lies in 1e-15 .. 9, where A4 is a product with A6.
    """
    parts = split_places(scores)
    place = ids & (PLACES - 1)
    picked = shuffle(parts[0], ids >> PLACE_BITS)
    for i in gl.static_range(1, PLACES):
        picked = gl.where(place == i, shuffle(parts[i], ids >> PLACE_BITS), picked)
    inverse = scale
    if renormalize:
        total = gl.full([TOKENS, LANES], 0.0, gl.float32, WARP)
        for j in gl.static_range(TOP_K):
            total = total + shuffle(picked, j)
        inverse = rcp_approx(total + SUM_EPSILON) * scale
    return picked * inverse


@gluon.jit
def word_sum(x):
    """Sum the eight fields of each word; at most 64, the CTAs that there can be."""
    return (((x & 0x0F0F0F0F) + ((x >> 4) & 0x0F0F0F0F)) * 0x01010101) >> 24


@gluon.jit
def warp_scan(x):
    """Sum each lane's value and those of the lanes below it."""
    lane = gl.arange(0, LANES, x.type.layout)
    for k in gl.static_range(5):
        x = x + gl.where(lane >= (1 << k), shuffle(x, lane - (1 << k)), 0)
    return x


@gluon.jit
def local_places(offset, count):
    """M1: a word with all bits of the experts that are this rank's."""
    first = gl.arange(0, LANES, LANE)[None, :] << PLACE_BITS
    low = gl.minimum(gl.maximum(offset - first, 0), PLACES).to(gl.int64)
    high = gl.minimum(gl.maximum(offset + count - first, 0), PLACES).to(gl.int64)
    one = gl.full([1, LANES], 1, gl.int64, WARP)
    return ((one << (4 * high)) - (one << (4 * low))).to(gl.int32)


@gluon.jit
def fill(rows, padded):
    """M7: make every row a padding row, 16 bytes a store as far as that goes."""
    whole = (padded >> 2) * 4
    index = gl.arange(0, FILL_ROWS, FILL)
    for start in range(0, whole, FILL_ROWS):
        gl.store(rows + start + index, gl.full([FILL_ROWS], -1, gl.int32, FILL), mask=start + index < whole)
    last = whole + gl.arange(0, LANES, LANE)
    gl.store(rows + last, gl.full([LANES], -1, gl.int32, LANE), mask=last < padded)


@gluon.jit
def permute(ids, picked, metadata, b, offset, count, tile):
    """M1-M8."""
    token = gl.arange(0, TOKENS, gl.SliceLayout(1, WARP))[:, None]
    lane = gl.arange(0, LANES, LANE)[None, :]

    # M1: tokens of each expert, all and earlier ones, from the words of all warps.
    words = gl.where(token < b, picked & local_places(offset, count), 0)
    others = gl.convert_layout(words, OTHERS)
    counts = gl.sum(others, axis=0)
    other = gl.arange(0, TOKENS, gl.SliceLayout(1, OTHERS))[:, None]
    earlier = gl.sum(gl.where(other[None, :, :] < token[:, None, :], others[None, :, :], 0), axis=1)

    # Pick j of a token is in lane j. What is known of its expert lies in the expert's lane, at its place.
    home = ids >> PLACE_BITS
    shift = 4 * (ids & (PLACES - 1))
    rank = (shuffle(earlier, home) >> shift) & 15

    # M1: an expert has a CTA for every multiple of the tile below its count; and which of them a route is in.
    ctas = gl.full([LANES], 0, gl.int32, gl.SliceLayout(0, OTHERS))
    cta_in_expert = gl.full([TOKENS, LANES], -1, gl.int32, WARP)
    for start in range(0, TOKENS, tile):
        ctas = ctas + (((counts + (TOKENS - 1 - start) * 0x11111111) >> 3) & 0x11111111)
        cta_in_expert = cta_in_expert + (rank >= start).to(gl.int32)
    lane_ctas = word_sum(ctas)
    lane_cta0 = warp_scan(lane_ctas) - lane_ctas

    # M4, M5.
    num_ctas = gl.sum(lane_ctas, axis=0)
    padded = num_ctas * tile
    gl.store(metadata + NUM_CTAS, num_ctas)
    gl.store(metadata + PADDED_TOKENS, padded)
    fill(metadata + PERMUTED_TO_TOKEN, padded)

    # M6: the row of each route.
    cta0 = shuffle(as_lane(lane_cta0), home) + word_sum(shuffle(as_lane(ctas), home) & ((1 << shift) - 1))
    row = cta0 * tile + rank
    expert = ids - offset
    is_route = (token < b) & (lane < TOP_K)
    is_local = is_route & (expert >= 0) & (expert < count)
    route = token * TOP_K + lane
    gl.store(metadata + EXPANDED_TO_PERMUTED + route, gl.where(is_local, row, -1), mask=is_route)

    # M2, M3: the first route of a CTA writes the CTA's entry.
    cta = cta0 + cta_in_expert
    limit = cta0 * tile + ((shuffle(as_lane(counts), home) >> shift) & 15)
    is_first = is_local & (rank == cta_in_expert * tile)
    gl.store(metadata + CTA_BATCH + cta, expert, mask=is_first)
    gl.store(metadata + CTA_LIMIT + cta, gl.minimum((cta + 1) * tile, limit), mask=is_first)

    # M7: the barrier keeps another thread's padding from landing on top of a token.
    tl.debug_barrier()
    gl.store(metadata + PERMUTED_TO_TOKEN + row, token, mask=is_local)


@gluon.jit
def route_kernel(
    logits, bias, ids, weights, metadata, b, stride4, scale, offset, count, tile,
    with_metadata: gl.constexpr, renormalize: gl.constexpr, early_dependents: gl.constexpr,
):  # fmt: skip
    """Route b tokens; `stride4` is the row stride of the logits in units of four elements, or 16 bytes.

    The bias is read before the wait for the preceding kernel, everything else is read and written after it.
    """
    if early_dependents:
        tl.extra.cuda.gdc_launch_dependents()
    token = gl.arange(0, TOKENS, gl.SliceLayout(1, ROWS))[:, None]
    expert = gl.arange(0, EXPERTS, gl.SliceLayout(0, ROWS))[None, :]
    correction = gl.load(bias + expert)
    tl.extra.cuda.gdc_wait()
    row = logits + (token.to(gl.int64) * stride4) * 4
    scores = score(gl.load(row + expert, mask=token < b, other=0.0))

    picks, picked = select(split_places(ordered_key(scores + correction)))
    weighed = weigh(scores, picks, scale, renormalize)

    token = gl.arange(0, TOKENS, gl.SliceLayout(1, WARP))[:, None]
    lane = gl.arange(0, LANES, LANE)[None, :]
    is_route = (token < b) & (lane < TOP_K)
    gl.store(ids + token * TOP_K + lane, picks, mask=is_route)
    gl.store(weights + token * TOP_K + lane, weighed, mask=is_route)
    if with_metadata:
        permute(picks, picked, metadata, b, offset, count, tile)
