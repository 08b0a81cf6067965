// The sweep on the host: memory is the host's, a launch is a callback, the comparison a loop.
#pragma once

extern "C" Sweep* sweep_open(int streams, int threads, const Experts* experts, int count) {
    Sweep* sweep = new Sweep{};
    sweep->streams = streams, sweep->threads = threads;
    Experts* copy = new Experts[count];
    memcpy(copy, experts, sizeof(Experts) * count);
    sweep->host_experts = sweep->experts = copy;
    sweep->report = new Report{};
    return sweep;
}

extern "C" void sweep_launch(Sweep* sweep, int (*launch)(uint64_t function, int grid, int cluster, void** params)) {
    sweep->launch = launch;
}

extern "C" void* card_memory(uint64_t bytes) {
    void* memory = malloc(bytes);
    if (memory) memset(memory, int(POISON_WORD & 255), bytes);
    return memory;
}

extern "C" int card_free(void* memory) {
    free(memory);
    return 0;
}

extern "C" int card_write(void* to, const void* from, uint64_t bytes) {
    memcpy(to, from, bytes);
    return 0;
}

extern "C" int sweep_run(Sweep* sweep, const Job* job) {
    if (int error = launch_all(*sweep, *job)) return error;
    int routes = job->tokens * int(TOP_K);
    for (int k = 0; k < job->points; ++k) {
        uint64_t point = job->number + range_index(*job, k);
        Range range = range_of(*job, sweep->experts, k);
        const int* ids = (const int*)job->problems.want_ids + problem_of(point) * routes;
        Permutation p;
        for (int r = 0; r < routes; ++r) find_expert(p, ids, range, r);
        for (int r = 0; r < routes; ++r) find_rank(p, routes, r);
        for (int r = 0; r < routes; ++r) find_ctas(p, range, routes, r);
        Tally tally = {};
        judge_point(*job, sweep->sides[sweep->set], range, p, k, Block{0, 1}, sweep->report, tally);
        add_up(tally, point, sweep->report);
    }
    sweep->words += words_of(*job);
    sweep->set ^= 1;
    return 0;
}

// Hand over what was found since the last call.
extern "C" int sweep_report(Sweep* sweep, Report* out) {
    *out = *sweep->report;
    out->words = sweep->words;
    *sweep->report = Report{};
    sweep->words = 0;
    return 0;
}

extern "C" int sweep_close(Sweep* sweep) {
    delete sweep->report;
    delete[] sweep->experts;
    delete sweep;
    return 0;
}
