// Where a grammar that waits for a trigger begins.
//
// llama.cpp searches all of the text for every trigger after every token: quadratic, and std::regex recurses over what
// it matches. Here a word is looked for at the end of the text only, and a pattern is tried again only from places
// where it came to the end of the text without an answer.

#pragma once

#include <cstdint>
#include <deque>
#include <regex>
#include <string>
#include <vector>

namespace dflash {

struct trigger {
    std::string text;              // not empty
    bool        pattern = false;   // a regular expression, not a word
};

class trigger_search {
  public:
    static constexpr size_t npos = std::string::npos;
    // Bytes from a pattern's first to the end of the text: who has not matched by then is given up.
    static constexpr size_t MAX_SPAN = 1024;

    // Throws std::regex_error.
    explicit trigger_search(const std::vector<trigger> & triggers);

    // Adds text. Where the grammar's part of all text so far begins: at the first word, or at the first pattern's first
    // group that is not empty, or without one at the pattern itself; npos: there is no trigger yet. As in llama.cpp, of
    // several triggers the first one of the list counts. Not to be called again after a position.
    size_t push(const std::string & text);

    // The text from a position that push() returned.
    std::string since(size_t position) const { return tail_.substr(position - begin_); }
    // No position before this one will be returned.
    size_t begin() const { return begin_; }

  private:
    struct open_trigger {
        trigger            what;
        std::regex         regex;
        std::deque<size_t> starts;   // of a pattern: where more text may still make it match, ascending
    };

    size_t find_word(const std::string & word, size_t n_new) const;
    size_t find_pattern(open_trigger & t, size_t n_new) const;
    size_t end() const { return begin_ + tail_.size(); }

    std::vector<open_trigger> triggers_;
    size_t                    keep_  = MAX_SPAN;   // bytes at the end that may matter
    size_t                    begin_ = 0;          // position of tail_
    std::string               tail_;
};

}   // namespace dflash
