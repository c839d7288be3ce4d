// The tools of a chat request.

#pragma once

#include "base/ignored_fields.h"
#include "base/json_fields.h"

#include "common/chat.h"

#include <vector>

namespace dflash {

using chat_tools = std::vector<common_chat_tool>;

// constrained: the tools that may be called, as the grammar has them.
void read_tools(
    field_reader & in, common_chat_templates_inputs & inputs, chat_tools & constrained, ignored_fields & ignored);

// Whether the answer may have calls.
bool may_call(const common_chat_templates_inputs & inputs);

}   // namespace dflash
