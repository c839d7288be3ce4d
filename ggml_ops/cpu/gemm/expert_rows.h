// The rows of a MUL_MAT_ID pass, sorted by expert.

#pragma once

#include "ggml.h"

#include <cstdint>
#include <cstring>

namespace dflash {

// Lives in a work buffer: which (slot, token) pairs each expert serves, in the order of the pass. Pairs without an
// expert (id -1) are left out.
struct expert_rows {
    struct pair {
        int32_t slot, token;
    };

    int32_t * first;    // [n_experts + 1] into pairs
    int32_t * n_used;   // experts with rows: few of hundreds, so tasks are of these alone
    int32_t * used;     // [n_used]
    pair *    pairs;    // [slots * tokens]

    static size_t size(const ggml_tensor * op) {   // bytes
        return size_of_lists(op) + (size_t) ggml_nelements(op->src[2]) * sizeof(pair);
    }

    expert_rows(const ggml_tensor * op, void * work) :
        first((int32_t *) work), n_used(first + op->src[0]->ne[2] + 1), used(n_used + 1),
        pairs((pair *) ((char *) work + size_of_lists(op))) {}

    // Called by one thread; the others read the result after a barrier.
    void sort(const ggml_tensor * op) {
        const ggml_tensor * ids           = op->src[2];
        const int64_t       n_experts     = op->src[0]->ne[2];
        const auto          for_each_pair = [&](auto && f) {
            for (int64_t t = 0; t < ids->ne[1]; ++t) {
                for (int64_t s = 0; s < ids->ne[0]; ++s) {
                    const int32_t id = *(const int32_t *) ((const char *) ids->data + s * ids->nb[0] + t * ids->nb[1]);
                    if (id >= 0 && id < n_experts) {
                        f(id, pair{ (int32_t) s, (int32_t) t });
                    }
                }
            }
        };
        std::memset(first, 0, (n_experts + 1) * sizeof(int32_t));
        for_each_pair([&](int32_t id, pair) { ++first[id + 1]; });
        for (int64_t e = 0; e < n_experts; ++e) {
            first[e + 1] += first[e];
        }
        for_each_pair([&](int32_t id, pair p) { pairs[first[id]++] = p; });
        for (int64_t e = n_experts; e > 0; --e) {
            first[e] = first[e - 1];
        }
        first[0] = 0;
        *n_used  = 0;
        for (int64_t e = 0; e < n_experts; ++e) {
            if (first[e] < first[e + 1]) {
                used[(*n_used)++] = (int32_t) e;
            }
        }
    }

    static const float * input(const ggml_tensor * op, pair p) {
        const ggml_tensor * x = op->src[1];
        return (const float *) ((const char *) x->data + p.slot % x->ne[1] * x->nb[1] + p.token * x->nb[2]);
    }

    static float * output(const ggml_tensor * op, pair p) {
        return (float *) ((char *) op->data + p.slot * op->nb[1] + p.token * op->nb[2]);
    }

  private:
    static size_t size_of_lists(const ggml_tensor * op) {
        return ((size_t) op->src[0]->ne[2] + 1) * 2 * sizeof(int32_t);
    }
};

}   // namespace dflash
