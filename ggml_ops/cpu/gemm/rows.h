// The rows of a product: of a MUL_MAT_ID pass, expert by expert, and of a tensor of up to four dimensions.

#pragma once

#include "ggml.h"

#include <cstdint>
#include <cstring>

namespace dflash {

inline char * row_of(const ggml_tensor * t, int64_t i) {
    const int64_t i1 = i % t->ne[1], i2 = i / t->ne[1] % t->ne[2], i3 = i / (t->ne[1] * t->ne[2]);
    return (char *) t->data + i1 * t->nb[1] + i2 * t->nb[2] + i3 * t->nb[3];
}

// Floats, those of a row side by side.
inline bool is_plain(const ggml_tensor * t) { return t->type == GGML_TYPE_F32 && t->nb[0] == sizeof(float); }

// In a work buffer: which (slot, token) pairs each expert serves, in the order of the pass. A pair with no expert (id
// -1) belongs to none.
struct experts {
    struct pair {
        int32_t slot, token;
    };

    int32_t * first;   // [n_expert + 1] into pairs
    pair *    pairs;   // [slots * tokens]

    static size_t bytes(const ggml_tensor * op) {
        return ((size_t) op->src[0]->ne[2] + 2) / 2 * 8 + (size_t) ggml_nelements(op->src[2]) * sizeof(pair);
    }

    experts(const ggml_tensor * op, void * work) :
        first((int32_t *) work), pairs((pair *) ((char *) work + ((size_t) op->src[0]->ne[2] + 2) / 2 * 8)) {}

    void sort(const ggml_tensor * op) {   // by one thread
        const ggml_tensor * ids  = op->src[2];
        const int64_t       n    = op->src[0]->ne[2];
        const auto          each = [&](auto && f) {
            for (int64_t t = 0; t < ids->ne[1]; ++t) {
                for (int64_t s = 0; s < ids->ne[0]; ++s) {
                    const int32_t id = *(const int32_t *) ((const char *) ids->data + s * ids->nb[0] + t * ids->nb[1]);
                    if (id >= 0 && id < n) {
                        f(id, pair{ (int32_t) s, (int32_t) t });
                    }
                }
            }
        };
        std::memset(first, 0, (n + 1) * sizeof(int32_t));
        each([&](int32_t id, pair) { ++first[id + 1]; });
        for (int64_t e = 0; e < n; ++e) {
            first[e + 1] += first[e];
        }
        each([&](int32_t id, pair p) { pairs[first[id]++] = p; });
        for (int64_t e = n; e > 0; --e) {
            first[e] = first[e - 1];
        }
        first[0] = 0;
    }

    static const float * input(const ggml_tensor * op, pair p) {
        const ggml_tensor * x = op->src[1];
        return (const float *) ((const char *) x->data + p.slot % x->ne[1] * x->nb[1] + p.token * x->nb[2]);
    }

    static float * output(const ggml_tensor * op, pair p) {
        return (float *) ((char *) op->data + p.slot * op->nb[1] + p.token * op->nb[2]);
    }
};

}   // namespace dflash
