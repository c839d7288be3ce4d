// dflash.h - C API of libdflash, the native engine of dflash-local.
//
// One engine owns a target model, its drafters, if any, and `n_slots` running sequences. The caller submits requests to
// idle slots and calls dflash_step() in a loop. Each call runs one plan-verify-walk-commit-choose-draft-grow round over
// all slots (docs/architecture.md, "One step, seen from above").
//
// Results: every function that can fail returns a dflash_status. What it makes, counts or tells goes to its last
// parameter, `out`, which is NULL, 0 or false after an error; dflash_last_error() then is one sentence that names the
// field and the fix. Arrays are filled in the caller's memory, to which a parameter or a field of a struct points that
// is not const. No function throws or aborts. A function that returns something else cannot fail.
//
// Ownership: what dflash_x_init() makes is released by dflash_x_free(), a `char *` that comes out by
// dflash_string_free(). Structs, strings and arrays that the caller passes are read and written during the call only.
// What the library's structs point to is the engine's.
//
// Values: strings are UTF-8, but for the bytes of a token, and end with a zero. Arrays are dense and row-major, with
// their shapes in brackets. Logits are the target's or the drafter's own, log-probabilities natural logarithms, times
// milliseconds, sizes bytes, unless a name or comment says otherwise. Parameters start from their *_default(), if there
// is one, otherwise from zeros.
//
// Threads: one thread at a time may use an engine. Functions that are called thread-safe may run on other threads at
// any time, even during dflash_step(), and so may those that take no engine. A request or chat has one thread at a
// time.
//
// NULL: DFLASH_ERROR_ARG where no comment allows it. Only *_free() and dflash_log_set() take it without a word;
// functions without a status must not get it.

#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#if defined(DFLASH_BUILD)
#define DFLASH_API __declspec(dllexport)
#else
#define DFLASH_API __declspec(dllimport)
#endif
#else
#define DFLASH_API __attribute__((visibility("default")))
#endif

// A hash of the names and types of all fields of this header's structs: dflash_local/native/structs.py computes it, and
// tests/engine/test_native_header.py says if it is another. An incompatible change that no field shows gives the
// function another name.
#define DFLASH_ABI_VERSION 0x60faf0e5u

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dflash_engine  dflash_engine;
typedef struct dflash_request dflash_request;   // checked, and ready to run
typedef struct dflash_chat    dflash_chat;      // a parser of one answer
typedef struct dflash_vocab   dflash_vocab;     // a tokenizer without a model
typedef struct dflash_prompt  dflash_prompt;    // text with media, as tokens
struct llama_vocab;                             // llama.h

typedef enum dflash_status {
    DFLASH_OK             = 0,
    DFLASH_ERROR_ARG      = -1,   // a parameter is out of range or malformed
    DFLASH_ERROR_MODEL    = -2,   // a model file is damaged, unsupported or lacks something
    DFLASH_ERROR_PAIR     = -3,   // the drafter was not trained for the target
    DFLASH_ERROR_MEMORY   = -4,   // out of memory (host or device)
    DFLASH_ERROR_BUSY     = -5,   // the slot is running, or a call is not allowed now
    DFLASH_ERROR_COMPUTE  = -6,   // a forward pass failed; the slots named in the updates have lost their state
    DFLASH_ERROR_INTERNAL = -7,
    DFLASH_ERROR_RPC      = -8,    // an RPC server cannot be reached, runs another version, or was lost: an engine that
                                   // used it is no longer usable
    DFLASH_ERROR_CANCELLED = -9,   // the caller's progress callback returned false
} dflash_status;

// ---- library ------------------------------------------------------------------------------------------------------

DFLASH_API uint32_t dflash_abi_version(void);
// The last error of the calling thread, "" if none. Valid until the thread's next call.
DFLASH_API const char * dflash_last_error(void);
DFLASH_API void         dflash_string_free(char * string);

// level: 0 debug, 1 info, 2 warn, 3 error. The callback may be called from any native thread. NULL: discard.
typedef void (*dflash_log_callback)(int level, const char * text, void * user);
DFLASH_API void dflash_log_set(dflash_log_callback callback, int min_level, void * user);

// progress: called with 0..1; return false to cancel, which is DFLASH_ERROR_CANCELLED. May be NULL.
typedef bool (*dflash_progress_callback)(float progress, void * user);

// JSON: {"abi", "llama", "backends": [...], "devices": [{"name","description","type","memory_total","memory_free"}],
// "features": {backend: {...}}, "cpu_variant", "packed_types": [...], "gpu_offload", "tapped_architectures": [...],
// "tapped_to_the_end": [...], "mtp_architectures": [...], "mtp_chains": [...]}. cpu_variant: the variant of the CPU
// backend in use, "" if there is only one. packed_types: the types of weights that the CPU computes with our kernels.
// tapped_architectures: those that a drafter can read; tapped_to_the_end: those of them that also expose the last
// layer's output. mtp_architectures: those whose MTP layers can draft; mtp_chains: those of them that may have several.
DFLASH_API dflash_status dflash_library_info(char ** out);

// ---- files --------------------------------------------------------------------------------------------------------

