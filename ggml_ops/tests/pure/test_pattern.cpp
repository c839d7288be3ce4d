// Patterns, texts and numbers as automata: a client's pattern gives an automaton or an error, and automata behave like
// sets of strings. Compared with Python's regular expressions and through grammars in tests/engine/test_schemas.py.

#include "schema/decimal.h"
#include "schema/pattern.h"

#include "check.h"

#include <random>
#include <stdexcept>

using namespace dflash;

static std::string pick(std::mt19937 & rng, const std::vector<std::string> & parts, uint32_t most) {
    std::string text;
    for (uint32_t n = rng() % most; n > 0; --n) {
        text += parts[rng() % parts.size()];
    }
    return text;
}

static bool is_sound(const automaton & a) {
    for (const automaton::state & s : a.states) {
        uint32_t next = 0;
        for (const automaton::edge & e : s.edges) {
            if (e.low < next || e.high < e.low || e.to < 0 || size_t(e.to) >= a.states.size()) {
                return false;
            }
            next = e.high + 1;
        }
    }
    return true;
}

// One that would need gigabytes, and minutes.
static bool is_too_large(const std::string & pattern) {
    try {
        matching(pattern);
    } catch (const automaton_size_error &) {
        return true;
    }
    return false;
}

static void test_patterns() {
    CHECK(matching("^a$").accepts("a") && !matching("^a$").accepts("aa"));
    CHECK(matching("a$b").is_empty() && matching("[]").is_empty());
    CHECK(matching("$^").accepts("") && !matching("$^").accepts("a") && !matching("$^").accepts("aa"));
    for (const char * pattern : { ".{2000}", ".{1,8192}", "[\\s\\S]{1,4096}" }) {   // lengths, without anchors
        CHECK(!is_too_large(pattern));
    }
    CHECK(is_too_large("^(a?){9999}$") && is_too_large("^((a?){99}){99}b") && !is_too_large("^a{9999}$"));
    const std::vector<std::string> parts = { "a", "b|", "(", ")", "(?:", "(?", "[", "]", "[^", "-", "^", "$", ".", "*",
        "+", "?", "{2}", "{1,3}", "{", "}", ",", "\\", "\\d", "\\W", "\\s", "\\u00e9", "\\x4", "\\u{1F600}",
        "\\uD83D\\uDE00", "\"", "\n", "\xC3\xA9", "\xF0\x9F\x98\x80", "\xE2\x82", "\xFF", "0", "|" };
    const std::vector<std::string> texts_of = { "a", "b", "\n", "\"", "0", "\xC3\xA9", "\xF0\x9F\x98\x80", "-", "{",
        "," };
    std::mt19937                   rng(1);
    int32_t                        n_good = 0, n_hits = 0;
    automaton                      last = lengths(0, 2);
    for (int32_t i = 0; i < 20000; ++i) {
        const std::string pattern = pick(rng, parts, 9);
        automaton         a;
        try {
            a = matching(pattern);
        } catch (const std::invalid_argument &) {
            continue;
        } catch (const automaton_size_error &) {
            continue;
        }
        ++n_good;
        const automaton other = other_than(a), meet = both(a, last);
        CHECK(is_sound(a) && is_sound(other) && is_sound(meet));
        for (int32_t k = 0; k < 4; ++k) {
            const std::string text = pick(rng, texts_of, 5);
            const bool        hit  = a.accepts(text);
            n_hits += hit;
            CHECK(other.accepts(text) != hit);
            CHECK(meet.accepts(text) == (hit && last.accepts(text)));
            CHECK(minimal(a).accepts(text) == hit);
        }
        last = a;
    }
    CHECK(n_good > 1500 && n_hits > 500);
}

