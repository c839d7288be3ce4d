#include "cache/conversation.h"

namespace dflash {

size_t conversation::bytes() const {
    size_t n = tokens.size() * sizeof(int32_t) + state.size() + bytes_of(checkpoints);
    for (const draft_copy & d : drafts) {
        n += d.bytes();
    }
    return n;
}

}   // namespace dflash
