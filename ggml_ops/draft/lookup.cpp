#include "draft/lookup.h"

#include <algorithm>

namespace dflash {

static constexpr int32_t LEAST_ROOM = 1024;   // places of an index, which doubles

void text_index::index(const std::vector<int32_t> & text) {
    const int32_t n = (int32_t) text.size();
    while (n_places_ < n) {
        if (chains_.is_full()) {
            chains_.reset(std::max(LEAST_ROOM, 2 * n));
            n_places_ = 0;
        }
        const int32_t * last = text.data() + n_places_;
        chains_.add(n_places_, n_places_ + 1, [&](int32_t i) { return last[-i]; });
        ++n_places_;
    }
}

void text_index::find(const std::vector<int32_t> & text, int32_t next, int32_t length, continuations & found) {
    const int32_t n = (int32_t) text.size();
    if (n < n_places_) {   // another text
        reset();
    }
    index(text);
    if (length < 1) {
        return;
    }
    const auto held = [&](int32_t place) { return text[place]; };
    chains_.find(text, next, 0, held, [&](int32_t place, int32_t m) {
        found.begin(quote_source::text, m);
        // The match may run into the text's end: a repetition goes on repeating.
        const int32_t period = n - place;
        for (int32_t i = 0; i < length; ++i) {
            const int32_t at = place + 1 + i % period, token = at < n ? text[at] : next;
            if (token < 0) {   // a medium's row
                break;
            }
            found.push(token);
        }
    });
}

}   // namespace dflash
