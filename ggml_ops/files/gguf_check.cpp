#include "files/gguf_check.h"

#include "base/error.h"
#include "files/header_check.h"
#include "files/projector_check.h"

#include <cmath>
#include <cstdio>

namespace dflash {

namespace {

constexpr int64_t MAX_EXPERTS = 1024;
constexpr int64_t MAX_CONTEXT = 1 << 27;

// Architectures that give neither text nor embeddings here.
constexpr names OTHERS = { "t5", "t5encoder", "wavtokenizer-dec", "dream", "llada", "llada-moe", "rnd1", "clip",
    "eagle3" };

// Numbers that may be absent. Those from 1 on are divisors in the loaders and graphs.
constexpr bound BOUNDS[] = { { ".pooling_type", 0, 4 }, { ".full_attention_interval", 1, MAX_LAYERS },
    { ".experts_per_group", 1, MAX_EXPERTS }, { ".wkv.head_size", 1, MAX_EMBD },
    { ".attention.key_length_swa", 1, MAX_HEAD_SIZE }, { ".attention.value_length_swa", 1, MAX_HEAD_SIZE },
    { ".attention.sliding_window", 0, MAX_WINDOW }, { ".rope.scaling.original_context_length", 0, MAX_CONTEXT },
    { ".expert_shared_count", 0, MAX_EXPERTS }, { ".expert_gating_func", 0, 4 }, { ".ssm.conv_kernel", 1, 64 },
    { ".kda.head_dim", 1, MAX_HEAD_SIZE }, { ".shortconv.l_cache", 1, 64 } };

bool ends_with(const std::string & text, const std::string & end) {
    return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// "blk.3.attn_q.weight" -> "attn_q"
std::string tensor_role(const std::string & name) {
    const size_t      dot  = starts_with(name, "blk.") ? name.find('.', 4) : std::string::npos;
    const std::string role = dot == std::string::npos ? name : name.substr(dot + 1);
    return ends_with(role, ".weight") ? role.substr(0, role.size() - 7) : role;
}

// What must hold before the keys of the architecture are read.
class file_check : header_keys {
  public:
    file_check(gguf_file & file, gguf_use use) : header_keys(file), whole_(file), use_(use) {}

    void run() {
        check_splits();
        check_architecture();
        check_numbers();
    }

  private:
    gguf_file &    whole_;   // gets the tensors of the other parts
    const gguf_use use_;

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
                if (!whole_.tensors.emplace(name, tensor).second) {
                    throw gguf_error(part.path + ": tensor '" + gguf_printable(name) + "' is in an earlier part, too");
                }
            }
        }
    }

    void check_architecture() const {
        scalar("general.architecture", gguf_type::string, true);
        // drafters of other projects: convert/dialects.py
        refuse_key_if(is({ "dflash-draft", "qwen35-dflash-draft", "gemma4-dflash-draft", "dspark" }),
            "general.architecture", "is '", architecture_,
            "', another project's dialect of drafters; rewrite the file: dflash-local convert DRAFTER.gguf --target "
            "TARGET.gguf");
        if (use_ == gguf_use::project) {
            refuse_key_if(!is({ "clip" }), "general.architecture", "is '", architecture_,
                "', which is no projector; use the mmproj file that belongs to the target");
            refuse_key_if(
                file_.find("split.count") != nullptr, "split.count", "is there; a projector must be one file");
            return;
        }
        if (use_ == gguf_use::embed) {
            // Drafters need hidden states; the others have no context with pooling, or need two.
            refuse_key_if(is_drafter() || is_assistant() || is(OTHERS), "general.architecture", "is '", architecture_,
                "', which gives no embeddings; use an embedding or reranking model");
            return;
        }
        // No KV memory or no plain decoder: create_memory() returns null, or the graph needs another context.
        refuse_key_if(is_encoder(), "general.architecture", "is '", architecture_,
            "', which gives embeddings, not text; use a decoder-only language model (to serve its embeddings: "
            "dflash-local serve --embedding-model FILE)");
        refuse_key_if(is(OTHERS) || is({ "llama-embed" }), "general.architecture", "is '", architecture_,
            "', which does not generate text token by token; use a decoder-only language model");
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
                    !value.is_integer() && !std::isfinite(value.real(i)) && key != full(".kda.gate_lower_bound"), key,
                    "holds a number that is not finite");
                refuse_key_if(value.is_integer() && (value.integer(i) < -1 || value.integer(i) > MAX_COUNT), key,
                    "holds ", value.integer(i), "; it must be from 0 to ", MAX_COUNT);
            }
        }
        for (const char * suffix :
            { ".attention.layer_norm_epsilon", ".attention.layer_norm_rms_epsilon", ".attention.group_norm_epsilon" }) {
            const gguf_value * eps = scalar(suffix, gguf_type::f32);
            refuse_key_if(eps && !(eps->real() >= 0.0 && eps->real() <= 1.0), suffix,
                "must be from 0 to 1");   // ggml's norms assert eps >= 0 on a worker thread
        }
    }
};

