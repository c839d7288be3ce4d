// What the rules about a model share: limits, and the facts on which all rely, read before the first of them.

#pragma once

#include "files/header_keys.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace dflash {

// Limits of the pinned llama.cpp (src/llama-hparams.h); where it has none, far beyond any existing model.
constexpr int64_t MAX_LAYERS    = 512;
constexpr int64_t MAX_EMBD      = 1 << 20;
constexpr int64_t MAX_HEADS     = 1 << 12;
constexpr int64_t MAX_HEAD_SIZE = 1 << 13;
constexpr int64_t MAX_FF        = 1 << 24;
constexpr int64_t MAX_WINDOW    = 1 << 24;
// All other numbers of an architecture: products fit into 64 bits, casts to int32 stay positive.
constexpr int64_t MAX_COUNT = 1 << 30;

class header_check : protected header_keys {
  protected:
    const int64_t n_layer_     = number(".block_count", 1, MAX_LAYERS);
    const int64_t n_embd_      = number(".embedding_length", 1, MAX_EMBD);
    const int64_t n_vocab_     = count_tokens();
    const int64_t head_size_k_ = head_size(".attention.key_length");   // 0: the first layer has no heads
    const int64_t mask_token_  = number("tokenizer.ggml.mask_token_id", 0, std::numeric_limits<uint32_t>::max(), -1);

    // The architecture must have been checked.
    explicit header_check(const gguf_file & file) : header_keys(file) {}

    int64_t head_size(const std::string & key) const;

    // One number for all layers or an array with one per layer (llama_model_loader::get_key_or_arr).
    std::vector<int64_t> per_layer(const std::string & key, int64_t low, int64_t high, int64_t fallback) const {
        const gguf_value * value = find(key);
        if (!value || !value->is_array) {
            return std::vector<int64_t>((size_t) n_layer_, number(key, low, high, fallback));
        }
        const std::vector<int64_t> numbers = integers(key, *value);
        refuse_key_if(numbers.size() != (size_t) n_layer_, key, "has ", numbers.size(), " elements; the model has ",
            n_layer_, " layers");
        for (const int64_t n : numbers) {
            in_range<int64_t>(key, n, low, high);
        }
        return numbers;
    }

  private:
    int64_t count_tokens() const;
};

// The rules for one use each, beside those for every file: drafter_check.cpp, embedding_check.cpp.
void check_drafter(const gguf_file & file);
void check_embedding(const gguf_file & file);

}   // namespace dflash
