#include "engine/inspector.h"

#include "accept/logits_row.h"
#include "accept/sampling.h"
#include "base/json.h"
#include "base/stopwatch.h"
#include "draft/block_drafter.h"
#include "engine/media_pass.h"
#include "engine/request.h"
#include "llama/access.h"
#include "llama/mtp_layers.h"

#include "llama-ext.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace dflash {

// Throws where running requests leave fewer cells.
void inspector::need_cells(int32_t n, const char * what) {
    if (!cache_.make_room(n)) {
        throw status_error(
            DFLASH_ERROR_BUSY, what, ": no room for ", n, " tokens beside running requests: try again later");
    }
}

// Feeds tokens[0..n) to an idle slot, `width` rows of text a pass; each_pass sees the taps of each pass, and the logits
// of its last row and of those from `first_output` on, if they are text. Whatever happens, the slot is empty
// afterwards.
void inspector::feed(int32_t id, const int32_t * tokens, int32_t n, int32_t width, int32_t first_output,
    const char * what, const std::function<void(int32_t from, int32_t n_rows)> & each_pass) {
    prompt_media media = check_tokens(tokens, n, target_, media_, live_);
    cache_.forget(id);
    need_cells(n, what);
    media.begin(encoder_);
    try {
        for (int32_t from = 0; from < n;) {
            const int32_t end    = std::min({ n, from + width, media.layout.next(from) });
            const int32_t n_rows = end > from ? feed_text(id, tokens, from, end, first_output, media.layout, what)
                                              : feed_medium(id, media, from, what);
            each_pass(from, n_rows);
            from += n_rows;
        }
    } catch (...) {
        media.end(encoder_);
        cache_.forget(id);
        throw;
    }
    media.end(encoder_);
    cache_.forget(id);
}

// One pass over tokens [from, end). Returns its rows.
int32_t inspector::feed_text(int32_t id, const int32_t * tokens, int32_t from, int32_t end, int32_t first_output,
    const media_layout & layout, const char * what) {
    batch & rows = target_.rows();
    rows.clear();
    for (int32_t i = from; i < end; ++i) {
        rows.add_row(id, tokens[i], layout.position(i), i >= first_output || i == end - 1);
    }
    target_.end_pass();
    drafts_.free_tap_cells();
    target_.process(what);
    return end - from;
}

// One pass over rows of the medium at index `from`. Returns its rows.
int32_t inspector::feed_medium(int32_t id, prompt_media & media, int32_t from, const char * what) {
    constexpr int32_t  WAIT_MS = 1000;
    const media_span & span    = *media.layout.at(from);
    const medium &     m       = *media.at(from);
    media.want(encoder_, from);
    while (!encoder_->rows(m)) {
        encoder_->wait(m, WAIT_MS);
    }
    const int32_t n_rows = media_pass_rows(target_.limits(), m, from - span.begin);
    const int32_t pos    = media.layout.position(span.begin);
    const int     rc     = process_media(target_, drafts_, id, m, encoder_->rows(m), pos, from - span.begin, n_rows);
    if (rc != 0) {
        throw status_error(DFLASH_ERROR_COMPUTE, what, ": a pass over a medium failed (code ", rc, ")");
    }
    return n_rows;
}

// Whether rows from `first` on are rows of media, which have no logits.
static void refuse_media_from(const char * field, int32_t first, const prompt_media & media, int32_t n) {
    refuse_if(
        media.layout.next(first) < n, field, " is ", first, ", before a medium's end: rows of media have no logits");
}

void inspector::score(int32_t id, const dflash_score_params & p) {
    cache_.check_idle(id);
    const prompt_media media = check_tokens(p.tokens, p.n_tokens, target_, media_, live_);
    check_range("first", p.first, 1, p.n_tokens);
    refuse_media_from("first", p.first - 1, media, p.n_tokens);
    check_range("width", p.width, 1, target_.limits().n_outputs);
    const int32_t n_vocab = target_.n_vocab();
    // Before `first` wide passes without outputs would do, but the same widths all along keep the rounding comparable.
    feed(id, p.tokens, p.n_tokens - 1, p.width, 0, "score", [&](int32_t from, int32_t n_rows) {
        for (int32_t k = 0; k < n_rows; ++k) {
            const int32_t predicted = from + k + 1, i_out = predicted - p.first;
            if (i_out < 0) {
                continue;
            }
            const float * row  = logits_of(target_.context(), k);
            const int32_t best = (int32_t) (std::max_element(row, row + n_vocab) - row);
            if (p.best_ids) {
                p.best_ids[i_out] = best;
            }
            if (p.best_logits) {
                p.best_logits[i_out] = row[best];
            }
            if (p.logits) {
                p.logits[i_out] = row[p.tokens[predicted]];
            }
        }
    });
}

