// A1-A8 in C++: the model that `spec.arithmetic` states, for the card to be held against on every input.
#pragma once
#include "generated.h"
#include "portable.h"

// The special function unit's integers, as `spec.arithmetic` holds them, of each segment: C0 * 2^13 + bias +
// origin * 2^15, where the result bits are origin + y; C1; C2.
struct Unit {
    int64_t ex2[3][64];
    int64_t rcp[3][128];
};

constexpr uint32_t FRACTION = 0x007fffffu, EXPONENT = 0x7f800000u, SIGN = 0x80000000u;
constexpr uint32_t ONE = 0x3f800000u, LEAST_NORMAL = 0x00800000u, TWO_TO_126 = 0x7e800000u;

// A8
BOTH float canonical(float x) { return x != x ? float_of(NAN_BITS) : x; }

// A1, A2: the compiler is told not to contract them.
BOTH float mul_rn(float a, float b) { return canonical(a * b); }
BOTH float add_rn(float a, float b) { return canonical(a + b); }

// sq(z): the partial products z_i z_j of z*z that reach column 2^14 once the equal pairs are folded together.
BOTH uint32_t folded_square(uint32_t z) {
    uint32_t sum = 0;
    for (int i = 0; i < 15; ++i) {
        int lowest = i + 1 > 14 - i ? i + 1 : 14 - i;
        uint32_t partners = (z >> lowest) << lowest;
        uint32_t own = i >= 8 ? 1u << (2 * i - 15) : 0u;
        if (z >> i & 1) sum += own + ((partners << i) >> 14);
    }
    return sum;
}

template <int SEGMENTS>
BOTH uint32_t interpolate(const int64_t (&c)[3][SEGMENTS], uint32_t fraction, int shift) {
    uint32_t segment = fraction >> shift, k = fraction & ((1u << shift) - 1);
    int64_t y = c[0][segment] + c[1][segment] * k + c[2][segment] * folded_square(k >> (shift - 15));
    return uint32_t(y >> 15);
}

// A5
BOTH float ex2_approx_ftz(const Unit& unit, float x) {
    if (x != x) return float_of(NAN_BITS);
    if (x >= 128.0f) return float_of(EXPONENT);
    if (x <= -127.0f) return 0.0f;
    uint32_t fixed = uint32_t((x < 0 ? -x : x) * 8388608.0f);
    int32_t n = int32_t(fixed >> 23);
    uint32_t f = fixed & FRACTION;
    if (x < 0) {
        n = f ? -n - 1 : -n;
        f = f ? ~f & FRACTION : 0;
    }
    int32_t word = int32_t(interpolate(unit.ex2, f, 17)) + n * int32_t(LEAST_NORMAL);
    return float_of(word < int32_t(LEAST_NORMAL) ? 0u : uint32_t(word));
}

// A6
BOTH float rcp_approx(const Unit& unit, float x) {
    uint32_t word = bits_of(x), sign = word & SIGN;
    if (x != x) return float_of(NAN_BITS);
    if ((word & EXPONENT) == 0) return float_of(sign | EXPONENT);
    if ((word & EXPONENT) == EXPONENT) return float_of(sign);
    int32_t y = int32_t(interpolate(unit.rcp, word & FRACTION, 16)) - int32_t(word & EXPONENT);
    return float_of(sign | (y < int32_t(LEAST_NORMAL) ? 0u : uint32_t(y)));
}

// A3
BOTH float ex2_approx(const Unit& unit, float x) {
    if (!(x < -126.0f)) return ex2_approx_ftz(unit, x);
    float t = ex2_approx_ftz(unit, mul_rn(x, 0.5f));
    return mul_rn(t, t);
}

// A4
BOTH float div_full(const Unit& unit, float a, float b) {
    float magnitude = float_of(bits_of(b) & ~SIGN);
    float factor = magnitude > 0x1p126f ? 0.25f : magnitude < 0x1p-126f ? 0x1p24f : 1.0f;
    return mul_rn(rcp_approx(unit, mul_rn(b, factor)), mul_rn(a, factor));
}

// A7
BOTH float sigmoid(const Unit& unit, float x) {
    return div_full(unit, 1.0f, add_rn(ex2_approx(unit, mul_rn(x, float_of(NEG_LOG2E_BITS))), 1.0f));
}
