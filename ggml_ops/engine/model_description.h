// Models as reports and plans describe them, in JSON.

#pragma once

#include "base/json.h"
#include "draft/drafter.h"
#include "target/model_pair.h"
#include "target/target.h"

#include <cstdint>

namespace dflash {

json describe(const llama_model * model);

// Adds all drafters, and the first as "drafter", too.
void add_drafters(json & j, const drafter_list & drafters, const model_pair & models, const target & target);

// Positions of a text that a drafter's pass attends to; MTP layers have cells for drafts beyond it, too.
int32_t draft_ctx(const drafter & drafter, const target & target);

}   // namespace dflash
