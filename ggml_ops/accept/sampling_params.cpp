#include "accept/sampling_params.h"

#include "accept/format_patterns.h"
#include "base/json_fields.h"
#include "base/tokenize.h"
#include "grammar/gbnf.h"
#include "schema/chat_schema.h"

#include "common/sampling.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <utility>

namespace dflash {

namespace {

constexpr double  LARGE            = 1e6;       // keeps every product of parameters finite
constexpr int32_t MAX_HISTORY      = 1 << 20;   // tokens that a penalty looks back; their memory is reserved at once
constexpr size_t  MAX_BREAKERS     = 16;        // each searches the whole vocabulary
constexpr int32_t MAX_INFILL       = 256;       // candidates of the infill sampler, which compares all pairs
constexpr int32_t MAX_INFILL_PIECE = 512;       // bytes of a token that it can compare
constexpr size_t  MAX_TRIGGER      = 1024;      // bytes
constexpr size_t  MAX_TRIGGERS     = 4096;      // each word is searched for after every token
constexpr size_t  MAX_MESSAGE      = 4096;      // bytes of the message that ends reasoning
constexpr double  MIN_TEMPERATURE  = 1e-30;     // dividing logits by less overflows

// ---- numbers ----

using llama_params                   = common_params_sampling;
template <class T> using llama_param = T llama_params::*;

// A numeric field: where llama.cpp stores it, and its range. Bounds are inclusive.
struct number_field {
    const char *         name;
    llama_param<float>   real;   // one of the two is null
    llama_param<int32_t> whole;
    double               low, high;
    double               least_positive = 0;   // smallest value allowed above 0
};

// Within what llama.cpp accepts (common/arg.cpp, common/sampling.cpp). A new field also needs dflash_local/sampling.py,
// which has the same list, and keywords.py beside it (tests compare them), and accept/sampling.cpp if it changes a
// shortcut.
constexpr number_field NUMBERS[] = {
    { "temperature", &llama_params::temp, nullptr, 0, LARGE, MIN_TEMPERATURE },
    { "dynatemp_range", &llama_params::dynatemp_range, nullptr, 0, LARGE },
    { "dynatemp_exponent", &llama_params::dynatemp_exponent, nullptr, 0, LARGE },
    { "top_k", nullptr, &llama_params::top_k, -1, INT32_MAX },
    { "top_p", &llama_params::top_p, nullptr, 0, 1 },
    { "min_p", &llama_params::min_p, nullptr, 0, 1 },
    { "typical_p", &llama_params::typ_p, nullptr, 0, 1 },
    { "top_n_sigma", &llama_params::top_n_sigma, nullptr, -LARGE, LARGE },
    { "xtc_probability", &llama_params::xtc_probability, nullptr, 0, 1 },
    { "xtc_threshold", &llama_params::xtc_threshold, nullptr, 0, 1 },
    { "min_keep", nullptr, &llama_params::min_keep, 0, INT32_MAX },
    { "mirostat", nullptr, &llama_params::mirostat, 0, 2 },
    { "mirostat_tau", &llama_params::mirostat_tau, nullptr, 0, LARGE },
    { "mirostat_eta", &llama_params::mirostat_eta, nullptr, 0, LARGE },
    { "adaptive_target", &llama_params::adaptive_target, nullptr, -1, 1 },
    { "adaptive_decay", &llama_params::adaptive_decay, nullptr, 0, 0.99 },
    { "repeat_last_n", nullptr, &llama_params::penalty_last_n, 0, MAX_HISTORY },
    { "repeat_penalty", &llama_params::penalty_repeat, nullptr, 1 / LARGE, LARGE },   // its reciprocal must be finite
    { "frequency_penalty", &llama_params::penalty_freq, nullptr, -LARGE, LARGE },
    { "presence_penalty", &llama_params::penalty_present, nullptr, -LARGE, LARGE },
    { "dry_multiplier", &llama_params::dry_multiplier, nullptr, 0, LARGE },
    { "dry_base", &llama_params::dry_base, nullptr, 1, LARGE },   // DRY does nothing below 1
    { "dry_allowed_length", nullptr, &llama_params::dry_allowed_length, 0, INT32_MAX },
    { "dry_penalty_last_n", nullptr, &llama_params::dry_penalty_last_n, 0, MAX_HISTORY },
    { "reasoning_budget_tokens", nullptr, &llama_params::reasoning_budget_tokens, -1, INT32_MAX },
};

constexpr int64_t MIN_SEED = -1, MAX_SEED = UINT32_MAX;   // -1: random

// The fields that are not numbers, in reading order.
constexpr struct {
    const char *name, *type;
} OTHERS[] = { { "dry_sequence_breakers", "json" }, { "samplers", "json" }, { "logit_bias", "json" },
    { "ignore_eos", "boolean" }, { "preserved_tokens", "json" }, { "grammar", "string" }, { "json_schema", "json" },
    { "grammar_type", "string" }, { "grammar_lazy", "boolean" }, { "grammar_triggers", "json" },
    { "generation_prompt", "string" }, { "thinking_start_tag", "string" }, { "thinking_end_tags", "json" },
    { "reasoning_budget_message", "string" } };

void read_numbers(field_reader & in, common_params_sampling & p) {
    if (const json * value = in.take("seed")) {
        const int64_t seed = as_integer(*value, in.name("seed"), MIN_SEED, MAX_SEED);
        p.seed             = seed < 0 ? LLAMA_DEFAULT_SEED : uint32_t(seed);
    }
    for (const number_field & field : NUMBERS) {
        if (field.real) {
            in.read(field.name, p.*field.real, field.low, field.high);
            refuse_field_if(p.*field.real > 0 && p.*field.real < float(field.least_positive), in.name(field.name),
                "is too small: use 0");
        } else {
            in.read(field.name, p.*field.whole, int64_t(field.low), int64_t(field.high));
        }
    }
}

void read_breakers(field_reader & in, common_params_sampling & p) {
    std::vector<std::string> breakers;
    const auto               read = [&](const json & value, const std::string & name) {
        breakers.push_back(as_string(value, name));
        refuse_field_if(breakers.back().empty(), name, "is empty");
    };
    if (in.read_each("dry_sequence_breakers", MAX_BREAKERS, read)) {
        p.dry_sequence_breakers = std::move(breakers);
    }
}

void add_sampler(const std::vector<common_sampler_type> & found, const std::string & word, const std::string & field,
    common_params_sampling & p) {
    refuse_field_if(found.empty(), field, "'", word,
        "' is no sampler; known are penalties, dry, top_n_sigma, top_k, typ_p, top_p, "
        "min_p, xtc, temperature, adaptive_p and infill");
    refuse_field_if(std::count(p.samplers.begin(), p.samplers.end(), found[0]), field, "'", word, "' is listed twice");
    p.samplers.push_back(found[0]);
}

// llama.cpp's infill sampler aborts if no token can end a text, whatever the logits are, and it compares all pairs of
// candidates. So it is only allowed as FIM editors use it: to choose among a few candidates.
void check_infill(const llama_vocab * vocab, const std::string & field, const common_params_sampling & p) {
    const auto infill = std::find(p.samplers.begin(), p.samplers.end(), COMMON_SAMPLER_TYPE_INFILL);
    if (infill == p.samplers.end() || p.mirostat != 0) {
        return;
    }
    const llama_token end =
        llama_vocab_eot(vocab) == LLAMA_TOKEN_NULL ? llama_vocab_eos(vocab) : llama_vocab_eot(vocab);
    refuse_field_if(end == LLAMA_TOKEN_NULL, field, "has infill, but this model has no token that ends a text");
    if (std::any_of(p.logit_bias.begin(), p.logit_bias.end(),
            [&](const llama_logit_bias & b) { return b.token == end && b.bias == -INFINITY; })) {
        throw field_error(
            field, "has infill, which ends texts by itself: leave ignore_eos and the ban of token ", end, " out");
    }
    refuse_field_if(std::find(p.samplers.begin(), infill, COMMON_SAMPLER_TYPE_TOP_K) == infill || p.top_k < 1 ||
                        std::max(p.top_k, p.min_keep) > MAX_INFILL,
        field,
        "has infill, which compares all pairs of candidates: let top_k come before it, with a "
        "top_k from 1 to ",
        MAX_INFILL, " and a min_keep of no more");
    std::vector<char> piece(MAX_INFILL_PIECE);
    for (llama_token token = 0; token < llama_vocab_n_tokens(vocab); ++token) {
        refuse_field_if(llama_token_to_piece(vocab, token, piece.data(), MAX_INFILL_PIECE, 0, false) < 0, field,
            "has infill, but this model has tokens of more than ", MAX_INFILL_PIECE, " bytes");
    }
}

// A list of names, or llama-server's string of initials.
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
    each_element(as_array(*value, name), name, [&](const json & one, const std::string & field) {
        const std::string word = as_string(one, field);
        add_sampler(common_sampler_types_from_names({ word }), word, field, p);
    });
}

// ---- tokens ----

llama_token as_token(const llama_vocab * vocab, int64_t id, const std::string & field) {
    const int32_t n_vocab = llama_vocab_n_tokens(vocab);
    refuse_field_if(id < 0 || id >= n_vocab, field, "token ", id, " is outside the vocabulary (0..", n_vocab - 1, ")");
    return llama_token(id);
}

llama_token as_token(const llama_vocab * vocab, const json & id, const std::string & field) {
    return as_token(vocab, as_integer(id, field, INT32_MIN, INT32_MAX), field);
}

// [[token, bias], ...] or {"token": bias, ...}. A token is an id or a text (a key of digits alone is an id), a bias is
// a number or false (never).
void read_bias(field_reader & in, const llama_vocab * vocab, common_params_sampling & p) {
    const auto bias_of = [](const json & value, const std::string & field) {
        return value.is_boolean() && !value.get<bool>() ? -INFINITY : float(as_number(value, field, -LARGE, LARGE));
    };
    const auto add_text = [&](const std::string & text, float bias) {
        for (const llama_token token : tokenize(vocab, text, false)) {
            p.logit_bias.push_back({ token, bias });
        }
    };
    const std::string name  = in.name("logit_bias");
    const json *      value = in.take("logit_bias");
    if (value && value->is_object()) {
        for (const auto & entry : value->items()) {
            const std::string & key   = entry.key();
            const std::string   field = member(name, key);
            const float         bias  = bias_of(entry.value(), field);
            if (!key.empty() && key.find_first_not_of("0123456789") == std::string::npos) {
                p.logit_bias.push_back({ as_token(vocab, std::strtoll(key.c_str(), nullptr, 10), field), bias });
            } else {
                add_text(key, bias);
            }
        }
    } else if (value) {
        each_element(as_array(*value, name), name, [&](const json & pair, const std::string & field) {
            refuse_field_if(as_array(pair, field).size() != 2, field, "must be [token, bias]");
            const float bias = bias_of(pair.at(1), member(field, 1));
            if (pair.at(0).is_string()) {
                add_text(pair.at(0).get<std::string>(), bias);
            } else {
                p.logit_bias.push_back({ as_token(vocab, pair.at(0), member(field, size_t(0))), bias });
            }
        });
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
    in.read_each("preserved_tokens", [&](const json & value, const std::string & name) {
        const auto ids = tokenize(vocab, as_string(value, name), false, true);
        if (ids.size() == 1) {   // the rest is ordinary text
            p.preserved_tokens.insert(ids[0]);
        }
    });
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
    const auto   type = types.find(in.need_string("type"));
    refuse_field_if(
        type == types.end(), in.name("type"), "must be \"token\", \"word\", \"pattern\" or \"pattern_full\"");
    common_grammar_trigger trigger = { type->second, "" };
    if (trigger.type == COMMON_GRAMMAR_TRIGGER_TYPE_TOKEN) {
        trigger.token = as_token(vocab, in.need("token"), in.name("token"));
        in.read("value", trigger.value);
    } else {
        trigger.value = in.need_string("value");
        refuse_field_if(trigger.value.empty(), in.name("value"), "is empty");
        refuse_field_if(trigger.value.size() > MAX_TRIGGER, in.name("value"), "is longer than ", MAX_TRIGGER, " bytes");
    }
    in.finish();

    if (trigger.type == COMMON_GRAMMAR_TRIGGER_TYPE_WORD) {
        const auto ids = tokenize(vocab, trigger.value, false, true);
        if (ids.size() == 1) {
            refuse_field_if(!p.preserved_tokens.count(ids[0]), in.name("value"), "'", trigger.value,
                "' is a token of its own, so preserved_tokens must list it too");
            trigger.type  = COMMON_GRAMMAR_TRIGGER_TYPE_TOKEN;
            trigger.token = ids[0];
        }
    } else if (trigger.type != COMMON_GRAMMAR_TRIGGER_TYPE_TOKEN && !is_format_pattern(trigger.value)) {
        throw field_error(in.name("type"), "must be \"word\" or \"token\": only the patterns of llama.cpp's own chat "
                                           "formats are run, as others may take for ever");
    }
    return trigger;
}

common_grammar_type read_grammar_type(field_reader & in) {
    static const std::map<std::string, common_grammar_type> types = { { "user", COMMON_GRAMMAR_TYPE_USER },
        { "output_format", COMMON_GRAMMAR_TYPE_OUTPUT_FORMAT }, { "tool_calls", COMMON_GRAMMAR_TYPE_TOOL_CALLS } };
    std::string                                             name  = "user";
    in.read("grammar_type", name);
    const auto type = types.find(name);
    refuse_field_if(
        type == types.end(), in.name("grammar_type"), "must be \"user\", \"output_format\" or \"tool_calls\"");
    return type->second;
}

void read_grammar(field_reader & in, const llama_vocab * vocab, common_params_sampling & p) {
    const json *              grammar = in.take("grammar");
    const json *              schema  = in.take("json_schema");
    const common_grammar_type type    = read_grammar_type(in);
    std::string               text, source = in.name("grammar");
    if (grammar) {
        text = as_string(*grammar, source);   // empty: unconstrained, as in llama-server
    }
    refuse_field_if(
        !text.empty() && schema, in.name("json_schema"), "cannot be combined with grammar: send one of them");
    if (!text.empty()) {
        p.grammar = { type, text };
    } else if (schema) {
        source      = in.name("json_schema");
        json wanted = *schema;
        if (as_object(*schema, source).empty()) {
            wanted["type"] = "object";   // any object
        }
        text      = grammar_of_schema(wanted, source);   // dflash_schema_ignored() reports what it does not enforce
        p.grammar = { COMMON_GRAMMAR_TYPE_OUTPUT_FORMAT, text };
    }
    if (!p.grammar.empty()) {
        try {
            check_gbnf(text);
        } catch (const std::invalid_argument & e) {
            throw field_error(source, schema ? "gives a bad grammar: " : "", e.what());
        }
    }

    in.read("grammar_lazy", p.grammar_lazy);
    in.read_each("grammar_triggers", MAX_TRIGGERS, [&](const json & value, const std::string & name) {
        p.grammar_triggers.push_back(read_trigger(value, name, vocab, p));
    });
    refuse_field_if(p.grammar_lazy && (p.grammar.empty() || p.grammar_triggers.empty()), in.name("grammar_lazy"),
        "needs a grammar and at least one entry in grammar_triggers");
    in.read("generation_prompt", p.generation_prompt);
}

// Without tags the budget has no effect: the model does not reason.
void read_reasoning(field_reader & in, const llama_vocab * vocab, common_params_sampling & p) {
    std::string start;
    in.read("thinking_start_tag", start);
    p.reasoning_budget_start = tokenize(vocab, start, false, true);
    in.read("reasoning_budget_message", p.reasoning_budget_message);
    refuse_field_if(p.reasoning_budget_message.size() > MAX_MESSAGE, in.name("reasoning_budget_message"),
        "is longer than ", MAX_MESSAGE, " bytes");
    in.read_each("thinking_end_tags", [&](const json & value, const std::string & name) {
        const std::string text = as_string(value, name);
        const auto        tag  = tokenize(vocab, text, false, true);
        refuse_field_if(tag.empty(), name, "is empty");
        refuse_field_if(p.reasoning_budget_message.find(text) != std::string::npos, in.name("reasoning_budget_message"),
            "contains ", text, ", which ends the reasoning: leave it out (the end is written by itself)");
        p.reasoning_budget_end.push_back(tag);
    });
    if (!p.reasoning_budget_end.empty()) {
        const llama_tokens & end  = p.reasoning_budget_end.front();
        p.reasoning_budget_forced = tokenize(vocab, p.reasoning_budget_message, false, false);
        p.reasoning_budget_forced.insert(p.reasoning_budget_forced.end(), end.begin(), end.end());
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
    read_numbers(in, p);
    read_breakers(in, p);
    read_samplers(in, p);
    read_bias(in, vocab, p);
    check_infill(vocab, in.name("samplers"), p);
    read_preserved(in, vocab, p);
    read_grammar(in, vocab, p);
    read_reasoning(in, vocab, p);
    in.finish();
    return p;
}

std::string sampling_fields() {
    const common_params_sampling defaults;
    json                         fields = json::array();
    fields.push_back({ { "name", "seed" }, { "type", "integer" }, { "default", nullptr }, { "low", MIN_SEED },
        { "high", MAX_SEED } });
    for (const number_field & field : NUMBERS) {
        json entry = { { "name", field.name } };
        if (field.real) {
            entry["type"]    = "number";
            entry["default"] = defaults.*field.real;
            entry["low"]     = field.low;
            entry["high"]    = field.high;
            if (field.least_positive > 0) {
                entry["least_positive"] = field.least_positive;
            }
        } else {
            entry["type"]    = "integer";
            entry["default"] = defaults.*field.whole;
            entry["low"]     = int64_t(field.low);
            entry["high"]    = int64_t(field.high);
        }
        fields.push_back(entry);
    }
    for (const auto & field : OTHERS) {
        json entry       = { { "name", field.name }, { "type", field.type } };
        entry["default"] = nullptr;
        if (std::string(field.type) == "boolean") {
            entry["default"] = false;
        }
        fields.push_back(entry);
    }
    return fields.dump();
}

}   // namespace dflash
