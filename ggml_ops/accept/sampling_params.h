// The sampling fields of a request: from JSON to llama.cpp's parameters.

#pragma once

#include "common/common.h"

#include "llama.h"

#include <string>

namespace dflash {

// Parses dflash_request_params.sampling. "" and "null" give llama.cpp's defaults; no seed or -1 gives a random one.
// Throws std::invalid_argument, "field 'x': ...", for anything that llama.cpp would ignore, misread or abort on.
common_params_sampling parse_sampling(const llama_model * model, const std::string & text);

// The fields with their types, defaults and bounds, for dflash_sampling_fields().
std::string sampling_fields();

}   // namespace dflash
