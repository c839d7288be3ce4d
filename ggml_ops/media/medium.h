// A medium of a prompt: preprocessed, and, once it was encoded, rows for the target.

#pragma once

#include "dflash.h"
#include "media/media_text.h"

#include "mtmd.h"

#include <cstdint>
#include <string>
#include <vector>

namespace dflash {

class medium {
  public:
    static constexpr int32_t N_SECTIONS = 4;   // of a position with M-RoPE

    // How the target reads it.
    struct reading {
        bool non_causal = false;   // its rows see each other, so that one pass must read them all
        bool mrope      = false;   // positions have several sections
    };

    medium(const medium_key & key, int32_t token, mtmd::input_chunk_ptr chunk, reading how) :
        key(key), token(token), how(how), chunk_(std::move(chunk)) {}

    const medium_key key;
    const int32_t    token;   // of its rows in texts
    const reading    how;

    const mtmd_input_chunk * chunk() const { return chunk_.get(); }
    dflash_media_kind        kind() const {
        return mtmd_input_chunk_get_type(chunk()) == MTMD_INPUT_CHUNK_TYPE_AUDIO ? DFLASH_AUDIO : DFLASH_IMAGE;
    }
    // The position of row i, if the first has position pos: all sections, the first in time.
    void position(int32_t pos, int32_t i, int32_t (&out)[N_SECTIONS]) const;

    // ---- what the encoder leaves (media_encoder.h, which guards it) ----

    enum class progress { none, queued, ready, failed };
    progress           state = progress::none;
    std::vector<float> rows;            // [n_rows, n_embd_inp]
    std::string        error;           // failed: why
    int32_t            n_readers = 0;   // requests that have yet to read the rows

  private:
    mtmd::input_chunk_ptr chunk_;
};

}   // namespace dflash
