// The `pattern` of a JSON schema: a regular expression of ECMA-262 that must match somewhere in the string.

#pragma once

#include "schema/automaton.h"

#include <string>

namespace dflash {

// Accepts the strings in which `pattern` matches somewhere. Throws std::invalid_argument for what a grammar cannot
// express: lookaround, \b, back references, character properties. Throws automaton_size_error.
automaton matching(const std::string & pattern);

}   // namespace dflash
