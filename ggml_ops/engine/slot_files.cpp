// Slots as files: saved, and put back after everything in the file was checked. What does not fit leaves the slot as it
// was.

#include "engine/engine.h"

#include "engine/slot_file.h"
#include "llama/state_check.h"

#include <cmath>

namespace dflash {

// What this engine's files belong to. Throws status_error where a model's file cannot be read any more.
static slot_file_owner owner_of(const std::string & model, const std::string & drafter) {
    try {
        return { model_fingerprint(model), drafter.empty() ? 0 : model_fingerprint(drafter) };
    } catch (const std::runtime_error & e) {
        throw status_error(DFLASH_ERROR_INTERNAL, e.what());
    }
}

slot_file_result engine::save_slot(int32_t i, const std::string & path) {
    const slot & s = idle_slot(i);
    if (s.tokens.empty()) {
        throw status_error(DFLASH_ERROR_ARG, "slot " + std::to_string(i) + " holds nothing that could be saved");
    }
    if (const std::string why = access_uncheckable(ctx_.get()); !why.empty()) {
        throw status_error(DFLASH_ERROR_ARG, "slots of this model cannot be saved: " + why);
    }
    const slot_file_owner owner = owner_of(model_path_, drafter_path_);
    const conversation    c     = copy_of(s);
    if (c.state.empty()) {
        throw status_error(DFLASH_ERROR_INTERNAL, "the state of slot " + std::to_string(i) + " could not be read");
    }
    try {
        return { (int32_t) c.tokens.size(), write_slot_file(path, c, owner) };
    } catch (const std::runtime_error & e) {
        throw status_error(DFLASH_ERROR_INTERNAL, e.what());
    }
}

slot_file_result engine::restore_slot(int32_t i, const std::string & path) {
    slot &                s     = idle_slot(i);
    const slot_file_owner owner = owner_of(model_path_, drafter_path_);
    size_t                bytes = 0;
    conversation          c;
    try {
        c = read_slot_file(path, owner, limits_.n_ctx_slot - 1, bytes);
    } catch (const std::runtime_error & e) {
        throw status_error(DFLASH_ERROR_ARG, e.what());
    }
    if (const std::string why = refusal(c); !why.empty()) {
        throw status_error(DFLASH_ERROR_ARG, "the file is damaged: " + why);
    }
    const int32_t n = (int32_t) c.tokens.size();
    if (!has_cells(n)) {
        throw status_error(
            DFLASH_ERROR_BUSY, "no room for " + std::to_string(n) + " tokens beside running requests: try again later");
    }
    conversation before = copy_of(s);
    if (restore(s, c, n) != n) {
        restore(s, before, (int32_t) before.tokens.size());
        throw status_error(DFLASH_ERROR_ARG,
            "the file does not fit this engine: it may have been saved with other cache types (-ctk, -ctv)");
    }
    if (!before.state.empty() && !host_.holds(before.tokens)) {
        host_.add(std::move(before));
    }
    return { n, bytes };
}

// Why a conversation from outside cannot be one of this engine's, empty if it can.
std::string engine::refusal(const conversation & c) const {
    const int32_t n = (int32_t) c.tokens.size(), n_vocab = llama_vocab_n_tokens(vocab());
    for (const int32_t token : c.tokens) {
        if (token < 0 || token >= n_vocab) {
            return "a token outside the vocabulary";
        }
    }
    if (std::string why = access_check_state(ctx_.get(), c.state.data(), c.state.size(), n, false); !why.empty()) {
        return why;
    }
    for (const checkpoint & p : c.checkpoints) {
        if (std::string why = access_check_state(ctx_.get(), p.state->data(), p.state->size(), p.at, true);
            !checkpoints_ || !why.empty()) {
            return checkpoints_ ? why : "checkpoints that this model does not need";
        }
    }
    if (!drafter_) {
        return c.ring.bytes() == 0 && c.taps.data.empty() ? "" : "a drafter's context without a drafter";
    }
    // Where the drafter's context ends the taps begin, and they end with the text.
    if (c.taps.pos != c.ring.end || c.taps.pos + c.taps.rows != n) {
        return "a drafter's context of another text";
    }
    if (c.taps.data.size() != (size_t) c.taps.rows * drafter_->tap_width()) {
        return "taps of another size";
    }
    for (const float x : c.taps.data) {
        if (!std::isfinite(x)) {
            return "taps that are no numbers";
        }
    }
    return drafter_->check_context(c.ring) ? "" : "a drafter's context of another kind";
}

}   // namespace dflash
