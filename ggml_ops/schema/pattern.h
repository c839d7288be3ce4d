// The `pattern` of a JSON schema: a regular expression of ECMA-262 that must match somewhere in the string.

#pragma once

#include "schema/automaton.h"

#include <string>

namespace dflash {

// Of the strings that `pattern` matches somewhere. Throws std::invalid_argument that says what a grammar cannot do:
// lookaround, \b, back references, character properties; automaton_size_error.
automaton matching(const std::string & pattern);

}   // namespace dflash
