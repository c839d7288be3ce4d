// The C API over engine. No exception leaves these functions.

#include "dflash.h"

#include "accept/sampling_params.h"
#include "api/chat.h"
#include "api/chat_parser.h"
#include "api/library_info.h"
#include "base/abort_guard.h"
#include "base/backends.h"
#include "base/error.h"
#include "base/ignored_fields.h"
#include "base/log.h"
#include "base/tokenize.h"
#include "engine/dry_load.h"
#include "engine/engine.h"
#include "engine/report.h"
#include "files/chat_template.h"
#include "files/gguf_check.h"
#include "plan/stand_in_device.h"
#include "schema/chat_schema.h"
#include "tune/kernel_timing.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <type_traits>

using namespace dflash;

namespace {

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

// Runs f and turns an exception into dflash_last_error() and a status.
template <class F> dflash_status attempt(F && f) {
    try {
        set_error("");
        f();
        return DFLASH_OK;
    } catch (...) {
        return take_exception();
    }
}

// The same with a result, which goes to *out: a text as a copy for the caller.
template <class T, class F> dflash_status attempt(T * out, F && f) {
    return attempt([&] {
        given<T>(out, "out") = {};
        if constexpr (std::is_same_v<T, char *>) {
            *out = dup_string(f());
        } else {
            *out = f();
        }
    });
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

void dflash_log_set(dflash_log_callback callback, int min_level, void * user) {
    attempt([&] { log_set(callback, min_level, user); });
}

dflash_status dflash_library_info(char ** out) {
    return attempt(out, [] {
        backends_init();
        return library_info();
    });
}

// ---- files ----

dflash_status dflash_check_gguf(const char * path) {
    return attempt([&] { check_gguf(given(path, "path").c_str()); });
}

dflash_status dflash_check_embedding_gguf(const char * path) {
    return attempt([&] { check_gguf(given(path, "path").c_str(), gguf_use::embed); });
}

dflash_status dflash_check_mmproj(const char * path) {
    return attempt([&] { check_gguf(given(path, "path").c_str(), gguf_use::project); });
}

dflash_status dflash_quantize(const char * path_in, const char * path_out, const char * ftype, int32_t n_threads) {
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

dflash_status dflash_engine_init(
    const dflash_engine_params * params, dflash_progress_callback progress, void * user, dflash_engine ** out) {
    return attempt(out, [&] {
        backends_init();
        return new dflash_engine(given(params, "params"), progress, user);
    });
}

void dflash_engine_free(dflash_engine * e) {
    attempt([&] { delete e; });
}

// "NAME=BYTES,..." -> devices.
static std::vector<ggml_backend_dev_t> parse_devices(const char * text) {
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

dflash_status dflash_plan(const dflash_engine_params * params, const char * devices, char ** out) {
    return attempt(out, [&] {
        backends_init();
        return plan_json(given(params, "params"), parse_devices(devices));
    });
}

dflash_status dflash_engine_info(const dflash_engine * e, char ** out) {
    return attempt(out, [&] { return info_json(given(e, "engine")); });
}

dflash_status dflash_engine_stats(const dflash_engine * e, char ** out) {
    return attempt(out, [&] { return stats_json(given(e, "engine")); });
}

const llama_vocab * dflash_engine_vocab(const dflash_engine * e) { return e->target().vocab(); }

dflash_status dflash_corpus_set(dflash_engine * e, const int32_t * tokens, int32_t n_tokens, uint64_t * out) {
    return attempt(out, [&] {
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
        return owner.corpus().bytes();
    });
}

dflash_status dflash_drafter_replace(dflash_engine * e, const char * path) {
    return attempt([&] { given(e, "engine").replace_drafter(given(path, "path").c_str()); });
}

// ---- requests ----

void dflash_request_params_default(dflash_request_params * p) {
    *p              = {};
    p->n_predict    = -1;
    p->cache_prompt = true;
    p->draft        = -1;
    p->accept       = -1;
    p->lookup       = -1;
}

dflash_status dflash_sampling_fields(char ** out) { return attempt(out, sampling_fields); }

dflash_status dflash_schema_ignored(const char * schema, char ** out) {
    return attempt(out, [&] {
        const json     object = parse_json(given(schema, "json_schema"), "json_schema");
        ignored_fields ignored;
        ignored.add(check_schema(as_object(object, "json_schema"), "json_schema"));
        return json(ignored.names()).dump();
    });
}

dflash_status dflash_request_init(
    const dflash_engine * e, const dflash_request_params * params, dflash_request ** out) {
    return attempt(out, [&] { return given(e, "engine").prepare(given(params, "params")).release(); });
}

void dflash_request_free(dflash_request * request) { delete request; }

dflash_status dflash_has_room(const dflash_engine * e, const dflash_request * request, bool * out) {
    return attempt(out, [&] { return given(e, "engine").has_room(given(request, "request")); });
}

dflash_status dflash_slot_choose(
    const dflash_engine * e, const dflash_request * request, const int32_t * slots, int32_t n_slots, int32_t * out) {
    return attempt(
        out, [&] { return given(e, "engine").cache().choose(given(request, "request").prompt, slots, n_slots); });
}

dflash_status dflash_submit(dflash_engine * e, int32_t slot, dflash_request * request) {
    return attempt([&] {
        given(e, "engine").submit(slot, given(request, "request"));
        delete request;
    });
}

dflash_status dflash_cancel(dflash_engine * e, int32_t slot) {
    return attempt([&] { given(e, "engine").cancel(slot); });
}

// ---- steps ----

dflash_status dflash_step(dflash_engine * e, dflash_update * updates, int32_t cap, int32_t * out) {
    return attempt(out, [&] { return given(e, "engine").step(updates, cap); });
}

void dflash_engine_interrupt(dflash_engine * e) { e->interrupt(); }

// ---- slots ----

dflash_status dflash_slot_stats(const dflash_engine * e, int32_t slot, dflash_slot_counters * out) {
    return attempt(out, [&] { return given(e, "engine").stats_of(slot); });
}

dflash_status dflash_slot_end_reasoning(dflash_engine * e, int32_t slot, bool * out) {
    return attempt(out, [&] { return given(e, "engine").end_reasoning(slot); });
}

dflash_status dflash_slot_clear(dflash_engine * e, int32_t slot, int32_t * out) {
    return attempt(out, [&] {
        cache & held = given(e, "engine").cache();
        held.check_idle(slot);
        const int32_t n = held.at(slot).n_past();
        held.forget(slot);
        return n;
    });
}

dflash_status dflash_slot_save(dflash_engine * e, int32_t slot, const char * path, dflash_slot_file * out) {
    return attempt(out, [&] { return given(e, "engine").cache().save(slot, given(path, "path")); });
}

dflash_status dflash_slot_restore(dflash_engine * e, int32_t slot, const char * path, dflash_slot_file * out) {
    return attempt(out, [&] { return given(e, "engine").cache().load(slot, given(path, "path")); });
}

// ---- text ----

struct dflash_vocab {
    llama_model_ptr model;
};

dflash_status dflash_vocab_init(const char * path, dflash_vocab ** out) {
    return attempt(out, [&] {
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
    });
}

const llama_vocab * dflash_vocab_get(const dflash_vocab * vocab) { return llama_model_get_vocab(vocab->model.get()); }

void dflash_vocab_free(dflash_vocab * vocab) { delete vocab; }

dflash_status dflash_tokenize(const llama_vocab * vocab, const char * text, int32_t n_text, bool add_special,
    bool parse_special, int32_t * tokens, int32_t cap, int32_t * out) {
    return attempt(out, [&] {
        given(vocab, "vocab");
        const std::string bytes(given(text, n_text, "text") ? text : "", (size_t) std::max(0, n_text));
        const auto        ids = tokenize(vocab, bytes, add_special, parse_special);
        const int32_t     n   = (int32_t) ids.size();
        std::copy_n(ids.begin(), std::max(0, std::min(n, cap)), given(tokens, cap, "tokens"));
        return n;
    });
}

dflash_status dflash_token_piece(
    const llama_vocab * vocab, int32_t token, bool special, char * buf, int32_t cap, int32_t * out) {
    return attempt(out, [&] {
        given(vocab, "vocab");
        refuse_if(token < 0 || token >= llama_vocab_n_tokens(vocab), "token ", token, " is outside the vocabulary");
        const std::string piece = common_token_to_piece(vocab, token, special);
        if ((int32_t) piece.size() <= cap) {
            std::copy(piece.begin(), piece.end(), given(buf, cap, "buf"));
        }
        return (int32_t) piece.size();
    });
}

bool dflash_token_is_eog(const llama_vocab * vocab, int32_t token) {
    return token >= 0 && token < llama_vocab_n_tokens(vocab) && llama_vocab_is_eog(vocab, token);
}

// ---- media ----

struct dflash_prompt : media_prompt {};

dflash_status dflash_prompt_init(const dflash_engine * e, const char * text, int32_t n_text, bool add_special,
    const dflash_media * media, int32_t n_media, dflash_prompt ** out) {
    return attempt(out, [&] {
        check_range("n_text", n_text, 0, INT32_MAX);
        check_range("n_media", n_media, 0, INT32_MAX);
        const std::string bytes(given(text, n_text, "text") ? text : "", (size_t) n_text);
        const engine &    owner = given(e, "engine");
        return new dflash_prompt{ owner.prompt(bytes, add_special, given(media, n_media, "media"), n_media) };
    });
}

void dflash_prompt_free(dflash_prompt * prompt) { delete prompt; }

dflash_status dflash_prompt_tokens(const dflash_prompt * prompt, int32_t * tokens, int32_t cap, int32_t * out) {
    return attempt(out, [&] {
        const std::vector<int32_t> & all = given(prompt, "prompt").tokens;
        const int32_t                n   = (int32_t) all.size();
        std::copy_n(all.begin(), std::max(0, std::min(n, cap)), given(tokens, cap, "tokens"));
        return n;
    });
}

dflash_status dflash_prompt_rows(const dflash_prompt * prompt, int32_t kind, int32_t * out) {
    return attempt(out, [&] {
        check_range("kind", kind, DFLASH_IMAGE, DFLASH_AUDIO);
        return given(prompt, "prompt").n_rows((dflash_media_kind) kind);
    });
}

// ---- chat ----

struct dflash_chat : chat_parser {
    using chat_parser::chat_parser;
};

dflash_status dflash_check_chat_template(const char * source) {
    return attempt([&] { check_chat_template(given(source, "chat_template")); });
}

dflash_status dflash_chat_apply(
    const dflash_engine * e, const char * template_override, const char * body, char ** out) {
    return attempt(out, [&] {
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

dflash_status dflash_chat_init(const char * parser, dflash_chat ** out) {
    return attempt(out, [&] { return new dflash_chat(given(parser, "parser")); });
}

void dflash_chat_free(dflash_chat * chat) { delete chat; }

dflash_status dflash_chat_push(dflash_chat * chat, const char * text, bool is_final, char ** out) {
    return attempt(out, [&] { return given(chat, "chat").push(given(text, "text"), is_final); });
}

dflash_status dflash_chat_message(const dflash_chat * chat, char ** out) {
    return attempt(out, [&] { return given(chat, "chat").message(); });
}

// ---- kernels ----

// The count in force of a kernel, after `set` if rows >= 0.
static dflash_status set_rows(const char * device, const char * type, int32_t rows, int32_t * out,
    void (device_kernels::*set)(int) const, int kernel_rows::* kernel) {
    return attempt(out, [&] {
        backends_init();
        const device_kernels kernels(device, type);
        if (rows >= 0) {
            (kernels.*set)(rows);
        }
        return kernels.get().*kernel;
    });
}

dflash_status dflash_matrix_rows(const char * device, const char * type, int32_t rows, int32_t * out) {
    return set_rows(device, type, rows, out, &device_kernels::set_matrix, &kernel_rows::matrix);
}

dflash_status dflash_few_rows(const char * device, const char * type, int32_t rows, int32_t * out) {
    return set_rows(device, type, rows, out, &device_kernels::set_few, &kernel_rows::few);
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

dflash_status dflash_tune(
    const dflash_tune_params * params, dflash_progress_callback progress, void * user, char ** out) {
    return attempt(out, [&] {
        backends_init();
        return tune(given(params, "params"), progress, user);
    });
}

// ---- RPC servers ----

dflash_status dflash_rpc_devices(const char * servers, char ** out) {
    return attempt(out, [&] {
        backends_init();
        rpc_servers found(servers);
        found.connect();
        json all = json::array();
        for (ggml_backend_dev_t device : found.own_devices()) {
            all.push_back(describe(device));
        }
        found.raise_failures();
        return all.dump_safe();
    });
}

dflash_status dflash_engine_rpc_check(const dflash_engine * e) {
    return attempt([&] { given(e, "engine").models().rpc().check(); });
}

dflash_status dflash_rpc_hang_up(const char * servers) {
    return attempt([&] { rpc_servers(given(servers, "servers").c_str()).hang_up(); });
}

void dflash_rpc_server_params_default(dflash_rpc_server_params * p) {
    *p      = {};
    p->host = "127.0.0.1";
    p->port = 50052;
}

dflash_status dflash_rpc_serve(const dflash_rpc_server_params * params) {
    return attempt([&] {
        backends_init();
        rpc_serve(given(params, "params"));
    });
}

// ---- inspection, for tests and training ----

dflash_status dflash_score(dflash_engine * e, int32_t slot, const dflash_score_params * params) {
    return attempt([&] { given(e, "engine").inspector().score(slot, given(params, "params")); });
}

dflash_status dflash_draft_probe(dflash_engine * e, int32_t slot, const dflash_probe_params * params) {
    return attempt([&] { given(e, "engine").inspector().probe(slot, given(params, "params")); });
}

dflash_status dflash_tap(dflash_engine * e, int32_t slot, const dflash_tap_params * params) {
    return attempt([&] { given(e, "engine").inspector().tap(slot, given(params, "params")); });
}

dflash_status dflash_tree_pass(dflash_engine * e, const dflash_tree_rows * trees, int32_t n_trees) {
    return attempt([&] {
        engine & owner = given(e, "engine");
        owner.add_time(owner.inspector().tree_pass(trees, n_trees));
    });
}

dflash_status dflash_cells(const dflash_engine * e, char ** out) {
    return attempt(out, [&] { return cells_json(given(e, "engine").target()); });
}