// Rows of a drafter's logits [n_block, n_logits], by tokens of the target: [n_block, n_vocab].
void inspector::spread_logits(
    const block_drafter & drafter, const std::vector<float> & rows, int32_t n_block, float * out) const {
    const size_t n_vocab = target_.n_vocab(), n_logits = rows.size() / n_block;
    std::fill_n(out, n_vocab * n_block, -INFINITY);
    for (size_t i = 0; i < rows.size(); ++i) {
        out[i / n_logits * n_vocab + drafter.target_token((int32_t) (i % n_logits))] = rows[i];
    }
}

void inspector::probe(int32_t id, const dflash_probe_params & p) {
    cache_.check_idle(id);
    auto * drafter = drafts_.empty() ? nullptr : dynamic_cast<block_drafter *>(&drafts_[0].drafter());
    refuse_if(!drafter, "draft_probe needs a drafter with layers of its own");
    const media_layout    layout = check_tokens(p.tokens, p.n_tokens, target_, media_, live_).layout;
    const drafter_model & model  = drafter->model();
    const int32_t         length = p.n_block + model.anchor_first, lowest = model.keeps_block() ? model.block_size : 2;
    const int32_t         n_read = p.n_tokens - 1;   // all but the anchor
    refuse_if(n_read < 1 || p.n_block < lowest || p.n_block > model.block_size || length > model.max_length(),
        "n_tokens must be at least 2 and n_block ", lowest, "..", model.max_length() - model.anchor_first);
    refuse_if(is_media(p.tokens[n_read]), "tokens: the last one, the anchor, must be text");
    draft_probe full;
    feed(id, p.tokens, n_read, target_.limits().n_rows, p.n_tokens, "draft_probe", [&](int32_t from, int32_t n_rows) {
        drafts_.keep_taps(id, 0, n_rows);
        if (target_.taps()) {   // which has no room for long texts
            drafts_[0].inject_all();
        }
        if (from + n_rows == n_read) {
            std::vector<draft>       drafts;
            const draft_memory::part part = { id, true, p.tokens[n_read], nullptr, layout.position(n_read) };
            drafter->run({ drafts_[0].job_of(part) }, length, drafts, &full);
        }
    });
    const auto copy = [](const auto & from, auto * to) {
        if (to) {
            std::copy(from.begin(), from.end(), to);
        }
    };
    copy(full.hidden, p.hidden);
    if (p.logits) {
        spread_logits(*drafter, full.logits, p.n_block, p.logits);
    }
    // row 0 belongs to the anchor, which may propose nothing
    const int32_t k = drafter->top_k(), skipped = model.anchor_first ? 0 : k;
    copy(full.ids, p.ids ? p.ids + skipped : nullptr);
    copy(full.scores, p.scores ? p.scores + (drafter->kind().lattice ? k * skipped : skipped) : nullptr);
}

// Whether the target's graph offers a layer's input, or its final hidden state, of the width of all others.
static bool offers_tap(const llama_model * model, int32_t layer) {
    if (layer != DFLASH_FINAL_STATE) {
        return access_has_tap(model, layer);
    }
    const bool has_mtp = std::any_of(std::begin(MTP_ARCHS), std::end(MTP_ARCHS),
        [&](const mtp_arch & arch) { return access_arch(model) == arch.name; });
    return has_mtp && llama_model_n_embd_out(model) == llama_model_n_embd(model);
}

// From now on passes leave these taps.
static void request_taps(target & target, std::vector<int32_t> layers) {
    const auto inputs_end = std::remove(layers.begin(), layers.end(), DFLASH_FINAL_STATE);
    if (inputs_end != layers.end()) {
        target.tap_final_state();
    }
    layers.erase(inputs_end, layers.end());
    target.set_tapped_layers(layers);
}

// Copies the taps of the last pass, n rows: [n, layers, n_embd].
static void copy_taps(const target & target, const std::vector<int32_t> & layers, int32_t n, float * out) {
    const size_t n_embd = llama_model_n_embd(target.model());
    for (size_t k = 0; k < layers.size(); ++k) {
        const float * rows = layers[k] == DFLASH_FINAL_STATE
                                 ? llama_get_embeddings_nextn(target.context())
                                 : llama_get_embeddings_layer_inp(target.context(), layers[k]);
        for (int32_t i = 0; i < n; ++i) {
            std::copy_n(rows + i * n_embd, n_embd, out + (i * layers.size() + k) * n_embd);
        }
    }
}

