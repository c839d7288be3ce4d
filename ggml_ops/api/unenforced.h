// Parameters of tools that no grammar enforces.

#pragma once

#include "api/chat_tools.h"
#include "base/ignored_fields.h"
#include "schema/chat_schema.h"

#include <string>

namespace dflash {

// witness: what was written into the grammar.
void add_unenforced(
    const chat_tools & tools, const std::string & grammar, const schema_witness & witness, ignored_fields & ignored);

}   // namespace dflash
