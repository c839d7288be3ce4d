#include "accept/sampling.h"

#include "base/error.h"
#include "dflash.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace dflash {

namespace {

// Only the chain: token_constraints handles the rest.
common_sampler_ptr make_chain(const llama_model * model, common_params_sampling params) {
    params.grammar = {};
    params.generation_prompt.clear();
    params.reasoning_budget_start.clear();
    return common_sampler_ptr(common_sampler_init(model, params));
}

// Whether a sampler of the chain never changes a candidate list.
bool idle(common_sampler_type type, const common_params_sampling & p) {
    switch (type) {
        case COMMON_SAMPLER_TYPE_PENALTIES:
            return p.penalty_last_n == 0 || (p.penalty_repeat == 1 && p.penalty_freq == 0 && p.penalty_present == 0);
        case COMMON_SAMPLER_TYPE_DRY: return p.dry_multiplier == 0 || p.dry_base < 1 || p.dry_penalty_last_n == 0;
        case COMMON_SAMPLER_TYPE_TOP_N_SIGMA: return p.top_n_sigma <= 0;
        case COMMON_SAMPLER_TYPE_TOP_K: return p.top_k <= 0;
        case COMMON_SAMPLER_TYPE_TYPICAL_P: return p.typ_p >= 1;
        case COMMON_SAMPLER_TYPE_TOP_P: return p.top_p >= 1;
        case COMMON_SAMPLER_TYPE_MIN_P: return p.min_p <= 0;
        case COMMON_SAMPLER_TYPE_XTC: return p.xtc_probability <= 0 || p.xtc_threshold > 0.5f;
        default: return false;
    }
}

// Whether the likeliest candidate stays the likeliest, since the sampler only drops or rescales candidates.
bool keeps_best(common_sampler_type type) {
    switch (type) {
        case COMMON_SAMPLER_TYPE_TOP_N_SIGMA:
        case COMMON_SAMPLER_TYPE_TOP_K:
        case COMMON_SAMPLER_TYPE_TOP_P:
        case COMMON_SAMPLER_TYPE_MIN_P:
        case COMMON_SAMPLER_TYPE_TEMPERATURE: return true;
        default: return false;
    }
}

// Whether the chain only reshapes a distribution and draws from it.
bool draws_once(const common_params_sampling & p) {
    return p.mirostat == 0 && p.temp > 0 &&
           std::none_of(p.samplers.begin(), p.samplers.end(), [&](common_sampler_type type) {
               return type == COMMON_SAMPLER_TYPE_ADAPTIVE_P || (type == COMMON_SAMPLER_TYPE_XTC && !idle(type, p));
           });
}

draft_shape shape_of(const common_params_sampling & p) {
    draft_shape s;
    for (const common_sampler_type type : p.samplers) {
        switch (type) {
            case COMMON_SAMPLER_TYPE_TEMPERATURE: s.temperature = p.temp > 0 ? p.temp : 1; break;
            case COMMON_SAMPLER_TYPE_TOP_K: s.top_k = p.top_k; break;
            case COMMON_SAMPLER_TYPE_TOP_P: s.top_p = p.top_p; break;
            case COMMON_SAMPLER_TYPE_MIN_P: s.min_p = p.min_p; break;
            default: break;
        }
    }
    return s;
}

// A stream different from the chain's own, which has the same seed.
uint64_t random_seed(uint32_t seed) {
    if (seed == LLAMA_DEFAULT_SEED) {
        std::random_device device;
        return (uint64_t(device()) << 32) | device();
    }
    return (uint64_t(0x626c6f636b) << 32) ^ seed;   // "block"
}

// Tokens that must not be sampled, in order.
std::vector<llama_token> banned_by(const common_params_sampling & p) {
    std::vector<llama_token> banned;
    for (const llama_logit_bias & b : p.logit_bias) {
        if (b.bias == -INFINITY) {
            banned.push_back(b.token);
        }
    }
    std::sort(banned.begin(), banned.end());
    return banned;
}

constexpr int32_t MAX_SHORT_TOP_K = 1024;   // above that, sorting costs as much as the general path

}   // namespace

