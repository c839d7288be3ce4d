// The media that an engine has seen: equal ones have the same number as long as the engine lives, so that caches know
// them. Any thread may call it. No llama.cpp types.

#pragma once

#include "media/media_text.h"

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace dflash {

class media_table {
  public:
    // Its number, a new one if it was never seen.
    int32_t number(const medium_key & key);
    // Whether a token is that of a medium.
    bool       knows(int32_t token) const;
    medium_key key(int32_t token) const;   // of one that it knows

    // The media of tokens, in order; the last one may be cut off. Throws status_error: a token is no medium's, or one
    // is not whole.
    media_layout layout(const std::vector<int32_t> & tokens) const;

  private:
    mutable std::mutex            mutex_;
    std::map<medium_key, int32_t> numbers_;
    std::vector<medium_key>       keys_;   // [number]
};

}   // namespace dflash
