#include "cpu/rope/rope.h"

#include "cpu/isa/kernels.h"
#include "cpu/tensor_rows.h"
#include "cpu/threads/tasks.h"
#include "ggml-cpu-impl.h"
#include "ops.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

namespace dflash {

namespace {

constexpr int MAX_TABLES = 4;   // per thread: layers with and without a window may rotate differently

int param(const ggml_tensor * rope, int i) { return rope->op_params[i]; }
int n_dims(const ggml_tensor * rope) { return param(rope, 1); }   // of a head that are rotated, starting at `offset`
int mode(const ggml_tensor * rope) { return param(rope, 2); }
int offset(const ggml_tensor * rope) { return param(rope, 15); }

int64_t n_factors(const ggml_tensor * rope) { return rope->src[2] ? n_dims(rope) / 2 : 0; }

// Cosines and sines, and the parameters they were computed from.
struct rotation_table {
    char                 params[GGML_MAX_OP_PARAMS] = {};
    std::vector<int32_t> positions;
    std::vector<float>   factors, values;

    rotation_table() = default;

    // ggml's own op rotates a head of ones followed by zeros, which gives the cosines, then the sines.
    explicit rotation_table(const ggml_tensor * rope) {
        const int64_t   n = rope->ne[2], d = n_dims(rope);
        const int32_t * op_positions = (const int32_t *) rope->src[1]->data;
        std::memcpy(params, rope->op_params, sizeof(params));
        positions.assign(op_positions, op_positions + n);
        if (rope->src[2]) {
            const float * op_factors = (const float *) rope->src[2]->data;
            factors.assign(op_factors, op_factors + n_factors(rope));
        }
        values.assign(n * d, 0.0f);
        for (int64_t i = 0; i < n; ++i) {
            std::fill_n(values.begin() + i * d, d / 2, 1.0f);
        }
        ggml_tensor heads = *rope->src[0], rotated = *rope;
        for (ggml_tensor * t : { &heads, &rotated }) {
            const std::array<int64_t, GGML_MAX_DIMS> ne = { d, 1, n, 1 };
            const std::array<size_t, GGML_MAX_DIMS>  nb = { sizeof(float), d * sizeof(float), d * sizeof(float),
                 n * d * sizeof(float) };
            std::copy(ne.begin(), ne.end(), t->ne);
            std::copy(nb.begin(), nb.end(), t->nb);
            t->data = values.data();
        }
        rotated.src[0]        = &heads;
        rotated.op_params[15] = 0;   // no offset
        std::vector<float>  work(d + CACHE_LINE_SIZE_F32);
        ggml_compute_params one_thread = {};
        one_thread.nth                 = 1;
        one_thread.wsize               = work.size() * sizeof(float);
        one_thread.wdata               = work.data();
        ggml_compute_forward_rope(&one_thread, &rotated);
    }

    bool serves(const ggml_tensor * rope) const {
        const size_t n = rope->ne[2], n_f = n_factors(rope);
        return positions.size() == n && factors.size() == n_f &&
               std::memcmp(params, rope->op_params, sizeof(params)) == 0 &&
               std::memcmp(positions.data(), rope->src[1]->data, n * sizeof(int32_t)) == 0 &&
               (n_f == 0 || std::memcmp(factors.data(), rope->src[2]->data, n_f * sizeof(float)) == 0);
    }
};

}   // namespace

bool rope_fits(const ggml_tensor * op) {
    const int64_t end = (int64_t) offset(op) + n_dims(op);   // what leads out of a head is ggml's to refuse
    return best_kernels() && op->op == GGML_OP_ROPE && mode(op) == GGML_ROPE_TYPE_NEOX && n_dims(op) > 0 &&
           n_dims(op) % 2 == 0 && offset(op) >= 0 && end <= op->ne[0] && is_plain(op) && is_plain(op->src[0]);
}

void rope_compute(const ggml_compute_params * params, ggml_tensor * op) {
    const rotation rotation(op);
    const auto [begin, end] = rows_of_thread(params, ggml_nrows(op));
    for (int64_t i = begin; i < end; ++i) {
        rotation.compute_row(i);
    }
}

rotation::rotation(const ggml_tensor * rope) : rope_(rope) {
    static thread_local std::array<rotation_table, MAX_TABLES> tables;
    static thread_local int                                    oldest = 0;
    for (const rotation_table & t : tables) {
        if (t.serves(rope)) {
            table_ = t.values.data();
            return;
        }
    }
    tables[oldest] = rotation_table(rope);   // frees the old one: after a cache shift it has rows for all positions
    table_         = tables[oldest].values.data();
    oldest         = (oldest + 1) % MAX_TABLES;
}

void rotation::compute_row(int64_t i) const {
    const int64_t n_heads = rope_->ne[1], d = n_dims(rope_), before = offset(rope_), behind = rope_->ne[0] - before - d;
    const float * x       = (const float *) row_of(rope_->src[0], i);
    const float * cosines = table_ + i / n_heads % rope_->ne[2] * d;
    float *       out     = (float *) row_of(rope_, i);
    best_kernels()->elementwise.rotate(x + before, cosines, cosines + d / 2, out + before, d / 2);
    if (out != x && d < rope_->ne[0]) {
        std::memcpy(out, x, before * sizeof(float));
        std::memcpy(out + before + d, x + before + d, behind * sizeof(float));
    }
}

}   // namespace dflash
