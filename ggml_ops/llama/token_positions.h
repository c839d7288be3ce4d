// Where the tokens of a sequence stand.

#pragma once

#include <cstdint>
#include <vector>

namespace dflash {

struct token_positions {
    std::vector<int32_t> at;        // in order
    std::vector<bool>    is_text;   // else a row of a medium, some of which share a position
};

}   // namespace dflash
