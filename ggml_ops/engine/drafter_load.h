// A drafter for a target that has its context.

#pragma once

#include "draft/drafter.h"
#include "target/target.h"

#include <memory>

namespace dflash {

// Also creates the target's tap store, and has it leave the taps that the drafter reads. Null: there is no drafter.
// `models` must outlive what is returned. Throws status_error: a wrong pair, or no memory.
std::unique_ptr<drafter> load_drafter(const model_pair & models, target & target);

}   // namespace dflash
