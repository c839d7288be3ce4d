#include "llama/mask_words.h"

#include "llama-cparams.h"
#include "llama-graph.h"
#include "llama/devices.h"
#include "llama/host_input.h"

#include "ggml-cpp.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>

namespace dflash {

// ---- any graph ----

mask_inputs new_mask_inputs(ggml_context * ctx, int64_t n_kv, int64_t rows) {
    mask_inputs inputs;
    inputs.words  = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, n_kv / WORD_CELLS, rows);
    inputs.powers = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, WORD_CELLS, 2);
    ggml_set_input(inputs.words);
    ggml_set_input(inputs.powers);
    return inputs;
}

ggml_tensor * unpack_mask(
    ggml_context * ctx, const mask_inputs & inputs, ggml_type type, std::vector<ggml_tensor *> * nodes) {
    constexpr float LARGE   = 1e30f;   // its square is infinity
    const int64_t   n_words = inputs.words->ne[0], rows = inputs.words->ne[1];
    const auto      add = [nodes](ggml_tensor * node) {
        if (nodes) {
            nodes->push_back(node);
        }
        return node;
    };
    const auto power = [&](int64_t i) {
        return ggml_view_1d(ctx, inputs.powers, WORD_CELLS, i * inputs.powers->nb[1]);
    };
    // bit i of w: floor(w / 2^i) - 2 floor(w / 2^(i + 1))
    ggml_tensor * words = ggml_reshape_2d(ctx, inputs.words, 1, n_words * rows);
    words               = add(ggml_repeat_4d(ctx, words, WORD_CELLS, n_words * rows, 1, 1));
    ggml_tensor * upper = add(ggml_floor(ctx, add(ggml_mul(ctx, words, power(0)))));
    ggml_tensor * above = add(ggml_floor(ctx, add(ggml_mul(ctx, words, power(1)))));
    ggml_tensor * bits  = add(ggml_sub(ctx, upper, add(ggml_scale(ctx, above, 2.0f))));
    ggml_tensor * mask  = add(ggml_scale(ctx, add(ggml_scale(ctx, bits, -LARGE)), LARGE));
    mask                = ggml_reshape_2d(ctx, mask, n_words * WORD_CELLS, rows);
    return type == GGML_TYPE_F32 ? mask : add(ggml_cast(ctx, mask, type));
}

bool can_unpack_masks(ggml_backend_dev_t device) {
    const ggml_context_ptr     ctx(ggml_init({ 32 * ggml_tensor_overhead(), nullptr, true }));
    std::vector<ggml_tensor *> nodes;
    mask_inputs                inputs = new_mask_inputs(ctx.get(), 256, 16);
    ggml_tensor *              ids    = ggml_new_tensor_1d(ctx.get(), GGML_TYPE_I64, 16);
    ggml_tensor *              values = ggml_new_tensor_2d(ctx.get(), GGML_TYPE_F32, 1, 16);
    nodes.push_back(ggml_set_rows(ctx.get(), ggml_reshape_2d(ctx.get(), inputs.words, 1, 256), values, ids));
    unpack_mask(ctx.get(), inputs, GGML_TYPE_F16, &nodes);
    for (const ggml_tensor * node : nodes) {
        if (!ggml_backend_dev_supports_op(device, node)) {
            return false;
        }
    }
    return true;
}

namespace {

template <class T> void pack(const T * mask, std::vector<float> & words) {
    const T zero = {};
    for (float & word : words) {
        uint32_t hidden = 0;
        for (int32_t i = 0; i < WORD_CELLS; ++i) {
            hidden |= (uint32_t) (mask[i] != zero) << i;
        }
        word = (float) hidden;
        mask += WORD_CELLS;
    }
}

std::vector<float> pack_mask(ggml_type type, const void * mask, int64_t n_words) {
    std::vector<float> words(n_words);
    if (type == GGML_TYPE_F16) {
        pack((const ggml_fp16_t *) mask, words);
    } else {
        pack((const float *) mask, words);
    }
    return words;
}

template <class T> void upload(ggml_tensor * tensor, const std::vector<T> & data) {
    ggml_backend_tensor_set(tensor, data.data(), 0, ggml_nbytes(tensor));
}

void set_powers(const mask_inputs & inputs) {
    std::vector<float> powers;
    for (const float scale : { 1.0f, 0.5f }) {
        for (int32_t i = 0; i < WORD_CELLS; ++i) {
            powers.push_back(std::ldexp(scale, -i));
        }
    }
    upload(inputs.powers, powers);
}

}   // namespace

