#include "media/media_text.h"

#include <algorithm>
#include <tuple>

namespace dflash {

bool medium_key::operator<(const medium_key & other) const {
    return std::tie(hash, part, order, size.n_rows, size.n_pos, size.advances) <
           std::tie(other.hash, other.part, other.order, other.size.n_rows, other.size.n_pos, other.size.advances);
}

int32_t media_layout::position(int32_t i) const {
    int32_t pos = i;
    for (const media_span & s : spans_) {
        if (i <= s.begin) {
            break;
        }
        if (i >= s.end()) {
            pos -= s.size.n_rows - s.size.n_pos;
        } else if (!s.size.advances) {
            pos -= i - s.begin;
        }
    }
    return pos;
}

token_positions media_layout::positions(int32_t n) const {
    token_positions tokens;
    for (int32_t i = 0; i < n; ++i) {
        tokens.at.push_back(position(i));
        tokens.is_text.push_back(!at(i));
    }
    return tokens;
}

int32_t media_layout::tokens_before(int32_t pos) const {
    int32_t n = pos;
    for (const media_span & s : spans_) {
        if (position(s.end()) <= pos) {
            n = s.end() + pos - position(s.end());
        } else if (position(s.begin) < pos) {   // within it
            n = s.size.advances ? s.begin + pos - position(s.begin) : s.end();
        }
    }
    return n;
}

int32_t media_layout::whole(int32_t n) const {
    const media_span * within = n > 0 ? at(n - 1) : nullptr;
    return within && n < within->end() ? within->begin : n;
}

const media_span * media_layout::at(int32_t i) const {
    for (const media_span & s : spans_) {
        if (i >= s.begin && i < s.end()) {
            return &s;
        }
    }
    return nullptr;
}

int32_t media_layout::next(int32_t i) const {
    for (const media_span & s : spans_) {
        if (s.end() > i) {
            return s.begin;
        }
    }
    return INT32_MAX;
}

}   // namespace dflash
