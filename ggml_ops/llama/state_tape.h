// Tapes: a verify pass records what is needed of every row of a tree, so that the accepted path can later be applied to
// the sequence's only committed state, and no state per row is ever stored (docs/hybrid.md). Part of libllama:
// patches/0007 calls it from llama_memory_recurrent.
//
// A tape has one row of f32 per tree row and delta-net layer: [k: S*H_k | delta: S*H_v | gate: H_v | convolution
// input]. The memory has room for as many tapes (regions) as there are cells. A cell refers to the region of its tape.
// A region is free if no used cell refers to it, so every pass finds one, and sequences that share a cell share its
// tape.

#pragma once

#include "ggml-backend.h"
#include "ggml.h"
#include "llama.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

class llama_io_read_i;
class llama_io_write_i;
class llama_memory_recurrent;
class llama_memory_recurrent_context;
struct llama_model;
struct llama_ubatch;

namespace dflash {

// A reference to a tape.
struct tape_ref {
    int32_t              region = -1;   // -1: no tape
    int32_t              root   = 0;    // position of the tree's root
    std::vector<int32_t> path;          // accepted rows that the cell's state does not include yet, the root first
    std::vector<int32_t> parents;       // per row, while the tree is open: a row, LLAMA_PARENT_NONE or _PADDING

    bool open() const { return !parents.empty(); }
    bool has_path(const int32_t * rows, int32_t n) const;
};

// What a cell keeps: the tape that its state does not include yet, and, while a pass builds its graph and sets its
// inputs, the one that this pass applies.
struct cell_tape : tape_ref {
    tape_ref taken;
};

// The shape of a model's tapes, and their tensors.
struct tape_store {
    int32_t heads_k = 0, heads_v = 0, head = 0, channels = 0;   // sizes within a tape; 0: a model without tapes
    int32_t d_conv   = 0;
    int32_t capacity = 0;                // rows per region, 0: no tapes
    std::vector<ggml_tensor *> layers;   // [n_row(), capacity * regions], null for layers without a state
    std::vector<bool> composed;          // layers whose device has no kernel for ggml_gdn_tree(): composed of other ops

    explicit tape_store(const llama_model & model);

    bool is_composed() const { return std::find(composed.begin(), composed.end(), true) != composed.end(); }
    bool has_kernel(ggml_backend_dev_t device) const;
    bool on_device() const;   // all tapes

    bool possible() const { return head > 0; }

    int64_t n_k() const { return (int64_t) head * heads_k; }
    int64_t n_delta() const { return (int64_t) head * heads_v; }
    int64_t n_state() const { return n_k() + n_delta() + heads_v; }   // floats that update the state
    int64_t n_row() const { return n_state() + channels; }
    size_t  row_bytes() const { return n_row() * sizeof(float); }
};

// The tapes of a recurrent memory.
class state_tapes : public tape_store {
  public:
    state_tapes(llama_memory_recurrent & mem, const llama_model & model) : tape_store(model), mem_(mem) {}

    // Allocates tapes of n_rows rows, 1..64, for all cells. Returns false if the model cannot have tapes, the memory
    // keeps snapshots or other tapes, or it is out of memory.
    bool set_capacity(int32_t n_rows);

    bool has_tree(llama_seq_id seq_id) const;   // an uncommitted one
    bool has_path(llama_seq_id seq_id, const int32_t * path, int32_t n_path) const;
    void commit(llama_seq_id seq_id, const int32_t * path, int32_t n_path);

    // Whether an open tree forbids changing the sequence, or any tape forbids dividing its positions. Logs it.
    bool refuses(llama_seq_id seq_id) const;
    bool refuses_div(llama_seq_id seq_id) const;

    // Goes back to the position before p0. Returns false and changes nothing if that is before the last path.
    bool rewind(llama_seq_id seq_id, llama_pos p0);

    // Begins a pass over the sequences of cells [first, first + ubatch.n_seqs): it applies what is pending, and a tree
    // gets a new tape.
    void begin_pass(const llama_ubatch & ubatch, uint32_t first);

    // Number of consecutive passes that applied no path; large if none ever did.
    int64_t n_without_path() const { return n_without_path_; }

    // Saved states (seq_id -1: of all sequences): pending paths follow the state, and a flag in the count of cells
    // marks them. Without pending paths a state is the same as without tapes.
    uint32_t    state_flag(llama_seq_id seq_id) const;   // throws std::runtime_error if there is an open tree
    static bool take_flag(uint32_t & cell_count);
    void        state_write(llama_io_write_i & io, llama_seq_id seq_id) const;
    bool        state_read(llama_io_read_i & io, uint32_t cell_count);   // for the cells from the memory's head on

  private:
    llama_memory_recurrent & mem_;
    int64_t                  n_without_path_ = 1 << 20;

    const cell_tape * find(llama_seq_id seq_id) const;   // null: the sequence has no state
    bool              allocate(int32_t n_rows);
    int32_t           free_region() const;
    bool              read_path(llama_io_read_i & io, uint32_t cell);
};

// The tapes of a context's current pass, by sequences of its ubatch.
struct pass_tapes {
    const llama_memory_recurrent_context & mctx;

    const state_tapes & store() const;
    const tape_ref &    written(uint32_t s) const;
    const tape_ref &    taken(uint32_t s) const;
    int32_t             n_path(const llama_ubatch & ubatch) const;   // rows that the graph has for each pending path
};

}   // namespace dflash
