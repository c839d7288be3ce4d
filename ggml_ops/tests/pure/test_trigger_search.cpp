// The search for triggers compared with llama.cpp's: every trigger in the whole text after every piece.

#include "grammar/trigger_search.h"

#include "check.h"

#include <cstdlib>
#include <map>
#include <random>

using namespace dflash;

namespace {

const std::vector<std::vector<trigger>> SETS = {
    { { "<tool_call>" } },
    { { "aba" }, { "b<" }, { "ababa" } },
    // patterns of llama.cpp's chat formats
    { { "^\\s+to$", true }, { "^<c>(?:xa|xb)\\s+to=f$", true }, { "<s>a(\\s+to)", true },
        { "<s>a(<c>(?:xa|xb)\\s+to)", true } },
    { { ">>>(?!all)", true } },
    { { "(?:^|<s>a)( to=(?!xa<c>)(?!xb<c>)[^<]*?<c>)", true } },
    // and others that it might get
    { { "to" }, { "a\\s*b", true } },
    { { "(a*)(b)", true } },
    { { "a+$", true }, { "<tool_call>" } },
    { { "x[^<]*<c>(?=a)", true } },
};
const std::vector<std::string> PIECES = { "a", "b", "x", "to", " ", "\n", "<", ">", "<s>", "<c>", "<s>a", "xa", "xb",
    "=f", " to=", ">>>", "all", "<tool", "_call>", "ab", "aba", "" };

// llama_grammar_trigger_pattern::find().
size_t find_anywhere(const trigger & t, const std::string & text) {
    if (!t.pattern) {
        return text.find(t.text);
    }
    static std::map<std::string, std::regex> compiled;
    std::smatch                              match;
    if (!std::regex_search(text, match, compiled.try_emplace(t.text, t.text).first->second)) {
        return std::string::npos;
    }
    for (size_t group = 1; group < match.size(); ++group) {
        if (match.length(group) > 0) {
            return size_t(match.position(group));
        }
    }
    return size_t(match.position(0));
}

size_t find_first(const std::vector<trigger> & triggers, const std::string & text) {
    for (const trigger & t : triggers) {
        const size_t at = find_anywhere(t, text);
        if (at != std::string::npos) {
            return at;
        }
    }
    return std::string::npos;
}

int32_t compare(const std::vector<trigger> & triggers, std::mt19937 & rng, int32_t n_pieces) {
    trigger_search search(triggers);
    std::string    text;
    for (int32_t i = 0; i < n_pieces; ++i) {
        const std::string & piece = PIECES[rng() % PIECES.size()];
        text += piece;
        const size_t expected = find_first(triggers, text), got = search.push(piece);
        if (got != expected) {
            std::printf("'%s': %zd instead of %zd\n", text.c_str(), ssize_t(got), ssize_t(expected));
        }
        CHECK(got == expected);
        if (got != expected || got != std::string::npos) {
            CHECK(got == std::string::npos || search.since(got) == text.substr(got));
            return got != std::string::npos;
        }
    }
    return 0;
}

// A long text before the trigger: dropped text causes no false matches, and positions count from its beginning.
void test_long_text() {
    for (const bool pattern : { false, true }) {
        trigger_search search({ { pattern ? "<tool(_)call>" : "<tool_call>", pattern }, { "^x", true } });
        for (int32_t i = 0; i < 20000; ++i) {
            CHECK(search.push(i ? "x a " : "b a ") == trigger_search::npos);
        }
        CHECK(search.push("<tool_c") == trigger_search::npos);
        const size_t at = search.push("all>!");
        CHECK(at == (pattern ? 80005 : 80000));
        CHECK(search.since(at) == (pattern ? "_call>!" : "<tool_call>!"));
    }
}

// Texts that are always about to match: neither time nor stack may grow with them.
void test_endless_beginnings() {
    trigger_search spaces({ { "^\\s+to$", true }, { "<s>a(\\s+to)", true }, { "x[^<]*<", true } });
    CHECK(spaces.push("<s>ax") == trigger_search::npos);
    for (int32_t i = 0; i < 20000; ++i) {
        CHECK(spaces.push(" ") == trigger_search::npos);
    }
    CHECK(spaces.push("to<") == trigger_search::npos);   // it began too long ago
    CHECK(spaces.push("<s>a to") == 20012);
}

// Places at which the grammar cannot begin are passed over, later ones in the same text and in later ones are not.
void test_refused_places() {
    for (const bool pattern : { false, true }) {
        const std::vector<trigger> marks  = { { pattern ? "<c(all)>" : "<call>", pattern } };
        const size_t               within = pattern ? 2 : 0;   // the pattern's group
        trigger_search             search(marks), once(marks);
        std::vector<size_t>        seen;
        const auto                 begins = [&](size_t at) {
            seen.push_back(at);
            return search.since(at).back() == '{';
        };
        CHECK(search.push("a <call>`, <call>`", begins) == trigger_search::npos);
        CHECK(search.push(" <ca", begins) == trigger_search::npos);
        CHECK(search.push("ll>{", begins) == 19 + within);
        CHECK((seen == std::vector<size_t>{ 2 + within, 11 + within, 19 + within }));
        CHECK(once.push("<call>` <call>{", [](size_t at) { return at > 7; }) == 8 + within);
    }
}

}   // namespace

int main(int argc, char ** argv) {
    const int32_t n_texts = argc > 1 ? std::atoi(argv[1]) : 400;
    std::mt19937  rng(1);
    for (const std::vector<trigger> & triggers : SETS) {
        int32_t n_found = 0;
        for (int32_t i = 0; i < n_texts; ++i) {
            n_found += compare(triggers, rng, 1 + int32_t(rng() % 60));
        }
        CHECK(n_found > 2);
    }
    test_long_text();
    test_endless_beginnings();
    test_refused_places();
    return TEST_RESULT;
}
