// Some rows of an output projection that a drafter shares: those of the tokens that it may propose, which follow the
// texts. Reading the whole projection can cost more than the rest of a drafter's pass.

#pragma once

#include "base/files.h"
#include "draft/draft_vocabulary.h"
#include "draft/shared_head.h"
#include "files/gguf_file.h"

#include "llama.h"

#include <cstdint>
#include <map>
#include <vector>

namespace dflash {

inline constexpr uint32_t ALL_TOKENS = UINT32_MAX;   // of draft_vocab

// A projection of which a part may be taken.
struct whole_head {
    const ggml_tensor * tensor;     // [n_embd, rows]
    gguf_tensor         stored;     // in the model's file
    int32_t             n_tokens;   // rows that may be proposed, the first ones
    const ggml_tensor * beside;     // a weight of the drafter, on whose device a part should be
};

class head_part {
  public:
    // How many tokens a part has. draft_vocab: as in dflash_engine_params. 0: all are used, or the file's tensor is not
    // the loaded one.
    static int32_t size(const whole_head & whole, uint32_t draft_vocab);

    // Always has the tokens that end a text. Throws std::runtime_error.
    head_part(const whole_head & whole, int32_t n_tokens, const llama_vocab * vocab);

    ggml_tensor *                                tensor() const { return head_.tensor(); }
    const std::vector<int32_t> &                 tokens() const { return tokens_; }   // of its rows, rising
    std::map<ggml_backend_buffer_type_t, size_t> memory() const;                      // bytes by buffer type

    void count_text(const std::vector<int32_t> & tokens, size_t first) { vocabulary_.count(tokens, first); }
    // Chooses other tokens if too many of the newest texts' are not among them; returns whether it did. If the file is
    // gone or another one, or memory is short, they stay for good.
    bool follow_texts();

  private:
    void read();   // throws gguf_error, and then holds what it held

    gguf_tensor          stored_;
    file_state           state_;   // when its model was loaded
    shared_head          head_;
    draft_vocabulary     vocabulary_;
    std::vector<int32_t> tokens_;
    bool                 is_lost_ = false;
};

}   // namespace dflash
