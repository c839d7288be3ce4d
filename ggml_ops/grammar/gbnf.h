// Checks a GBNF grammar before llama.cpp builds it.
//
// llama.cpp's own parser only reports to stderr, and some short grammars make it run forever or out of memory: {2,1},
// deep parentheses, repeated long literals, left recursion after rules that may be empty, rules that double per level.

#pragma once

#include <string>

namespace dflash {

// Throws std::invalid_argument, "line 3: ...". A grammar that passes can be built, except for <token> names that the
// vocabulary does not have.
void check_gbnf(const std::string & grammar);

// The grammar with `prefix` before every rule's name, so that it can be combined with others. It must have been
// checked.
std::string with_prefix(const std::string & grammar, const std::string & prefix);

}   // namespace dflash
