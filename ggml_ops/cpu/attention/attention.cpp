#include "cpu/attention/attention.h"

#include "ggml-cpu-impl.h"
#include "ggml-impl.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace dflash {

namespace {

constexpr int64_t LANES  = 64;                           // most that share what is read of K and V
constexpr size_t  SCORES = 512 * 1024 / sizeof(float);   // a tile's scores stay in the second-level cache

bool readable(ggml_type type) { return type == GGML_TYPE_F32 || ggml_get_type_traits(type)->to_float != nullptr; }

// Lanes of a tile: many for reuse, few enough for the cache and for every thread to have work. A result does not depend
// on it.
int64_t tile_lanes(const ggml_tensor * op, int n_threads) {
    const ggml_tensor *q = op->src[0], *k = op->src[1];
    const int64_t      lanes = q->ne[1] * (q->ne[2] / k->ne[2]), groups = k->ne[2] * q->ne[3];
    const int64_t      fit   = std::max<int64_t>(8, (int64_t) SCORES / k->ne[1]);
    const int64_t      tiles = (n_threads + groups - 1) / groups;
    return std::max<int64_t>(1, std::min({ LANES, fit, (lanes + tiles - 1) / tiles }));
}

}   // namespace

bool attention_fits(const ggml_tensor * op) {
    if (op->op != GGML_OP_FLASH_ATTN_EXT || !*attention_tiles()) {
        return false;
    }
    const ggml_tensor *q = op->src[0], *k = op->src[1], *v = op->src[2], *mask = op->src[3];
    return q->type == GGML_TYPE_F32 && q->nb[0] == sizeof(float) && readable(k->type) && readable(v->type) &&
           k->nb[0] == ggml_type_size(k->type) && v->nb[0] == ggml_type_size(v->type) && k->ne[0] % 16 == 0 &&
           v->ne[0] % 16 == 0 && k->ne[1] > 0 && k->ne[2] == v->ne[2] && k->ne[3] == v->ne[3] &&
           q->ne[2] % k->ne[2] == 0 && q->ne[3] % k->ne[3] == 0 &&
           (!mask || (mask->type == GGML_TYPE_F16 && mask->nb[0] == sizeof(ggml_fp16_t))) && ggml_is_contiguous(op);
}

size_t attention_work_size(int n_threads, const ggml_tensor * op) {
    const ggml_tensor *k = op->src[1], *v = op->src[2];
    return (size_t) n_threads *
               attention_scratch(**attention_tiles(), tile_lanes(op, n_threads), k->ne[1], k->ne[0], v->ne[0]) *
               sizeof(float) +
           64;
}

void attention_compute(const ggml_compute_params * params, ggml_tensor * op) {
    const attention_tile & tile = **attention_tiles();
    const ggml_tensor *    q = op->src[0], *k = op->src[1], *v = op->src[2], *mask = op->src[3], *sinks = op->src[4];

    attention_job job = {};
    job.q             = (const char *) q->data;
    job.k             = (const char *) k->data;
    job.v             = (const char *) v->data;
    job.out           = (float *) op->data;
    job.q_row         = q->nb[1];
    job.q_head        = q->nb[2];
    job.q_stream      = q->nb[3];
    job.k_cell        = k->nb[1];
    job.k_head        = k->nb[2];
    job.k_stream      = k->nb[3];
    job.v_cell        = v->nb[1];
    job.v_head        = v->nb[2];
    job.v_stream      = v->nb[3];
    job.dk            = k->ne[0];
    job.dv            = v->ne[0];
    job.cells         = k->ne[1];
    job.rows          = q->ne[1];
    job.heads         = q->ne[2];
    job.group         = q->ne[2] / k->ne[2];
    job.streams       = q->ne[3];
    job.k_streams     = k->ne[3];
    job.k_type        = k->type;
    job.v_type        = v->type;
    if (mask) {
        job.mask         = (const char *) mask->data;
        job.mask_row     = mask->nb[1];
        job.mask_head    = mask->nb[2];
        job.mask_stream  = mask->nb[3];
        job.mask_heads   = mask->ne[2];
        job.mask_streams = mask->ne[3];
    }
    job.sinks           = sinks ? (const float *) sinks->data : nullptr;
    const float * param = (const float *) op->op_params;
    job.scale           = param[0];
    job.bias            = param[1];
    job.softcap         = param[2];
    if (job.softcap != 0.0f) {
        job.scale /= job.softcap;
    }
    job.bias_heads = (int64_t) 1 << (int) std::floor(std::log2((double) job.heads));
    job.bias_low   = std::pow(2.0f, -job.bias / job.bias_heads);
    job.bias_high  = std::pow(2.0f, -job.bias / 2.0f / job.bias_heads);

    const int64_t wide = tile_lanes(op, params->nth), lanes = job.rows * job.group, tiles = (lanes + wide - 1) / wide,
                  tasks  = tiles * k->ne[2] * job.streams;
    const size_t scratch = attention_scratch(tile, wide, job.cells, job.dk, job.dv);
    float *      mine    = (float *) (((uintptr_t) params->wdata + 63) / 64 * 64) + params->ith * scratch;

    if (params->ith == 0) {
        ggml_threadpool_chunk_set(params->threadpool, params->nth);
    }
    ggml_barrier(params->threadpool);
    for (int64_t i = params->ith; i < tasks; i = ggml_threadpool_chunk_add(params->threadpool, 1)) {
        const int64_t part = i % tiles, kv_head = i / tiles % k->ne[2], stream = i / (tiles * k->ne[2]);
        tile.run(job, stream, kv_head, part * wide, std::min(wide, lanes - part * wide), mine);
    }
}

}   // namespace dflash
