#include "schema/pattern.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <utility>
#include <vector>

namespace dflash {

namespace {

constexpr int32_t MAX_DEPTH   = 40;        // of nested groups
constexpr int32_t MAX_COUNT   = 10000;     // of a repetition
constexpr size_t  MAX_PLACES  = 100000;    // in the nondeterministic machine
constexpr size_t  MAX_IN_SETS = 4000000;   // of them, in all sets of the deterministic one

[[noreturn]] void refuse(const std::string & why) { throw std::invalid_argument(why); }

const ranges DIGITS    = { { '0', '9' } };
const ranges WORD      = { { '0', '9' }, { 'A', 'Z' }, { '_', '_' }, { 'a', 'z' } };
const ranges SPACE     = { { 9, 13 }, { ' ', ' ' }, { 0xA0, 0xA0 }, { 0x1680, 0x1680 }, { 0x2000, 0x200A },
        { 0x2028, 0x2029 }, { 0x202F, 0x202F }, { 0x205F, 0x205F }, { 0x3000, 0x3000 }, { 0xFEFF, 0xFEFF } };
const ranges LINE_ENDS = { { '\n', '\n' }, { '\r', '\r' }, { 0x2028, 0x2029 } };

// ---- the expression ----

struct node;
using sequence = std::vector<node>;

struct node {
    enum class kind { characters, group, begin, end };
    kind                  what = kind::characters;
    ranges                points;             // characters
    std::vector<sequence> choices;            // group
    int32_t               min = 1, max = 1;   // -1: no limit

    bool is_anchor() const { return what == kind::begin || what == kind::end; }
};

class parser {
  public:
    explicit parser(const std::string & text) : points_(points_of(text)) {}

    std::vector<sequence> read() {
        std::vector<sequence> all = read_choices(0);
        if (!at_end()) {
            refuse("has a ) without its (");
        }
        return all;
    }

  private:
    bool     at_end() const { return at_ == points_.size(); }
    uint32_t peek(size_t ahead = 0) const { return at_ + ahead < points_.size() ? points_[at_ + ahead] : UINT32_MAX; }
    bool     take(uint32_t c) {
        const bool found = peek() == c;
        at_ += found;
        return found;
    }

    std::vector<sequence> read_choices(int32_t depth) {
        if (depth > MAX_DEPTH) {
            refuse("has groups nested deeper than " + std::to_string(MAX_DEPTH));
        }
        std::vector<sequence> choices = { read_sequence(depth) };
        while (take('|')) {
            choices.push_back(read_sequence(depth));
        }
        return choices;
    }

    sequence read_sequence(int32_t depth) {
        sequence items;
        while (!at_end() && peek() != '|' && peek() != ')') {
            node n = read_atom(depth);
            if (!n.is_anchor()) {
                read_repetition(n);
            } else if (peek() == '*' || peek() == '+' || peek() == '?') {
                refuse("repeats an anchor");
            }
            items.push_back(std::move(n));
        }
        return items;
    }

    node read_atom(int32_t depth) {
        node           n;
        const uint32_t c = points_[at_++];
        switch (c) {
            case '^': n.what = node::kind::begin; break;
            case '$': n.what = node::kind::end; break;
            case '.': n.points = complement(LINE_ENDS); break;
            case '[': n.points = read_class(); break;
            case '\\': n.points = read_escape(false); break;
            case '(':
                n.what = node::kind::group;
                skip_group_name();
                n.choices = read_choices(depth + 1);
                if (!take(')')) {
                    refuse("has a ( without its )");
                }
                break;
            case '*':
            case '+':
            case '?': refuse("repeats nothing");
            default: n.points = { { c, c } };
        }
        return n;
    }

    void skip_group_name() {
        if (!take('?')) {
            return;
        }
        if (take(':')) {
            return;
        }
        if (peek() != '<' || peek(1) == '=' || peek(1) == '!') {
            refuse(peek() == '=' || peek() == '!' || peek() == '<' ? "looks ahead or behind" : "has flags inside");
        }
        while (!at_end() && !take('>')) {
            ++at_;
        }
    }

