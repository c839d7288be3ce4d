#include "cache/conversation.h"

namespace dflash {

size_t conversation::bytes() const {
    size_t n = tokens.size() * sizeof(int32_t) + state.size();
    for (const draft_copy & d : drafts) {
        n += d.bytes();
    }
    for (const checkpoint & c : checkpoints) {
        n += c.state->size();
    }
    return n;
}

}   // namespace dflash