sampler::shortcut sampler::find_shortcut(const llama_vocab * vocab, const common_params_sampling & p) {
    int32_t n_suppressed = 0;
    llama_vocab_get_suppress_tokens(vocab, &n_suppressed);
    const auto n_banned = (int32_t) banned_by(p).size();   // they only leave the list
    if (p.mirostat != 0 || n_banned < (int32_t) p.logit_bias.size() || n_suppressed > 0) {
        return shortcut::none;
    }
    std::vector<common_sampler_type> active;
    std::copy_if(p.samplers.begin(), p.samplers.end(), std::back_inserter(active),
        [&](common_sampler_type type) { return !idle(type, p); });

    const bool cold = p.temp <= 0 && p.dynatemp_range <= 0 &&
                      std::count(active.begin(), active.end(), COMMON_SAMPLER_TYPE_TEMPERATURE);
    if (cold && std::all_of(active.begin(), active.end(), keeps_best)) {
        return shortcut::greedy;
    }
    if (!active.empty() && active[0] == COMMON_SAMPLER_TYPE_TOP_K &&
        p.top_k <= std::min(MAX_SHORT_TOP_K, llama_vocab_n_tokens(vocab)) - n_banned) {
        return shortcut::top_k;
    }
    return shortcut::none;
}

sampler::sampler(const llama_model * model, const common_params_sampling & params) :
    vocab_(llama_model_get_vocab(model)), top_k_(params.top_k), banned_(banned_by(params)),
    shortcut_(find_shortcut(vocab_, params)), constraints_(vocab_, params), chain_(make_chain(model, params)),
    gives_distribution_(constraints_.open() && draws_once(params)), shape_(shape_of(params)),
    random_(random_seed(params.seed)) {}

// A grammar seldom rejects what the model wants, so it checks the sampled token first, and all tokens only if it
// rejects that.
llama_token sampler::sample(const float * logits) {
    row_.scan(logits, llama_vocab_n_tokens(vocab_));
    llama_token token = constraints_.forces() ? LLAMA_TOKEN_NULL : sample_short();
    if (token == LLAMA_TOKEN_NULL) {
        token = sample_all(logits, false);
    }
    return constraints_.allows(token) ? token : sample_all(logits, true);
}

const float * logits_of(llama_context * ctx, int32_t i) {
    logit_store * store  = access_logit_store(ctx);
    const float * logits = store ? store->row(i) : nullptr;
    logits               = logits ? logits : llama_get_logits_ith(ctx, i);
    fail_if(!logits, "row ", i, " has no logits");
    return logits;
}

llama_token sampler::sample(llama_context * ctx, int32_t i) {
    const logit_store * store = access_logit_store(ctx);
    const llama_token   token = store && !constraints_.forces() ? sample_best(*store, i) : LLAMA_TOKEN_NULL;
    if (token == LLAMA_TOKEN_NULL) {
        return sample(logits_of(ctx, i));
    }
    return constraints_.allows(token) ? token : sample_all(logits_of(ctx, i), true);
}

needed_logits sampler::needs() const {
    switch (shortcut_) {
        case shortcut::greedy: return banned_.empty() ? needed_logits::largest : needed_logits::top;
        case shortcut::top_k: return top_k_ < TOP_LOGITS ? needed_logits::top : needed_logits::whole_row;
        default: return needed_logits::whole_row;
    }
}