// The rules for every model.
class model_check : header_check {
  public:
    model_check(const gguf_file & file, gguf_use use) : header_check(file), use_(use) {}

    void run() const {
        check_shape();
        check_attention();
        check_rope();
        check_experts();
        check_recurrent();
        check_tokenizer();
        check_tensors();
        if (is_drafter()) {
            check_drafter(file_);
        }
        if (use_ == gguf_use::embed) {
            check_embedding(file_);
        }
    }

  private:
    const gguf_use use_;

    void check_shape() const {
        number(".context_length", 1, MAX_CONTEXT);

        if (is_assistant()) {   // all of its layers
            number(".nextn_predict_layers", n_layer_, n_layer_);
        } else {
            number(".nextn_predict_layers", 0, n_layer_ - 1, 0);
        }
        // Output rows are copied with this width; only few other architectures have wider ones.
        number(".embedding_length_out", is_plain_attention() ? n_embd_ : 0, is_plain_attention() ? n_embd_ : MAX_FF,
            n_embd_);
        per_layer(".feed_forward_length", 0, MAX_FF, 0);
        const gguf_value * causal = scalar(".attention.causal", gguf_type::boolean);
        refuse_key_if(causal && causal->integer() == 0 && !is_drafter() && use_ == gguf_use::generate,
            ".attention.causal", "is false; a target must attend causally");
        check_bounds(BOUNDS);
        number(".interleave_moe_layer_step", is({ "llama4" }) ? 0 : 1, MAX_LAYERS, 1);
    }

    void check_attention() const {
        const std::vector<int64_t> heads = per_layer(".attention.head_count", 0, MAX_HEADS, 0);
        if (find(".attention.head_count_kv") != nullptr) {
            const std::vector<int64_t> heads_kv = per_layer(".attention.head_count_kv", 0, MAX_HEADS, 0);
            for (size_t i = 0; i < heads.size(); ++i) {
                refuse_key_if(heads[i] > 0 && heads_kv[i] > 0 && heads[i] % heads_kv[i] != 0,
                    ".attention.head_count_kv", "is ", heads_kv[i], ", which does not divide the ", heads[i], " heads");
                refuse_key_if(heads_kv[i] == 0 && is_plain_attention(), ".attention.head_count_kv",
                    "is 0; it must be at least 1");
            }
        }
        refuse_key_if(
            heads[0] == 0 && is_plain_attention(), ".attention.head_count", "is missing or 0; it must be at least 1");
        const int64_t head_size_v = head_size(".attention.value_length");
        refuse_key_if(is_plain_attention() && head_size_k_ != head_size_v, ".attention.value_length", "is ",
            head_size_v, "; it must equal attention.key_length, ", head_size_k_);
    }

    // Architectures whose graphs assert the same head size for K and V, and heads in every layer.
    bool is_plain_attention() const {
        return is({ "dflash", "llama", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "gpt-oss" });
    }

