#include "accept/token_constraints.h"

#include "base/json_fields.h"

#include "common/reasoning-budget.h"

#include <cctype>
#include <climits>
#include <cmath>
#include <regex>

namespace dflash {

namespace {

// The tokens that the template has already put into the prompt for the answer.
llama_tokens prefilled(const llama_vocab * vocab, const std::string & generation_prompt) {
    llama_tokens tokens;
    if (!generation_prompt.empty()) {
        tokens = common_tokenize(vocab, generation_prompt, false, true);
    }
    // some tokenizers put a space before a first special token
    if (!tokens.empty()) {
        const std::string piece = common_token_to_piece(vocab, tokens[0], true);
        if (!piece.empty() && std::isspace((unsigned char) piece[0]) &&
            !std::isspace((unsigned char) generation_prompt[0])) {
            tokens.erase(tokens.begin());
        }
    }
    return tokens;
}

std::string trigger_pattern(const common_grammar_trigger & trigger) {
    const std::string & p = trigger.value;
    switch (trigger.type) {
        case COMMON_GRAMMAR_TRIGGER_TYPE_WORD: return regex_escape(p);
        case COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN: return p;
        default:   // COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN_FULL
            return p.empty() ? "^$" : (p.front() == '^' ? "" : "^") + p + (p.back() == '$' ? "" : "$");
    }
}

llama_sampler * make_grammar(const llama_vocab * vocab, const common_params_sampling & params) {
    const char * text = params.grammar.grammar.c_str();
    if (!params.grammar_lazy) {
        return llama_sampler_init_grammar(vocab, text, "root");
    }
    std::vector<std::string> patterns;
    std::vector<llama_token> tokens;
    for (const common_grammar_trigger & trigger : params.grammar_triggers) {
        if (trigger.type == COMMON_GRAMMAR_TRIGGER_TYPE_TOKEN) {
            tokens.push_back(trigger.token);
        } else {
            patterns.push_back(trigger_pattern(trigger));
        }
    }
    std::vector<const char *> pattern_strings;
    for (const std::string & pattern : patterns) {
        pattern_strings.push_back(pattern.c_str());
    }
    try {
        return llama_sampler_init_grammar_lazy_patterns(
            vocab, text, "root", pattern_strings.data(), pattern_strings.size(), tokens.data(), tokens.size());
    } catch (const std::regex_error & e) {
        throw field_error("grammar_triggers", std::string("is not a valid regular expression: ") + e.what());
    }
}

}   // namespace

token_constraints::token_constraints(const llama_vocab * vocab, const common_params_sampling & params) :
    vocab_(vocab), lazy_(params.grammar_lazy) {
    const llama_tokens prefill = prefilled(vocab, params.generation_prompt);

    if (!params.grammar.empty()) {
        grammar_.reset(make_grammar(vocab, params));
        if (!grammar_) {
            throw field_error("grammar", "cannot be built: it names a <token> that the vocabulary lacks, repeats too "
                                         "many rules, or is left-recursive");
        }
        if (!lazy_ && common_grammar_needs_prefill(params.grammar)) {
            try {
                for (const llama_token token : prefill) {
                    advance_grammar(token);
                }
            } catch (const std::exception & e) {
                throw field_error("generation_prompt", std::string("does not fit the grammar: ") + e.what());
            }
        }
    }

    // without a limit, it still tells reasoning from the answer for a grammar that waits
    const bool tagged = !params.reasoning_budget_start.empty() && !params.reasoning_budget_end.empty();
    if (tagged && (lazy_ || params.reasoning_budget_tokens >= 0)) {
        budget_.reset(common_reasoning_budget_init(vocab, { params.reasoning_budget_start },
            params.reasoning_budget_end, params.reasoning_budget_forced,
            params.reasoning_budget_tokens < 0 ? INT_MAX : params.reasoning_budget_tokens));
        for (const llama_token token : prefill) {
            llama_sampler_accept(budget_.get(), token);
        }
    }
}

bool token_constraints::grammar_applies() const {
    if (!grammar_ || !budget_ || !lazy_) {
        return grammar_ != nullptr;
    }
    const auto state = common_reasoning_budget_get_state(budget_.get());
    return state == REASONING_BUDGET_IDLE || state == REASONING_BUDGET_DONE;
}

bool token_constraints::forces() const {
    return common_reasoning_budget_get_state(budget_.get()) == REASONING_BUDGET_FORCING;
}

bool token_constraints::grammar_takes(llama_token token) const {
    llama_token_data       one = { token, 1.0f, 0.0f };
    llama_token_data_array all = { &one, 1, -1, false };
    llama_sampler_apply(grammar_.get(), &all);
    return one.logit != -INFINITY;
}

bool token_constraints::allows(llama_token token) const { return !grammar_applies() || grammar_takes(token); }

void token_constraints::mask(llama_token_data_array * all, bool grammar) {
    llama_sampler_apply(budget_.get(), all);
    if (grammar && grammar_applies()) {
        llama_sampler_apply(grammar_.get(), all);
    }
}

void token_constraints::advance_grammar(llama_token token) {
    // llama.cpp aborts on an end of generation that comes too early
    if (llama_vocab_is_eog(vocab_, token) && !grammar_takes(token)) {
        throw std::runtime_error("the text ends before the grammar is complete");
    }
    llama_sampler_accept(grammar_.get(), token);
}

void token_constraints::accept(llama_token token) {
    const bool applied = grammar_applies();   // as it was for the sample, before the budget moves on
    if (budget_) {
        llama_sampler_accept(budget_.get(), token);
        if (grammar_ && !applied && common_reasoning_budget_get_state(budget_.get()) == REASONING_BUDGET_DONE) {
            // the end of the reasoning may hold the grammar's trigger
            if (const llama_tokens * end = common_reasoning_budget_get_end_match(budget_.get())) {
                for (const llama_token tag_token : *end) {
                    advance_grammar(tag_token);
                }
            }
        }
    }
    if (applied) {
        advance_grammar(token);
    }
}

}   // namespace dflash
