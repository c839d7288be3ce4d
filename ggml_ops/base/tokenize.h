// Turns any text that a client may send into tokens.

#pragma once

#include "llama.h"

#include <string>
#include <vector>

namespace dflash {

// Like common_tokenize(). Many vocabularies split text with std::regex, which in libstdc++ recurses for every matched
// character, so some twenty thousand equal characters would overflow the stack. For those, longer texts run on a thread
// with a larger stack. Throws status_error (DFLASH_ERROR_ARG) if the text is too long even for that, or would take
// hours.
std::vector<llama_token> tokenize(
    const llama_vocab * vocab, const std::string & text, bool add_special, bool parse_special = false);

}   // namespace dflash
