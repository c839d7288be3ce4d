#include "cpu/rows/rope.h"

#include "cpu/gemm/rows.h"
#include "ggml-cpu-impl.h"
#include "ops.h"
#include "cpu/rows/elementwise.h"
#include "cpu/switches.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

namespace dflash {

namespace {

constexpr int KEPT = 4;   // of a thread: windows and whole contexts may turn differently

int param(const ggml_tensor * rope, int i) { return rope->op_params[i]; }
int turned(const ggml_tensor * rope) { return param(rope, 1); }   // positions of a head, from `offset` on
int mode(const ggml_tensor * rope) { return param(rope, 2); }
int offset(const ggml_tensor * rope) { return param(rope, 15); }

int64_t factors_of(const ggml_tensor * rope) { return rope->src[2] ? turned(rope) / 2 : 0; }

struct kept {
    char                 params[GGML_MAX_OP_PARAMS] = {};
    std::vector<int32_t> positions;
    std::vector<float>   factors, table;

    kept() = default;

    // A head of ones, then zeros, turned is the cosines, then the sines.
    explicit kept(const ggml_tensor * rope) {
        const int64_t   n = rope->ne[2], d = turned(rope);
        const int32_t * at = (const int32_t *) rope->src[1]->data;
        std::memcpy(params, rope->op_params, sizeof(params));
        positions.assign(at, at + n);
        if (rope->src[2]) {
            const float * from = (const float *) rope->src[2]->data;
            factors.assign(from, from + factors_of(rope));
        }
        table.assign(n * d, 0.0f);
        for (int64_t i = 0; i < n; ++i) {
            std::fill_n(table.begin() + i * d, d / 2, 1.0f);
        }
        ggml_tensor heads = *rope->src[0], out = *rope;
        for (ggml_tensor * t : { &heads, &out }) {
            const std::array<int64_t, GGML_MAX_DIMS> ne = { d, 1, n, 1 };
            const std::array<size_t, GGML_MAX_DIMS>  nb = { sizeof(float), d * sizeof(float), d * sizeof(float),
                 n * d * sizeof(float) };
            std::copy(ne.begin(), ne.end(), t->ne);
            std::copy(nb.begin(), nb.end(), t->nb);
            t->data = table.data();
        }
        out.src[0]        = &heads;
        out.op_params[15] = 0;   // no offset
        std::vector<float>  work(d + CACHE_LINE_SIZE_F32);
        ggml_compute_params alone = {};
        alone.nth                 = 1;
        alone.wsize               = work.size() * sizeof(float);
        alone.wdata               = work.data();
        ggml_compute_forward_rope(&alone, &out);
    }

    bool serves(const ggml_tensor * rope) const {
        const size_t n = rope->ne[2], n_factors = factors_of(rope);
        return positions.size() == n && factors.size() == n_factors &&
               std::memcmp(params, rope->op_params, sizeof(params)) == 0 &&
               std::memcmp(positions.data(), rope->src[1]->data, n * sizeof(int32_t)) == 0 &&
               (n_factors == 0 || std::memcmp(factors.data(), rope->src[2]->data, n_factors * sizeof(float)) == 0);
    }
};

}   // namespace

std::pair<int64_t, int64_t> my_rows(const ggml_compute_params * params, int64_t n) {
    const int64_t each = (n + params->nth - 1) / params->nth;
    return { std::min(n, each * params->ith), std::min(n, each * (params->ith + 1)) };
}

bool rotation_fits(const ggml_tensor * op) {
    static const bool on = is_on("DFLASH_FUSED") && row_steps_here();
    return on && op->op == GGML_OP_ROPE && mode(op) == GGML_ROPE_TYPE_NEOX && turned(op) > 0 && is_plain(op) &&
           is_plain(op->src[0]);
}

void rotation_compute(const ggml_compute_params * params, ggml_tensor * op) {
    const rotation by(op);
    const auto [begin, end] = my_rows(params, ggml_nrows(op));
    for (int64_t i = begin; i < end; ++i) {
        by.turn(i);
    }
}

rotation::rotation(const ggml_tensor * rope) : rope(rope) {
    static thread_local std::array<kept, KEPT> all;
    static thread_local int                    oldest = 0;
    for (const kept & k : all) {
        if (k.serves(rope)) {
            table = k.table.data();
            return;
        }
    }
    all[oldest] = kept(rope);   // (what was there is freed: shifting a cache turns all of its positions at once)
    table       = all[oldest].table.data();
    oldest      = (oldest + 1) % KEPT;
}

void rotation::turn(int64_t i) const {
    const int64_t heads = rope->ne[1], d = turned(rope), before = offset(rope), behind = rope->ne[0] - before - d;
    const float * x = (const float *) row_of(rope->src[0], i), *by = table + i / heads % rope->ne[2] * d;
    float *       out = (float *) row_of(rope, i);
    row_steps_here()->turn(x + before, by, by + d / 2, out + before, d / 2);
    if (out != x && d < rope->ne[0]) {
        std::memcpy(out, x, before * sizeof(float));
        std::memcpy(out + before + d, x + before + d, behind * sizeof(float));
    }
}

}   // namespace dflash
