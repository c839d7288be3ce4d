// The C API over engine. No exception leaves these functions.

#include "dflash.h"

#include "accept/sampling_params.h"
#include "api/chat.h"
#include "api/chat_parser.h"
#include "base/abort_guard.h"
#include "base/backends.h"
#include "base/error.h"
#include "base/ignored_fields.h"
#include "base/log.h"
#include "base/tokenize.h"
#include "engine/engine.h"
#include "engine/report.h"
#include "files/chat_template.h"
#include "files/gguf_check.h"
#include "llama/access.h"
#include "llama/devices.h"
#include "llama/mtp_layers.h"
#include "plan/stand_in_device.h"
#include "schema/chat_schema.h"
#include "tune/kernel_timing.h"

#include <algorithm>
#include <cstdlib>
#include <map>

using namespace dflash;

namespace {

// Runs f and turns an exception into dflash_last_error() and a status.
template <class F> int attempt(F && f) {
    try {
        set_error("");
        f();
        return DFLASH_OK;
    } catch (...) {
        return take_exception();
    }
}

// The same for functions that return what they have made, NULL on failure.
template <class F> auto attempt_new(F && f, int * status = nullptr) {
    decltype(f()) made = nullptr;
    const int     rc   = attempt([&] { made = f(); });
    if (status) {
        *status = rc;
    }
    return made;
}
template <class F> char * attempt_string(F && f, int * status = nullptr) {
    return attempt_new([&] { return dup_string(f()); }, status);
}

// The same for functions that return a number, which is never negative; the status on failure.
template <class F> int32_t attempt_number(F && f) {
    int32_t   n  = 0;
    const int rc = attempt([&] { n = f(); });
    return rc == DFLASH_OK ? n : rc;
}

// What a caller gave; throws where that is NULL.
template <class T> T & given(T * what, const char * name) {
    refuse_if(!what, name, " is NULL");
    return *what;
}
std::string given(const char * text, const char * name) { return &given<const char>(text, name); }
// Of an array, which may be NULL if it is empty.
template <class T> T * given(T * values, int32_t n, const char * name) {
    refuse_if(!values && n > 0, name, " is NULL");
    return values;
}

const char * device_type(ggml_backend_dev_t dev) {
    switch (ggml_backend_dev_type(dev)) {
        case GGML_BACKEND_DEVICE_TYPE_CPU: return "cpu";
        case GGML_BACKEND_DEVICE_TYPE_GPU: return "gpu";
        case GGML_BACKEND_DEVICE_TYPE_IGPU: return "igpu";
        default: return "accel";
    }
}

json describe(ggml_backend_dev_t dev) {
    size_t free = 0, total = 0;
    ggml_backend_dev_memory(dev, &free, &total);
    return { { "name", ggml_backend_dev_name(dev) }, { "description", ggml_backend_dev_description(dev) },
        { "type", device_type(dev) }, { "memory_total", total }, { "memory_free", free } };
}

// The types of weights for which the CPU backend has our kernels.
json packed_types() {
    json                     types         = json::array();
    const ggml_backend_reg_t cpu           = ggml_backend_reg_by_name("CPU");
    const auto               can_pack_type = backend_function<bool(ggml_type)>(cpu, "dflash_can_pack_type");
    for (int type = 0; can_pack_type && type < GGML_TYPE_COUNT; ++type) {
        if (can_pack_type((ggml_type) type)) {
            types.push_back(ggml_type_name((ggml_type) type));
        }
    }
    return types;
}

// Architectures whose MTP layers can draft, as far as `f` is true of them.
template <class F> json mtp_archs(F && f) {
    json names = json::array();
    for (const mtp_arch & arch : MTP_ARCHS) {
        if (f(arch)) {
            names.push_back(arch.name);
        }
    }
    return names;
}

// What files can be quantized to.
const std::map<std::string, llama_ftype> FILE_TYPES = { { "f32", LLAMA_FTYPE_ALL_F32 },
    { "f16", LLAMA_FTYPE_MOSTLY_F16 }, { "bf16", LLAMA_FTYPE_MOSTLY_BF16 }, { "q4_0", LLAMA_FTYPE_MOSTLY_Q4_0 },
    { "q4_1", LLAMA_FTYPE_MOSTLY_Q4_1 }, { "q5_0", LLAMA_FTYPE_MOSTLY_Q5_0 }, { "q5_1", LLAMA_FTYPE_MOSTLY_Q5_1 },
    { "q8_0", LLAMA_FTYPE_MOSTLY_Q8_0 }, { "q2_k", LLAMA_FTYPE_MOSTLY_Q2_K }, { "q3_k_m", LLAMA_FTYPE_MOSTLY_Q3_K_M },
    { "q4_k_s", LLAMA_FTYPE_MOSTLY_Q4_K_S }, { "q4_k_m", LLAMA_FTYPE_MOSTLY_Q4_K_M },
    { "q5_k_s", LLAMA_FTYPE_MOSTLY_Q5_K_S }, { "q5_k_m", LLAMA_FTYPE_MOSTLY_Q5_K_M },
    { "q6_k", LLAMA_FTYPE_MOSTLY_Q6_K }, { "iq4_nl", LLAMA_FTYPE_MOSTLY_IQ4_NL },
    { "iq4_xs", LLAMA_FTYPE_MOSTLY_IQ4_XS } };

}   // namespace

