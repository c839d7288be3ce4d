// A SentencePiece tokenizer's table of characters and their replacements.
//
// llama.cpp only walks the table when it reads a text, and throws if the table is invalid for that text
// (llm_tokenizer_ugm_session in src/llama-vocab.cpp): long after the file was loaded.

#pragma once

#include <cstdint>
#include <vector>

namespace dflash {

// True if no text can lead outside of `table`, the bytes of tokenizer.ggml.precompiled_charsmap.
bool charsmap_is_sound(const std::vector<uint8_t> & table);

}   // namespace dflash
