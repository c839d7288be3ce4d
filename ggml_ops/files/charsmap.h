// charsmap.h - a SentencePiece tokenizer's table of characters and what replaces them.
//
// llama.cpp walks it while it reads a text, and throws where it leads astray (llm_tokenizer_ugm_session in
// src/llama-vocab.cpp): for one text or another, long after the file was loaded.

#pragma once

#include <cstdint>
#include <vector>

namespace dflash {

// True if no text can lead outside of `table`: the bytes of tokenizer.ggml.precompiled_charsmap.
bool charsmap_is_sound(const std::vector<uint8_t> & table);

}   // namespace dflash
