// Patterns of JSON schemas: whatever a client writes gives a pattern of classes, groups and repetitions, or a reason.
// What they match is tested through llama.cpp's grammars (tests/engine/test_schemas.py).

#include "files/schema_pattern.h"

#include "check.h"

#include <random>
#include <stdexcept>

using namespace dflash;

static bool is_plain(const std::string & text) {
    if (text.size() < 2 || text.front() != '^' || text.back() != '$') {
        return false;
    }
    int32_t depth = 0;
    for (size_t i = 1; i + 1 < text.size(); ++i) {
        if (text[i] == '[') {
            i = text.find(']', i);
            if (i == std::string::npos) {
                return false;
            }
        } else if (text[i] == '(' || text[i] == ')') {
            depth += text[i] == '(' ? 1 : -1;
        } else if (text[i] == '.' || text[i] == '^' || text[i] == '$' || text[i] == '\\' || text[i] == '"') {
            return false;
        }
        if (depth < 0) {
            return false;
        }
    }
    return depth == 0;
}

int main() {
    CHECK(json_text_pattern("^a$") == "^([\\x61])$");
    CHECK(json_text_pattern("^$") == "^$");
    const std::string parts[] = { "a", "b|", "(", ")", "(?:", "(?", "[", "]", "[^", "-", "^", "$", ".", "*", "+", "?",
        "{2}", "{1,3}", "{", "}", ",", "\\", "\\d", "\\W", "\\s", "\\u00e9", "\\x4", "\\u{1F600}", "\\uD83D\\uDE00",
        "\"", "\n", "\xC3\xA9", "\xF0\x9F\x98\x80", "\xE2\x82", "\xFF", "0", "|" };
    std::mt19937      rng(1);
    int32_t           n_good = 0;
    for (int32_t i = 0; i < 60000; ++i) {
        std::string pattern;
        for (uint32_t n = rng() % 9; n > 0; --n) {
            pattern += parts[rng() % std::size(parts)];
        }
        std::string text;
        try {
            text = json_text_pattern(pattern);
        } catch (const std::invalid_argument &) {
            continue;
        }
        ++n_good;
        if (!is_plain(text)) {
            std::printf("'%s' gives '%s'\n", pattern.c_str(), text.c_str());
        }
        CHECK(is_plain(text));
    }
    CHECK(n_good > 5000);
    return TEST_RESULT;
}
