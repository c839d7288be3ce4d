// The drafter's K/V: for each slot a ring of the newest positions, so that a bounded drafter never needs memory of its
// device for the target's whole context. What leaves the ring goes to a history on the host, from where it comes back
// if the slot's text is cut back: whatever a slot did before, a block sees the newest n_ctx positions before it.
//
// A slot has n_cells cells per layer. Scratch comes first: block_size cells for the block that is denoised, one for
// padding rows. The ring follows, with more cells than n_ctx, since positions leave in segments: position p lies in its
// cell p modulo the number of these.

#pragma once

#include "draft/ring_copy.h"
#include "llama/drafter_model.h"

#include "ggml-cpp.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace dflash {

class kv_ring {
  public:
    // Each layer's cells lie on the device of its weights, or without `offload` on the host. type_k and type_v: F16 or
    // F32. history_limit: bytes that the histories of all slots may take; the oldest positions of the longest one leave
    // first. Throws std::runtime_error where memory is short.
    kv_ring(const drafter_model & model, int32_t n_slots, int32_t n_ctx, ggml_type type_k, ggml_type type_v,
        bool offload, size_t history_limit);

    ggml_tensor * k(size_t layer) const { return k_[layer]; }   // [n_head_kv * head_dim, n_cells * n_slots]
    ggml_tensor * v(size_t layer) const { return v_[layer]; }
    int32_t       n_ctx() const { return n_ctx_; }
    size_t        memory_bytes() const;
    std::map<ggml_backend_buffer_type_t, size_t> memory() const;   // the same, by buffer type

    // Positions [begin, end) of a slot are stored.
    int32_t end(int32_t slot) const { return ranges_[slot].end; }
    // Forgets positions >= pos; older ones come back from the history. With a gap ahead (pos > end) all are forgotten
    // and the ring starts again at pos.
    void rewind(int32_t slot, int32_t pos);
    // Forgets all positions; the next one will be pos.
    void restart(int32_t slot, int32_t pos);
    // The cells of positions end .. pos - 1 will be written, at most max_rows(); the oldest positions leave for them.
    void    extend(int32_t slot, int32_t pos);
    int32_t max_rows() const { return n_ring_ - kv_history::STEP + 1; }
    // Bytes of all slots' histories.
    size_t history_bytes() const;

    // The slot's positions below `end` (those that are known), to be put into the ring of any slot, here or in another
    // ring of the same rows; a shorter ring takes the newest ones. put() throws std::runtime_error, and has changed
    // nothing, if the sizes do not fit.
    ring_copy take(int32_t slot, int32_t end) const;
    void      put(int32_t slot, const ring_copy & copy);
    // Whether a copy from outside is one of such a ring and holds numbers.
    bool   fits(const ring_copy & copy) const;
    size_t bytes_per_position() const;

    // Cells, counted over all slots: rows of k() and v().
    int64_t first_cell(int32_t slot) const { return (int64_t) slot * n_cells_; }
    int64_t block_cell(int32_t slot, int32_t i) const { return first_cell(slot) + i; }
    int64_t padding_cell(int32_t slot) const { return first_cell(slot) + block_size_; }
    int64_t cell(int32_t slot, int32_t pos) const { return first_cell(slot) + n_scratch_ + pos % n_ring_; }

    // How many of a slot's cells a block must be shown when n_past positions come before it: a multiple of SPAN_STEP.
    int32_t span(int32_t n_past) const;
    // Fills mask [length, span] for the block that starts at the slot's end: 0 where a row sees a cell, else -INFINITY.
    // A row sees the n_ctx positions before the block and its block, of these the ones less than `window` away
    // (INT32_MAX: all), and with `causal` no later row of its block.
    void fill_mask(
        std::vector<float> & mask, int32_t slot, int32_t span, int32_t length, int32_t window, bool causal) const;

  private:
    static constexpr int32_t SPAN_STEP = 256;   // so that graphs can be used again

    // Calls f(cell, n, offset) for each run of neighbouring cells that hold positions [begin, end) of a slot; offset:
    // how many positions come before.
    template <class F> void each_run(int32_t slot, int32_t begin, int32_t end, F && f) const;

    std::vector<ggml_tensor *> tensors() const;   // K of every layer, then V
    raw_bytes                  read(int32_t slot, int32_t begin, int32_t end) const;
    void                       add_segments(
                              kv_history & past, const raw_bytes & rows, int32_t begin, int32_t end, int32_t first, int32_t last) const;
    void leave(int32_t slot, int32_t begin);
    void bring_back(int32_t slot, int32_t begin, int32_t end);
    void bound_histories();
    bool has_sizes(const ring_copy & copy) const;
    bool holds_numbers(const raw_bytes & rows, size_t n) const;

    struct range {
        int32_t begin = 0, end = 0;
    };

    int32_t                 n_ctx_, block_size_;
    int32_t                 n_scratch_;   // scratch cells of a slot
    int32_t                 n_cells_;     // cells of a slot
    int32_t                 n_ring_;      // those of them that are no scratch
    std::vector<range>      ranges_;      // per slot
    std::vector<kv_history> past_;        // per slot: empty, or it goes on at least to the range's begin
    size_t                  history_limit_;

    std::vector<ggml_context_ptr>        contexts_;
    std::vector<ggml_backend_buffer_ptr> buffers_;
    std::vector<ggml_tensor *>           k_, v_;   // per layer
};

}   // namespace dflash
