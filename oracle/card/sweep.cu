// Launches a cubin at every point (b, tile, offset, count) and compares every word of every output on the card.
//
// Under a host compiler the same file launches through a callback and compares on the host: its tests.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "permutation.h"

#ifdef __CUDACC__
#include <cuda.h>
#endif

constexpr int BACKENDS = 2, SETS = 2, EXAMPLES = 32, PROBLEMS = 4096, MAX_PARAMS = 32, MAX_IMAGE = 512, MAX_PATCHES = 32;
constexpr int SLOT = MAX_CTAS + 4;  // words of an ids or weights slot: 8 b, then guard

// The arguments of a launch, in the order of sweep.py's FIELDS.
enum Field { LOGITS, ROW_STRIDE, TOKENS, BIAS, IDS, WEIGHTS, METADATA, SCALE, OFFSET, COUNT, TILE, FIELDS };

// Where one argument lies in a kernel's parameters: `size` bytes at `at` hold the argument over `divisor`.
struct Patch {
    int32_t field, at, size, divisor;
};

struct Kernel {
    uint64_t function;
    int32_t threads, dynamic_shared, row_ctas, cluster, params, patches;
    int32_t param_at[MAX_PARAMS];
    Patch patch[MAX_PATCHES];
    uint8_t image[MAX_IMAGE];
};

// Of one b: where each problem's inputs lie and what is right, `[PROBLEMS]` and `[PROBLEMS, 8 b]`.
struct Problems {
    const uint64_t* logits;     // host arrays of addresses
    const int64_t* row_stride;
    const uint64_t* bias;
    const float* scale;
    const uint32_t* want_ids;   // on the card
    const uint32_t* want_weights;
};

struct Side {
    uint32_t *ids, *weights, *metadata;
};

// One b and tile: points first, first + step, .. of the ranges, each in its own poisoned slot.
struct Job {
    int32_t tokens, tile, backends, points, start, step;
    uint64_t number;  // of this b and tile's first point
    Problems problems;
};

struct Mismatch {
    uint64_t point;
    int32_t backend, area, index;  // area 0 ids, 1 weights, 2 metadata
    uint32_t expected, actual, problem;
};

struct Report {
    uint64_t words, mismatches[BACKENDS], between, sum[BACKENDS + 1], examples;
    Mismatch example[EXAMPLES];
};

struct Sweep {
    int32_t streams, threads, set;
    uint64_t words;
    const Experts* host_experts;
    const Experts* experts;
    Kernel kernels[BACKENDS][2];  // without and with renormalize
    Side sides[SETS][BACKENDS];
    Report* report;
#ifdef __CUDACC__
    decltype(&cuLaunchKernelEx) launch;
    std::vector<cudaStream_t> stream;
    cudaStream_t comparing;
    cudaEvent_t launched[SETS], compared[SETS];
#else
    int (*launch)(uint64_t function, int grid, int cluster, void** params);
#endif
};

BOTH uint32_t problem_of(uint64_t point) { return uint32_t(mix(point) % PROBLEMS); }
BOTH int metadata_pitch(int tile) { return (int(META_PERMUTED_TO_TOKEN) + int(MAX_CTAS) * tile + 1 + 3) & ~3; }
BOTH int range_index(const Job& job, int k) { return job.start + k * job.step; }
BOTH Range range_of(const Job& job, const Experts* experts, int k) {
    Experts found = experts[range_index(job, k)];
    return {found.offset, found.count, job.tile};
}

// What one thread found: it is added up over a block.
struct Tally {
    uint64_t mismatches[BACKENDS], between, sum[BACKENDS + 1];
};

BOTH uint64_t add(uint64_t* to, uint64_t value) {
#ifdef __CUDA_ARCH__
    return atomicAdd((unsigned long long*)to, (unsigned long long)value);
#else
    uint64_t before = *to;
    *to += value;
    return before;
#endif
}

