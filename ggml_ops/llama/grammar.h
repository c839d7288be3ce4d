// llama.cpp's grammar, fed with a token or the end of one. Its own sampler takes whole tokens, and finds out by itself
// where a grammar that waits begins: by a search of all of the text after every token (grammar/trigger_search.h).

#pragma once

#include "llama.h"

#include <memory>
#include <string>

struct llama_grammar;

namespace dflash {

LLAMA_API void grammar_free(llama_grammar * grammar);

struct grammar_deleter {
    void operator()(llama_grammar * grammar) const { grammar_free(grammar); }
};
using grammar_ptr = std::unique_ptr<llama_grammar, grammar_deleter>;

// From GBNF, beginning with the rule root; null if llama.cpp cannot build it.
LLAMA_API grammar_ptr grammar_init(const llama_vocab * vocab, const std::string & text);
// Sets what cannot come next to -inf.
LLAMA_API void grammar_apply(const llama_grammar & grammar, llama_token_data_array * all);
// Goes on by `piece`, the text of `token` or its end. Throws std::runtime_error if the grammar does not allow it. Not
// for an end of generation.
LLAMA_API void grammar_accept(llama_grammar & grammar, llama_token token, const std::string & piece);
// The text of a token to a grammar: control tokens have theirs.
LLAMA_API const std::string & grammar_piece(const llama_vocab * vocab, llama_token token);

}   // namespace dflash
