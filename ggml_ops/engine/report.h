// What an engine says about itself, as JSON.

#pragma once

#include "engine/engine.h"

#include <string>

namespace dflash {

std::string info_json(const engine & e);    // what it is
std::string stats_json(const engine & e);   // what it did

}   // namespace dflash
