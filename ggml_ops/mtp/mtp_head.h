// A part of the output projection that MTP layers use: of the tokens that the texts consist of. The whole one costs
// more than the layer itself, and a draft multiplies with it once for each token.

#pragma once

#include "draft/head_part.h"

#include "ggml-backend.h"
#include "ggml-cpp.h"

#include <cstdint>
#include <map>
#include <vector>

namespace dflash {

class mtp_head {
  public:
    // Throws std::runtime_error.
    mtp_head(std::unique_ptr<head_part> part, int32_t n_threads);

    // Logits of n hidden states [n, n_embd]: [n, n_logits()], valid until the next call.
    const float * compute(const std::vector<float> & states, int32_t n);
    int32_t       n_logits() const { return (int32_t) part_->tokens().size(); }
    head_part &   part() const { return *part_; }

  private:
    // The product for a number of rows.
    struct product {
        ggml_context_ptr        ctx;
        ggml_backend_buffer_ptr buffer;
        ggml_cgraph *           graph;
        ggml_tensor *           states, *logits;
    };

    product & product_of(int32_t n);

    std::unique_ptr<head_part> part_;
    ggml_backend_ptr           backend_;
    std::map<int32_t, product> products_;   // by rows
    std::vector<float>         logits_;
};

}   // namespace dflash
