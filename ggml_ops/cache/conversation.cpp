#include "cache/conversation.h"

namespace dflash {

size_t conversation::bytes() const {
    size_t n = tokens.size() * sizeof(int32_t) + state.size() + ring.bytes() + taps.data.size() * sizeof(float);
    for (const checkpoint & c : checkpoints) {
        n += c.state->size();
    }
    return n;
}

}   // namespace dflash
