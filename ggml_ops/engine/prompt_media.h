// The media of a request's prompt: where they stand, and they themselves until they are read.

#pragma once

#include "media/media_text.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace dflash {

class media_encoder;   // media/media_encoder.h
class medium;          // media/medium.h

struct prompt_media {
    media_layout                         layout;
    std::vector<std::shared_ptr<medium>> media;        // [layout.spans()]
    size_t                               n_read = 0;   // of them, or in the cache

    // The medium that has the token at index i, null: that is text.
    medium * at(int32_t i) const;
    // While it runs, the request is a reader of its media. encoder: null without media.
    void begin(media_encoder * encoder);
    void end(media_encoder * encoder);
    // The first n_past tokens are read: the others' media are to be encoded.
    void want(media_encoder * encoder, int32_t n_past);
};

}   // namespace dflash