// Strict check of a GGUF file before any model code sees it: header, key types, tensor table, bounds, and what the
// architecture needs (docs/hardening.md). dflash_engine_init() calls it for all files.
DFLASH_API dflash_status dflash_check_gguf(const char * path);
// The same for an embedding or reranking model, which llama.cpp's own functions then load: encoders are accepted too.
DFLASH_API dflash_status dflash_check_embedding_gguf(const char * path);
// The same for a projector (mmproj).
DFLASH_API dflash_status dflash_check_mmproj(const char * path);
// Quantize a GGUF file with llama.cpp's quantizer. ftype: "q4_0", "q4_k_m", "q8_0", "f16", ... (llama-quantize's
// names). n_threads <= 0: all cores.
DFLASH_API dflash_status dflash_quantize(
    const char * path_in, const char * path_out, const char * ftype, int32_t n_threads);

// ---- engine -------------------------------------------------------------------------------------------------------

typedef enum dflash_draft_mode {
    DFLASH_DRAFT_OFF   = 0,   // plain decoding
    DFLASH_DRAFT_CHAIN = 1,
    DFLASH_DRAFT_TREE  = 2,   // trees where the target's memory can verify them, chains elsewhere (info: "no_tree" says
                              // why)
} dflash_draft_mode;

typedef enum dflash_draft_kind {
    DFLASH_KIND_AUTO = 0,   // the drafter, if one is given, and the model's own MTP layers, if it has any: at each step
                            // whichever pays
    DFLASH_KIND_DFLASH = 1,   // the drafter, which must be given
    DFLASH_KIND_MTP    = 2,   // next-token (MTP) layers: the target's own, or those of the file given as its drafter
    DFLASH_KIND_LOOKUP = 3,   // prompt lookup alone
} dflash_draft_kind;

typedef enum dflash_accept_rule {
    DFLASH_ACCEPT_MATCH = 0,   // sample and match: accept a draft token if it is the target's own sample; with a seed,
                               // the text is that of plain decoding
    DFLASH_ACCEPT_BLOCK = 1,   // block verification (arXiv 2403.10444) of chains drawn from a lattice (all kinds but
                               // DFlash and DFlare): same distribution, different text
} dflash_accept_rule;

typedef struct dflash_engine_params {
    // models
    const char * model;           // the target, a GGUF file
    const char * drafter;         // GGUF in upstream's `dflash` dialect, or the target's MTP layers alone; NULL: none
    const char * chat_template;   // Jinja, or the name of one of llama.cpp's templates; NULL: the model's own

    // media
    const char * mmproj;             // the target's projector, a GGUF file, which reads media; NULL: text only
    bool         mmproj_offload;     // compute it on the target's first device of this machine; false: on the CPU
    int32_t      image_min_tokens;   // rows that an image takes at least, for models that let one choose; 0: their own
    int32_t      image_max_tokens;   // and at most

    // context. n_ctx 0: n_slots times n_ctx_slot, if that is given and shared; else the model's own length (per slot,
    // unless they share it), limited to what half of the memory left by the weights can hold. A stream per slot costs
    // padding passes when tree sizes differ or prompts are read. Targets whose attention requires it (minimax-m3)
    // always have one per slot, and no share_ctx.
    uint32_t     n_ctx;        // tokens of all slots
    uint32_t     n_ctx_slot;   // max. tokens per slot, 0: no further limit
    uint32_t     n_slots;      // sequences that run at the same time, 1..64
    bool         kv_unified;   // one KV stream for all slots; false: one per slot
    bool         share_ctx;    // a slot may use all that others leave of n_ctx (needs kv_unified); false: equal parts
    uint32_t     n_batch;      // max. prompt rows in one pass; trees may need more
    uint32_t     n_ubatch;     // rows computed at once; prompts are read in chunks of this size
    int32_t      flash_attn;   // -1: auto, 0: off, 1: on
    bool         swa_full;     // sliding-window layers keep the whole context
    const char * type_k;       // KV cache type of the target: "f16", "f32", "q8_0", ...
    const char * type_v;
    const char * type_k_draft;   // KV cache type of the drafter: "f16" or "f32"
    const char * type_v_draft;

    // prompt cache
    int32_t cache_ram;          // MiB on the host for conversations that no slot holds; -1: no limit, 0: none, -2: 8192
                                // or a quarter of what the weights leave free, whichever is less
    bool    cache_idle_slots;   // move an idle slot's conversation there when its cells are needed
    float   slot_similarity;    // a prompt continues in the slot that holds more than this share of it, 0: never
    int32_t n_checkpoints;      // per slot, for memory that cannot roll back to any token (recurrent, sliding windows)
    int32_t checkpoint_step;    // in tokens: a checkpoint closer than this to the previous one replaces it

    // placement
    const char * device;               // devices that the target may use, "CUDA0,CUDA1"; "none"; NULL: all
    const char * device_draft;         // the drafter's; NULL: the one that computes the target's output
    const char * rpc;                  // servers, "host:port,...", whose devices come before local ones; NULL: none
    int32_t      n_gpu_layers;         // -1: all
    int32_t      n_gpu_layers_draft;   // -1: all
    int32_t      main_gpu;
    const char * split_mode;              // "layer", "row", "tensor", "none" or NULL
    const char * tensor_split;            // "3,1" or NULL
    const char * override_tensor;         // "REGEX=BUFFER,...": where tensors with such names are placed; NULL: none
    const char * override_tensor_draft;   // the drafter's
    bool         cpu_moe;                 // keep all expert weights on the CPU
    int32_t      n_cpu_moe;               // keep the expert weights of the first n layers on the CPU
    int32_t      n_cpu_ffn;               // keep the dense feed-forward weights of the first n layers on the CPU
    bool         kv_offload;              // keep K, V and states with their layers; false: on the host
    bool         use_mmap;
    bool         use_mlock;
    uint64_t     host_memory;   // free on the host before anything is loaded, 0: detect

    // computing
    int32_t      n_threads;         // <= 0: physical cores
    int32_t      n_threads_batch;   // <= 0: n_threads
    bool         warmup;            // run the passes once and measure their cost at load
    const char * cost_cache;        // JSON file of pass times: read at load, written after measuring and by
                                    // dflash_engine_free(); NULL: none

    // drafting
    int32_t draft_kind;     // dflash_draft_kind: what drafts, beside lookup
    int32_t draft;          // dflash_draft_mode: which shapes drafts may have
    int32_t accept;         // dflash_accept_rule
    int32_t budget;         // nodes per tree, the anchor included: 0: chosen by measured cost, 1: no drafting, N: N if
                            // the draft has that many
    int32_t  draft_n_max;   // max. draft tokens per step, 0: as many as a block proposes
    uint32_t draft_ctx;     // newest positions that the drafter attends to, 0: 4096; at most a slot's context
    uint32_t draft_vocab;   // tokens that a drafter without an output projection may propose, 0: by the vocabulary's
                            // size, UINT32_MAX: all; which ones follows the texts
    bool     lookup;        // prompt lookup: add what followed earlier occurrences of the last tokens to the tree
    uint32_t lookup_answers;   // newest tokens of the answers to each dflash_request_params.lookup_owner that lookup
                               // may quote for the same one, 0: none
} dflash_engine_params;