void set_mask(const mask_inputs & inputs, ggml_type type, const void * mask) {
    upload(inputs.words, pack_mask(type, mask, ggml_nelements(inputs.words)));
    set_powers(inputs);
}

// ---- targets' graphs ----

namespace {

// A mask of the graph, filled on the host as usual, and the words that are sent to devices instead. These are the words
// of each row; or, if that is less, the words of one row per sequence and the differences of the other rows. Without a
// window, rows of a sequence differ only in cells of this pass.
class input_mask_words : public llm_graph_input_i {
  public:
    input_mask_words(ggml_context * ctx, ggml_tensor * mask, int64_t n_seqs, bool has_window) :
        mask(mask), n_rows_(ggml_nrows(mask)), n_words_(mask->ne[0] / WORD_CELLS), n_seqs_(n_seqs), filled_(mask) {
        const int64_t shared_bytes = 4 * n_seqs * n_words_ + 12 * n_rows_ * n_rows_;
        inputs_                    = new_mask_inputs(ctx, mask->ne[0], n_rows_);
        if (!has_window && shared_bytes < 4 * n_rows_ * n_words_) {
            shared_ = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, n_words_, n_seqs);
            seqs_   = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, n_rows_);
            values_ = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 1, n_rows_ * n_rows_);
            places_ = ggml_new_tensor_1d(ctx, GGML_TYPE_I64, n_rows_ * n_rows_);
            for (ggml_tensor * tensor : { shared_, seqs_, values_, places_ }) {
                ggml_set_input(tensor);
            }
        }
    }

    // Unpacks the mask on one device. nodes: as in unpack_mask().
    ggml_tensor * unpack(ggml_context * ctx, std::vector<ggml_tensor *> & nodes) const {
        mask_inputs inputs = inputs_;
        if (shared_) {
            nodes.push_back(ggml_get_rows(ctx, shared_, seqs_));
            ggml_tensor * words = ggml_reshape_2d(ctx, nodes.back(), 1, n_words_ * n_rows_);
            nodes.push_back(ggml_set_rows(ctx, words, values_, places_));
            inputs.words = ggml_reshape_2d(ctx, nodes.back(), n_words_, n_rows_);
        }
        ggml_tensor * unpacked = unpack_mask(ctx, inputs, mask->type, &nodes);
        return ggml_reshape_4d(ctx, unpacked, mask->ne[0], mask->ne[1], mask->ne[2], mask->ne[3]);
    }

    void set_input(const llama_ubatch * ubatch) override {
        const std::vector<float> words = pack_mask(mask->type, mask->data, n_words_ * n_rows_);
        set_powers(inputs_);
        if (shared_) {
            set_shared(words, *ubatch);
        } else {
            upload(inputs_.words, words);
        }
    }
    // the code that fills the mask compares its shape; the number of sequences belongs to the graph
    bool can_reuse(const llm_graph_params &) override { return true; }

    ggml_tensor *                               mask;
    std::map<ggml_backend_dev_t, ggml_tensor *> unpacked;

  private:
    void set_shared(const std::vector<float> & words, const llama_ubatch & ubatch) {
        std::vector<llama_seq_id> seqs;
        std::vector<float>        shared, values;
        std::vector<int32_t>      seq_of;
        std::vector<int64_t>      places;
        for (int64_t row = 0; row < n_rows_; ++row) {
            const float * own  = words.data() + row * n_words_;
            const auto    same = std::find(seqs.begin(), seqs.end(), ubatch.seq_id[row][0]);
            seq_of.push_back((int32_t) (same - seqs.begin()));
            if (same == seqs.end()) {
                seqs.push_back(ubatch.seq_id[row][0]);
                shared.insert(shared.end(), own, own + n_words_);
            }
            const float * base = shared.data() + seq_of.back() * n_words_;
            for (int64_t i = 0; i < n_words_; ++i) {
                if (own[i] != base[i]) {
                    places.push_back(row * n_words_ + i);
                    values.push_back(own[i]);
                }
            }
        }
        if ((int64_t) seqs.size() > n_seqs_ || (int64_t) places.size() > places_->ne[0]) {
            throw std::runtime_error("rows of one sequence see more than the cells of a pass differently");
        }
        shared.resize(n_seqs_ * n_words_);
        values.resize(places_->ne[0], words[0]);   // padding rewrites the first word
        places.resize(places_->ne[0], 0);
        upload(shared_, shared);
        upload(seqs_, seq_of);
        upload(values_, values);
        upload(places_, places);
    }

    int64_t       n_rows_, n_words_, n_seqs_;
    host_input    filled_;
    mask_inputs   inputs_;
    ggml_tensor * shared_ = nullptr;   // F32 [n_words, sequences]; null: inputs_.words has the words of each row
    ggml_tensor * seqs_   = nullptr;   // I32 [rows]
    ggml_tensor * values_ = nullptr;   // F32 [1, rows * rows]: words that differ
    ggml_tensor * places_ = nullptr;   // I64 [rows * rows]: their indices
};

