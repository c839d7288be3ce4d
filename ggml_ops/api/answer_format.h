// What an answer may be: a text, calls of tools, or JSON.

#pragma once

#include "api/chat_tools.h"
#include "base/json.h"

#include "common/chat.h"

#include <string>

namespace dflash {

struct answer_format {
    common_chat_params params;   // the prompt and the grammar
    json               sampling, parser;
    bool               calls = false;   // whether the grammar allows them
};

answer_format format_of(
    const common_chat_templates * templates, common_chat_templates_inputs inputs, const chat_tools & constrained);

// Throws field_error about `source` if the grammar is bad.
void check_made(const json & sampling, const std::string & source);

}   // namespace dflash
