#include "llama/grammar.h"

#include "llama-grammar.h"
#include "llama-vocab.h"

#include <stdexcept>

namespace dflash {

void grammar_free(llama_grammar * grammar) { llama_grammar_free_impl(grammar); }

grammar_ptr grammar_init(const llama_vocab * vocab, const std::string & text) {
    return grammar_ptr(llama_grammar_init_impl(vocab, text.c_str(), "root", false, nullptr, 0, nullptr, 0));
}

void grammar_apply(const llama_grammar & grammar, llama_token_data_array * all) {
    llama_grammar_apply_impl(grammar, all);
}

void grammar_accept(llama_grammar & grammar, llama_token token, const std::string & piece) {
    llama_grammar_accept_token(grammar, token, piece);
}

bool grammar_accept(llama_grammar & grammar, const std::vector<grammar_part> & parts) {
    const auto stacks       = grammar.stacks;
    const auto partial_utf8 = grammar.partial_utf8;
    try {
        for (const grammar_part & part : parts) {
            grammar_accept(grammar, part.token, part.piece);
        }
    } catch (const std::runtime_error &) {
        grammar.stacks       = stacks;
        grammar.partial_utf8 = partial_utf8;
        return false;
    }
    return true;
}

const std::string & grammar_piece(const llama_vocab * vocab, llama_token token) { return vocab->token_to_piece(token); }

}   // namespace dflash
