// M1-M8 for one problem, worked out route by route: nothing is scanned and no expert is counted, so that it shares no
// idea with `spec.permutation`, which it is tested against.
#pragma once
#include "generated.h"
#include "portable.h"

// A rank's experts.
struct Experts {
    int offset, count;
};

// A rank's experts and the GEMM's token tile.
struct Range {
    int offset, count, tile;
};

// What the words of one metadata buffer follow from. Route r = 8 t + j; `lead` is the earliest route of its expert.
struct Permutation {
    int expert[MAX_CTAS];   // local index, or -1
    int lead[MAX_CTAS];
    int rank[MAX_CTAS];     // earlier tokens that picked the expert
    int hits[MAX_CTAS];     // all tokens that picked it
    int cta0[MAX_CTAS];
    int member[MAX_CTAS][MAX_TOKENS];  // the tokens of a lead's expert
    int owner[MAX_CTAS];    // the lead whose CTA it is
    int ctas;
};

BOTH int ceiling(int hits, int tile) { return (hits + tile - 1) / tile; }

// The three steps below are each run for every route r, with a barrier in between.
BOTH void find_expert(Permutation& p, const int* ids, const Range& range, int r) {
    int e = ids[r] - range.offset;
    p.expert[r] = e >= 0 && e < range.count ? e : -1;
}

BOTH void find_rank(Permutation& p, int routes, int r) {
    int lead = r, rank = 0, hits = 0;
    for (int other = routes - 1; other >= 0; --other) {
        if (p.expert[other] != p.expert[r]) continue;
        lead = other;
        rank += other < r;
        hits += 1;
    }
    p.lead[r] = lead, p.rank[r] = rank, p.hits[r] = hits;
    if (p.expert[r] >= 0) p.member[lead][rank] = r / int(TOP_K);  // a token picks an expert once: rank < MAX_TOKENS
}

BOTH void find_ctas(Permutation& p, const Range& range, int routes, int r) {
    int before = 0, all = 0;
    for (int other = 0; other < routes; ++other) {
        if (p.expert[other] < 0 || p.lead[other] != other) continue;
        int n = ceiling(p.hits[other], range.tile);
        all += n;
        if (p.expert[other] < p.expert[r]) before += n;
    }
    p.cta0[r] = before;
    if (r == 0) p.ctas = all;
    if (p.expert[r] < 0 || p.lead[r] != r) return;
    for (int c = before; c < before + ceiling(p.hits[r], range.tile); ++c) p.owner[c] = r;
}

// Word i of the buffer; POISON_WORD where nothing is written (M8).
BOTH uint32_t word(const Permutation& p, const Range& range, int routes, int i) {
    if (i >= int(META_PERMUTED_TO_TOKEN)) {  // M7
        int row = i - int(META_PERMUTED_TO_TOKEN), c = row / range.tile;
        if (c >= p.ctas) return POISON_WORD;
        int lead = p.owner[c], rank = row - p.cta0[lead] * range.tile;
        return uint32_t(rank < p.hits[lead] ? p.member[lead][rank] : -1);
    }
    if (i >= int(META_EXPANDED_TO_PERMUTED)) {  // M6
        int r = i - int(META_EXPANDED_TO_PERMUTED);
        if (r >= routes) return POISON_WORD;
        int lead = p.lead[r];
        return uint32_t(p.expert[r] < 0 ? -1 : p.cta0[lead] * range.tile + p.rank[r]);
    }
    if (i >= int(META_CTA_LIMIT)) {  // M3
        int c = i - int(META_CTA_LIMIT);
        if (c >= p.ctas) return POISON_WORD;
        int lead = p.owner[c], end = (c + 1) * range.tile, filled = p.cta0[lead] * range.tile + p.hits[lead];
        return uint32_t(end < filled ? end : filled);
    }
    if (i >= int(META_CTA_BATCH)) {  // M2
        int c = i - int(META_CTA_BATCH);
        return c < p.ctas ? uint32_t(p.expert[p.owner[c]]) : POISON_WORD;
    }
    if (i == int(META_NUM_CTAS)) return uint32_t(p.ctas);                       // M4
    if (i == int(META_PADDED_TOKENS)) return uint32_t(p.ctas * range.tile);     // M5
    return POISON_WORD;
}
