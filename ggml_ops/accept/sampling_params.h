// The sampling fields of a request: JSON to llama.cpp's parameters.

#pragma once

#include "common/common.h"

#include "llama.h"

#include <string>

namespace dflash {

// dflash_request.sampling as llama.cpp's parameters; "" and "null" give its defaults, no seed or -1 a random one.
// Throws std::invalid_argument, "field 'x': ...", on everything that llama.cpp would ignore, misread or abort on.
common_params_sampling parse_sampling(const llama_model * model, const std::string & text);

// Those fields, with types, defaults and bounds: dflash_sampling_fields().
std::string sampling_fields();

}   // namespace dflash
