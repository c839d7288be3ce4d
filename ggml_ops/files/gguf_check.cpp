#include "files/gguf_check.h"

#include "base/error.h"
#include "dflash.h"
#include "files/charsmap.h"
#include "files/gguf_file.h"
#include "llama/drafter_kind.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <set>

namespace dflash {

namespace {

// Limits of the pinned llama.cpp (src/llama-hparams.h); where it has none, far beyond any existing model.
constexpr int64_t MAX_LAYERS    = 512;
constexpr int64_t MAX_EXPERTS   = 1024;
constexpr int64_t MAX_EMBD      = 1 << 20;
constexpr int64_t MAX_HEADS     = 1 << 12;
constexpr int64_t MAX_HEAD_SIZE = 1 << 13;
constexpr int64_t MAX_FF        = 1 << 24;
constexpr int64_t MAX_CONTEXT   = 1 << 27;
constexpr int64_t MAX_WINDOW    = 1 << 24;
constexpr int64_t MAX_COUNT =
    1 << 30;   // all other numbers of an architecture: products fit into 64 bits, casts to int32 stay positive
constexpr int64_t MAX_BLOCK      = 64;   // DFLASH_MAX_NODES
constexpr int64_t MAX_TAPS       = 64;
constexpr int64_t MAX_CANDIDATES = 32;   // of LiliCorr: its attention is over all candidates of a block
constexpr int64_t MAX_CORRELATOR = 16;   // layers

using names = std::initializer_list<const char *>;

bool one_of(const std::string & text, names list) { return std::find(list.begin(), list.end(), text) != list.end(); }

bool ends_with(const std::string & text, const std::string & end) {
    return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

bool starts_with(const std::string & text, const std::string & start) {
    return text.compare(0, start.size(), start) == 0;
}

// "blk.3.attn_q.weight" -> "attn_q"
std::string tensor_role(const std::string & name) {
    const size_t      dot  = starts_with(name, "blk.") ? name.find('.', 4) : std::string::npos;
    const std::string role = dot == std::string::npos ? name : name.substr(dot + 1);
    return ends_with(role, ".weight") ? role.substr(0, role.size() - 7) : role;
}

class checker {
  public:
    checker(const std::string & path, gguf_use use) : file_(path), use_(use) {}

    void run() {
        check_splits();
        check_architecture();
        check_numbers();
        check_shape();
        check_attention();
        check_rope();
        check_experts();
        check_recurrent();
        check_tokenizer();
        check_tensors();
        if (is_drafter()) {
            check_drafter();
        }
        if (use_ == gguf_use::embed) {
            check_words();
            check_pooling();
        }
        if (is_encoder()) {
            check_encoder();
        }
    }

  private:
    gguf_file      file_;
    const gguf_use use_;
    std::string    architecture_;
    int64_t        n_layer_     = 0;
    int64_t        n_embd_      = 0;
    int64_t        n_vocab_     = 0;
    int64_t        head_size_k_ = 0;
    int64_t        mask_token_  = -1;
    // of drafters
    std::vector<int64_t> target_layers_;
    int64_t              block_size_ = 0;   // 0: the file does not say

    bool is_drafter() const { return architecture_ == "dflash"; }

    template <class... Parts> [[noreturn]] void fail_key(const std::string & key, const Parts &... what) const {
        throw gguf_error(concat(file_.path, ": key '", gguf_printable(key), "' ", what...));
    }

    template <class... Parts> [[noreturn]] void fail_tensor(const std::string & name, const Parts &... what) const {
        throw gguf_error(concat(file_.path, ": tensor '", gguf_printable(name), "' ", what...));
    }

    // The same under a condition; the parts are evaluated in any case.
    template <class... Parts> void refuse_key_if(bool wrong, const std::string & key, const Parts &... what) const {
        if (wrong) {
            fail_key(key, what...);
        }
    }

    template <class... Parts> void refuse_tensor_if(bool wrong, const std::string & name, const Parts &... what) const {
        if (wrong) {
            fail_tensor(name, what...);
        }
    }

    [[noreturn]] void fail_missing(const std::string & name) const {
        fail_tensor(name, "is missing; convert the drafter again");
    }

    bool has(const std::string & name) const { return file_.find_tensor(name) != nullptr; }

    std::string own(const std::string & suffix) const { return architecture_ + "." + suffix; }

    bool is(names list) const { return one_of(architecture_, list); }

    // ---- typed access: a present key of the wrong type is an error, a missing one yields the fallback ----

    const gguf_value * scalar(const std::string & key, gguf_type type, bool required = false) const {
        const gguf_value * value = file_.find(key);
        if (!value) {
            refuse_key_if(required, key, "is missing; convert the model again");
            return nullptr;
        }
        refuse_key_if(value->is_array || value->type != type, key, "must be of type ", gguf_type_name(type), ", found ",
            (value->is_array ? "an array of " : ""), gguf_type_name(value->type));
        return value;
    }

    template <class T> void in_range(const std::string & key, T value, T low, T high) const {
        const bool inside = value >= low && value <= high;   // a NaN is not
        refuse_key_if(!inside, key, "is ", value, "; it must be from ", low, " to ", high);
    }

    int64_t number(const std::string & key, int64_t low, int64_t high) const {
        const int64_t value = scalar(key, gguf_type::u32, true)->integer();
        in_range<int64_t>(key, value, low, high);
        return value;
    }

    void check_real(const std::string & key, double low, double high) const {
        in_range<double>(key, scalar(key, gguf_type::f32, true)->real(), low, high);
    }

    void check_text(const std::string & key, names known) const {
        const gguf_value * value = scalar(key, gguf_type::string);
        if (value && !one_of(value->text, known)) {
            fail_key(key, "is '", gguf_printable(value->text), "'; it must be ", joined(known, ", ", " or "));
        }
    }

    int64_t number(const std::string & key, int64_t low, int64_t high, int64_t fallback) const {
        return file_.find(key) != nullptr ? number(key, low, high) : fallback;
    }

    // One number for all layers or an array with one per layer (llama_model_loader::get_key_or_arr).
    std::vector<int64_t> per_layer(const std::string & key, int64_t low, int64_t high, int64_t fallback) const {
        const gguf_value * value = file_.find(key);
        if (!value || !value->is_array) {
            return std::vector<int64_t>((size_t) n_layer_, number(key, low, high, fallback));
        }
        const std::vector<int64_t> numbers = integers(key, *value);
        refuse_key_if(numbers.size() != (size_t) n_layer_, key, "has ", numbers.size(), " elements; the model has ",
            n_layer_, " layers");
        for (const int64_t n : numbers) {
            in_range<int64_t>(key, n, low, high);
        }
        return numbers;
    }

    std::vector<int64_t> integers(const std::string & key, const gguf_value & value) const {
        const bool typed = value.is_array && (value.type == gguf_type::i32 || value.type == gguf_type::u32 ||
                                                 value.type == gguf_type::boolean);
        refuse_key_if(!typed || value.count > gguf_value::max_numbers, key,
            "must be a short array of i32, u32 or bool, found ", (value.is_array ? "an array of " : ""),
            gguf_type_name(value.type));
        std::vector<int64_t> numbers;
        for (uint64_t i = 0; i < value.count; ++i) {
            numbers.push_back(value.integer(i));
        }
        return numbers;
    }

    // ---- rules ----

    void check_splits() {
        const gguf_value * count = scalar("split.count", gguf_type::u16);
        if (!count || count->integer() <= 1) {
            return;
        }
        const auto                     n     = (size_t) count->integer();
        const std::vector<std::string> paths = gguf_parts(file_.path);
        if (scalar("split.no", gguf_type::u16, true)->integer() != 0 || paths.size() != n) {
            char tail[64];
            std::snprintf(tail, sizeof(tail), "-00001-of-%05d.gguf", (int) n);
            fail_key("split.count", "says that the model has ", n, " files; give the first one, whose name ends in '",
                tail, "'");
        }
        scalar("split.tensors.count", gguf_type::i32, true);
        for (size_t i = 1; i < n; ++i) {
            const gguf_file    part(paths[i]);
            const gguf_value * no = part.find("split.no");
            if (!no || no->is_array || no->type != gguf_type::u16 || no->integer() != (int64_t) i) {
                throw gguf_error(part.path + ": key 'split.no' must be the u16 " + std::to_string(i));
            }
            for (const auto & [name, tensor] : part.tensors) {
                if (!file_.tensors.emplace(name, tensor).second) {
                    throw gguf_error(part.path + ": tensor '" + gguf_printable(name) + "' is in an earlier part, too");
                }
            }
        }
    }

    void check_architecture() {
        architecture_ = scalar("general.architecture", gguf_type::string, true)->text;
        // drafters of other projects: convert/dialects.py
        if (is({ "dflash-draft", "qwen35-dflash-draft", "gemma4-dflash-draft", "dspark" })) {
            fail_key("general.architecture", "is '", architecture_,
                "', another project's dialect of drafters; rewrite the file: "
                "dflash-local convert DRAFTER.gguf --target TARGET.gguf");
        }
        if (use_ == gguf_use::embed) {
            // Drafters need hidden states; the others have no context with pooling, or need two.
            if (is_drafter() || is({ "t5", "t5encoder", "wavtokenizer-dec", "dream", "llada", "llada-moe", "rnd1",
                                    "clip", "eagle3", "gemma4-assistant" })) {
                fail_key("general.architecture", "is '", architecture_,
                    "', which gives no embeddings; use an embedding or reranking model");
            }
            return;
        }
        // No KV memory or no plain decoder: create_memory() returns null, or the graph needs another context.
        refuse_key_if(is_encoder(), "general.architecture", "is '", architecture_,
            "', which gives embeddings, not text; use a decoder-only language model (to serve its embeddings: "
            "dflash-local serve --embedding-model FILE)");
        if (is({ "llama-embed", "t5", "t5encoder", "wavtokenizer-dec", "dream", "llada", "llada-moe", "rnd1", "clip",
                "eagle3", "gemma4-assistant" })) {
            fail_key("general.architecture", "is '", architecture_,
                "', which does not generate text token by token; use a decoder-only language model");
        }
    }

    // Models that read a whole text at once and have no memory.
    bool is_encoder() const {
        return is({ "bert", "modern-bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "jina-bert-v2", "jina-bert-v3",
            "eurobert", "gemma-embedding" });
    }

    // Every number of the architecture must be finite, and small enough that no product of two overflows.
    void check_numbers() const {
        for (const auto & [key, value] : file_.values) {
            if (!starts_with(key, architecture_ + ".") || value.type == gguf_type::string || value.bytes.empty()) {
                continue;
            }
            if (value.is_array && (value.type == gguf_type::u64 || value.type == gguf_type::i64)) {
                continue;   // hash multipliers (ple.*) use all 64 bits
            }
            for (uint64_t i = 0; i < value.count; ++i) {
                refuse_key_if(
                    !value.is_integer() && !std::isfinite(value.real(i)) && key != own("kda.gate_lower_bound"), key,
                    "holds a number that is not finite");
                refuse_key_if(value.is_integer() && (value.integer(i) < -1 || value.integer(i) > MAX_COUNT), key,
                    "holds ", value.integer(i), "; it must be from 0 to ", MAX_COUNT);
            }
        }
        for (const char * suffix :
            { "attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon", "attention.group_norm_epsilon" }) {
            const gguf_value * eps = scalar(own(suffix), gguf_type::f32);
            refuse_key_if(eps && !(eps->real() >= 0.0 && eps->real() <= 1.0), own(suffix),
                "must be from 0 to 1");   // ggml's norms assert eps >= 0 on a worker thread
        }
    }

    void check_shape() {
        n_layer_ = number(own("block_count"), 1, MAX_LAYERS);
        n_embd_  = number(own("embedding_length"), 1, MAX_EMBD);
        number(own("context_length"), 1, MAX_CONTEXT);

        number(own("nextn_predict_layers"), 0, n_layer_ - 1, 0);
        // Output rows are copied with this width; only few other architectures have wider ones.
        number(own("embedding_length_out"), is_plain_attention() ? n_embd_ : 0, is_plain_attention() ? n_embd_ : MAX_FF,
            n_embd_);
        number(own("pooling_type"), 0, 4, 0);
        per_layer(own("feed_forward_length"), 0, MAX_FF, 0);
        if (const gguf_value * causal = scalar(own("attention.causal"), gguf_type::boolean);
            causal && causal->integer() == 0 && !is_drafter() && use_ == gguf_use::generate) {
            fail_key(own("attention.causal"), "is false; a target must attend causally");
        }
        // Divisors in the loaders and graphs.
        number(own("full_attention_interval"), 1, MAX_LAYERS, 1);
        number(own("experts_per_group"), 1, MAX_EXPERTS, 1);
        number(own("wkv.head_size"), 1, MAX_EMBD, 1);
        number(own("interleave_moe_layer_step"), is({ "llama4" }) ? 0 : 1, MAX_LAYERS, 1);
    }

    void check_attention() {
        const std::vector<int64_t> heads = per_layer(own("attention.head_count"), 0, MAX_HEADS, 0);
        if (file_.find(own("attention.head_count_kv")) != nullptr) {
            const std::vector<int64_t> heads_kv = per_layer(own("attention.head_count_kv"), 0, MAX_HEADS, 0);
            for (size_t i = 0; i < heads.size(); ++i) {
                refuse_key_if(heads[i] > 0 && heads_kv[i] > 0 && heads[i] % heads_kv[i] != 0,
                    own("attention.head_count_kv"), "is ", heads_kv[i], ", which does not divide the ", heads[i],
                    " heads");
                refuse_key_if(heads_kv[i] == 0 && is_plain_attention(), own("attention.head_count_kv"),
                    "is 0; it must be at least 1");
            }
        }
        if (heads[0] == 0) {
            refuse_key_if(is_plain_attention(), own("attention.head_count"), "is missing or 0; it must be at least 1");
            return;
        }
        head_size_k_              = number(own("attention.key_length"), 1, MAX_HEAD_SIZE, n_embd_ / heads[0]);
        const int64_t head_size_v = number(own("attention.value_length"), 1, MAX_HEAD_SIZE, n_embd_ / heads[0]);
        refuse_key_if(head_size_k_ == 0, own("attention.head_count"), "is ", heads[0],
            ", more than the embedding length ", n_embd_);
        refuse_key_if(is_plain_attention() && head_size_k_ != head_size_v, own("attention.value_length"), "is ",
            head_size_v, "; it must equal attention.key_length, ", head_size_k_);
        for (const char * suffix : { "attention.key_length_swa", "attention.value_length_swa" }) {
            number(own(suffix), 1, MAX_HEAD_SIZE, 1);
        }
        number(own("attention.sliding_window"), 0, MAX_WINDOW, 0);
    }

    // Architectures whose graphs assert the same head size for K and V, and heads in every layer.
    bool is_plain_attention() const {
        return is({ "dflash", "llama", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "gpt-oss" });
    }

    void check_rope() const {
        for (const char * suffix : { "rope.freq_base", "rope.freq_base_swa", "backbone_rotary_base" }) {
            if (const gguf_value * base = scalar(own(suffix), gguf_type::f32); base && !(base->real() > 0.0)) {
                fail_key(own(suffix), "must be greater than 0");
            }
        }
        number(own("rope.scaling.original_context_length"), 0, MAX_CONTEXT, 0);
        check_text(own("rope.scaling.type"), { "none", "linear", "yarn", "longrope" });
        if (head_size_k_ == 0) {
            return;
        }
        // These have no RoPE (llama_model_rope_type). For all others, the kernel would loop forever with 0 dimensions.
        const bool rotates = !is({ "gpt2", "gptj", "mpt", "refact", "bloom", "jais", "mamba", "mamba2", "jamba",
            "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7", "nemotron_h", "nemotron_h_moe", "kimi-linear", "kimi-k3",
            "glm5-next", "bert", "jina-bert-v2" });
        const auto check_dimensions = [&](const std::string & suffix, int64_t head_size, int64_t fallback) {
            const int64_t n_rot = number(own(suffix), 0, MAX_HEAD_SIZE, fallback);
            in_range<int64_t>(own(suffix), n_rot, rotates ? 2 : 0, head_size);
            refuse_key_if(n_rot % 2 != 0, own(suffix), "is ", n_rot, "; it must be even");
            return n_rot;
        };
        const int64_t n_rot = check_dimensions("rope.dimension_count", head_size_k_, head_size_k_);
        check_dimensions(
            "rope.dimension_count_swa", number(own("attention.key_length_swa"), 1, MAX_HEAD_SIZE, head_size_k_), n_rot);
        if (n_rot != head_size_k_ && is({ "qwen2", "qwen2moe", "qwen3", "qwen3moe" })) {
            fail_key(own("rope.dimension_count"), "is ", n_rot, "; it must equal attention.key_length, ", head_size_k_);
        }
        check_sections();
    }

    // The kernel divides by the sum of the sections and asserts that one of the first three is positive.
    void check_sections() const {
        const std::string  key   = own("rope.dimension_sections");
        const gguf_value * value = file_.find(key);
        if (!value) {
            return;
        }
        const std::vector<int64_t> sections = integers(key, *value);
        refuse_key_if(sections.size() != 4, key, "has ", sections.size(), " elements; it must have 4");
        int64_t sum = 0;
        for (const int64_t n : sections) {
            in_range<int64_t>(key, n, 0, head_size_k_);
            sum += n;
        }
        const bool unused = is_drafter() && sum == 0;
        refuse_key_if(!unused && (sum - sections[3] == 0 || sum > head_size_k_), key,
            "must sum to at least 1 and at most the head size ", head_size_k_);
    }

    void check_experts() const {
        const int64_t              n_expert = number(own("expert_count"), 0, MAX_EXPERTS, 0);
        const std::vector<int64_t> used     = per_layer(own("expert_used_count"), 0, MAX_EXPERTS, 0);
        const std::vector<int64_t> ff       = per_layer(own("expert_feed_forward_length"), 0, MAX_FF, 0);
        const int64_t              n_used   = *std::max_element(used.begin(), used.end());
        const int64_t              groups   = number(own("expert_group_count"), 0, MAX_EXPERTS, 0);
        const int64_t              n_group  = number(own("expert_group_used_count"), 0, MAX_EXPERTS, 0);
        number(own("expert_shared_count"), 0, MAX_EXPERTS, 0);
        number(own("expert_gating_func"), 0, 4, 0);

        refuse_key_if(n_used > n_expert || (n_expert > 0 && n_used == 0), own("expert_used_count"), "is ", n_used,
            "; the model has ", n_expert, " experts");
        // If the experts' own length is missing, these loaders divide feed_forward_length by the number of used
        // experts.
        const bool divides = n_expert > 0 || is({ "glm4moe", "grovemoe", "llada-moe", "mellum", "qwen2moe", "qwen35moe",
                                                 "qwen3moe", "qwen3next", "qwen3vlmoe", "qwen4exp" });
        refuse_key_if(divides && used[0] == 0 && ff[0] == 0, own("expert_used_count"), "is missing or 0");
        const bool grouped = groups > 1 && n_expert > 0;
        refuse_key_if(groups > 0 && groups >= n_expert, own("expert_group_count"), "is ", groups,
            "; it must be less than the ", n_expert, " experts");
        refuse_key_if(grouped && (n_expert % groups != 0 || n_group == 0 || n_group >= groups),
            own("expert_group_count"), "is ", groups, "; it must divide the ", n_expert,
            " experts and be greater than expert_group_used_count, ", n_group);
    }

    void check_recurrent() const {
        const int64_t group_low = is({ "plamo2" }) ? 0 : 1;   // PLaMo 2 writes 0 and ignores it
        const int64_t d_state   = number(own("ssm.state_size"), 1, MAX_EMBD, 0);
        const int64_t d_inner   = number(own("ssm.inner_size"), 1, MAX_EMBD, 0);
        const int64_t heads_v   = number(own("ssm.time_step_rank"), 1, MAX_EMBD, 0);
        const int64_t heads_k   = number(own("ssm.group_count"), group_low, MAX_EMBD, 0);
        number(own("ssm.conv_kernel"), 1, 64, 1);
        number(own("kda.head_dim"), 1, MAX_HEAD_SIZE, 1);
        number(own("shortconv.l_cache"), 1, 64, 1);
        if (heads_v == 0 || !is({ "qwen3next", "qwen35", "qwen35moe", "qwen4exp" })) {
            return;
        }
        refuse_key_if(heads_k == 0 || heads_v % heads_k != 0, own("ssm.group_count"), "is ", heads_k,
            "; it must divide ssm.time_step_rank, ", heads_v);
        refuse_key_if(d_inner != heads_v * d_state, own("ssm.inner_size"), "is ", d_inner,
            "; it must be ssm.time_step_rank * ssm.state_size, ", heads_v * d_state);
    }

    void check_tokenizer() {
        const std::string model = scalar("tokenizer.ggml.model", gguf_type::string, true)->text;
        if (one_of(model, { "none", "no_vocab" })) {
            fail_key("tokenizer.ggml.model", "is '", model, "'; the model must bring its tokenizer");
        }
        const std::string  key    = "tokenizer.ggml.tokens";
        const gguf_value * tokens = file_.find(key);
        refuse_key_if(!tokens || !tokens->is_array || tokens->type != gguf_type::string || tokens->count == 0 ||
                          tokens->count > (uint64_t) MAX_COUNT,
            key, "must be an array of at least one string");
        n_vocab_ = (int64_t) tokens->count;

        // llama.cpp names empty tokens by their index, then asserts that no two tokens have the same text
        std::vector<std::pair<uint64_t, uint64_t>> order;
        order.reserve(tokens->hashes.size());
        for (uint64_t i = 0; i < tokens->count; ++i) {
            const bool empty = tokens->hashes[i] == gguf_hash("");
            order.emplace_back(empty ? gguf_hash(("[EMPTY_" + std::to_string(i) + "]").c_str()) : tokens->hashes[i], i);
        }
        std::sort(order.begin(), order.end());
        const auto twin = std::adjacent_find(
            order.begin(), order.end(), [](const auto & a, const auto & b) { return a.first == b.first; });
        if (twin != order.end()) {
            fail_key(key, "holds the same text twice, as tokens ", twin->second, " and ", (twin + 1)->second);
        }

        for (const char * list : { "tokenizer.ggml.scores", "tokenizer.ggml.token_type" }) {
            const gguf_value * value = file_.find(list);
            refuse_key_if(
                value && (!value->is_array || value->type == gguf_type::string || value->count < tokens->count), list,
                "must be an array of ", n_vocab_, " numbers, one per token");
        }
        const gguf_value * merges = file_.find("tokenizer.ggml.merges");
        refuse_key_if(
            merges && (!merges->is_array || merges->type != gguf_type::string || merges->count > (uint64_t) MAX_COUNT),
            "tokenizer.ggml.merges", "must be an array of strings");
        mask_token_ = number("tokenizer.ggml.mask_token_id", 0, std::numeric_limits<uint32_t>::max(), -1);
    }

    // ---- tensors ----

    // Weights that ggml multiplies or adds elementwise: its kernels need F32 there and abort on anything else.
    static bool is_elementwise(const gguf_tensor & tensor, const std::string & role) {
        if (one_of(role, { "conf_proj", "ffn_gate_inp_shexp" }) || starts_with(role, "cls")) {
            return false;   // matrices that may have a single row
        }
        return tensor.is_vector() || role.find("norm") != std::string::npos || ends_with(role, ".bias") ||
               ends_with(role, "scale") || ends_with(role, "_conv_base") || starts_with(role, "ssm_conv1d") ||
               starts_with(role, "time_mix_lerp") ||
               one_of(role, { "ssm_a", "ssm_d", "shortconv.conv", "ple_conv1d", "time_mix_first", "time_mix_decay",
                                "time_mix_r_k" });
    }

    // Types that ggml's mul_mat and get_rows both have kernels for.
    static bool is_weight_type(const std::string & type) {
        return !one_of(type, { "f64", "i8", "i16", "i32", "i64", "q8_1", "q8_K" });
    }

    void check_tensors() {
        for (const auto & [name, tensor] : file_.tensors) {
            const std::string type = ggml_type_find(tensor.type)->name;
            const std::string role = tensor_role(name);
            if (role == "d2t") {
                check_indices(tensor, "i64", n_vocab_);
            } else if (role == "ffn_gate_tid2eid") {
                check_indices(tensor, "i32", number(own("expert_count"), 0, MAX_EXPERTS, 0));
            } else if (starts_with(role, "masked_embd_")) {
                continue;   // no graph uses them
            } else if (is_elementwise(tensor, role) && type != "f32") {
                fail_tensor(name, "has type ", type, "; it must be f32");
            } else if (!is_weight_type(type)) {
                fail_tensor(name, "has type ", type, ", which ggml cannot multiply with");
            }
        }
    }

    // A table of indices: the kernels assert on a worker thread that each is in range.
    void check_indices(const gguf_tensor & tensor, const std::string & type, int64_t n) {
        constexpr uint64_t max_bytes = 1 << 28;
        refuse_tensor_if(ggml_type_find(tensor.type)->name != type || tensor.n_bytes > max_bytes, tensor.name,
            "must be a table of ", type);
        gguf_value table;
        table.type  = type == "i64" ? gguf_type::i64 : gguf_type::i32;
        table.bytes = gguf_read(tensor);
        for (uint64_t i = 0; i < table.bytes.size() / ggml_type_find(tensor.type)->bytes; ++i) {
            refuse_tensor_if(table.integer(i) < 0 || table.integer(i) >= n, tensor.name, "holds the index ",
                table.integer(i), "; it must be from 0 to ", n - 1);
        }
    }

    // ---- embeddings (build_pooling() and build_dense_out() in src/llama-graph.cpp) ----

    void check_pooling() const {
        number(own("classifier.pooling_type"), 0, 4, 0);
        const std::string  key    = own("classifier.output_labels");
        const gguf_value * labels = file_.find(key);
        refuse_key_if(labels && (!labels->is_array || labels->type != gguf_type::string || labels->count == 0 ||
                                    labels->count > gguf_value::max_numbers),
            key, "must be a short array of strings");
        // One score per label is read for each text, regardless of the head that computes them.
        if (labels && labels->count > 1 && !has("cls.output.weight")) {
            fail_key(key, "has ", labels->count, " elements, but there is no cls.output.weight");
        }
        for (const char * name : { "cls.bias", "cls.output.bias", "cls.norm.weight" }) {
            check_f32(name);
        }
        // Must have the width that the model states, since the reader of its output relies on that.
        const int64_t       n_out = number(own("embedding_length_out"), 0, MAX_FF, n_embd_);
        const gguf_tensor * dense = file_.find_tensor("dense_2.weight");
        refuse_key_if(n_out != n_embd_ && (!dense || dense->ne[1] != (uint64_t) n_out), own("embedding_length_out"),
            "is ", n_out, ", and embedding_length ", n_embd_, "; they must be the same");
        if (is({ "gemma3", "gemma-embedding" })) {
            check_dense();
        }
    }

    // The tokenizer is not guarded there, so it must be able to split any text.
    void check_words() const {
        const std::string & model = file_.find("tokenizer.ggml.model")->text;
        check_text("tokenizer.ggml.model", { "bert", "gpt2", "llama", "t5" });
        const bool words = model == "bert";
        check_special("bos", words ? 101 : model == "gpt2" ? 11 : model == "llama" ? 1 : -1, words, model != "t5");
        check_special("eos", words ? -1 : model == "gpt2" ? 11 : model == "llama" ? 2 : 1, false, model == "t5");
        check_special("seperator", words ? 102 : -1, words, false);
        if (model == "llama") {
            check_byte_tokens();
        }
        const std::string  key   = "tokenizer.ggml.precompiled_charsmap";
        const gguf_value * table = file_.find(key);
        if (model != "t5" || table == nullptr) {
            return;
        }
        refuse_key_if(!table->is_array || !(table->type == gguf_type::u8 || table->type == gguf_type::i8) ||
                          table->count > gguf_value::max_bytes || !charsmap_is_sound(table->bytes),
            key, "leads outside of itself; convert the model again");
    }

    // A token that the tokenizer adds around texts must be in the vocabulary. `id`: llama.cpp's default; `always`:
    // regardless of add_*_token; `usual`: if add_*_token is missing.
    void check_special(const std::string & name, int64_t id, bool always, bool usual) const {
        const std::string  key   = "tokenizer.ggml." + name + "_token_id";
        const int64_t      given = number(key, 0, std::numeric_limits<uint32_t>::max(), -1);
        const gguf_value * adds  = scalar("tokenizer.ggml.add_" + name + "_token", gguf_type::boolean);
        const bool         added = always || (adds != nullptr ? adds->integer() != 0 : usual);
        refuse_key_if(added && !(given >= 0 && given < n_vocab_) && !(id >= 0 && id < n_vocab_), key,
            "must name one of the ", n_vocab_, " tokens");
    }

    // Text that no other token contains is split into bytes.
    void check_byte_tokens() const {
        const std::vector<uint64_t> & hashes = file_.find("tokenizer.ggml.tokens")->hashes;
        const std::set<uint64_t>      known(hashes.begin(), hashes.end());
        for (int byte = 0; byte < 256; ++byte) {
            char text[8];
            std::snprintf(text, sizeof(text), "<0x%02X>", byte);
            const char raw[2] = { (char) byte, 0 };
            refuse_key_if(known.count(gguf_hash(text)) == 0 && (byte == 0 || known.count(gguf_hash(raw)) == 0),
                "tokenizer.ggml.tokens", "has no token ", text);
        }
    }

    // Two layers after the pooling: from the embedding length to another and back.
    void check_dense() const {
        const auto width = [&](const char * suffix, int64_t expected) {
            const int64_t n = number(own(suffix), 0, MAX_FF, expected);
            refuse_key_if(n != expected, own(suffix), "is ", n, "; it must be ", expected);
        };
        const bool first = has("dense_2.weight");
        refuse_tensor_if(first != has("dense_3.weight"), first ? "dense_3.weight" : "dense_2.weight",
            "is missing; convert the model again");
        if (first) {
            width("dense_2_feat_in", n_embd_);
            width("dense_3_feat_in", number(own("dense_2_feat_out"), 1, MAX_FF));
            width("dense_3_feat_out", n_embd_);
        }
    }

    // ---- encoders (src/models/bert.cpp and others) ----

    void check_encoder() const {
        const bool own_width = is({ "gemma-embedding" });
        for (const int64_t heads : per_layer(own("attention.head_count"), 1, MAX_HEADS, 0)) {
            refuse_key_if(!own_width && heads * head_size_k_ != n_embd_, own("attention.head_count"), "is ", heads,
                "; times the head size ", head_size_k_, " it must be the embedding length, ", n_embd_);
        }
        if (is({ "modern-bert" })) {   // its loader gives K and V the width of Q
            for (const int64_t heads :
                per_layer(own("attention.head_count_kv"), 1, MAX_HEADS, n_embd_ / head_size_k_)) {
                refuse_key_if(
                    heads * head_size_k_ != n_embd_, own("attention.head_count_kv"), "must be attention.head_count");
            }
        }
        number(own("moe_every_n_layers"), 0, MAX_LAYERS, 0);
        check_windows();
        check_f32("token_types.weight");   // its first row is added to every token
        const int64_t n_ff = per_layer(own("feed_forward_length"), 0, MAX_FF, 0)[0];
        for (int64_t i = 0; is({ "jina-bert-v2" }) && i < n_layer_; ++i) {
            const std::string   name = "blk." + std::to_string(i) + ".ffn_up.weight";
            const gguf_tensor * up   = file_.find_tensor(name);
            if (up && (int64_t) up->ne[1] != n_ff && (int64_t) up->ne[1] != 2 * n_ff) {
                fail_tensor(
                    name, "has ", up->ne[1], " rows; it must have feed_forward_length, ", n_ff, ", or twice as many");
            }
        }
    }

    // With sliding windows there are two masks, and each must be used by some layer: otherwise it has no memory but is
    // still written to.
    void check_windows() const {
        const bool gemma = is({ "gemma-embedding" });
        if (!gemma && (!is({ "modern-bert" }) || number(own("attention.sliding_window"), 0, MAX_WINDOW, 0) == 0)) {
            return;
        }
        const std::string    key   = own("attention.sliding_window_pattern");
        const gguf_value *   value = file_.find(key);
        std::vector<int64_t> windows;
        if (value && value->is_array) {
            windows = integers(key, *value);
        } else {
            const int64_t n = number(key, 0, MAX_LAYERS, gemma ? 6 : 3);
            for (int64_t i = 0; i < n_layer_; ++i) {
                windows.push_back(n == 0 || (gemma ? i % n < n - 1 : i % n != 0) ? 1 : 0);
            }
        }
        const int64_t none = std::count(windows.begin(), windows.end(), 0);
        refuse_key_if(windows.size() != (size_t) n_layer_ || none == 0 || none == n_layer_, key,
            "must give some of the ", n_layer_, " layers a window, and not all of them");
    }

    // ---- DFlash drafters (src/models/dflash.cpp) ----

    void check_drafter() {
        refuse_key_if(number(own("hyper_connection.count"), 0, MAX_COUNT, 0) > 0, own("hyper_connection.count"),
            "says that the drafter has DeepSeek-V4's layers, which dflash-local does not run");
        scalar(own("sample_from_anchor"), gguf_type::boolean);
        check_taps();
        block_size_ = number(own("block_size"), 2, MAX_BLOCK, 0);
        refuse_key_if(mask_token_ < 0 || mask_token_ >= n_vocab_, "tokenizer.ggml.mask_token_id",
            "must name one of the ", n_vocab_, " tokens; convert the drafter again");
        check_text(own("hidden_activation"), { "silu", "gelu", "gelu_pytorch_tanh" });
        for (const char * suffix : { "attention.head_count", "attention.head_count_kv" }) {
            const std::vector<int64_t> heads = per_layer(own(suffix), 1, MAX_HEADS, 1);
            if (std::any_of(heads.begin(), heads.end(), [&](int64_t n) { return n != heads[0]; })) {
                fail_key(own(suffix), "must be the same in every layer of a drafter");
            }
        }
        if (number(own("attention.sliding_window"), 0, MAX_WINDOW, 0) > 0) {
            const std::string          key     = own("attention.sliding_window_pattern");
            const gguf_value *         value   = file_.find(key);
            const std::vector<int64_t> pattern = value != nullptr ? integers(key, *value) : std::vector<int64_t>();
            refuse_key_if(
                pattern.size() != (size_t) n_layer_ || std::count(pattern.begin(), pattern.end(), 0) == n_layer_, key,
                "must have one flag for each of the ", n_layer_,
                " layers, and at least one set, because there is a sliding window");
        }
        // A reduced vocabulary needs an output matrix with one row per entry; otherwise nonexistent rows are scattered.
        if (const gguf_tensor * d2t = file_.find_tensor("d2t"); d2t) {
            const gguf_tensor * output = file_.find_tensor("output.weight");
            refuse_tensor_if(!d2t->is_vector() || !output || output->ne[1] != d2t->ne[0], "d2t",
                "must be a vector with one entry per row of output.weight");
        }
        number(own("selector_vocab_size"), 1, n_vocab_, n_vocab_);
        check_fusion();
        check_domino();
        check_selector();
        check_lilicorr();
        check_markov();
        check_kind();
    }

    void check_kind() {
        const auto           there  = [&](const char * name) { return has(name); };
        const auto           refuse = [&](const char * tensor, const std::string & why) { fail_tensor(tensor, why); };
        const drafter_kind & kind   = find_drafter_kind(there, refuse);
        refuse_key_if(kind.needs_block_size && block_size_ == 0, own("block_size"), "is missing; a ", kind.title,
            " drafter needs it");
    }

    void check_matrix(const gguf_tensor * tensor, const std::string & name, int64_t n_in, int64_t n_out) const {
        if (!tensor) {
            fail_missing(name);
        }
        refuse_tensor_if(tensor->ne[0] != (uint64_t) n_in || tensor->ne[1] != (uint64_t) n_out || tensor->ne[2] != 1 ||
                             tensor->ne[3] != 1,
            name, "must be a matrix of ", n_in, " by ", n_out);
    }

    // What turns taps into context rows: one matrix for all layers, or (DFlare) weights of the taps and projections for
    // each layer.
    void check_fusion() const {
        const std::string   name   = "layer_fusion.weight";
        const gguf_tensor * shares = file_.find_tensor(name);
        refuse_tensor_if((shares != nullptr) == has("fc.weight"), "fc.weight",
            "or 'layer_fusion.weight' must be there, and not both; convert the drafter again");
        if (shares) {
            check_matrix(shares, name, (int64_t) target_layers_.size(), n_layer_);
            check_f32(name);
        }
        const int64_t n_kv = head_size_k_ * per_layer(own("attention.head_count_kv"), 1, MAX_HEADS, 1)[0];
        for (int64_t i = 0; i < n_layer_; ++i) {
            const std::string layer = "blk." + std::to_string(i) + ".";
            for (const char * role : { "attn_k_ctx.weight", "attn_v_ctx.weight" }) {
                const gguf_tensor * projection = file_.find_tensor(layer + role);
                if (shares) {
                    check_matrix(projection, layer + role, n_embd_, n_kv);
                } else if (projection) {
                    fail_tensor(layer + role, "goes with 'layer_fusion.weight', which is missing");
                }
            }
            if (shares && !has(layer + "attn_v.weight")) {
                fail_missing(layer + "attn_v.weight");
            }
        }
    }

    // Domino: a recurrent cell and the matrices that turn its state into corrections.
    void check_domino() const {
        const std::string   key = own("domino_prefix_length");
        const gguf_tensor * ih  = file_.find_tensor("domino_gru_ih.weight");
        const gguf_tensor * out = file_.find_tensor("domino_out.weight");
        refuse_key_if((ih != nullptr) != (file_.find(key) != nullptr) || (ih == nullptr && out != nullptr), key,
            "must be given together with the tensors 'domino_*'");
        if (!ih) {
            return;
        }
        number(key, 0, MAX_BLOCK);
        const int64_t size = (int64_t) (ih->ne[1] / 3), width = out != nullptr ? (int64_t) out->ne[0] : 0;
        check_matrix(ih, ih->name, n_embd_, 3 * std::max<int64_t>(size, 1));
        check_matrix(file_.find_tensor("domino_gru_hh.weight"), "domino_gru_hh.weight", size, 3 * size);
        check_matrix(out, "domino_out.weight", width, n_vocab_);
        check_matrix(file_.find_tensor("domino_hidden.weight"), "domino_hidden.weight", n_embd_, width);
        check_matrix(file_.find_tensor("domino_state.weight"), "domino_state.weight", size, width);
    }

    void check_taps() {
        const std::string  key   = own("target_layers");
        const gguf_value * value = file_.find(key);
        refuse_key_if(!value, key, "is missing; convert the drafter again");
        target_layers_ = integers(key, *value);
        in_range<int64_t>(key, (int64_t) target_layers_.size(), 1, MAX_TAPS);
        for (const int64_t layer : target_layers_) {
            in_range<int64_t>(key, layer, 0, MAX_LAYERS);
        }
    }

    // DFlash 2: the four keys and the selector tensors must come together. LiliCorr may have the convolutions alone.
    void check_selector() {
        const bool    has_tensors = has("selector_hidden.weight");
        const bool    may_part    = has("lilicorr_hidden.weight");
        const int64_t low         = has_tensors ? 1 : 0;
        const int64_t kernel      = number(own("conv_kernel_size"), low, MAX_BLOCK, 0);
        const int64_t group       = number(own("conv_group_size"), low, n_embd_, 0);
        const int64_t rank        = number(own("selector_rank"), low, MAX_EMBD, 0);
        const int64_t n_tokens    = number(own("selector_vocab_size"), 1, n_vocab_, n_vocab_);
        const int64_t top_k       = number(own("selector_top_k"), low, n_tokens, 0);
        const bool    has_keys    = kernel > 0 && group > 0 && rank > 0 && top_k > 0;
        refuse_key_if(may_part && (kernel > 0) != (group > 0), own(kernel > 0 ? "conv_group_size" : "conv_kernel_size"),
            "is missing or 0, and there are convolutions; convert the drafter again");
        refuse_key_if(has_keys != has_tensors || (!has_keys && rank + top_k + (may_part ? 0 : kernel + group) > 0),
            own("selector_top_k"),
            "and its three companions (conv_kernel_size, conv_group_size, "
            "selector_rank) must be given together with the selector tensors");
        refuse_key_if(group > 0 && n_embd_ % group != 0, own("conv_group_size"), "is ", group,
            "; it must divide the embedding length ", n_embd_);
        if (!has_tensors) {   // else llama.cpp's loader checks them
            check_convolutions(kernel, group);
        }
        refuse_key_if(top_k * (top_k + 1) > n_embd_, own("selector_top_k"), "is ", top_k,
            "; k * (k + 1) must not exceed the embedding length ", n_embd_);
    }

    // kernel 0: there are none.
    void check_convolutions(int64_t kernel, int64_t group) const {
        for (int64_t i = 0; i < n_layer_; ++i) {
            for (const char * conv : { ".attn_conv", ".ffn_conv" }) {
                const std::string   name = "blk." + std::to_string(i) + conv;
                const gguf_tensor * base = file_.find_tensor(name + "_base");
                const gguf_tensor * proj = file_.find_tensor(name + "_proj.weight");
                if (kernel == 0 && (base != nullptr || proj != nullptr)) {
                    fail_tensor(base != nullptr ? base->name : proj->name,
                        "goes with conv_kernel_size and conv_group_size, which are missing; convert the drafter again");
                }
                if (kernel == 0) {
                    continue;
                }
                if (!base) {
                    fail_missing(name + "_base");
                }
                check_shape(name + "_base", *base, n_embd_, kernel, 2);
                check_matrix(proj, name + "_proj.weight", n_embd_, 2 * kernel * (n_embd_ / group));
            }
        }
    }

    // LiliCorr: a transformer over all candidates of a block.
    void check_lilicorr() const {
        const std::string   key    = own("lilicorr_top_k");
        const gguf_tensor * hidden = file_.find_tensor("lilicorr_hidden.weight");
        refuse_key_if((hidden != nullptr) != (file_.find(key) != nullptr), key,
            "must be given together with the tensors 'lilicorr_*'; convert the drafter again");
        if (!hidden) {
            return;
        }
        refuse_tensor_if(has("layer_fusion.weight"), "layer_fusion.weight",
            "does not go with 'lilicorr_hidden.weight', which reads what fc makes");
        const gguf_value * first = scalar(own("sample_from_anchor"), gguf_type::boolean);
        refuse_key_if(first && first->integer() != 0, own("sample_from_anchor"),
            "is true; the anchor of a LiliCorr drafter proposes nothing");
        const int64_t n_tokens = number(own("selector_vocab_size"), 1, n_vocab_, n_vocab_);
        const int64_t top_k    = number(key, 1, std::min(n_tokens, MAX_CANDIDATES));
        const int64_t n_head   = number(own("lilicorr_head_count"), 1, MAX_HEADS);
        const int64_t width    = (int64_t) hidden->ne[1];
        refuse_key_if(
            width % n_head != 0, own("lilicorr_head_count"), "is ", n_head, "; it must divide the width ", width);
        check_real(own("lilicorr_logit_scale"), 1e-6, 1e6);
        check_real(own("lilicorr_vector_epsilon"), 9e-7, 0.5);   // llama.cpp keeps six decimals
        check_correlator_rows(width, top_k);
        const int64_t n_pos = std::max<int64_t>(block_size_, 2) - 1;   // without a block size: check_kind()
        check_floats("lilicorr_position_embd", width, n_pos);
        check_floats("lilicorr_distance_bias", 2 * n_pos + 1, n_head);
        check_floats("lilicorr_same_bias", n_head, 1);
        const int64_t n_layer = number(own("lilicorr_block_count"), 1, MAX_CORRELATOR);
        for (int64_t i = 0; i < n_layer; ++i) {
            check_correlator_layer("lilicorr_blk." + std::to_string(i) + ".", width);
        }
        check_correlator_factors(width);
    }

    // What makes a row of each candidate.
    void check_correlator_rows(int64_t width, int64_t top_k) const {
        check_affine("lilicorr_hidden", n_embd_, width);
        if (width != n_embd_ || has("lilicorr_token.weight")) {
            check_affine("lilicorr_token", n_embd_, width);
        }
        check_floats("lilicorr_feature_norm.weight", 5, 1);
        check_floats("lilicorr_feature_norm.bias", 5, 1);
        check_affine("lilicorr_feature_up", 5, width);
        check_affine("lilicorr_feature_down", width, width);
        check_floats("lilicorr_rank_embd", width, top_k);
    }

    // What makes of rows the vectors that are compared.
    void check_correlator_factors(int64_t width) const {
        check_affine("lilicorr_context", n_embd_, width);
        check_floats("lilicorr_output_norm.weight", width, 1);
        check_floats("lilicorr_context_norm.weight", width, 1);
        check_affine("lilicorr_factor", width, width);
        check_weight("lilicorr_factor_context.weight", width, width);
        check_weight("lilicorr_factor_product.weight", width, width);
        const gguf_tensor * out = file_.find_tensor("lilicorr_out.weight");
        for (const char * name : { "lilicorr_out", "lilicorr_in", "lilicorr_start" }) {
            check_affine(name, width, out != nullptr ? (int64_t) out->ne[1] : 1);
        }
    }

    void check_correlator_layer(const std::string & layer, int64_t width) const {
        const gguf_tensor * up   = file_.find_tensor(layer + "ffn_up.weight");
        const int64_t       n_ff = up != nullptr ? (int64_t) up->ne[1] : 1;
        check_floats(layer + "attn_norm.weight", width, 1);
        check_affine(layer + "attn_qkv", width, 3 * width);
        check_affine(layer + "attn_output", width, width);
        check_floats(layer + "ffn_norm.weight", width, 1);
        check_affine(layer + "ffn_up", width, n_ff);
        check_affine(layer + "ffn_down", n_ff, width);
    }

    void check_weight(const std::string & name, int64_t n_in, int64_t n_out) const {
        check_matrix(file_.find_tensor(name), name, n_in, n_out);
    }

    // A matrix and what is added to its products.
    void check_affine(const std::string & name, int64_t n_in, int64_t n_out) const {
        check_weight(name + ".weight", n_in, n_out);
        check_floats(name + ".bias", n_out, 1);
    }

    // What is used element by element.
    void check_floats(const std::string & name, int64_t ne0, int64_t ne1) const {
        check_weight(name, ne0, ne1);
        check_f32(name);
    }

    // A tensor that may be absent.
    void check_f32(const std::string & name) const {
        const gguf_tensor * tensor = file_.find_tensor(name);
        refuse_tensor_if(tensor && std::string(ggml_type_find(tensor->type)->name) != "f32", name, "must be f32");
    }

    // DSpark: two tables of the same rank, and a head that rates a position by its hidden state and the previous token.
    void check_markov() {
        const gguf_tensor * prev = file_.find_tensor("markov_w1.weight");
        const gguf_tensor * next = file_.find_tensor("markov_w2.weight");
        const gguf_tensor * conf = file_.find_tensor("conf_proj.weight");
        if (!prev) {
            for (const char * name : { "markov_w2.weight", "markov_w2.scale", "conf_proj.weight", "conf_proj.bias" }) {
                refuse_tensor_if(has(name), name, "comes without markov_w1.weight; convert the drafter again");
            }
            return;
        }
        refuse_tensor_if(!next, "markov_w1.weight", "comes without markov_w2.weight; convert the drafter again");
        const gguf_tensor * d2t     = file_.find_tensor("d2t");
        const int64_t       rank    = (int64_t) prev->ne[0];
        const int64_t       n_draft = d2t != nullptr ? (int64_t) d2t->ne[0] : n_vocab_;
        check_shape("markov_w1.weight", *prev, rank, n_vocab_);
        check_shape("markov_w2.weight", *next, rank, n_draft);
        if (conf) {
            check_shape("conf_proj.weight", *conf, n_embd_ + rank, 1);
            if (!one_of(ggml_type_find(conf->type)->name, { "f32", "f16", "bf16" })) {   // the graph splits it
                fail_tensor("conf_proj.weight", "must be f32, f16 or bf16");
            }
        }
        if (const gguf_tensor * bias = file_.find_tensor("conf_proj.bias"); bias) {
            refuse_tensor_if(!conf, "conf_proj.bias", "comes without conf_proj.weight; convert the drafter again");
            check_shape("conf_proj.bias", *bias, 1, 1);
        }
        refuse_tensor_if(has("markov_w2.scale"), "markov_w2.scale",
            "belongs to NVFP4 weights; convert the drafter with --outtype q8_0 or f16");
    }

    void check_shape(
        const std::string & name, const gguf_tensor & tensor, int64_t ne0, int64_t ne1, int64_t ne2 = 1) const {
        const auto is   = [&](int axis, int64_t n) { return tensor.ne[axis] == (uint64_t) n; };
        const auto text = [](auto a, auto b, auto c) {
            return std::to_string(a) + " x " + std::to_string(b) + (c == 1 ? "" : " x " + std::to_string(c));
        };
        refuse_tensor_if(!is(0, ne0) || !is(1, ne1) || !is(2, ne2) || !is(3, 1), name, "must be ", text(ne0, ne1, ne2),
            ", and is ", text(tensor.ne[0], tensor.ne[1], tensor.ne[2]));
    }
};

}   // namespace

void check_gguf(const char * path, gguf_use use) {
    const std::string file = path ? path : "";
    try {
        checker(file, use).run();
    } catch (const gguf_error & e) {
        throw status_error(DFLASH_ERROR_MODEL, e.what());
    } catch (const std::bad_alloc &) {
        throw status_error(DFLASH_ERROR_MODEL, file, ": not enough memory to read the header");
    } catch (const std::exception & e) {
        throw status_error(DFLASH_ERROR_MODEL, file, ": cannot be read: ", e.what());
    }
}

}   // namespace dflash
