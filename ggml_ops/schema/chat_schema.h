// JSON schemas as grammars: what a schema means is in form.h, and how its values are written in writer.h. The same
// stands behind llama.cpp's common_chat_schema_from_json() and build_grammar(), so that every format of tool calls
// holds its functions' parameters by it.

#pragma once

#include "base/json.h"

#include <set>
#include <string>
#include <vector>

namespace dflash {

// The paths below `field` of what the schema says and no grammar holds. Throws std::invalid_argument that names the
// part that is wrong, or that no value fits.
std::vector<std::string> check_schema(const json & schema, const std::string & field);

std::string grammar_of_schema(const json & schema, const std::string & field);

// Of an answer: what the template has put into the prompt for it, thoughts between tags (none without an end), and the
// JSON. Thoughts that are open at the end of the prompt must be closed, others may be left out.
struct answer_begin {
    std::string prompt, thoughts_start, thoughts_end;
};
std::string grammar_of_answer(const json & schema, const std::string & field, const answer_begin & begin);

std::string gbnf_literal(const std::string & text);   // in quotation marks

// Sees which schemas a format of llama.cpp writes as JSON while it lives, on its thread: others it writes in a way of
// its own, such as strings without quotation marks, which then hold less.
struct schema_witness {
    schema_witness();
    ~schema_witness();
    schema_witness(const schema_witness &)             = delete;
    schema_witness & operator=(const schema_witness &) = delete;

    std::set<std::string> written;   // as JSON texts
};

}   // namespace dflash
