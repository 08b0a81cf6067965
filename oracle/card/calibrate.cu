// Every input of the card's approximate instructions against the model of arithmetic.h; also the measured tables.
#include "arithmetic.h"

constexpr int EXAMPLES = 16;

// What one operation answered: how many inputs, how many differ, how many results were NaN, and the first that differ.
struct Report {
    uint64_t tested, mismatches, nans;
    uint32_t example[EXAMPLES][4];  // a, b (0 for one operand), measured, expected
};

enum Operation { EX2_FTZ, EX2, RCP, SIGMOID, SHORT_SIGMOID, DIV, ADD, MUL };

BOTH float model(const Unit& unit, int operation, float a, float b) {
    switch (operation) {
        case EX2_FTZ: return ex2_approx_ftz(unit, a);
        case EX2: return ex2_approx(unit, a);
        case RCP: return rcp_approx(unit, a);
        case SIGMOID:
        case SHORT_SIGMOID: return sigmoid(unit, a);
        case DIV: return div_full(unit, a, b);
        // In float64 a product is exact and a sum loses too little for its second rounding to matter.
        case ADD: return canonical(float(double(a) + double(b)));
        default: return canonical(float(double(a) * double(b)));
    }
}

BOTH uint32_t few_bits(uint64_t r) {
    uint32_t one = 1u << (r % 23);
    uint32_t patterns[] = {0, 1, FRACTION, FRACTION - 1, one, one - 1, FRACTION ^ one, 0x400000u};
    return patterns[r >> 8 & 7];
}

// Operand pair i of a seed: half raw bits, half aimed at the borders of range, scaling and rounding.
BOTH void operands(uint64_t seed, uint64_t i, uint32_t* a, uint32_t* b) {
    uint64_t r = mix(seed + 2 * i), s = mix(seed + 2 * i + 1);
    uint32_t x = uint32_t(r), y = uint32_t(r >> 32);
    uint32_t exponent;
    switch (i & 7) {
        case 4:  // divisors around 2^-126 and 2^126, where the scaling starts
            exponent = (s & 1) ? 250 + (s >> 1) % 5 : (s >> 1) % 5;
            y = (y & ~EXPONENT) | exponent << 23;
            break;
        case 5:  // quotients at both ends of the range, subnormal ones included
            exponent = y >> 23 & 255;
            exponent = exponent + ((s & 1) ? 122 + (s >> 1) % 12 : 256 - 155 + (s >> 1) % 32);
            x = (x & ~EXPONENT) | (exponent & 255) << 23;
            break;
        case 6: {  // zeros, subnormals, ones, infinities, NaN
            uint32_t special[] = {0, 1, 0x7fffff, LEAST_NORMAL, ONE, TWO_TO_126, 0x7f7fffff, EXPONENT,
                                  0x7f800001, 0x7fc00000, 0x7fffffff, 0x3f7fffff, 0x3f800001, 0x00ffffff, 0x7e7fffff, 0x7e800001};
            x = (x & SIGN) | ((s & 16) ? special[s & 15] : x & ~SIGN);
            y = (y & SIGN) | ((s & 32) ? special[s >> 8 & 15] : y & ~SIGN);
            break;
        }
        case 7:  // fractions at the borders of segments, exponents close together
            x = (x & SIGN) | (x & EXPONENT) | few_bits(s);
            y = (y & SIGN) | (((x >> 23) + (s >> 40) % 32 - 16) & 255) << 23 | few_bits(s >> 16);
            break;
        default: break;
    }
    *a = x;
    *b = y;
}

extern "C" void model_bits(const Unit* unit, int operation, const uint32_t* a, const uint32_t* b, uint32_t* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = bits_of(model(*unit, operation, float_of(a[i]), float_of(b[i])));
}

extern "C" void operand_bits(uint64_t seed, uint64_t first, uint32_t* a, uint32_t* b, int64_t n) {
    for (int64_t i = 0; i < n; ++i) operands(seed, first + i, a + i, b + i);
}

extern "C" int report_size() { return sizeof(Report); }

#ifdef __CUDACC__
#include <cstdio>

