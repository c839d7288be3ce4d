// The rules for DFlash drafters: what llama.cpp's loader (src/models/dflash.cpp) and the drafter's graph rely on.

#include "dflash.h"
#include "files/header_check.h"
#include "llama/drafter_kind.h"

namespace dflash {

namespace {

constexpr int64_t MAX_BLOCK      = DFLASH_MAX_NODES;
constexpr int64_t MAX_TAPS       = 64;
constexpr int64_t MAX_CANDIDATES = 32;   // of LiliCorr: its attention is over all candidates of a block
constexpr int64_t MAX_CORRELATOR = 16;   // layers

class drafter_check : header_check {
  public:
    explicit drafter_check(const gguf_file & file) : header_check(file) {}

    void run() const {
        refuse_key_if(number(".hyper_connection.count", 0, MAX_COUNT, 0) > 0, ".hyper_connection.count",
            "says that the drafter has DeepSeek-V4's layers, which dflash-local does not run");
        scalar(".sample_from_anchor", gguf_type::boolean);
        refuse_key_if(mask_token_ < 0 || mask_token_ >= n_vocab_, "tokenizer.ggml.mask_token_id",
            "must name one of the ", n_vocab_, " tokens; convert the drafter again");
        check_text(".hidden_activation", { "silu", "gelu", "gelu_pytorch_tanh" });
        for (const char * suffix : { ".attention.head_count", ".attention.head_count_kv" }) {
            const std::vector<int64_t> heads = per_layer(suffix, 1, MAX_HEADS, 1);
            refuse_key_if(std::count(heads.begin(), heads.end(), heads[0]) != n_layer_, suffix,
                "must be the same in every layer of a drafter");
        }
        if (number(".attention.sliding_window", 0, MAX_WINDOW, 0) > 0) {
            const std::string          key     = ".attention.sliding_window_pattern";
            const gguf_value *         value   = find(key);
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
        number(".selector_vocab_size", 1, n_vocab_, n_vocab_);
        check_fusion();
        check_domino();
        check_selector();
        check_lilicorr();
        check_markov();
        check_kind();
    }

  private:
    const int64_t n_taps_     = count_taps();
    const int64_t block_size_ = number(".block_size", 2, MAX_BLOCK, 0);   // 0: the file does not say

    // ---- kinds ----

    void check_kind() const {
        const auto           there  = [&](const char * name) { return has(name); };
        const auto           refuse = [&](const char * tensor, const std::string & why) { fail_tensor(tensor, why); };
        const drafter_kind & kind   = find_drafter_kind(there, refuse);
        refuse_key_if(kind.needs_block_size && block_size_ == 0, ".block_size", "is missing; a ", kind.title,
            " drafter needs it");
    }

    // What turns taps into context rows: one matrix for all layers, or (DFlare) weights of the taps and projections for
    // each layer.
    void check_fusion() const {
        const bool by_layer = has("layer_fusion.weight");
        refuse_tensor_if(by_layer == has("fc.weight"), "fc.weight",
            "or 'layer_fusion.weight' must be there, and not both; convert the drafter again");
        if (by_layer) {
            check_floats("layer_fusion.weight", n_taps_, n_layer_);
        }
        const int64_t n_kv = head_size_k_ * per_layer(".attention.head_count_kv", 1, MAX_HEADS, 1)[0];
        for (int64_t i = 0; i < n_layer_; ++i) {
            const std::string layer = "blk." + std::to_string(i) + ".";
            for (const char * role : { "attn_k_ctx.weight", "attn_v_ctx.weight" }) {
                if (by_layer) {
                    check_shape(layer + role, n_embd_, n_kv);
                }
                refuse_tensor_if(
                    !by_layer && has(layer + role), layer + role, "goes with 'layer_fusion.weight', which is missing");
            }
            if (by_layer) {
                need(layer + "attn_v.weight");
            }
        }
    }

    // Domino: a recurrent cell and the matrices that turn its state into corrections.
    void check_domino() const {
        const std::string   key = ".domino_prefix_length";
        const gguf_tensor * ih  = file_.find_tensor("domino_gru_ih.weight");
        const gguf_tensor * out = file_.find_tensor("domino_out.weight");
        refuse_key_if((ih != nullptr) != (find(key) != nullptr) || (ih == nullptr && out != nullptr), key,
            "must be given together with the tensors 'domino_*'");
        if (!ih) {
            return;
        }
        number(key, 0, MAX_BLOCK);
        const int64_t size = (int64_t) (ih->ne[1] / 3), width = out != nullptr ? (int64_t) out->ne[0] : 0;
        check_shape(ih->name, n_embd_, 3 * std::max<int64_t>(size, 1));
        check_shape("domino_gru_hh.weight", size, 3 * size);
        check_shape("domino_out.weight", width, n_vocab_);
        check_shape("domino_hidden.weight", n_embd_, width);
        check_shape("domino_state.weight", size, width);
    }

    int64_t count_taps() const {
        const std::string  key   = ".target_layers";
        const gguf_value * value = find(key);
        refuse_key_if(!value, key, "is missing; convert the drafter again");
        const std::vector<int64_t> layers = integers(key, *value);
        in_range<int64_t>(key, (int64_t) layers.size(), 1, MAX_TAPS);
        for (const int64_t layer : layers) {
            in_range<int64_t>(key, layer, 0, MAX_LAYERS);
        }
        return (int64_t) layers.size();
    }

    // DFlash 2: its keys and the tensors of the selector come together. LiliCorr may have the convolutions, too.
    void check_selector() const {
        const bool    selects = has("selector_hidden.weight"), convolves = selects || has("lilicorr_hidden.weight");
        const int64_t n_tokens = number(".selector_vocab_size", 1, n_vocab_, n_vocab_);
        const int64_t kernel   = selector_number(".conv_kernel_size", MAX_BLOCK, selects, convolves);
        const int64_t group    = selector_number(".conv_group_size", n_embd_, selects, convolves);
        const int64_t top_k    = selector_number(".selector_top_k", n_tokens, selects, selects);
        selector_number(".selector_rank", MAX_EMBD, selects, selects);
        refuse_key_if((kernel > 0) != (group > 0), kernel > 0 ? ".conv_group_size" : ".conv_kernel_size",
            "is missing or 0, and there are convolutions; convert the drafter again");
        refuse_key_if(group > 0 && n_embd_ % group != 0, ".conv_group_size", "is ", group,
            "; it must divide the embedding length ", n_embd_);
        if (!selects) {   // else llama.cpp's loader checks them
            check_convolutions(kernel, group);
        }
        refuse_key_if(top_k * (top_k + 1) > n_embd_, ".selector_top_k", "is ", top_k,
            "; k * (k + 1) must not exceed the embedding length ", n_embd_);
    }

    // 0: it is absent.
    int64_t selector_number(const char * key, int64_t high, bool needed, bool allowed) const {
        const int64_t n = number(key, needed ? 1 : 0, high, 0);
        refuse_key_if(needed && n == 0, key, "is missing, beside the tensors 'selector_*'; convert the drafter again");
        refuse_key_if(
            !allowed && n > 0, key, "goes with tensors 'selector_*', which are missing; convert the drafter again");
        return n;
    }

    // kernel 0: there are none.
    void check_convolutions(int64_t kernel, int64_t group) const {
        for (int64_t i = 0; i < n_layer_; ++i) {
            for (const char * conv : { ".attn_conv", ".ffn_conv" }) {
                const std::string layer = "blk." + std::to_string(i) + conv, base = layer + "_base",
                                  proj = layer + "_proj.weight";
                refuse_tensor_if(kernel == 0 && (has(base) || has(proj)), has(base) ? base : proj,
                    "goes with conv_kernel_size and conv_group_size, which are missing; convert the drafter again");
                if (kernel > 0) {
                    check_shape(base, n_embd_, kernel, 2);
                    check_shape(proj, n_embd_, 2 * kernel * (n_embd_ / group));
                }
            }
        }
    }

    // LiliCorr: a transformer over all candidates of a block.
    void check_lilicorr() const {
        const std::string   key    = ".lilicorr_top_k";
        const gguf_tensor * hidden = file_.find_tensor("lilicorr_hidden.weight");
        refuse_key_if((hidden != nullptr) != (find(key) != nullptr), key,
            "must be given together with the tensors 'lilicorr_*'; convert the drafter again");
        if (!hidden) {
            return;
        }
        refuse_tensor_if(has("layer_fusion.weight"), "layer_fusion.weight",
            "does not go with 'lilicorr_hidden.weight', which reads what fc makes");
        const gguf_value * first = scalar(".sample_from_anchor", gguf_type::boolean);
        refuse_key_if(first && first->integer() != 0, ".sample_from_anchor",
            "is true; the anchor of a LiliCorr drafter proposes nothing");
        const int64_t n_tokens = number(".selector_vocab_size", 1, n_vocab_, n_vocab_);
        const int64_t top_k    = number(key, 1, std::min(n_tokens, MAX_CANDIDATES));
        const int64_t n_head   = number(".lilicorr_head_count", 1, MAX_HEADS);
        const int64_t width    = (int64_t) hidden->ne[1];
        refuse_key_if(width % n_head != 0, ".lilicorr_head_count", "is ", n_head, "; it must divide the width ", width);
        check_real(".lilicorr_logit_scale", 1e-6, 1e6);
        check_real(".lilicorr_vector_epsilon", 9e-7, 0.5);   // llama.cpp keeps six decimals
        check_correlator_rows(width, top_k);
        const int64_t n_pos = std::max<int64_t>(block_size_, 2) - 1;   // without a block size: check_kind()
        check_floats("lilicorr_position_embd", width, n_pos);
        check_floats("lilicorr_distance_bias", 2 * n_pos + 1, n_head);
        check_floats("lilicorr_same_bias", n_head, 1);
        const int64_t n_layer = number(".lilicorr_block_count", 1, MAX_CORRELATOR);
        for (int64_t i = 0; i < n_layer; ++i) {
            check_correlator_layer("lilicorr_blk." + std::to_string(i) + ".", width);
        }
        check_correlator_factors(width);
    }

    // The layers that turn each candidate into a row.
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

    // The projections from rows to the vectors that are compared.
    void check_correlator_factors(int64_t width) const {
        check_affine("lilicorr_context", n_embd_, width);
        check_floats("lilicorr_output_norm.weight", width, 1);
        check_floats("lilicorr_context_norm.weight", width, 1);
        check_affine("lilicorr_factor", width, width);
        check_shape("lilicorr_factor_context.weight", width, width);
        check_shape("lilicorr_factor_product.weight", width, width);
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

    // DSpark: two tables of the same rank, and a head that rates a position by its hidden state and the previous token.
    void check_markov() const {
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
        check_shape(prev->name, rank, n_vocab_);
        check_shape(next->name, rank, n_draft);
        if (conf) {
            check_shape(conf->name, n_embd_ + rank, 1);
            if (!one_of(ggml_type_find(conf->type)->name, { "f32", "f16", "bf16" })) {   // the graph splits it
                fail_tensor("conf_proj.weight", "must be f32, f16 or bf16");
            }
        }
        if (const gguf_tensor * bias = file_.find_tensor("conf_proj.bias"); bias) {
            refuse_tensor_if(!conf, "conf_proj.bias", "comes without conf_proj.weight; convert the drafter again");
            check_shape(bias->name, 1, 1);
        }
        refuse_tensor_if(has("markov_w2.scale"), "markov_w2.scale",
            "belongs to NVFP4 weights; convert the drafter with --outtype q8_0 or f16");
    }

    // ---- tensors ----

    const gguf_tensor & need(const std::string & name) const {
        refuse_tensor_if(!has(name), name, "is missing; convert the drafter again");
        return *file_.find_tensor(name);
    }

    void check_shape(const std::string & name, int64_t ne0, int64_t ne1, int64_t ne2 = 1) const {
        const gguf_tensor & t    = need(name);
        const auto          text = [](auto a, auto b, auto c) {
            return std::to_string(a) + " x " + std::to_string(b) + (c == 1 ? "" : " x " + std::to_string(c));
        };
        const bool fits =
            t.ne[0] == (uint64_t) ne0 && t.ne[1] == (uint64_t) ne1 && t.ne[2] == (uint64_t) ne2 && t.ne[3] == 1;
        refuse_tensor_if(!fits, name, "must be ", text(ne0, ne1, ne2), ", and is ", text(t.ne[0], t.ne[1], t.ne[2]));
    }

    // A matrix and what is added to its products.
    void check_affine(const std::string & name, int64_t n_in, int64_t n_out) const {
        check_shape(name + ".weight", n_in, n_out);
        check_floats(name + ".bias", n_out, 1);
    }

    // What is used element by element.
    void check_floats(const std::string & name, int64_t ne0, int64_t ne1) const {
        check_shape(name, ne0, ne1);
        check_f32(name);
    }
};

}   // namespace

void check_drafter(const gguf_file & file) { drafter_check(file).run(); }

}   // namespace dflash
