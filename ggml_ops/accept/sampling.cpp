#include "accept/sampling.h"

#include "base/json_fields.h"
#include "files/gbnf.h"

#include "common/json-schema-to-grammar.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <random>
#include <regex>

namespace dflash {

namespace {

constexpr double  LARGE           = 1e6;       // keeps every product of parameters finite
constexpr int32_t MAX_HISTORY     = 1 << 20;   // tokens a penalty looks back; its memory is reserved at once
constexpr size_t  MAX_BREAKERS    = 16;        // each searches the whole vocabulary
constexpr size_t  MAX_TRIGGER     = 1024;      // bytes; std::regex recurses over its pattern
constexpr float   MIN_TEMPERATURE = 1e-30f;    // logits divided by less overflow

// ---- parameters ----

void read_seed(field_reader & in, common_params_sampling & p) {
    if (const json * value = in.take("seed")) {
        const int64_t seed = as_integer(*value, in.name("seed"), -1, UINT32_MAX);
        p.seed             = seed < 0 ? LLAMA_DEFAULT_SEED : uint32_t(seed);
    }
}

void read_temperature(field_reader & in, common_params_sampling & p) {
    in.read("temperature", p.temp, 0, LARGE);
    in.read("dynatemp_range", p.dynatemp_range, 0, LARGE);
    in.read("dynatemp_exponent", p.dynatemp_exponent, 0, LARGE);
    if (p.temp > 0 && p.temp < MIN_TEMPERATURE) {
        throw field_error("temperature", "is too small: use 0 for greedy decoding");
    }
}

void read_truncation(field_reader & in, common_params_sampling & p) {
    in.read("top_k", p.top_k, -1, INT32_MAX);
    in.read("top_p", p.top_p, 0, 1);
    in.read("min_p", p.min_p, 0, 1);
    in.read("typical_p", p.typ_p, 0, 1);
    in.read("top_n_sigma", p.top_n_sigma, -LARGE, LARGE);
    in.read("xtc_probability", p.xtc_probability, 0, 1);
    in.read("xtc_threshold", p.xtc_threshold, 0, 1);
    in.read("min_keep", p.min_keep, 0, INT32_MAX);
    in.read("mirostat", p.mirostat, 0, 2);
    in.read("mirostat_tau", p.mirostat_tau, 0, LARGE);
    in.read("mirostat_eta", p.mirostat_eta, 0, LARGE);
    in.read("adaptive_target", p.adaptive_target, -1, 1);
    in.read("adaptive_decay", p.adaptive_decay, 0, 0.99);
}

void read_penalties(field_reader & in, common_params_sampling & p) {
    in.read("repeat_last_n", p.penalty_last_n, 0, MAX_HISTORY);
    in.read("repeat_penalty", p.penalty_repeat, 1 / LARGE, LARGE);
    in.read("frequency_penalty", p.penalty_freq, -LARGE, LARGE);
    in.read("presence_penalty", p.penalty_present, -LARGE, LARGE);
    in.read("dry_multiplier", p.dry_multiplier, 0, LARGE);
    in.read("dry_base", p.dry_base, 1, LARGE);
    in.read("dry_allowed_length", p.dry_allowed_length, 0, INT32_MAX);
    in.read("dry_penalty_last_n", p.dry_penalty_last_n, 0, MAX_HISTORY);
    if (const json * value = in.take("dry_sequence_breakers")) {
        const std::string name = in.name("dry_sequence_breakers");
        if (as_array(*value, name).size() > MAX_BREAKERS) {
            throw field_error(name, "has more than " + std::to_string(MAX_BREAKERS) + " entries");
        }
        p.dry_sequence_breakers.clear();
        for (size_t i = 0; i < value->size(); ++i) {
            p.dry_sequence_breakers.push_back(as_string(value->at(i), member(name, i)));
            if (p.dry_sequence_breakers.back().empty()) {
                throw field_error(member(name, i), "is empty");
            }
        }
    }
}

void add_sampler(const std::vector<common_sampler_type> & found, const std::string & word, const std::string & field,
    common_params_sampling & p) {
    if (found.empty()) {
        throw field_error(field, "'" + word +
                                     "' is no sampler; known are penalties, dry, top_n_sigma, top_k, typ_p, top_p, "
                                     "min_p, xtc, temperature and adaptive_p");
    }
    if (found[0] == COMMON_SAMPLER_TYPE_INFILL) {
        throw field_error(field, "the infill sampler is not offered: it compares all pairs of candidates and aborts "
                                 "without an end-of-text token");
    }
    if (std::count(p.samplers.begin(), p.samplers.end(), found[0])) {
        throw field_error(field, "'" + word + "' is listed twice");
    }
    p.samplers.push_back(found[0]);
}

// Names in order, or llama-server's string of their initials.
void read_samplers(field_reader & in, common_params_sampling & p) {
    const json * value = in.take("samplers");
    if (!value) {
        return;
    }
    const std::string name = in.name("samplers");
    p.samplers.clear();
    if (value->is_string()) {
        for (const char initial : value->get<std::string>()) {
            const std::string word(1, initial);
            add_sampler(common_sampler_types_from_chars(word), word, name, p);
        }
        return;
    }
    for (size_t i = 0; i < as_array(*value, name).size(); ++i) {
        const std::string word = as_string(value->at(i), member(name, i));
        add_sampler(common_sampler_types_from_names({ word }), word, member(name, i), p);
    }
}

// ---- tokens ----

llama_token as_token(const llama_vocab * vocab, int64_t id, const std::string & field) {
    const int32_t n_vocab = llama_vocab_n_tokens(vocab);
    if (id < 0 || id >= n_vocab) {
        throw field_error(field,
            "token " + std::to_string(id) + " is outside the vocabulary (0.." + std::to_string(n_vocab - 1) + ")");
    }
    return llama_token(id);
}

// [[token, bias], ...] or {"token": bias, ...}; a token is an id or a text, a bias a number or false (never).
void read_bias(field_reader & in, const llama_vocab * vocab, common_params_sampling & p) {
    const auto bias_of = [](const json & value, const std::string & field) {
        return value.is_boolean() && !value.get<bool>() ? -INFINITY : float(as_number(value, field, -LARGE, LARGE));
    };
    const auto add_text = [&](const std::string & text, float bias) {
        for (const llama_token token : common_tokenize(vocab, text, false)) {
            p.logit_bias.push_back({ token, bias });
        }
    };
    const std::string name = in.name("logit_bias");
    if (const json * value = in.take("logit_bias")) {
        if (value->is_object()) {
            for (const auto & entry : value->items()) {
                char *        end   = nullptr;
                const int64_t id    = std::strtoll(entry.key().c_str(), &end, 10);
                const auto    field = member(name, entry.key());
                const float   bias  = bias_of(entry.value(), field);
                if (!entry.key().empty() && *end == '\0') {
                    p.logit_bias.push_back({ as_token(vocab, id, field), bias });
                } else {
                    add_text(entry.key(), bias);
                }
            }
        } else {
            for (size_t i = 0; i < as_array(*value, name).size(); ++i) {
                const json & pair = as_array(value->at(i), member(name, i));
                if (pair.size() != 2) {
                    throw field_error(member(name, i), "must be [token, bias]");
                }
                const float bias = bias_of(pair.at(1), member(member(name, i), 1));
                if (pair.at(0).is_string()) {
                    add_text(pair.at(0).get<std::string>(), bias);
                } else {
                    const auto field = member(member(name, i), size_t(0));
                    p.logit_bias.push_back(
                        { as_token(vocab, as_integer(pair.at(0), field, INT32_MIN, INT32_MAX), field), bias });
                }
            }
        }
    }
    in.read("ignore_eos", p.ignore_eos);
    if (p.ignore_eos) {
        for (llama_token token = 0; token < llama_vocab_n_tokens(vocab); ++token) {
            if (llama_vocab_is_eog(vocab, token)) {
                p.logit_bias.push_back({ token, -INFINITY });
            }
        }
    }
}

void read_preserved(field_reader & in, const llama_vocab * vocab, common_params_sampling & p) {
    if (const json * value = in.take("preserved_tokens")) {
        const std::string name = in.name("preserved_tokens");
        for (size_t i = 0; i < as_array(*value, name).size(); ++i) {
            const auto ids = common_tokenize(vocab, as_string(value->at(i), member(name, i)), false, true);
            if (ids.size() == 1) {   // others are text that needs no care
                p.preserved_tokens.insert(ids[0]);
            }
        }
    }
}

// ---- grammar ----

common_grammar_trigger read_trigger(
    const json & value, const std::string & field, const llama_vocab * vocab, const common_params_sampling & p) {
    static const std::map<std::string, common_grammar_trigger_type> types = {
        { "token", COMMON_GRAMMAR_TRIGGER_TYPE_TOKEN },
        { "word", COMMON_GRAMMAR_TRIGGER_TYPE_WORD },
        { "pattern", COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN },
        { "pattern_full", COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN_FULL },
    };
    field_reader in(value, field);
    const auto   type = types.find(as_string(in.need("type"), in.name("type")));
    if (type == types.end()) {
        throw field_error(in.name("type"), "must be \"token\", \"word\", \"pattern\" or \"pattern_full\"");
    }
    common_grammar_trigger trigger = { type->second, "" };
    if (trigger.type == COMMON_GRAMMAR_TRIGGER_TYPE_TOKEN) {
        trigger.token =
            as_token(vocab, as_integer(in.need("token"), in.name("token"), INT32_MIN, INT32_MAX), in.name("token"));
        in.read("value", trigger.value);
    } else {
        trigger.value = as_string(in.need("value"), in.name("value"));
        if (trigger.value.size() > MAX_TRIGGER) {
            throw field_error(in.name("value"), "is longer than " + std::to_string(MAX_TRIGGER) + " bytes");
        }
    }
    in.finish();

    if (trigger.type == COMMON_GRAMMAR_TRIGGER_TYPE_WORD) {
        const auto ids = common_tokenize(vocab, trigger.value, false, true);
        if (ids.size() == 1) {
            if (!p.preserved_tokens.count(ids[0])) {
                throw field_error(in.name("value"),
                    "'" + trigger.value + "' is a token of its own, so preserved_tokens must list it too");
            }
            trigger.type  = COMMON_GRAMMAR_TRIGGER_TYPE_TOKEN;
            trigger.token = ids[0];
        }
    } else if (trigger.type != COMMON_GRAMMAR_TRIGGER_TYPE_TOKEN) {
        try {
            std::regex compiled(trigger.value);
        } catch (const std::regex_error & e) {
            throw field_error(in.name("value"), std::string("is not a valid regular expression: ") + e.what());
        }
    }
    return trigger;
}

common_grammar_type read_grammar_type(field_reader & in) {
    std::string type = "user";
    in.read("grammar_type", type);
    if (type == "user") {
        return COMMON_GRAMMAR_TYPE_USER;
    }
    if (type == "output_format") {
        return COMMON_GRAMMAR_TYPE_OUTPUT_FORMAT;
    }
    if (type == "tool_calls") {
        return COMMON_GRAMMAR_TYPE_TOOL_CALLS;
    }
    throw field_error(in.name("grammar_type"), "must be \"user\", \"output_format\" or \"tool_calls\"");
}

void read_grammar(field_reader & in, const llama_vocab * vocab, common_params_sampling & p) {
    const json *              grammar = in.take("grammar");
    const json *              schema  = in.take("json_schema");
    const common_grammar_type type    = read_grammar_type(in);
    if (grammar && schema) {
        throw field_error(in.name("json_schema"), "cannot be combined with grammar: send one of them");
    }
    std::string text, source = in.name("grammar");
    if (grammar) {
        text = as_string(*grammar, source);
        if (text.empty()) {
            throw field_error(source, "is empty: leave it out for free text");
        }
        p.grammar = { type, text };
    } else if (schema) {
        source      = in.name("json_schema");
        json wanted = *schema;
        if (as_object(*schema, source).empty()) {
            wanted["type"] = "object";   // any object
        }
        try {
            text = json_schema_to_grammar(wanted);
        } catch (const std::exception & e) {
            throw field_error(source, e.what());
        }
        p.grammar = { COMMON_GRAMMAR_TYPE_OUTPUT_FORMAT, text };
    }
    if (!p.grammar.empty()) {
        try {
            check_gbnf(text);
        } catch (const std::invalid_argument & e) {
            throw field_error(source, std::string(schema ? "gives a bad grammar: " : "") + e.what());
        }
    }

    in.read("grammar_lazy", p.grammar_lazy);
    if (const json * value = in.take("grammar_triggers")) {
        const std::string name = in.name("grammar_triggers");
        for (size_t i = 0; i < as_array(*value, name).size(); ++i) {
            p.grammar_triggers.push_back(read_trigger(value->at(i), member(name, i), vocab, p));
        }
    }
    if (p.grammar_lazy && (p.grammar.empty() || p.grammar_triggers.empty())) {
        throw field_error(in.name("grammar_lazy"), "needs a grammar and at least one entry in grammar_triggers");
    }
    in.read("generation_prompt", p.generation_prompt);
}

// Without tags a budget does nothing: the model does not reason.
void read_reasoning(field_reader & in, const llama_vocab * vocab, common_params_sampling & p) {
    std::string start;
    in.read("reasoning_budget_tokens", p.reasoning_budget_tokens, -1, INT32_MAX);
    in.read("thinking_start_tag", start);
    p.reasoning_budget_start = common_tokenize(vocab, start, false, true);
    if (const json * value = in.take("thinking_end_tags")) {
        const std::string name = in.name("thinking_end_tags");
        for (size_t i = 0; i < as_array(*value, name).size(); ++i) {
            const auto tag = common_tokenize(vocab, as_string(value->at(i), member(name, i)), false, true);
            if (tag.empty()) {
                throw field_error(member(name, i), "is empty");
            }
            p.reasoning_budget_end.push_back(tag);
        }
        if (!p.reasoning_budget_end.empty()) {
            p.reasoning_budget_forced = p.reasoning_budget_end.front();
        }
    }
}

}   // namespace

common_params_sampling parse_sampling(const llama_model * model, const std::string & text) {
    const llama_vocab *    vocab = llama_model_get_vocab(model);
    common_params_sampling p;
    p.no_perf         = true;
    const json object = text.empty() ? json() : parse_json(text, "sampling");
    if (object.is_null()) {
        return p;
    }
    as_object(object, "sampling");
    field_reader in(object, "");
    read_seed(in, p);
    read_temperature(in, p);
    read_truncation(in, p);
    read_penalties(in, p);
    read_samplers(in, p);
    read_bias(in, vocab, p);
    read_preserved(in, vocab, p);
    read_grammar(in, vocab, p);
    read_reasoning(in, vocab, p);
    in.finish();
    return p;
}

// ---- sampler ----

namespace {

// The chain alone: the gate has the rest.
common_sampler_ptr make_chain(const llama_model * model, common_params_sampling params) {
    params.grammar = {};
    params.generation_prompt.clear();
    params.reasoning_budget_start.clear();
    return common_sampler_ptr(common_sampler_init(model, params));
}

// Whether a sampler of the chain leaves every candidate list as it is.
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

// Whether a sampler may only drop or rescale candidates such that the likeliest stays the likeliest.
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

// Whether all that the chain does is to bend a distribution and draw from it.
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

// Another stream than the chain's own, which has the same seed.
uint64_t random_seed(uint32_t seed) {
    if (seed == LLAMA_DEFAULT_SEED) {
        std::random_device device;
        return (uint64_t(device()) << 32) | device();
    }
    return (uint64_t(0x626c6f636b) << 32) ^ seed;   // "block"
}

constexpr int32_t MAX_SHORT_TOP_K = 1024;   // sorting more costs as much as the general way

}   // namespace

sampler::shortcut sampler::find_shortcut(const llama_vocab * vocab, const common_params_sampling & p) {
    int32_t n_suppressed = 0;
    llama_vocab_get_suppress_tokens(vocab, &n_suppressed);
    if (p.mirostat != 0 || !p.logit_bias.empty() || n_suppressed > 0) {
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
        p.top_k <= std::min(MAX_SHORT_TOP_K, llama_vocab_n_tokens(vocab))) {
        return shortcut::top_k;
    }
    return shortcut::none;
}

sampler::sampler(const llama_model * model, common_params_sampling params) :
    vocab_(llama_model_get_vocab(model)), top_k_(params.top_k), shortcut_(find_shortcut(vocab_, params)),
    gate_(vocab_, params), chain_(make_chain(model, params)), gives_distribution_(gate_.open() && draws_once(params)),
    shape_(shape_of(params)), random_(random_seed(params.seed)) {}

// A grammar seldom refuses what the model wants: it is asked about the sampled token first, about all only if it
// refuses.
llama_token sampler::sample(const float * logits) {
    row_.scan(logits, llama_vocab_n_tokens(vocab_));
    llama_token token = gate_.forces() ? LLAMA_TOKEN_NULL : sample_short(logits);
    if (token == LLAMA_TOKEN_NULL) {
        token = sample_all(logits, false);
    }
    return gate_.allows(token) ? token : sample_all(logits, true);
}

namespace {

const float * logits_of(llama_context * ctx, int32_t i) {
    const float * logits = llama_get_logits_ith(ctx, i);
    if (!logits) {
        throw std::runtime_error("row " + std::to_string(i) + " has no logits");
    }
    return logits;
}

}   // namespace

llama_token sampler::sample(llama_context * ctx, int32_t i) { return sample(logits_of(ctx, i)); }

// Equal logits are left to the general way: how llama.cpp orders them depends on its partial sort.
llama_token sampler::sample_short(const float * logits) {
    switch (shortcut_) {
        case shortcut::greedy: return row_.argmax();
        case shortcut::top_k: return row_.top(top_k_, candidates_) ? run_chain(true) : LLAMA_TOKEN_NULL;
        default: return LLAMA_TOKEN_NULL;
    }
}

void sampler::list_all(const float * logits) {
    candidates_.resize(llama_vocab_n_tokens(vocab_));
    for (llama_token token = 0; token < llama_token(candidates_.size()); ++token) {
        candidates_[token] = { token, logits[token], 0.0f };
    }
}

llama_token sampler::sample_all(const float * logits, bool with_grammar) {
    list_all(logits);
    llama_token_data_array all = { candidates_.data(), candidates_.size(), -1, false };
    gate_.mask(&all, with_grammar);
    return run_chain(false);
}

namespace {

const llama_token_data & likeliest(const llama_token_data_array & all) {
    const auto best = std::max_element(all.data, all.data + all.size,
        [](const llama_token_data & a, const llama_token_data & b) { return a.logit < b.logit; });
    if (all.size == 0 || !(best->logit > -INFINITY)) {
        throw std::runtime_error(
            "no token is left to sample: grammar, logit_bias and ignore_eos together forbid all of them");
    }
    return *best;
}

}   // namespace

llama_token sampler::run_chain(bool sorted) {
    llama_token_data_array all = { candidates_.data(), candidates_.size(), -1, sorted };
    llama_sampler_apply(common_sampler_get(chain_.get()), &all);
    const auto lost = [](const llama_token_data & c) { return !(c.logit > -INFINITY) || std::isnan(c.p); };
    if (all.selected >= 0 && !lost(all.data[all.selected])) {
        return all.data[all.selected].id;
    }
    // A dynamic temperature next to 0 overflows: its limit is the likeliest candidate.
    return likeliest(all).id;
}

void sampler::accept(llama_token token) {
    gate_.accept(token);
    llama_sampler_accept(common_sampler_get(chain_.get()), token);
}

void sampler::accept_prompt(llama_token token) { llama_sampler_accept(common_sampler_get(chain_.get()), token); }

// ---- block verification ----

// Copies of the single samplers, not of the common_sampler, whose copy keeps pointers into the original.
sampler::ahead::ahead(sampler & of) : of_(of) {
    llama_sampler * chain = common_sampler_get(of.chain_.get());
    for (int32_t i = 0; i + 1 < llama_sampler_chain_n(chain); ++i) {
        chain_.emplace_back(llama_sampler_clone(llama_sampler_chain_get(chain, i)));
    }
}

const std::vector<token_prob> & sampler::ahead::distribution(const float * logits) {
    of_.row_.scan(logits, llama_vocab_n_tokens(of_.vocab_));
    const bool sorted = of_.shortcut_ == shortcut::top_k && of_.row_.top(of_.top_k_, of_.candidates_);
    if (!sorted) {
        of_.list_all(logits);
    }
    llama_token_data_array all = { of_.candidates_.data(), of_.candidates_.size(), -1, sorted };
    for (const llama_sampler_ptr & one : chain_) {
        llama_sampler_apply(one.get(), &all);
    }

    // As llama.cpp's last sampler: float exponentials, their sum in double.
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
        found_ = { { best.id, 1.0 } };   // an overflow, as in run_chain()
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
    const std::function<bool(int32_t)> & ends) {
    sampler::ahead     ahead(s);
    const block_result block = block_accept(
        chain,
        [&](int32_t i) -> const std::vector<token_prob> & {
            if (i > 0) {
                ahead.accept(chain.tokens[i - 1]);
            }
            return ahead.distribution(ctx, first_row + i);
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
