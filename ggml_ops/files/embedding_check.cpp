// The rules for files that give embeddings and scores: their tokenizer, pooling, and encoders.

#include "files/charsmap.h"
#include "files/header_check.h"

#include <cstdio>
#include <limits>
#include <set>

namespace dflash {

namespace {

class embedding_check : header_check {
  public:
    explicit embedding_check(const gguf_file & file) : header_check(file) {}

    void run() const {
        check_words();
        check_pooling();
        if (is_encoder()) {
            check_encoder();
        }
    }

  private:
    // ---- embeddings (build_pooling() and build_dense_out() in src/llama-graph.cpp) ----

    void check_pooling() const {
        number(".classifier.pooling_type", 0, 4, 0);
        const std::string  key    = ".classifier.output_labels";
        const gguf_value * labels = find(key);
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
        const int64_t       n_out = number(".embedding_length_out", 0, MAX_FF, n_embd_);
        const gguf_tensor * dense = file_.find_tensor("dense_2.weight");
        refuse_key_if(n_out != n_embd_ && (!dense || dense->ne[1] != (uint64_t) n_out), ".embedding_length_out", "is ",
            n_out, ", and embedding_length ", n_embd_, "; they must be the same");
        if (is({ "gemma3", "gemma-embedding" })) {
            check_dense();
        }
    }

    // The tokenizer is not guarded there, so it must be able to split any text.
    void check_words() const {
        const std::string & model = find("tokenizer.ggml.model")->text;
        check_text("tokenizer.ggml.model", { "bert", "gpt2", "llama", "t5" });
        const bool words = model == "bert";
        check_special("bos", words ? 101 : model == "gpt2" ? 11 : model == "llama" ? 1 : -1, words, model != "t5");
        check_special("eos", words ? -1 : model == "gpt2" ? 11 : model == "llama" ? 2 : 1, false, model == "t5");
        check_special("seperator", words ? 102 : -1, words, false);
        if (model == "llama") {
            check_byte_tokens();
        }
        const std::string  key   = "tokenizer.ggml.precompiled_charsmap";
        const gguf_value * table = find(key);
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
        const std::vector<uint64_t> & hashes = find("tokenizer.ggml.tokens")->hashes;
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
            const int64_t n = number(suffix, 0, MAX_FF, expected);
            refuse_key_if(n != expected, suffix, "is ", n, "; it must be ", expected);
        };
        const bool first = has("dense_2.weight");
        refuse_tensor_if(first != has("dense_3.weight"), first ? "dense_3.weight" : "dense_2.weight",
            "is missing; convert the model again");
        if (first) {
            width(".dense_2_feat_in", n_embd_);
            width(".dense_3_feat_in", number(".dense_2_feat_out", 1, MAX_FF));
            width(".dense_3_feat_out", n_embd_);
        }
    }

    // ---- encoders (src/models/bert.cpp and others) ----

    void check_encoder() const {
        const bool own_width = is({ "gemma-embedding" });
        for (const int64_t heads : per_layer(".attention.head_count", 1, MAX_HEADS, 0)) {
            refuse_key_if(!own_width && heads * head_size_k_ != n_embd_, ".attention.head_count", "is ", heads,
                "; times the head size ", head_size_k_, " it must be the embedding length, ", n_embd_);
        }
        if (is({ "modern-bert" })) {   // its loader gives K and V the width of Q
            for (const int64_t heads : per_layer(".attention.head_count_kv", 1, MAX_HEADS, n_embd_ / head_size_k_)) {
                refuse_key_if(
                    heads * head_size_k_ != n_embd_, ".attention.head_count_kv", "must be attention.head_count");
            }
        }
        number(".moe_every_n_layers", 0, MAX_LAYERS, 0);
        check_windows();
        check_f32("token_types.weight");   // its first row is added to every token
        const int64_t n_ff = per_layer(".feed_forward_length", 0, MAX_FF, 0)[0];
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
        if (!gemma && (!is({ "modern-bert" }) || number(".attention.sliding_window", 0, MAX_WINDOW, 0) == 0)) {
            return;
        }
        const std::string    key   = ".attention.sliding_window_pattern";
        const gguf_value *   value = find(key);
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
};

}   // namespace

void check_embedding(const gguf_file & file) { embedding_check(file).run(); }

}   // namespace dflash
