// What the engine tells about itself, as JSON.

#include "engine/engine.h"

#include "base/json.h"
#include "llama/access.h"

#include "common/chat.h"
#include "llama-ext.h"

#include <algorithm>
#include <type_traits>

namespace dflash {

namespace {

json describe(const llama_model * m) {
    char desc[256] = {};
    llama_model_desc(m, desc, sizeof(desc));
    return {
        { "arch", access_arch(m) },
        { "description", desc },
        { "ftype", llama_ftype_name(llama_model_ftype(m)) },
        { "vocab_type", (int) llama_vocab_type(llama_model_get_vocab(m)) },
        { "n_params", llama_model_n_params(m) },
        { "size", llama_model_size(m) },
        { "n_vocab", llama_vocab_n_tokens(llama_model_get_vocab(m)) },
        { "n_embd", llama_model_n_embd(m) },
        { "n_layer", llama_model_n_layer(m) },
        { "n_ctx_train", llama_model_n_ctx_train(m) },
    };
}

json by_device(const memory_table & table) {
    json j = json::object();
    for (const memory_table::row & row : table.rows()) {
        for (const auto & [part, bytes] : row.parts) {
            j[row.device][part] = bytes;
        }
    }
    return j;
}

template <class Map> json map_json(const Map & counts) {
    json j = json::object();
    for (const auto & [key, n] : counts) {
        if constexpr (std::is_arithmetic_v<std::decay_t<decltype(key)>>) {
            j[std::to_string(key)] = n;
        } else {
            j[key] = n;
        }
    }
    return j;
}

}   // namespace

memory_table engine::allocated() const {
    memory_table table;
    buffer_bytes context, compute;
    for (const auto & [type, data] : llama_get_memory_breakdown(ctx_.get())) {
        context[type] += data.context;
        compute[type] += data.compute;
    }
    const buffer_bytes tapes = access_tapes(ctx_.get());
    for (const auto & [type, bytes] : tapes) {
        context[type] -= std::min(bytes, context[type]);
    }
    table.add("target", weights_);
    table.add("context", context);
    table.add("tapes", tapes);
    table.add("compute", compute);
    if (drafter_) {
        table.add("drafter", draft_weights_);
        table.add("drafter", drafter_->copied_memory());
        table.add("drafter_context", drafter_->context_memory());
        table.add("drafter_compute", drafter_->compute_memory());
    }
    if (tap_store_) {
        table.add("taps", { { ggml_backend_dev_buffer_type(tap_store_->device()), tap_store_->memory_bytes() } });
    }
    return table;
}

std::string engine::info() const {
    size_t context = 0, compute = 0;
    for (const auto & [type, data] : llama_get_memory_breakdown(ctx_.get())) {
        context += data.context;
        compute += data.compute;
    }
    json j = {
        { "target", describe(model_.get()) },
        { "drafter", nullptr },
        { "n_ctx", params_.n_ctx },
        { "n_ctx_slot", limits_.n_ctx_slot },
        { "ctx_shared", params_.share_ctx },
        { "ctx_limit", ctx_limit_ },
        { "n_slots", slots_.size() },
        { "n_rows_max", limits_.n_rows },
        { "bos_token", llama_vocab_bos(vocab()) },
        { "eos_token", llama_vocab_eos(vocab()) },
        { "add_bos", llama_vocab_get_add_bos(vocab()) },
        { "fim_pre", llama_vocab_fim_pre(vocab()) },
        { "fim_suf", llama_vocab_fim_suf(vocab()) },
        { "fim_mid", llama_vocab_fim_mid(vocab()) },
        { "fim_rep", llama_vocab_fim_rep(vocab()) },
        { "fim_sep", llama_vocab_fim_sep(vocab()) },
        { "no_tree", no_tree_ },
        { "kv_unified", params_.kv_unified },
        { "not_bit_exact", access_row_variance(ctx_.get()) },
        { "chat_template", common_chat_templates_source(templates_.get()) },
        { "chat_template_caps", common_chat_templates_get_caps(templates_.get()) },
        { "memory", { { "target", llama_model_size(model_.get()) }, { "context", context }, { "compute", compute } } },
    };
    if (is_recurrent()) {
        const state_bytes bytes   = access_state_bytes(ctx_.get());
        j["memory"]["slot_state"] = bytes.state;
        j["memory"]["slot_tape"]  = bytes.tape;
        j["tape_rows"]            = tape_rows_;
    }
    if (drafter_) {
        json d             = describe(draft_model_.get());
        d["kind"]          = drafter_->kind().name;
        d["block_size"]    = drafter_->model().block_size;
        d["anchor_first"]  = drafter_->model().anchor_first;
        d["keeps_block"]   = drafter_->model().keeps_block();
        d["n_vocab_draft"] = drafter_->model().output->ne[1];
        d["top_k"]         = drafter_->top_k();
        d["lattice"]       = drafter_->kind().lattice;
        d["target_layers"] = drafter_->model().target_layers;
        d["mask_token"]    = llama_vocab_mask(llama_model_get_vocab(draft_model_.get()));
        d["draft_ctx"]     = drafter_->n_ctx();
        d["no_draft"]      = no_draft_;
        size_t copied      = 0;
        for (const auto & [type, bytes] : drafter_->copied_memory()) {
            copied += bytes;
        }
        j["memory"]["drafter"]         = llama_model_size(draft_model_.get()) + copied;
        d["head_copied"]               = copied > 0;
        j["memory"]["drafter_context"] = drafter_->memory_bytes();
        j["memory"]["taps"]            = tap_store_ ? tap_store_->memory_bytes() : 0;
        d["taps_on"]                   = tap_store_ ? json(ggml_backend_dev_name(tap_store_->device())) : json(nullptr);
        j["drafter"]                   = d;
    }
    j["placement"] = by_device(allocated());
    return j.dump_safe();
}

std::string engine::planned() const {
    memory_table table = allocated();
    table.add("output", { { ggml_backend_cpu_buffer_type(), output_bytes() } });
    json devices = json::array();
    for (const ggml_backend_dev_t device : access_devices(model_.get())) {
        size_t free = 0, total = 0;
        ggml_backend_dev_memory(device, &free, &total);
        devices.push_back({ { "name", ggml_backend_dev_name(device) },
            { "description", ggml_backend_dev_description(device) }, { "free", free }, { "total", total } });
    }
    json j = {
        { "target", describe(model_.get()) },
        { "drafter", draft_model_ ? describe(draft_model_.get()) : json(nullptr) },
        { "n_expert", llama_model_n_expert(model_.get()) },
        { "n_ctx", params_.n_ctx },
        { "n_ctx_slot", limits_.n_ctx_slot },
        { "ctx_shared", params_.share_ctx },
        { "ctx_limit", ctx_limit_ },
        { "n_slots", params_.n_slots },
        { "draft_ctx", drafter_ ? drafter_->n_ctx() : 0 },
        { "tape_rows", tape_rows_ },
        { "devices", devices },
        { "placement", by_device(table) },
    };
    return j.dump_safe();
}

std::string engine::stats() const {
    const pass_costs &                costs  = controller_.costs();
    const controller::choice_counts & counts = controller_.counts();
    const length_choice &             choice = controller_.last_choice();
    const double                      t_other =
        times_.step - times_.plan - times_.verify - times_.walk - times_.commit - times_.draft - times_.grow;
    const json choices     = { { "nodes", map_json(counts.nodes) }, { "lengths", map_json(counts.lengths) },
            { "reasons", map_json(counts.reasons) } };
    const json last_choice = {
        { "length", choice.length },
        { "rate", choice.rate },
        { "plain_rate", controller_.plain_rate(1) },
        { "drafted_rate", controller_.drafting().rate() },
        { "resting", controller_.drafting().resting() },
        { "reason", controller_.reason() },
    };
    const json j = {
        { "steps", totals_.n_steps },
        { "passes", totals_.n_passes },
        { "rows", totals_.n_rows },
        { "tokens", totals_.n_tokens },
        { "t_plan_ms", times_.plan },
        { "t_verify_ms", times_.verify },
        { "t_walk_ms", times_.walk },
        { "t_commit_ms", times_.commit },
        { "t_draft_ms", times_.draft },
        { "t_grow_ms", times_.grow },
        { "t_step_ms", times_.step },
        { "t_other_ms", std::max(0.0, t_other) },
        { "graphs_reused_target", totals_.n_reused },
        { "graphs_built_target", totals_.n_passes - totals_.n_reused },
        { "graphs_reused_target_decoding", totals_.n_decoding_reused },
        { "graphs_built_target_decoding", totals_.n_decoding - totals_.n_decoding_reused },
        { "graphs_built_drafter", drafter_ ? drafter_->n_graphs_built : 0 },
        { "graphs_reused_drafter", drafter_ ? drafter_->n_graphs_reused : 0 },
        { "cost_verify_ms", map_json(costs.verify.points()) },
        { "cost_draft_ms", map_json(costs.draft.points()) },
        { "cost_other_ms", costs.other_ms },
        { "cost_rebuild_ms", costs.rebuild_ms },
        { "cost_cell_ms", costs.verify.per_cell() },
        { "cost_source", costs.source },
        { "kv_packs", access_packs(ctx_.get()) },
        { "choices", choices },
        { "lookup", { { "drafted", totals_.n_lookup_drafted }, { "accepted", totals_.n_lookup_accepted } } },
        { "cells", { { "size", limits_.n_cells }, { "used", limits_.n_cells > 0 ? used_cells() : 0 } } },
        { "host_cache",
            { { "conversations", host_.size() }, { "bytes", host_.bytes() },
                { "limit", host_.limit() == host_cache::NO_LIMIT ? json(nullptr) : json(host_.limit()) } } },
        { "draft_history", { { "bytes", drafter_ ? drafter_->history_bytes() : 0 },
                               { "limit", drafter_ ? drafter_->history_limit() : 0 } } },
        { "moved", { { "shared", kept_.n_shared }, { "saved", kept_.n_saved }, { "restored", kept_.n_restored },
                       { "left", kept_.n_left }, { "set_aside", kept_.n_set_aside } } },
        { "moved_bytes", { { "to_device", totals_.moved.to_device }, { "from_device", totals_.moved.from_device },
                             { "between_devices", totals_.moved.between_devices } } },
        { "drafter_failure", controller_.drafter_failure() },
        { "choice", last_choice },
    };
    return j.dump();
}

}   // namespace dflash
