// Checks that llama.cpp can load and run a file without an assertion, a division by zero or a wild read.
//
// llama.cpp trusts GGUF files: a wrong number in one can end the process (docs/hardening.md lists how). gguf_check()
// reads the header before llama.cpp does and rejects such files with one sentence. llama.cpp's loader may still reject
// a file that passes, by throwing: wrong shapes, missing tensors, unknown architectures.

#pragma once

#include "llama/drafter_kind.h"

#include <cstdint>
#include <string>
#include <vector>

namespace dflash {

// The result. Numbers are 0 (or empty) if the file does not give them or the check failed before.
struct gguf_report {
    std::string error;   // "" if the file passed, otherwise one sentence: file, key or tensor, what is expected
    std::string field;   // the key or tensor of the error, "" for the file as a whole

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
    bool                 has_embeddings = false;   // own token_embd.weight, otherwise the target's is used
    bool                 has_output     = false;   // own output.weight, otherwise the target's is used

    bool is_drafter() const { return architecture == "dflash"; }
};

// What a file is used for: text (targets, drafters, files to quantize), or one vector or score per text.
enum class gguf_use { generate, embed };

// Returns true if the file passed. For a split model, give the first file: the others are checked too. Never throws.
bool gguf_check(const char * path, gguf_report & report, gguf_use use = gguf_use::generate) noexcept;
bool gguf_check(const char * path, std::string & error, gguf_use use = gguf_use::generate) noexcept;

}   // namespace dflash
