// A part of the output projection that MTP layers use: of the tokens that the texts consist of. The whole one costs
// more than the layer itself, and a draft multiplies with it once for each token.

#pragma once

#include "draft/draft_vocabulary.h"
#include "draft/shared_head.h"
#include "files/gguf_file.h"
#include "llama/mtp_layers.h"

#include "ggml-backend.h"
#include "ggml-cpp.h"

#include <cstdint>
#include <map>
#include <vector>

namespace dflash {

class mtp_head {
  public:
    // `part`: tokens that may be proposed. `whole` is its projection in the model's file. Throws std::runtime_error.
    mtp_head(const mtp_projection & projection, const gguf_tensor & whole, int32_t part, std::vector<int32_t> always,
        int32_t n_threads);

    // Logits of n hidden states [n, n_embd]: [n, n_logits()], valid until the next call.
    const float * compute(const std::vector<float> & states, int32_t n);
    int32_t       n_logits() const { return (int32_t) head_.tensor()->ne[1]; }
    int32_t       token(int32_t i) const { return vocabulary_.tokens()[i]; }

    void count_text(const std::vector<int32_t> & tokens, size_t first) { vocabulary_.count(tokens, first); }
    // Lets the tokens follow the texts where too much of the newest ones is missing. Throws gguf_error, and then may
    // propose what it could before.
    void follow_texts();

    ggml_backend_buffer_type_t memory_type() const { return head_.memory_type(); }
    size_t                     memory_bytes() const { return head_.memory_bytes(); }

  private:
    // The product for a number of rows.
    struct product {
        ggml_context_ptr        ctx;
        ggml_backend_buffer_ptr buffer;
        ggml_cgraph *           graph;
        ggml_tensor *           states, *logits;
    };

    product & product_of(int32_t n);

    gguf_tensor                whole_;
    shared_head                head_;
    draft_vocabulary           vocabulary_;
    ggml_backend_ptr           backend_;
    std::map<int32_t, product> products_;   // by rows
    std::vector<float>         logits_;
};

}   // namespace dflash
