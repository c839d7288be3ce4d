// Next-token (MTP) layers of a model, which propose what follows. Compiled into libllama, see access.h.

#pragma once

#include "llama.h"

#include "ggml.h"

#include <cstdint>
#include <string>

namespace dflash {

// The architectures whose MTP layers llama.cpp computes (LLM_GRAPH_TYPE_DECODER_MTP in src/models/). It loads those of
// glm5-next, too, but has no graph for them yet.
struct mtp_arch {
    const char * name;       // general.architecture
    bool         one_head;   // its graph asserts a single layer
    bool         crops;      // its graph gives out hidden states of the rows with logits only, others of all rows
};

inline constexpr mtp_arch MTP_ARCHS[] = {
    { "bailingmoe3", true, false },
    { "cohere2moe", true, false },
    { "deepseek2", true, false },
    { "deepseek32", true, false },
    { "deepseek4", true, true },
    { "glm-dsa", true, false },
    { "glm4moe", true, false },
    { "hy_v3", false, false },
    { "mimo2", false, true },
    { "nemotron_h_moe", true, true },
    { "qwen35", true, false },
    { "qwen35moe", true, false },
    { "qwen3next", true, true },
    { "step35", false, true },
};

// Gemma 4's assistant: MTP layers that are a model of their own. All of them together propose one token; they attend to
// what the last layers of their target's cache hold, and keep nothing themselves (src/models/gemma4-assistant.cpp).
LLAMA_API bool access_is_assistant(const llama_model * model);
// Why a context for the assistant of this target would end the process or compute nonsense, empty if it would not.
LLAMA_API std::string access_assistant_misfit(const llama_model * assistant, const llama_model * target);

// Layers that each propose one position; 1: one layer, or an assistant, proposes them all; 0: there are none.
LLAMA_API int32_t access_mtp_heads(const llama_model * model);
// The anchor and the tokens that a draft has at most.
LLAMA_API int32_t access_mtp_length(const llama_model * model);
// The output projection of the MTP layers.
struct mtp_projection {
    ggml_tensor *       head   = nullptr;   // [n_embd, n_vocab]
    const ggml_tensor * beside = nullptr;   // a weight of the layer
};
// Null where a hidden state of the layer's graph is not all that the logits depend on, or there are several heads.
LLAMA_API mtp_projection access_mtp_projection(const llama_model * model);
LLAMA_API bool           access_mtp_crops(const llama_model * model);

// What the layers of a target take of its file. Layers that were split off are a file of their own.
struct mtp_size {
    int64_t n_params = 0;
    size_t  bytes    = 0;
};
LLAMA_API mtp_size access_mtp_size(const llama_model * model);

}   // namespace dflash
