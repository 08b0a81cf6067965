// What lets one source be device code under nvcc and plain C++ under a host compiler.
#pragma once
#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define BOTH __host__ __device__ __forceinline__
#else
#define BOTH inline
#endif

// A counter-based generator: every value is a function of its counter, on the card as on the host.
BOTH uint64_t mix(uint64_t z) {
    z += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

BOTH uint32_t bits_of(float x) {
    uint32_t word;
    memcpy(&word, &x, sizeof word);
    return word;
}

BOTH float float_of(uint32_t word) {
    float x;
    memcpy(&x, &word, sizeof x);
    return x;
}