// ---- library ----

uint32_t dflash_abi_version(void) { return DFLASH_ABI_VERSION; }

char * dflash_library_info(void) {
    return attempt_string([] {
        backends_init();
        json backends = json::array(), devices = json::array(), features = json::object();
        for (size_t i = 0; i < ggml_backend_reg_count(); ++i) {
            ggml_backend_reg_t reg = ggml_backend_reg_get(i);
            backends.push_back(ggml_backend_reg_name(reg));
            if (const auto get =
                    backend_function<ggml_backend_feature *(ggml_backend_reg_t)>(reg, "ggml_backend_get_features")) {
                for (const ggml_backend_feature * f = get(reg); f && f->name; ++f) {
                    features[ggml_backend_reg_name(reg)][f->name] = f->value;
                }
            }
        }
        for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
            ggml_backend_dev_t dev = ggml_backend_dev_get(i);
            if (!is_rpc(dev)) {   // skip other machines' devices
                devices.push_back(describe(dev));
            }
        }
        const json info = {
            { "abi", DFLASH_ABI_VERSION },
            { "llama", llama_version() },
            { "backends", backends },
            { "devices", devices },
            { "features", features },
            { "cpu_variant", cpu_variant() },
            { "packed_types", packed_types() },
            { "gpu_offload", llama_supports_gpu_offload() },
            { "tapped_architectures", access_tapped_archs().all },
            { "tapped_to_the_end", access_tapped_archs().to_the_end },
            { "mtp_architectures", mtp_archs([](const mtp_arch &) { return true; }) },
            { "mtp_chains", mtp_archs([](const mtp_arch & arch) { return !arch.one_head; }) },
        };
        return info.dump_safe();
    });
}

void dflash_log_set(dflash_log_callback callback, int min_level, void * user) {
    attempt([&] { log_set(callback, min_level, user); });
}

int dflash_check_gguf(const char * path) {
    return attempt([&] { check_gguf(given(path, "path").c_str()); });
}

int dflash_check_embedding_gguf(const char * path) {
    return attempt([&] { check_gguf(given(path, "path").c_str(), gguf_use::embed); });
}

