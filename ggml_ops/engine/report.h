// What an engine says about itself, as JSON.

#pragma once

#include "engine/engine.h"

#include "ggml-backend.h"

#include <string>
#include <vector>

namespace dflash {

std::string info_json(const engine & e);    // what it is
std::string stats_json(const engine & e);   // what it did

// What an engine with these parameters would allocate, by device; nothing is allocated. stand_ins: devices that take
// the place of this machine's, none: its own.
std::string plan_json(const dflash_engine_params & params, const std::vector<ggml_backend_dev_t> & stand_ins);

}   // namespace dflash
