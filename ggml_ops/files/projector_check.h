// The rules for projectors (mmproj files), which mtmd loads.

#pragma once

#include "files/gguf_file.h"

namespace dflash {

// Throws gguf_error. The architecture must be "clip".
void check_projector(const gguf_file & file);

// On which the limits of media depend (media/media_limits.h).
struct projector_traits {
    bool masks_pairs = false;   // the patches of a picture attend under a mask over all pairs of them
    bool hears_whole = false;   // all frames of a piece of sound attend to each other
};

// Of a file that passed.
projector_traits traits_of(const gguf_file & projector);

}   // namespace dflash