int dflash_quantize(const char * path_in, const char * path_out, const char * ftype, int32_t n_threads) {
    return attempt([&] {
        backends_init();
        std::string name = ftype ? ftype : "";
        std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return (char) std::tolower(c); });
        const auto it = FILE_TYPES.find(name);
        refuse_if(it == FILE_TYPES.end(), "ftype is '", name,
            "', which the quantizer does not know (try q4_0, q4_k_m, q8_0)");
        refuse_if(!path_out, "path_out is NULL");
        check_gguf(given(path_in, "path_in").c_str());
        const abort_guard           guard(abort_guard::phase::load);
        llama_model_quantize_params p = llama_model_quantize_default_params();
        p.ftype                       = it->second;
        p.nthread                     = n_threads;
        if (llama_model_quantize(path_in, path_out, &p) != 0) {
            throw status_error(DFLASH_ERROR_MODEL, path_in, " could not be quantized: ", logged_error());
        }
    });
}

// ---- engine ----

void dflash_engine_params_default(dflash_engine_params * p) {
    *p                    = {};
    p->n_slots            = 1;
    p->n_batch            = 2048;
    p->n_ubatch           = 512;
    p->n_gpu_layers       = -1;
    p->n_gpu_layers_draft = -1;
    p->flash_attn         = -1;
    p->type_k = p->type_v = p->type_k_draft = p->type_v_draft = "f16";
    p->use_mmap                                               = true;
    p->warmup                                                 = true;
    p->draft                                                  = DFLASH_DRAFT_TREE;
    p->accept                                                 = DFLASH_ACCEPT_MATCH;
    p->lookup                                                 = true;
    p->kv_unified                                             = true;
    p->cache_ram                                              = -2;
    p->cache_idle_slots                                       = true;
    p->slot_similarity                                        = 0.1f;
    p->n_checkpoints                                          = 2;
    p->checkpoint_step                                        = 64;
    p->kv_offload                                             = true;
}

namespace {

// "NAME=BYTES,..." -> devices.
std::vector<ggml_backend_dev_t> parse_devices(const char * text) {
    std::vector<ggml_backend_dev_t> devices;
    for (const std::string & part : split(text)) {
        const size_t equals = part.find('=');
        char *       end    = nullptr;
        const size_t bytes  = equals == std::string::npos ? 0 : std::strtoull(part.c_str() + equals + 1, &end, 10);
        refuse_if(bytes == 0 || *end || equals == 0, "devices has '", part, "', must be NAME=BYTES");
        devices.push_back(stand_in_device(part.substr(0, equals), bytes));
    }
    return devices;
}

}   // namespace

dflash_engine * dflash_engine_create(
    const dflash_engine_params * params, dflash_progress_callback progress, void * user, int * status) {
    const auto create = [&] {
        backends_init();
        return new dflash_engine(given(params, "params"), progress, user);
    };
    return attempt_new(create, status);
}

void dflash_engine_destroy(dflash_engine * e) {
    attempt([&] { delete e; });
}

char * dflash_plan(const dflash_engine_params * params, const char * devices, int * status) {
    const auto plan = [&] {
        backends_init();
        return plan_json(given(params, "params"), parse_devices(devices));
    };
    return attempt_string(plan, status);
}

char * dflash_engine_info(const dflash_engine * e) {
    return attempt_string([&] { return info_json(given(e, "engine")); });
}

char * dflash_engine_stats(const dflash_engine * e) {
    return attempt_string([&] { return stats_json(given(e, "engine")); });
}

int dflash_engine_rpc_check(const dflash_engine * e) {
    return attempt([&] { given(e, "engine").models().rpc().check(); });
}

void dflash_engine_interrupt(dflash_engine * e) { e->interrupt(); }

// ---- RPC servers ----

char * dflash_rpc_devices(const char * servers, int * status) {
    const auto devices = [&] {
        backends_init();
        rpc_servers found(servers);
        found.connect();
        json all = json::array();
        for (ggml_backend_dev_t device : found.own_devices()) {
            all.push_back(describe(device));
        }
        found.raise_failures();
        return all.dump_safe();
    };
    return attempt_string(devices, status);
}

