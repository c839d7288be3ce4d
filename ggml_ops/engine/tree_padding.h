// To how many rows the trees of a pass are padded.

#pragma once

#include "budget/costs.h"
#include "budget/steady_size.h"
#include "engine/slot.h"
#include "target/pass_limits.h"

#include <cstdint>
#include <vector>

namespace dflash {

class tree_padding {
  public:
    // Both must outlive this.
    tree_padding(const pass_limits & limits, const pass_costs & costs) : limits_(limits), costs_(costs) {}

    // Rows of each slot's tree in this pass, padding counted; 0: it has none. room: most rows of all together.
    std::vector<int32_t> sizes(const std::vector<slot> & slots, int32_t room) const;
    // Whether llama.cpp computes trees of these sizes in several passes.
    bool splits(const std::vector<int32_t> & sizes) const;
    // The width of passes without prompts, where they are padded.
    steady_size & width() { return width_; }

  private:
    void    pad_to_equal(const std::vector<slot> & slots, int32_t room, std::vector<int32_t> & sizes) const;
    void    pad_last(const std::vector<slot> & slots, int32_t room, std::vector<int32_t> & sizes) const;
    int32_t padded_rows(int32_t n_rows, int32_t room) const;

    const pass_limits & limits_;
    const pass_costs &  costs_;
    steady_size         width_;
};

}   // namespace dflash
