"""The kernel in Gluon: one program of eight warps, one warp a token row, eight neighbouring experts a lane.

The stages carry the names of the specification: score, select, weigh, permute. Gluon, not plain Triton, because the
layout is the algorithm here: with a row in one warp, a row's maximum is one warp reduction and needs no barrier.
"""

import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from spec import constants, layout

ENTRY = "route_kernel"
WARPS = constants.MAX_TOKENS

TOKENS: gl.constexpr = gl.constexpr(constants.MAX_TOKENS)
EXPERTS: gl.constexpr = gl.constexpr(constants.NUM_EXPERTS)
TOP_K: gl.constexpr = gl.constexpr(constants.TOP_K)
MAX_TILE: gl.constexpr = gl.constexpr(constants.MAX_TILE)
EPSILON: gl.constexpr = gl.constexpr(constants.SUM_EPSILON)
NEG_LOG2E_BITS: gl.constexpr = gl.constexpr(constants.NEG_LOG2E_BITS - (1 << 32))
LANES: gl.constexpr = gl.constexpr(32)
PER_LANE: gl.constexpr = gl.constexpr(constants.NUM_EXPERTS // 32)

PADDED_TOKENS: gl.constexpr = gl.constexpr(layout.META_PADDED_TOKENS)
NUM_CTAS: gl.constexpr = gl.constexpr(layout.META_NUM_CTAS)
CTA_BATCH: gl.constexpr = gl.constexpr(layout.META_CTA_BATCH)
CTA_LIMIT: gl.constexpr = gl.constexpr(layout.META_CTA_LIMIT)
EXPANDED_TO_PERMUTED: gl.constexpr = gl.constexpr(layout.META_EXPANDED_TO_PERMUTED)
PERMUTED_TO_TOKEN: gl.constexpr = gl.constexpr(layout.META_PERMUTED_TO_TOKEN)

# [token, expert]: a warp a row, a lane eight neighbouring experts, so two 16-byte loads a lane.
ROWS: gl.constexpr = gl.constexpr(gl.BlockedLayout([1, 8], [1, 32], [8, 1], [1, 0]))
# [token, other token, lane]: a warp a token, the other tokens in registers.
CUBE: gl.constexpr = gl.constexpr(gl.BlockedLayout([1, 8, 1], [1, 1, 32], [8, 1, 1], [2, 1, 0]))
# [token, lane]: one value a thread.
LANE: gl.constexpr = gl.constexpr(gl.SliceLayout(1, CUBE.value))
# [other token, lane]: every warp holds all of it.
OTHERS: gl.constexpr = gl.constexpr(gl.SliceLayout(0, CUBE.value))
# [row of the permuted list]: 16-byte stores.
FILL: gl.constexpr = gl.constexpr(gl.BlockedLayout([4], [32], [8], [0]))

barrier = tl.debug_barrier


@gluon.jit
def ex2_approx(x):
    """A3."""
    return gl.inline_asm_elementwise("ex2.approx.f32 $0, $1;", "=r,r", [x], dtype=gl.float32, is_pure=True, pack=1)


@gluon.jit
def div_full(a, b):
    """A4, written out so that no constant operand becomes a multiplication by its reciprocal."""
    return gl.inline_asm_elementwise("div.full.f32 $0, $1, $2;", "=r,r,r", [a, b], dtype=gl.float32, is_pure=True,
                                     pack=1)


@gluon.jit
def shuffle(value, source):
    """Give every lane the value that lane `source` of its warp holds."""
    return gl.inline_asm_elementwise("shfl.sync.idx.b32 $0, $1, $2, 31, -1;", "=r,r,r", [value, source],
                                     dtype=value.dtype, is_pure=True, pack=1)


@gluon.jit
def by_register(x):
    """Split `[8, 256]` into the eight experts of each lane: eight `[8, 32]` tensors."""
    x = x.reshape([TOKENS, LANES, 2, 2, 2])
    a, b = gl.split(x)
    c, d = gl.split(a)
    e, f = gl.split(b)
    x0, x4 = gl.split(c)
    x2, x6 = gl.split(d)
    x1, x5 = gl.split(e)
    x3, x7 = gl.split(f)
    return (as_lane(x0), as_lane(x1), as_lane(x2), as_lane(x3), as_lane(x4), as_lane(x5), as_lane(x6), as_lane(x7))


@gluon.jit
def as_lane(x):
    """Name the layout of a `[8, 32]` tensor; no data moves."""
    return gl.convert_layout(x, LANE, assert_trivial=True)


@gluon.jit
def score(logits):
    """R1, A7."""
    neg_log2e = gl.to_tensor(NEG_LOG2E_BITS).to(gl.int32).to(gl.float32, bitcast=True)
    one = gl.full([TOKENS, EXPERTS], 1.0, gl.float32, ROWS)
    return div_full(one, ex2_approx(logits * neg_log2e) + 1.0)


@gluon.jit
def ordered_key(key):
    """R2: int32 that orders as the float32 key does, NaN (0x7fffffff) above all; -0.0 does not occur."""
    bits = key.to(gl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@gluon.jit
def exchange(items, i: gl.constexpr, j: gl.constexpr):
    """Compare-exchange: the larger of items i and j to place i."""
    return items[:i] + (gl.maximum(items[i], items[j]),) + items[i + 1:j] + (gl.minimum(items[i], items[j]),) + items[j + 1:]


@gluon.jit
def sort_lane(keys):
    """R3: sort the eight keys of each lane, largest first, among equals the lowest expert first.

    Returns the eight sorted keys and one word with the places they came from, four bits each.
    """
    items = ()
    for i in gl.static_range(PER_LANE):
        items = items + ((keys[i].to(gl.int64) << 32) | (PER_LANE - 1 - i),)
    # Batcher's odd-even merge sort of eight.
    for k in gl.static_range(4):
        items = exchange(items, 2 * k, 2 * k + 1)
    for k in gl.static_range(2):
        items = exchange(items, 4 * k, 4 * k + 2)
        items = exchange(items, 4 * k + 1, 4 * k + 3)
        items = exchange(items, 4 * k + 1, 4 * k + 2)
    for k in gl.static_range(4):
        items = exchange(items, k, k + 4)
    for k in gl.static_range(2):
        items = exchange(items, k + 2, k + 4)
    for k in gl.static_range(3):
        items = exchange(items, 2 * k + 1, 2 * k + 2)
    heads = ()
    places = gl.full([TOKENS, LANES], 0, gl.int32, LANE)
    for i in gl.static_range(PER_LANE):
        heads = heads + ((items[i] >> 32).to(gl.int32),)
        places = places | ((PER_LANE - 1 - items[i].to(gl.int32)) << (4 * i))
    return heads, places


@gluon.jit
def select(keys):
    """R3, R4: eight rounds, each takes the best head of the 32 sorted lanes.

    Returns the picked ids, pick j in lane j (other lanes hold 0), and the picked experts of each lane, four bits each.
    """
    lane = gl.arange(0, LANES, gl.SliceLayout(0, LANE))[None, :]
    heads, places = sort_lane(keys)
    ids = gl.full([TOKENS, LANES], 0, gl.int32, LANE)
    picked = gl.full([TOKENS, LANES], 0, gl.int32, LANE)
    for j in gl.static_range(TOP_K):
        best = gl.max(heads[0], axis=1)[:, None]
        place = places & 15
        candidate = gl.where(heads[0] == best, lane * PER_LANE + place, EXPERTS)
        pick = gl.min(candidate, axis=1)[:, None]
        won = candidate == pick
        ids = gl.where(lane == j, pick, ids)
        picked = gl.where(won, picked | (1 << (place * 4)), picked)
        places = gl.where(won, places >> 4, places)
        # A lane whose eight experts are all taken falls below every key.
        rest = heads[1:] + (gl.full([TOKENS, LANES], -0x80000000, gl.int32, LANE),)
        heads_next = ()
        for i in gl.static_range(TOP_K - 1 - j):
            heads_next = heads_next + (gl.where(won, rest[i], heads[i]),)
        heads = heads_next
    return ids, picked


@gluon.jit
def weigh(scores, ids, scale, RENORMALIZE: gl.constexpr):
    """R5, R6: the weight of pick j in lane j."""
    parts = by_register(scores)
    place = ids % PER_LANE
    source = ids // PER_LANE
    picked = shuffle(parts[0], source)
    for i in gl.static_range(1, PER_LANE):
        picked = gl.where(place == i, shuffle(parts[i], source), picked)
    if RENORMALIZE:
        total = gl.full([TOKENS, LANES], 0.0, gl.float32, LANE)
        for j in gl.static_range(TOP_K):
            total = total + shuffle(picked, gl.full([TOKENS, LANES], j, gl.int32, LANE))
        inverse = div_full(gl.full([TOKENS, LANES], scale, gl.float32, LANE), total + EPSILON)
    else:
        inverse = scale
    return picked * inverse


@gluon.jit
def nibble_sum(x):
    """Sum the eight four-bit fields of each word, at most 64 together."""
    return (((x & 0x0F0F0F0F) + ((x >> 4) & 0x0F0F0F0F)) * 0x01010101) >> 24


@gluon.jit
def lane_row(x):
    """Name the layout of a `[32]` tensor, one value a lane, so that it broadcasts over tokens; no data moves."""
    return gl.convert_layout(x, gl.SliceLayout(0, LANE), assert_trivial=True)[None, :]


@gluon.jit
def warp_scan(x):
    """Inclusive prefix sum over the 32 lanes of a warp."""
    lane = gl.arange(0, LANES, x.type.layout)
    for k in gl.static_range(5):
        x = x + gl.where(lane >= (1 << k), shuffle(x, lane - (1 << k)), 0)
    return x


@gluon.jit
def local_experts(offset, count):
    """M1: 0xf in the four bits of each of a lane's experts that is this rank's."""
    first = gl.arange(0, LANES, gl.SliceLayout(0, LANE)) * PER_LANE
    low = gl.minimum(gl.maximum(offset - first, 0), PER_LANE)
    high = gl.minimum(gl.maximum(offset + count - first, 0), PER_LANE)
    one = gl.full([LANES], 1, gl.int64, gl.SliceLayout(0, LANE))
    return ((one << (4 * high)) - (one << (4 * low))).to(gl.int32)


@gluon.jit
def permute(ids, picked, metadata, b, offset, count, tile):
    """M1-M8. Counts are four bits an expert, eight experts a word: a count is at most 8."""
    token = gl.arange(0, TOKENS, gl.SliceLayout(1, LANE))[:, None]
    lane = gl.arange(0, LANES, gl.SliceLayout(0, LANE))[None, :]
    local_mask = local_experts(offset, count)[None, :]
    words = gl.where(token < b, picked & local_mask, 0)
    others = gl.convert_layout(words, OTHERS)

    # M1: tokens of each expert, and those of earlier tokens.
    counts = gl.sum(others, axis=0)
    other = gl.arange(0, TOKENS, gl.SliceLayout(1, OTHERS))[:, None]
    before = gl.sum(gl.where(other[None, :, :] < token[:, None, :], others[None, :, :], 0), axis=1)

    # M1: CTAs of each expert: one for every multiple of the tile below its count.
    ctas = counts * 0
    for start in range(0, TOKENS, tile):
        ctas = ctas + (((counts + (7 - start) * 0x11111111) >> 3) & 0x11111111)
    lane_ctas = nibble_sum(ctas)
    cta0 = warp_scan(lane_ctas) - lane_ctas
    num_ctas = gl.sum(lane_ctas, axis=0)
    padded = num_ctas * tile

    # M7: every row is padding at first, 16 bytes a store as far as that goes.
    whole = (padded >> 2) * 4
    rows = metadata + PERMUTED_TO_TOKEN
    index = gl.arange(0, 4 * LANES * TOKENS, FILL)
    minus_one = gl.full([4 * LANES * TOKENS], -1, gl.int32, FILL)
    for start in range(0, whole, 4 * LANES * TOKENS):
        gl.store(rows + start + index, minus_one, mask=start + index < whole)
    # M5, M4 and the rows of the last, incomplete 16 bytes.
    small = gl.arange(0, LANES, gl.SliceLayout(0, LANE))
    gl.store(rows + whole + small, gl.full([LANES], -1, gl.int32, gl.SliceLayout(0, LANE)), mask=whole + small < padded)
    gl.store(metadata + PADDED_TOKENS, padded)
    gl.store(metadata + NUM_CTAS, num_ctas)

    # M6: the row of each route, route j of a token in lane j.
    source = ids // PER_LANE
    shift = (ids % PER_LANE) * 4
    cta0 = lane_row(cta0)
    ctas = lane_row(ctas)
    counts = lane_row(counts)
    first_cta = shuffle(cta0, source) + nibble_sum(shuffle(ctas, source) & ((1 << shift) - 1))
    rank = (shuffle(before, source) >> shift) & 15
    total = (shuffle(counts, source) >> shift) & 15
    row = first_cta * tile + rank
    expert = ids - offset
    route = (token < b) & (lane < TOP_K)
    local = route & (expert >= 0) & (expert < count)
    gl.store(metadata + EXPANDED_TO_PERMUTED + token * TOP_K + lane, gl.where(local, row, -1), mask=route)

    # M2, M3: the first route of a CTA writes the CTA's entry.
    reciprocal = MAX_TILE // tile + 1
    in_expert = (rank * reciprocal) >> 8
    cta = first_cta + in_expert
    leads = local & (rank == in_expert * tile)
    gl.store(metadata + CTA_BATCH + cta, expert, mask=leads)
    gl.store(metadata + CTA_LIMIT + cta, gl.minimum((cta + 1) * tile, first_cta * tile + total), mask=leads)

    # M7: the barrier keeps a padding store of another thread from landing on top of a token.
    barrier()
    gl.store(rows + row, token + lane * 0, mask=local)


@gluon.jit(
    do_not_specialize=["b", "stride4", "scale", "offset", "count", "tile"],
    do_not_specialize_on_alignment=["ids", "weights"],
)
def route_kernel(logits, bias, ids, weights, metadata, b, stride4: gl.int64, scale, offset, count, tile,
                 METADATA: gl.constexpr, RENORMALIZE: gl.constexpr):
    """Route b tokens; `stride4` is the row stride of the logits in units of four elements."""
    token = gl.arange(0, TOKENS, gl.SliceLayout(1, ROWS))[:, None]
    expert = gl.arange(0, EXPERTS, gl.SliceLayout(0, ROWS))
    bias_row = gl.load(bias + expert)[None, :]
    tl.extra.cuda.gdc_wait()
    row = logits + (token.to(gl.int64) * stride4) * 4
    x = gl.load(row + expert[None, :], mask=token < b, other=0.0)

    scores = score(x)
    keys = ordered_key(scores + bias_row)
    picks, picked = select(by_register(keys))
    weight = weigh(scores, picks, scale, RENORMALIZE)

    token = gl.arange(0, TOKENS, gl.SliceLayout(1, LANE))[:, None]
    lane = gl.arange(0, LANES, gl.SliceLayout(0, LANE))[None, :]
    route = token * TOP_K + lane
    mask = (token < b) & (lane < TOP_K)
    gl.store(ids + route, picks, mask=mask)
    gl.store(weights + route, weight, mask=mask)
    if METADATA:
        permute(picks, picked, metadata, b, offset, count, tile)
