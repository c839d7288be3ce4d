// Checks whether llama.cpp can safely restore a sequence state. Part of libllama.
//
// llama.cpp restores a saved state unchecked except for types and sizes: positions may be arbitrary, and NaNs in K and
// V reach every sequence of the cache (attention multiplies masked cells by 0).

#pragma once

#include "llama/token_positions.h"

#include "llama.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace dflash {

// What is wrong with an external state (llama_state_seq_get_data_ext, whole or LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY), as
// what is to be said of it ("is damaged: ..."); empty if it is one of these tokens, at least one, that this context
// could have written.
LLAMA_API std::string access_check_state(
    const llama_context * ctx, const uint8_t * data, size_t size, const token_positions & tokens, bool partial);

// Why this context's states cannot be checked, empty if they can.
LLAMA_API std::string access_uncheckable(const llama_context * ctx);

}   // namespace dflash
