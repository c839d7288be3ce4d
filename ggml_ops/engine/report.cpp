#include "engine/report.h"

#include "base/json.h"
#include "engine/memory_use.h"
#include "engine/model_description.h"
#include "llama/access.h"

#include "common/chat.h"

#include <algorithm>
#include <functional>

namespace dflash {

namespace {

std::string name_of(int32_t n) { return std::to_string(n); }
std::string name_of(reason why) { return text_of(why); }

template <class Map> json map_json(const Map & counts) {
    json j = json::object();
    for (const auto & [key, n] : counts) {
        j[name_of(key)] = n;
    }
    return j;
}

}   // namespace

// Of a target's head, copied to where a drafter computes.
static size_t copied_bytes(const drafter_list & drafters) {
    size_t n = 0;
    for (const drafter * drafter : drafters) {
        n += total(drafter->copied_memory());
    }
    return n;
}

// What the projector reads; null: there is none.
static json media_json(const media_encoder * encoder) {
    if (!encoder) {
        return nullptr;
    }
    const projector & p = encoder->projector();
    return { { "vision", p.sees() }, { "audio", p.hears() }, { "marker", p.marker() } };
}

static void add_limits(json & j, const engine & e) {
    const dflash_engine_params & params = e.params();
    j["n_ctx"]                          = params.n_ctx;
    j["n_ctx_slot"]                     = e.target().limits().n_ctx_slot;
    j["ctx_shared"]                     = params.share_ctx;
    j["ctx_limit"]                      = e.target().ctx_limit();
    j["n_slots"]                        = params.n_slots;
    j["n_rows_max"]                     = e.target().limits().n_rows;
}

static void add_special_tokens(json & j, const llama_vocab * vocab) {
    j["bos_token"] = llama_vocab_bos(vocab);
    j["eos_token"] = llama_vocab_eos(vocab);
    j["add_bos"]   = llama_vocab_get_add_bos(vocab);
    j["fim_pre"]   = llama_vocab_fim_pre(vocab);
    j["fim_suf"]   = llama_vocab_fim_suf(vocab);
    j["fim_mid"]   = llama_vocab_fim_mid(vocab);
    j["fim_rep"]   = llama_vocab_fim_rep(vocab);
    j["fim_sep"]   = llama_vocab_fim_sep(vocab);
}

// Bytes that the engine's models take, beside projectors.
static json memory_json(const engine & e, const drafter_list & drafters) {
    const target &   target = e.target();
    const memory_use used   = used_memory(target);
    json             j      = {
        { "target", llama_model_size(e.models().target()) },
        { "context", total(used.context) },
        { "compute", total(used.compute) },
    };
    if (target.memory().recurrent()) {
        const state_bytes bytes = access_state_bytes(target.context());
        j["slot_state"]         = bytes.state;
        j["slot_tape"]          = bytes.tape;
    }
    if (!drafters.empty()) {
        size_t context = 0;
        for (const drafter * drafter : drafters) {
            context += total(drafter->context().memory());
        }
        j["drafter"]         = total(e.models().drafter_weights()) + copied_bytes(drafters);
        j["drafter_context"] = context;
        j["taps"]            = target.taps() ? target.taps()->memory_bytes() : 0;
    }
    return j;
}

static json placement_json(const engine & e, const drafter_list & drafters) {
    memory_table table = allocated(e.models(), e.target(), drafters);
    if (e.encoder()) {
        table.add("projector", e.encoder()->projector().memory());
    }
    return by_device(table);
}

std::string info_json(const engine & e) {
    const target &     target   = e.target();
    const memory &     memory   = target.memory();
    const drafter_list drafters = e.drafts().drafters();
    json               j        = { { "target", describe(e.models().target()) } };
    add_limits(j, e);
    add_special_tokens(j, target.vocab());
    j["no_tree"]            = memory.no_tree();
    j["no_draft"]           = target.no_draft();
    j["kv_unified"]         = e.params().kv_unified;
    j["not_bit_exact"]      = access_row_variance(target.context());
    j["media"]              = media_json(e.encoder());
    j["chat_template"]      = common_chat_templates_source(e.templates());
    j["chat_template_caps"] = common_chat_templates_get_caps(e.templates());
    j["memory"]             = memory_json(e, drafters);
    if (memory.recurrent()) {
        j["tape_rows"] = memory.tape_rows();
    }
    add_drafters(j, drafters, e.models(), target);
    if (!drafters.empty()) {
        j["drafter"]["head_copied"] = copied_bytes(drafters) > 0;
    }
    j["placement"] = placement_json(e, drafters);
    return j.dump_safe();
}

// Draft tokens that were only quoted, and the memory of texts to quote.
static json lookup_json(const engine & e) {
    static constexpr const char * NAMES[N_QUOTE_SOURCES] = { "text", "prediction", "corpus", "answers" };
    const engine_totals &         totals                 = e.totals();
    json                          by_source              = json::object();
    int64_t                       n_drafted = 0, n_accepted = 0;
    for (size_t i = 0; i < N_QUOTE_SOURCES; ++i) {
        by_source[NAMES[i]] = { { "drafted", totals.n_quoted[i] }, { "accepted", totals.n_quoted_accepted[i] } };
        n_drafted += totals.n_quoted[i];
        n_accepted += totals.n_quoted_accepted[i];
    }
    return {
        { "drafted", n_drafted },
        { "accepted", n_accepted },
        { "by_source", by_source },
        { "corpus", { { "tokens", e.corpus().size() }, { "bytes", e.corpus().bytes() } } },
        { "answers", { { "tokens", e.answers().size() }, { "bytes", e.answers().bytes() } } },
    };
}

// Counts and times of all steps so far.
static json totals_json(const engine & e) {
    const engine_totals & totals = e.totals();
    const phase_times &   times  = e.times();
    const double          t_other =
        times.step - times.plan - times.verify - times.walk - times.commit - times.draft - times.grow;
    return {
        { "steps", totals.n_steps },
        { "passes", totals.n_passes },
        { "rows", totals.n_rows },
        { "tokens", totals.n_tokens },
        { "t_plan_ms", times.plan },
        { "t_verify_ms", times.verify },
        { "t_walk_ms", times.walk },
        { "t_commit_ms", times.commit },
        { "t_draft_ms", times.draft },
        { "t_grow_ms", times.grow },
        { "t_step_ms", times.step },
        { "t_other_ms", std::max(0.0, t_other) },
        { "graphs_reused_target", totals.n_reused },
        { "graphs_built_target", totals.n_passes - totals.n_reused },
        { "graphs_reused_target_decoding", totals.n_decoding_reused },
        { "graphs_built_target_decoding", totals.n_decoding - totals.n_decoding_reused },
        { "moved_bytes", { { "to_device", totals.moved.to_device }, { "from_device", totals.moved.from_device },
                             { "between_devices", totals.moved.between_devices } } },
        { "lookup", lookup_json(e) },
    };
}

// By drafter.
static json by_drafter(const engine & e, const std::function<json(int32_t drafter)> & value) {
    json j = json::object();
    for (int32_t i = 0; i < e.drafts().size(); ++i) {
        j[e.drafts()[i].drafter().kind().name] = value(i);
    }
    return j;
}

// What the controller measured and chose.
static json policy_json(const engine & e) {
    const controller &                policy = e.controller();
    const pass_record &               next   = e.next_pass();
    const pass_costs &                costs  = policy.costs();
    const controller::choice_counts & counts = policy.counts();
    const length_choice &             choice = policy.last_choice();
    return {
        { "cost_verify_ms", map_json(costs.verify.points()) },
        { "cost_draft_ms", costs.drafts.empty() ? json::object() : map_json(costs.drafts[0].points()) },
        { "cost_drafters_ms", by_drafter(e, [&](int32_t i) { return map_json(costs.drafts[i].points()); }) },
        { "cost_other_ms", costs.other_ms },
        { "cost_rebuild_ms", costs.rebuild_ms },
        { "cost_cell_ms", costs.verify.per_cell() },
        { "cost_source", costs.source },
        { "choices", { { "nodes", map_json(counts.nodes) }, { "lengths", map_json(counts.lengths) },
                         { "windows", map_json(counts.windows) },
                         { "drafters", by_drafter(e, [&](int32_t i) { return json(counts.drafters[i]); }) },
                         { "reasons", map_json(counts.reasons) } } },
        { "drafter_failure", policy.drafter_failure() },
        { "choice", { { "length", choice.length }, { "rate", choice.rate },
                        { "plain_rate", policy.plain_rate(1, next.choice.n_attended) },
                        { "drafted_rate", policy.switch_state().rate() },
                        { "resting", policy.switch_state().resting() }, { "reason", text_of(policy.reason()) } } },
    };
}

// How much of the cache and of the host's memory the texts of slots and earlier requests take.
static json cache_json(const cache & cache) {
    const host_cache &         host  = cache.host();
    const cache::move_counts & moved = cache.moved();
    return {
        { "cells", { { "size", cache.size().value_or(0) }, { "used", cache.size() ? cache.used_cells() : 0 } } },
        { "host_cache", { { "conversations", host.size() }, { "bytes", host.bytes() },
                            { "limit", host.limit() == host_cache::NO_LIMIT ? json(nullptr) : json(host.limit()) } } },
        { "moved", { { "shared", moved.shared }, { "saved", moved.saved }, { "restored", moved.restored },
                       { "left", moved.left }, { "set_aside", moved.set_aside } } },
    };
}

std::string stats_json(const engine & e) {
    int64_t n_built = 0, n_reused = 0;
    size_t  history = 0, limit = 0;
    for (const drafter * drafter : e.drafts().drafters()) {
        n_built += drafter->n_graphs_built;
        n_reused += drafter->n_graphs_reused;
        history += drafter->context().history_bytes();
        limit += drafter->context().history_limit();
    }
    json j = {
        { "kv_packs", access_packs(e.target().context()) },
        { "graphs_built_drafter", n_built },
        { "graphs_reused_drafter", n_reused },
        { "draft_history", { { "bytes", history }, { "limit", limit } } },
    };
    for (const json & part : { totals_json(e), policy_json(e), cache_json(e.cache()) }) {
        for (const auto & [key, value] : part.items()) {
            j[key] = value;
        }
    }
    return j.dump_safe();
}

}   // namespace dflash
