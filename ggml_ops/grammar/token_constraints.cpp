#include "grammar/token_constraints.h"

#include "base/json_fields.h"
#include "base/tokenize.h"

#include "common/reasoning-budget.h"

#include <algorithm>
#include <cctype>
#include <climits>
#include <cmath>
#include <regex>

namespace dflash {

namespace {

// The part of the answer that the template already put into the prompt.
llama_tokens prefilled(const llama_vocab * vocab, const std::string & generation_prompt) {
    llama_tokens tokens;
    if (!generation_prompt.empty()) {
        tokens = tokenize(vocab, generation_prompt, false, true);
    }
    // some tokenizers insert a space before a leading special token
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
    if (trigger.type != COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN_FULL) {
        return p;
    }
    return p.empty() ? "^$" : (p.front() == '^' ? "" : "^") + p + (p.back() == '$' ? "" : "$");
}

}   // namespace

// Reads what triggers a lazy grammar: single tokens, or words and patterns in the text.
void token_constraints::read_grammar(const common_params_sampling & params) {
    grammar_ = grammar_init(vocab_, params.grammar.grammar);
    if (!grammar_) {
        const bool of_schema = params.grammar.type == COMMON_GRAMMAR_TYPE_OUTPUT_FORMAT;
        throw field_error(of_schema ? "json_schema" : "grammar",
            "cannot be built: it names a <token> that the vocabulary lacks, repeats too "
            "many rules, or is left-recursive");
    }
    if (!lazy_) {
        return;
    }
    std::vector<trigger> texts;
    for (const common_grammar_trigger & t : params.grammar_triggers) {
        if (t.type == COMMON_GRAMMAR_TRIGGER_TYPE_TOKEN) {
            trigger_tokens_.insert(t.token);
        } else {
            const bool word = t.type == COMMON_GRAMMAR_TRIGGER_TYPE_WORD;
            texts.push_back({ word ? t.value : trigger_pattern(t), !word });
        }
    }
    try {
        search_.emplace(texts);
    } catch (const std::regex_error & e) {
        throw field_error("grammar_triggers", "is not a valid regular expression: ", e.what());
    }
}

token_constraints::token_constraints(const llama_vocab * vocab, const common_params_sampling & params) :
    vocab_(vocab), lazy_(params.grammar_lazy), prefill_(prefilled(vocab, params.generation_prompt)),
    reasoning_start_(params.reasoning_budget_start), reasoning_forced_(params.reasoning_budget_forced),
    reasoning_end_(params.reasoning_budget_end) {
    if (!params.grammar.empty()) {
        read_grammar(params);
        if (!lazy_ && common_grammar_needs_prefill(params.grammar)) {
            try {
                for (const llama_token token : prefill_) {
                    advance_grammar(token);
                }
            } catch (const std::exception & e) {
                throw field_error("generation_prompt", "does not fit the grammar: ", e.what());
            }
        }
    }

    // even without a limit, the budget separates reasoning from the answer for a lazy grammar
    if (lazy_ || params.reasoning_budget_tokens >= 0) {
        watch_reasoning(params.reasoning_budget_tokens);
    }
}

// Does nothing without tags. Negative: no limit.
void token_constraints::watch_reasoning(int32_t n_tokens) {
    if (reasoning_start_.empty() || reasoning_end_.empty()) {
        return;
    }
    const auto budget = [this](int32_t limit, common_reasoning_budget_state state) {
        return common_reasoning_budget_init(
            vocab_, { reasoning_start_ }, reasoning_end_, reasoning_forced_, limit, state);
    };
    budget_.reset(budget(INT_MAX, REASONING_BUDGET_IDLE));
    const auto state = [this] { return common_reasoning_budget_get_state(budget_.get()); };
    size_t     begin = 0;   // of the prefill's part that is in the last state
    for (size_t i = 0; i < prefill_.size(); ++i) {
        const auto before = state();
        llama_sampler_accept(budget_.get(), prefill_[i]);
        begin = state() == before ? begin : i + 1;
    }
    if (n_tokens < 0) {
        return;
    }
    // With the limit, thoughts of the prefill beyond it would be taken for the tokens that are forced.
    const bool used_up = state() == REASONING_BUDGET_COUNTING && prefill_.size() - begin >= size_t(n_tokens);
    budget_.reset(budget(n_tokens, used_up ? REASONING_BUDGET_FORCING : state()));
    for (size_t i = begin; i < prefill_.size() && !used_up; ++i) {
        llama_sampler_accept(budget_.get(), prefill_[i]);
    }
}

bool token_constraints::end_reasoning(const llama_tokens & generated) {
    const bool watched = budget_ != nullptr;
    if (!watched) {
        watch_reasoning(-1);
        for (const llama_token token : generated) {
            if (budget_) {
                llama_sampler_accept(budget_.get(), token);
            }
        }
    }
    const bool ends = common_reasoning_budget_force(budget_.get());
    if (!ends && !watched) {
        budget_.reset();   // back to no budget, which is faster
    }
    return ends;
}

bool token_constraints::grammar_counts() const {
    if (!grammar_ || !budget_ || !lazy_) {
        return grammar_ != nullptr;
    }
    const auto state = common_reasoning_budget_get_state(budget_.get());
    return state == REASONING_BUDGET_IDLE || state == REASONING_BUDGET_DONE;
}

bool token_constraints::grammar_applies() const { return !search_ && grammar_counts(); }

bool token_constraints::forces() const {
    return common_reasoning_budget_get_state(budget_.get()) == REASONING_BUDGET_FORCING;
}

bool token_constraints::grammar_takes(llama_token token) const {
    llama_token_data       one = { token, 1.0f, 0.0f };
    llama_token_data_array all = { &one, 1, -1, false };
    grammar_apply(*grammar_, &all);
    return one.logit != -INFINITY;
}

bool token_constraints::allows(llama_token token) const { return !grammar_applies() || grammar_takes(token); }

void token_constraints::mask(llama_token_data_array * all, bool grammar) {
    llama_sampler_apply(budget_.get(), all);
    if (grammar && grammar_applies()) {
        grammar_apply(*grammar_, all);
    }
}

void token_constraints::advance_grammar(llama_token token) {
    if (search_) {
        wait(*search_, token);
        return;
    }
    if (llama_vocab_is_eog(vocab_, token)) {
        if (!grammar_takes(token)) {
            throw std::runtime_error("the text ends before the grammar is complete");
        }
        return;
    }
    grammar_accept(*grammar_, token, grammar_piece(vocab_, token));
}

// The grammar starts at the trigger, which may be in the middle of a token. If it does not allow the token's rest, the
// text only names the trigger, and goes on.
void token_constraints::wait(trigger_search & search, llama_token token) {
    const std::string & piece = grammar_piece(vocab_, token);
    if (trigger_tokens_.count(token) && grammar_accept(*grammar_, { { token, piece } })) {
        search_.reset();
        return;
    }
    waiting_.push_back({ token, n_text_, n_text_ + piece.size() });
    n_text_ += piece.size();
    const size_t start = search.push(piece, [&](size_t at) { return begin_grammar(search, at); });
    if (start != trigger_search::npos) {
        waiting_.clear();
        search_.reset();
        return;
    }
    while (waiting_.front().end < search.begin()) {
        waiting_.pop_front();
    }
}

// Lets the grammar take the text from `start` on, which may be in the middle of a token; false if it cannot.
bool token_constraints::begin_grammar(const trigger_search & search, size_t start) {
    const std::string         text = search.since(start);
    std::vector<grammar_part> parts;
    for (const waiting_token & w : waiting_) {
        if (w.end > start) {
            const size_t begin = std::max(w.begin, start);
            parts.push_back({ w.token, text.substr(begin - start, w.end - begin) });
        }
    }
    return grammar_accept(*grammar_, parts);
}

void token_constraints::accept(llama_token token) {
    const bool counted = grammar_counts();   // as for the sample, before the budget advances
    if (budget_) {
        llama_sampler_accept(budget_.get(), token);
        if (grammar_ && !counted && common_reasoning_budget_get_state(budget_.get()) == REASONING_BUDGET_DONE) {
            // the end of the reasoning may contain the grammar's trigger
            if (const llama_tokens * end = common_reasoning_budget_get_end_match(budget_.get())) {
                for (const llama_token tag_token : *end) {
                    advance_grammar(tag_token);
                }
            }
        }
    }
    if (counted) {
        advance_grammar(token);
    }
}

}   // namespace dflash