    // {2}, {2,} and {2,5}; any other brace is a character.
    bool read_count(node & n) {
        size_t     i      = at_ + 1;
        const auto number = [&](int32_t & to) {
            const size_t first = i;
            for (to = 0; i < points_.size() && points_[i] >= '0' && points_[i] <= '9'; ++i) {
                to = std::min(MAX_COUNT + 1, to * 10 + int32_t(points_[i] - '0'));
            }
            return i > first;
        };
        int32_t min = 0, max = -1;
        if (peek() != '{' || !number(min)) {
            return false;
        }
        if (i < points_.size() && points_[i] == ',') {
            ++i;
            if (!number(max)) {
                max = -1;
            }
        } else {
            max = min;
        }
        if (i == points_.size() || points_[i] != '}') {
            return false;
        }
        if (min > MAX_COUNT || max > MAX_COUNT) {
            refuse("asks for more than " + std::to_string(MAX_COUNT) + " repetitions");
        }
        if (max >= 0 && max < min) {
            refuse("has a repetition that ends before it begins");
        }
        at_   = i + 1;
        n.min = min;
        n.max = max;
        return true;
    }

    void read_repetition(node & n) {
        const uint32_t c = peek();
        if (c == '*' || c == '+' || c == '?') {
            ++at_;
            n.min = c == '+';
            n.max = c == '?' ? 1 : -1;
        } else if (!read_count(n)) {
            return;
        }
        take('?');   // lazy quantifiers match the same strings
        if (peek() == '*' || peek() == '+' || peek() == '?') {
            refuse("repeats a repetition");
        }
    }

    uint32_t read_hex(size_t n_digits) {
        uint32_t value = 0;
        for (size_t k = 0; k < n_digits; ++k, ++at_) {
            const uint32_t c = peek(), low = c | 0x20;
            if (!(c >= '0' && c <= '9') && !(low >= 'a' && low <= 'f')) {
                refuse("has an escape with too few digits");
            }
            value = value * 16 + (c <= '9' ? c - '0' : low - 'a' + 10);
        }
        return value;
    }

    uint32_t read_unicode() {
        if (take('{')) {
            const size_t first = at_;
            while (!at_end() && peek() != '}') {
                ++at_;
            }
            const size_t n = at_ - first;
            at_            = first;
            if (n < 1 || n > 6) {
                refuse("has a \\u{...} that is no character");
            }
            const uint32_t point = read_hex(n);
            if (!take('}') || point > LAST_POINT) {
                refuse("has a \\u{...} that is no character");
            }
            return point;
        }
        const uint32_t high = read_hex(4);
        if (high >= 0xD800 && high < 0xDC00 && peek() == '\\' && peek(1) == 'u') {
            at_ += 2;
            const uint32_t low = read_hex(4);
            if (low < 0xDC00 || low > 0xDFFF) {
                refuse("has half of a surrogate pair");
            }
            return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
        }
        return high;
    }

    ranges read_escape(bool in_class) {
        if (at_end()) {
            refuse("ends in a backslash");
        }
        const uint32_t c   = points_[at_++];
        const auto     one = [](uint32_t point) { return ranges{ { point, point } }; };
        switch (c) {
            case 'd': return DIGITS;
            case 'D': return complement(DIGITS);
            case 'w': return WORD;
            case 'W': return complement(WORD);
            case 's': return SPACE;
            case 'S': return complement(SPACE);
            case 't': return one('\t');
            case 'n': return one('\n');
            case 'v': return one('\v');
            case 'f': return one('\f');
            case 'r': return one('\r');
            case 'x': return one(read_hex(2));
            case 'u': return one(read_unicode());
            case 'b':
                if (in_class) {
                    return one('\b');
                }
                refuse("looks for the boundary of a word");
            case 'B': refuse("looks for the boundary of a word");
            case 'p':
            case 'P': refuse("has a character property (\\p)");
            default: break;
        }
        if (c == '0' && !(peek() >= '0' && peek() <= '9')) {
            return one(0);
        }
        if (c >= '0' && c <= '9') {
            refuse("has a back reference");
        }
        if (c < 128 && ((c | 0x20) >= 'a' && (c | 0x20) <= 'z')) {
            refuse(std::string("has an unknown escape, \\") + char(c));
        }
        return one(c);
    }

