// Sends token embeddings, which are on the host, to the first layer's device as quantized rows, and converts them to
// floats there. Part of libllama: patches/0026 calls embed_tokens() where a graph looks tokens up.

#pragma once

#include "llama.h"

#include "ggml-backend.h"

#include <cstdint>
#include <vector>

struct llm_graph_context;

namespace dflash {

// Whether a device converts such rows to the same floats as the host.
LLAMA_API bool can_embed(ggml_backend_dev_t device, const ggml_tensor * tok_embd);
// Copies the tokens' rows of tok_embd, which is on the host, into a tensor of its type [n_embd, tokens].
LLAMA_API void set_embedding_rows(
    ggml_tensor * rows, const ggml_tensor * tok_embd, const std::vector<int32_t> & tokens);

// From now on, the context's passes of few rows send embeddings this way and masks as bits, where supported.
LLAMA_API void access_send_little(llama_context * ctx);

// F32 [n_embd, n_tokens]: the embeddings of a graph's tokens.
ggml_tensor * embed_tokens(const llm_graph_context & graph, ggml_tensor * tok_embd, ggml_tensor * tokens);

}   // namespace dflash