    void check_rope() const {
        for (const char * suffix : { ".rope.freq_base", ".rope.freq_base_swa", ".backbone_rotary_base" }) {
            const gguf_value * base = scalar(suffix, gguf_type::f32);
            refuse_key_if(base && !(base->real() > 0.0), suffix, "must be greater than 0");
        }
        check_text(".rope.scaling.type", { "none", "linear", "yarn", "longrope" });
        if (head_size_k_ == 0) {
            return;
        }
        // These have no RoPE (llama_model_rope_type). For all others, the kernel would loop forever with 0 dimensions.
        const bool rotates = !is({ "gpt2", "gptj", "mpt", "refact", "bloom", "jais", "mamba", "mamba2", "jamba",
            "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7", "nemotron_h", "nemotron_h_moe", "kimi-linear", "kimi-k3",
            "glm5-next", "bert", "jina-bert-v2" });
        const auto check_dimensions = [&](const std::string & suffix, int64_t head_size, int64_t fallback) {
            const int64_t n_rot = number(suffix, 0, MAX_HEAD_SIZE, fallback);
            in_range<int64_t>(suffix, n_rot, rotates ? 2 : 0, head_size);
            refuse_key_if(n_rot % 2 != 0, suffix, "is ", n_rot, "; it must be even");
            return n_rot;
        };
        const int64_t n_rot   = check_dimensions(".rope.dimension_count", head_size_k_, head_size_k_);
        const char *  index   = ".attention.indexer.key_length";
        const int64_t n_index = number(index, 1, MAX_HEAD_SIZE, head_size_k_);
        refuse_key_if(n_index < n_rot, index, "is ", n_index, "; RoPE turns ", n_rot, " of it");
        check_dimensions(
            ".rope.dimension_count_swa", number(".attention.key_length_swa", 1, MAX_HEAD_SIZE, head_size_k_), n_rot);
        refuse_key_if(n_rot != head_size_k_ && is({ "qwen2", "qwen2moe", "qwen3", "qwen3moe" }),
            ".rope.dimension_count", "is ", n_rot, "; it must equal attention.key_length, ", head_size_k_);
        check_sections();
    }

    // The kernel divides by the sum of the sections and asserts that one of the first three is positive.
    void check_sections() const {
        const std::string  key   = ".rope.dimension_sections";
        const gguf_value * value = find(key);
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
        const int64_t              n_expert = number(".expert_count", 0, MAX_EXPERTS, 0);
        const std::vector<int64_t> used     = per_layer(".expert_used_count", 0, MAX_EXPERTS, 0);
        const std::vector<int64_t> ff       = per_layer(".expert_feed_forward_length", 0, MAX_FF, 0);
        const int64_t              n_used   = *std::max_element(used.begin(), used.end());
        const int64_t              groups   = number(".expert_group_count", 0, MAX_EXPERTS, 0);
        const int64_t              n_group  = number(".expert_group_used_count", 0, MAX_EXPERTS, 0);
        refuse_key_if(n_used > n_expert || (n_expert > 0 && n_used == 0), ".expert_used_count", "is ", n_used,
            "; the model has ", n_expert, " experts");
        // If the experts' own length is missing, these loaders divide feed_forward_length by the number of used
        // experts.
        const bool divides = n_expert > 0 || is({ "glm4moe", "grovemoe", "llada-moe", "mellum", "qwen2moe", "qwen35moe",
                                                 "qwen3moe", "qwen3next", "qwen3vlmoe", "qwen4exp" });
        refuse_key_if(divides && used[0] == 0 && ff[0] == 0, ".expert_used_count", "is missing or 0");
        const bool grouped = groups > 1 && n_expert > 0;
        refuse_key_if(groups > 0 && groups >= n_expert, ".expert_group_count", "is ", groups,
            "; it must be less than the ", n_expert, " experts");
        refuse_key_if(grouped && (n_expert % groups != 0 || n_group == 0 || n_group >= groups), ".expert_group_count",
            "is ", groups, "; it must divide the ", n_expert, " experts and be greater than expert_group_used_count, ",
            n_group);
    }