DFLASH_API void dflash_engine_params_default(dflash_engine_params * params);

// Load the models and make an engine.
DFLASH_API dflash_status dflash_engine_init(
    const dflash_engine_params * params, dflash_progress_callback progress, void * user, dflash_engine ** out);
DFLASH_API void dflash_engine_free(dflash_engine * engine);

// What an engine with these parameters would allocate; nothing is allocated. devices: "NAME=BYTES,...", devices of
// another machine that replace the local ones, or NULL. JSON: target, drafters, drafter (as in dflash_engine_info),
// n_expert, n_ctx, n_ctx_slot, ctx_shared, ctx_limit "given"|"training"|"memory", n_slots, draft_ctx, tape_rows,
// devices [{"name", "description", "free", "total"}], placement {device: {part: bytes}}: the parts listed in
// docs/placement.md, and "output", what the largest pass leaves on the host.
DFLASH_API dflash_status dflash_plan(const dflash_engine_params * params, const char * devices, char ** out);

// JSON: target and drafters, the preferred one first and as "drafter", too (arch, description, n_params, size, n_vocab,
// n_embd, n_layer, n_ctx_train, block_size, kind "dflash"|"dflash2"|"dspark"|"domino"|"lilicorr"|"mtp", target_layers,
// mask_token, draft_ctx), n_ctx_slot, n_slots, memory {...bytes}, bos/eos tokens, add_bos, chat_template, and media:
// null without a projector, else {"vision", "audio": can it read them, "marker": what stands for a medium in a prompt's
// text, another one in each process}.
DFLASH_API dflash_status dflash_engine_info(const dflash_engine * engine, char ** out);

// JSON: counters since load: steps, passes, rows, tokens, t_*_ms per phase (plan, verify, walk, commit, draft, grow,
// other), graphs_reused / graphs_built for target, target_decoding (passes without prompts that follow such passes) and
// drafter, cost curve {nodes: ms}, drafter cost, last choice and its reason, how often each tree size, block length and
// reason was chosen, "cells" of the cache, "lookup" (draft tokens by their source, and the memory of texts to quote),
// "host_cache", and "moved", how often slots' cache contents moved.
DFLASH_API dflash_status dflash_engine_stats(const dflash_engine * engine, char ** out);

// The target's vocabulary, for the functions of "text". Valid as long as the engine. Thread-safe.
DFLASH_API const struct llama_vocab * dflash_engine_vocab(const dflash_engine * engine);

// Texts that lookup quotes in all requests, as tokens: -1 ends each of them, the last one too. Replaces what an earlier
// call gave. Every slot must be idle. Takes about a second for a million tokens. *out: bytes of memory that they take.
DFLASH_API dflash_status dflash_corpus_set(
    dflash_engine * engine, const int32_t * tokens, int32_t n_tokens, uint64_t * out);

// Drafts with another file from now on; slots keep what they hold. Every slot must be idle, and the engine must have a
// drafter of a file, of the same kind, tapped layers, block and K and V as this one; else nothing changes. Takes as
// long as loading the file.
DFLASH_API dflash_status dflash_drafter_replace(dflash_engine * engine, const char * path);

