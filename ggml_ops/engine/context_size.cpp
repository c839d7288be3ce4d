// How many tokens of context there are: what was asked for, or what the model was trained with and memory allows.

#include "engine/engine.h"

#include "engine/cache_type.h"
#include "llama/cache_access.h"

#include <algorithm>
#include <cmath>

namespace dflash {

namespace {

// Less is of no use: then loading fails, and says why.
constexpr int64_t LEAST = 4096, LEAST_OF_SLOT = 512;
constexpr int64_t STEP = 256;   // llama.cpp's caches grow in such steps
// What passes need on a device of its own beside weights and context. On the host half of what is free stays free: for
// passes, conversations that no slot holds, and whatever else runs there.
constexpr double DEVICE_MARGIN = 1 << 30;

}   // namespace

// Bytes that are left on the host when the weights are loaded, as far as is known.
double engine::spare_memory() const {
    size_t free = params_.host_memory, total = 0;
    if (ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU); cpu && free == 0) {
        ggml_backend_dev_memory(cpu, &free, &total);
    }
    const size_t weights =
        access_host_weights(model_.get()) + (draft_model_ ? access_host_weights(draft_model_.get()) : 0);
    return free > weights ? (double) (free - weights) : 0.0;
}

// Bytes that conversations which no slot holds may take.
size_t engine::host_cache_limit() const {
    constexpr size_t MIB = 1 << 20, DEFAULT = 8192 * MIB;
    if (params_.cache_ram == -1) {
        return host_cache::NO_LIMIT;
    }
    return params_.cache_ram >= 0 ? params_.cache_ram * MIB : std::min(DEFAULT, (size_t) (spare_memory() / 4));
}

// Bytes that positions which left the drafter's rings may take.
size_t engine::history_limit() const {
    constexpr double MOST = 2.0 * (1u << 30);
    return (size_t) std::min(MOST, spare_memory() / 8);
}

// Tokens of context for which there is memory.
static int64_t affordable_tokens(const llama_model * model, const cache_shape & shape, double spare_memory) {
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

// n_ctx and the positions of one slot.
void engine::set_context_size() {
    dflash_engine_params & p       = params_;
    const int32_t          n_train = std::max(1, llama_model_n_ctx_train(model_.get()));
    const int64_t          n_slots = p.n_slots;
    ctx_limit_                     = "given";
    if (p.n_ctx == 0) {
        const bool    each   = !p.share_ctx || p.n_ctx_slot > 0;
        const int64_t one    = p.n_ctx_slot > 0 ? std::min<int64_t>(p.n_ctx_slot, n_train) : n_train;
        const int64_t wanted = each ? one * n_slots : one;
        cache_shape   shape  = {};
        shape.type_k         = cache_type(p.type_k, "type_k", false);
        shape.type_v         = cache_type(p.type_v, "type_v", false);
        shape.n_seqs         = p.n_slots + 1;
        shape.n_ubatch       = p.n_ubatch;
        shape.unified        = p.kv_unified;
        shape.swa_full       = p.swa_full;
        shape.offload        = p.kv_offload;
        const int64_t most   = affordable_tokens(model_.get(), shape, spare_memory());
        const int64_t least  = std::min(wanted, std::max(LEAST, each ? LEAST_OF_SLOT * n_slots : 0));
        p.n_ctx              = (uint32_t) (wanted <= most ? wanted : std::max(least, most / STEP * STEP));
        ctx_limit_           = p.n_ctx == wanted ? "training" : "memory";
    }
    limits_.n_ctx_slot = p.share_ctx ? (int32_t) std::min<int64_t>(p.n_ctx, n_train) : (int32_t) (p.n_ctx / n_slots);
    if (p.n_ctx_slot > 0) {
        limits_.n_ctx_slot = std::min(limits_.n_ctx_slot, (int32_t) p.n_ctx_slot);
    }
    check_range("n_ctx per slot", limits_.n_ctx_slot, 8, 1 << 30);
    if (!p.share_ctx) {   // what does not divide is of no use
        p.n_ctx = (uint32_t) (p.n_ctx / n_slots * n_slots);
    }
}

}   // namespace dflash
