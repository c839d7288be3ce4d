// A target and a cache over it, without an engine.

#pragma once

#include "cache/cache.h"
#include "check.h"

#include "ggml-backend.h"

#include <numeric>
#include <vector>

namespace dflash {

using tokens = std::vector<int32_t>;

inline tokens counted(int32_t from, int32_t n) {
    tokens t(n);
    std::iota(t.begin(), t.end(), from);
    return t;
}

// kv_unified: sequences share cells; otherwise each has its own.
inline dflash_engine_params pocket_params(const char * model, bool kv_unified = true) {
    ggml_backend_load_all();
    dflash_engine_params p = {};
    p.model                = model;
    p.n_slots              = 3;
    p.n_ctx                = 768;
    p.n_batch = p.n_ubatch = 256;
    p.n_threads = p.n_threads_batch = 1;
    p.kv_unified                    = kv_unified;
    p.share_ctx                     = kv_unified;
    p.cache_ram                     = 64;
    p.slot_similarity               = 0.1f;
    p.cache_idle_slots              = true;
    p.flash_attn                    = 1;
    return p;
}

struct pocket_parts {
    dflash_engine_params params;
    model_pair           models;
    dflash::target       target;
    draft_memories       drafts;
    media_table          media;
    dflash::cache        cache;

    explicit pocket_parts(const char * model, bool kv_unified = true) :
        pocket_parts(pocket_params(model, kv_unified)) {}
    explicit pocket_parts(const dflash_engine_params & params) :
        params(params), models(params, {}), target(params, models), drafts(target, {}),
        cache(target.params(), models, target, drafts, media) {}

    // Computes tokens [from, all) of a text for a sequence and returns the logits after the last one.
    std::vector<float> read(int32_t seq, const tokens & text, int32_t from) {
        target.rows().clear();
        for (int32_t i = from; i < (int32_t) text.size(); ++i) {
            target.rows().add_row(seq, text[i], i, i + 1 == (int32_t) text.size());
        }
        target.process("read");
        const float * row = llama_get_logits_ith(target.context(), target.rows().n_rows() - 1);
        return { row, row + target.n_vocab() };
    }
};

// The status of what f throws, DFLASH_OK if nothing.
template <class F> int status_of(F && f) {
    try {
        f();
    } catch (const status_error & e) {
        return e.status;
    }
    return DFLASH_OK;
}

}   // namespace dflash
