// What media may be, so that mtmd can read them in bounded memory and time (docs/hardening.md has the measurements).
//
// mtmd resizes most pictures to a number of pixels that the projector names, but first holds them as they are, and some
// of its preprocessors cut long ones into more and more tiles. Encoders of sound that look at all of it at once need
// memory that grows with the square of its length.

#pragma once

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

// What one projector adds (limits_of() in files/projector_check.h).
struct media_limits {
    int64_t image_tokens  = MAX_IMAGE_TOKENS;    // rows of one picture, all its tiles counted
    double  audio_seconds = MAX_AUDIO_SECONDS;   // of one piece
};

inline bool fits(int64_t width, int64_t height) {
    const int64_t longer  = width > height ? width : height;
    const int64_t shorter = width > height ? height : width;
    return shorter > 0 && longer <= MAX_SIDE && width * height <= MAX_PIXELS && longer <= shorter * MAX_ASPECT;
}

}   // namespace dflash
