#include "cpu/attention/flash_attention.h"

#include "cpu/isa/kernels.h"
#include "cpu/threads/tasks.h"
#include "ggml-cpu-impl.h"
#include "ggml-impl.h"

#include <algorithm>

namespace dflash {

namespace {

constexpr int64_t MAX_SCORES  = 512 * 1024 / sizeof(float);   // per task, so that they stay in the second-level cache
constexpr int64_t MIN_QUERIES = 8;                            // per task, if the scores do not fit

bool is_readable(ggml_type type) { return type == GGML_TYPE_F32 || ggml_get_type_traits(type)->to_float != nullptr; }

// Queries per task: many, so that K and V are read once for all of them; few enough for the cache and to keep every
// thread busy. Results do not depend on it.
int64_t queries_of_task(const ggml_tensor * op, int n_threads) {
    const ggml_tensor *q = op->src[0], *k = op->src[1];
    const int64_t      n_queries = q->ne[1] * (q->ne[2] / k->ne[2]), kv_heads = k->ne[2] * q->ne[3];
    const int64_t      fit   = std::max<int64_t>(MIN_QUERIES, MAX_SCORES / k->ne[1]);
    const int64_t      tasks = (n_threads + kv_heads - 1) / kv_heads;   // minimum per KV head
    return std::max<int64_t>(1, std::min({ FLASH_ATTENTION_QUERIES, fit, (n_queries + tasks - 1) / tasks }));
}

flash_attention_args args_of(const ggml_tensor * op) {
    const ggml_tensor *q = op->src[0], *k = op->src[1], *v = op->src[2], *mask = op->src[3], *sinks = op->src[4];

    flash_attention_args args = {};

    args.q           = (const char *) q->data;
    args.k           = (const char *) k->data;
    args.v           = (const char *) v->data;
    args.out         = (float *) op->data;
    args.q_row       = q->nb[1];
    args.q_head      = q->nb[2];
    args.q_stream    = q->nb[3];
    args.k_cell      = k->nb[1];
    args.k_head      = k->nb[2];
    args.k_stream    = k->nb[3];
    args.v_cell      = v->nb[1];
    args.v_head      = v->nb[2];
    args.v_stream    = v->nb[3];
    args.dk          = k->ne[0];
    args.dv          = v->ne[0];
    args.n_cells     = k->ne[1];
    args.n_rows      = q->ne[1];
    args.n_heads     = q->ne[2];
    args.n_gqa       = q->ne[2] / k->ne[2];
    args.n_streams   = q->ne[3];
    args.n_k_streams = k->ne[3];
    args.k_type      = k->type;
    args.v_type      = v->type;
    if (mask) {
        args.mask           = (const char *) mask->data;
        args.mask_row       = mask->nb[1];
        args.mask_head      = mask->nb[2];
        args.mask_stream    = mask->nb[3];
        args.n_mask_heads   = mask->ne[2];
        args.n_mask_streams = mask->ne[3];
    }
    args.sinks   = sinks ? (const float *) sinks->data : nullptr;
    args.scale   = ggml_get_op_params_f32(op, 0);
    args.slopes  = alibi_slopes(ggml_get_op_params_f32(op, 1), q->ne[2]);
    args.softcap = ggml_get_op_params_f32(op, 2);
    if (args.softcap != 0.0f) {
        args.scale /= args.softcap;
    }
    return args;
}

}   // namespace

bool flash_attention_fits(const ggml_tensor * op) {
    if (op->op != GGML_OP_FLASH_ATTN_EXT || !best_kernels()) {
        return false;
    }
    const ggml_tensor *q = op->src[0], *k = op->src[1], *v = op->src[2], *mask = op->src[3];
    return q->type == GGML_TYPE_F32 && q->nb[0] == sizeof(float) && is_readable(k->type) && is_readable(v->type) &&
           k->nb[0] == ggml_type_size(k->type) && v->nb[0] == ggml_type_size(v->type) && k->ne[0] % 16 == 0 &&
           v->ne[0] % 16 == 0 && k->ne[1] > 0 && k->ne[2] == v->ne[2] && k->ne[3] == v->ne[3] &&
           q->ne[2] % k->ne[2] == 0 && q->ne[3] % k->ne[3] == 0 &&
           (!mask || (mask->type == GGML_TYPE_F16 && mask->nb[0] == sizeof(ggml_fp16_t))) && ggml_is_contiguous(op);
}

size_t flash_attention_work_size(int n_threads, const ggml_tensor * op) {
    const ggml_tensor *k = op->src[1], *v = op->src[2];
    const size_t       floats = flash_attention_scratch(
        best_kernels()->flash_attention, queries_of_task(op, n_threads), k->ne[1], k->ne[0], v->ne[0]);
    return (size_t) n_threads * floats * sizeof(float) + CACHE_LINE;
}

void flash_attention_compute(const ggml_compute_params * params, ggml_tensor * op) {
    const flash_attention_kernel & kernel = best_kernels()->flash_attention;
    const flash_attention_args     args   = args_of(op);

    const int64_t each = queries_of_task(op, params->nth), n_queries = args.n_rows * args.n_gqa,
                  n_kv_heads    = op->src[1]->ne[2];
    const int64_t tasks_of_head = (n_queries + each - 1) / each, n_tasks = tasks_of_head * n_kv_heads * args.n_streams;
    const size_t  n_scratch = flash_attention_scratch(kernel, each, args.n_cells, args.dk, args.dv);
    float *       scratch   = (float *) aligned_work(params) + params->ith * n_scratch;

    for_each_task(params, n_tasks, [&](int64_t i) {
        const int64_t first = i % tasks_of_head * each, kv_head = i / tasks_of_head % n_kv_heads,
                      stream = i / (tasks_of_head * n_kv_heads);
        kernel.compute(args, stream, kv_head, first, std::min(each, n_queries - first), scratch);
    });
}

}   // namespace dflash
