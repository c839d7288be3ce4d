// Open looks at a target and a drafter, for tests: teacher-forced scores, one drafter pass with all of its outputs,
// passes over any trees, and the target's KV cells.

#include "engine/engine.h"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace dflash {

// Feed tokens[0..n) to an idle slot, `width` rows a pass; `look(at, rows)` sees each pass with its logits. Whatever
// happens, the slot is empty afterwards.
template <class Look, class Then>
void engine::feed(slot & s, const int32_t * tokens, int32_t n, int32_t width, bool all_outputs, const char * what,
    Look && look, Then && then) {
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

void engine::score(int32_t i, const int32_t * tokens, int32_t n, int32_t from, int32_t width, int32_t * best_id,
    float * best_logit, float * logit) {
    slot & s = idle_slot(i);
    check_tokens(tokens, n);
    if (from < 1 || from > n || width < 1 || width > n_outputs_max_) {
        throw status_error(DFLASH_ERROR_ARG, "from must be 1..n and width 1.." + std::to_string(n_outputs_max_));
    }
    const int32_t n_vocab = llama_vocab_n_tokens(vocab());
    // Before `from` wide passes without outputs would do, but the same widths all along keep the rounding comparable.
    feed(
        s, tokens, n - 1, width, true, "score",
        [&](int32_t at, int32_t rows) {
            for (int32_t k = 0; k < rows; ++k) {
                const int32_t of = at + k + 1;   // the token these logits predict
                if (of < from) {
                    continue;
                }
                const float * row  = llama_get_logits_ith(ctx_.get(), k);
                const int32_t best = (int32_t) (std::max_element(row, row + n_vocab) - row);
                if (best_id) {
                    best_id[of - from] = best;
                }
                if (best_logit) {
                    best_logit[of - from] = row[best];
                }
                if (logit) {
                    logit[of - from] = row[tokens[of]];
                }
            }
        },
        [] {});
}

void engine::probe(int32_t i, const int32_t * tokens, int32_t n, int32_t n_block, float * hidden, float * logits,
    int32_t * ids, float * scores) {
    slot & s = idle_slot(i);
    if (!drafter_) {
        throw status_error(DFLASH_ERROR_ARG, "draft_probe needs a drafter");
    }
    check_tokens(tokens, n);
    if (n < 2 || n_block < 2 || n_block > drafter_->block_size()) {
        throw status_error(
            DFLASH_ERROR_ARG, "n must be at least 2 and n_block 2.." + std::to_string(drafter_->block_size()));
    }
    draft_probe full;
    feed(
        s, tokens, n - 1, n_rows_max_, false, "draft_probe", [&](int32_t, int32_t rows) { keep_taps(s, 0, rows); },
        [&] {
            std::vector<draft> drafts;
            drafter_->run(
                { { s.id, s.taps.data.data(), s.taps.rows, 0, true, tokens[n - 1] } }, n_block, drafts, &full);
        });
    const auto copy = [](const auto & from, auto * to) {
        if (to) {
            std::copy(from.begin(), from.end(), to);
        }
    };
    copy(full.hidden, hidden);
    copy(full.logits, logits);
    // row 0 belongs to the anchor, of which nothing is predicted
    const int32_t k = drafter_->top_k();
    copy(full.ids, ids ? ids + k : nullptr);
    copy(full.scores, scores ? scores + (drafter_->lattice() ? k * k : k) : nullptr);
}

void engine::tree_pass(const dflash_tree_rows * trees, int32_t n_trees) {
    const auto bad = [](int32_t tree, const std::string & why) {
        throw status_error(DFLASH_ERROR_ARG, "trees[" + std::to_string(tree) + "]: " + why);
    };
    if (!trees || n_trees < 1) {
        throw status_error(DFLASH_ERROR_ARG, "n_trees is " + std::to_string(n_trees) + ", must be at least 1");
    }
    std::vector<tree>   shapes(n_trees);
    std::vector<slot *> slots;
    int32_t             n_rows = 0, n_outputs = 0;
    for (int32_t t = 0; t < n_trees; ++t) {
        const dflash_tree_rows & in = trees[t];
        slot &                   s  = idle_slot(in.slot);
        if (std::find(slots.begin(), slots.end(), &s) != slots.end()) {
            bad(t, "slot " + std::to_string(in.slot) + " has another tree in this pass");
        }
        slots.push_back(&s);
        if (in.n_nodes < 1 || !in.tokens || !in.parents) {
            bad(t, "n_nodes is " + std::to_string(in.n_nodes) + ", must be at least 1");
        }
        tree & shape = shapes[t];
        for (int32_t i = 0; i < in.n_nodes; ++i) {
            if (i == 0 ? in.parents[0] != -1 : in.parents[i] < 0 || in.parents[i] >= i) {
                bad(t, "parents[" + std::to_string(i) + "] is " + std::to_string(in.parents[i]) + ", must be " +
                           (i == 0 ? "-1" : "a smaller index"));
            }
            shape.nodes.push_back(
                { in.tokens[i], in.parents[i], i == 0 ? 0 : shape.nodes[in.parents[i]].depth + 1, 0, 1.0f, 1.0f });
        }
        check_tokens(in.tokens, in.n_nodes);
        if (s.n_past() + in.n_nodes > n_ctx_slot_) {
            bad(t, std::to_string(s.n_past()) + " tokens and " + std::to_string(in.n_nodes) +
                       " nodes are more than a slot's context of " + std::to_string(n_ctx_slot_));
        }
        if (!shape.is_chain()) {
            if (!no_tree_.empty()) {
                bad(t, no_tree_);
            }
            if (in.n_nodes > DFLASH_MAX_NODES) {
                bad(t, "n_nodes is " + std::to_string(in.n_nodes) + ", must be at most " +
                           std::to_string(DFLASH_MAX_NODES));
            }
        } else if (in.n_path < in.n_nodes && is_recurrent() && !tapes_) {
            bad(t, "a recurrent state cannot be rolled back to a part of the chain");
        }
        if (tapes_ && (!shape.is_chain() || in.n_path < in.n_nodes)) {
            need_tapes(DFLASH_MAX_NODES);
            if (in.n_nodes > tape_rows_) {
                bad(t, "n_nodes is " + std::to_string(in.n_nodes) + ", must be at most " + std::to_string(tape_rows_));
            }
        }
        if (in.n_path < 0 || in.n_path > in.n_nodes || (in.n_path > 0 && !in.path)) {
            bad(t, "n_path is " + std::to_string(in.n_path) + ", must be 0.." + std::to_string(in.n_nodes));
        }
        for (int32_t k = 0; k < in.n_path; ++k) {
            if (in.path[k] < 0 || in.path[k] >= in.n_nodes ||
                in.parents[in.path[k]] != (k == 0 ? -1 : in.path[k - 1])) {
                bad(t, "path[" + std::to_string(k) + "] is not a child of the one before");
            }
        }
        n_rows += in.n_nodes;
        n_outputs += in.logits ? in.n_nodes : 1;
    }
    if (n_rows > n_rows_max_ || n_outputs > n_outputs_max_) {
        throw status_error(DFLASH_ERROR_ARG, std::to_string(n_rows) + " rows with " + std::to_string(n_outputs) +
                                                 " outputs are more than one pass has (" + std::to_string(n_rows_max_) +
                                                 ", " + std::to_string(n_outputs_max_) + ")");
    }

    llama_batch_ext_clear(batch_.get());
    n_rows_ = 0;
    try {
        for (int32_t t = 0; t < n_trees; ++t) {
            add_tree(*slots[t], shapes[t], trees[t].logits != nullptr, trees[t].n_path < trees[t].n_nodes);
        }
        const int64_t t = llama_time_us();
        process_or_throw("tree_pass");
        const double ms = (llama_time_us() - t) / 1000.0;
        times_.verify += ms;
        times_.step += ms;
    } catch (...) {
        for (slot * s : slots) {
            s->n_rows = 0;
            forget(*s);
        }
        throw;
    }
    const int32_t n_vocab = llama_vocab_n_tokens(vocab());
    for (int32_t t = 0; t < n_trees; ++t) {
        const dflash_tree_rows & in = trees[t];
        slot &                   s  = *slots[t];
        for (int32_t i = 0; in.logits && i < in.n_nodes; ++i) {
            std::copy_n(llama_get_logits_ith(ctx_.get(), s.first_row + i), n_vocab, in.logits + (size_t) i * n_vocab);
        }
        s.n_rows        = 0;
        const bool kept = keep_path(s, shapes[t], std::vector<int32_t>(in.path, in.path + in.n_path));
        if (drafter_) {   // its context does not follow
            s.taps.clear(s.n_past());
        }
        if (!kept) {
            forget(s);
            throw status_error(DFLASH_ERROR_COMPUTE, "tree_pass: the target's memory cannot be rolled back");
        }
    }
}

std::string engine::cells() const {
    using json  = nlohmann::ordered_json;
    json caches = json::array();
    for (const cell_table & cache : access_cells(ctx_.get())) {
        json streams = json::array();
        for (const auto & cells : cache.streams) {
            json list = json::array();
            for (const cell & c : cells) {
                list.push_back({ c.index, c.pos, c.seqs });
            }
            streams.push_back({ { "used", cells.size() }, { "cells", list } });
        }
        caches.push_back({ { "size", cache.size }, { "streams", streams } });
    }
    return json{ { "caches", caches } }.dump();
}

}   // namespace dflash
