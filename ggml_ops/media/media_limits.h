// What media may be, so that mtmd can read them in bounded memory and time (docs/hardening.md has the measurements).
//
// mtmd resizes most pictures to a number of pixels that the projector names, but first holds them as they are, and some
// of its preprocessors cut long ones into more and more tiles. Encoders of sound that look at all of it at once need
// memory that grows with the square of its length.

#pragma once

#include "files/projector_check.h"

#include <algorithm>
#include <cstdint>

namespace dflash {

// Of one picture, before mtmd sees it. A longer side in more than MAX_ASPECT shorter ones is what Qwen-VL's own
// preprocessor refuses, too.
constexpr int64_t MAX_SIDE   = 1 << 14;
constexpr int64_t MAX_PIXELS = 100'000'000;
constexpr int64_t MAX_ASPECT = 200;

// Of what the user gives as --image-max-tokens: mtmd multiplies it with a patch's pixels, as 32-bit integers.
constexpr int64_t MAX_IMAGE_TOKENS = 1 << 16;

// Of one piece of sound, in seconds. Shorter ones have no frame.
constexpr double MIN_AUDIO_SECONDS = 0.1;
constexpr double MAX_AUDIO_SECONDS = 3600;

inline bool picture_fits(int64_t width, int64_t height) {
    const int64_t longer  = std::max(width, height);
    const int64_t shorter = std::min(width, height);
    return shorter > 0 && longer <= MAX_SIDE && width * height <= MAX_PIXELS && longer <= shorter * MAX_ASPECT;
}

// Rows of one picture. Four patches make a row, and a mask over all pairs of 16,384 patches takes 1 GiB as floats and
// half of it as f16: mtmd took 2.1 GB for such a picture.
inline int64_t max_image_tokens(const projector_traits & projector) {
    return projector.masks_pairs ? 4096 : MAX_IMAGE_TOKENS;
}

// --image-max-tokens as mtmd takes it: -1 leaves the number to the projector.
inline int32_t image_max_tokens(const projector_traits & projector, int32_t given) {
    return given > 0 ? given : projector.masks_pairs ? (int32_t) max_image_tokens(projector) : -1;
}

inline double max_audio_seconds(const projector_traits & projector) {
    return projector.hears_whole ? 180 : MAX_AUDIO_SECONDS;
}

}   // namespace dflash