    ranges read_class() {
        const bool negated = take('^');
        ranges     all;
        while (!take(']')) {
            const ranges low = read_class_atom();
            if (peek() != '-' || peek(1) == ']') {
                all.insert(all.end(), low.begin(), low.end());
                continue;
            }
            ++at_;
            const ranges high   = read_class_atom();
            const auto   single = [](const ranges & r) { return r.size() == 1 && r[0].first == r[0].second; };
            if (single(low) && single(high)) {
                if (low[0].first > high[0].first) {
                    refuse("has a range that ends before it begins");
                }
                all.emplace_back(low[0].first, high[0].first);
            } else {   // [\w-.]: the hyphen is a character
                all.insert(all.end(), low.begin(), low.end());
                all.insert(all.end(), high.begin(), high.end());
                all.emplace_back('-', '-');
            }
        }
        all = united(all);
        return negated ? complement(all) : all;
    }

    ranges read_class_atom() {
        if (at_end()) {
            refuse("has a [ without its ]");
        }
        const uint32_t c = points_[at_++];
        return c == '\\' ? read_escape(true) : ranges{ { c, c } };
    }

    std::vector<uint32_t> points_;
    size_t                at_ = 0;
};

// ---- the machine ----

// Thompson's construction: a text leads to a set of places.
class machine {
  public:
    explicit machine(const std::vector<sequence> & expression) {
        const int32_t begin = add(), matched = add_choices(expression, begin);
        places_[begin].steps.emplace_back(all_points(), begin);   // a match may start anywhere
        places_[matched].steps.emplace_back(all_points(), matched);
        final_ = matched;
        reached_.assign(places_.size(), 0);
    }

    // The subset construction: a state is a set of places. The first one is none of `found`: only there does ^ match.
    automaton deterministic() {
        automaton                                 out;
        const std::vector<int32_t>                start = closed({ 0 }, true, false);
        std::map<std::vector<int32_t>, int32_t>   found;
        std::vector<const std::vector<int32_t> *> sets     = { &start };   // the others are keys of `found`
        size_t                                    n_places = start.size(), n_edges = 0;
        const auto                                number_of = [&](std::vector<int32_t> set) {
            set.shrink_to_fit();
            const auto [at, added] = found.emplace(std::move(set), int32_t(sets.size()));
            if (added) {
                sets.push_back(&at->first);
                n_places += at->first.size();
                check_automaton_size(sets.size());
                if (n_places > MAX_IN_SETS) {
                    throw automaton_size_error();
                }
            }
            return at->second;
        };
        for (size_t k = 0; k < sets.size(); ++k) {
            const std::vector<int32_t> & set      = *sets[k];
            const size_t                 n_ranges = ranges_of(set);
            const std::vector<int32_t>   at_end   = closed(set, k == 0, true);
            automaton::state             s        = { std::binary_search(at_end.begin(), at_end.end(), final_) };
            for (const auto & [low, high] : pieces(set)) {
                std::vector<int32_t> next = closed(step(set, low), false, false);
                automaton_budget::spend(n_ranges + next.size());
                if (!next.empty()) {
                    s.edges.push_back({ low, high, number_of(std::move(next)) });
                }
            }
            n_edges += s.edges.size();
            check_automaton_size(sets.size(), n_edges);
            out.states.push_back(std::move(s));
        }
        return minimal(out);
    }

  private:
    struct place {
        std::vector<std::pair<ranges, int32_t>> steps    = {};
        std::vector<int32_t>                    free     = {};   // reached without a character
        std::vector<int32_t>                    at_begin = {};   // ... only at the beginning of the text
        std::vector<int32_t>                    at_end   = {};
    };

    int32_t add() {
        if (places_.size() >= MAX_PLACES) {
            throw automaton_size_error();
        }
        places_.emplace_back();
        return int32_t(places_.size()) - 1;
    }

    // Each returns the place reached after the part that begins at `from`.
    int32_t add_choices(const std::vector<sequence> & choices, int32_t from) {
        const int32_t end = add();
        for (const sequence & choice : choices) {
            int32_t at = add();
            places_[from].free.push_back(at);
            for (const node & n : choice) {
                at = add_node(n, at);
            }
            places_[at].free.push_back(end);
        }
        return end;
    }

