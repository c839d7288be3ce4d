// The cache: what the target and the drafter hold of each sequence, of which requests it can be reused, and what leaves
// when room is short (docs/cache.md). Requests and drafts are the engine's.

#pragma once

#include "cache/conversation.h"
#include "cache/draft_memories.h"
#include "cache/host_cache.h"
#include "cache/sequence.h"
#include "cache/slot_file.h"
#include "dflash.h"
#include "media/media_table.h"
#include "target/target.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace dflash {

class cache {
  public:
    // Moves of what sequences hold, since load.
    struct move_counts {
        int64_t shared    = 0;   // one sequence's beginning, to another
        int64_t saved     = 0;   // to the host's cache
        int64_t restored  = 0;   // from there
        int64_t left      = 0;   // idle sequences that gave their cells up
        int64_t set_aside = 0;   // running ones
    };

    // All must outlive this but `params` and `models`.
    cache(const dflash_engine_params & params, const model_pair & models, target & target, draft_memories & drafts,
        media_table & media);

    const std::vector<sequence> & sequences() const { return sequences_; }
    void                          check_id(int32_t id) const;     // throws DFLASH_ERROR_ARG
    void                          check_idle(int32_t id) const;   // throws DFLASH_ERROR_BUSY, too
    const sequence &              at(int32_t id) const;           // throws as check_id()
    const host_cache &            host() const { return host_; }
    const move_counts &           moved() const { return moved_; }

    // ---- the beginning of a prompt (prefix.cpp) ----

    // On which of these idle sequences a prompt should run.
    int32_t choose(const std::vector<int32_t> & prompt, const int32_t * candidates, int32_t n) const;
    // Lets an idle sequence hold as much of the prompt as can be had without reading; returns how many tokens. From now
    // on it runs. `prompt` must live until end(); `reusable`: its beginning that need not be read (reusable_part).
    // caches: it may use what others left in the host cache, and is kept there itself.
    int32_t begin(int32_t id, const std::vector<int32_t> & prompt, const std::vector<int32_t> & reusable, bool caches);
    // For a sequence that follows another one. Returns how many tokens it now holds, and it no longer follows; nothing:
    // the other one still reads what they share.
    std::optional<int32_t> follow(int32_t id, const std::vector<int32_t> & reusable);
    // Tokens of the prompt that running sequences hold, or will when they have read theirs.
    int32_t held_by_running(const std::vector<int32_t> & prompt) const;

    // ---- what a pass leaves (cache.cpp) ----

    void add_prompt(int32_t id, int32_t n);   // the next n tokens of it were read
    // A path of a tree; open: see batch::tree_form. False: the memory cannot be rolled back.
    bool keep_path(int32_t id, const tree & t, const std::vector<int32_t> & path, bool open);
    // Adds what followed earlier places of its text that end like its text + [anchor], at most `length` tokens of each.
    void find_quotations(int32_t id, int32_t anchor, int32_t length, continuations & found);
    void end(int32_t id);      // the request no longer runs
    void forget(int32_t id);   // everything that the sequence holds

    // ---- cells that all sequences share (cells.cpp) ----

    std::optional<int32_t> size() const { return target_.limits().n_cells; }   // nothing: each sequence has its own
    int32_t                used_cells() const;
    int32_t                free_cells() const;
    // Cells that running sequences hold, each counted once.
    int32_t busy_cells() const;
    // Whether n cells are free once every idle sequence has left.
    bool has_cells(int32_t n) const;
    // Idle sequences leave, oldest first, until n cells are free; `kept` and `also_kept` stay. False: not enough are.
    bool make_room(int32_t n, int32_t kept = -1, int32_t also_kept = -1);
    void leave(int32_t id);   // an idle sequence gives its cells up
    void leave_idle();        // all idle ones, where they cost running ones time and the host keeps them
    // A running sequence gives its cells up for a while. False: there is no memory on the host for them.
    bool set_aside(int32_t id);
    // False: it lost what it held.
    bool bring_back(int32_t id);

    // ---- files (saved_slots.cpp); dflash.h has the contracts ----

    dflash_slot_file save(int32_t id, const std::string & path);
    dflash_slot_file load(int32_t id, const std::string & path);

  private:
    // Where the beginning of a prompt can come from.
    struct source {
        enum { OWN, OTHER, LEADER, HOST } place;
        int32_t              id;                // of the sequence
        int32_t              n_tokens;          // that need not be read
        const conversation * entry = nullptr;   // HOST only
    };

    memory &       target_memory() { return target_.memory(); }
    const memory & target_memory() const { return target_.memory(); }

    int32_t reach(const sequence & s) const;
    int32_t own_prefix(const sequence & s, const std::vector<int32_t> & prompt) const;
    int32_t future_prefix(const sequence & s, const std::vector<int32_t> & prompt) const;
    bool    shares_cells() const;
    source  best_source(const sequence & s, const std::vector<int32_t> & prompt) const;
    int32_t take_over(sequence & s, const std::vector<int32_t> & reusable, bool caches);
    int32_t cut_back(sequence & s, int32_t n);
    int32_t go_back(const sequence & s, int32_t n);
    int32_t share(const sequence & from, sequence & to, int32_t n);
    bool    share_memory(const sequence & from, const sequence & to);

    void         keep_on_host(const sequence & s);
    conversation copy_of(const sequence & s) const;
    size_t       copy_bytes(const sequence & s) const;
    int32_t      restore(sequence & s, const conversation & c, int32_t n);
    std::string  refusal(const conversation & c, const media_layout & media) const;

    void                    set_owner(const dflash_engine_params & p);
    const slot_file_owner & owner() const;   // throws DFLASH_ERROR_INTERNAL if it is unknown

    int32_t checkpoint_place(const sequence & s) const;
    void    add_checkpoint(sequence & s);
    int32_t held_cells(const std::function<bool(const sequence &)> & which) const;

    target &              target_;
    draft_memories &      drafts_;
    media_table &         media_;
    std::vector<sequence> sequences_;
    host_cache            host_;
    move_counts           moved_;
    int64_t               n_requests_ = 0;

    // options (dflash_engine_params)
    float   slot_similarity_;
    bool    cache_idle_, leaves_idle_;
    int32_t n_checkpoints_, checkpoint_step_;

    // What files of slots belong to: the models as they were loaded, whatever is at their paths later.
    slot_file_owner owner_;
    std::string     no_owner_;   // why that is unknown, empty if it is known
};

// The prompt up to the first token that must be read in any case: the last one, or the one before the first whose
// probability is wanted (probs_from, 0: none).
std::vector<int32_t> reusable_part(const std::vector<int32_t> & prompt, int32_t probs_from);

}   // namespace dflash