__device__ float measured(int operation, float a, float b) {
    float t, y;
    switch (operation) {
        case EX2_FTZ: asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(a)); break;
        case EX2: asm volatile("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(a)); break;
        case RCP: asm volatile("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(a)); break;
        case SIGMOID: {
            float one = 1.0f, log2e = float_of(NEG_LOG2E_BITS);
            asm volatile("mul.rn.f32 %0, %1, %2;" : "=f"(t) : "f"(a), "f"(log2e));
            asm volatile("ex2.approx.f32 %0, %1;" : "=f"(t) : "f"(t));
            asm volatile("add.rn.f32 %0, %1, %2;" : "=f"(t) : "f"(t), "f"(one));
            asm volatile("div.full.f32 %0, %1, %2;" : "=f"(y) : "f"(one), "f"(t));
            break;
        }
        case SHORT_SIGMOID: {  // every sum is scaled, so that no branch of A3 or A4 is left
            float one = 1.0f, quarter = 0.25f, log2e = float_of(NEG_LOG2E_BITS);
            asm volatile("mul.rn.f32 %0, %1, %2;" : "=f"(t) : "f"(a), "f"(log2e));
            asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(t) : "f"(t));
            asm volatile("add.rn.f32 %0, %1, %2;" : "=f"(t) : "f"(t), "f"(one));
            asm volatile("mul.rn.f32 %0, %1, %2;" : "=f"(t) : "f"(t), "f"(quarter));
            asm volatile("rcp.approx.ftz.f32 %0, %1;" : "=f"(t) : "f"(t));
            asm volatile("mul.rn.f32 %0, %1, %2;" : "=f"(y) : "f"(t), "f"(quarter));
            break;
        }
        case DIV: asm volatile("div.full.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b)); break;
        case ADD: asm volatile("add.rn.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b)); break;
        default: asm volatile("mul.rn.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b)); break;
    }
    return y;
}

__device__ void judge(const Unit& unit, int operation, uint32_t a, uint32_t b, Report* report, uint64_t* nans) {
    uint32_t got = bits_of(measured(operation, float_of(a), float_of(b)));
    uint32_t want = bits_of(model(unit, operation, float_of(a), float_of(b)));
    *nans += (got & ~SIGN) > EXPONENT;
    if (got == want) return;
    uint64_t place = atomicAdd((unsigned long long*)&report->mismatches, 1ull);
    if (place >= EXAMPLES) return;
    uint32_t* example = report->example[place];
    example[0] = a, example[1] = b, example[2] = got, example[3] = want;
}

template <int OPERATION>
__global__ void sweep_inputs(const Unit* global, uint64_t seed, uint64_t count, Report* report) {
    __shared__ Unit unit;
    for (uint32_t i = threadIdx.x; i < sizeof(Unit) / 8; i += blockDim.x) ((int64_t*)&unit)[i] = ((const int64_t*)global)[i];
    __syncthreads();
    uint64_t nans = 0;
    uint64_t step = uint64_t(gridDim.x) * blockDim.x;
    for (uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
        uint32_t a = uint32_t(i), b = ONE;
        if (OPERATION >= DIV) operands(seed, i, &a, &b);
        judge(unit, OPERATION, a, b, report, &nans);
    }
    atomicAdd((unsigned long long*)&report->nans, (unsigned long long)nans);
}

__global__ void measure_table(int operation, uint32_t base, uint32_t* out) {
    uint32_t m = blockIdx.x * blockDim.x + threadIdx.x;
    // base 1.0: the reciprocal of 1 + m/2^23; base 0 or -0: two to the plus or minus m/2^23.
    float x = base == ONE ? float_of(ONE + m) : float_of(base | bits_of(float(m) * 0x1p-23f));
    out[m] = bits_of(measured(operation, x, 0.0f));
}

__global__ void sum_sigmoid(unsigned long long* sums) {
    uint64_t sum = 0;
    for (uint32_t low = threadIdx.x + (blockIdx.x & 63) * blockDim.x; low < 1u << 24; low += 64 * blockDim.x) {
        uint32_t x = (blockIdx.x >> 6) << 24 | low;
        uint32_t y = bits_of(canonical(measured(SIGMOID, float_of(x), 1.0f)));
        sum += mix(uint64_t(x) << 32 | y);
    }
    atomicAdd(sums + (blockIdx.x >> 6), (unsigned long long)sum);
}

static int said(cudaError_t error, const char* what) {
    if (error != cudaSuccess) fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    return int(error);
}

#define TRY(call) \
    if (int error = said(call, #call)) return error

// Run one operation over `count` inputs on the current device. Returns 0, or the CUDA error it also prints.
extern "C" int calibrate(const Unit* unit, int operation, uint64_t seed, uint64_t count, Report* report) {
    Unit* card_unit;
    Report* card_report;
    TRY(cudaMalloc(&card_unit, sizeof(Unit)));
    TRY(cudaMalloc(&card_report, sizeof(Report)));
    TRY(cudaMemcpy(card_unit, unit, sizeof(Unit), cudaMemcpyHostToDevice));
    TRY(cudaMemset(card_report, 0, sizeof(Report)));
    void (*kernels[])(const Unit*, uint64_t, uint64_t, Report*) = {
        sweep_inputs<EX2_FTZ>,       sweep_inputs<EX2>, sweep_inputs<RCP>, sweep_inputs<SIGMOID>,
        sweep_inputs<SHORT_SIGMOID>, sweep_inputs<DIV>, sweep_inputs<ADD>, sweep_inputs<MUL>};
    kernels[operation]<<<132 * 8, 256>>>(card_unit, seed, count, card_report);
    TRY(cudaGetLastError());
    TRY(cudaDeviceSynchronize());
    TRY(cudaMemcpy(report, card_report, sizeof(Report), cudaMemcpyDeviceToHost));
    report->tested = count;
    TRY(cudaFree(card_unit));
    return said(cudaFree(card_report), "cudaFree");
}

// The 2^23 results of `rcp.approx.ftz(1 + m/2^23)` (base 1.0) or `ex2.approx.ftz(+-m/2^23)` (base +-0).
extern "C" int measured_table(int operation, uint32_t base, uint32_t* out) {
    uint32_t* card;
    TRY(cudaMalloc(&card, 4u << 23));
    measure_table<<<(1 << 23) / 256, 256>>>(operation, base, card);
    TRY(cudaGetLastError());
    TRY(cudaMemcpy(out, card, 4u << 23, cudaMemcpyDeviceToHost));
    return said(cudaFree(card), "cudaFree");
}

// For each top byte of x, the sum of mix(bits(x) << 32 | bits(sigmoid(x))) over the 2^24 floats below it.
extern "C" int sigmoid_sums(uint64_t* out) {
    unsigned long long* card;
    TRY(cudaMalloc(&card, 256 * 8));
    TRY(cudaMemset(card, 0, 256 * 8));
    sum_sigmoid<<<256 * 64, 256>>>(card);
    TRY(cudaGetLastError());
    TRY(cudaMemcpy(out, card, 256 * 8, cudaMemcpyDeviceToHost));
    return said(cudaFree(card), "cudaFree");
}
#endif
