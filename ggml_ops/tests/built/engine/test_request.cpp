// The life of a request in the C API: prepared on any thread, assigned to a slot, submitted or freed, without leaks.
//
//   test_request MODEL.gguf
//
// Built with the address sanitizer, which finds double frees and leaks.

#include "check.h"
#include "dflash.h"

#include <atomic>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace {

using tokens = std::vector<int32_t>;

dflash_engine * load(const char * model, uint32_t n_slots) {
    dflash_engine_params params;
    dflash_engine_params_default(&params);
    params.model           = model;
    params.n_slots         = n_slots;
    params.n_ctx           = 512 * n_slots;
    params.n_threads       = 1;
    params.warmup          = false;
    dflash_engine * engine = nullptr;
    dflash_engine_init(&params, nullptr, nullptr, &engine);
    return engine;
}

dflash_request * prepare(
    const dflash_engine * engine, const tokens & prompt, const char * sampling, dflash_status * status) {
    dflash_request_params params;
    dflash_request_params_default(&params);
    params.tokens            = prompt.data();
    params.n_tokens          = (int32_t) prompt.size();
    params.n_predict         = 4;
    params.sampling          = sampling;
    dflash_request * request = nullptr;
    *status                  = dflash_request_init(engine, &params, &request);
    return request;
}

dflash_request * prepare(const dflash_engine * engine, const tokens & prompt, const char * sampling = "") {
    dflash_status    status  = DFLASH_OK;
    dflash_request * request = prepare(engine, prompt, sampling, &status);
    CHECK(status == DFLASH_OK && request);
    return request;
}

void run(dflash_engine * engine) {
    std::vector<dflash_update> updates(64);
    for (int32_t n = 1; n > 0;) {
        CHECK(dflash_step(engine, updates.data(), (int32_t) updates.size(), &n) == DFLASH_OK);
    }
}

tokens counted(int32_t from, int32_t n) {
    tokens t(n);
    std::iota(t.begin(), t.end(), from);
    return t;
}

// The slot, or the error.
int32_t choose(const dflash_engine * engine, const tokens & prompt, const tokens & slots) {
    dflash_request *    request = prepare(engine, prompt);
    int32_t             slot    = -1;
    const dflash_status status  = dflash_slot_choose(engine, request, slots.data(), (int32_t) slots.size(), &slot);
    dflash_request_free(request);
    return status == DFLASH_OK ? slot : status;
}

void test_refusals(const dflash_engine * engine) {
    for (const char * sampling :
        { "{", "{\"top_p\": 2}", "{\"grammar\": \"root ::= x\"}",
            "{\"grammar\": \"root ::= \\\"a\\\"\", \"grammar_type\": \"tool_calls\", \"generation_prompt\": \"b\"}" }) {
        dflash_status status = DFLASH_OK;
        CHECK(!prepare(engine, { 1, 2 }, sampling, &status));
        CHECK(status == DFLASH_ERROR_ARG);
        CHECK(std::strlen(dflash_last_error()) > 0);
    }
    dflash_status status = DFLASH_OK;
    CHECK(!prepare(engine, {}, "", &status) && status == DFLASH_ERROR_ARG);
    CHECK(!prepare(engine, { -1 }, "", &status) && status == DFLASH_ERROR_ARG);
    dflash_request_free(nullptr);
}

