// The media that an engine has seen, by number: equal ones have the same number as long as the engine lives. Any thread
// may call it.

#pragma once

#include "media/medium.h"

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace dflash {

class media_table {
  public:
    // The medium with this key: the one that is in use, or a new one with this chunk.
    std::shared_ptr<medium> add(const medium_key & key, mtmd::input_chunk_ptr chunk, medium::reading how);
    // A number for a medium without data: a cache may know it.
    int32_t number(const medium_key & key);
    // The medium that a token stands for, null: it is not in use any more.
    std::shared_ptr<medium> find(int32_t token) const;
    // Whether it was ever given to a medium.
    bool       knows(int32_t token) const;
    medium_key key(int32_t token) const;   // of a number that it knows

    // The media of tokens, in order; the last one may be cut off. Throws status_error: a token is no medium's, or one is
    // not whole.
    media_layout layout(const std::vector<int32_t> & tokens) const;

  private:
    struct entry {
        medium_key            key;
        std::weak_ptr<medium> used;
    };

    int32_t number_of(const medium_key & key);

    mutable std::mutex            mutex_;
    std::map<medium_key, int32_t> numbers_;
    std::vector<entry>            entries_;   // [number]
};

}   // namespace dflash
