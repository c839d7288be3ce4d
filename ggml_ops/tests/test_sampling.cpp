// Proof that dflash::sampler samples as llama.cpp's common_sampler_sample(): the same tokens for the same logits, seed and
// parameters, shortcuts or not, and through grammars and reasoning budgets.
//
//   test_sampling MODEL.gguf [draws per case]
//
// The model lends its vocabulary and one output row, which random logits replace.

#include "sampling.h"

#include <cstdio>
#include <cstdlib>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

// Rows of the kinds that matter: smooth, peaked, full of equal values, mostly masked.
enum class kind { smooth, peaked, equal, masked };

void fill(float * row, int32_t n, kind k, std::mt19937 & rng) {
    std::normal_distribution<float> noise(0.0f, 3.0f);
    for (int32_t i = 0; i < n; ++i) {
        row[i] = noise(rng);
        if (k == kind::equal) {
            row[i] = float(int(row[i]));
        } else if (k == kind::masked && i % 7) {
            row[i] = -INFINITY;
        }
    }
    if (k == kind::peaked) {
        row[rng() % n] += 25.0f;
    }
}

struct model_row {
    llama_model_ptr   model;
    llama_context_ptr ctx;
    float *           logits;
    int32_t           n_vocab;

    explicit model_row(const char * path) {
        llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
        llama_backend_init();
        model.reset(llama_model_load_from_file(path, llama_model_default_params()));
        if (!model) {
            throw std::runtime_error(std::string("cannot load ") + path);
        }
        llama_context_params params = llama_context_default_params();
        params.n_ctx = 64;
        ctx.reset(llama_init_from_model(model.get(), params));
        llama_token token = 0;
        if (!ctx || llama_decode(ctx.get(), llama_batch_get_one(&token, 1)) != 0) {
            throw std::runtime_error("the first pass failed");
        }
        logits  = llama_get_logits_ith(ctx.get(), -1);
        n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model.get()));
    }
};

// Tokens sampled alike before one ends the text or the grammar; throws at the first difference.
int32_t compare(model_row & at, const std::string & fields, kind k, uint32_t seed, int32_t draws) {
    common_params_sampling params = dflash::parse_sampling(at.model.get(), fields);
    params.seed = seed;
    common_sampler_ptr theirs(common_sampler_init(at.model.get(), params));
    dflash::sampler    ours(at.model.get(), params);
    std::mt19937       rng(seed);
    for (const llama_token prompt : { 5, 6, 7, 5, 6, 7 }) {
        common_sampler_accept(theirs.get(), prompt, false);
        ours.accept_prompt(prompt);
    }
    const llama_vocab * vocab = llama_model_get_vocab(at.model.get());
    for (int32_t i = 0; i < draws; ++i) {
        fill(at.logits, at.n_vocab, k, rng);
        const llama_token expected = common_sampler_sample(theirs.get(), at.ctx.get(), -1);
        const llama_token got      = ours.sample(at.ctx.get(), -1);
        if (got != expected) {
            throw std::runtime_error("draw " + std::to_string(i) + ", seed " + std::to_string(seed) + ", rows " + std::to_string(int(k)) + ", " + fields +
                ": " + std::to_string(got) + " instead of " + std::to_string(expected));
        }
        if (llama_vocab_is_eog(vocab, got)) {
            return i + 1;
        }
        common_sampler_accept(theirs.get(), expected, true);
        ours.accept(got);
    }
    return draws;
}

