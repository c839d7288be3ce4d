// How the threads that compute an op share its work.

#pragma once

#include "cpu/threads/background.h"
#include "ggml-cpu-impl.h"
#include "ggml-impl.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace dflash {

inline constexpr size_t CACHE_LINE = 64;   // bytes; a work buffer for aligned_work() has as many to spare

inline char * aligned_work(const ggml_compute_params * params) {
    return (char *) (((uintptr_t) params->wdata + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
}

// This thread's rows [begin, end) of n, split as ggml splits ROPE.
inline std::pair<int64_t, int64_t> rows_of_thread(const ggml_compute_params * params, int64_t n) {
    const int64_t each = (n + params->nth - 1) / params->nth;
    return { std::min(n, each * params->ith), std::min(n, each * (params->ith + 1)) };
}

// Threads take n tasks dynamically, once all have come here; a result does not depend on the thread that computes it.
// n_done: tasks of this op that an earlier, completed round handed out (the counter has been increased once for each).
template <class F>
void for_each_task(const ggml_compute_params * params, int64_t n, const F & compute, int64_t n_done = 0) {
    if (params->ith == 0 && n_done == 0) {
        ggml_threadpool_chunk_set(params->threadpool, params->nth);
    }
    ggml_barrier(params->threadpool);
    for (int64_t i = params->ith; i < n; i = ggml_threadpool_chunk_add(params->threadpool, 1) - n_done) {
        let_others_go_first();
        compute(i);
    }
}

}   // namespace dflash