void inspector::tap(int32_t id, const dflash_tap_params & p) {
    cache_.check_idle(id);
    refuse_if(
        !drafts_.empty(), "tap needs an engine without a drafter (draft_kind lookup): its layers are tapped already");
    const prompt_media media = check_tokens(p.tokens, p.n_tokens, target_, media_, live_);
    const int32_t      n = p.n_tokens, k = p.k, n_vocab = target_.n_vocab();
    refuse_if(p.n_layers < 1 || !p.layers, "n_layers is ", p.n_layers, ", must be at least 1");
    check_range("k", k, 0, n_vocab);
    check_range("first", p.first, 0, n);
    refuse_if(k > 0 && (!p.ids || !p.log_probs), "ids and log_probs are needed where k is not 0");
    if (k > 0) {
        refuse_media_from("first", p.first, media, n);
    }
    const std::vector<int32_t> layers(p.layers, p.layers + p.n_layers);
    for (const int32_t layer : layers) {
        refuse_if(!offers_tap(target_.model(), layer), "layers has ", layer, ", which the target (",
            access_arch(target_.model()), ", ", llama_model_n_layer(target_.model()),
            " layers) does not offer as a tap");
    }
    request_taps(target_, layers);
    const size_t        tap_size     = layers.size() * llama_model_n_embd(target_.model());
    const int32_t       outputs_from = k > 0 ? p.first : n;
    const pass_limits & limits       = target_.limits();
    // each pass has one for its last row
    const int32_t                 width = n - outputs_from < limits.n_outputs ? limits.n_rows : limits.n_outputs;
    logits_row                    row;
    std::vector<llama_token_data> largest;
    feed(id, p.tokens, n, width, outputs_from, "tap", [&](int32_t from, int32_t n_rows) {
        if (p.taps) {
            copy_taps(target_, layers, n_rows, p.taps + from * tap_size);
        }
        for (int32_t at = std::max(from, outputs_from); at < from + n_rows; ++at) {
            row.scan(logits_of(target_.context(), at - from), n_vocab);
            row.largest(k, largest);
            const double log_sum = row.log_sum_exp();
            for (int32_t j = 0; j < k; ++j) {
                p.ids[(size_t) (at - p.first) * k + j]       = largest[j].id;
                p.log_probs[(size_t) (at - p.first) * k + j] = (float) (largest[j].logit - log_sum);
            }
        }
    });
}

// ---- passes over any trees ----

template <class... Parts> static void refuse_tree_if(bool wrong, int32_t index, const Parts &... why) {
    refuse_if(wrong, "trees[", index, "]: ", why...);
}

static void check_path(const dflash_tree_rows & rows, int32_t index) {
    refuse_tree_if(rows.n_path < 0 || rows.n_path > rows.n_nodes || (rows.n_path > 0 && !rows.path), index,
        "n_path is ", rows.n_path, ", must be 0..", rows.n_nodes);
    for (int32_t k = 0; k < rows.n_path; ++k) {
        const int32_t node = rows.path[k], before = k == 0 ? -1 : rows.path[k - 1];
        refuse_tree_if(node < 0 || node >= rows.n_nodes || rows.parents[node] != before, index, "path[", k,
            "] is not a child of the one before");
    }
}

static tree make_tree(const dflash_tree_rows & rows, int32_t index) {
    refuse_tree_if(
        rows.n_nodes < 1 || !rows.tokens || !rows.parents, index, "n_nodes is ", rows.n_nodes, ", must be at least 1");
    tree t;
    for (int32_t i = 0; i < rows.n_nodes; ++i) {
        const int32_t parent = rows.parents[i];
        refuse_tree_if(i == 0 ? parent != -1 : parent < 0 || parent >= i, index, "parents[", i, "] is ", parent,
            ", must be ", (i == 0 ? "-1" : "a smaller index"));
        node n;
        n.token  = rows.tokens[i];
        n.parent = parent;
        n.depth  = i == 0 ? 0 : t.nodes[parent].depth + 1;
        t.nodes.push_back(n);
    }
    return t;
}

