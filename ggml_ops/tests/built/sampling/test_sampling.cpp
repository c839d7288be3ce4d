// dflash::sampler samples exactly like llama.cpp's common_sampler_sample(): the same tokens for the same logits, seed
// and parameters, with and without shortcuts, and with grammars and reasoning budgets. The distribution that it gives
// for block verification is the one that common_sampler_sample() draws from, also for tokens ahead.
//
//   test_sampling MODEL.gguf [draws per case]
//
// Only the model's vocabulary and one output row are used; random logits replace the row.

#include "accept/format_patterns.h"
#include "accept/sampling.h"
#include "accept/sampling_params.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

// The relevant kinds of rows: smooth, peaked, with many equal values, mostly masked.
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
        params.n_ctx                = 64;
        ctx.reset(llama_init_from_model(model.get(), params));
        llama_token token = 0;
        if (!ctx || llama_decode(ctx.get(), llama_batch_get_one(&token, 1)) != 0) {
            throw std::runtime_error("the first pass failed");
        }
        logits  = llama_get_logits_ith(ctx.get(), -1);
        n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model.get()));
    }
};

// Number of equal samples until one ends the text or the grammar; throws at the first difference.
int32_t compare(model_row & at, const std::string & fields, kind k, uint32_t seed, int32_t draws) {
    common_params_sampling params = dflash::parse_sampling(at.model.get(), fields);
    params.seed                   = seed;
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
            throw std::runtime_error("draw " + std::to_string(i) + ", seed " + std::to_string(seed) + ", rows " +
                                     std::to_string(int(k)) + ", " + fields + ": " + std::to_string(got) +
                                     " instead of " + std::to_string(expected));
        }
        if (llama_vocab_is_eog(vocab, got)) {
            return i + 1;
        }
        common_sampler_accept(theirs.get(), expected, true);
        ours.accept(got);
    }
    return draws;
}

// A third of the first tokens may not be sampled, so many of the likeliest.
std::string with_bans(const std::string & fields) {
    std::string bans;
    for (int32_t token = 1; token < 900; token += 3) {
        bans += (bans.empty() ? "[" : ", [") + std::to_string(token) + ", false]";
    }
    return "{" + fields + R"(, "logit_bias": [)" + bans + "]}";
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
    R"({"temperature": 1, "ignore_eos": true})",
    R"({"temperature": 1, "ignore_eos": true, "top_k": 1, "logit_bias": [[4, false], [4, false]]})",
    with_bans(R"("temperature": 0)"),
    with_bans(R"("temperature": 1)"),
    with_bans(R"("temperature": 1, "top_k": 3, "grammar": "root ::= [a-z ]+")"),
    with_bans(R"("temperature": 1, "top_k": 720)"),
    R"({"temperature": 1, "grammar": "root ::= [a-z ]+"})",
    R"({"temperature": 0, "grammar": "root ::= [a-z ]+"})",
    R"({"temperature": 0.7, "json_schema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}})",
    R"({"temperature": 1, "top_k": 5, "grammar": "root ::= (\"yes\" | \"no\") \" \" root | \"ok\""})",
    R"({"temperature": 1, "grammar": "root ::= \"e\" [a-z]+", "grammar_lazy": true, "grammar_triggers": [{"type": "word", "value": "e"}], "preserved_tokens": ["e"]})",
    R"({"temperature": 1, "grammar": "root ::= [aeiou] [a-z]+", "grammar_lazy": true, "grammar_triggers": [{"type": "pattern", "value": "[aeiou]"}]})",
    R"({"temperature": 1, "grammar": "root ::= [aeiou] [a-z]+", "grammar_lazy": true, "grammar_triggers": [{"type": "pattern_full", "value": ".*[aeiou].*"}],
        "reasoning_budget_tokens": 5, "thinking_start_tag": "t", "thinking_end_tags": ["end"], "generation_prompt": "t"})",
    R"({"temperature": 1, "grammar": "root ::= [a-z]+ \" \" [a-z]+", "grammar_lazy": true, "grammar_triggers": [{"type": "word", "value": "ing"}, {"type": "word", "value": "er"}, {"type": "word", "value": "s t"}], "preserved_tokens": ["ing", "er"]})",
    R"({"temperature": 1, "grammar": "root ::= [a-z]+ \" \" [a-z]+", "grammar_lazy": true, "grammar_triggers": [{"type": "pattern", "value": "[A-Z][^a]*([bcd]) ?"}, {"type": "pattern", "value": "^\\s+to$"}]})",
    R"({"temperature": 0, "reasoning_budget_tokens": 3, "thinking_start_tag": "t", "thinking_end_tags": ["end"], "generation_prompt": "t"})",
    R"({"temperature": 1, "grammar": "root ::= \"ab\" [a-z]+", "grammar_type": "output_format", "generation_prompt": "ab"})",
};

