// Open looks at a target and a drafter, for tests: teacher-forced scores, and one drafter pass with all of its outputs.

#include "engine.h"

#include <algorithm>

namespace dflash {

// Feed tokens[0..n) to an idle slot, `width` rows a pass; `look(at, rows)` sees each pass with its logits. Whatever happens, the
// slot is empty afterwards.
template <class Look, class Then> void engine::feed(slot & s, const int32_t * tokens, int32_t n, int32_t width, bool all_outputs, const char * what, Look && look, Then && then) {
    forget(s);
    try {
        for (int32_t at = 0; at < n;) {
            const int32_t rows = std::min(width, n - at);
            llama_batch_ext_clear(batch_.get());
            n_rows_ = 0;
            for (int32_t k = 0; k < rows; ++k) {
                add_row(s, tokens[at + k], at + k, all_outputs || k == rows - 1);
            }
            process_or_throw(what);
            look(at, rows);
            at += rows;
        }
        then();
    } catch (...) {
        s.n_rows = 0;
        forget(s);
        throw;
    }
    s.n_rows = 0;
    forget(s);
}

void engine::score(int32_t i, const int32_t * tokens, int32_t n, int32_t from, int32_t width, int32_t * best_id, float * best_logit, float * logit) {
    slot & s = idle_slot(i);
    dflash_request r = {};
    r.tokens   = tokens;
    r.n_tokens = n;
    check_tokens(r);
    if (from < 1 || from > n || width < 1 || width > n_outputs_max_) {
        throw status_error(DFLASH_ERROR_ARG, "from must be 1..n and width 1.." + std::to_string(n_outputs_max_));
    }
    const int32_t n_vocab = llama_vocab_n_tokens(vocab());
    // Before `from` wide passes without outputs would do, but the same widths all along keep the rounding comparable.
    feed(s, tokens, n - 1, width, true, "score", [&](int32_t at, int32_t rows) {
        for (int32_t k = 0; k < rows; ++k) {
            const int32_t of = at + k + 1;   // the token these logits predict
            if (of < from) {
                continue;
            }
            const float * row  = llama_get_logits_ith(ctx_.get(), k);
            const int32_t best = (int32_t) (std::max_element(row, row + n_vocab) - row);
            if (best_id)    { best_id[of - from]    = best; }
            if (best_logit) { best_logit[of - from] = row[best]; }
            if (logit)      { logit[of - from]      = row[tokens[of]]; }
        }
    }, [] {});
}

void engine::probe(int32_t i, const int32_t * tokens, int32_t n, int32_t n_block, float * hidden, float * logits, int32_t * ids, float * scores) {
    slot & s = idle_slot(i);
    if (!drafter_) {
        throw status_error(DFLASH_ERROR_ARG, "draft_probe needs a drafter");
    }
    dflash_request r = {};
    r.tokens   = tokens;
    r.n_tokens = n;
    check_tokens(r);
    if (n < 2 || n_block < 2 || n_block > drafter_->block_size()) {
        throw status_error(DFLASH_ERROR_ARG, "n must be at least 2 and n_block 2.." + std::to_string(drafter_->block_size()));
    }
    draft_probe full;
    feed(s, tokens, n - 1, n_rows_max_, false, "draft_probe", [&](int32_t, int32_t rows) { keep_taps(s, 0, rows); }, [&] {
        std::vector<draft> drafts;
        drafter_->run({ { s.id, s.taps.data.data(), s.taps.rows, 0, true, tokens[n - 1] } }, n_block, drafts, &full);
    });
    const auto copy = [](const auto & from, auto * to) {
        if (to) { std::copy(from.begin(), from.end(), to); }
    };
    copy(full.hidden, hidden);
    copy(full.logits, logits);
    // row 0 belongs to the anchor, of which nothing is predicted
    const int32_t k = drafter_->top_k();
    copy(full.ids, ids ? ids + k : nullptr);
    copy(full.scores, scores ? scores + (drafter_->lattice() ? k * k : k) : nullptr);
}

}  // namespace dflash
