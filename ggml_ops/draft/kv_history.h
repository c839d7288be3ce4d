// K and V that have left a slot's ring, on the host, for when a text is cut back. No llama.cpp types.

#pragma once

#include "base/raw_bytes.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

namespace dflash {

class kv_history {
  public:
    static constexpr int32_t STEP = 64;   // positions per segment

    // K of every layer, then V: [STEP] rows each. Copies of a history share its segments.
    using segment = std::shared_ptr<const raw_bytes>;

    // Positions [begin, end), both multiples of STEP; empty if they are equal.
    int32_t begin() const { return begin_; }
    int32_t end() const { return begin_ + STEP * (int32_t) segments_.size(); }
    bool    empty() const { return segments_.empty(); }
    size_t  bytes() const;

    const std::deque<segment> & segments() const { return segments_; }
    const raw_bytes &           holding(int32_t pos) const { return *segments_[(pos - begin_) / STEP]; }

    void clear() { segments_.clear(); }
    // Adds the segment of positions pos .. pos + STEP - 1. If there is a gap before it, everything earlier is
    // forgotten.
    void append(int32_t pos, segment s);
    void drop_oldest();
    // Keeps the segments whose positions are all below `pos`.
    void truncate(int32_t pos);
    // A copy of the segments that have any position below `pos`.
    kv_history before(int32_t pos) const;

  private:
    int32_t             begin_ = 0;
    std::deque<segment> segments_;
};

}   // namespace dflash
