// A drafter as the engine sees it: it reads the taps of accepted rows, and drafts what may follow the anchor of every
// slot that asks for it. How to add a kind: docs/contributing.md. What each kind supports: llama/drafter_kind.h.

#pragma once

#include "base/rope_position.h"
#include "draft/draft_context.h"
#include "draft/tree_growth.h"
#include "llama/drafter_kind.h"
#include "llama/tap_cell.h"

#include "ggml-backend.h"

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

struct llama_model;

namespace dflash {

// One slot's part of a pass.
struct draft_job {
    int32_t               slot     = 0;
    const float *         taps     = nullptr;   // [n_inject, tap_size]: of positions pos .. pos + n_inject - 1
    const tap_cell *      cells    = nullptr;   // [n_inject] replaces taps if the drafter reads a store
    const int32_t *       tokens   = nullptr;   // [n_inject]: the text at these positions
    const rope_position * rope     = nullptr;   // [n_inject]: where they stand, null: where they are in the text
    int32_t               n_inject = 0;
    int32_t               pos      = 0;       // must be the slot's next position
    bool                  denoise  = false;   // also draft what follows `anchor`, which is at position pos + n_inject
    int32_t               anchor   = -1;
    int32_t               anchor_rope = -1;          // where the anchor stands, if `rope` says so of the rows
    int32_t               window      = INT32_MAX;   // positions before the anchor that its block sees, as far as held
    bool                  whole       = false;       // draft all positions, however unlikely
};

// What a drafter reads of the target's passes.
enum class tap_source { layers, final_state };

// The layers that draft, for reports.
struct drafter_layers {
    const llama_model *    model;                   // that has them: the target, or a file's of its own
    int32_t                block_size;              // rows of the longest block
    int64_t                n_logits;                // tokens that may be proposed
    bool                   anchor_first  = false;   // drafter_model has the meaning of these
    bool                   keeps_block   = false;
    std::vector<int32_t>   target_layers = {};   // of the target, whose inputs are the taps
    std::optional<int32_t> mask_token    = {};   // nothing: blocks have none
};

class drafter {
  public:
    drafter()                = default;
    drafter(const drafter &) = delete;
    virtual ~drafter()       = default;

    virtual const drafter_kind & kind() const       = 0;
    virtual tap_source           taps() const       = 0;
    virtual int32_t              tap_size() const   = 0;   // floats
    virtual int32_t              n_ctx() const      = 0;   // newest positions that a pass attends to
    virtual int32_t              max_length() const = 0;   // the anchor and the tokens of the longest draft
    virtual int32_t              top_k() const      = 0;   // candidates of a position
    virtual bool                 on_device() const  = 0;
    virtual drafter_layers       layers() const     = 0;
    // Whether its passes attend to the target's K and V: what comes before an anchor must be there.
    virtual bool reads_target() const { return false; }
    // Whether it needs draft_job::rope: with M-RoPE rows of images have several sections, as in the target.
    virtual bool has_sections() const { return false; }
    // Whether blocks may look back less far than it holds.
    virtual bool has_windows() const { return false; }
    // What it holds of the slots. run() adds to it.
    virtual draft_context &       context()       = 0;
    virtual const draft_context & context() const = 0;
    // Bytes of compute buffers, and of the target's weights that were copied, by buffer type.
    virtual std::map<ggml_backend_buffer_type_t, size_t> compute_memory() const = 0;
    virtual std::map<ggml_backend_buffer_type_t, size_t> copied_memory() const { return {}; }

    // Allocates memory for the largest passes that run() may get.
    virtual void reserve() {}

    // Reads the jobs' taps; drafts[i] is filled if jobs[i].denoise. length: the anchor and the tokens to propose, the
    // same for all slots. Throws std::runtime_error when a backend fails.
    virtual void run(const std::vector<draft_job> & jobs, int32_t length, std::vector<draft> & drafts) = 0;

    // The first call counts tokens of a text, from index `first` on. The second one changes which tokens the drafter
    // may propose, if too many of the newest texts' are not among them; that takes as long as reading the head's rows.
    virtual void count_text(const std::vector<int32_t> & /* tokens */, size_t /* first */) {}
    virtual void follow_texts() {}

    int64_t n_graphs_built = 0, n_graphs_reused = 0;
};

using drafter_list = std::vector<const drafter *>;   // in order of preference

inline drafter_kinds kinds_of(const drafter_list & drafters) {
    drafter_kinds kinds;
    for (const drafter * d : drafters) {
        kinds.push_back(&d->kind());
    }
    return kinds;
}

}   // namespace dflash
