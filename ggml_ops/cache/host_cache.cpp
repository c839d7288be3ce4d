#include "cache/host_cache.h"

#include <algorithm>

namespace dflash {

static int32_t common_prefix(const std::vector<int32_t> & a, const std::vector<int32_t> & b) {
    const size_t n = std::min(a.size(), b.size());
    return (int32_t) (std::mismatch(a.begin(), a.begin() + n, b.begin()).first - a.begin());
}

int32_t common_tokens(const std::vector<int32_t> & text, const std::vector<int32_t> & prompt) {
    return std::min(common_prefix(text, prompt), (int32_t) prompt.size() - 1);
}

// Whether `c` can give all of these tokens.
static bool gives(const conversation & c, const std::vector<int32_t> & tokens) {
    const int32_t n = (int32_t) tokens.size();
    return common_prefix(c.tokens, tokens) == n && c.kept(n) == n;
}

host_cache::entries::iterator host_cache::erase(entries::iterator it) {
    bytes_ -= it->bytes();
    return entries_.erase(it);
}

bool host_cache::holds(const std::vector<int32_t> & tokens) const {
    return std::any_of(entries_.begin(), entries_.end(), [&](const conversation & c) { return gives(c, tokens); });
}

bool host_cache::make_room(size_t bytes) {
    if (bytes > limit_) {
        return false;
    }
    while (!entries_.empty() && bytes_ > limit_ - bytes) {
        erase(entries_.begin());
    }
    return true;
}

bool host_cache::add(conversation && c) {
    const size_t bytes = c.bytes();
    if (bytes > limit_) {
        return false;
    }
    for (auto it = entries_.begin(); it != entries_.end();) {
        it = gives(c, it->tokens) ? erase(it) : std::next(it);
    }
    make_room(bytes);
    entries_.push_back(std::move(c));
    bytes_ += bytes;
    return true;
}

host_cache::match host_cache::find(const std::vector<int32_t> & prompt) const {
    match best;
    for (const conversation & c : entries_) {
        const int32_t n_kept = c.kept(common_tokens(c.tokens, prompt));
        const int32_t value  = worth(n_kept, (int32_t) c.tokens.size());
        if (n_kept > 0 && (!best.entry || value >= best.worth)) {
            best = { &c, n_kept, value };
        }
    }
    return best;
}

conversation host_cache::take(const conversation * entry) {
    const auto it =
        std::find_if(entries_.begin(), entries_.end(), [entry](const conversation & c) { return &c == entry; });
    if (it == entries_.end()) {
        return {};
    }
    bytes_ -= it->bytes();
    conversation c = std::move(*it);
    entries_.erase(it);
    return c;
}

void host_cache::shrink() {
    // an unlimited cache becomes limited from here on
    limit_ = std::max<size_t>(1, bytes_ / 10 * 4);
    make_room(0);
}

}   // namespace dflash
