// What a projector takes on each device, before it is loaded.

#pragma once

#include "dflash.h"
#include "files/projector_check.h"

#include "ggml-backend.h"
#include "llama.h"

#include <cstddef>
#include <map>

namespace dflash {

// Bytes, by buffer type: of the weights of `params.mmproj`, and of the buffers for an image and a piece of audio of the
// sizes with which mtmd warms up. traits: of that file. No memory is taken. Throws status_error if mtmd
// cannot load it.
std::map<ggml_backend_buffer_type_t, size_t> projector_memory(
    const dflash_engine_params & params, const projector_traits & traits, const llama_model * target);

}   // namespace dflash
