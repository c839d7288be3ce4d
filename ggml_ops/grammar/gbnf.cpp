#include "grammar/gbnf.h"

#include "base/text.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <stdexcept>
#include <vector>

namespace dflash {

namespace {

constexpr int32_t MAX_DEPTH       = 200;        // nested parentheses; llama.cpp recurses
constexpr int32_t MAX_REPETITIONS = 2000;       // llama.cpp's limit for {m,n}: it rejects a larger m but not a larger n
constexpr int64_t MAX_TOKEN       = 1024;       // bytes of <token>; llama.cpp splits it on this thread's stack
constexpr int64_t MAX_ELEMENTS    = 2000000;    // of the expanded grammar, 8 bytes each
constexpr double  MAX_VISITS      = 10000000;   // of llama.cpp's search for left recursion, which revisits shared rules

struct item {
    int32_t rule  = -1;      // -1: consumes a character or a token
    int64_t size  = 1;       // elements in llama.cpp's rule
    bool    empty = false;   // may match the empty text: "", x?, x*, x{0,n}
    bool    again = false;   // may repeat, so something follows its first match
};

using sequence = std::vector<item>;

struct rule {
    std::string           name;
    int32_t               line    = 0;
    bool                  defined = false, empty = false;
    std::vector<sequence> choices = {};
};

// ---- reading ----

class reader {
  public:
    explicit reader(const std::string & text) : at_(text.c_str()), end_(at_ + text.size()) {}

    std::vector<rule> read() {
        for (skip(true); at_ < end_; skip(true)) {
            const int32_t     line = line_;
            const std::string name = word();
            skip(false);
            if (std::strncmp(at_, "::=", 3) != 0) {
                fail("expected ::= after rule '" + name + "'");
            }
            at_ += 3;
            skip(true);
            std::vector<sequence> choices = read_choices(0);
            if (at_ < end_ && *at_ != '\n' && *at_ != '\r') {
                fail(std::string("unexpected '") + *at_ + "'");
            }
            rule & r  = rules_[id(name)];
            r.choices = std::move(choices);
            r.line    = line;
            r.defined = true;
        }
        if (!ids_.count("root") || !rules_[ids_["root"]].defined) {
            throw std::invalid_argument("the rule 'root' is missing: a grammar starts with root ::= ...");
        }
        for (const rule & r : rules_) {
            if (!r.defined) {
                throw std::invalid_argument(concat("line ", r.line, ": rule '", r.name, "' is not defined"));
            }
        }
        return std::move(rules_);
    }

    static bool in_word(char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
    }

  private:
    [[noreturn]] void fail(const std::string & why) const {
        throw std::invalid_argument(concat("line ", line_, ": ", why));
    }

    void skip(bool newlines) {
        for (; at_ < end_; ++at_) {
            if (*at_ == '#') {
                at_ = std::find_if(at_, end_, [](char c) { return c == '\n' || c == '\r'; });
                --at_;
            } else if (newlines && (*at_ == '\n' || *at_ == '\r')) {
                line_ += *at_ == '\n';
            } else if (*at_ != ' ' && *at_ != '\t') {
                break;
            }
        }
    }

    std::string word() {
        const char * begin = at_;
        while (at_ < end_ && in_word(*at_)) {
            ++at_;
        }
        if (at_ == begin) {
            fail("expected a rule name (letters, digits and -)");
        }
        return { begin, at_ };
    }

    int32_t id(const std::string & name) {
        const auto [entry, added] = ids_.emplace(name, int32_t(rules_.size()));
        if (added) {
            rules_.push_back({ name, line_ });
        }
        return entry->second;
    }

    std::vector<sequence> read_choices(int32_t depth) {
        std::vector<sequence> choices = { read_sequence(depth) };
        while (at_ < end_ && *at_ == '|') {
            ++at_;
            skip(true);
            choices.push_back(read_sequence(depth));
        }
        return choices;
    }

    sequence read_sequence(int32_t depth) {
        sequence items;
        for (; at_ < end_; skip(depth > 0)) {
            if (std::strchr("*+?{", *at_)) {
                repeat(items);
            } else if (*at_ == '"' || *at_ == '[') {
                items.push_back(literal());
            } else if (*at_ == '<' || *at_ == '!') {
                items.push_back(token());
            } else if (*at_ == '.') {
                ++at_;
                items.push_back({});
            } else if (*at_ == '(') {
                items.push_back(group(depth + 1));
            } else if (in_word(*at_)) {
                items.push_back({ id(word()) });
            } else {
                break;
            }
            if ((elements_ += items.back().size) > MAX_ELEMENTS) {
                fail("the grammar expands to more than " + std::to_string(MAX_ELEMENTS) + " elements");
            }
        }
        return items;
    }