// Compare one word of both backends with `want`, add it up, and poison it again for the next launch.
BOTH void judge(uint32_t* const (&at)[BACKENDS], int backends, uint32_t want, int area, int index, uint64_t point,
                Report* report, Tally& tally) {
    uint64_t weight = mix(uint64_t(area) << 32 | uint32_t(index)) | 1;
    uint32_t got[BACKENDS];
    for (int i = 0; i < BACKENDS; ++i) {
        if (i >= backends) break;
        got[i] = *at[i];
        tally.sum[i] += weight * got[i];
        if (got[i] != POISON_WORD) *at[i] = POISON_WORD;
        if (got[i] == want) continue;
        tally.mismatches[i] += 1;
        uint64_t place = add(&report->examples, 1);
        if (place < EXAMPLES) report->example[place] = {point, i, area, index, want, got[i], problem_of(point)};
    }
    tally.between += backends == BACKENDS && got[0] != got[1];
    tally.sum[BACKENDS] += weight * want;
}

struct Block {
    int thread, threads;
};

// Words of point k that thread `block.thread` looks at.
BOTH void judge_point(const Job& job, const Side (&sides)[BACKENDS], const Range& range, const Permutation& p, int k,
                      Block block, Report* report, Tally& tally) {
    uint64_t point = job.number + range_index(job, k);
    int routes = job.tokens * int(TOP_K), pitch = metadata_pitch(job.tile);
    const uint32_t* want[] = {job.problems.want_ids + size_t(problem_of(point)) * routes,
                              job.problems.want_weights + size_t(problem_of(point)) * routes};
    uint32_t* at[BACKENDS];
    for (int area = 0; area < 2; ++area)
        for (int i = block.thread; i < SLOT; i += block.threads) {
            for (int side = 0; side < BACKENDS; ++side)
                at[side] = (area ? sides[side].weights : sides[side].ids) + size_t(k) * SLOT + i;
            judge(at, job.backends, i < routes ? want[area][i] : POISON_WORD, area, i, point, report, tally);
        }
    for (int i = block.thread; i < pitch; i += block.threads) {
        for (int side = 0; side < BACKENDS; ++side) at[side] = sides[side].metadata + size_t(k) * pitch + i;
        judge(at, job.backends, word(p, range, routes, i), 2, i, point, report, tally);
    }
}

BOTH void add_up(const Tally& tally, uint64_t point, Report* report) {
    uint64_t weight = mix(point) | 1;
    for (int i = 0; i < BACKENDS; ++i)
        if (tally.mismatches[i]) add(&report->mismatches[i], tally.mismatches[i]);
    if (tally.between) add(&report->between, tally.between);
    for (int i = 0; i <= BACKENDS; ++i) add(&report->sum[i], tally.sum[i] * weight);
}

