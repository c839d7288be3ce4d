// The target's projector: llama.cpp's mtmd, which reads images and audio.

#pragma once

#include "dflash.h"
#include "files/projector_check.h"
#include "media/encoder_turns.h"
#include "media/live_media.h"
#include "media/media_prompt.h"

#include "mtmd.h"

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace dflash {

class projector {
  public:
    // Loads params.mmproj; n_rows: most rows of a target pass. The model must outlive this. Throws status_error.
    projector(const dflash_engine_params & params, const llama_model * model, int32_t n_rows);
    projector(const projector &) = delete;

    bool                sees() const { return mtmd_support_vision(ctx_.get()); }
    bool                hears() const { return mtmd_support_audio(ctx_.get()); }
    const std::string & marker() const { return marker_; }
    // Bytes that it takes (projector_memory.h).
    const std::map<ggml_backend_buffer_type_t, size_t> & memory() const { return memory_; }

    // dflash_prompt_init(). Any thread. Throws status_error.
    media_prompt tokenize(const std::string & text, bool add_special, const dflash_media * media, int32_t n_media,
        live_media & live) const;

    // Computes the rows of a medium: [n_rows, n_embd_inp]. One thread at a time. Throws std::runtime_error: it failed,
    // or was cancelled.
    std::vector<float> encode(const medium & m);
    // Ends the encoding that runs, and all later ones until allow(). Any thread.
    void cancel() { cancelled_ = true; }
    void allow() { cancelled_ = false; }
    bool is_cancelled() const { return cancelled_; }
    // Who computes when: this or a step.
    encoder_turns & turns() { return turns_; }

  private:
    static bool after_op(ggml_tensor * op, bool ask, void * self);

    void         check_sound(const mtmd::bitmap & bitmap, int32_t index) const;
    mtmd::bitmap bitmap_of(const dflash_media & medium, int32_t index) const;
    medium_key   key_of(const mtmd_input_chunk * chunk, const dflash_media & medium, int32_t part) const;

    projector_traits                             traits_;
    int32_t                                      n_embd_, n_rows_;
    std::map<ggml_backend_buffer_type_t, size_t> memory_;
    std::string                                  marker_;
    encoder_turns                                turns_;
    std::atomic<bool>                            cancelled_{ false };
    mtmd::context_ptr                            ctx_;
};

}   // namespace dflash
