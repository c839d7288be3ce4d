#include "media/medium.h"

namespace dflash {

// Upstream: decode_embd_batch in mtmd-helper-common.h.
void medium::position(int32_t pos, int32_t i, int32_t (&out)[N_SECTIONS]) const {
    const mtmd_image_tokens * image = mtmd_input_chunk_get_tokens_image(chunk_.get());
    if (!image || !how.mrope) {
        for (int32_t & section : out) {
            section = pos + i;
        }
        return;
    }
    const mtmd_decoder_pos at = mtmd_image_tokens_get_decoder_pos(image, pos, (size_t) i);
    out[0]                    = (int32_t) at.t;
    out[1]                    = (int32_t) at.y;
    out[2]                    = (int32_t) at.x;
    out[3]                    = (int32_t) at.z;
}

}   // namespace dflash
