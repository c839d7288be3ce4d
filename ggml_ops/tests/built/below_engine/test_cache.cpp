// A cache over a target, without an engine: which beginnings it finds, who leaves, and what comes back.
//
//   test_cache MODEL.gguf

#include "pocket_parts.h"
#include "refused_size.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

using namespace dflash;

// Runs a request that reads its prompt and ends. Returns how many of its tokens were cached.
static int32_t run(pocket_parts & r, int32_t id, const tokens & prompt) {
    const int32_t n_cached = r.cache.begin(id, prompt, prompt, true);
    r.read(id, prompt, n_cached);
    r.cache.add_prompt(id, (int32_t) prompt.size() - n_cached);
    r.cache.end(id);
    CHECK(r.cache.at(id).tokens == prompt && !r.cache.at(id).prompt);
    return n_cached;
}

static tokens after(tokens text, int32_t n) {
    const tokens more = counted(90, n);
    text.insert(text.end(), more.begin(), more.end());
    return text;
}

static void clear(pocket_parts & r) {
    for (const sequence & s : r.cache.sequences()) {
        r.cache.forget(s.id);
    }
    CHECK(r.cache.used_cells() == 0 && r.cache.free_cells() == r.cache.size().value_or(0));
}

static void a_beginning_is_found(pocket_parts & r) {
    const tokens  first = counted(20, 100), second = after(first, 20);
    const int32_t idle[] = { 0, 1, 2 };
    CHECK(run(r, 1, first) == 0);
    CHECK(r.cache.choose(second, idle, 3) == 1 && r.cache.choose(counted(90, 20), idle, 3) == 0);
    CHECK(run(r, 0, second) == 100 && r.cache.moved().shared == 1);   // copied from 1
    CHECK(r.cache.used_cells() == 120);                               // 100 are shared
    CHECK(run(r, 0, first) == 99);                                    // the last token is always read
    CHECK(r.cache.begin(2, second, second, false) == 0);              // it does not want it
    r.cache.end(2);
    clear(r);
}

static void a_sequence_waits_for_another_that_reads(pocket_parts & r) {
    const tokens first = counted(20, 100), second = after(first, 20);
    CHECK(r.cache.begin(0, first, first, true) == 0 && r.cache.at(0).reading());
    CHECK(r.cache.begin(1, second, second, true) == 0 && r.cache.at(1).follows());
    CHECK(!r.cache.follow(1, second));
    r.read(0, first, 0);
    r.cache.add_prompt(0, 100);
    CHECK(r.cache.held_by_running(after(counted(20, 80), 20)) == 80);
    CHECK(r.cache.follow(1, second) == 100 && !r.cache.at(1).follows());
    CHECK(status_of([&] { r.cache.check_idle(1); }) == DFLASH_ERROR_BUSY);
    CHECK(status_of([&] { r.cache.check_id(3); }) == DFLASH_ERROR_ARG);
    r.cache.end(0);
    r.cache.end(1);
    clear(r);
}

// Where each sequence has cells of its own, a beginning is copied through the host.
static void without_memory_for_a_copy_it_is_read(const char * model) {
    pocket_parts r(model, false);
    const tokens first = counted(20, 100), second = after(first, 20);
    r.cache.begin(0, first, first, true);
    r.cache.begin(1, second, second, true);
    r.read(0, first, 0);
    r.cache.add_prompt(0, 100);
    refused_size = r.target.memory().size(0);
    CHECK(r.cache.follow(1, second) == 0);
    refused_size = 0;
    CHECK(r.cache.at(1).tokens.empty() && r.cache.at(1).reading() && r.cache.moved().shared == 0);
    CHECK(run(r, 2, second) == 100 && r.cache.moved().shared == 1);
    r.cache.end(0);
    r.cache.end(1);
}

// A state that fits the host's cache, of a conversation that does not: nobody makes room for it.
static void what_never_fits_evicts_nobody(const char * model) {
    constexpr size_t     LIMIT = 3 << 20;   // a token takes less than the ids of all that fit
    dflash_engine_params p     = pocket_params(model);
    p.cache_ram                = LIMIT >> 20;
    p.n_ctx = p.n_batch = p.n_ubatch = 4096;
    pocket_parts r(p);
    run(r, 0, counted(20, 50));
    r.cache.leave(0);
    CHECK(r.cache.host().size() == 1 && r.cache.moved().saved == 1);
    const auto size_of = [&](int32_t n) {
        run(r, 0, tokens(n, 25));
        const size_t size = r.target.memory().size(0);
        r.cache.forget(0);
        return size;
    };
    const size_t each = size_of(101) - size_of(100);
    tokens       text(100 + (LIMIT - size_of(100)) / each, 25);
    run(r, 0, text);
    CHECK(r.target.memory().size(0) <= LIMIT && r.target.memory().size(0) + text.size() * sizeof(text[0]) > LIMIT);
    r.cache.leave(0);
    CHECK(r.cache.host().size() == 1 && r.cache.moved().saved == 1 && r.cache.moved().left == 2);
}

