// The tokens that a request's grammar and reasoning budget allow next.
//
// common_sampler does not expose these two, and its only entry point copies the whole vocabulary for each sample. So
// they are combined here in the order of llama.cpp's common/sampling.cpp: the budget first, then the grammar on the
// sampled token.

#pragma once

#include "grammar/trigger_search.h"
#include "llama/grammar.h"

#include "llama-cpp.h"

#include "common/common.h"

#include <deque>
#include <optional>
#include <set>

namespace dflash {

class token_constraints {
  public:
    // Throws std::invalid_argument that names the field.
    token_constraints(const llama_vocab * vocab, const common_params_sampling & params);

    // Whether there is neither a grammar nor a budget, so that every token is always allowed.
    bool open() const { return !grammar_ && !budget_; }
    // Whether the budget is used up and its end sequence is being forced. Then only mask() knows the next token.
    bool forces() const;
    bool allows(llama_token token) const;
    // Sets forbidden tokens to -inf; applies the grammar only if `grammar` is set.
    void mask(llama_token_data_array * all, bool grammar);
    // Throws std::runtime_error if the grammar rejects the token.
    void accept(llama_token token);
    // Forces the end of the reasoning from the next token on; false if the answer is not reasoning. `generated`: all
    // accepted tokens.
    bool end_reasoning(const llama_tokens & generated);

  private:
    struct waiting_token {
        llama_token token;
        size_t      begin, end;   // of its text
    };

    void read_grammar(const common_params_sampling & params);
    void watch_reasoning(int32_t n_tokens);
    bool grammar_counts() const;    // whether it sees the text: a lazy grammar does not see reasoning
    bool grammar_applies() const;   // and it has been triggered
    bool grammar_takes(llama_token token) const;
    void advance_grammar(llama_token token);
    void wait(trigger_search & search, llama_token token);
    bool begin_grammar(const trigger_search & search, size_t start);

    const llama_vocab * vocab_;
    bool                lazy_;      // waits for a trigger, and for the end of the reasoning
    grammar_ptr         grammar_;   // either may be null
    llama_sampler_ptr   budget_;

    llama_tokens              prefill_;   // beginning of the answer, from the template
    llama_tokens              reasoning_start_, reasoning_forced_;
    std::vector<llama_tokens> reasoning_end_;

    // set while the grammar waits for its trigger
    std::optional<trigger_search> search_;
    std::set<llama_token>         trigger_tokens_;
    std::deque<waiting_token>     waiting_;   // tokens whose text may still be part of a trigger
    size_t                        n_text_ = 0;
};

}   // namespace dflash
