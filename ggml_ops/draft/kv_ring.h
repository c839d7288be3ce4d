// The drafter's K/V: a ring of the newest positions per slot, so that the drafter's device memory does not grow with
// the target's context. What leaves the ring goes to a history on the host and comes back if the slot's text is cut
// back: so a block always sees the newest n_ctx positions before it.
//
// A slot has n_cells cells per layer. Scratch cells come first: block_size cells for the block that is denoised and one
// for padding rows. The ring follows. It has more cells than n_ctx, because positions leave in segments; position p is
// in its cell p modulo its size.

#pragma once

#include "draft/draft_context.h"
#include "llama/drafter_model.h"

#include "ggml-cpp.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace dflash {

class kv_ring : public draft_context {
  public:
    // Each layer's cells are on the device of its weights, or on the host without `offload`. type_k and type_v: F16 or
    // F32. history_limit: max. bytes of all slots' histories; the oldest positions of the longest one are dropped
    // first. Throws std::runtime_error if out of memory.
    kv_ring(const drafter_model & model, int32_t n_slots, int32_t n_ctx, ggml_type type_k, ggml_type type_v,
        bool offload, size_t history_limit);

    ggml_tensor * k(size_t layer) const { return k_[layer]; }   // [n_head_kv * head_dim, n_cells * n_slots]
    ggml_tensor * v(size_t layer) const { return v_[layer]; }
    int32_t       n_ctx() const { return n_ctx_; }
    std::map<ggml_backend_buffer_type_t, size_t> memory() const override;

    // Positions [begin, end) of a slot are stored.
    int32_t end(int32_t slot) const override { return ranges_[slot].end; }
    // Older positions come back from the history.
    void rewind(int32_t slot, int32_t pos) override;
    void restart(int32_t slot, int32_t pos) override;
    // Announces that the cells of positions end .. pos - 1 will be written, at most max_rows(); the oldest positions
    // make room.
    void    extend(int32_t slot, int32_t pos);
    int32_t max_rows() const { return n_ring_ - kv_history::STEP + 1; }
    size_t  history_bytes() const override;
    size_t  history_limit() const override { return history_limit_; }

    ring_copy take(int32_t slot, int32_t end) const override;
    // A shorter ring takes the newest positions.
    void   put(int32_t slot, const ring_copy & copy) override;
    size_t copy_bytes(int32_t slot) const override;
    bool   has_sizes(const ring_copy & copy) const override;
    bool   fits(const ring_copy & copy) const override;
    size_t bytes_per_position() const;

    // Cell indices over all slots: rows of k() and v().
    int64_t first_cell(int32_t slot) const { return (int64_t) slot * n_cells_; }
    int64_t block_cell(int32_t slot, int32_t i) const { return first_cell(slot) + i; }
    int64_t padding_cell(int32_t slot) const { return first_cell(slot) + block_size_; }
    int64_t cell(int32_t slot, int32_t pos) const { return first_cell(slot) + n_scratch_ + pos % n_ring_; }

    // How many of a slot's cells a block needs if n_past positions come before it: a multiple of SPAN_STEP.
    int32_t span(int32_t n_past) const;
    // Fills mask [length, span] for the block at the slot's end: 0 where a row sees a cell, otherwise -INFINITY. A row
    // sees the n_ctx positions before the block and the block itself, limited to those less than `window` away
    // (INT32_MAX: all), and with `causal` none of the block's later rows.
    void fill_mask(
        std::vector<float> & mask, int32_t slot, int32_t span, int32_t length, int32_t window, bool causal) const;

  private:
    static constexpr int32_t SPAN_STEP = 256;   // so that graphs can be reused

    // Calls f(cell, n, offset) for each run of adjacent cells that hold positions [begin, end) of a slot; offset counts
    // the positions before the run.
    template <class F> void each_run(int32_t slot, int32_t begin, int32_t end, F && f) const;

    std::vector<ggml_tensor *> tensors() const;   // K of every layer, then V
    raw_bytes                  read(int32_t slot, int32_t begin, int32_t end) const;

    void add_segments(
        kv_history & past, const raw_bytes & rows, int32_t begin, int32_t end, int32_t first, int32_t last) const;
    void leave(int32_t slot, int32_t begin);
    void bring_back(int32_t slot, int32_t begin, int32_t end);
    void bound_histories();
    bool holds_numbers(const raw_bytes & rows, size_t n) const;

    struct range {
        int32_t begin = 0, end = 0;
    };

    int32_t                 n_ctx_, block_size_;
    int32_t                 n_scratch_;   // scratch cells of a slot
    int32_t                 n_cells_;     // cells of a slot
    int32_t                 n_ring_;      // cells of a slot's ring
    std::vector<range>      ranges_;      // per slot
    std::vector<kv_history> past_;        // per slot: empty, or reaches at least to the range's begin
    size_t                  history_limit_;

    std::vector<ggml_context_ptr>        contexts_;
    std::vector<ggml_backend_buffer_ptr> buffers_;
    std::vector<ggml_tensor *>           k_, v_;   // per layer
};

}   // namespace dflash
