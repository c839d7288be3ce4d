// A prompt with media: its tokens, and the media that they stand for, which live as long as someone holds them.

#pragma once

#include "dflash.h"
#include "media/medium.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace dflash {

struct media_prompt {
    std::vector<int32_t>                 tokens;
    std::vector<std::shared_ptr<medium>> media;   // in order

    // How many of the tokens are rows of media of a kind.
    int32_t n_rows(dflash_media_kind kind) const {
        int32_t n = 0;
        for (const std::shared_ptr<medium> & m : media) {
            n += m->kind() == kind ? m->key.size.n_rows : 0;
        }
        return n;
    }
};

}   // namespace dflash
