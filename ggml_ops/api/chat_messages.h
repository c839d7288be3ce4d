// The messages of a chat request.

#pragma once

#include "api/turns.h"
#include "base/ignored_fields.h"
#include "base/json_fields.h"

#include <set>
#include <string>

namespace dflash {

struct chat_messages {
    turns        all;
    const json * prefix = nullptr;   // whether the last one wants to be continued ("prefix": true); null: does not say
};

// Reads OpenAI's messages, including field names of other servers and older clients.
chat_messages read_messages(const json & messages, const std::string & field, ignored_fields & ignored);

// Metadata of the provider that a message or a tool came from or was sent to.
inline const std::set<std::string> HARMLESS = { "cache_control", "index", "parsed_arguments" };

// What a call, a tool or a choice of one is about.
field_reader function_of(field_reader & in, const std::string & type);

}   // namespace dflash
