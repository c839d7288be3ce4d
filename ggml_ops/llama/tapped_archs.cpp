// Which architectures leave taps.

#include "llama/access.h"

#include "llama-model.h"

#include <algorithm>
#include <array>

namespace dflash {

namespace {

// Architectures whose graphs fill t_layer_inp (src/models/*.cpp of the pinned llama.cpp), or begin each layer with the
// norm before its attention (layer_input.h): in their own graph or one that they share (`using graph` in models.h).
// tests/test_taps.py compares both lists with that source; tests/taps compares the taps with an eval callback.
constexpr std::array TAPPED = { LLM_ARCH_AFMOE, LLM_ARCH_APERTUS, LLM_ARCH_ARCEE, LLM_ARCH_ARCTIC, LLM_ARCH_BAICHUAN,
    LLM_ARCH_BAILINGMOE, LLM_ARCH_BAILINGMOE2, LLM_ARCH_BAILINGMOE3, LLM_ARCH_BITNET, LLM_ARCH_CHATGLM,
    LLM_ARCH_CODESHELL, LLM_ARCH_COHERE2, LLM_ARCH_COHERE2MOE, LLM_ARCH_COMMAND_R, LLM_ARCH_DBRX, LLM_ARCH_DECI,
    LLM_ARCH_DEEPSEEK, LLM_ARCH_DEEPSEEK2, LLM_ARCH_DEEPSEEK32, LLM_ARCH_DEEPSEEK4, LLM_ARCH_DOTS1, LLM_ARCH_ERNIE4_5,
    LLM_ARCH_ERNIE4_5_MOE, LLM_ARCH_EXAONE, LLM_ARCH_EXAONE_MOE, LLM_ARCH_FALCON, LLM_ARCH_GEMMA, LLM_ARCH_GEMMA2,
    LLM_ARCH_GEMMA3, LLM_ARCH_GEMMA4, LLM_ARCH_GLM4, LLM_ARCH_GLM4_MOE, LLM_ARCH_GLM5_NEXT, LLM_ARCH_GLM_DSA,
    LLM_ARCH_GPTNEOX, LLM_ARCH_GRANITE, LLM_ARCH_GRANITE_MOE, LLM_ARCH_GRANITE_SWA, LLM_ARCH_GROK, LLM_ARCH_GROVEMOE,
    LLM_ARCH_HUNYUAN_DENSE, LLM_ARCH_HUNYUAN_MOE, LLM_ARCH_HUNYUAN_VL, LLM_ARCH_HY_V3, LLM_ARCH_INTERNLM2,
    LLM_ARCH_JAIS, LLM_ARCH_JAIS2, LLM_ARCH_LAGUNA, LLM_ARCH_LFM2, LLM_ARCH_LFM2MOE, LLM_ARCH_LLAMA, LLM_ARCH_LLAMA4,
    LLM_ARCH_MAINCODER, LLM_ARCH_MAPLE, LLM_ARCH_MELLUM, LLM_ARCH_MIMO2, LLM_ARCH_MINICPM, LLM_ARCH_MINIMAX_01,
    LLM_ARCH_MINIMAX_M2, LLM_ARCH_MINIMAX_M3, LLM_ARCH_MISTRAL3, LLM_ARCH_MISTRAL4, LLM_ARCH_MUSE_GLIMMER,
    LLM_ARCH_NANBEIGE, LLM_ARCH_NEMOTRON, LLM_ARCH_NEMOTRON_H, LLM_ARCH_NEMOTRON_H_MOE, LLM_ARCH_OLMOE,
    LLM_ARCH_OPENAI_MOE, LLM_ARCH_OPENELM, LLM_ARCH_ORION, LLM_ARCH_PADDLEOCR, LLM_ARCH_PANGU_EMBED, LLM_ARCH_PHI2,
    LLM_ARCH_PHI3, LLM_ARCH_PHIMOE, LLM_ARCH_PLAMO, LLM_ARCH_PLAMO3, LLM_ARCH_QWEN, LLM_ARCH_QWEN2, LLM_ARCH_QWEN2MOE,
    LLM_ARCH_QWEN2VL, LLM_ARCH_QWEN3, LLM_ARCH_QWEN35, LLM_ARCH_QWEN35MOE, LLM_ARCH_QWEN3MOE, LLM_ARCH_QWEN3NEXT,
    LLM_ARCH_QWEN3VL, LLM_ARCH_QWEN3VLMOE, LLM_ARCH_QWEN4EXP, LLM_ARCH_REFACT, LLM_ARCH_SEED_OSS, LLM_ARCH_SMALLTHINKER,
    LLM_ARCH_SMOLLM3, LLM_ARCH_SPARK2_5, LLM_ARCH_STABLELM, LLM_ARCH_STARCODER2, LLM_ARCH_STEP35, LLM_ARCH_XVERSE };
// Those that also fill t_layer_inp[n_layer], the last layer's output.
constexpr std::array TAPPED_TO_THE_END = { LLM_ARCH_DEEPSEEK4, LLM_ARCH_MIMO2, LLM_ARCH_NEMOTRON_H,
    LLM_ARCH_NEMOTRON_H_MOE };

}   // namespace

bool access_has_tap(const llama_model * model, int32_t layer) {
    const int32_t n_layer = (int32_t) model->hparams.n_layer();
    const auto    in      = [&](const auto & archs) {
        return std::find(archs.begin(), archs.end(), model->arch) != archs.end();
    };
    if (layer < 0 || layer >= n_layer) {
        return layer == n_layer && in(TAPPED_TO_THE_END);
    }
    const bool begins_without_norm = model->arch == LLM_ARCH_DECI && !model->layers[layer].attn_norm;
    // with deepstack, rows of the first layer's input are wider than the model: llama.cpp cannot read them out
    const bool is_wider = layer == 0 && model->hparams.n_embd_inp() != model->hparams.n_embd;
    return in(TAPPED) && !begins_without_norm && !is_wider;
}

tapped_archs access_tapped_archs() {
    const auto names = [](const auto & archs) {
        std::vector<std::string> all;
        for (const llm_arch arch : archs) {
            all.push_back(llm_arch_name(arch));
        }
        return all;
    };
    return { names(TAPPED), names(TAPPED_TO_THE_END) };
}

}   // namespace dflash
