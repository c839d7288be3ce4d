#include "llama/access.h"

#include "llama-vocab.h"

#include <algorithm>
#include <array>

namespace dflash {

// Those that llama.cpp splits with code of its own (unicode_regex_split_custom in unicode.cpp).
static constexpr std::array ANY_TEXT = { LLAMA_VOCAB_PRE_TYPE_LLAMA3, LLAMA_VOCAB_PRE_TYPE_DBRX,
    LLAMA_VOCAB_PRE_TYPE_SMAUG, LLAMA_VOCAB_PRE_TYPE_CHATGLM4, LLAMA_VOCAB_PRE_TYPE_GPT2, LLAMA_VOCAB_PRE_TYPE_MPT,
    LLAMA_VOCAB_PRE_TYPE_OLMO, LLAMA_VOCAB_PRE_TYPE_JAIS, LLAMA_VOCAB_PRE_TYPE_TRILLION,
    LLAMA_VOCAB_PRE_TYPE_GRANITE_DOCLING, LLAMA_VOCAB_PRE_TYPE_STABLELM2, LLAMA_VOCAB_PRE_TYPE_QWEN2,
    LLAMA_VOCAB_PRE_TYPE_HUNYUAN, LLAMA_VOCAB_PRE_TYPE_SOLAR_OPEN, LLAMA_VOCAB_PRE_TYPE_QWEN35,
    LLAMA_VOCAB_PRE_TYPE_KIMI_K2, LLAMA_VOCAB_PRE_TYPE_GROK_2, LLAMA_VOCAB_PRE_TYPE_LAGUNA, LLAMA_VOCAB_PRE_TYPE_GEMMA4,
    LLAMA_VOCAB_PRE_TYPE_SARVAM_MOE };

splitter access_splitter(const llama_vocab * vocab) {
    const llama_vocab_pre_type type = vocab->get_pre_type();
    if (vocab->get_type() != LLAMA_VOCAB_TYPE_BPE ||
        std::find(ANY_TEXT.begin(), ANY_TEXT.end(), type) != ANY_TEXT.end()) {
        return splitter::any_text;
    }
    // "\\s+$" and "(?=(\\d{3})+(?!\\d))"
    const bool quadratic = type == LLAMA_VOCAB_PRE_TYPE_DEEPSEEK_LLM || type == LLAMA_VOCAB_PRE_TYPE_SUPERBPE;
    return quadratic ? splitter::quadratic : splitter::recursive;
}

}   // namespace dflash