// Many ways to go on from each of many places, and many edges: limits of states see neither.
static void test_budget() {
    std::string ways = "(", no = "^[^";
    for (int32_t i = 0; i < 80; ++i) {
        ways += std::string(i ? "|" : "") + "[\\u" + std::to_string(2000 + i) + "-\\uffff]";
    }
    for (int32_t i = 0; i < 600; ++i) {
        no += "\\u" + std::to_string(2000 + 2 * i);
    }
    CHECK(is_too_large(no + "]{9000}$") && !is_too_large(no + "]$"));
    {
        const automaton_budget budget;
        {
            const automaton_budget inner;
            CHECK(is_too_large(ways + "){400}$"));
        }
        CHECK(is_too_large("^a$"));   // nothing is left
    }
    const automaton_budget another;
    CHECK(!is_too_large("^a$") && !is_too_large(ways + "){2}$"));
}

static void test_texts() {
    const automaton names = texts({ "", "ab", "abc", "\xC3\xA9" });
    for (const char * text : { "", "ab", "abc", "\xC3\xA9" }) {
        CHECK(names.accepts(text) && !other_than(names).accepts(text));
    }
    for (const char * text : { "a", "abcd", "b", "\xC3" }) {
        CHECK(!names.accepts(text) && other_than(names).accepts(text));
    }
    CHECK(lengths(2, 3).accepts("a\xF0\x9F\x98\x80") && !lengths(2, 3).accepts("abcd") && !lengths(2, 3).accepts("a"));
    CHECK(lengths(2, SIZE_MAX).accepts("abcdef"));
    CHECK(texts({}).is_empty() && both(names, texts({})).is_empty());
}

// In hundredths, compared with arithmetic.
static void test_numbers() {
    const auto text_of = [](int32_t n, bool padded) {
        std::string digits = std::to_string(std::abs(n) / 100),
                    cents  = std::to_string(std::abs(n) % 100 + 100).substr(1);
        while (!padded && !cents.empty() && cents.back() == '0') {
            cents.pop_back();
        }
        return (n < 0 ? "-" : "") + digits + (cents.empty() ? "" : "." + cents);
    };
    std::mt19937 rng(2);
    for (int32_t i = 0; i < 150; ++i) {
        number_limits limits;
        const int32_t low = int32_t(rng() % 4000) - 2000, high = low + int32_t(rng() % 1500);
        const int32_t step = i % 3 == 0 ? int32_t(rng() % 300) + 1 : 0;
        if (i % 5 != 0) {
            limits.low = number_limits::bound{ as_decimal(text_of(low, false)), rng() % 2 == 0 };
        }
        if (i % 7 != 0) {
            limits.high = number_limits::bound{ as_decimal(text_of(high, false)), rng() % 2 == 0 };
        }
        if (step) {
            limits.divisors = { as_decimal(text_of(step, false)) };
        }
        limits.integer    = i % 4 == 0;
        const automaton a = numbers(limits);
        for (int32_t n = -2100; n < 3600; n += 1 + int32_t(rng() % 3)) {
            const bool fits = (!limits.low || n > low || (n == low && !limits.low->exclusive)) &&
                              (!limits.high || n < high || (n == high && !limits.high->exclusive)) &&
                              (!step || n % step == 0);
            CHECK(a.accepts(text_of(n, false)) == (fits && (!limits.integer || n % 100 == 0)));
            CHECK(a.accepts(text_of(n, true)) == (fits && !limits.integer));
        }
        for (const char * bad : { "", "-", "-0", "-0.0", "01", "1.", ".5", "+1", "1e2", "--1", "1.2.3" }) {
            CHECK(!a.accepts(bad));
        }
    }
    CHECK(compare(as_decimal("1.5e2"), as_decimal("150")) == 0 && compare(as_decimal("-1e-3"), as_decimal("0")) < 0);
    CHECK(compare(as_decimal("12"), as_decimal("9.9")) > 0 && divides(as_decimal("0.01"), as_decimal("4.5")));
    CHECK(!divides(as_decimal("0.01"), as_decimal("4.501")) && divides(as_decimal("7"), as_decimal("-49")));
}

int main() {
    test_patterns();
    test_budget();
    test_texts();
    test_numbers();
    return TEST_RESULT;
}
