#include "grammar/trigger_search.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

namespace dflash {

namespace {

// An iterator that records whether it was compared with the end of the text. A match that failed without reaching the
// end will always fail.
class watched {
  public:
    using iterator_category = std::bidirectional_iterator_tag;
    using value_type        = char;
    using difference_type   = std::ptrdiff_t;
    using pointer           = const char *;
    using reference         = const char &;

    watched() = default;
    watched(const char * at, const char * end, bool * reached) : at_(at), end_(end), reached_(reached) {}

    reference operator*() const { return *at_; }
    watched & operator++() {
        ++at_;
        return *this;
    }
    watched & operator--() {
        --at_;
        return *this;
    }
    watched operator++(int) { return { at_++, end_, reached_ }; }
    watched operator--(int) { return { at_--, end_, reached_ }; }
    bool    operator!=(const watched & other) const { return !(*this == other); }
    bool    operator==(const watched & other) const {
        if (at_ == other.at_ && at_ == end_ && reached_) {
            *reached_ = true;
        }
        return at_ == other.at_;
    }

  private:
    const char * at_      = nullptr;
    const char * end_     = nullptr;
    bool *       reached_ = nullptr;
};

}   // namespace

trigger_search::trigger_search(const std::vector<trigger> & triggers) {
    for (const trigger & t : triggers) {
        triggers_.push_back({ t, t.pattern ? std::regex(t.text) : std::regex(), {} });
        keep_ = std::max(keep_, t.text.size());
    }
}

size_t trigger_search::push(const std::string & text, const place_check & begins) {
    tail_ += text;
    for (open_trigger & t : triggers_) {
        const size_t at =
            t.what.pattern ? find_pattern(t, text.size(), begins) : find_word(t.what.text, text.size(), begins);
        if (at != npos) {
            return at;
        }
    }
    if (tail_.size() > 4 * keep_) {   // rarely, since it moves the rest
        const size_t n = tail_.size() - keep_;
        tail_.erase(0, n);
        begin_ += n;
    }
    return npos;
}

// The word must end in the new text, otherwise it would have been found before.
size_t trigger_search::find_word(const std::string & word, size_t n_new, const place_check & begins) const {
    const size_t n_old = tail_.size() - n_new;
    size_t       at    = tail_.find(word, n_old - std::min(n_old, word.size() - 1));
    while (at != npos && !begins(begin_ + at)) {
        at = tail_.find(word, at + 1);
    }
    return at == npos ? npos : begin_ + at;
}

size_t trigger_search::find_pattern(open_trigger & t, size_t n_new, const place_check & begins) const {
    for (size_t at = end() - n_new; at < end(); ++at) {
        t.starts.push_back(at);
    }
    while (!t.starts.empty() && t.starts.front() + MAX_SPAN < end()) {
        t.starts.pop_front();
    }
    const char * const last = tail_.data() + tail_.size();
    for (auto start = t.starts.begin(); start != t.starts.end();) {
        bool                        reached = false;
        std::match_results<watched> match;
        // only the first position is the beginning of the text
        const auto flags = std::regex_constants::match_continuous |
                           (*start ? std::regex_constants::match_not_bol : std::regex_constants::match_default);
        const char * const first = tail_.data() + (*start - begin_);
        if (std::regex_search(watched(first, last, &reached), watched(last, last, &reached), match, t.regex, flags)) {
            size_t group = 1;
            while (group < match.size() && match.length(group) == 0) {
                ++group;
            }
            const size_t at = *start + (group < match.size() ? size_t(match.position(group)) : 0);
            if (begins(at)) {
                return at;
            }
            reached = false;
        }
        start = reached ? std::next(start) : t.starts.erase(start);
    }
    return npos;
}

}   // namespace dflash
