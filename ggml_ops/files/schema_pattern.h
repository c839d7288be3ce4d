// The `pattern` of a JSON schema, as llama.cpp's converter of schemas can take it.
//
// A schema's pattern is a regular expression of ECMA-262 that must match somewhere in the string. llama.cpp wants
// anchors at both ends and drops what else it does not know (\d, \w, classes with escapes); and it matches the text of
// the JSON, so that a "." may also be a quotation mark which ends the string.

#pragma once

#include <string>

namespace dflash {

// A pattern "^...$" of classes, groups, alternatives and repetitions alone, which matches exactly the JSON texts,
// quotation marks left out, of strings that `pattern` matches somewhere. Characters are written as themselves, and
// those that JSON escapes by their short escape or \u00XX; a string's beginning and end that the pattern leaves open
// may hold any escapes. Throws std::invalid_argument that says what a grammar cannot do: lookaround, \b, back
// references, character properties, anchors inside.
std::string json_text_pattern(const std::string & pattern);

}   // namespace dflash