void dflash_rpc_server_params_default(dflash_rpc_server_params * p) {
    *p      = {};
    p->host = "127.0.0.1";
    p->port = 50052;
}

int dflash_rpc_serve(const dflash_rpc_server_params * p) {
    return attempt([&] {
        backends_init();
        rpc_serve(given(p, "params"));
    });
}

// ---- kernels ----

int32_t dflash_matrix_rows(const char * device, const char * type, int32_t rows) {
    return attempt_number([&] {
        backends_init();
        const device_kernels kernels(device, type);
        if (rows >= 0) {
            kernels.set_matrix(rows);
        }
        return kernels.get().matrix;
    });
}

int32_t dflash_few_rows(const char * device, const char * type, int32_t rows) {
    return attempt_number([&] {
        backends_init();
        const device_kernels kernels(device, type);
        if (rows >= 0) {
            kernels.set_few(rows);
        }
        return kernels.get().few;
    });
}

void dflash_tune_params_default(dflash_tune_params * p) {
    *p           = {};
    p->device    = "CPU";
    p->type      = "q4_K";
    p->m         = 12288;
    p->k         = 4096;
    p->n_max     = DFLASH_MAX_NODES;
    p->megabytes = 512;
    p->ms        = 100;
}

char * dflash_tune(const dflash_tune_params * params, dflash_progress_callback progress, void * user, int * status) {
    const auto run = [&] {
        backends_init();
        return tune(given(params, "params"), progress, user);
    };
    return attempt_string(run, status);
}

// ---- requests ----

void dflash_request_default(dflash_request * r) {
    *r              = {};
    r->n_predict    = -1;
    r->cache_prompt = true;
    r->draft        = -1;
    r->accept       = -1;
    r->lookup       = -1;
}

char * dflash_sampling_fields(void) { return attempt_string(sampling_fields); }

int dflash_request_prepare(const dflash_engine * e, const dflash_request * r, dflash_prepared ** prepared) {
    return attempt([&] {
        given(prepared, "prepared") = nullptr;
        *prepared                   = given(e, "engine").prepare(given(r, "request")).release();
    });
}

int dflash_corpus_set(dflash_engine * e, const int32_t * tokens, int32_t n_tokens, uint64_t * n_bytes) {
    return attempt([&] {
        engine & owner = given(e, "engine");
        check_range("n_tokens", n_tokens, 0, corpus::MAX_TOKENS);
        given(tokens, n_tokens, "tokens");
        std::vector<int32_t> texts(tokens, tokens + n_tokens);
        for (const int32_t token : texts) {
            check_range("tokens", token, corpus::NO_TOKEN, owner.target().n_vocab() - 1);
        }
        refuse_if(!texts.empty() && texts.back() != corpus::NO_TOKEN,
            "tokens must end with -1: it ends each text, the last one too");
        owner.set_corpus(corpus(std::move(texts)));
        if (n_bytes) {
            *n_bytes = owner.corpus().bytes();
        }
    });
}

void dflash_prepared_free(dflash_prepared * prepared) { delete prepared; }

int32_t dflash_has_room(const dflash_engine * e, const dflash_prepared * prepared) {
    return attempt_number([&] { return given(e, "engine").has_room(given(prepared, "prepared").request); });
}

int32_t dflash_slot_choose(
    const dflash_engine * e, const dflash_prepared * prepared, const int32_t * slots, int32_t n_slots) {
    return attempt_number(
        [&] { return given(e, "engine").cache().choose(given(prepared, "prepared").request.prompt, slots, n_slots); });
}

int dflash_submit(dflash_engine * e, int32_t slot, dflash_prepared * prepared) {
    return attempt([&] {
        given(e, "engine").submit(slot, given(prepared, "prepared"));
        delete prepared;
    });
}

int dflash_cancel(dflash_engine * e, int32_t slot) {
    return attempt([&] { given(e, "engine").cancel(slot); });
}

