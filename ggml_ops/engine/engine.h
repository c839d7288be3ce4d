// The engine: slots over one target context and one drafter. step() is docs/architecture.md, "One step, seen from
// above"; what it chooses and why is the controller's.

#pragma once

#include "base/error.h"
#include "dflash.h"
#include "draft/drafter.h"
#include "engine/batch.h"
#include "engine/controller.h"
#include "engine/host_cache.h"
#include "engine/memory_table.h"
#include "engine/placement.h"
#include "engine/request.h"
#include "engine/rpc_servers.h"
#include "engine/slot.h"
#include "llama/logit_store.h"
#include "llama/tap_store.h"
#include "transfers/transfer_count.h"

#include "llama-cpp.h"

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

struct common_chat_templates;   // llama.cpp common/chat.h

namespace dflash {

// Where the beginning of a prompt can come from (prefix_cache.cpp).
struct prefix_source {
    enum place { OWN, SLOT, LEADER, HOST };
    place                from;
    int32_t              index;      // of the slot
    int32_t              n_tokens;   // that need not be read
    const conversation * entry;      // HOST only
};

// The prompt up to the first token that must be read, whatever is cached: the last one, or the one before the first
// whose probability is to be told (probs_from, 0: none).
std::vector<int32_t> reusable_part(const std::vector<int32_t> & prompt, int32_t probs_from);

// Milliseconds since load, by phase.
struct phase_times {
    double plan = 0, verify = 0, walk = 0, commit = 0, draft = 0, grow = 0, step = 0;
};

// Counts since load.
struct engine_totals {
    int64_t         n_steps = 0, n_passes = 0, n_rows = 0, n_tokens = 0;
    int64_t         n_lookup_drafted = 0, n_lookup_accepted = 0;
    int64_t         n_reused   = 0;                          // passes whose graph was there
    int64_t         n_decoding = 0, n_decoding_reused = 0;   // the same of passes without prompts after such
    transfer_counts moved{};                                 // by steps

    void add(const transfer_counts & before, const transfer_counts & after) {
        moved.to_device += after.to_device - before.to_device;
        moved.from_device += after.from_device - before.from_device;
        moved.between_devices += after.between_devices - before.between_devices;
    }
};

// What was saved or restored.
struct slot_file_result {
    int32_t n_tokens;
    size_t  n_bytes;
};

// How often what slots hold moved, since load.
struct kept_counts {
    int64_t n_shared    = 0;   // one slot's beginning, to another
    int64_t n_saved     = 0;   // to the host's cache
    int64_t n_restored  = 0;   // from there
    int64_t n_left      = 0;   // idle slots that gave their cells up
    int64_t n_set_aside = 0;   // running ones
};

class engine {
  public:
    // Taps that a slot may leave in the store while it does not draft.
    static constexpr int32_t MAX_STORED_TAPS = 64;

    engine(const dflash_engine_params & params, dflash_progress_callback progress, void * user);
    ~engine();
    // What an engine with these parameters would allocate, by device, as JSON (report.cpp); nothing is allocated.
    // stand_ins: devices that take the place of this machine's, none: its own.
    static std::string allocations(
        const dflash_engine_params & params, const std::vector<ggml_backend_dev_t> & stand_ins);

    // requests (request.cpp, prefix_cache.cpp, room.cpp); dflash.h has the contracts
    std::unique_ptr<dflash_prepared> prepare(const dflash_request & request) const;
    bool                             has_room(const prepared_request & request) const;
    int32_t choose_slot(const prepared_request & request, const int32_t * candidates, int32_t n) const;
    // Takes the parts of the request over; one that is refused stays whole.
    void    submit(int32_t slot, prepared_request & request);
    void    cancel(int32_t slot);
    bool    end_reasoning(int32_t slot);
    int32_t clear(int32_t slot);   // returns how many tokens it forgot
    // slot_files.cpp
    slot_file_result save_slot(int32_t slot, const std::string & path);
    slot_file_result restore_slot(int32_t slot, const std::string & path);

    int32_t step(dflash_update * updates, int32_t cap);
    void    interrupt() { interrupted_ = true; }
    void    check_rpc() const { rpc_.check(); }