bool draws_from_a_distribution(const std::string & fields) {
    for (const char * word : { R"("temperature": 0,)", R"("temperature": 0})", "grammar", "schema", "budget",
             "mirostat", "adaptive", "xtc" }) {
        if (fields.find(word) != std::string::npos) {
            return false;
        }
    }
    return true;
}

void expect(bool holds, const std::string & what) {
    if (!holds) {
        throw std::runtime_error(what);
    }
}

// Looks `n` tokens ahead and compares with common_sampler after as many real tokens; looking ahead must not change the
// sampler.
void compare_distributions(model_row & at, const std::string & fields, kind k, uint32_t seed, int32_t n) {
    common_params_sampling params = dflash::parse_sampling(at.model.get(), fields);
    params.seed                   = seed;
    common_sampler_ptr theirs(common_sampler_init(at.model.get(), params));
    dflash::sampler    ours(at.model.get(), params);
    expect(
        ours.gives_distribution() == draws_from_a_distribution(fields), "gives_distribution() is wrong for " + fields);
    if (!ours.gives_distribution()) {
        return;
    }
    for (const llama_token prompt : { 5, 6, 7, 5, 6, 7 }) {
        common_sampler_accept(theirs.get(), prompt, false);
        ours.accept_prompt(prompt);
    }
    const auto check = [&](const std::vector<dflash::token_prob> & got, int32_t i) {
        const std::string where = "distribution " + std::to_string(i) + ", seed " + std::to_string(seed) + ", rows " +
                                  std::to_string(int(k)) + ", " + fields;
        std::map<llama_token, double> left;
        double                        sum = 0;
        for (const dflash::token_prob & t : got) {
            expect(
                t.prob > 0 && left.emplace(t.token, t.prob).second, where + ": a token without probability, or twice");
            sum += t.prob;
        }
        expect(std::fabs(sum - 1) < 1e-9, where + ": the sum is not 1");
        const llama_token_data_array * all = common_sampler_get_candidates(theirs.get(), false);
        for (size_t j = 0; j < all->size; ++j) {
            const auto   it = left.find(all->data[j].id);
            const double p  = it == left.end() ? 0 : it->second;
            expect(std::fabs(p - all->data[j].p) <= 1e-6 * p + 1e-37,
                where + ": token " + std::to_string(all->data[j].id) + " has " + std::to_string(p) + " instead of " +
                    std::to_string(all->data[j].p));
            left.erase(all->data[j].id);
        }
        expect(left.empty(), where + ": tokens that cannot be sampled");
    };
    std::mt19937           rng(seed);
    dflash::sampler::ahead ahead(ours);
    for (int32_t i = 0; i < n; ++i) {
        fill(at.logits, at.n_vocab, k, rng);
        const llama_token token = common_sampler_sample(theirs.get(), at.ctx.get(), -1);
        check(ahead.distribution(at.ctx.get(), -1), i);
        common_sampler_accept(theirs.get(), token, true);
        ahead.accept(token);
    }
    dflash::sampler fresh(at.model.get(), params);
    for (const llama_token prompt : { 5, 6, 7, 5, 6, 7 }) {
        fresh.accept_prompt(prompt);
    }
    expect(
        ours.sample(at.ctx.get(), -1) == fresh.sample(at.ctx.get(), -1), "looking ahead moved the sampler: " + fields);
}