    int32_t add_once(const node & n, int32_t from) {
        if (n.what == node::kind::group) {
            return add_choices(n.choices, from);
        }
        const int32_t to = add();
        if (n.what == node::kind::characters) {
            places_[from].steps.emplace_back(n.points, to);
        } else {
            (n.what == node::kind::begin ? places_[from].at_begin : places_[from].at_end).push_back(to);
        }
        return to;
    }

    int32_t add_node(const node & n, int32_t at) {
        for (int32_t i = 0; i < n.min; ++i) {
            at = add_once(n, at);
        }
        if (n.max < 0) {
            const int32_t loop = add();
            places_[at].free.push_back(loop);
            places_[add_once(n, loop)].free.push_back(loop);
            return loop;
        }
        const int32_t end = add();
        for (int32_t i = n.min; i < n.max; ++i) {
            places_[at].free.push_back(end);
            at = add_once(n, at);
        }
        places_[at].free.push_back(end);
        return end;
    }

    // The places that are reached from `open` without a character, in order, if they last.
    std::vector<int32_t> closed(std::vector<int32_t> open, bool at_begin, bool at_end) {
        ++round_;
        std::vector<int32_t> lasting;
        const auto           reach = [&](int32_t i) {
            const bool added = reached_[i] != round_;
            reached_[i]      = round_;
            if (added && lasts(i)) {
                lasting.push_back(i);
            }
            return added;
        };
        open.erase(std::remove_if(open.begin(), open.end(), [&](int32_t i) { return !reach(i); }), open.end());
        while (!open.empty()) {
            const place & p = places_[open.back()];
            open.pop_back();
            for (const auto * more : { &p.free, at_begin ? &p.at_begin : nullptr, at_end ? &p.at_end : nullptr }) {
                for (size_t i = 0; more && i < more->size(); ++i) {
                    if (reach((*more)[i])) {
                        open.push_back((*more)[i]);
                    }
                }
            }
        }
        if (reached_[final_] == round_) {
            return { final_ };   // whatever follows, the text matches
        }
        std::sort(lasting.begin(), lasting.end());
        return lasting;
    }

    // Whether a place matters beyond those that are reached from it without a character.
    bool lasts(int32_t i) const { return !places_[i].steps.empty() || !places_[i].at_end.empty(); }

    // Ranges whose code points all steps of the set treat alike.
    ranges pieces(const std::vector<int32_t> & set) const {
        std::set<uint32_t> begins;
        for (const int32_t i : set) {
            for (const auto & [points, to] : places_[i].steps) {
                for (const auto & [low, high] : points) {
                    begins.insert({ low, high + 1 });
                }
            }
        }
        ranges out;
        for (auto at = begins.begin(); at != begins.end() && std::next(at) != begins.end(); ++at) {
            const ranges valid = without({ { *at, *std::next(at) - 1 } }, complement(all_points()));
            out.insert(out.end(), valid.begin(), valid.end());
        }
        return out;
    }

    // How many `pieces` and `step` look at.
    size_t ranges_of(const std::vector<int32_t> & set) const {
        size_t n = set.size();
        for (const int32_t i : set) {
            for (const auto & [points, to] : places_[i].steps) {
                n += points.size();
            }
        }
        return n;
    }

    std::vector<int32_t> step(const std::vector<int32_t> & set, uint32_t point) const {
        std::vector<int32_t> next;
        for (const int32_t i : set) {
            for (const auto & [points, to] : places_[i].steps) {
                if (std::any_of(points.begin(), points.end(),
                        [&, p = point](const auto & r) { return r.first <= p && p <= r.second; })) {
                    next.push_back(to);
                }
            }
        }
        return next;
    }

    std::vector<place>   places_;
    int32_t              final_ = 0;
    std::vector<int32_t> reached_;     // in which call of `closed` each place was reached last
    int32_t              round_ = 0;   // number of that call
};

}   // namespace

automaton matching(const std::string & pattern) { return machine(parser(pattern).read()).deterministic(); }

}   // namespace dflash
