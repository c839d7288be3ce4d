// Pools of threads that outlive a graph. ggml makes a pool for each graph where OpenMP is not there to keep threads and
// nobody has attached one (patches/0030).

#pragma once

#ifdef __cplusplus
#include <cstdint>

extern "C" {
#endif

struct ggml_cgraph;
struct ggml_threadpool;

// A pool with so many threads, the caller's among them, for one graph; dflash_pool_give() takes it back.
struct ggml_threadpool * dflash_pool_take(int n_threads);
void                     dflash_pool_give(struct ggml_threadpool * pool, int n_threads);

#ifdef __cplusplus
}

namespace dflash {

// The threads that compute a graph, while it is computed (team_size.h). The caller leads them.
class graph_team {
  public:
    graph_team(const ggml_cgraph * graph, int n_threads, bool own_pool);
    ~graph_team();
    graph_team(const graph_team &)             = delete;
    graph_team & operator=(const graph_team &) = delete;

    int size() const { return size_; }

  private:
    uint64_t kind_ = 0;
    int      most_, size_;
    int64_t  begin_ = 0, slept_ = 0;
};

}   // namespace dflash
#endif