// ---- requests -----------------------------------------------------------------------------------------------------

typedef struct dflash_request_params {
    // prompt and answer
    const int32_t * tokens;   // [n_tokens], at least one; negative ones are rows of media (dflash_prompt)
    int32_t         n_tokens;
    int32_t         n_predict;   // max. new tokens, >= 0; -1: until the slot's context is full
    // JSON object with llama-server's sampling fields; dflash_sampling_fields() lists them. logit_bias is
    // [[token, bias|false]...] or {"token": bias}, grammar_type "tool_calls", "output_format" or "user". Unknown keys
    // are errors. NULL or "": llama.cpp's defaults.
    const char * sampling;
    bool         cache_prompt;   // reuse the longest common prefix of what the slot holds

    // drafting
    int32_t budget;         // as in dflash_engine_params; 0: the engine's setting
    int32_t draft;          // dflash_draft_mode, -1: the engine's setting
    int32_t accept;         // dflash_accept_rule, -1: the engine's setting
    int32_t draft_n_max;    // max. draft tokens on a path, 0: the engine's setting (never more than that)
    int32_t lookup;         // prompt lookup: 1: on, 0: off, -1: the engine's setting
    int32_t lookup_owner;   // whose earlier answers lookup may quote (dflash_engine_params.lookup_answers): those of
                            // requests with the same number. Requests without lookup are not remembered
    // Text that the answer is expected to repeat, in part or with changes (OpenAI's predicted outputs). What follows in
    // it is drafted, even without a drafter, unless the target's memory is recurrent. At most a slot's context.
    const int32_t * prediction;   // [n_prediction]
    int32_t         n_prediction;
    bool            return_drafts;   // report each verified tree in dflash_update.tree

    // probabilities
    int32_t n_probs;            // report the probability of each new token and of the n_probs likeliest ones: 0
                                // (none) .. the vocabulary's size
    bool post_sampling_probs;   // report the probabilities that the token was drawn from, not log-probabilities of
                                // the raw logits
    // Also report the prompt's tokens from this index on, 0: none. Their rows are recomputed even if the slot has
    // cached them. Needs n_probs; not allowed with post_sampling_probs, since prompt tokens are not drawn.
    int32_t probs_from;
} dflash_request_params;

DFLASH_API void dflash_request_params_default(dflash_request_params * params);

// JSON list of all fields of `sampling`: [{"name", "type": "number"|"integer"|"boolean"|"string"|"json", "default",
// "low", "high"}]. Bounds are inclusive and given only for numbers and integers; "least_positive", if present, is the
// smallest value allowed above 0.
DFLASH_API dflash_status dflash_sampling_fields(char ** out);

// JSON array of the parts of a JSON schema that its grammar does not enforce, such as
// "json_schema.properties.a.multipleOf". DFLASH_ERROR_ARG if no grammar can be built.
DFLASH_API dflash_status dflash_schema_ignored(const char * schema, char ** out);

// Check all of a request, compile its grammar, build its sampler. A large grammar can take tens of milliseconds or
// more. Copies everything that it needs. Thread-safe.
DFLASH_API dflash_status dflash_request_init(
    const dflash_engine * engine, const dflash_request_params * params, dflash_request ** out);
// For a request that was not submitted. Thread-safe, even after dflash_engine_free().
DFLASH_API void dflash_request_free(dflash_request * request);
// Whether the slots' shared cache has room for the request beside what running requests hold and may still need: always
// if nothing runs.
DFLASH_API dflash_status dflash_has_room(const dflash_engine * engine, const dflash_request * request, bool * out);
// Choose among the idle `slots` [n_slots]: one whose conversation the prompt goes on with, else an empty one, else one
// that has more than slot_similarity of the prompt and loses at most half of what it holds, else the first.
DFLASH_API dflash_status dflash_slot_choose(const dflash_engine * engine, const dflash_request * request,
    const int32_t * slots, int32_t n_slots, int32_t * out);
// Start a request of this engine on an idle slot. The cached beginning of its prompt comes from that slot, from another
// slot (which may be reading the same prompt), or from the host cache. Takes ownership of `request` on success; after
// an error the caller still has to free it.
DFLASH_API dflash_status dflash_submit(dflash_engine * engine, int32_t slot, dflash_request * request);
// Stop a slot now; its tokens stay cached for the next request. Does nothing on an idle slot.
DFLASH_API dflash_status dflash_cancel(dflash_engine * engine, int32_t slot);

// ---- steps --------------------------------------------------------------------------------------------------------

typedef enum dflash_slot_state {
    DFLASH_IDLE    = 0,
    DFLASH_READING = 1,   // reading the prompt
    DFLASH_WRITING = 2,
    DFLASH_STOP    = 3,   // finished: end-of-generation token (not included in the tokens)
    DFLASH_LENGTH  = 4,   // finished: n_predict reached
    DFLASH_CONTEXT = 5,   // finished: prompt and answer fill the slot's context, or the other slots leave no room
    DFLASH_FAILED  = 6,   // finished: `error` says why; the slot's cache is empty
    DFLASH_REFUSED = 7,   // the same, but because of the request itself: it forbids every token
} dflash_slot_state;

