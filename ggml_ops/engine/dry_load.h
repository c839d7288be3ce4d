// A load that allocates nothing, for plans (docs/plan.md).

#pragma once

#include "dflash.h"

#include "ggml-backend.h"

#include <string>
#include <vector>

namespace dflash {

// What an engine with these parameters would allocate, by device, as JSON. stand_ins: devices that take the place of
// this machine's, none: its own.
std::string plan_json(const dflash_engine_params & params, const std::vector<ggml_backend_dev_t> & stand_ins);

}   // namespace dflash