static void launch_points(Sweep& sweep, const Job& job, int thread, std::atomic<int>& error) {
    Kernel kernels[BACKENDS][2];
    memcpy(kernels, sweep.kernels, sizeof kernels);
    int routes_pitch = SLOT * 4, pitch = metadata_pitch(job.tile) * 4;
    int low = int(int64_t(job.points) * thread / sweep.threads), high = int(int64_t(job.points) * (thread + 1) / sweep.threads);
    int own = sweep.streams / sweep.threads;
#ifdef __CUDACC__
    if (int code = cudaSetDevice(0)) error = code;
#endif
    for (int k = low; k < high && !error; ++k) {
        uint32_t q = problem_of(job.number + range_index(job, k));
        const Experts& range = sweep.host_experts[range_index(job, k)];
        for (int side = 0; side < job.backends; ++side) {
            Kernel& kernel = kernels[side][q & 1];
            const Side& out = sweep.sides[sweep.set][side];
            uint64_t values[FIELDS];
            values[LOGITS] = job.problems.logits[q];
            values[ROW_STRIDE] = uint64_t(job.problems.row_stride[q]);
            values[TOKENS] = uint64_t(job.tokens);
            values[BIAS] = job.problems.bias[q];
            values[IDS] = uint64_t(out.ids) + uint64_t(k) * routes_pitch;
            values[WEIGHTS] = uint64_t(out.weights) + uint64_t(k) * routes_pitch;
            values[METADATA] = uint64_t(out.metadata) + uint64_t(k) * pitch;
            values[SCALE] = bits_of(job.problems.scale[q]);
            values[OFFSET] = uint64_t(range.offset);
            values[COUNT] = uint64_t(range.count);
            values[TILE] = uint64_t(job.tile);
            for (int i = 0; i < kernel.patches; ++i) {
                const Patch& patch = kernel.patch[i];
                uint64_t value = values[patch.field] / uint64_t(patch.divisor);
                memcpy(kernel.image + patch.at, &value, patch.size);
            }
            void* params[MAX_PARAMS];
            for (int i = 0; i < kernel.params; ++i) params[i] = kernel.image + kernel.param_at[i];
            int grid = kernel.row_ctas ? job.tokens : 1, cluster = kernel.cluster ? grid : 0;
#ifdef __CUDACC__
            CUlaunchAttribute attributes[2];
            attributes[0].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
            attributes[0].value.programmaticStreamSerializationAllowed = 1;
            attributes[1].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
            attributes[1].value.clusterDim.x = unsigned(cluster);
            attributes[1].value.clusterDim.y = attributes[1].value.clusterDim.z = 1;
            CUlaunchConfig config = {};
            config.gridDimX = unsigned(grid), config.gridDimY = config.gridDimZ = 1;
            config.blockDimX = unsigned(kernel.threads), config.blockDimY = config.blockDimZ = 1;
            config.sharedMemBytes = unsigned(kernel.dynamic_shared);
            config.hStream = sweep.stream[thread * own + k % own];
            config.attrs = attributes, config.numAttrs = cluster ? 2 : 1;
            int code = sweep.launch(&config, CUfunction(kernel.function), params, nullptr);
#else
            (void)own;
            int code = sweep.launch(kernel.function, grid, cluster, params);
#endif
            if (code) error = code;
        }
    }
}

static int launch_all(Sweep& sweep, const Job& job) {
    std::atomic<int> error{0};
    std::vector<std::thread> workers;
    for (int i = 1; i < sweep.threads; ++i)
        workers.emplace_back([&, i] { launch_points(sweep, job, i, error); });
    launch_points(sweep, job, 0, error);
    for (std::thread& worker : workers) worker.join();
    return error;
}

static uint64_t words_of(const Job& job) {
    return uint64_t(job.points) * job.backends * (2 * SLOT + metadata_pitch(job.tile));
}

extern "C" int struct_sizes(int* out) {
    out[0] = sizeof(Kernel), out[1] = sizeof(Job), out[2] = sizeof(Report), out[3] = sizeof(Side);
    return PROBLEMS;
}

extern "C" uint32_t problem_number(uint64_t point) { return problem_of(point); }
extern "C" int metadata_words(int tile) { return metadata_pitch(tile); }
extern "C" int slot_words() { return SLOT; }

// The whole buffers of n problems, `[n, pitch]`, as the comparison expects them: for the test against the specification.
extern "C" void expected_metadata(const int* ids, const Range* ranges, int tokens, int n, int pitch, uint32_t* out) {
    int routes = tokens * int(TOP_K);
    for (int k = 0; k < n; ++k) {
        Permutation p;
        for (int r = 0; r < routes; ++r) find_expert(p, ids + k * routes, ranges[k], r);
        for (int r = 0; r < routes; ++r) find_rank(p, routes, r);
        for (int r = 0; r < routes; ++r) find_ctas(p, ranges[k], routes, r);
        for (int i = 0; i < pitch; ++i) out[size_t(k) * pitch + i] = word(p, ranges[k], routes, i);
    }
}

extern "C" void sweep_set(Sweep* sweep, int backend, int renormalize, const Kernel* kernel) {
    sweep->kernels[backend][renormalize] = *kernel;
}

extern "C" void sweep_slots(Sweep* sweep, int set, int backend, const Side* side) { sweep->sides[set][backend] = *side; }

#ifdef __CUDACC__
#include "sweep_card.h"
#else
#include "sweep_host.h"
#endif