// From what the pass found in the row. LLAMA_TOKEN_NULL: the whole row is needed.
llama_token sampler::sample_best(const logit_store & store, int32_t i) {
    llama_token token = LLAMA_TOKEN_NULL;
    if (shortcut_ == shortcut::greedy && store.largest(i, token)) {
        return is_banned(token) ? LLAMA_TOKEN_NULL : keep_certain(token);
    }
    if (shortcut_ == shortcut::none || !store.top(i, candidates_)) {
        return LLAMA_TOKEN_NULL;
    }
    drop_banned();
    const size_t n     = shortcut_ == shortcut::greedy ? 1 : top_k_;
    const auto   equal = [](const llama_token_data & a, const llama_token_data & b) { return a.logit == b.logit; };
    if (n + 1 > candidates_.size() ||
        std::adjacent_find(candidates_.begin(), candidates_.begin() + n + 1, equal) != candidates_.begin() + n + 1) {
        return LLAMA_TOKEN_NULL;
    }
    candidates_.resize(n);
    return shortcut_ == shortcut::greedy ? keep_certain(candidates_[0].id) : run_chain(true);
}

// Ties take the general path: llama.cpp's order of equal logits depends on its partial sort.
llama_token sampler::sample_short() {
    switch (shortcut_) {
        case shortcut::greedy: {
            const llama_token token = row_.argmax();
            return is_banned(token) ? LLAMA_TOKEN_NULL : keep_certain(token);
        }
        case shortcut::top_k: return list_top() ? run_chain(true) : LLAMA_TOKEN_NULL;
        default: return LLAMA_TOKEN_NULL;
    }
}

bool sampler::is_banned(llama_token token) const { return std::binary_search(banned_.begin(), banned_.end(), token); }

void sampler::drop_banned() {
    const auto banned = [this](const llama_token_data & c) { return is_banned(c.id); };
    candidates_.erase(std::remove_if(candidates_.begin(), candidates_.end(), banned), candidates_.end());
}

bool sampler::list_top() {
    if (!row_.top(top_k_ + (int32_t) banned_.size(), candidates_)) {
        return false;
    }
    drop_banned();
    candidates_.resize(std::min<size_t>(candidates_.size(), top_k_));
    return true;
}

void sampler::list_all(const float * logits) {
    candidates_.resize(llama_vocab_n_tokens(vocab_));
    for (llama_token token = 0; token < llama_token(candidates_.size()); ++token) {
        candidates_[token] = { token, logits[token], 0.0f };
    }
}

llama_token_data_array sampler::list_masked(const float * logits, bool with_grammar) {
    list_all(logits);
    llama_token_data_array all = { candidates_.data(), candidates_.size(), -1, false };
    constraints_.mask(&all, with_grammar);
    return all;
}

namespace {

const llama_token_data & likeliest(const llama_token_data_array & all) {
    const auto best = std::max_element(all.data, all.data + all.size,
        [](const llama_token_data & a, const llama_token_data & b) { return a.logit < b.logit; });
    if (all.size == 0 || !(best->logit > -INFINITY)) {
        throw status_error(DFLASH_ERROR_ARG,
            "no token is left to sample: grammar, logit_bias and ignore_eos together forbid all of them");
    }
    return *best;
}

}   // namespace

// The infill sampler may end a text with a token that is not among the candidates.
llama_token sampler::sample_all(const float * logits, bool with_grammar) {
    list_masked(logits, with_grammar);
    const llama_token token = run_chain(false);
    if (!with_grammar || constraints_.allows(token)) {
        return token;
    }
    return keep_certain(likeliest(list_masked(logits, with_grammar)).id);
}

llama_token sampler::run_chain(bool sorted) {
    llama_token_data_array all = { candidates_.data(), candidates_.size(), -1, sorted };
    llama_sampler_apply(common_sampler_get(chain_.get()), &all);
    const auto lost = [](const llama_token_data & c) { return !(c.logit > -INFINITY) || std::isnan(c.p); };
    if (all.selected < 0 || lost(all.data[all.selected])) {
        // A dynamic temperature close to 0 overflows; in the limit the likeliest candidate is certain.
        return keep_certain(likeliest(all).id);
    }
    if (keeps_drawn_from_) {
        drawn_from_.clear();
        for (size_t i = 0; i < all.size; ++i) {
            if (all.data[i].p > 0) {
                drawn_from_.push_back({ all.data[i].id, all.data[i].p });
            }
        }
    }
    return all.data[all.selected].id;
}