    // Open looks, for tests (proof.cpp).
    void        score(int32_t slot, const int32_t * tokens, int32_t n, int32_t from, int32_t width, int32_t * best_id,
               float * best_logit, float * logit);
    void        probe(int32_t slot, const int32_t * tokens, int32_t n, int32_t n_block, float * hidden, float * logits,
               int32_t * ids, float * scores);
    void        tree_pass(const dflash_tree_rows * trees, int32_t n_trees);
    std::string cells() const;

    // What the engine tells about itself, as JSON (report.cpp).
    std::string info() const;
    std::string stats() const;

    const slot &            at(int32_t slot) const;
    dflash_slot_stats       stats_of(int32_t slot) const;   // of a running request: until now
    const llama_model *     model() const { return model_.get(); }
    const llama_vocab *     vocab() const { return llama_model_get_vocab(model_.get()); }
    common_chat_templates * templates() const { return templates_.get(); }

  private:
    engine(const dflash_engine_params & params, const std::vector<ggml_backend_dev_t> & stand_ins);

    int32_t run_step(dflash_update * updates);
    void    raise_rpc_failures(const std::function<void()> & f) const;

    // one step, in this order
    void plan();
    bool verify();
    void walk();
    void commit();
    void quote();
    void draft(int32_t length);
    void grow();

    // parts of the phases
    void        add_tree(slot & s, const tree & t, bool all_outputs, bool rolls_back, int32_t padded_size = 0);
    void        add_prompt(slot & s, int32_t n_before, int32_t n_outputs);
    void        cut_trees(int32_t room);
    int         process();
    void        process_or_throw(const char * what);
    void        tell_prompt(slot & s);
    void        tell(slot & s, int32_t row, int32_t token);
    walk_result walk_slot(slot & s);
    walk_result walk_block(slot & s, int32_t first_row, const std::function<bool(int32_t)> & ends);
    void        count(slot & s);
    void        commit_prompt(slot & s);
    bool        commit_tree(slot & s);
    bool        keep_path(slot & s, const tree & t, const std::vector<int32_t> & path);
    void        give_tap_cells();
    void        choose_best_logits();
    void        await_logits();
    void        end_pass();
    void        keep_taps(slot & s, int32_t row, int32_t n);
    void        keep_taps(slot & s, const std::vector<int32_t> & path);
    void        inject_all();

    static draft_job job_of(const slot & s, bool denoises);
    void             run_drafter(const std::vector<draft_job> & jobs, int32_t length);
    void             grow_tree(slot & s);
    int32_t          report_updates(dflash_update * updates, double verify_ms);
    void             finish(slot & s, int32_t state);
    void             fail(slot & s, const std::string & why, int32_t state = DFLASH_FAILED);

    slot & idle_slot(int32_t slot);
    void   check_tokens(const int32_t * tokens, int32_t n) const;
    void   check_vocabulary(const std::string & field, const int32_t * tokens, int32_t n) const;
    void   check_probs(const dflash_request & request) const;
    void   check_prediction(const dflash_request & request) const;

    // prefix_cache.cpp: what slots keep of the requests before
    int32_t       reach(const slot & s) const;
    int32_t       host_reach(const slot & s) const;
    int32_t       own_prefix(const slot & s, const std::vector<int32_t> & prompt) const;
    int32_t       future_prefix(const slot & s, const std::vector<int32_t> & prompt) const;
    prefix_source best_source(const slot & s, const std::vector<int32_t> & prompt) const;
    int32_t       take_over(slot & s, const std::vector<int32_t> & prompt, bool cache_prompt);
    void          follow(slot & s);
    int32_t       cut_back(slot & s, int32_t n);
    bool          go_back(slot & s, int32_t & n);
    int32_t       share(const slot & from, slot & to, int32_t n);
    bool          share_memory(const slot & from, const slot & to);
    pending_taps  on_host(const pending_taps & taps) const;
    void          take_in(slot & s, const pending_taps & taps);
    void          keep_on_host(const slot & s);
    conversation  copy_of(const slot & s) const;
    int32_t       restore(slot & s, const conversation & c, int32_t n);
    std::string   refusal(const conversation & c) const;
    raw_bytes     read_state(int32_t seq, uint32_t flags) const;
    bool          write_state(int32_t seq, const raw_bytes & bytes, uint32_t flags);
    int32_t       checkpoint_place(const slot & s) const;
    void          add_checkpoint(slot & s);
    void          forget(slot & s);   // target and drafter state of a slot

