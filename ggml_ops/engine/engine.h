// The engine: slots over one target context and one drafter. step() is docs/architecture.md, "One step, seen from
// above".

#pragma once

#include "accept/block_accept.h"
#include "draft/budget.h"
#include "dflash.h"
#include "draft/drafter.h"
#include "llama/access.h"
#include "draft/lookup.h"
#include "accept/sampling.h"
#include "engine/request.h"
#include "draft/tree.h"
#include "accept/walk.h"

#include "llama.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

struct common_chat_templates;   // llama.cpp common/chat.h

namespace dflash {

// An error with its dflash_status.
struct status_error : std::runtime_error {
    int status;
    status_error(int status, const std::string & text) : std::runtime_error(text), status(status) {}
};

struct llama_deleter {
    void operator()(llama_model * m) const { llama_model_free(m); }
    void operator()(llama_context * c) const { llama_free(c); }
    void operator()(llama_batch_ext * b) const { llama_batch_ext_free(b); }
    void operator()(common_chat_templates * t) const;
};

// Host copies of tap rows that the drafter has not injected yet: positions [pos, pos + rows).
struct pending_taps {
    std::vector<float> data;
    int32_t            pos  = 0;
    int32_t            rows = 0;

    void clear(int32_t at) {
        data.clear();
        pos  = at;
        rows = 0;
    }
    void truncate(int32_t end, size_t width);   // keep positions < end
};

// What a slot has learned about its drafts.
struct experience {
    value_profile  values;
    calibration    odds;
    quotation_odds quotes;
};

struct slot {
    int32_t id    = 0;
    int32_t state = DFLASH_IDLE;

    // what the target's memory holds for this sequence
    std::vector<int32_t> tokens;
    // a recurrent target's state after the first saved_at of them, 0: none
    std::vector<uint8_t> saved;
    int32_t              saved_at = 0;
    // the request
    std::vector<int32_t>             prompt;
    int32_t                          save_at = 0;   // save the state when so much of the prompt has been read, 0: never
    std::unique_ptr<dflash::sampler> sampler;
    int32_t                          n_predict = -1;
    int32_t                          budget    = 0;       // effective: 0 auto, 1 plain, N fixed
    int32_t                          width     = 1;       // children per node: 1 chains
    int32_t                          depth     = 0;       // most draft tokens on a path
    bool                             block     = false;   // block verification instead of sample-and-match
    bool                             greedy    = false;   // temperature 0
    // the next pass
    int32_t      anchor = -1;
    tree         next;             // node 0 is the anchor
    draft        drafted;          // what `next` grew from
    drawn_chain  drawn;            // block verification: what `next` was drawn as
    quotation    quoted;           // prompt lookup
    int32_t      n_denoised = 0;   // block length of the drafter pass behind `next`, 0: none
    double       draft_ms   = 0;   // that pass
    const char * reason     = "";
    // this pass
    int32_t     first_row = 0;       // first row of the slot in the batch
    int32_t     n_rows    = 0;       // a prompt chunk's or a tree's
    bool        reads     = false;   // a prompt chunk
    bool        samples   = false;   // a tree, or the chunk that holds the prompt's last row
    bool        open      = false;   // its rows are a tree to the target's memory, which waits for the path
    walk_result walked;
    // drafting
    pending_taps taps;
    experience   seen;
    text_index   text;   // of `tokens`
    // result of this step
    std::vector<int32_t> emitted;
    dflash_update        update = {};
    std::string          error;

    dflash_slot_stats stats       = {};
    int64_t           t_submit_us = 0, t_start_us = 0, t_first_us = 0;

    bool    running() const { return state == DFLASH_READING || state == DFLASH_WRITING; }
    int32_t n_past() const { return (int32_t) tokens.size(); }
    int32_t n_left() const { return n_predict < 0 ? INT32_MAX : n_predict - stats.n_generated; }
};

// Tokens that two texts have in common at the beginning.
int32_t common_prefix(const std::vector<int32_t> & a, const std::vector<int32_t> & b);

// Milliseconds since load, by phase.
struct phase_times {
    double plan = 0, verify = 0, walk = 0, commit = 0, draft = 0, grow = 0, step = 0;
};

class engine {
  public:
    engine(const dflash_engine_params & params, dflash_progress_callback progress, void * user);
    ~engine();

    // requests (request.cpp, prefix_cache.cpp); dflash.h has the contracts
    std::unique_ptr<dflash_prepared> prepare(const dflash_request & request) const;
    // The first of the idle `candidates` that holds most of the prompt's beginning.
    int32_t choose_slot(const prepared_request & request, const int32_t * candidates, int32_t n) const;
    // Takes the parts of the request over; one that is refused stays whole.
    void submit(int32_t slot, prepared_request & request);
    void cancel(int32_t slot);
    void clear(int32_t slot);

    int32_t step(dflash_update * updates, int32_t cap);
    void    interrupt() { interrupted_ = true; }

    void score(int32_t slot, const int32_t * tokens, int32_t n, int32_t from, int32_t width, int32_t * best_id,
        float * best_logit, float * logit);
    void probe(int32_t slot, const int32_t * tokens, int32_t n, int32_t n_block, float * hidden, float * logits,
        int32_t * ids, float * scores);

    void        tree_pass(const dflash_tree_rows * trees, int32_t n_trees);
    std::string cells() const;

    const slot &            at(int32_t slot) const;
    std::string             info() const;
    std::string             stats() const;
    const llama_model *     model() const { return model_.get(); }
    const llama_vocab *     vocab() const { return llama_model_get_vocab(model_.get()); }
    common_chat_templates * templates() const { return templates_.get(); }