static void the_oldest_leaves_and_comes_back(pocket_parts & r) {
    const tokens first = counted(20, 100), second = counted(60, 100);
    run(r, 0, first);
    run(r, 1, second);
    CHECK(r.cache.has_cells(r.cache.size().value_or(0)) && !r.cache.has_cells(r.cache.size().value_or(0) + 1));
    CHECK(r.cache.make_room(r.cache.size().value_or(0) - 150, 2));
    CHECK(r.cache.at(0).tokens.empty() && !r.cache.at(1).tokens.empty());
    CHECK(r.cache.moved().left == 1 && r.cache.host().size() == 1);
    CHECK(run(r, 2, after(first, 20)) == 100 && r.cache.moved().restored == 1);   // from the host
    CHECK(!r.cache.make_room(r.cache.size().value_or(0) + 1));
    clear(r);
}

static void a_running_one_is_set_aside(pocket_parts & r) {
    const tokens       first = counted(20, 50), more = after(first, 1);
    std::vector<float> expected;
    run(r, 0, first);
    expected = r.read(0, more, 50);
    CHECK(r.target.memory().cut(0, 50));
    r.cache.begin(0, more, more, true);
    CHECK(r.cache.set_aside(0) && r.cache.at(0).is_aside() && r.cache.busy_cells() == 0);
    CHECK(!r.cache.at(0).reading());
    CHECK(r.cache.bring_back(0) && r.cache.at(0).reading());
    CHECK(r.read(0, more, 50) == expected);
    r.cache.end(0);
    clear(r);
}

// By the time it comes back its leader is gone: it reads its prompt itself.
static void one_that_waits_is_set_aside(pocket_parts & r) {
    const tokens first = counted(130, 100), second = after(first, 20);
    r.cache.begin(0, first, first, true);
    CHECK(r.cache.begin(1, second, second, true) == 0 && r.cache.at(1).follows());
    CHECK(r.cache.set_aside(1) && !r.cache.at(1).follows());
    r.cache.end(0);
    r.cache.forget(0);
    CHECK(r.cache.bring_back(1) && r.cache.at(1).reading());
    r.read(1, second, 0);
    r.cache.add_prompt(1, (int32_t) second.size());
    r.cache.end(1);
    CHECK(run(r, 2, second) == 119);
    clear(r);
}

static void a_file_gives_it_back(pocket_parts & r, const std::string & path) {
    const tokens first = counted(20, 60);
    CHECK(status_of([&] { r.cache.save(0, path); }) == DFLASH_ERROR_ARG);   // it holds nothing
    run(r, 0, first);
    const dflash_slot_file saved = r.cache.save(0, path);
    clear(r);
    const dflash_slot_file restored = r.cache.load(2, path);
    CHECK(saved.n_tokens == 60 && restored.n_tokens == 60 && saved.n_bytes == restored.n_bytes);
    CHECK(r.cache.at(2).tokens == first && run(r, 2, after(first, 5)) == 60);
    std::remove(path.c_str());
    CHECK(status_of([&] { r.cache.load(0, path); }) == DFLASH_ERROR_ARG);
    clear(r);
}

static void without_a_drafter_nothing_is_kept_of_taps(pocket_parts & r) {
    CHECK(r.drafts.empty());
    r.drafts.keep_taps(0, 0, 5);
    r.drafts.cut(0, 2);
    conversation c;
    r.drafts.copy_to(c, 0);
    CHECK(c.drafts.empty() && r.drafts.refusal(c).empty());
}

// A drafter's context that holds nothing, and knows where it ends.
struct ends_of_texts : draft_context {
    std::vector<int32_t> ends = std::vector<int32_t>(3);

    int32_t   end(int32_t slot) const override { return ends[slot]; }
    void      rewind(int32_t slot, int32_t pos) override { ends[slot] = pos; }
    void      restart(int32_t slot, int32_t pos) override { ends[slot] = pos; }
    ring_copy take(int32_t, int32_t) const override { return {}; }
    void      put(int32_t slot, const ring_copy & copy) override { ends[slot] = copy.end; }
    size_t    copy_bytes(int32_t) const override { return 0; }
    bool      fits(const ring_copy &) const override { return true; }
    std::map<ggml_backend_buffer_type_t, size_t> memory() const override { return {}; }
};

