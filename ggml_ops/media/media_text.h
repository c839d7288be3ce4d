// Media in a text: images and audio stand there as rows, each a negative token that is the medium's number. No
// llama.cpp types.

#pragma once

#include "llama/token_positions.h"

#include <array>
#include <cstdint>
#include <vector>

namespace dflash {

// Rows of the medium with this number, and back. -1 is no token.
inline bool    is_media(int32_t token) { return token < -1; }
inline int32_t media_token(int32_t number) { return -2 - number; }
inline int32_t media_number(int32_t token) { return -2 - token; }

// What a medium takes of a text.
struct media_size {
    int32_t n_rows = 0;
    int32_t n_pos  = 0;   // positions: as many as rows, or with M-RoPE the longer side of an image
    // Whether each row has a position of its own; else all have the first one, and other sections tell them apart
    // (M-RoPE).
    bool advances = true;
};

// What makes two media equal to a cache.
struct medium_key {
    std::array<uint8_t, 32> hash{};      // of the data
    int32_t                 part  = 0;   // of data that become several media: slices of an image, seconds of audio
    int32_t                 order = 0;   // among the images of its prompt, if its positions depend on it
    media_size              size;

    bool operator<(const medium_key & other) const;
};

// A medium's place in a text.
struct media_span {
    int32_t    begin = 0;   // index of its first row
    int32_t    token = -1;
    media_size size;

    int32_t end() const { return begin + size.n_rows; }
};

// The media of a text, in order, and the positions of its tokens. A text without media has position i at index i. The
// text may end within the last medium, or before some of them.
class media_layout {
  public:
    media_layout() = default;
    explicit media_layout(std::vector<media_span> spans) : spans_(std::move(spans)) {}

    bool                            empty() const { return spans_.empty(); }
    const std::vector<media_span> & spans() const { return spans_; }
    // The position of the token at index i.
    int32_t position(int32_t i) const;
    // Of the first n tokens.
    token_positions positions(int32_t n) const;
    // The fewest tokens after which the next one has at least this position.
    int32_t tokens_before(int32_t position) const;
    // Most of the first n tokens that do not end within a medium.
    int32_t whole(int32_t n) const;
    // The medium that has the token at index i, null: that is text.
    const media_span * at(int32_t i) const;
    // Where the first medium that ends behind index i begins; INT32_MAX: there is none.
    int32_t next(int32_t i) const;

  private:
    std::vector<media_span> spans_;
};

}   // namespace dflash