int32_t dflash_slot_end_reasoning(dflash_engine * e, int32_t slot) {
    return attempt_number([&] { return given(e, "engine").end_reasoning(slot); });
}

int32_t dflash_slot_clear(dflash_engine * e, int32_t slot) {
    return attempt_number([&] {
        cache &       held = given(e, "engine").cache();
        const int32_t n    = held.idle(slot).n_past();
        held.forget(slot);
        return n;
    });
}

// Saves or loads a slot and tells what was moved.
template <class Move>
static int move_slot(dflash_engine * e, const char * path, int32_t * n_tokens, uint64_t * n_bytes, Move && move) {
    return attempt([&] {
        int32_t &                tokens = given(n_tokens, "n_tokens");
        uint64_t &               bytes  = given(n_bytes, "n_bytes");
        const cache::file_result moved  = move(given(e, "engine").cache(), given(path, "path").c_str());
        tokens                          = moved.n_tokens;
        bytes                           = moved.n_bytes;
    });
}

int dflash_slot_save(dflash_engine * e, int32_t slot, const char * path, int32_t * n_tokens, uint64_t * n_bytes) {
    return move_slot(
        e, path, n_tokens, n_bytes, [&](cache & held, const std::string & file) { return held.save(slot, file); });
}

int dflash_slot_restore(dflash_engine * e, int32_t slot, const char * path, int32_t * n_tokens, uint64_t * n_bytes) {
    return move_slot(
        e, path, n_tokens, n_bytes, [&](cache & held, const std::string & file) { return held.load(slot, file); });
}

int32_t dflash_step(dflash_engine * e, dflash_update * updates, int32_t cap) {
    return attempt_number([&] { return given(e, "engine").step(updates, cap); });
}

int dflash_slot_stats_get(const dflash_engine * e, int32_t slot, dflash_slot_stats * stats) {
    return attempt([&] { given(stats, "stats") = given(e, "engine").stats_of(slot); });
}

// ---- text ----

int32_t dflash_tokenize(const dflash_engine * e, const char * text, int32_t n_text, bool add_special,
    bool parse_special, int32_t * tokens, int32_t cap) {
    return dflash_vocab_tokenize(
        e ? e->target().vocab() : nullptr, text, n_text, add_special, parse_special, tokens, cap);
}

int32_t dflash_vocab_tokenize(const llama_vocab * vocab, const char * text, int32_t n_text, bool add_special,
    bool parse_special, int32_t * tokens, int32_t cap) {
    return attempt_number([&] {
        given(vocab, "engine or vocab");
        const std::string bytes(given(text, n_text, "text") ? text : "", (size_t) std::max(0, n_text));
        const auto        ids = tokenize(vocab, bytes, add_special, parse_special);
        const int32_t     n   = (int32_t) ids.size();
        std::copy_n(ids.begin(), std::max(0, std::min(n, cap)), given(tokens, cap, "tokens"));
        return n;
    });
}

struct dflash_vocab {
    llama_model_ptr model;
};

dflash_vocab * dflash_vocab_load(const char * path, int * status) {
    const auto load = [&] {
        backends_init();
        check_gguf(given(path, "path").c_str());
        const abort_guard guard(abort_guard::phase::load);
        logged_error();   // clear earlier errors
        llama_model_params params = llama_model_default_params();
        params.vocab_only         = true;
        llama_model_ptr model(llama_model_load_from_file(path, params));
        if (!model) {
            throw status_error(DFLASH_ERROR_MODEL, path, " could not be loaded: ", logged_error());
        }
        return new dflash_vocab{ std::move(model) };
    };
    return attempt_new(load, status);
}

const llama_vocab * dflash_vocab_get(const dflash_vocab * vocab) { return llama_model_get_vocab(vocab->model.get()); }

void dflash_vocab_free(dflash_vocab * vocab) { delete vocab; }