    // room.cpp: cells of the cache that all slots share
    int32_t used_cells() const;
    int32_t held_cells(const std::function<bool(const slot &)> & which) const;
    int32_t free_cells() const;
    int32_t promised_cells() const;
    bool    has_cells(int32_t n) const;
    bool    make_room(int32_t n, const slot * but = nullptr, const slot * and_but = nullptr);
    void    leave(slot & s);
    bool    set_aside(slot & s);
    void    bring_back();
    slot *  newest_of_several();
    int32_t find_room();
    int32_t room_for_trees() const;
    void    end_early(slot & s, const std::string & why);
    void    end_full(slot & s);

    // report.cpp
    memory_table allocated() const;
    std::string  planned() const;
    size_t       output_bytes() const;

    // load.cpp
    void   load(dflash_progress_callback progress, void * user);
    void   resolve_params();
    void   load_models(dflash_progress_callback progress, void * user);
    void   set_limits();
    double spare_memory() const;
    size_t host_cache_limit() const;
    size_t history_limit() const;
    void   set_context_size();
    void   create_context();
    void   set_tree_support();
    void   pad_passes();
    void   create_drafter();
    void   create_tap_store();
    void   place_models();
    void   create_logit_store();
    void   load_templates();
    void   need_tapes(int32_t n_nodes);
    void   reserve_passes();
    bool   on_devices() const;
    void   warm_up();
    double time_verify(int32_t n_rows);
    double time_draft(int32_t n_slots, int32_t length);
    bool   is_recurrent() const;

    // proof.cpp
    void need_cells(int32_t n, const char * what);
    void spread_logits(const std::vector<float> & rows, int32_t n_block, float * out) const;
    void feed(slot & s, const int32_t * tokens, int32_t n, int32_t width, bool all_outputs, const char * what,
        const std::function<void(int32_t from, int32_t n_rows)> & each_pass, const std::function<void()> & at_end);
    tree check_tree(const dflash_tree_rows & rows, int32_t index);
    std::vector<tree> check_trees(const dflash_tree_rows * trees, int32_t n_trees);

    dflash_engine_params params_;       // with defaults resolved; the texts that it points to live only during load
    std::string          cost_cache_;   // path, empty: none
    std::string          model_path_, drafter_path_;
    std::string          ctx_limit_;   // what decided the context's size: "given", "training" or "memory"

    bool                            plans_ = false;   // models have no data, and buffers no memory
    std::vector<ggml_backend_dev_t> stand_ins_;       // of a plan for another machine
    buffer_bytes                    weights_, draft_weights_;

    rpc_servers                  rpc_;
    placement                    target_place_, drafter_place_;   // what the models borrow
    llama_model_ptr              model_, draft_model_;
    std::unique_ptr<tap_store>   tap_store_;     // null: taps go over the host
    std::unique_ptr<logit_store> logit_store_;   // null: logits go to the host
    llama_context_ptr            ctx_;
    struct templates_deleter {
        void operator()(common_chat_templates * t) const;
    };
    std::unique_ptr<common_chat_templates, templates_deleter> templates_;
    std::unique_ptr<drafter>                                  drafter_;   // null: none

    // what the target's memory can do
    bool        tapes_     = false;     // recurrent memory that rolls trees and chains back
    int32_t     tape_rows_ = 0;         // nodes that it can roll back per slot, 0: nothing is allocated yet
    std::string no_draft_;              // why this target cannot verify drafts, empty if it can
    std::string no_tree_;               // why it can verify only chains, empty if it can
    bool        checkpoints_ = false;   // it, or a copy of it, cannot go back to any token: checkpoints say where to
    bool        drops_       = false;   // not even where nothing was copied
    bool        idle_costs_  = false;   // passes read the cells of idle slots, too

    std::vector<slot> slots_;
    host_cache        host_{ 0 };
    kept_counts       kept_;
    pass_limits       limits_;
    controller        controller_{ limits_ };
    batch             batch_;                // of this step
    bool              trees_only_ = false;   // it has no prompt rows
    bool              decoded_    = false;   // nor had the last one

    engine_totals     totals_;
    phase_times       times_;
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
