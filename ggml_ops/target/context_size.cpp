#include "target/context_size.h"

#include "base/error.h"
#include "llama/cache_access.h"
#include "target/cache_type.h"
#include "target/model_pair.h"

#include <algorithm>
#include <cmath>

namespace dflash {

namespace {

// With less memory than for these, loading fails and says why.
constexpr int64_t LEAST = 4096, LEAST_OF_SLOT = 512;
constexpr int64_t STEP = 256;   // llama.cpp's caches grow in such steps
// What passes need on a device beside weights and context. On the host, half of the free memory stays free: for passes,
// for conversations that no slot holds, and for whatever else runs there.
constexpr double DEVICE_MARGIN = 1 << 30;

// Tokens of context for which there is memory.
int64_t affordable_tokens(const llama_model * model, const cache_shape & shape, double spare_memory) {
    double most = INFINITY;
    for (const memory_need & need : access_cache_needs(model, shape)) {
        double free = spare_memory / 2;
        if (need.device) {
            size_t bytes = 0, total = 0;
            ggml_backend_dev_memory(need.device, &bytes, &total);
            free = (double) bytes - DEVICE_MARGIN;
        }
        if (need.per_token > 0) {
            most = std::min(most, std::max(0.0, free - need.fixed) / need.per_token);
        }
    }
    return most < 1e9 ? (int64_t) most : (int64_t) 1e9;
}

cache_shape shape_of(const dflash_engine_params & p) {
    cache_shape shape = {};
    shape.type_k      = cache_type(p.type_k, "type_k", false);
    shape.type_v      = cache_type(p.type_v, "type_v", false);
    shape.n_seqs      = p.n_slots + 1;
    shape.n_ubatch    = p.n_ubatch;
    shape.unified     = p.kv_unified;
    shape.swa_full    = p.swa_full;
    shape.offload     = p.kv_offload;
    return shape;
}

}   // namespace

context_size choose_context_size(const dflash_engine_params & p, const model_pair & models) {
    const int32_t n_train = std::max(1, llama_model_n_ctx_train(models.target()));
    const int64_t n_slots = p.n_slots;
    context_size  size    = { p.n_ctx, 0, "given" };
    if (p.n_ctx == 0) {
        const bool    each   = !p.share_ctx || p.n_ctx_slot > 0;
        const int64_t one    = p.n_ctx_slot > 0 ? std::min<int64_t>(p.n_ctx_slot, n_train) : n_train;
        const int64_t wanted = each ? one * n_slots : one;
        const int64_t most   = affordable_tokens(models.target(), shape_of(p), models.spare_memory());
        const int64_t least  = std::min(wanted, std::max(LEAST, each ? LEAST_OF_SLOT * n_slots : 0));
        size.n_ctx           = (uint32_t) (wanted <= most ? wanted : std::max(least, most / STEP * STEP));
        size.limit           = size.n_ctx == wanted ? "training" : "memory";
    }
    size.n_ctx_slot = (int32_t) (p.share_ctx ? std::min<int64_t>(size.n_ctx, n_train) : size.n_ctx / n_slots);
    if (p.n_ctx_slot > 0) {
        size.n_ctx_slot = std::min(size.n_ctx_slot, (int32_t) p.n_ctx_slot);
    }
    check_range("n_ctx per slot", size.n_ctx_slot, 8, 1 << 30);
    if (!p.share_ctx) {   // the rest would be unused
        size.n_ctx = (uint32_t) (size.n_ctx / n_slots * n_slots);
    }
    return size;
}

}   // namespace dflash
