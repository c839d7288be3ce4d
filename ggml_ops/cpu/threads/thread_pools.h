// Thread pools that outlive a graph. Without OpenMP, and unless the caller attached a pool, ggml creates one for each
// graph (patches/0030).

#pragma once

#ifdef __cplusplus
#include <cstdint>

extern "C" {
#endif

struct ggml_cgraph;
struct ggml_threadpool;

// A pool of n_threads threads, including the caller's, for one graph. Return it with dflash_pool_give().
struct ggml_threadpool * dflash_pool_take(int n_threads);
void                     dflash_pool_give(struct ggml_threadpool * pool, int n_threads);

#ifdef __cplusplus
}

namespace dflash {

// The threads that compute a graph (team_size.h), while it is computed. The caller leads them.
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