// Probabilities of `n` tokens in order: of the prompt, of the answer, and of the token that ended it (DFLASH_STOP).
// Log-probabilities are the log-softmax of the raw logits of the row that the token was sampled from, before penalties,
// biases and grammar. With post_sampling_probs, they are the probabilities left by the samplers; dropped tokens are not
// listed.
typedef struct dflash_token_probs {
    int32_t         n;
    int32_t         n_prompt;     // how many of them belong to the prompt; those of dflash_update.tokens follow
    const int32_t * tokens;       // [n]
    const float *   values;       // [n]: of `tokens`
    const int32_t * n_top;        // [n]: how many of the likeliest are listed
    const int32_t * top_tokens;   // [sum of n_top]: the likeliest first, ties by id
    const float *   top_values;   // [sum of n_top]
} dflash_token_probs;

// Where a token comes from.
typedef enum dflash_origin {
    DFLASH_BY_TARGET     = 0,   // sampled by the target
    DFLASH_BY_DRAFTER    = 1,   // among the drafter's candidates, even if something else proposed it too
    DFLASH_BY_LOOKUP     = 2,   // from here on, without the drafter: quoted from the text itself,
    DFLASH_BY_PREDICTION = 3,
    DFLASH_BY_CORPUS     = 4,
    DFLASH_BY_ANSWERS    = 5,   // earlier ones of the same owner
    DFLASH_BY_MTP        = 6,   // among the candidates of MTP layers, even if a quotation proposed it too
} dflash_origin;

// A verified tree and its accepted path. Node 0 is the anchor.
typedef struct dflash_verified_tree {
    int32_t         n_nodes;   // 0: none
    const int32_t * tokens;    // [n_nodes]
    const int32_t * parents;   // [n_nodes]: smaller than the node's own index, -1 for the anchor
    const float *   probs;     // [n_nodes]: the drafter's probability given the parent; 0: not proposed by it
    const float *   values;    // [n_nodes]: estimated probability that the walk reaches the node
    const int32_t * origins;   // [n_nodes]: dflash_origin
    int32_t         n_path;
    const int32_t * path;   // [n_path]: the accepted nodes, the anchor first
} dflash_verified_tree;

typedef struct dflash_update {
    int32_t         slot;
    int32_t         state;        // dflash_slot_state; from DFLASH_STOP on, the slot is idle again
    int32_t         n_tokens;     // new tokens of this step, in order
    const int32_t * tokens;       // valid until the next call that takes the engine
    int32_t         n_accepted;   // draft tokens accepted in this pass (walk depth)
    int32_t         n_drafted;    // draft tokens verified in this pass: the nodes of the tree except the anchor
    int32_t         n_depth;      // depth of that tree
    int32_t         n_denoised;   // length of the block that it was grown from (the anchor and the proposed tokens), 0:
                                  // none
    const char * reason;          // why the controller decided so: one of a few fixed strings (docs/budget.md)
    double       draft_ms;        // the drafter pass before this target pass, 0: none
    double       verify_ms;       // this target pass
    double       plain_ms;        // estimated time of a pass of anchors alone, by the costs known so far; 0: unknown
    bool         first;           // true if the tokens came from the prompt's last pass (no draft was possible)
    const char * error;           // DFLASH_FAILED and DFLASH_REFUSED only
    int32_t      n_past;          // tokens of prompt and answer that the slot holds after this step
    // Only with n_probs and return_drafts; valid as long as `tokens`.
    dflash_token_probs   probs;
    dflash_verified_tree tree;
} dflash_update;

// Run one step. updates: at least n_slots of them, which is `cap`. *out: how many were written, 0 if every slot is
// idle. An error concerns the whole engine. Blocks for one target pass, and for the passes of drafters: of one that
// drafts, and of all that read taps.
DFLASH_API dflash_status dflash_step(dflash_engine * engine, dflash_update * updates, int32_t cap, int32_t * out);
// Make a running dflash_step() return as soon as the CPU backend allows. Thread-safe.
DFLASH_API void dflash_engine_interrupt(dflash_engine * engine);

// ---- slots --------------------------------------------------------------------------------------------------------

#define DFLASH_MAX_NODES     64
#define DFLASH_QUOTE_SOURCES 4   // from DFLASH_BY_LOOKUP to DFLASH_BY_ANSWERS

typedef struct dflash_slot_counters {   // of the current or last request
    int32_t n_prompt;                   // prompt tokens
    int32_t n_cached;                   // prompt tokens taken from the cache
    int32_t n_generated;                // tokens emitted
    int32_t n_passes;                   // target passes after the prompt's
    int32_t n_plain;                    // passes without a draft
    int32_t n_drafted;                  // draft tokens verified
    int32_t n_accepted;                 // draft tokens accepted
    int32_t n_lookup_drafted;           // those of n_drafted that were only quoted, from whatever source
    int32_t n_lookup_accepted;
    int32_t quoted_drafted[DFLASH_QUOTE_SOURCES];    // n_lookup_drafted by source, in the order of dflash_origin
    int32_t quoted_accepted[DFLASH_QUOTE_SOURCES];   // the same of n_lookup_accepted
    int32_t n_mtp_drafted;                           // those of n_drafted that MTP layers proposed
    int32_t n_mtp_accepted;
    int32_t n_prediction;                       // tokens of the prediction
    int32_t n_prediction_accepted;              // prediction tokens that the answer contains
    int32_t depth_drafted[DFLASH_MAX_NODES];    // [d]: passes in which a node at depth d was verified (d = 1..)
    int32_t depth_accepted[DFLASH_MAX_NODES];   // [d]: passes in which such a node was accepted
    double  t_queue_ms;                         // from dflash_submit() to the first prompt pass
    double  t_prompt_ms;                        // from the first prompt pass to the first token
    double  t_generate_ms;                      // from the first token to the last
} dflash_slot_counters;