const std::vector<std::string> CASES = {
    R"({})",
    R"({"temperature": 0})",
    R"({"temperature": 0, "top_k": 0, "top_p": 1, "min_p": 0})",
    R"({"temperature": 0, "samplers": ["temperature"]})",
    R"({"temperature": 0, "samplers": ["temperature", "top_k", "min_p"]})",
    R"({"temperature": 0, "samplers": ["top_k"]})",
    R"({"temperature": 0, "repeat_penalty": 1.3})",
    R"({"temperature": 0, "xtc_probability": 0.5, "xtc_threshold": 0.05})",
    R"({"temperature": 0, "typical_p": 0.5})",
    R"({"temperature": 0, "top_n_sigma": 1})",
    R"({"temperature": 0, "ignore_eos": true})",
    R"({"temperature": 1})",
    R"({"temperature": 1, "top_k": 1})",
    R"({"temperature": 1, "top_k": 3, "top_p": 1, "min_p": 0})",
    R"({"temperature": 1.5, "top_k": 200})",
    R"({"temperature": 1, "top_k": 1000000})",
    R"({"temperature": 1, "top_k": 0})",
    R"({"temperature": 1, "top_k": 0, "top_p": 1, "min_p": 0})",
    R"({"temperature": 1, "top_k": 20, "typical_p": 0.7, "min_keep": 2})",
    R"({"temperature": 1, "top_n_sigma": 1.5})",
    R"({"temperature": 1, "dynatemp_range": 0.5, "dynatemp_exponent": 2})",
    R"({"temperature": 1, "xtc_probability": 0.5, "xtc_threshold": 0.02})",
    R"({"temperature": 1, "repeat_penalty": 1.2, "frequency_penalty": 0.3, "presence_penalty": -0.1, "repeat_last_n": 8})",
    R"({"temperature": 1, "dry_multiplier": 0.8, "dry_allowed_length": 1, "dry_sequence_breakers": ["\n"]})",
    R"({"temperature": 1, "mirostat": 1})",
    R"({"temperature": 1, "mirostat": 2, "mirostat_tau": 3})",
    R"({"temperature": 1, "samplers": []})",
    R"({"temperature": 1, "samplers": ["top_k", "top_p"], "top_k": 50})",
    R"({"temperature": 1, "samplers": ["min_p", "top_k", "temperature"]})",
    R"({"temperature": 1, "samplers": ["top_k", "adaptive_p"], "adaptive_target": 0.3})",
    R"({"temperature": 1, "logit_bias": [[3, 5.5], [4, false]]})",
    R"({"temperature": 1, "grammar": "root ::= [a-z ]+"})",
    R"({"temperature": 0, "grammar": "root ::= [a-z ]+"})",
    R"({"temperature": 0.7, "json_schema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}})",
    R"({"temperature": 1, "top_k": 5, "grammar": "root ::= (\"yes\" | \"no\") \" \" root | \"ok\""})",
    R"({"temperature": 1, "grammar": "root ::= \"e\" [a-z]+", "grammar_lazy": true, "grammar_triggers": [{"type": "word", "value": "e"}], "preserved_tokens": ["e"]})",
    R"({"temperature": 1, "grammar": "root ::= [aeiou] [a-z]+", "grammar_lazy": true, "grammar_triggers": [{"type": "pattern", "value": "[aeiou]"}]})",
    R"({"temperature": 1, "grammar": "root ::= [aeiou] [a-z]+", "grammar_lazy": true, "grammar_triggers": [{"type": "pattern_full", "value": ".*[aeiou].*"}],
        "reasoning_budget_tokens": 5, "thinking_start_tag": "t", "thinking_end_tags": ["end"], "generation_prompt": "t"})",
    R"({"temperature": 0, "reasoning_budget_tokens": 3, "thinking_start_tag": "t", "thinking_end_tags": ["end"], "generation_prompt": "t"})",
    R"({"temperature": 1, "grammar": "root ::= \"ab\" [a-z]+", "grammar_type": "output_format", "generation_prompt": "ab"})",
};

void expect_error(model_row & at, const char * what, float bad, bool everywhere) {
    std::mt19937 rng(1);
    fill(at.logits, at.n_vocab, kind::smooth, rng);
    for (int32_t i = everywhere ? 0 : at.n_vocab / 2; i < (everywhere ? at.n_vocab : at.n_vocab / 2 + 1); ++i) {
        at.logits[i] = bad;
    }
    try {
        dflash::sampler(at.model.get(), dflash::parse_sampling(at.model.get(), "")).sample(at.logits);
    } catch (const std::runtime_error &) {
        return;
    }
    throw std::runtime_error(std::string("a row with ") + what + " was sampled");
}

}  // namespace

int main(int argc, char ** argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: %s MODEL.gguf [draws per case]\n", argv[0]);
        return 2;
    }
    const int32_t draws = argc > 2 ? std::atoi(argv[2]) : 40;
    try {
        model_row at(argv[1]);
        int64_t total = 0;
        for (const std::string & fields : CASES) {
            int64_t compared = 0;
            const bool constrained = fields.find("grammar") != std::string::npos || fields.find("json_schema") != std::string::npos || fields.find("budget") != std::string::npos;
            for (const kind k : { kind::smooth, kind::peaked, kind::equal, kind::masked }) {
                if (constrained && k == kind::masked) {
                    continue;   // what the grammar or the budget wants may be masked
                }
                for (uint32_t seed = 1; seed <= 4; ++seed) {
                    compared += compare(at, fields, k, seed, draws);
                }
            }
            std::printf("%6lld  %s\n", (long long) compared, fields.c_str());
            total += compared;
        }
        expect_error(at, "a NaN", NAN, false);
        expect_error(at, "an infinity", INFINITY, false);
        expect_error(at, "only NaN", NAN, true);
        expect_error(at, "only -inf", -INFINITY, true);
        std::printf("%6lld draws agree\n", (long long) total);
    } catch (const std::exception & e) {
        std::fprintf(stderr, "FAILED: %s\n", e.what());
        return 1;
    }
    return 0;
}
