// From text to tokens, for any text that a client may send.

#pragma once

#include "llama.h"

#include <string>
#include <vector>

namespace dflash {

// As common_tokenize(). Many vocabularies split a text by std::regex, which in libstdc++ calls itself for every
// character of a match: some twenty thousand equal characters would overflow the stack. For those, longer texts get a
// thread with a stack of their own. Throws status_error (DFLASH_ERROR_ARG) if the text is too long even for that, or
// would take hours.
std::vector<llama_token> tokenize(
    const llama_vocab * vocab, const std::string & text, bool add_special, bool parse_special = false);

}   // namespace dflash
