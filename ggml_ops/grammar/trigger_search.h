// Finds where a lazy grammar begins.
//
// llama.cpp searches the whole text for every trigger after every token: that is quadratic, and std::regex recurses
// over what it matches. Here a word is only searched for at the end of the text, and a pattern is only retried at
// positions where it reached the end of the text undecided.

#pragma once

#include <deque>
#include <functional>
#include <regex>
#include <string>
#include <vector>

namespace dflash {

struct trigger {
    std::string text;              // not empty
    bool        pattern = false;   // a regular expression instead of a word
};

class trigger_search {
  public:
    static constexpr size_t npos = std::string::npos;
    using place_check            = std::function<bool(size_t)>;
    // Max. bytes between the start of a pattern's match and the end of the text; longer attempts are dropped.
    static constexpr size_t MAX_SPAN = 1024;

    // Throws std::regex_error.
    explicit trigger_search(const std::vector<trigger> & triggers);

    // Adds text and returns where the grammar's part of the whole text begins: at the first word, or at a pattern's
    // first non-empty group, or at the pattern itself if it has none; npos: no trigger yet. If there are several
    // triggers, the first in the list wins, as in llama.cpp. Places that `begins` refuses are passed over: the
    // grammar cannot begin there. Do not call it again after it has returned a position.
    size_t push(const std::string & text, const place_check & begins = [](size_t) { return true; });

    // The text from a position that push() returned.
    std::string since(size_t position) const { return tail_.substr(position - begin_); }
    // push() will not return a position before this one.
    size_t begin() const { return begin_; }

  private:
    struct open_trigger {
        trigger            what;
        std::regex         regex;
        std::deque<size_t> starts;   // of a pattern: positions where more text may complete a match, ascending
    };

    size_t find_word(const std::string & word, size_t n_new, const place_check & begins) const;
    size_t find_pattern(open_trigger & t, size_t n_new, const place_check & begins) const;
    size_t end() const { return begin_ + tail_.size(); }

    std::vector<open_trigger> triggers_;
    size_t                    keep_  = MAX_SPAN;   // bytes at the end that are still needed
    size_t                    begin_ = 0;          // position of tail_ in the text
    std::string               tail_;
};

}   // namespace dflash
