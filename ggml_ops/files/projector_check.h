// The rules for projectors (mmproj files), which mtmd loads.

#pragma once

#include "files/gguf_file.h"
#include "media/media_limits.h"

namespace dflash {

// Throws gguf_error. The architecture must be "clip".
void check_projector(const gguf_file & file);

// Of a file that passed.
media_limits limits_of(const gguf_file & projector);

}   // namespace dflash
