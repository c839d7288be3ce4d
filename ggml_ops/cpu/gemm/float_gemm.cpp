#include "cpu/gemm/float_gemm.h"

#include "cpu/gemm/expert_rows.h"
#include "cpu/isa/kernels.h"
#include "cpu/tensor_rows.h"
#include "cpu/threads/tasks.h"
#include "ggml-backend-impl.h"
#include "ggml-cpu-impl.h"
#include "ggml-impl.h"

#include <algorithm>

namespace dflash {

namespace {

constexpr int64_t ROWS_AT_ONCE = 32;   // rows of a pass that are computed before the next columns are read

// A weight as in the file: not a view (of a cache), and not in another buffer type's layout.
bool is_weight(const ggml_tensor * w) {
    return w->op == GGML_OP_NONE && !w->view_src && !w->extra && w->buffer &&
           ggml_backend_buft_is_host(w->buffer->buft) && ggml_is_contiguous(w);
}

}   // namespace

bool float_gemm_fits(const ggml_tensor * op) {
    if ((op->op != GGML_OP_MUL_MAT && op->op != GGML_OP_MUL_MAT_ID) || !best_kernels()) {
        return false;
    }
    const ggml_tensor *w = op->src[0], *x = op->src[1];
    const bool         shape =
        op->op == GGML_OP_MUL_MAT ? w->ne[2] * w->ne[3] == 1 && op->op_params[1] == 0 : w->ne[3] == 1 && x->ne[3] == 1;
    return shape && (w->type == GGML_TYPE_F32 || w->type == GGML_TYPE_F16 || w->type == GGML_TYPE_BF16) &&
           is_weight(w) && w->ne[0] % 16 == 0 && is_plain(x) && op->nb[0] == sizeof(float);
}

size_t float_gemm_work_size(int, const ggml_tensor * op) {
    return op->op == GGML_OP_MUL_MAT_ID ? expert_rows::size(op) : 0;
}

void float_gemm_compute(const ggml_compute_params * params, ggml_tensor * op) {
    const ggml_tensor *w = op->src[0], *x = op->src[1];
    const bool         is_mixture = op->op == GGML_OP_MUL_MAT_ID;
    const int64_t      n_columns = w->ne[1], chunk = std::max<int64_t>(8, n_columns / (8 * params->nth) / 8 * 8),
                  n_chunks = (n_columns + chunk - 1) / chunk;
    expert_rows sorted(op, params->wdata);
    if (is_mixture) {
        if (params->ith == 0) {
            sorted.sort(op);
        }
        ggml_barrier(params->threadpool);
    }
    const float_gemm_kernel kernel = best_kernels()->float_gemm;
    for_each_task(params, n_chunks * (is_mixture ? *sorted.n_used : 1), [&](int64_t i) {
        const int64_t matrix = is_mixture ? sorted.used[i / n_chunks] : 0, begin = i % n_chunks * chunk,
                      end       = std::min(n_columns, begin + chunk);
        const int64_t first_row = is_mixture ? sorted.first[matrix] : 0,
                      end_row   = is_mixture ? sorted.first[matrix + 1] : ggml_nrows(x);
        for (int64_t r = first_row; r < end_row; r += ROWS_AT_ONCE) {
            let_others_go_first();   // a task of an encoder takes milliseconds
            const float * in[ROWS_AT_ONCE];
            float *       out[ROWS_AT_ONCE];
            const int64_t n = std::min(ROWS_AT_ONCE, end_row - r);
            for (int64_t j = 0; j < n; ++j) {
                in[j]  = is_mixture ? expert_rows::input(op, sorted.pairs[r + j]) : (const float *) row_of(x, r + j);
                out[j] = is_mixture ? expert_rows::output(op, sorted.pairs[r + j]) : (float *) row_of(op, r + j);
            }
            kernel({ w->type, (const char *) w->data + matrix * w->nb[2], w->nb[1], w->ne[0], begin, end, in, out, n });
        }
    });
}

}   // namespace dflash