// A drafter that never drafts, and wants to know where rows stand.
struct reader_of_taps : drafter {
    int32_t       size;
    ends_of_texts held;

    explicit reader_of_taps(int32_t size) : size(size) {}
    const drafter_kind &                         kind() const override { std::abort(); }
    tap_source                                   taps() const override { return tap_source::layers; }
    int32_t                                      tap_size() const override { return size; }
    int32_t                                      n_ctx() const override { return 0; }
    int32_t                                      max_length() const override { return 1; }
    int32_t                                      top_k() const override { return 1; }
    bool                                         on_device() const override { return false; }
    drafter_layers                               layers() const override { std::abort(); }
    bool                                         has_sections() const override { return true; }
    draft_context &                              context() override { return held; }
    const draft_context &                        context() const override { return held; }
    std::map<ggml_backend_buffer_type_t, size_t> compute_memory() const override { return {}; }
    void run(const std::vector<draft_job> &, int32_t, std::vector<draft> &) override {}
};

// What passes leave of two layers.
static void taps_wait_and_move(pocket_parts & r) {
    const int32_t size = 2 * llama_model_n_embd(r.target.model());
    r.target.set_tapped_layers({ 0, 1 });
    pending_taps taps(r.target, reader_of_taps(size));
    run(r, 0, counted(20, 6));
    std::vector<float> rows(6 * size);
    r.target.read_taps(0, 6, rows.data());
    taps.keep(0, 0, std::vector<int32_t>{ 0, 1, 2, 4 });   // a path
    std::vector<float> expected(rows.begin(), rows.begin() + 3 * size);
    expected.insert(expected.end(), rows.begin() + 4 * size, rows.begin() + 5 * size);
    CHECK(taps.of(0).rows == 4 && taps.of(0).data == expected && taps.of(1).rows == 0);
    const std::vector<rope_position> stand = { { 0, 0, 0 }, { 1, 1, 1 }, { 2, 2, 2 }, { 4, 4, 4 } };
    CHECK(taps.of(0).rope == stand);
    taps.copy(0, 1);
    taps.cut(1, 2);
    CHECK(taps.of(1).rows == 2 && taps.of(1).rope.size() == 2 && taps.of(0).rows == 4);
    taps.restore(1, taps.on_host(0), [] {});
    CHECK(taps.of(1).data == expected && taps.of(1).rope == stand);
    taps.clear(0, 4);
    CHECK(taps.of(0).rows == 0 && taps.of(0).pos == 4);
    clear(r);
}

static void without_memory_for_taps_the_drafter_begins_anew(pocket_parts & r) {
    const int32_t size = 2 * llama_model_n_embd(r.target.model());
    r.target.set_tapped_layers({ 0, 1 });
    draft_memory drafts(r.target, std::make_unique<reader_of_taps>(size));
    run(r, 0, counted(20, 6));
    const auto begins_at = [&](int32_t end) {
        refused_size = 0;
        CHECK(drafts.taps().of(0).rows == 0 && drafts.taps().of(0).pos == end && drafts.taps().of(0).data.empty());
        CHECK(drafts.drafter().context().end(0) == end);
    };
    refused_size = 6 * size * sizeof(float);
    drafts.keep_taps(0, 0, 6);
    begins_at(6);
    drafts.keep_taps(0, 0, std::vector<int32_t>{ 0 });
    CHECK(drafts.taps().of(0).rows == 1 && drafts.taps().of(0).pos == 6);
    refused_size = 4 * size * sizeof(float);   // for its last part: twice what there was
    drafts.begin_anew(1, 6);
    drafts.keep_taps(1, 0, std::vector<int32_t>{ 0, 1, 3 });
    refused_size = 0;
    CHECK(drafts.taps().of(1).rows == 0 && drafts.taps().of(1).pos == 9);
    clear(r);
}

int main(int argc, char ** argv) {
    if (argc < 2) {
        return 2;
    }
    pocket_parts r(argv[1]);
    a_beginning_is_found(r);
    a_sequence_waits_for_another_that_reads(r);
    without_memory_for_a_copy_it_is_read(argv[1]);
    what_never_fits_evicts_nobody(argv[1]);
    the_oldest_leaves_and_comes_back(r);
    a_running_one_is_set_aside(r);
    one_that_waits_is_set_aside(r);
    a_file_gives_it_back(r, "test_cache.slot");
    without_a_drafter_nothing_is_kept_of_taps(r);
    taps_wait_and_move(r);
    without_memory_for_taps_the_drafter_begins_anew(r);
    return TEST_RESULT;
}
