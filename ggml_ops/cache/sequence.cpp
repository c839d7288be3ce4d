#include "cache/sequence.h"

#include <algorithm>

namespace dflash {

size_t bytes_of(const std::vector<checkpoint> & checkpoints) {
    size_t n = 0;
    for (const checkpoint & c : checkpoints) {
        n += c.state->size();
    }
    return n;
}

int32_t kept_tokens(int32_t reach, const std::vector<checkpoint> & checkpoints, int32_t n_common) {
    if (n_common >= reach) {
        return n_common;
    }
    int32_t kept = 0;
    for (const checkpoint & c : checkpoints) {
        kept = c.at <= n_common ? std::max(kept, c.at) : kept;
    }
    return kept;
}

}   // namespace dflash
