// JSON schemas as grammars. form.h defines what a schema means, writer.h how its values are written. llama.cpp's
// common_chat_schema_from_json() and build_grammar() use the same code, so every tool call format enforces its
// functions' parameters this way.

#pragma once

#include "base/json.h"

#include <set>
#include <string>
#include <vector>

namespace dflash {

// Returns the paths below `field` that the grammar does not enforce. Throws std::invalid_argument that names the part
// that is invalid or that no value satisfies.
std::vector<std::string> check_schema(const json & schema, const std::string & field);

std::string grammar_of_schema(const json & schema, const std::string & field);

// How an answer begins: what the template put into the prompt for it, then thoughts between tags (none without an end
// tag), then the JSON. Thoughts still open at the end of the prompt must be closed; others may be omitted.
struct answer_begin {
    std::string prompt, thoughts_start, thoughts_end;
};
std::string grammar_of_answer(const json & schema, const std::string & field, const answer_begin & begin);

// While it lives, records which schemas a llama.cpp format writes as JSON on its thread. A format may write others in
// its own way, such as strings without quotation marks; their schemas are not fully enforced.
struct schema_witness {
    schema_witness();
    ~schema_witness();
    schema_witness(const schema_witness &)             = delete;
    schema_witness & operator=(const schema_witness &) = delete;

    std::set<std::string> written;   // as JSON texts
};

}   // namespace dflash
