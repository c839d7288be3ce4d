// A copy of the target's output projection on the drafter's device. If the original is on an RPC server, each drafter
// pass would send its rows there and wait for the logits.

#pragma once

#include "ggml-cpp.h"

#include <cstddef>

namespace dflash {

class head_copy {
  public:
    // Whether the head is on an RPC server and the drafter (judged by one of its weights) on another device.
    static bool is_needed(const ggml_tensor * head, const ggml_tensor * weight);

    // Copies `source` to the device of `weight`, in the layout that is best for products there. Throws
    // std::runtime_error if out of memory.
    head_copy(const ggml_tensor * source, const ggml_tensor * weight);

    ggml_tensor *              tensor() const { return tensor_; }
    size_t                     memory_bytes() const { return ggml_backend_buffer_get_size(buffer_.get()); }
    ggml_backend_buffer_type_t memory_type() const { return ggml_backend_buffer_get_type(buffer_.get()); }

  private:
    ggml_context_ptr        ctx_;
    ggml_backend_buffer_ptr buffer_;
    ggml_tensor *           tensor_ = nullptr;
};

}   // namespace dflash