    item group(int32_t depth) {
        if (depth > MAX_DEPTH) {
            fail("parentheses are nested deeper than " + std::to_string(MAX_DEPTH));
        }
        const int32_t line = line_;
        ++at_;
        skip(true);
        std::vector<sequence> choices = read_choices(depth);
        if (at_ == end_ || *at_ != ')') {
            fail("expected ')' for the '(' of line " + std::to_string(line));
        }
        ++at_;
        rules_.push_back({ "(...)", line, true, false, std::move(choices) });
        return { int32_t(rules_.size()) - 1 };
    }

    item literal() {
        const char close = *at_ == '"' ? '"' : ']';
        item       it;
        it.size = 0;
        ++at_;
        at_ += close == ']' && at_ < end_ && *at_ == '^';
        for (; at_ < end_ && *at_ != close; ++at_, ++it.size) {
            if (*at_ == '\\' && ++at_ == end_) {
                break;
            }
            line_ += *at_ == '\n';
        }
        if (at_ == end_) {
            fail(std::string("expected ") + close + " before the end");
        }
        ++at_;
        it.empty = it.size == 0;
        return it;
    }

    item token() {
        at_ += *at_ == '!';
        const char * close = std::find(at_, end_, '>');
        if (at_ == end_ || *at_ != '<' || close == end_) {
            fail("expected <token> or <[id]>");
        }
        if (close - at_ > MAX_TOKEN) {
            fail("the text in <token> is longer than " + std::to_string(MAX_TOKEN) + " bytes, as no token is");
        }
        at_ = close + 1;
        return {};
    }

    int32_t count() {
        int64_t      n     = 0;
        const char * begin = at_;
        for (; at_ < end_ && *at_ >= '0' && *at_ <= '9'; ++at_) {
            n = std::min<int64_t>(10 * n + (*at_ - '0'), MAX_REPETITIONS + 1);
        }
        if (at_ == begin) {
            fail("expected a number in {}");
        }
        skip(true);
        return int32_t(n);
    }

    // Applies the operator at at_ to the last item.
    void repeat(sequence & items) {
        const char op = *at_++;
        if (items.empty() || items.back().size == 0) {
            fail(std::string("nothing before '") + op + "' to repeat");
        }
        int32_t min = op == '+', max = op == '?' ? 1 : -1;
        if (op == '{') {
            skip(true);
            min = max = count();
            if (at_ < end_ && *at_ == ',') {
                ++at_;
                skip(true);
                max = at_ < end_ && *at_ == '}' ? -1 : count();
            }
            if (at_ == end_ || *at_ != '}') {
                fail("expected '}'");
            }
            ++at_;
            if (min > MAX_REPETITIONS || max > MAX_REPETITIONS) {
                fail("more than " + std::to_string(MAX_REPETITIONS) +
                     " repetitions: name what is repeated as a rule, and "
                     "repeat that several times");
            }
            if (max >= 0 && max < min) {
                fail("{" + std::to_string(min) + "," + std::to_string(max) + "} asks for more than it allows");
            }
        }
        item & it = items.back();
        it.size *= std::max({ 1, min, max });
        it.empty |= min == 0;
        it.again |= max != 1 && max != 0;
    }

    const char *                   at_;
    const char *                   end_;
    int32_t                        line_     = 1;
    int64_t                        elements_ = 0;
    std::vector<rule>              rules_;
    std::map<std::string, int32_t> ids_;
};

// ---- expansion at the left edge ----

// llama.cpp keeps a stack of what must still be matched and expands its top until a character is next. This terminates
// unless a rule reaches itself at the left edge with something left to match after it; after items that may be empty,
// the next item is at the left edge, too.
class left_edge {
  public:
    explicit left_edge(std::vector<rule> & rules) : rules_(rules), state_(rules.size()) {
        mark_empty();
        for (size_t i = 0; i < rules_.size(); ++i) {
            if (state_[i].order == 0) {
                visit(int32_t(i), 0);
            }
        }
    }

  private:
    struct mark {
        int32_t order = 0, low = 0;   // Tarjan's numbers
        bool    open   = false;
        double  visits = 1;   // of a search that does not remember where it has been
    };