// block_walk() over real rows: paths, ends, the sampler's state afterwards, and the distribution of the first two
// tokens.
void walk_blocks(model_row & at, const std::string & fields) {
    constexpr int32_t FIRST = 1, LENGTH = 3, K = 4, WALKS = 20000;
    llama_batch       batch = llama_batch_init(FIRST + LENGTH + 1, 0, 1);
    for (int32_t i = 0; i <= FIRST + LENGTH; ++i) {
        batch.token[i]     = i;
        batch.pos[i]       = i;
        batch.n_seq_id[i]  = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i]    = true;
        ++batch.n_tokens;
    }
    llama_memory_clear(llama_get_memory(at.ctx.get()), true);
    const int rc = llama_decode(at.ctx.get(), batch);
    llama_batch_free(batch);
    expect(rc == 0, "a pass over a block failed");
    std::mt19937 rng(3);
    for (int32_t i = 0; i <= LENGTH; ++i) {   // eight tokens have nearly all of the probability
        float * row = llama_get_logits_ith(at.ctx.get(), FIRST + i);
        fill(row, at.n_vocab, kind::smooth, rng);
        for (int32_t j = 0; j < 8; ++j) {
            row[100 + j] = 17.0f + row[100 + j] / 4;
        }
    }
    dflash::draft d;
    d.length = LENGTH + 1, d.top_k = K, d.lattice = true;
    for (int32_t i = 0; i < LENGTH * K; ++i) {
        d.ids.push_back(100 + i % K + i / K);
    }
    for (int32_t i = 0; i < LENGTH * K; ++i) {
        d.probs.insert(d.probs.end(), { 0.4f, 0.3f, 0.2f, 0.1f });
    }

    common_params_sampling params = dflash::parse_sampling(at.model.get(), fields);
    params.seed                   = 1;
    // The expected distribution of the first two tokens. The rows are the same for any previous text; penalties still
    // make the second token depend on the first.
    const auto                                            ends = [](int32_t token) { return token == 102; };
    std::map<std::pair<llama_token, llama_token>, double> wanted;
    dflash::sampler                                       start(at.model.get(), params);
    expect(start.gives_distribution(), "block_walk() needs a distribution: " + fields);
    const std::vector<dflash::token_prob> firsts = dflash::sampler::ahead(start).distribution(at.ctx.get(), FIRST);
    for (const dflash::token_prob & t : firsts) {
        dflash::sampler::ahead ahead(start);
        ahead.accept(t.token);
        if (ends(t.token) || t.prob < 1e-6) {
            wanted[{ t.token, -1 }] = t.prob;
            continue;
        }
        for (const dflash::token_prob & u : ahead.distribution(at.ctx.get(), FIRST + 1)) {
            wanted[{ t.token, u.token }] = t.prob * u.prob;
        }
    }
    std::map<std::pair<llama_token, llama_token>, int32_t> seen;
    std::vector<int32_t>                                   lengths(LENGTH + 1);
    int32_t                                                ended = 0;
    for (int32_t n = 0; n < WALKS; ++n) {
        params.seed = 1000 + n;
        dflash::sampler           s(at.model.get(), params), again(at.model.get(), params);
        const dflash::drawn_chain chain = dflash::draw_chain(d, 50, LENGTH, s.shape(), s.random());
        const dflash::walk_result w     = dflash::block_walk(chain, s, at.ctx.get(), FIRST, ends);
        expect(!w.tokens.empty() && w.tokens.size() == w.path.size() && w.path.size() <= LENGTH + 1,
            "a walk has as many nodes as tokens");
        for (size_t i = 0; i < w.tokens.size(); ++i) {
            const bool last = i + 1 == w.tokens.size();
            expect(w.path[i] == int32_t(i) && (last || w.tokens[i] == chain.tokens[i]),
                "all but a walk's last token are the chain's");
            expect((w.tokens[i] == 102) == (last && w.stopped), "a walk stops at the first token that ends the text");
        }
        ++lengths[w.tokens.size() - 1];
        ended += w.stopped;
        if (n < 50) {   // the same seed gives the same walk, and the sampler has accepted exactly these tokens
            const dflash::drawn_chain same = dflash::draw_chain(d, 50, LENGTH, again.shape(), again.random());
            expect(same.tokens == chain.tokens &&
                       dflash::block_walk(same, again, at.ctx.get(), FIRST, ends).tokens == w.tokens,
                "the seed decides");
            dflash::sampler told(at.model.get(), params);
            for (const int32_t token : w.tokens) {
                told.accept(token);
            }
            for (int32_t i = 0; i < 3; ++i) {
                expect(told.sample(at.ctx.get(), FIRST) == s.sample(at.ctx.get(), FIRST),
                    "a walk leaves the sampler where its tokens lead");
            }
        }
        const bool both = w.tokens.size() > 1;
        ++seen[{ w.tokens[0], ends(w.tokens[0]) ? -1 : both ? w.tokens[1] : s.sample(at.ctx.get(), FIRST + 1) }];
    }
    double  statistic = 0, rest = 0;
    int32_t cells = 0, n_rest = WALKS;
    for (const auto & [pair, p] : wanted) {
        if (p * WALKS < 10) {
            rest += p;
            continue;
        }
        statistic += std::pow(seen[pair] - p * WALKS, 2) / (p * WALKS);
        n_rest -= seen[pair];
        ++cells;
    }
    statistic += rest * WALKS > 1 ? std::pow(n_rest - rest * WALKS, 2) / (rest * WALKS) : 0;
    for (int32_t i = 0; i <= LENGTH; ++i) {
        expect(lengths[i] >= WALKS / 1000,
            "walks of every length: " + std::to_string(i) + " occurred " + std::to_string(lengths[i]) + " times");
    }
    expect(ended > 0 && cells >= 20, "no variety");
    std::printf("%6d  walks by blocks, chi-square %.1f over %d pairs: %s\n", WALKS, statistic, cells, fields.c_str());
    expect(statistic < cells + 5 * std::sqrt(2.0 * cells), "the first two tokens have another distribution");
}

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

}   // namespace

