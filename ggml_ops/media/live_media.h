// The media of prompts and requests that live, by the token of their rows. Any thread may call it.

#pragma once

#include "media/media_table.h"
#include "media/medium.h"

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

namespace dflash {

class live_media {
  public:
    // `table` must outlive this.
    explicit live_media(media_table & table) : table_(table) {}

    // The medium with this key: the one that lives, or a new one with this chunk.
    std::shared_ptr<medium> add(const medium_key & key, mtmd::input_chunk_ptr chunk, medium::reading how);
    // The medium that a token stands for, null: it does not live any more.
    std::shared_ptr<medium> find(int32_t token) const;

  private:
    media_table &                            table_;
    mutable std::mutex                       mutex_;
    std::map<int32_t, std::weak_ptr<medium>> media_;   // by token
};

}   // namespace dflash
