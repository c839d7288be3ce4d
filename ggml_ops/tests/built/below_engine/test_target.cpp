// A target alone: passes leave the same bits whatever its memory went through, and trees leave one path.
//
//   test_target MODEL.gguf

#include "pocket_parts.h"

using namespace dflash;

static const tokens TEXT = counted(20, 24);

static void a_text_that_is_cut_back_goes_on(pocket_parts & r) {
    const std::vector<float> whole = r.read(0, TEXT, 0);
    CHECK(r.target.memory().reach(0, 24) == 0 && !r.target.memory().needs_checkpoints());
    CHECK(r.target.memory().cut(0, 10));
    CHECK(r.read(0, TEXT, 10) == whole);
    r.target.memory().forget(0);
    CHECK(r.target.memory().used_cells() == 0);
    CHECK(r.read(0, TEXT, 0) == whole);
    r.target.memory().forget_all(true);
}

// Where the first n tokens of a text stand.
static token_positions text_of(int32_t n) { return media_layout().positions(n); }

static void a_state_goes_to_the_host_and_back(pocket_parts & r) {
    const std::vector<float> whole = r.read(0, TEXT, 0);
    memory &                 m     = r.target.memory();
    CHECK(m.cut(0, 10));
    const raw_bytes state = m.read(0);
    CHECK(state.size() == m.size(0) && m.refusal(state, text_of(10), false).empty() &&
          !m.refusal(state, text_of(11), false).empty());
    CHECK(m.write(1, state) && r.read(1, TEXT, 10) == whole);
    CHECK(m.share(0, 2) && r.read(2, TEXT, 10) == whole);
    CHECK(m.held_cells({ 0, 2 }) == 24 && m.held_cells({ 0, 1 }) == 34);   // 10 are shared
    raw_bytes broken = state;
    broken.resize(broken.size() / 2);
    CHECK(!m.refusal(broken, text_of(10), false).empty() && !m.write(0, {}));
    m.forget_all(true);
}

// The anchor with two children: the pass gives each child the logits that a chain through it has.
static void one_path_of_a_tree_stays(pocket_parts & r) {
    tokens left = TEXT, right = TEXT;
    left.push_back(50);
    right.push_back(51);
    const std::vector<float> after_left = r.read(1, left, 0), after_right = r.read(2, right, 0);
    tree                     t{ { node::root(TEXT.back()) } };
    t.nodes.push_back({ 50, 0, 1, 0, 0.5f, 0.5f });
    t.nodes.push_back({ 51, 0, 1, 1, 0.4f, 0.4f });
    r.read(0, tokens(TEXT.begin(), TEXT.end() - 1), 0);
    r.target.rows().clear();
    CHECK(r.target.rows().add_tree(0, t, 23, {}) == 0);
    CHECK(r.target.opens(t, true) && r.target.memory().no_tree().empty());
    r.target.process("tree");
    const auto same = [&](int32_t row, const std::vector<float> & logits) {
        return std::equal(logits.begin(), logits.end(), llama_get_logits_ith(r.target.context(), row));
    };
    CHECK(same(1, after_left) && same(2, after_right) && !same(1, after_right));
    memory & m = r.target.memory();
    CHECK(!m.commit(0, { 1, 2 }));   // no path
    CHECK(m.commit(0, { 0, 2 }));
    right.push_back(52);
    CHECK(r.read(0, right, 25) == r.read(2, right, 25));
    m.forget_all(true);
}

static void what_cannot_be_loaded(const char * model) {
    const auto load = [](dflash_engine_params p) {
        return status_of([&] {
            const model_pair models(p, {});
            target           target(p, models);
        });
    };
    dflash_engine_params p = pocket_params(model);
    CHECK(load(p) == DFLASH_OK);
    p.n_slots   = 33;
    p.n_ctx     = 32;
    p.share_ctx = true;
    CHECK(load(p) == DFLASH_ERROR_ARG);   // more than rows of a pass
    p       = pocket_params(model);
    p.model = __FILE__;
    CHECK(load(p) == DFLASH_ERROR_MODEL);
    p         = pocket_params(model);
    p.drafter = model;
    CHECK(load(p) == DFLASH_ERROR_PAIR);
}

int main(int argc, char ** argv) {
    if (argc < 2) {
        return 2;
    }
    pocket_parts r(argv[1]);
    a_text_that_is_cut_back_goes_on(r);
    a_state_goes_to_the_host_and_back(r);
    one_path_of_a_tree_stays(r);
    what_cannot_be_loaded(argv[1]);
    return TEST_RESULT;
}
