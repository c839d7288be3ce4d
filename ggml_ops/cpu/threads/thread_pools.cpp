#include "cpu/threads/thread_pools.h"

#include "cpu/dispatch.h"
#include "cpu/threads/background.h"
#include "cpu/threads/team_size.h"
#include "cpu/threads/waiting.h"
#include "ggml-cpu.h"
#include "ggml-impl.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#if !defined(_WIN32)
#include <pthread.h>
#endif

namespace dflash {

namespace {

// Kept pools sleep. Pools of sizes that a team no longer uses are freed soon.
constexpr size_t MAX_KEPT = 4;

struct kept_pool {
    ggml_threadpool * pool;
    int               n_threads;
    bool              in_background;   // its threads are, as the one that started them
};

struct pools {
    std::mutex               mutex;
    std::vector<kept_pool>   kept;    // most recently used last
    std::map<int, team_size> sizes;   // by requested number of threads
};

pools & all_pools();

#if !defined(_WIN32)
// A forked process has none of the threads, so it creates its own pools.
void lock_before_fork() { all_pools().mutex.lock(); }
void unlock_after_fork() { all_pools().mutex.unlock(); }
void forget_after_fork() {
    all_pools().kept.clear();
    all_pools().mutex.unlock();
}
#endif

// Never destroyed: its threads may still sleep when the process ends.
pools & all_pools() {
    static pools * const all = [] {
#if !defined(_WIN32)
        pthread_atfork(lock_before_fork, unlock_after_fork, forget_after_fork);
#endif
        return new pools;
    }();
    return *all;
}

// Graphs of one model's passes differ only in the number of rows, as far as this code can see.
uint64_t kind_of(const ggml_cgraph * graph) {
    uint64_t kind = (uint64_t) graph->n_nodes;
    for (int i : { 0, graph->n_nodes / 2, graph->n_nodes - 1 }) {
        kind = kind * 1'000'003 + (uint64_t) ggml_nelements(graph->nodes[i]);
    }
    return kind;
}

// ggml's own attention over many cells sums partial results per thread.
bool depends_on_threads(const ggml_cgraph * graph) {
    return std::any_of(graph->nodes, graph->nodes + graph->n_nodes,
        [](const ggml_tensor * op) { return op->op == GGML_OP_FLASH_ATTN_EXT && !is_ours(op); });
}

}   // namespace

graph_team::graph_team(const ggml_cgraph * graph, int n_threads, bool own_pool) : most_(n_threads), size_(n_threads) {
    // Work in the background waits for others, which says nothing of how many threads pay.
    if (own_pool || n_threads <= 1 || graph->n_nodes == 0 || is_in_background() || depends_on_threads(graph)) {
        return;
    }
    kind_  = kind_of(graph);
    begin_ = dflash_now();
    slept_ = dflash_slept();
    std::lock_guard<std::mutex> lock(all_pools().mutex);
    size_ = all_pools().sizes.try_emplace(most_, most_).first->second.choose(kind_, begin_);
}

graph_team::~graph_team() {
    if (begin_ == 0) {
        return;
    }
    const int64_t               end = dflash_now();
    std::lock_guard<std::mutex> lock(all_pools().mutex);
    all_pools().sizes.at(most_).observe(kind_, size_, end - begin_, dflash_slept() - slept_, end);
}

}   // namespace dflash

ggml_threadpool * dflash_pool_take(int n_threads) {
    using namespace dflash;
    const bool in_background = is_in_background();
    {
        std::lock_guard<std::mutex> lock(all_pools().mutex);
        auto &                      kept  = all_pools().kept;
        const auto                  found = std::find_if(kept.rbegin(), kept.rend(),
                             [&](const kept_pool & p) { return p.n_threads == n_threads && p.in_background == in_background; });
        if (found != kept.rend()) {
            ggml_threadpool * pool = found->pool;
            kept.erase(std::next(found).base());
            return pool;
        }
    }
    ggml_threadpool_params params = ggml_threadpool_params_default(n_threads);
    return ggml_threadpool_new(&params);
}

void dflash_pool_give(ggml_threadpool * pool, int n_threads) {
    using namespace dflash;
    ggml_threadpool * oldest = nullptr;
    {
        std::lock_guard<std::mutex> lock(all_pools().mutex);
        auto &                      kept = all_pools().kept;
        kept.push_back({ pool, n_threads, is_in_background() });
        if (kept.size() > MAX_KEPT) {
            oldest = kept.front().pool;
            kept.erase(kept.begin());
        }
    }
    ggml_threadpool_free(oldest);
}
