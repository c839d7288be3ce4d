// Makes room in the shared KV cache for the next pass: it evicts idle slots first, then moves the newest running
// request to host memory until there is room again.

#pragma once

#include "cache/cache.h"
#include "engine/slot.h"
#include "target/pass_limits.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace dflash {

class room {
  public:
    // Ends a request that has no row in this pass. why: what failed; empty: the answer fills the cache.
    using end_request = std::function<void(slot & s, const std::string & why)>;

    // All must outlive this.
    room(dflash::cache & cache, const pass_limits & limits, std::vector<slot> & slots) :
        cache_(cache), limits_(limits), slots_(slots) {}

    // Whether a request may begin now, without taking what running ones were promised.
    bool has(const request & r) const;
    // Before a pass: finds cells for every anchor and for the rest of every prompt. Where too few are free, idle slots
    // leave; where that is not enough, the newest requests are set aside, or end. Returns how many cells all trees
    // together may have.
    int32_t claim(const end_request & end);
    // Cells for the next pass's trees, if idle slots left.
    int32_t for_trees() const;

  private:
    int32_t to_run(const slot & s) const;
    int32_t unread_rows() const;
    int32_t promised_cells() const;
    void    bring_back(const end_request & end);
    slot *  newest_of_several() const;

    dflash::cache &     cache_;
    const pass_limits & limits_;
    std::vector<slot> & slots_;
};

}   // namespace dflash