// A tree that the slot and the target's memory can take.
tree inspector::check_tree(const dflash_tree_rows & rows, int32_t index) {
    cache_.check_idle(rows.slot);
    const int32_t n_past = cache_.at(rows.slot).n_past();
    const tree    t      = make_tree(rows, index);
    check_text(rows.tokens, rows.n_nodes, target_);
    refuse_tree_if(n_past + rows.n_nodes > target_.limits().n_ctx_slot, index, n_past, " tokens and ", rows.n_nodes,
        " nodes are more than a slot's context of ", target_.limits().n_ctx_slot);
    const auto check_nodes = [&](int32_t most) {
        refuse_tree_if(rows.n_nodes > most, index, "n_nodes is ", rows.n_nodes, ", must be at most ", most);
    };
    memory &   memory     = target_.memory();
    const bool rolls_back = rows.n_path < rows.n_nodes;
    if (!t.is_chain()) {
        const std::string why = memory.no_tree();
        refuse_tree_if(!why.empty(), index, why);
        check_nodes(DFLASH_MAX_NODES);
    } else {
        refuse_tree_if(rolls_back && memory.recurrent() && !memory.tapes(), index,
            "a recurrent state cannot be rolled back to a part of the chain");
    }
    if (memory.tapes() && (!t.is_chain() || rolls_back)) {
        memory.need_tapes(DFLASH_MAX_NODES);
        check_nodes(memory.tape_rows());
    }
    check_path(rows, index);
    return t;
}

// All trees of a pass, each on an idle slot of its own.
std::vector<tree> inspector::check_trees(const dflash_tree_rows * trees, int32_t n_trees) {
    refuse_if(!trees || n_trees < 1, "n_trees is ", n_trees, ", must be at least 1");
    std::vector<tree> checked;
    std::set<int32_t> slots;
    int32_t           n_rows = 0, n_outputs = 0;
    for (int32_t i = 0; i < n_trees; ++i) {
        const dflash_tree_rows & rows = trees[i];
        refuse_tree_if(!slots.insert(rows.slot).second, i, "slot ", rows.slot, " has another tree in this pass");
        checked.push_back(check_tree(rows, i));
        n_rows += rows.n_nodes;
        n_outputs += rows.logits ? rows.n_nodes : 1;
    }
    refuse_if(n_rows > target_.limits().n_rows || n_outputs > target_.limits().n_outputs, n_rows, " rows with ",
        n_outputs, " outputs are more than one pass has (", target_.limits().n_rows, ", ", target_.limits().n_outputs,
        ")");
    return checked;
}

double inspector::tree_pass(const dflash_tree_rows * trees, int32_t n_trees) {
    const std::vector<tree> checked = check_trees(trees, n_trees);
    int32_t                 n_nodes = 0;
    for (const tree & t : checked) {
        n_nodes += t.size();
    }
    need_cells(n_nodes, "tree_pass");
    target_.rows().clear();
    try {
        return run_trees(trees, checked);
    } catch (...) {   // no tree may stay in the memory without its path
        for (int32_t i = 0; i < n_trees; ++i) {
            cache_.forget(trees[i].slot);
        }
        throw;
    }
}

// One pass over the trees, then the logits and the path of each. Returns the milliseconds of the pass.
double inspector::run_trees(const dflash_tree_rows * trees, const std::vector<tree> & checked) {
    std::vector<int32_t>          first_rows;
    std::vector<batch::tree_form> forms(checked.size());
    for (size_t i = 0; i < checked.size(); ++i) {
        const int32_t slot   = trees[i].slot;
        forms[i].all_outputs = trees[i].logits != nullptr;
        forms[i].open        = target_.opens(checked[i], trees[i].n_path < trees[i].n_nodes);
        first_rows.push_back(target_.rows().add_tree(slot, checked[i], cache_.at(slot).position(), forms[i]));
    }
    target_.end_pass();
    drafts_.free_tap_cells();
    const stopwatch watch;
    target_.process("tree_pass");
    const double  pass_ms = watch.ms();
    const int32_t n_vocab = target_.n_vocab();
    for (size_t i = 0; i < checked.size(); ++i) {
        const dflash_tree_rows & rows = trees[i];
        for (int32_t k = 0; rows.logits && k < rows.n_nodes; ++k) {
            std::copy_n(logits_of(target_.context(), first_rows[i] + k), n_vocab, rows.logits + (size_t) k * n_vocab);
        }
        const std::vector<int32_t> path(rows.path, rows.path + rows.n_path);
        drafts_.keep_taps(rows.slot, first_rows[i], path);
        if (!cache_.keep_path(rows.slot, checked[i], path, forms[i].open)) {
            throw status_error(DFLASH_ERROR_COMPUTE, "tree_pass: the target's memory cannot be rolled back");
        }
    }
    return pass_ms;
}

std::string cells_json(const target & target) {
    json caches = json::array();
    for (const cell_table & cache : access_cells(target.context())) {
        json streams = json::array();
        for (const auto & cells : cache.streams) {
            json list = json::array();
            for (const cell & c : cells) {
                list.push_back(json::array({ c.index, c.pos, c.seqs }));
            }
            streams.push_back({ { "used", cells.size() }, { "cells", list } });
        }
        caches.push_back({ { "size", cache.size }, { "streams", streams } });
    }
    return json{ { "caches", caches } }.dump();
}

}   // namespace dflash
