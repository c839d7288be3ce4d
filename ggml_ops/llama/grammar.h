// llama.cpp's grammar, advanced by a token or the end of one. llama.cpp's own sampler only takes whole tokens and
// searches the whole text for a lazy grammar's trigger after each token (grammar/trigger_search.h).

#pragma once

#include "llama.h"

#include <memory>
#include <string>
#include <vector>

struct llama_grammar;

namespace dflash {

LLAMA_API void grammar_free(llama_grammar * grammar);

struct grammar_deleter {
    void operator()(llama_grammar * grammar) const { grammar_free(grammar); }
};
using grammar_ptr = std::unique_ptr<llama_grammar, grammar_deleter>;

struct grammar_part {
    llama_token token;
    std::string piece;
};

// Parses GBNF with the start rule root; null if llama.cpp cannot build it.
LLAMA_API grammar_ptr grammar_init(const llama_vocab * vocab, const std::string & text);
// Sets the logits of forbidden tokens to -inf.
LLAMA_API void grammar_apply(const llama_grammar & grammar, llama_token_data_array * all);
// Advances by `piece`, the text of `token` or its end. Throws std::runtime_error if the grammar does not allow it. Not
// for end-of-generation tokens.
LLAMA_API void grammar_accept(llama_grammar & grammar, llama_token token, const std::string & piece);
// Advances by all parts, or if the grammar does not allow them, by none. Returns whether it did.
LLAMA_API bool grammar_accept(llama_grammar & grammar, const std::vector<grammar_part> & parts);
// The text of a token as a grammar sees it, including that of control tokens.
LLAMA_API const std::string & grammar_piece(const llama_vocab * vocab, llama_token token);

}   // namespace dflash