  private:
    // one step, in this order
    void   plan();
    bool   verify();
    void   walk_slots();
    void   commit();
    void   draft_and_grow();
    double draft_blocks(const std::vector<slot *> & writing, int32_t length);   // returns ms of the drafter pass
    void   grow_trees(const std::vector<slot *> & writing, double draft_ms);

    slot &               idle_slot(int32_t slot);
    void                 check_tokens(const int32_t * tokens, int32_t n) const;
    void                 add_row(slot & s, int32_t token, int32_t pos, bool output);
    void                 add_tree(slot & s, const tree & t, bool all_outputs, bool rolls_back, int32_t size = 0);
    int32_t              padded_size() const;   // of every tree of the pass, 0: as they are
    void                 need_tapes(int32_t n_rows);
    bool                 keep_path(slot & s, const tree & t, const std::vector<int32_t> & path);
    void                 push_row(int32_t seq, int32_t token, int32_t pos, bool output);
    void                 pad_rows();
    void                 keep_taps(slot & s, int32_t row, int32_t n);
    void                 count(slot & s, const tree & t);   // statistics of a walk
    void                 finish(slot & s, int32_t state);
    void                 fail(slot & s, const std::string & why);
    void                 forget(slot & s);   // target and drafter state of a slot
    int32_t              reuse_prefix(slot & s, int32_t n_common);
    bool                 go_back(slot & s, int32_t & n_common);
    void                 save_state(slot & s);
    int32_t              max_depth(const slot & s) const;
    int32_t              max_nodes(const slot & s) const;
    int32_t              choose_block(const std::vector<slot *> & slots);
    std::vector<int32_t> block_lengths() const;
    void                 set_reason(const char * why);
    void                 learn_costs(double verify_ms);
    double               plain_rate(int32_t n_slots) const;   // tokens per ms
    void                 measure_costs(bool all);
    bool                 read_costs();
    void                 write_costs() const;
    int32_t              max_tree_rows() const;
    int                  process();
    void                 process_or_throw(const char * what);
    template <class Look, class Then>
    void feed(slot & s, const int32_t * tokens, int32_t n, int32_t width, bool all_outputs, const char * what,
        Look && look, Then && then);
    bool is_recurrent() const { return llama_model_is_recurrent(model_.get()) || llama_model_is_hybrid(model_.get()); }
    void load(const dflash_engine_params & params, dflash_progress_callback progress, void * user);

    std::unique_ptr<llama_model, llama_deleter>           model_, draft_model_;
    std::unique_ptr<llama_context, llama_deleter>         ctx_;
    std::unique_ptr<llama_batch_ext, llama_deleter>       batch_;
    std::unique_ptr<drafter>                              drafter_;
    std::unique_ptr<common_chat_templates, llama_deleter> templates_;

    std::vector<slot> slots_;
    int32_t           n_ctx_slot_ = 0, n_rows_max_ = 0, n_outputs_max_ = 0;
    int32_t           budget_ = 0, draft_n_max_ = 0, draft_mode_ = DFLASH_DRAFT_TREE, accept_ = DFLASH_ACCEPT_MATCH;
    bool              lookup_ = false, unified_ = true;
    std::string       cost_cache_, cost_source_ = "none";
    int32_t           pad_seq_   = -1;      // sequence of padding rows, -1: passes are not padded
    bool              tapes_     = false;   // recurrent target whose memory rolls trees and chains back
    int32_t           tape_rows_ = 0;       // rows that it can hold of each, 0: nothing is allocated yet
    std::string       no_draft_;            // why this target cannot verify drafts, empty if it can
    std::string       no_tree_;             // why it can verify only chains, empty if it can

    // this step
    int32_t n_rows_ = 0, n_tree_rows_ = 0, n_pad_rows_ = 0;
    bool    pure_ = false;   // no prompt rows in the pass

    // cost and choice
    cost_curve verify_cost_, draft_cost_;
    double     other_ms_     = 0,
           rebuild_ms_       = 0;   // of a step beyond its passes; of a pass whose width differs from the last one's
    int32_t       last_rows_ = 0;
    draft_switch  switch_;
    double        drafted_ms_  = 0;   // of the drafter pass that the next step verifies, 0: none
    double        promised_    = 0;   // expected tokens of the next step
    double        context_     = 0;   // positions that its rows attend to, mean of the writing slots
    int32_t       since_plain_ = 0;   // drafted steps since a plain one
    experience    last_seen_[2];      // of the last answers, sampled and greedy: where a new one starts
    length_choice last_choice_;
    const char *  reason_ = "";   // of the last choice

    // what was chosen, how often
    std::map<int32_t, int64_t>     chosen_nodes_, chosen_lengths_;
    std::map<std::string, int64_t> chosen_reasons_;
    std::string                    last_failure_;   // of the drafter

    int64_t     n_steps_ = 0, n_passes_ = 0, n_row_total_ = 0, n_generated_ = 0, n_quoted_ = 0, n_quoted_accepted_ = 0;
    phase_times times_;
    std::atomic<bool> interrupted_{ false };
};

}   // namespace dflash

struct dflash_engine : dflash::engine {
    using dflash::engine::engine;
};

namespace dflash {
inline const llama_model *     engine_model(const dflash_engine * e) { return e->model(); }
inline common_chat_templates * engine_templates(const dflash_engine * e) { return e->templates(); }
}   // namespace dflash
