// What a slot keeps of earlier requests: the common prefix with a new prompt is not read again.

#include "engine/engine.h"

#include <algorithm>

namespace dflash {

namespace {

// A slot is preferred for what it has cached if that is more than this share of the prompt; otherwise the first one is,
// so that two characters in common do not cost another conversation its cache. llama-server's --slot-prompt-similarity.
constexpr double MIN_PREFIX_SHARE = 0.1;

}   // namespace

int32_t common_prefix(const std::vector<int32_t> & a, const std::vector<int32_t> & b) {
    const size_t n = std::min(a.size(), b.size());
    return (int32_t) (std::mismatch(a.begin(), a.begin() + n, b.begin()).first - a.begin());
}

int32_t engine::choose_slot(const prepared_request & p, const int32_t * candidates, int32_t n) const {
    if (!candidates || n < 1) {
        throw status_error(DFLASH_ERROR_ARG, "slots is empty: give at least one idle slot");
    }
    int32_t best = 0;
    double  most = -1.0;
    for (int32_t i = 0; i < n; ++i) {
        const slot & s = at(candidates[i]);
        if (s.running()) {
            throw status_error(DFLASH_ERROR_BUSY, "slot " + std::to_string(s.id) + " is running: choose an idle one");
        }
        double share = (double) common_prefix(s.tokens, p.prompt) / (double) p.prompt.size();
        share        = share > MIN_PREFIX_SHARE ? share : 0.0;
        if (share > most) {
            most = share;
            best = s.id;
        }
    }
    return best;
}

// Keep the first n_common tokens of what the slot holds. Returns how many really stayed.
int32_t engine::reuse_prefix(slot & s, int32_t n_common) {
    llama_memory_t mem   = llama_get_memory(ctx_.get());
    const int32_t  n_swa = llama_model_n_swa(model_.get());
    if (n_common > 0 && n_common < s.n_past() && !go_back(s, n_common)) {
        n_common = 0;
    }
    // A sliding-window cache has dropped what lies outside the window of its newest position.
    if (n_common > 0 && !is_recurrent() &&
        llama_memory_seq_pos_min(mem, s.id) > std::max(0, n_swa > 0 ? n_common - n_swa : 0)) {
        n_common = 0;
    }
    if (n_common == 0) {
        forget(s);
        return 0;
    }
    if (n_common < s.n_past()) {
        s.text.reset();
    }
    s.tokens.resize(n_common);
    if (s.saved_at > n_common) {
        s.saved_at = 0;
    }
    if (drafter_) {
        s.taps.truncate(n_common, drafter_->tap_width());
        if (drafter_->next_pos(s.id) > n_common) {
            drafter_->rewind(s.id, n_common);
        }
        if (s.taps.rows == 0) {
            s.taps.clear(drafter_->next_pos(s.id));
        }
    }
    return n_common;
}

// Forget what follows the first n_common tokens. Recurrent memory goes back no further than to the last tree's root, or
// to its saved state: n_common says how many tokens stayed. False: none can.
bool engine::go_back(slot & s, int32_t & n_common) {
    llama_memory_t mem = llama_get_memory(ctx_.get());
    if (llama_memory_seq_rm(mem, s.id, n_common, -1)) {
        return true;
    }
    if (s.saved_at == 0 || s.saved_at > n_common ||
        llama_state_seq_set_data_ext(
            ctx_.get(), s.saved.data(), s.saved.size(), s.id, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY) == 0) {
        return false;
    }
    n_common = s.saved_at;
    return llama_memory_seq_rm(mem, s.id, n_common, -1);   // of the attention layers
}

void engine::save_state(slot & s) {
    s.saved.resize(llama_state_seq_get_size_ext(ctx_.get(), s.id, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY));
    const size_t n = llama_state_seq_get_data_ext(
        ctx_.get(), s.saved.data(), s.saved.size(), s.id, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY);
    s.saved_at = n > 0 ? s.n_past() : 0;
}

void engine::forget(slot & s) {
    s.saved_at = 0;
    llama_memory_seq_rm(llama_get_memory(ctx_.get()), s.id, -1, -1);
    s.tokens.clear();
    s.text.reset();
    s.taps.clear(0);
    if (drafter_) {
        drafter_->rewind(s.id, 0);
    }
}

void engine::clear(int32_t i) { forget(idle_slot(i)); }

}   // namespace dflash
