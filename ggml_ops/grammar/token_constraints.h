// What a request's grammar and reasoning budget allow at the next token.
//
// common_sampler keeps these two to itself, and its only entry copies the whole vocabulary for every sample. So they
// are composed here, in the order of llama.cpp's common/sampling.cpp: the budget first, the grammar on the sampled
// token.

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

    // Whether there is neither a grammar nor a budget: everything is allowed, for good.
    bool open() const { return !grammar_ && !budget_; }
    // Whether the budget has run out and its end sequence is being forced: only mask() knows the token then.
    bool forces() const;
    bool allows(llama_token token) const;
    // Sets what is not allowed to -inf; the grammar only if asked.
    void mask(llama_token_data_array * all, bool grammar);
    // Throws std::runtime_error if the grammar does not allow the token.
    void accept(llama_token token);
    // Forces the end of the reasoning from the next token on; false if there is none to end. `generated`: all tokens
    // that were accepted.
    bool end_reasoning(const llama_tokens & generated);

  private:
    struct waiting_token {
        llama_token token;
        size_t      begin, end;   // of its text
    };

    void read_grammar(const common_params_sampling & params);
    void watch_reasoning(int32_t n_tokens);
    bool grammar_counts() const;    // it looks at the text: outside of reasoning, if it is one that waits
    bool grammar_applies() const;   // and its trigger has come
    bool grammar_takes(llama_token token) const;
    void advance_grammar(llama_token token);
    void wait(trigger_search & search, llama_token token);

    const llama_vocab * vocab_;
    bool                lazy_;      // the grammar waits for a trigger, and for the end of the reasoning
    grammar_ptr         grammar_;   // either may be null
    llama_sampler_ptr   budget_;

    llama_tokens              prefill_;   // of the answer, by the template
    llama_tokens              reasoning_start_, reasoning_forced_;
    std::vector<llama_tokens> reasoning_end_;

    // while it waits for its trigger
    std::optional<trigger_search> search_;
    std::set<llama_token>         trigger_tokens_;
    std::deque<waiting_token>     waiting_;   // those whose text a trigger may yet hold
    size_t                        n_text_ = 0;
};

}   // namespace dflash
