// A request as its chat template renders it.

#pragma once

#include "api/chat_tools.h"
#include "base/ignored_fields.h"
#include "base/json_fields.h"

#include "common/chat.h"

namespace dflash {

// Shows the tools as they are, independent of what the answer may be. The grammar is that of the constrained ones.
common_chat_params apply_template(const common_chat_templates * templates, const common_chat_templates_inputs & inputs,
    const chat_tools & constrained);

// Adds what the template would not show; refuses it if it has to be shown. in: the request.
void add_unshown(const common_chat_templates * templates, const common_chat_templates_inputs & inputs,
    const field_reader & in, ignored_fields & ignored);

}   // namespace dflash