    void check_recurrent() const {
        const int64_t group_low = is({ "plamo2" }) ? 0 : 1;   // PLaMo 2 writes 0 and ignores it
        const int64_t d_state   = number(".ssm.state_size", 1, MAX_EMBD, 0);
        const int64_t d_inner   = number(".ssm.inner_size", 1, MAX_EMBD, 0);
        const int64_t heads_v   = number(".ssm.time_step_rank", 1, MAX_EMBD, 0);
        const int64_t heads_k   = number(".ssm.group_count", group_low, MAX_EMBD, 0);
        if (heads_v == 0 || !is({ "qwen3next", "qwen35", "qwen35moe", "qwen4exp" })) {
            return;
        }
        refuse_key_if(heads_k == 0 || heads_v % heads_k != 0, ".ssm.group_count", "is ", heads_k,
            "; it must divide ssm.time_step_rank, ", heads_v);
        refuse_key_if(d_inner != heads_v * d_state, ".ssm.inner_size", "is ", d_inner,
            "; it must be ssm.time_step_rank * ssm.state_size, ", heads_v * d_state);
    }

    void check_tokenizer() const {
        const gguf_value * tokens = find("tokenizer.ggml.tokens");

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
            fail_key("tokenizer.ggml.tokens", "holds the same text twice, as tokens ", twin->second, " and ",
                (twin + 1)->second);
        }

        for (const char * list : { "tokenizer.ggml.scores", "tokenizer.ggml.token_type" }) {
            const gguf_value * value = file_.find(list);
            refuse_key_if(
                value && (!value->is_array || value->type == gguf_type::string || value->count < tokens->count), list,
                "must be an array of ", n_vocab_, " numbers, one per token");
        }
        const gguf_value * merges = find("tokenizer.ggml.merges");
        refuse_key_if(
            merges && (!merges->is_array || merges->type != gguf_type::string || merges->count > (uint64_t) MAX_COUNT),
            "tokenizer.ggml.merges", "must be an array of strings");
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

    void check_tensors() const {
        for (const auto & [name, tensor] : file_.tensors) {
            const std::string type = ggml_type_find(tensor.type)->name;
            const std::string role = tensor_role(name);
            if (role == "d2t") {
                check_indices(tensor, "i64", n_vocab_);
            } else if (role == "ffn_gate_tid2eid") {
                check_indices(tensor, "i32", number(".expert_count", 0, MAX_EXPERTS, 0));
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
    void check_indices(const gguf_tensor & tensor, const std::string & type, int64_t n) const {
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
};

}   // namespace

int64_t header_check::head_size(const std::string & key) const {
    const int64_t n_heads = per_layer(".attention.head_count", 0, MAX_HEADS, 0)[0];
    if (n_heads == 0) {
        return 0;
    }
    refuse_key_if(n_heads > n_embd_ && find(key) == nullptr, ".attention.head_count", "is ", n_heads,
        ", more than the embedding length ", n_embd_);
    return number(key, 1, MAX_HEAD_SIZE, n_embd_ / n_heads);
}

int64_t header_check::count_tokens() const {
    const std::string model = scalar("tokenizer.ggml.model", gguf_type::string, true)->text;
    refuse_key_if(one_of(model, { "none", "no_vocab" }), "tokenizer.ggml.model", "is '", model,
        "'; the model must bring its tokenizer");
    const std::string  key    = "tokenizer.ggml.tokens";
    const gguf_value * tokens = find(key);
    refuse_key_if(!tokens || !tokens->is_array || tokens->type != gguf_type::string || tokens->count == 0 ||
                      tokens->count > (uint64_t) MAX_COUNT,
        key, "must be an array of at least one string");
    return (int64_t) tokens->count;
}

gguf_file check_gguf(const char * path, gguf_use use) {
    const std::string file = path ? path : "";
    try {
        gguf_file header(file);
        file_check(header, use).run();
        if (use == gguf_use::project) {
            check_projector(header);
        } else {
            model_check(header, use).run();
        }
        return header;
    } catch (const gguf_error & e) {
        throw status_error(DFLASH_ERROR_MODEL, e.what());
    } catch (const std::bad_alloc &) {
        throw status_error(DFLASH_ERROR_MODEL, file, ": not enough memory to read the header");
    } catch (const std::exception & e) {
        throw status_error(DFLASH_ERROR_MODEL, file, ": cannot be read: ", e.what());
    }
}

}   // namespace dflash
