// A JSON schema before llama.cpp makes a grammar of it. Its converter leaves out what it does not know, some of it with
// a line on stderr that a client has written.

#pragma once

#include "base/ignored_fields.h"
#include "base/json_fields.h"

#include <string>

namespace dflash {

// The schema with patterns that llama.cpp can take (schema_pattern.h), and an `allOf` of one schema replaced by that.
// `field` names it in errors and in `ignored`, which gets the constraints that the grammar will not hold. Throws
// field_error that names the part of the schema which no grammar can hold.
json checked_schema(const json & schema, const std::string & field, ignored_fields & ignored);

// Its grammar. Errors name the field.
std::string schema_grammar(const json & checked, const std::string & field);

}   // namespace dflash