// The argument that must not be NULL is named.
void test_null(dflash_engine * engine) {
    const auto refused = [](dflash_status status, const char * why) {
        return status == DFLASH_ERROR_ARG && std::string(dflash_last_error()) == why;
    };
    dflash_request_params params;
    dflash_request_params_default(&params);
    dflash_request *    request = nullptr;
    const llama_vocab * vocab   = dflash_engine_vocab(engine);
    int32_t             n       = 5;
    bool                yes     = true;
    uint64_t            n_bytes = 5;
    char *              text    = nullptr;
    dflash_slot_file    file;
    CHECK(refused(dflash_request_init(engine, nullptr, &request), "params is NULL"));
    CHECK(refused(dflash_request_init(engine, &params, nullptr), "out is NULL"));
    CHECK(refused(dflash_request_init(nullptr, &params, &request), "engine is NULL") && !request);
    CHECK(refused(dflash_has_room(engine, nullptr, &yes), "request is NULL") && !yes);
    CHECK(refused(dflash_submit(engine, 0, nullptr), "request is NULL"));
    CHECK(refused(dflash_corpus_set(engine, nullptr, 1, &n_bytes), "tokens is NULL") && n_bytes == 0);
    CHECK(refused(dflash_drafter_replace(engine, nullptr), "path is NULL"));
    CHECK(refused(
        dflash_drafter_replace(engine, "drafter.gguf"), "no drafter of a file is in use: load the engine with one"));
    CHECK(refused(dflash_slot_save(engine, 0, "slot", nullptr), "out is NULL"));
    CHECK(refused(dflash_slot_save(engine, 0, nullptr, &file), "path is NULL"));
    CHECK(refused(dflash_slot_restore(nullptr, 0, "slot", &file), "engine is NULL"));
    CHECK(refused(dflash_slot_stats(engine, 0, nullptr), "out is NULL"));
    CHECK(refused(dflash_tokenize(nullptr, "a", 1, false, false, &n, 1, &n), "vocab is NULL") && n == 0);
    CHECK(refused(dflash_tokenize(vocab, nullptr, 1, false, false, &n, 1, &n), "text is NULL"));
    CHECK(refused(dflash_tokenize(vocab, "a", 1, false, false, nullptr, 1, &n), "tokens is NULL"));
    CHECK(refused(dflash_token_piece(vocab, 0, false, nullptr, 64, &n), "buf is NULL"));
    CHECK(refused(dflash_step(nullptr, nullptr, 0, &n), "engine is NULL"));
    CHECK(refused(dflash_score(engine, 0, nullptr), "params is NULL"));
    CHECK(refused(dflash_engine_info(nullptr, &text), "engine is NULL") && !text);
    CHECK(refused(dflash_chat_message(nullptr, &text), "chat is NULL"));
}

void test_choice(dflash_engine * engine) {
    for (int32_t slot = 0; slot < 3; ++slot) {
        CHECK(dflash_submit(engine, slot, prepare(engine, counted(100 * (slot + 1), 50))) == DFLASH_OK);
    }
    run(engine);
    const tokens all = { 2, 0, 1 };
    for (int32_t slot = 0; slot < 3; ++slot) {
        tokens prompt = counted(100 * (slot + 1), 50);
        CHECK(choose(engine, prompt, all) == slot);
        prompt.resize(20);   // the slot has all of it
        CHECK(choose(engine, prompt, all) == slot);
    }
    CHECK(choose(engine, counted(500, 50), all) == 2);   // nothing in common: the first
    // Slot 1 holds 53 tokens, 50 of them the prompt. Makes a prompt of n tokens that shares its first n_common:
    const auto sharing = [](int32_t n_common, int32_t n) {
        tokens       prompt = counted(200, n_common);
        const tokens rest   = counted(600, n - n_common);
        prompt.insert(prompt.end(), rest.begin(), rest.end());
        return prompt;
    };
    CHECK(choose(engine, sharing(40, 400), all) == 2);   // a tenth is not enough
    CHECK(choose(engine, sharing(41, 400), all) == 1);
    CHECK(choose(engine, sharing(17, 50), all) == 2);         // another conversation, at the cost of most of this one
    CHECK(choose(engine, sharing(30, 50), all) == 1);         // the end may be the template's
    CHECK(choose(engine, counted(200, 50), { 2, 0 }) == 2);   // only slots that are offered
    CHECK(choose(engine, { 1 }, { 7 }) == DFLASH_ERROR_ARG);
    CHECK(choose(engine, { 1 }, {}) == DFLASH_ERROR_ARG);
}

