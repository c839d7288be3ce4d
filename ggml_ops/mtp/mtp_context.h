// What an MTP drafter holds of each slot: K and V of its layers in a llama.cpp context, and the newest tap. An
// assistant has its target's K and V, and so holds the tap alone.
//
// A row pairs the token of a position with the target's final hidden state of the position before. So the tap of
// position p is read with the token of position p + 1; the newest one waits here for its token.

#pragma once

#include "draft/draft_context.h"
#include "target/memory.h"

#include "llama-cpp.h"

#include <cstdint>
#include <map>
#include <vector>

namespace dflash {

class mtp_context : public draft_context {
  public:
    // row_size: floats of a tap. shares: the cells are the target's. `rpc` must outlive this.
    mtp_context(llama_context_ptr ctx, const rpc_servers & rpc, int32_t n_slots, int32_t row_size, bool shares);

    llama_context *                              ctx() const { return ctx_.get(); }
    bool                                         shares() const { return shares_; }
    int32_t                                      end(int32_t slot) const override { return slots_[slot].end; }
    void                                         rewind(int32_t slot, int32_t pos) override;
    void                                         restart(int32_t slot, int32_t pos) override;
    ring_copy                                    take(int32_t slot, int32_t end) const override;
    void                                         put(int32_t slot, const ring_copy & copy) override;
    size_t                                       copy_bytes(int32_t slot) const override;
    void                                         share(int32_t from, int32_t to, int32_t end) override;
    void                                         leave(int32_t slot) override;
    void                                         come_back(int32_t slot) override;
    bool                                         fits(const ring_copy & copy) const override;
    std::map<ggml_backend_buffer_type_t, size_t> memory() const override;

    // The tap of position end - 1, zeros if it is not known: [row_size].
    const float * newest(int32_t slot) const { return slots_[slot].newest.data(); }
    // The rows of n more positions were computed; `newest`: the last one's tap.
    void advance(int32_t slot, int32_t n, const float * newest);
    // Forgets the rows from position `pos` on, if they are its own; the slot's end stays.
    void cut_rows(int32_t slot, int32_t pos);

  private:
    // The copy's data: the newest tap, then the rows.
    struct slot_state {
        int32_t            begin = 0, end = 0;   // positions whose rows are there, its own or the target's
        std::vector<float> newest;
        ring_copy          aside;   // what it held, while it is set aside
    };

    size_t tap_bytes() const { return row_size_ * sizeof(float); }
    // Rows that do not begin with the text are not worth a copy: the other context then goes on without them.
    bool has_copy(int32_t slot) const { return slots_[slot].end > 0 && slots_[slot].begin == 0; }

    llama_context_ptr       ctx_;
    dflash::memory          memory_;
    size_t                  row_size_;
    bool                    shares_;
    std::vector<slot_state> slots_;
};

}   // namespace dflash
