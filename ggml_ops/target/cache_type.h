// Names of KV cache types.

#pragma once

#include "ggml.h"

namespace dflash {

// NULL and "" mean f16. Throws status_error that names the field; a drafter's cache has f16 or f32.
ggml_type cache_type(const char * name, const char * field, bool drafter);

}   // namespace dflash
