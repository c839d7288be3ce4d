// What a drafter holds of each sequence: its context, and the taps that it has not read yet.

#pragma once

#include "cache/conversation.h"
#include "cache/pending_taps.h"
#include "draft/drafter.h"
#include "target/target.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace dflash {

class draft_memory {
  public:
    // `target` must outlive this.
    draft_memory(target & target, std::unique_ptr<dflash::drafter> drafter);
    draft_memory(const draft_memory &) = delete;

    dflash::drafter &       drafter() { return *drafter_; }
    const dflash::drafter & drafter() const { return *drafter_; }
    // Another one drafts from now on, which holds the same of the sequences.
    void                 replace_drafter(std::unique_ptr<dflash::drafter> next);
    pending_taps &       taps() { return taps_; }
    const pending_taps & taps() const { return taps_; }
    // Why a drafter pass failed since the last call, empty: none did. Its sequences go on without context.
    std::string take_failure() { return std::exchange(failure_, {}); }

    // ---- a drafter pass ----

    // One sequence's part of it.
    struct part {
        int32_t id;
        bool    denoises;   // else only its pending taps are injected
        int32_t anchor;

        const std::vector<int32_t> * text     = nullptr;     // that the sequence holds, for drafters that read it
        int32_t                      position = 0;           // of the anchor, for drafters with sections
        int32_t                      window   = INT32_MAX;   // positions before the anchor that its block sees
    };
    // Injects pending taps and denoises blocks of `length` tokens; drafts: [parts]. False: the pass failed.
    bool      run(const std::vector<part> & parts, int32_t length, std::vector<draft> & drafts);
    draft_job job_of(const part & p) const;
    // Injects every sequence's pending taps.
    void inject_all();
    // The same if the tap store has too few free cells for the rows of the target's next pass. Call it before that
    // pass, after target::end_pass(): cells of the last one that no sequence keeps are free then.
    void free_tap_cells();

    // ---- with the target's memory ----

    // Where the host has no memory for a copy, the drafter begins anew at the text's end: drafts are an optimization.

    // Keeps the taps of rows of the target's last pass (pending_taps::keep).
    void keep_taps(int32_t id, int32_t row, int32_t n);
    void keep_taps(int32_t id, int32_t first_row, const std::vector<int32_t> & path);
    // Forgets what is held of a text with `end` tokens.
    void begin_anew(int32_t id, int32_t end);
    void forget(int32_t id);
    void cut(int32_t id, int32_t n_past);
    // Lets `to` hold what `from` holds of the first n_past tokens.
    void share(int32_t from, int32_t to, int32_t n_past);
    void set_aside(int32_t id) { drafter_->context().leave(id); }
    void bring_back(int32_t id);
    // To the host and back; n_tokens: of the text.
    draft_copy copy_of(int32_t id, int32_t n_tokens) const;
    size_t     copy_bytes(int32_t id) const;   // of such a copy
    // A context of other types of K and V does not come back.
    void restore(int32_t id, const draft_copy & copy);
    // Why a copy from outside is not one of this drafter's, empty if it can be, or if its context does not come back.
    std::string refusal(const draft_copy & copy, int32_t n_tokens) const;

  private:
    template <class Keep> void try_to_keep(int32_t id, int32_t n, Keep && keep);

    target &                         target_;
    std::unique_ptr<dflash::drafter> drafter_;
    pending_taps                     taps_;
    std::string                      failure_;
};

}   // namespace dflash
