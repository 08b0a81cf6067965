// The sweep on the card: launches on several streams, one comparison kernel a b and tile, two sets of slots in turn.
#pragma once

static_assert(POISON_WORD == (POISON_WORD & 255) * 0x01010101u, "memory is poisoned byte by byte");

static int said(int error, const char* what) {
    if (error) fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(cudaError_t(error)));
    return error;
}

#define TRY(call) \
    if (int error = said(call, #call)) return error

// The sum of every thread's value, in thread 0.
__device__ uint64_t over_block(uint64_t value) {
    __shared__ uint64_t warps[8];
    for (int distance = 16; distance; distance >>= 1) value += __shfl_xor_sync(~0u, value, distance);
    __syncthreads();
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
    __syncthreads();
    for (int i = 1; i < 8; ++i) value += threadIdx.x == 0 ? warps[i] : 0;
    return value;
}

struct Sides {
    Side side[BACKENDS];
};

__global__ void __launch_bounds__(256) compare(Job job, Sides sides, const Experts* experts, Report* report) {
    __shared__ Permutation p;
    int k = blockIdx.x, thread = threadIdx.x, routes = job.tokens * int(TOP_K);
    Range range = range_of(job, experts, k);
    uint64_t point = job.number + range_index(job, k);
    const int* ids = (const int*)job.problems.want_ids + size_t(problem_of(point)) * routes;
    if (thread < routes) find_expert(p, ids, range, thread);
    __syncthreads();
    if (thread < routes) find_rank(p, routes, thread);
    __syncthreads();
    if (thread < routes) find_ctas(p, range, routes, thread);
    __syncthreads();
    Tally tally = {};
    judge_point(job, sides.side, range, p, k, Block{thread, int(blockDim.x)}, report, tally);
    for (int i = 0; i < BACKENDS; ++i) tally.mismatches[i] = over_block(tally.mismatches[i]);
    tally.between = over_block(tally.between);
    for (int i = 0; i <= BACKENDS; ++i) tally.sum[i] = over_block(tally.sum[i]);
    if (thread == 0) add_up(tally, point, report);
}

extern "C" int sweep_close(Sweep* sweep) {
    TRY(cudaDeviceSynchronize());
    for (int i = 0; i < sweep->streams; ++i) TRY(cudaStreamDestroy(sweep->stream[i]));
    TRY(cudaStreamDestroy(sweep->comparing));
    for (int set = 0; set < SETS; ++set) {
        TRY(cudaEventDestroy(sweep->launched[set]));
        TRY(cudaEventDestroy(sweep->compared[set]));
    }
    TRY(cudaFree((void*)sweep->experts));
    TRY(cudaFree(sweep->report));
    delete[] sweep->host_experts;
    delete sweep;
    return 0;
}

static int open(Sweep* sweep, int count) {
    TRY(cudaSetDevice(0));
    cudaDriverEntryPointQueryResult found;
    TRY(cudaGetDriverEntryPointByVersion("cuLaunchKernelEx", (void**)&sweep->launch, 12000, cudaEnableDefault, &found));
    if (found != cudaDriverEntryPointSuccess) return said(cudaErrorSymbolNotFound, "cuLaunchKernelEx");
    Experts* experts;
    TRY(cudaMalloc(&experts, sizeof(Experts) * count));
    TRY(cudaMemcpy(experts, sweep->host_experts, sizeof(Experts) * count, cudaMemcpyHostToDevice));
    sweep->experts = experts;
    TRY(cudaMalloc(&sweep->report, sizeof(Report)));
    TRY(cudaMemset(sweep->report, 0, sizeof(Report)));
    for (int i = 0; i < sweep->streams; ++i) TRY(cudaStreamCreateWithFlags(&sweep->stream[i], cudaStreamNonBlocking));
    TRY(cudaStreamCreateWithFlags(&sweep->comparing, cudaStreamNonBlocking));
    for (int set = 0; set < SETS; ++set) {
        TRY(cudaEventCreateWithFlags(&sweep->launched[set], cudaEventDisableTiming));
        TRY(cudaEventCreateWithFlags(&sweep->compared[set], cudaEventDisableTiming));
    }
    return said(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

// Returns null, having printed why, where the card refuses.
extern "C" Sweep* sweep_open(int streams, int threads, const Experts* experts, int count) {
    Sweep* sweep = new Sweep{};
    sweep->streams = streams, sweep->threads = threads;
    Experts* copy = new Experts[count];
    memcpy(copy, experts, sizeof(Experts) * count);
    sweep->host_experts = copy;
    sweep->stream.resize(streams);
    return open(sweep, count) ? nullptr : sweep;
}

extern "C" void* card_memory(uint64_t bytes) {
    void* memory = nullptr;
    if (said(cudaMalloc(&memory, bytes), "cudaMalloc")) return nullptr;
    if (said(cudaMemset(memory, int(POISON_WORD & 255), bytes), "cudaMemset")) return nullptr;
    // The streams that launch do not wait for the default stream, here and below.
    if (said(cudaDeviceSynchronize(), "cudaDeviceSynchronize")) return nullptr;
    return memory;
}

extern "C" int card_free(void* memory) { return said(cudaFree(memory), "cudaFree"); }

extern "C" int card_write(void* to, const void* from, uint64_t bytes) {
    TRY(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
    return said(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

// Enqueue one b and tile; the host runs ahead of the card by as much as the driver's queues hold.
extern "C" int sweep_run(Sweep* sweep, const Job* job) {
    int set = sweep->set;
    for (int i = 0; i < sweep->streams; ++i) TRY(cudaStreamWaitEvent(sweep->stream[i], sweep->compared[set], 0));
    TRY(launch_all(*sweep, *job));
    for (int i = 0; i < sweep->streams; ++i) {
        TRY(cudaEventRecord(sweep->launched[set], sweep->stream[i]));
        TRY(cudaStreamWaitEvent(sweep->comparing, sweep->launched[set], 0));
    }
    Sides sides;
    memcpy(&sides, sweep->sides[set], sizeof sides);
    compare<<<job->points, 256, 0, sweep->comparing>>>(*job, sides, sweep->experts, sweep->report);
    TRY(cudaGetLastError());
    TRY(cudaEventRecord(sweep->compared[set], sweep->comparing));
    sweep->words += words_of(*job);
    sweep->set ^= 1;
    return 0;
}

// Wait for everything enqueued and hand over what was found since the last call.
extern "C" int sweep_report(Sweep* sweep, Report* out) {
    TRY(cudaDeviceSynchronize());
    TRY(cudaMemcpy(out, sweep->report, sizeof(Report), cudaMemcpyDeviceToHost));
    out->words = sweep->words;
    sweep->words = 0;
    TRY(cudaMemset(sweep->report, 0, sizeof(Report)));
    return said(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}
