// The target's output projection for a drafter that has none, copied to the drafter's device: all of it from an RPC
// server, where each drafter pass would send its rows and wait for the logits, or some of its rows, since a pass reads
// the whole projection.

#pragma once

#include "files/gguf_file.h"

#include "llama.h"

#include "ggml-cpp.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dflash {

// Tokens that end a text or a turn, at most n, of the first n_tokens: a part of a head always has them.
std::vector<int32_t> text_ends(const llama_vocab * vocab, int32_t n_tokens, int32_t n);

class shared_head {
  public:
    // Whether the head is on an RPC server and the drafter (judged by one of its weights) on another device.
    static bool is_remote(const ggml_tensor * head, const ggml_tensor * weight);

    // Memory for n_rows rows like those of `head`, on the device of `weight`, in the layout that is best for products
    // there. Throws std::runtime_error if there is not enough.
    shared_head(const ggml_tensor * head, int64_t n_rows, const ggml_tensor * weight);

    void copy(const ggml_tensor * head);   // all rows
    // Reads as many rows as there is memory for from the target's file, which has the head as it was trained: weights
    // in the layout for products cannot be read back. Throws gguf_error, and then holds what it held.
    void read(const gguf_tensor & head, const std::vector<int32_t> & rows);

    ggml_tensor *              tensor() const { return tensor_; }
    size_t                     memory_bytes() const { return ggml_backend_buffer_get_size(buffer_.get()); }
    ggml_backend_buffer_type_t memory_type() const { return ggml_backend_buffer_get_type(buffer_.get()); }

  private:
    ggml_context_ptr        ctx_;
    ggml_backend_buffer_ptr buffer_;
    ggml_tensor *           tensor_ = nullptr;
};

}   // namespace dflash
