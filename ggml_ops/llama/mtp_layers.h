// Next-token (MTP) layers of a model, which propose what follows. Compiled into libllama, see access.h.

#pragma once

#include "llama.h"

#include <cstdint>
#include <string>

namespace dflash {

// The architectures whose MTP layers llama.cpp computes (LLM_GRAPH_TYPE_DECODER_MTP in src/models/).
struct mtp_arch {
    const char * name;       // general.architecture
    bool         one_head;   // its graph asserts a single layer
};

inline constexpr mtp_arch MTP_ARCHS[] = {
    { "bailingmoe3", true },
    { "cohere2moe", true },
    { "deepseek2", true },
    { "deepseek32", true },
    { "deepseek4", true },
    { "glm-dsa", true },
    { "glm4moe", true },
    { "glm5-next", true },
    { "hy_v3", false },
    { "mimo2", false },
    { "nemotron_h_moe", true },
    { "qwen35", true },
    { "qwen35moe", true },
    { "qwen3next", true },
    { "step35", false },
};

// Layers that each propose one position; 1: one layer proposes them all; 0: there are none.
LLAMA_API int32_t access_mtp_heads(const llama_model * model);
// The anchor and the tokens that a draft has at most.
LLAMA_API int32_t access_mtp_length(const llama_model * model);

// What the layers of a target take of its file. Layers that were split off are a file of their own.
struct mtp_size {
    int64_t n_params = 0;
    size_t  bytes    = 0;
};
LLAMA_API mtp_size access_mtp_size(const llama_model * model);

}   // namespace dflash