DFLASH_API dflash_status dflash_slot_stats(const dflash_engine * engine, int32_t slot, dflash_slot_counters * out);
// End the reasoning of a running slot's answer now: reasoning_budget_message, if any, and then the end tag are the next
// tokens. *out: whether the slot was reasoning.
DFLASH_API dflash_status dflash_slot_end_reasoning(dflash_engine * engine, int32_t slot, bool * out);
// Forget an idle slot's cached tokens. *out: how many there were.
DFLASH_API dflash_status dflash_slot_clear(dflash_engine * engine, int32_t slot, int32_t * out);

typedef struct dflash_slot_file {   // what was written or read
    int32_t  n_tokens;
    uint64_t n_bytes;
} dflash_slot_file;

// Save what an idle slot holds (tokens, the target's memory, the drafters' contexts) to a file, or restore a slot from
// one. The file must have been saved with the same target file, drafters and cache types. A damaged, foreign or
// hostile file is DFLASH_ERROR_ARG; a file that needs more room than running requests leave is DFLASH_ERROR_BUSY. Both
// leave everything unchanged.
DFLASH_API dflash_status dflash_slot_save(
    dflash_engine * engine, int32_t slot, const char * path, dflash_slot_file * out);
DFLASH_API dflash_status dflash_slot_restore(
    dflash_engine * engine, int32_t slot, const char * path, dflash_slot_file * out);

// ---- text: thread-safe --------------------------------------------------------------------------------------------

// The functions of a vocabulary take dflash_engine_vocab(), dflash_vocab_get(), or that of a model that the caller
// loaded with llama.h.

// A model's tokenizer without its weights, after a check of the file (the first file of a split model).
DFLASH_API dflash_status              dflash_vocab_init(const char * path, dflash_vocab ** out);
DFLASH_API const struct llama_vocab * dflash_vocab_get(const dflash_vocab * vocab);
DFLASH_API void                       dflash_vocab_free(dflash_vocab * vocab);

// tokens: [cap]. *out: how many tokens the text has; nothing past `cap` is written.
DFLASH_API dflash_status dflash_tokenize(const struct llama_vocab * vocab, const char * text, int32_t n_text,
    bool add_special, bool parse_special, int32_t * tokens, int32_t cap, int32_t * out);
// Bytes of one token, possibly only part of a UTF-8 character, without a zero. *out: how many; if they exceed `cap`,
// nothing is written to buf [cap].
DFLASH_API dflash_status dflash_token_piece(
    const struct llama_vocab * vocab, int32_t token, bool special, char * buf, int32_t cap, int32_t * out);
// Whether a token ends the generation; false outside the vocabulary.
DFLASH_API bool dflash_token_is_eog(const struct llama_vocab * vocab, int32_t token);

// ---- media: thread-safe -------------------------------------------------------------------------------------------

typedef enum dflash_media_kind {
    DFLASH_IMAGE = 0,
    DFLASH_AUDIO = 1,
} dflash_media_kind;

typedef struct dflash_media {
    int32_t         kind;     // dflash_media_kind
    const uint8_t * data;     // image: RGB [height, width, 3]; audio: a wav, mp3 or flac file
    uint64_t        n_data;   // bytes
    int32_t         width;    // image only
    int32_t         height;
    const uint8_t * hash;   // [32]: of what the data were made from. Media with equal hashes are equal
} dflash_media;

// Tokenizes a text in which the i-th marker (dflash_engine_info) stands for media[i], and prepares the media; they are
// encoded when a slot that has not cached them reads them. A medium becomes some rows, all with one negative number
// below -1: the same number for equal media as long as the engine lives, so that caches know them. Tokens with such
// numbers mean something while the prompt, or a request made from them, lives.
DFLASH_API dflash_status dflash_prompt_init(const dflash_engine * engine, const char * text, int32_t n_text,
    bool add_special, const dflash_media * media, int32_t n_media, dflash_prompt ** out);
// Even after dflash_engine_free().
DFLASH_API void dflash_prompt_free(dflash_prompt * prompt);
// Copies at most `cap` tokens; *out: how many there are.
DFLASH_API dflash_status dflash_prompt_tokens(
    const dflash_prompt * prompt, int32_t * tokens, int32_t cap, int32_t * out);
// *out: how many of the tokens are rows of media of this kind (dflash_media_kind).
DFLASH_API dflash_status dflash_prompt_rows(const dflash_prompt * prompt, int32_t kind, int32_t * out);

// ---- chat (llama.cpp common/chat): thread-safe --------------------------------------------------------------------