input_mask_words & words_of(const llm_graph_context & graph, ggml_tensor * mask, int il) {
    for (const auto & input : graph.res->inputs) {
        auto * words = dynamic_cast<input_mask_words *>(input.get());
        if (words && words->mask == mask) {
            return *words;
        }
    }
    const bool has_window = graph.hparams.swa_type != LLAMA_SWA_TYPE_NONE && graph.hparams.is_swa(il);
    return *(input_mask_words *) graph.res->add_input(
        std::make_unique<input_mask_words>(graph.ctx0, mask, graph.ubatch.n_seqs_unq, has_window));
}

// Null: the host.
ggml_backend_dev_t device_of_cache(const ggml_tensor * k) {
    const ggml_tensor * root = k->view_src ? k->view_src : k;
    return root->buffer && !ggml_backend_buffer_is_host(root->buffer) ? device_of(root) : nullptr;
}

ggml_backend_t backend_of(ggml_backend_sched_t sched, ggml_backend_dev_t device) {
    for (int i = 0; i < ggml_backend_sched_get_n_backends(sched); ++i) {
        ggml_backend_t backend = ggml_backend_sched_get_backend(sched, i);
        if (ggml_backend_get_device(backend) == device) {
            return backend;
        }
    }
    return nullptr;
}

bool is_packable(const llm_graph_context & graph, const ggml_tensor * mask) {
    const bool is_input = mask && mask->op == GGML_OP_NONE && (mask->flags & GGML_TENSOR_FLAG_INPUT);
    return graph.cparams.pack_masks && is_input && !graph.hparams.use_alibi && mask->ne[0] % WORD_CELLS == 0 &&
           ggml_nrows(mask) <= FEW_ROWS;
}

}   // namespace

ggml_tensor * mask_of_layer(const llm_graph_context & graph, ggml_tensor * mask, const ggml_tensor * k, int il) {
    ggml_backend_dev_t device  = is_packable(graph, mask) ? device_of_cache(k) : nullptr;
    ggml_backend_t     backend = device ? backend_of(graph.sched, device) : nullptr;
    if (!backend) {
        return mask;
    }
    input_mask_words & words    = words_of(graph, mask, il);
    ggml_tensor *&     unpacked = words.unpacked[device];
    if (!unpacked) {
        std::vector<ggml_tensor *> nodes;
        unpacked = words.unpack(graph.ctx0, nodes);
        for (ggml_tensor * node : nodes) {
            ggml_backend_sched_set_tensor_backend(graph.sched, node, backend);
        }
    }
    return unpacked;
}

}   // namespace dflash
