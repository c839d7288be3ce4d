// The engine: slots that run requests over a target, a drafter and a cache. step() is docs/architecture.md, "One step,
// seen from above"; what it chooses and why is the controller's.

#pragma once

#include "cache/cache.h"
#include "cache/draft_memories.h"
#include "dflash.h"
#include "draft/corpus.h"
#include "draft/earlier_answers.h"
#include "engine/controller.h"
#include "engine/inspector.h"
#include "engine/params.h"
#include "engine/request.h"
#include "engine/room.h"
#include "engine/slot.h"
#include "media/media_encoder.h"
#include "target/model_pair.h"
#include "target/target.h"
#include "transfers/transfer_count.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

struct common_chat_templates;   // llama.cpp common/chat.h

namespace dflash {

// Milliseconds since load, by phase.
struct phase_times {
    double plan = 0, verify = 0, walk = 0, commit = 0, draft = 0, grow = 0, step = 0;
};

// Counts since load.
struct engine_totals {
    int64_t         n_steps = 0, n_passes = 0, n_rows = 0, n_tokens = 0;
    int64_t         n_quoted[N_QUOTE_SOURCES] = {}, n_quoted_accepted[N_QUOTE_SOURCES] = {};
    int64_t         n_reused   = 0;                          // passes whose graph was there
    int64_t         n_decoding = 0, n_decoding_reused = 0;   // passes without prompts that follow such; reused as above
    transfer_counts moved{};                                 // by steps

    void add(const transfer_counts & before, const transfer_counts & after);
};

class engine {
  public:
    engine(const dflash_engine_params & params, dflash_progress_callback progress, void * user);
    ~engine();

    // ---- requests; dflash.h has the contracts ----

    std::unique_ptr<dflash_request> prepare(const dflash_request_params & params) const;
    media_prompt prompt(const std::string & text, bool add_special, const dflash_media * media, int32_t n_media) const;
    bool         has_room(const request & r) const { return room_.has(r); }
    // Moves the request; one that is refused stays whole.
    void                 submit(int32_t id, dflash_request & r);
    void                 cancel(int32_t id);
    bool                 end_reasoning(int32_t id);
    void                 set_corpus(dflash::corpus && texts);
    void                 replace_drafter(const char * path);
    int32_t              step(dflash_update * updates, int32_t cap);
    void                 interrupt() { target_.interrupt(); }
    dflash_slot_counters stats_of(int32_t id) const;   // of a running request: until now

    // ---- its parts ----

    const dflash_engine_params & params() const { return target_.params(); }   // string members are invalid after load
    const model_pair &           models() const { return models_; }
    const dflash::target &       target() const { return target_; }
    const draft_memories &       drafts() const { return drafts_; }
    const media_encoder *        encoder() const { return encoder_.get(); }   // null: text only
    const dflash::cache &        cache() const { return cache_; }
    dflash::cache &              cache() { return cache_; }
    const dflash::controller &   controller() const { return controller_; }
    const pass_record &          next_pass() const { return next_; }
    const dflash::corpus &       corpus() const { return corpus_; }
    const earlier_answers &      answers() const { return answers_; }
    const engine_totals &        totals() const { return totals_; }
    const phase_times &          times() const { return times_; }
    common_chat_templates *      templates() const { return templates_.get(); }

    // ---- inspection, for tests ----

    dflash::inspector inspector() { return { target_, drafts_, cache_, media_, live_media_, encoder_.get() }; }
    void              add_time(double ms);   // of inspector::tree_pass()

  private:
    int32_t run_step(dflash_update * updates);
    int32_t step_in_turn(dflash_update * updates);
    int32_t write_updates(dflash_update * updates);

    // one step, in this order
    int32_t begin_step();
    void    read_media();
    void    plan(int32_t room);
    bool    verify();
    void    walk();
    void    commit();
    void    choose();
    void    draft();
    void    grow();

    // parts of a request's life
    void start(slot & s);
    void remember(const slot & s);
    void finish(slot & s, int32_t state);
    void fail(slot & s, const std::string & why, int32_t state = DFLASH_FAILED);
    void end_early(slot & s, const std::string & why);

    // parts of the phases
    slot * next_medium();
    void   read_medium(slot & s);
    void   follow(slot & s);
    void   follow_leaders();
    void   add_trees(const std::vector<int32_t> & sizes);
    void   add_prompts();
    void   add_prompt(slot & s, int32_t n_tree_rows, int32_t n_outputs);
    void   choose_needed_logits();
    void   await_logits();
    void   count_pass();
    void   count_walk(slot & s);
    void   commit_prompt(slot & s);
    void   commit_tree(slot & s);
    void   emit(slot & s);
    void   finish_if_done(slot & s);
    void   quote();
    void   draft_with(
          draft_memory & drafts, const std::vector<draft_memory::part> & parts, int32_t n_denoised, int32_t n_injected);
    void grow_tree(slot & s, int32_t max_nodes);

    dflash_engine_params           given_;        // checked; the texts that it points to live only during load
    std::string                    cost_cache_;   // path, empty: none
    model_pair                     models_;
    dflash::target                 target_;
    draft_memories                 drafts_;
    const drafter_kinds            kinds_ = kinds_of(drafts_.drafters());   // of whatever file: read on any thread
    media_table                    media_;
    mutable live_media             live_media_{ media_ };   // any thread
    std::unique_ptr<media_encoder> encoder_;
    dflash::cache                  cache_;
    const pass_limits &            limits_;   // the target's
    dflash::controller             controller_{ limits_ };
    dflash::corpus                 corpus_;
    earlier_answers                answers_;
    std::vector<slot>              slots_;
    dflash::room                   room_{ cache_, limits_, slots_ };

    struct templates_deleter {
        void operator()(common_chat_templates * t) const;
    };
    std::unique_ptr<common_chat_templates, templates_deleter> templates_;

    pass_record   pass_, next_;       // of this step, and the one for which it chooses
    bool          decoded_ = false;   // the last step's pass had no prompt rows
    engine_totals totals_;
    phase_times   times_;
};

}   // namespace dflash

struct dflash_engine : dflash::engine {
    using dflash::engine::engine;
};

struct dflash_request : dflash::request {
    const dflash::engine * owner;   // the sampler reads this engine's vocabulary
};
