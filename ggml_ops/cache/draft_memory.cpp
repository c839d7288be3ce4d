#include "cache/draft_memory.h"

#include "base/abort_guard.h"
#include "target/cache_type.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace dflash {

namespace {

constexpr int32_t DEFAULT_DRAFT_CTX = 4096;

// Bytes that positions which left the drafter's rings may take.
size_t history_limit(const model_pair & models) {
    constexpr double MOST = 2.0 * (1u << 30);
    return (size_t) std::min(MOST, models.spare_memory() / 8);
}

drafter_params params_of(const dflash_engine_params & p, const model_pair & models, const pass_limits & limits) {
    drafter_params dp;
    dp.n_slots = (int32_t) p.n_slots;
    dp.n_ctx   = (int32_t) std::min<uint32_t>(p.draft_ctx ? p.draft_ctx : DEFAULT_DRAFT_CTX, limits.n_ctx_slot);
    check_range("draft_ctx", dp.n_ctx, 1, 1 << 24);
    dp.n_batch       = std::max(limits.n_rows, 64);
    dp.n_threads     = p.n_threads_batch;
    dp.type_k        = cache_type(p.type_k_draft, "type_k_draft", true);
    dp.type_v        = cache_type(p.type_v_draft, "type_v_draft", true);
    dp.kv_offload    = p.kv_offload;
    dp.flash_attn    = p.flash_attn && dp.type_k == GGML_TYPE_F16 && dp.type_v == GGML_TYPE_F16;
    dp.history_limit = history_limit(models);
    return dp;
}

}   // namespace

draft_memory::draft_memory(const dflash_engine_params & params, const model_pair & models, target & target) :
    target_(target), taps_(target, (int32_t) params.n_slots) {
    if (!models.drafter()) {
        return;
    }
    const abort_guard guard(abort_guard::phase::load);
    models.rpc().blame([&] {
        drafter_params dp = params_of(params, models, target.limits());
        dp.taps  = target.create_tap_store(pair_error([&] { return access_drafter(models.drafter()); }), dp.n_slots);
        drafter_ = pair_error([&] { return std::make_unique<dflash::drafter>(models.drafter(), models.target(), dp); });
        target.set_tapped_layers(drafter_->model().target_layers);
        taps_.start(drafter_->tap_size());
        // The memory of all passes to come, so that none fails for want of it. On the host it is taken when it is used.
        if (models.plans() || models.on_devices()) {
            try {
                drafter_->reserve();
            } catch (const std::runtime_error & e) {
                throw status_error(DFLASH_ERROR_MEMORY, e.what());
            }
        }
    });
}

// ---- a drafter pass ----

draft_job draft_memory::job_of(const part & p) const {
    const tap_rows & taps = taps_.of(p.id);
    draft_job        job;
    job.slot     = p.id;
    job.taps     = taps.data.data();
    job.cells    = taps.cells.data();
    job.n_inject = taps.rows;
    job.pos      = taps.pos;
    job.denoise  = p.denoises;
    job.anchor   = p.anchor;
    return job;
}

bool draft_memory::run(const std::vector<part> & parts, int32_t length, std::vector<draft> & drafts) {
    std::vector<draft_job> jobs;
    for (const part & p : parts) {
        jobs.push_back(job_of(p));
    }
    try {
        drafter_->run(jobs, length, drafts);
    } catch (const std::exception & e) {
        // Drafting is an optimization: without it the answer is the same. Start the drafter's context afresh.
        failure_ = e.what();
        for (const part & p : parts) {
            const int32_t end = taps_.of(p.id).pos + taps_.of(p.id).rows;
            taps_.clear(p.id, end);
            drafter_->context().restart(p.id, end);   // it may hold rows that were never computed
        }
        return false;
    }
    for (const part & p : parts) {
        taps_.clear(p.id, drafter_->context().end(p.id));
    }
    return true;
}

void draft_memory::inject_all() {
    std::vector<part>  parts;
    std::vector<draft> drafts;
    for (int32_t id = 0; id < taps_.n_sequences(); ++id) {
        if (taps_.of(id).rows > 0) {
            parts.push_back({ id, false, -1 });
        }
    }
    if (!parts.empty()) {
        run(parts, 0, drafts);
    }
}

// There are enough cells when no sequence holds any (target::create_tap_store).
void draft_memory::free_tap_cells() {
    target_.end_pass();
    if (target_.taps() && target_.taps()->n_free() < target_.rows().n_rows() - target_.rows().n_padding()) {
        inject_all();
    }
}

// ---- with the target's memory ----

void draft_memory::forget(int32_t id) {
    taps_.clear(id, 0);
    if (drafter_) {
        drafter_->context().rewind(id, 0);
    }
}

void draft_memory::cut(int32_t id, int32_t n_past) {
    if (drafter_) {   // the taps go on where the drafter's context ends, and end with the text
        taps_.cut(id, n_past);
        drafter_->context().rewind(id, taps_.of(id).pos);
    }
}

void draft_memory::share(int32_t from, int32_t to, int32_t n_past) {
    taps_.copy(from, to);
    if (drafter_) {
        drafter_->context().put(to, drafter_->context().take(from, n_past));
    }
}

void draft_memory::copy_to(conversation & c, int32_t id) const {
    c.taps = taps_.on_host(id);
    if (drafter_) {
        c.ring = drafter_->context().take(id, (int32_t) c.tokens.size());
    }
}

// Where the tap store has no room for all taps, the drafter reads some at once.
void draft_memory::restore(int32_t id, const conversation & c) {
    if (drafter_) {
        drafter_->context().put(id, c.ring);
        taps_.restore(id, c.taps, [&] { inject_all(); });
    }
}

std::string draft_memory::refusal(const conversation & c) const {
    if (!drafter_) {
        return c.ring.bytes() == 0 && c.taps.data.empty() ? "" : "a drafter's context without a drafter";
    }
    // Where the drafter's context ends the taps begin, and they end with the text.
    if (c.taps.pos != c.ring.end || c.taps.pos + c.taps.rows != (int32_t) c.tokens.size()) {
        return "a drafter's context of another text";
    }
    if (c.taps.data.size() != (size_t) c.taps.rows * drafter_->tap_size()) {
        return "taps of another size";
    }
    if (!std::all_of(c.taps.data.begin(), c.taps.data.end(), [](float x) { return std::isfinite(x); })) {
        return "taps that are no numbers";
    }
    return drafter_->context().fits(c.ring) ? "" : "a drafter's context of another kind";
}

}   // namespace dflash