llama_token sampler::keep_certain(llama_token token) {
    if (keeps_drawn_from_) {
        drawn_from_ = { { token, 1.0 } };
    }
    return token;
}

void sampler::accept(llama_token token) {
    constraints_.accept(token);
    llama_sampler_accept(common_sampler_get(chain_.get()), token);
}

void sampler::accept_prompt(llama_token token) { llama_sampler_accept(common_sampler_get(chain_.get()), token); }

bool sampler::end_reasoning(const llama_tokens & generated) {
    const bool ends = constraints_.end_reasoning(generated);
    gives_distribution_ &= !ends;
    return ends;
}

// ---- block verification ----

// Copies the individual samplers: a copied common_sampler keeps pointers into the original.
sampler::ahead::ahead(sampler & of) : of_(of) {
    llama_sampler * chain = common_sampler_get(of.chain_.get());
    for (int32_t i = 0; i + 1 < llama_sampler_chain_n(chain); ++i) {
        chain_.emplace_back(llama_sampler_clone(llama_sampler_chain_get(chain, i)));
    }
}

const std::vector<token_prob> & sampler::ahead::distribution(const float * logits) {
    of_.row_.scan(logits, llama_vocab_n_tokens(of_.vocab_));
    const bool sorted = of_.shortcut_ == shortcut::top_k && of_.list_top();
    if (!sorted) {
        of_.list_all(logits);
    }
    llama_token_data_array all = { of_.candidates_.data(), of_.candidates_.size(), -1, sorted };
    for (const llama_sampler_ptr & one : chain_) {
        llama_sampler_apply(one.get(), &all);
    }

    // Like llama.cpp's last sampler: float exponentials, summed in double.
    const llama_token_data best = likeliest(all);
    found_.clear();
    double sum = 0;
    for (size_t i = 0; i < all.size; ++i) {
        const float weight = std::exp(all.data[i].logit - best.logit);
        if (weight > 0) {
            found_.push_back({ all.data[i].id, weight });
            sum += weight;
        }
    }
    if (!(sum > 0) || !std::isfinite(sum)) {
        found_ = { { best.id, 1.0 } };   // overflow, as in run_chain()
        sum    = 1;
    }
    for (token_prob & t : found_) {
        t.prob /= sum;
    }
    return found_;
}

const std::vector<token_prob> & sampler::ahead::distribution(llama_context * ctx, int32_t i) {
    return distribution(logits_of(ctx, i));
}

void sampler::ahead::accept(llama_token token) {
    for (const llama_sampler_ptr & one : chain_) {
        llama_sampler_accept(one.get(), token);
    }
}

walk_result block_walk(const drawn_chain & chain, sampler & s, llama_context * ctx, int32_t first_row,
    const std::function<bool(int32_t)> & ends, std::vector<std::vector<token_prob>> * drawn_from) {
    sampler::ahead     ahead(s);
    const block_result block = block_accept(
        chain,
        [&](int32_t i) -> const std::vector<token_prob> & {
            if (i > 0) {
                ahead.accept(chain.tokens[i - 1]);
            }
            const std::vector<token_prob> & found = ahead.distribution(ctx, first_row + i);
            if (drawn_from) {
                drawn_from->push_back(found);
            }
            return found;
        },
        s.random());

    walk_result r;
    for (int32_t i = 0; i <= block.accepted && !r.stopped; ++i) {
        const llama_token token = i < block.accepted ? chain.tokens[i] : block.bonus;
        s.accept(token);
        r.path.push_back(i);
        r.tokens.push_back(token);
        r.stopped = ends(token);
    }
    return r;
}

}   // namespace dflash
