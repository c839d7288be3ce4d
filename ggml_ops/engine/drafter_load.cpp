#include "engine/drafter_load.h"

#include "base/abort_guard.h"
#include "draft/block_drafter.h"
#include "engine/request.h"
#include "mtp/mtp_drafter.h"
#include "target/cache_type.h"

#include <algorithm>
#include <stdexcept>

namespace dflash {

namespace {

constexpr int32_t DEFAULT_DRAFT_CTX = 4096;

// Bytes that positions which left the drafter's rings may take.
size_t history_limit(const model_pair & models) {
    constexpr double MOST = 2.0 * (1u << 30);
    return (size_t) std::min(MOST, models.spare_memory() / 8);
}

drafter_params params_of(const model_pair & models, const target & target) {
    const dflash_engine_params & p = target.params();
    drafter_params               dp;
    dp.n_slots = (int32_t) p.n_slots;
    dp.n_ctx = (int32_t) std::min<uint32_t>(p.draft_ctx ? p.draft_ctx : DEFAULT_DRAFT_CTX, target.limits().n_ctx_slot);
    check_range("draft_ctx", dp.n_ctx, 1, 1 << 24);
    dp.n_batch       = std::max(target.limits().n_rows, 64);
    dp.n_threads     = p.n_threads_batch;
    dp.type_k        = cache_type(p.type_k_draft, "type_k_draft", true);
    dp.type_v        = cache_type(p.type_v_draft, "type_v_draft", true);
    dp.kv_offload    = p.kv_offload;
    dp.flash_attn    = p.flash_attn && dp.type_k == GGML_TYPE_F16 && dp.type_v == GGML_TYPE_F16;
    dp.history_limit = history_limit(models);
    dp.draft_vocab   = p.draft_vocab;
    dp.head          = models.head();
    return dp;
}

// Takes the memory of all later passes now, so that none of them can fail for lack of it.
void reserve(drafter & drafter) {
    try {
        drafter.reserve();
    } catch (const std::runtime_error & e) {
        throw status_error(DFLASH_ERROR_MEMORY, e.what());
    }
}

}   // namespace

static std::unique_ptr<drafter> load_block_drafter(const model_pair & models, target & target) {
    drafter_params params = params_of(models, target);
    params.taps           = target.create_tap_store(pair_error([&] { return access_drafter(models.drafter()); }));
    auto loaded =
        pair_error([&] { return std::make_unique<block_drafter>(models.drafter(), models.target(), params); });
    target.set_tapped_layers(loaded->model().target_layers);
    return loaded;
}

std::vector<std::unique_ptr<drafter>> load_drafters(const model_pair & models, target & target) {
    std::vector<std::unique_ptr<drafter>> loaded;
    const abort_guard                     guard(abort_guard::phase::load);
    models.rpc().blame([&] {
        if (models.drafter()) {
            loaded.push_back(load_block_drafter(models, target));
        }
        if (models.mtp()) {
            loaded.push_back(pair_error([&] { return std::make_unique<mtp_drafter>(models, target); }));
        }
        if (models.plans() || models.on_devices()) {   // on the host memory is taken when it is used
            for (const auto & drafter : loaded) {
                reserve(*drafter);
            }
        }
    });
    if (target.params().accept == DFLASH_ACCEPT_BLOCK) {
        require_lattice(kinds_of(list_of(loaded)));
    }
    return loaded;
}

std::unique_ptr<drafter> load_in_place_of(const drafter & used, const llama_model * model, const model_pair & models) {
    const abort_guard guard(abort_guard::phase::load);
    const auto &      other = static_cast<const block_drafter &>(used);
    auto loaded = pair_error([&] { return std::make_unique<block_drafter>(model, models.target(), other); });
    if (models.on_devices()) {
        reserve(*loaded);
    }
    return loaded;
}

drafter_list list_of(const std::vector<std::unique_ptr<drafter>> & drafters) {
    drafter_list list;
    for (const auto & drafter : drafters) {
        list.push_back(drafter.get());
    }
    return list;
}

}   // namespace dflash
