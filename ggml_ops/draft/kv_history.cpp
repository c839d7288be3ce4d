#include "draft/kv_history.h"

#include <algorithm>
#include <utility>

namespace dflash {

size_t kv_history::bytes() const {
    size_t n = 0;
    for (const segment & s : segments_) {
        n += s->size();
    }
    return n;
}

void kv_history::append(int32_t pos, segment s) {
    if (empty() || pos != end()) {
        clear();
        begin_ = pos;
    }
    segments_.push_back(std::move(s));
}

void kv_history::drop_oldest() {
    segments_.pop_front();
    begin_ += STEP;
}

void kv_history::truncate(int32_t pos) {
    const int32_t n = std::max(0, pos - begin_) / STEP;
    if (n < (int32_t) segments_.size()) {
        segments_.resize(n);
    }
}

kv_history kv_history::before(int32_t pos) const {
    kv_history copy = *this;
    copy.truncate(pos + STEP - 1);
    return copy;
}

}   // namespace dflash