int32_t dflash_token_piece(const dflash_engine * e, int32_t token, bool special, char * buf, int32_t cap) {
    return attempt_number([&] {
        const llama_vocab * vocab = given(e, "engine").target().vocab();
        refuse_if(token < 0 || token >= llama_vocab_n_tokens(vocab), "token ", token, " is outside the vocabulary");
        const std::string piece = common_token_to_piece(vocab, token, special);
        if ((int32_t) piece.size() <= cap) {
            std::copy(piece.begin(), piece.end(), given(buf, cap, "buf"));   // without a terminating zero
        }
        return (int32_t) piece.size();
    });
}

bool dflash_token_is_eog(const dflash_engine * e, int32_t token) {
    return token >= 0 && token < llama_vocab_n_tokens(e->target().vocab()) &&
           llama_vocab_is_eog(e->target().vocab(), token);
}

// ---- chat ----

struct dflash_chat : chat_parser {
    using chat_parser::chat_parser;
};

int dflash_check_chat_template(const char * source) {
    return attempt([&] { check_chat_template(given(source, "chat_template")); });
}

char * dflash_chat_apply(const dflash_engine * e, const char * template_override, const char * body) {
    return attempt_string([&] {
        const engine &            owner   = given(e, "engine");
        const std::string         request = given(body, "body");
        common_chat_templates_ptr own;
        if (template_override) {
            check_chat_template(template_override);
            own = common_chat_templates_init(owner.target().model(), template_override);
        }
        return apply_chat(own ? own.get() : owner.templates(), request);
    });
}

char * dflash_schema_ignored(const char * schema) {
    return attempt_string([&] {
        const json     object = parse_json(given(schema, "json_schema"), "json_schema");
        ignored_fields ignored;
        ignored.add(check_schema(as_object(object, "json_schema"), "json_schema"));
        return json(ignored.names()).dump();
    });
}

dflash_chat * dflash_chat_new(const dflash_engine * /*engine*/, const char * parser) {
    return attempt_new([&] { return new dflash_chat(given(parser, "parser")); });
}

void dflash_chat_delete(dflash_chat * chat) { delete chat; }

char * dflash_chat_push(dflash_chat * chat, const char * text, bool is_final) {
    return attempt_string([&] { return given(chat, "chat").push(given(text, "text"), is_final); });
}

char * dflash_chat_message(const dflash_chat * chat) {
    return attempt_string([&] { return given(chat, "chat").message(); });
}

// ---- inspection, for tests and training ----

int dflash_score(dflash_engine * e, int32_t slot, const int32_t * tokens, int32_t n, int32_t from, int32_t width,
    int32_t * best_id, float * best_logit, float * logit) {
    return attempt(
        [&] { given(e, "engine").inspector().score(slot, tokens, n, from, width, best_id, best_logit, logit); });
}

int dflash_draft_probe(dflash_engine * e, int32_t slot, const int32_t * tokens, int32_t n, int32_t n_block,
    float * hidden, float * logits, int32_t * ids, float * scores) {
    return attempt(
        [&] { given(e, "engine").inspector().probe(slot, tokens, n, n_block, hidden, logits, ids, scores); });
}

int dflash_tap(dflash_engine * e, int32_t slot, const int32_t * tokens, int32_t n, const int32_t * layers,
    int32_t n_layers, int32_t k, int32_t first, float * taps, int32_t * ids, float * log_probs) {
    return attempt(
        [&] { given(e, "engine").inspector().tap(slot, tokens, n, layers, n_layers, k, first, taps, ids, log_probs); });
}

int dflash_tree_pass(dflash_engine * e, const dflash_tree_rows * trees, int32_t n_trees) {
    return attempt([&] {
        engine & owner = given(e, "engine");
        owner.add_time(owner.inspector().tree_pass(trees, n_trees));
    });
}

char * dflash_cells(const dflash_engine * e) {
    return attempt_string([&] { return cells_json(given(e, "engine").target()); });
}
