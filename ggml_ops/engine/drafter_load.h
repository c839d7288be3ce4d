// The drafters of a target that has its context.

#pragma once

#include "draft/drafter.h"
#include "target/target.h"

#include <memory>
#include <vector>

namespace dflash {

// Also creates the target's tap store, and has it leave the taps that they read. `models` must outlive what is
// returned. Throws status_error: a wrong pair, no memory, or none of them can do what accept=block needs.
std::vector<std::unique_ptr<drafter>> load_drafters(const model_pair & models, target & target);

// A drafter of another file in place of `used`, that of models.drafter(); it holds what that one holds of the slots.
// `model` must outlive it. Throws status_error: another form, no memory.
std::unique_ptr<drafter> load_in_place_of(const drafter & used, const llama_model * model, const model_pair & models);

drafter_list list_of(const std::vector<std::unique_ptr<drafter>> & drafters);

}   // namespace dflash