// DFLASH_ERROR_ARG unless `source` is valid as dflash_engine_params.chat_template.
DFLASH_API dflash_status dflash_check_chat_template(const char * source);

// Apply the engine's chat template, or `template_override` if not NULL (parsed for this call). body: JSON object with
// OpenAI's fields messages, tools, tool_choice, parallel_tool_calls, response_format, json_schema, grammar,
// chat_template_kwargs, reasoning_format ("none"|"auto"|"deepseek"|"deepseek-legacy"), enable_thinking,
// add_generation_prompt, continue_final_message; and force_pure_content: treat the whole answer as content. JSON:
// {"prompt": str, "stops": [str], "sampling": {...fields of dflash_request_params.sampling...}, "parser": {...opaque,
// for dflash_chat_init...}, "ignored": [names of body fields that both llama.cpp and the template ignore, such as
// "messages[].mood"]}.
DFLASH_API dflash_status dflash_chat_apply(
    const dflash_engine * engine, const char * template_override, const char * body, char ** out);

// An incremental parser of one answer. parser: the "parser" object of dflash_chat_apply() as JSON.
DFLASH_API dflash_status dflash_chat_init(const char * parser, dflash_chat ** out);
DFLASH_API void          dflash_chat_free(dflash_chat * chat);
// Add text (valid UTF-8). JSON array of OpenAI-shaped deltas since the last call: {"content"?: str,
// "reasoning_content"?: str, "tool_calls"?: [{"index","id"?,"type"?,"function":{"name"?,"arguments"}}]}.
DFLASH_API dflash_status dflash_chat_push(dflash_chat * chat, const char * text, bool is_final, char ** out);
// The whole message so far as JSON {"role","content","reasoning_content"?,"tool_calls"?}.
DFLASH_API dflash_status dflash_chat_message(const dflash_chat * chat, char ** out);

// ---- kernels ------------------------------------------------------------------------------------------------------

// A device may have two kernels for products with quantized weights: a vector kernel for few rows and a matrix kernel
// (tiles) for many. The device chooses the row count at which the matrix kernel takes over. device, type: ggml's names
// ("CUDA0", "q4_K"). *out: the count in force after the call, 0 if there is nothing to choose. rows:
//   < 0  changes nothing
//     0  restores the device's choice
//   > 0  sets the count for the whole process, to at most one more than the vector kernel supports
DFLASH_API dflash_status dflash_matrix_rows(const char * device, const char * type, int32_t rows, int32_t * out);
// The same for our own kernels of CUDA devices, which serve up to 64 rows from this count on, whatever the others do.
// 65: never, which is also what 0 restores.
DFLASH_API dflash_status dflash_few_rows(const char * device, const char * type, int32_t rows, int32_t * out);

typedef struct dflash_tune_params {
    const char * device;      // "CPU", "CUDA0", ...
    const char * type;        // weight type: "q4_K", "q8_0", ... (a quantized ggml type, case-insensitive)
    int32_t      m;           // columns of the result, 16..2^20
    int32_t      k;           // inner dimension, a multiple of 256 up to 2^20; m * k at most 2^30
    int32_t      n_max;       // time products of 1..n_max rows, at most 64
    int32_t      n_threads;   // CPU threads, 0: physical cores
    int32_t      megabytes;   // total size of the weights used in rotation: more than the caches hold, at least two
                              // weights
    int32_t ms;               // time budget per row count; each kernel runs at least three times
    bool    coarse;           // time 1 to 8, 12, 16, 32, 48 and 64 rows alone
} dflash_tune_params;

DFLASH_API void dflash_tune_params_default(dflash_tune_params * params);

// Time the kernels of a device. JSON: {"device", "type", "m", "k", "weights", "buffer", "rows": the count in force,
// "rows_max": the largest that can be set, "few_rows": the count in force, 0 if there are none, "vector_ms": [n_max],
// "matrix_ms": [n_max], "few_rows_ms": [n_max], "few_rows_difference"}: median milliseconds of one product of 1, 2, ...
// rows, null where it was not timed or the kernel does not apply; and the largest squared error of a product, over its
// square, against the matrix kernel's.
DFLASH_API dflash_status dflash_tune(
    const dflash_tune_params * params, dflash_progress_callback progress, void * user, char ** out);

// ---- RPC servers --------------------------------------------------------------------------------------------------

// Connect to RPC servers ("host:port,...") and list their devices by the names they have in this process from now on: a
// JSON list like "devices" of dflash_library_info(). DFLASH_ERROR_RPC if a server is not available. A server that is
// busy with another program does not answer, so this can take seconds.
DFLASH_API dflash_status dflash_rpc_devices(const char * servers, char ** out);
// DFLASH_ERROR_RPC unless the engine's RPC servers still answer.
DFLASH_API dflash_status dflash_engine_rpc_check(const dflash_engine * engine);

// Let whatever waits for these servers, in any engine of this process, go on as if they were lost. Thread-safe. For an
// engine that is freed while a server hangs: nothing else ends that wait.
DFLASH_API dflash_status dflash_rpc_hang_up(const char * servers);

