#include "draft/earlier_answers.h"

#include <algorithm>

namespace dflash {

static constexpr int32_t NO_TOKEN = -1;   // between two answers

void earlier_answers::push(memory & m, int32_t token) const {
    const int32_t place = m.n_added++;
    if ((int32_t) m.tokens.size() < n_kept_) {
        m.tokens.push_back(token);
    } else {
        m.tokens[place % n_kept_] = token;
    }
    m.chains.add(place, std::min(m.n_added, n_kept_), [&](int32_t i) { return m.tokens[(place - i) % n_kept_]; });
}

void earlier_answers::add(int32_t owner, const std::vector<int32_t> & tokens, int32_t first) {
    const int32_t begin = std::max(0, first - MAX_MATCH), n = (int32_t) tokens.size();
    if (n_kept_ == 0 || first >= n) {
        return;
    }
    memory & m = of_owner_[owner];
    if (m.n_added == 0 || m.n_added > INT32_MAX - n - 1) {   // places are counted from the beginning
        m = {};
        m.chains.reset(n_kept_);
    }
    for (int32_t i = begin; i < n; ++i) {
        push(m, tokens[i]);
    }
    push(m, NO_TOKEN);
}

void earlier_answers::find(
    int32_t owner, const std::vector<int32_t> & text, int32_t next, int32_t length, continuations & found) const {
    const auto of = of_owner_.find(owner);
    if (of == of_owner_.end() || length < 1) {
        return;
    }
    const memory & m      = of->second;
    const int32_t  oldest = std::max(0, m.n_added - n_kept_);
    const auto     held   = [&](int32_t place) { return m.tokens[place % n_kept_]; };
    m.chains.find(text, next, oldest, held, [&](int32_t place, int32_t n_matched) {
        found.begin(quote_source::answers, n_matched);
        // up to the answer's end, or a row of a medium, which is no token
        for (int32_t i = place + 1; i <= place + length && i < m.n_added && held(i) >= 0; ++i) {
            found.push(held(i));
        }
    });
}

int64_t earlier_answers::size() const {
    int64_t n = 0;
    for (const auto & [owner, m] : of_owner_) {
        n += (int64_t) m.tokens.size();
    }
    return n;
}

size_t earlier_answers::bytes() const {
    size_t n = 0;
    for (const auto & [owner, m] : of_owner_) {
        n += m.tokens.capacity() * sizeof(int32_t) + m.chains.bytes();
    }
    return n;
}

}   // namespace dflash
