#include "files/schema_pattern.h"

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

namespace dflash {

namespace {

constexpr int32_t  MAX_DEPTH  = 40;     // of groups; the converter of llama.cpp takes 100, and a group here may be two
constexpr int32_t  MAX_COUNT  = 2000;   // llama.cpp takes a larger one for no limit
constexpr uint32_t LAST_POINT = 0x10FFFF;
const char * const ANY_TEXT =
    "([^\\x22\\x5C\\x7F\\x00-\\x1F]|[\\x5C]([\\x22\\x5C\\x2Fbfnrt]|u[0-9a-fA-F][0-9a-fA-F][0-9a-fA-F][0-9a-fA-F]))*";

[[noreturn]] void refuse(const std::string & why) { throw std::invalid_argument(why); }

// ---- sets of code points ----

using ranges = std::vector<std::pair<uint32_t, uint32_t>>;   // both ends included

ranges united(ranges r) {
    std::sort(r.begin(), r.end());
    ranges out;
    for (const auto & [low, high] : r) {
        if (!out.empty() && low <= out.back().second + 1) {
            out.back().second = std::max(out.back().second, high);
        } else {
            out.emplace_back(low, high);
        }
    }
    return out;
}

ranges complement(const ranges & r) {
    ranges   out;
    uint32_t next = 0;
    for (const auto & [low, high] : united(r)) {
        if (low > next) {
            out.emplace_back(next, low - 1);
        }
        next = high + 1;
    }
    if (next <= LAST_POINT) {
        out.emplace_back(next, LAST_POINT);
    }
    return out;
}

ranges without(const ranges & r, const ranges & others) {
    ranges all = complement(r);
    all.insert(all.end(), others.begin(), others.end());
    return complement(all);
}

bool holds(const ranges & r, uint32_t c) {
    return std::any_of(r.begin(), r.end(), [&](const auto & one) { return one.first <= c && c <= one.second; });
}

const ranges DIGITS    = { { '0', '9' } };
const ranges WORD      = { { '0', '9' }, { 'A', 'Z' }, { '_', '_' }, { 'a', 'z' } };
const ranges SPACE     = { { 9, 13 }, { ' ', ' ' }, { 0xA0, 0xA0 }, { 0x1680, 0x1680 }, { 0x2000, 0x200A },
        { 0x2028, 0x2029 }, { 0x202F, 0x202F }, { 0x205F, 0x205F }, { 0x3000, 0x3000 }, { 0xFEFF, 0xFEFF } };
const ranges LINE_ENDS = { { '\n', '\n' }, { '\r', '\r' }, { 0x2028, 0x2029 } };
// What does not stand for itself in a JSON string; a surrogate is no character.
const ranges ESCAPED    = { { 0, 0x1F }, { '"', '"' }, { '\\', '\\' }, { 0x7F, 0x7F } };
const ranges SURROGATES = { { 0xD800, 0xDFFF } };

// ---- the expression ----

struct node;
using sequence = std::vector<node>;

struct node {
    enum class kind { characters, group, begin, end };
    kind                  what = kind::characters;
    ranges                points;             // characters
    std::vector<sequence> choices;            // group
    int32_t               min = 1, max = 1;   // repetitions, -1: without a limit