void test_ownership(dflash_engine * engine, dflash_engine * other) {
    CHECK(dflash_submit(engine, 0, nullptr) == DFLASH_ERROR_ARG);
    CHECK(dflash_submit(engine, 0, prepare(engine, { 1, 2, 3 })) == DFLASH_OK);
    dflash_request * refused = prepare(engine, { 1, 2, 3 });
    const int32_t    busy    = 0;
    int32_t          chosen;
    CHECK(dflash_slot_choose(engine, refused, &busy, 1, &chosen) == DFLASH_ERROR_BUSY);
    CHECK(dflash_submit(engine, 0, refused) == DFLASH_ERROR_BUSY);
    CHECK(dflash_submit(engine, 9, refused) == DFLASH_ERROR_ARG);
    CHECK(dflash_submit(other, 0, refused) == DFLASH_ERROR_ARG);
    CHECK(dflash_submit(engine, 1, refused) == DFLASH_OK);   // still valid
    CHECK(dflash_cancel(engine, 0) == DFLASH_OK);
    run(engine);
    dflash_slot_counters stats;
    CHECK(dflash_slot_stats(engine, 1, &stats) == DFLASH_OK && stats.n_prompt == 3);
}

// Other threads prepare and free requests while this one steps; the prepared ones then run.
void test_threads(dflash_engine * engine) {
    const char * kinds[] = {
        "{\"grammar\": \"root ::= [a-z ]+\", \"seed\": 1}",
        "{\"json_schema\": {\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}}}}",
        "{\"grammar\": \"root ::= \\\"a\\\"\", \"grammar_lazy\": true, \"grammar_triggers\": "
        "[{\"type\": \"word\", \"value\": \"x y z\"}], \"preserved_tokens\": [\"<|im_end|>\"]}",
        "{\"dry_multiplier\": 1, \"repeat_penalty\": 1.1, \"logit_bias\": {\" the\": 1}, \"mirostat\": 2}",
        "{\"reasoning_budget_tokens\": 2, \"thinking_start_tag\": \"<t>\", \"thinking_end_tags\": [\"</t>\"], "
        "\"generation_prompt\": \"<t>\"}",
    };
    std::atomic<bool>                          done{ false };
    std::vector<std::thread>                   threads;
    std::vector<std::vector<dflash_request *>> last(2);
    for (auto & mine : last) {
        threads.emplace_back([&] {
            while (!done) {
                for (dflash_request * request : mine) {
                    dflash_request_free(request);
                }
                mine.clear();
                for (const char * sampling : kinds) {
                    mine.push_back(prepare(engine, counted(10, 30), sampling));
                }
            }
        });
    }
    for (int i = 0; i < 20; ++i) {
        CHECK(dflash_submit(engine, i % 3, prepare(engine, counted(20 + i, 40), kinds[i % 5])) == DFLASH_OK);
        run(engine);
    }
    done = true;
    for (std::thread & thread : threads) {
        thread.join();
    }
    for (auto & mine : last) {
        for (dflash_request * request : mine) {
            CHECK(dflash_submit(engine, 0, request) == DFLASH_OK);
            run(engine);
        }
    }
}

}   // namespace

int main(int argc, char ** argv) {
    if (argc < 2) {
        std::printf("usage: test_request MODEL.gguf\n");
        return 2;
    }
    dflash_log_set(nullptr, 3, nullptr);
    dflash_engine * engine = load(argv[1], 3);
    dflash_engine * other  = load(argv[1], 1);
    if (!engine || !other) {
        std::printf("%s\n", dflash_last_error());
        return 1;
    }
    test_refusals(engine);
    test_null(engine);
    test_choice(engine);
    test_ownership(engine, other);
    test_threads(engine);

    // When the engine ends, one request runs and one waits.
    CHECK(dflash_submit(engine, 0, prepare(engine, { 1, 2, 3 }, "{\"json_schema\": {}}")) == DFLASH_OK);
    dflash_request * waiting = prepare(engine, { 1, 2, 3 }, "{\"json_schema\": {}}");
    dflash_engine_free(engine);
    dflash_engine_free(other);
    dflash_request_free(waiting);
    return TEST_RESULT;
}
