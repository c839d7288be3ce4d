// A graph input that the graph itself does not read: llama.cpp sets its data as usual, and our code derives from it
// what is sent to a device. It has its own memory, because llama.cpp allocates none for tensors outside of graphs.

#pragma once

#include "ggml-backend.h"
#include "ggml-cpp.h"

#include <stdexcept>

namespace dflash {

// Passes with more rows are prompts: they are rare and send a lot anyway, so they keep upstream's inputs.
inline constexpr int64_t FEW_ROWS = 64;

class host_input {
  public:
    explicit host_input(ggml_tensor * tensor) : tensor_(tensor) {
        ggml_backend_buffer_type_t type = ggml_backend_cpu_buffer_type();
        buffer_.reset(ggml_backend_buft_alloc_buffer(type, ggml_backend_buft_get_alloc_size(type, tensor)));
        if (!buffer_) {
            throw std::runtime_error("not enough memory for a pass");
        }
        ggml_backend_tensor_alloc(buffer_.get(), tensor, ggml_backend_buffer_get_base(buffer_.get()));
    }

    ggml_tensor * tensor() const { return tensor_; }

  private:
    ggml_tensor *           tensor_;
    ggml_backend_buffer_ptr buffer_;
};

}   // namespace dflash
