// Memory that loaded models take, beside what they are, for reports and plans.

#pragma once

#include "base/json.h"
#include "draft/drafter.h"
#include "target/memory_table.h"
#include "target/model_pair.h"
#include "target/target.h"

#include <cstddef>

namespace dflash {

// Of the target's context; in a plan, what it would have allocated.
struct memory_use {
    buffer_bytes context, compute;
};
memory_use used_memory(const target & target);

// All parts of the models and what they compute with. Not those of a projector.
memory_table allocated(const model_pair & models, const target & target, const drafter_list & drafters);

size_t total(const buffer_bytes & bytes);
json   by_device(const memory_table & table);

}   // namespace dflash
