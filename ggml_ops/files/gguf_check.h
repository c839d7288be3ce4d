// gguf_check.h - is this file one that llama.cpp can load and run without an assertion, a division by zero or a wild
// read?
//
// llama.cpp trusts a GGUF file: a wrong number in it can end the process (docs/hardening.md lists how). gguf_check()
// reads the header before llama.cpp does and refuses such a file with one sentence. What it passes may still be refused
// by llama.cpp's loader, which then throws: shapes that do not fit, missing tensors, unknown architectures.

#pragma once

#include "llama/drafter_kind.h"

#include <cstdint>
#include <string>
#include <vector>

namespace dflash {

// What was found. The numbers are 0 (or empty) where the file does not say or the check failed before them.
struct gguf_report {
    std::string error;   // "" if the file passed, else one sentence: file, key or tensor, what is expected
    std::string field;   // the key or tensor the error is about, "" for the file as a whole

    std::string architecture;
    uint64_t    n_layer     = 0;
    uint64_t    n_embd      = 0;
    uint64_t    n_vocab     = 0;
    uint64_t    n_ctx_train = 0;

    // drafters only
    std::vector<int64_t> target_layers;
    int64_t              mask_token     = -1;
    uint64_t             block_size     = 0;   // 0: the file does not say
    const drafter_kind * kind           = nullptr;
    bool                 has_embeddings = false;   // own token_embd.weight, else the target's is used
    bool                 has_output     = false;   // own output.weight, else the target's is used

    bool is_drafter() const { return architecture == "dflash"; }
};

// What a file is wanted for: text (targets, drafters, whatever is quantized), or one vector or score for a whole text.
enum class gguf_use { generate, embed };

// Returns true if the file passed. For a split model, give the first file: the others are checked too. Throws nothing.
bool gguf_check(const char * path, gguf_report & report, gguf_use use = gguf_use::generate) noexcept;
bool gguf_check(const char * path, std::string & error, gguf_use use = gguf_use::generate) noexcept;

}   // namespace dflash