int main(int argc, char ** argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: %s MODEL.gguf [draws per case]\n", argv[0]);
        return 2;
    }
    const int32_t draws = argc > 2 ? std::atoi(argv[2]) : 40;
    for (const char * pattern : { "[aeiou]", ".*[aeiou].*", "[A-Z][^a]*([bcd]) ?", "^\\s+to$" }) {
        dflash::remember_format_pattern(pattern);   // others are rejected
    }
    try {
        model_row at(argv[1]);
        int64_t   total = 0;
        for (const std::string & fields : CASES) {
            int64_t    compared    = 0;
            const bool constrained = fields.find("grammar") != std::string::npos ||
                                     fields.find("json_schema") != std::string::npos ||
                                     fields.find("budget") != std::string::npos;
            for (const kind k : { kind::smooth, kind::peaked, kind::equal, kind::masked }) {
                if (constrained && k == kind::masked) {
                    continue;   // the tokens that the grammar or the budget needs may be masked
                }
                for (uint32_t seed = 1; seed <= 4; ++seed) {
                    compared += compare(at, fields, k, seed, draws);
                }
                compare_distributions(at, fields, k, 5, 12);
            }
            std::printf("%6lld  %s\n", (long long) compared, fields.c_str());
            total += compared;
        }
        expect_error(at, "a NaN", NAN, false);
        expect_error(at, "an infinity", INFINITY, false);
        expect_error(at, "only NaN", NAN, true);
        expect_error(at, "only -inf", -INFINITY, true);
        walk_blocks(at, R"({"temperature": 1, "top_k": 0, "top_p": 1, "min_p": 0})");
        walk_blocks(at,
            R"({"temperature": 0.6, "top_k": 6, "top_p": 0.95, "min_p": 0.02, "repeat_penalty": 1.1, "presence_penalty": 0.5})");
        std::printf("%6lld draws agree\n", (long long) total);
    } catch (const std::exception & e) {
        std::fprintf(stderr, "FAILED: %s\n", e.what());
        return 1;
    }
    return 0;
}
