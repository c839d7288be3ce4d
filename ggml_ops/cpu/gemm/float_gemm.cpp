#include "cpu/gemm/float_gemm.h"

#include "cpu/gemm/rows.h"
#include "ggml-backend-impl.h"
#include "ggml-cpu-impl.h"
#include "ggml-impl.h"

#include <algorithm>
#include <vector>

namespace dflash {

namespace {

constexpr int64_t ROWS = 32;   // rows of a pass that are computed before the next columns are read

// A weight as it is in the file: not a view of a cache, not in a layout of some buffer type's own.
bool is_weight(const ggml_tensor * w) {
    return w->op == GGML_OP_NONE && !w->view_src && !w->extra && w->buffer &&
           ggml_backend_buft_is_host(w->buffer->buft) && ggml_is_contiguous(w);
}

}   // namespace

bool dense_fits(const ggml_tensor * op) {
    if ((op->op != GGML_OP_MUL_MAT && op->op != GGML_OP_MUL_MAT_ID) || !*dense_kernels()) {
        return false;
    }
    const ggml_tensor *w = op->src[0], *x = op->src[1];
    const bool         shape =
        op->op == GGML_OP_MUL_MAT ? w->ne[2] * w->ne[3] == 1 && op->op_params[1] == 0 : w->ne[3] == 1 && x->ne[3] == 1;
    return shape && (w->type == GGML_TYPE_F32 || w->type == GGML_TYPE_F16 || w->type == GGML_TYPE_BF16) &&
           is_weight(w) && w->ne[0] % 16 == 0 && is_plain(x) && op->nb[0] == sizeof(float);
}

size_t dense_work_size(const ggml_tensor * op) { return op->op == GGML_OP_MUL_MAT_ID ? experts::bytes(op) : 0; }

void dense_compute(const ggml_compute_params * params, ggml_tensor * op) {
    const ggml_tensor *w = op->src[0], *x = op->src[1];
    const bool         mixture = op->op == GGML_OP_MUL_MAT_ID;
    const int64_t      columns = w->ne[1], chunk = std::max<int64_t>(8, columns / (8 * params->nth) / 8 * 8),
                  chunks = (columns + chunk - 1) / chunk;
    experts rows(op, params->wdata);
    if (params->ith == 0) {
        ggml_threadpool_chunk_set(params->threadpool, params->nth);
        if (mixture) {
            rows.sort(op);
        }
    }
    ggml_barrier(params->threadpool);

    const dense_kernel kernel = *dense_kernels();
    for (int64_t i = params->ith; i < chunks * (mixture ? w->ne[2] : 1);
        i          = ggml_threadpool_chunk_add(params->threadpool, 1)) {
        const int64_t e = i / chunks, c0 = i % chunks * chunk, c1 = std::min(columns, c0 + chunk);
        const int64_t first = mixture ? rows.first[e] : 0, last = mixture ? rows.first[e + 1] : ggml_nrows(x);
        for (int64_t r = first; r < last; r += ROWS) {
            const float * in[ROWS];
            float *       out[ROWS];
            const int64_t n = std::min(ROWS, last - r);
            for (int64_t j = 0; j < n; ++j) {
                in[j]  = mixture ? experts::input(op, rows.pairs[r + j]) : (const float *) row_of(x, r + j);
                out[j] = mixture ? experts::output(op, rows.pairs[r + j]) : (float *) row_of(op, r + j);
            }
            kernel(w->type, (const char *) w->data + e * w->nb[2], w->nb[1], w->ne[0], c0, c1, in, n, out);
        }
    }
}

}   // namespace dflash
