// An input of a graph that the graph itself does not read: its data is set as if it did, and others make of it what
// goes to a device. It has memory of its own, because llama.cpp gives none to tensors outside of graphs.

#pragma once

#include "ggml-backend.h"
#include "ggml-cpp.h"

#include <stdexcept>

namespace dflash {

// Of passes with more rows, which are prompts', the devices get what they always got: there it is large, and rare.
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