    // Marks the rules that may match nothing. It looks at each item twice, as a client may send millions.
    void mark_empty() {
        struct place {
            int32_t rule, choice;
        };
        std::vector<std::vector<place>>   places(rules_.size());     // where a rule stands, unless it is optional there
        std::vector<std::vector<int32_t>> n_needed(rules_.size());   // items of each choice that must match something
        std::vector<int32_t>              empty;                     // rules whose places have not been looked at yet
        const auto                        mark = [&](int32_t i) {
            if (!rules_[i].empty) {
                rules_[i].empty = true;
                empty.push_back(i);
            }
        };
        for (int32_t i = 0; i < (int32_t) rules_.size(); ++i) {
            for (const sequence & s : rules_[i].choices) {
                int32_t n = 0;
                for (const item & it : s) {
                    n += !it.empty;
                    if (!it.empty && it.rule >= 0) {
                        places[it.rule].push_back({ i, (int32_t) n_needed[i].size() });
                    }
                }
                n_needed[i].push_back(n);
                if (n == 0) {
                    mark(i);
                }
            }
        }
        while (!empty.empty()) {
            const int32_t i = empty.back();
            empty.pop_back();
            for (const place & p : places[i]) {
                if (--n_needed[p.rule][p.choice] == 0) {
                    mark(p.rule);
                }
            }
        }
    }

    bool may_be_empty(const item & it) const { return it.empty || (it.rule >= 0 && rules_[it.rule].empty); }

    // edge(rule, whether something follows) for every rule that may come first in rule i.
    template <class F> void each_edge(int32_t i, F && edge) const {
        for (const sequence & s : rules_[i].choices) {
            for (size_t k = 0; k < s.size(); ++k) {
                if (s[k].rule >= 0) {
                    edge(s[k].rule, s[k].again || k + 1 < s.size());
                }
                if (!may_be_empty(s[k])) {
                    break;
                }
            }
        }
    }

    void visit(int32_t i, int32_t depth) {
        if (depth > MAX_DEPTH * 10) {
            fail(i, "rules refer to each other too deeply");
        }
        state_[i].order = state_[i].low = ++order_;
        state_[i].open                  = true;
        open_.push_back(i);
        each_edge(i, [&](int32_t to, bool) {
            if (state_[to].order == 0) {
                visit(to, depth + 1);
            }
            if (state_[to].open) {
                state_[i].low = std::min(state_[i].low, state_[to].low);
            }
            state_[i].visits += state_[to].visits;
        });
        if (state_[i].visits > MAX_VISITS) {
            fail(i, "too many ways to begin: rules double at every level");
        }
        if (state_[i].low == state_[i].order) {
            close_cycle(i);
        }
    }

    // The open rules from i on reach each other at the left edge.
    void close_cycle(int32_t i) {
        const auto first = std::find(open_.rbegin(), open_.rend(), i).base() - 1;   // mostly the last one
        for (auto member = first; member != open_.end(); ++member) {
            each_edge(*member, [&](int32_t to, bool followed) {
                if (followed && state_[to].open && state_[to].order >= state_[i].order) {
                    fail(*member,
                        "left recursion: the rule can begin with itself; write x ::= a x | a instead of x ::= x a | a");
                }
            });
        }
        for (auto member = first; member != open_.end(); ++member) {
            state_[*member].open = false;
        }
        open_.erase(first, open_.end());
    }

    [[noreturn]] void fail(int32_t i, const std::string & why) const {
        throw std::invalid_argument(concat("line ", rules_[i].line, ": rule '", rules_[i].name, "': ", why));
    }

    std::vector<rule> &  rules_;
    std::vector<mark>    state_;
    std::vector<int32_t> open_;
    int32_t              order_ = 0;
};

}   // namespace

std::string with_prefix(const std::string & grammar, const std::string & prefix) {
    std::string out;
    for (size_t i = 0; i < grammar.size();) {
        const char c     = grammar[i];
        size_t     end   = i + 1;
        const char close = c == '"' ? '"' : c == '[' ? ']' : c == '<' ? '>' : c == '{' ? '}' : c == '#' ? '\n' : '\0';
        if (close) {
            while (end < grammar.size() && grammar[end] != close) {
                end += (close == '"' || close == ']') && grammar[end] == '\\' ? 2 : 1;
            }
            ++end;
        } else if (reader::in_word(c)) {
            out += prefix;
            while (end < grammar.size() && reader::in_word(grammar[end])) {
                ++end;
            }
        }
        out += grammar.substr(i, end - i);
        i = end;
    }
    return out;
}

void check_gbnf(const std::string & grammar) {
    if (grammar.find('\0') != std::string::npos) {
        throw std::invalid_argument("contains a NUL character");
    }
    std::vector<rule> rules = reader(grammar).read();
    left_edge{ rules };
}

}   // namespace dflash
