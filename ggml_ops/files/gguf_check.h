// Checks that llama.cpp can load and run a file without an assertion, a division by zero or a wild read.
//
// llama.cpp trusts GGUF files: a wrong number in one can end the process (docs/hardening.md lists how). check_gguf()
// reads the header before llama.cpp does and rejects such files with one sentence. llama.cpp's loader may still reject
// a file that passes, by throwing: wrong shapes, missing tensors, unknown architectures.

#pragma once

#include "files/gguf_file.h"

namespace dflash {

// Gemma 4's assistants, which draft for their targets (llama/mtp_layers.h).
inline constexpr const char * ASSISTANT_ARCH = "gemma4-assistant";

// What a file is used for: text (targets, drafters, files to quantize), one vector or score per text, or media, which
// become rows of a target (projectors).
enum class gguf_use { generate, embed, project };

// Throws status_error (DFLASH_ERROR_MODEL) unless the file passes: one sentence that names the file, the key or tensor
// and what is expected. For a split model, give the first file: the others are checked too, and their tensors are in
// the result. path: null is none.
gguf_file check_gguf(const char * path, gguf_use use = gguf_use::generate);

}   // namespace dflash
