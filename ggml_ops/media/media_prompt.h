// A prompt with media: its tokens, and the media that they stand for, which live as long as someone holds them.

#pragma once

#include "media/medium.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace dflash {

struct media_prompt {
    std::vector<int32_t>                 tokens;
    std::vector<std::shared_ptr<medium>> media;   // in order
};

}   // namespace dflash