typedef struct dflash_rpc_server_params {
    const char * host;        // IPv4 address to listen on
    int32_t      port;        // 1..65535
    const char * devices;     // names, "CUDA0,CUDA1"; NULL: all GPUs, or the CPU if there is none
    int32_t      n_threads;   // CPU threads, <= 0: physical cores
    const char * cache;       // folder that caches large tensors, so that they are sent only once; NULL: none
} dflash_rpc_server_params;

DFLASH_API void dflash_rpc_server_params_default(dflash_rpc_server_params * params);
// Serve this machine's devices to one program at a time, until the process ends. Returns only on error. Anyone who can
// reach the port can read and write this process's memory.
DFLASH_API dflash_status dflash_rpc_serve(const dflash_rpc_server_params * params);

// ---- inspection, for tests and training ---------------------------------------------------------------------------

// These feed tokens to an idle slot, whose cache is empty afterwards. Any output array may be NULL, unless said.

typedef struct dflash_score_params {
    const int32_t * tokens;   // [n_tokens]
    int32_t         n_tokens;
    int32_t         first;         // the first token to score, >= 1
    int32_t         width;         // rows of a pass
    int32_t *       best_ids;      // [n_tokens - first]: the token that the target ranks first, given those before
    float *         best_logits;   // [n_tokens - first]: its logit
    float *         logits;        // [n_tokens - first]: the logit of the given token
} dflash_score_params;

// Teacher-forced check: how the target ranks each of tokens[first..] given all before it.
DFLASH_API dflash_status dflash_score(dflash_engine * engine, int32_t slot, const dflash_score_params * params);

// A drafter's block: tokens[n_tokens - 1] is its anchor, the taps of those before are injected. A lattice is what all
// kinds but DFlash and DFlare have. Row 0 of ids and scores is unused unless the anchor's row proposes.
typedef struct dflash_probe_params {
    const int32_t * tokens;   // [n_tokens]
    int32_t         n_tokens;
    int32_t         n_block;   // length of the block; a drafter with a fixed block size accepts no other
    float *         hidden;    // [n_block, n_embd]: after the final norm
    float *         logits;    // [n_block, n_vocab]: after scale and soft-cap, without a Markov head; -infinity: never
                               // proposed
    int32_t * ids;             // [n_block, k]: candidates
    float *   scores;          // lattice: [n_block, k, k], predecessor-major; the first row has k equal predecessors,
                               // the anchor. Otherwise [n_block, k]: log-probabilities
} dflash_probe_params;

// Run one drafter pass, which denoises [anchor, MASK x (n_block - 1)], and tell what it computed.
DFLASH_API dflash_status dflash_draft_probe(dflash_engine * engine, int32_t slot, const dflash_probe_params * params);

#define DFLASH_FINAL_STATE (-1)

typedef struct dflash_tap_params {
    const int32_t * tokens;   // [n_tokens]
    int32_t         n_tokens;
    // [n_layers]: whose inputs to return. n_layer of the model: the output of the last one; DFLASH_FINAL_STATE: what
    // its next-token (MTP) layers read, the same after the output norm with most architectures.
    const int32_t * layers;
    int32_t         n_layers;
    int32_t         k;       // tokens of each distribution, 0: none
    int32_t         first;   // the first row with a distribution; with few of them wide passes read the text faster
    float *         taps;    // [n_tokens, n_layers, n_embd]
    int32_t *       ids;     // [n_tokens - first, k]: the likeliest next tokens, ties by id; needed unless k is 0
    float * log_probs;       // [n_tokens - first, k]: log-softmax of the row's raw logits over the whole vocabulary;
                             // needed unless k is 0
} dflash_tap_params;

// The data of one text that drafters are trained on: the target's hidden states, and what each row expects next. The
// engine must have no drafter (draft_kind lookup).
DFLASH_API dflash_status dflash_tap(dflash_engine * engine, int32_t slot, const dflash_tap_params * params);

// Rows of a tree for one idle slot, after what its cache holds. parents[i]: smaller than i, -1 for row 0.
typedef struct dflash_tree_rows {
    int32_t         slot;
    int32_t         n_nodes;   // 1..64 with a branch, otherwise as many as fit in one pass
    const int32_t * tokens;    // [n_nodes]
    const int32_t * parents;   // [n_nodes]
    int32_t n_path;   // the path to commit afterwards: row 0 first, each the parent of the next; 0: discard all rows
    const int32_t * path;     // [n_path]
    float *         logits;   // [n_nodes, n_vocab] or NULL
} dflash_tree_rows;

// Run one target pass over trees [n_trees] of one or several idle slots, then commit their paths. To feed a prompt,
// pass a chain with its whole path. The slots keep their caches: end with dflash_slot_clear(). DFLASH_ERROR_ARG if the
// target does not support trees (the error says why).
DFLASH_API dflash_status dflash_tree_pass(dflash_engine * engine, const dflash_tree_rows * trees, int32_t n_trees);

// JSON: the target's KV cells {"caches": [{"size", "streams": [{"used", "cells": [[cell, pos, [seq...]], ...]}]}]};
// iSWA has two caches.
DFLASH_API dflash_status dflash_cells(const dflash_engine * engine, char ** out);

#ifdef __cplusplus
}
#endif
