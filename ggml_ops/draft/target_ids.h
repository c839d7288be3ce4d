// The target's token of each draft token, as graphs look it up.

#pragma once

#include "ggml-cpp.h"

#include <cstdint>
#include <vector>

namespace dflash {

class target_ids {
  public:
    // Of n draft tokens, on the device of `weight`. Throws std::runtime_error if out of memory.
    target_ids(size_t n, const ggml_tensor * weight);

    void          set(const std::vector<int64_t> & d2t);
    ggml_tensor * tensor() const { return tensor_; }   // I32 [1, n]

  private:
    ggml_context_ptr        ctx_;
    ggml_backend_buffer_ptr buffer_;
    ggml_tensor *           tensor_ = nullptr;
};

}   // namespace dflash
