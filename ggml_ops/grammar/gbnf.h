// Checks a GBNF grammar before llama.cpp builds it.
//
// llama.cpp's own parser reports to stderr only, and some short grammars make it run forever or out of memory: {2,1},
// deep parentheses, long literals repeated, left recursion behind rules that may be empty, rules that double per level.

#pragma once

#include <string>

namespace dflash {

// Throws std::invalid_argument, "line 3: ...". What passes can be built, short of <token> names unknown to the
// vocabulary.
void check_gbnf(const std::string & grammar);

// A grammar with `prefix` before the name of every rule, so that others can stand beside it. It must be a checked one.
std::string with_prefix(const std::string & grammar, const std::string & prefix);

}   // namespace dflash