    bool is_anchor() const { return what == kind::begin || what == kind::end; }
    bool has_anchor() const {
        return is_anchor() || std::any_of(choices.begin(), choices.end(), [](const sequence & s) {
            return std::any_of(s.begin(), s.end(), [](const node & n) { return n.has_anchor(); });
        });
    }
    bool once() const { return min == 1 && max == 1; }
};

// Whether it may match nothing.
bool is_empty(const sequence & all) {
    return std::all_of(all.begin(), all.end(), [](const node & n) {
        return n.min == 0 || n.is_anchor() || std::any_of(n.choices.begin(), n.choices.end(), is_empty);
    });
}

class parser {
  public:
    explicit parser(const std::string & text) {
        for (size_t i = 0; i < text.size();) {
            const auto   c     = (unsigned char) text[i];
            const size_t n     = c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
            uint32_t     point = n == 1 ? c : c & (0xFF >> (n + 1));
            for (size_t k = 1; k < n && i + k < text.size(); ++k) {
                point = (point << 6) | ((unsigned char) text[i + k] & 0x3F);
            }
            points_.push_back(point);
            i += n;
        }
    }

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
        take('?');   // the shortest match first: the same strings
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

// ---- writing ----

std::string point_text(uint32_t c) {
    static const char * const digits = "0123456789ABCDEF";
    const int32_t             n      = c < 0x100 ? 2 : c < 0x10000 ? 4 : 8;
    std::string               text   = n == 2 ? "\\x" : n == 4 ? "\\u" : "\\U";
    for (int32_t k = n - 1; k >= 0; --k) {
        text += digits[(c >> (4 * k)) & 15];
    }
    return text;
}

std::string class_text(const ranges & r) {
    std::string text = "[";
    for (const auto & [low, high] : r) {
        text += point_text(low) + (high > low ? "-" + point_text(high) : "");
    }
    return text + "]";
}

// The JSON text of one of these characters.
std::string characters_text(const ranges & points) {
    static const std::vector<std::pair<uint32_t, char>> short_escapes = { { '"', '"' }, { '\\', '\\' }, { '\b', 'b' },
        { '\f', 'f' }, { '\n', 'n' }, { '\r', 'r' }, { '\t', 't' } };

    std::vector<std::string> ways;
    ranges                   special = ESCAPED;
    special.insert(special.end(), SURROGATES.begin(), SURROGATES.end());
    const ranges plain = without(points, special);
    if (!plain.empty()) {
        ways.push_back(class_text(plain));
    }
    ranges escapes;
    for (const auto & [point, letter] : short_escapes) {
        if (holds(points, point)) {
            escapes.emplace_back(letter, letter);
        }
    }
    if (!escapes.empty()) {
        ways.push_back("[\\x5C]" + class_text(united(escapes)));
    }
    for (uint32_t c = 0; c < 0x80; ++c) {
        const bool is_short = std::any_of(
            short_escapes.begin(), short_escapes.end(), [&](const auto & escape) { return escape.first == c; });
        if (holds(ESCAPED, c) && !is_short && holds(points, c)) {
            const uint32_t    digit = c % 16, upper = digit < 10 ? '0' + digit : 'A' + digit - 10;
            const std::string last = digit < 10 ? class_text({ { upper, upper } })
                                                : class_text({ { upper, upper }, { upper + 32, upper + 32 } });
            ways.push_back("[\\x5C]u00" + class_text({ { '0' + c / 16, '0' + c / 16 } }) + last);
        }
    }
    if (ways.empty()) {
        refuse("has a class that no character is in");
    }
    std::string text = ways[0];
    for (size_t i = 1; i < ways.size(); ++i) {
        text += "|" + ways[i];
    }
    return ways.size() == 1 && ways[0][0] == '[' && escapes.empty() ? text : "(" + text + ")";
}

std::string group_text(const std::vector<sequence> & choices, bool at_begin, bool at_end);

std::string node_text(const node & n, bool at_begin, bool at_end) {
    if (n.is_anchor() || (n.has_anchor() && !n.once())) {
        refuse("has an anchor (^ or $) inside");
    }
    if (n.max == 0) {
        return "";
    }
    std::string text =
        n.what == node::kind::group ? group_text(n.choices, at_begin, at_end) : characters_text(n.points);
    if (n.once() || text.empty()) {
        return text;
    }
    if (n.max == 1) {
        return text.back() == '?' ? text : text + "?";
    }
    if (std::any_of(n.choices.begin(), n.choices.end(), is_empty)) {
        refuse("repeats what may be empty");   // llama.cpp takes that for left recursion
    }
    if (n.max < 0 && n.min < 2) {
        return text + (n.min ? "+" : "*");
    }
    const std::string least = "{" + std::to_string(n.min);
    if (n.max < 0) {
        return text + least + "}" + text + "*";
    }
    return text + least + (n.max == n.min ? "}" : "," + std::to_string(n.max) + "}");
}

// `at_begin`, `at_end`: the string may begin and end here, with any text where there is no anchor.
std::string sequence_text(const sequence & all, bool at_begin, bool at_end) {
    size_t first = 0, last = all.size();
    while (first < last && all[first].what == node::kind::begin) {
        ++first;
    }
    while (last > first && all[last - 1].what == node::kind::end) {
        --last;
    }
    const bool anchored_begin = first > 0, anchored_end = last < all.size();
    if ((anchored_begin && !at_begin) || (anchored_end && !at_end)) {
        refuse("has an anchor (^ or $) inside");
    }
    // "^" and "$" alone leave the other side open, and both together are the empty string
    const bool  open_begin = at_begin && !anchored_begin, open_end = at_end && !anchored_end;
    const bool  inner_begin = open_begin && first < last && all[first].has_anchor();
    const bool  inner_end   = open_end && first < last && all[last - 1].has_anchor();
    std::string text        = open_begin && !inner_begin ? ANY_TEXT : "";
    const bool  empty       = first == last;
    for (size_t i = first; i < last; ++i) {
        text += node_text(all[i], inner_begin && i == first, inner_end && i + 1 == last);
    }
    return text + (open_end && !inner_end && !(empty && open_begin) ? ANY_TEXT : "");
}

std::string group_text(const std::vector<sequence> & choices, bool at_begin, bool at_end) {
    std::string text;
    bool        may_be_empty = false;
    for (const sequence & choice : choices) {
        const std::string one = sequence_text(choice, at_begin, at_end);
        may_be_empty |= one.empty();
        text += one.empty() || text.empty() ? one : "|" + one;
    }
    return text.empty() ? "" : "(" + text + ")" + (may_be_empty ? "?" : "");
}

}   // namespace

std::string json_text_pattern(const std::string & pattern) {
    std::string text = group_text(parser(pattern).read(), true, true);
    return "^" + text + "$";
}

}   // namespace dflash
