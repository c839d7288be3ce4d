// How large a drafter's graph gets: most_tensors() is enough for every kind, however many slots.

#include "draft/kv_ring.h"
#include "draft/layers.h"
#include "draft/selector.h"

#include "check.h"

#include "ggml-cpp.h"
#include "ggml-impl.h"

#include <initializer_list>
#include <memory>
#include <vector>

using namespace dflash;

namespace {

constexpr int32_t N_LAYERS = 12, N_EMBD = 64, N_HEAD = 4, N_HEAD_KV = 2, HEAD_DIM = 16, N_VOCAB = 128, BLOCK = 64;
constexpr int32_t KERNEL = 64, GROUP = 16, SPAN = 256, TOP_K = 8;

// A model with everything that a file of this kind may have.
class whole_model {
  public:
    drafter_model model = {};

    whole_model(drafter_kind::kind_id kind, bool by_layer) {
        ctx_.reset(ggml_init({ 1024 * ggml_tensor_overhead(), nullptr, true }));
        set_numbers(kind);
        set_shared(by_layer);
        for (int32_t il = 0; il < N_LAYERS; ++il) {
            add_layer(il, by_layer);
        }
        switch (kind) {
            case drafter_kind::DFLASH2: add_selector(); break;
            case drafter_kind::DSPARK: add_markov(); break;
            case drafter_kind::DOMINO: add_domino(); break;
            case drafter_kind::LILICORR: add_correlator(); break;
            default: break;
        }
        buffer_.reset(ggml_backend_alloc_ctx_tensors_from_buft(ctx_.get(), ggml_backend_cpu_buffer_type()));
        ggml_backend_buffer_clear(buffer_.get(), 0);
    }

  private:
    ggml_tensor * floats(int64_t ne0, int64_t ne1 = 1, int64_t ne2 = 1) {
        return ggml_new_tensor_3d(ctx_.get(), GGML_TYPE_F32, ne0, ne1, ne2);
    }
    affine matrix(int64_t n_in, int64_t n_out) { return { floats(n_in, n_out), floats(n_out) }; }

    void set_numbers(drafter_kind::kind_id kind) {
        model.kind         = &DRAFTER_KINDS[kind];
        model.anchor_first = model.kind->anchor_first;
        model.n_embd       = N_EMBD;
        model.n_head       = N_HEAD;
        model.n_head_kv    = N_HEAD_KV;
        model.head_dim     = HEAD_DIM;
        model.n_vocab = model.n_candidates = N_VOCAB;
        model.block_size                   = BLOCK;
        model.n_swa                        = SPAN;
        model.rope_type                    = LLAMA_ROPE_TYPE_NEOX;
        model.n_rot                        = HEAD_DIM;
        model.rope_base                    = 1e4f;
        model.tap_rope_base                = 1e6f;
        model.embedding_scale = model.value_scale = model.logit_scale = model.logit_softcap = 2.0f;
        if (kind == drafter_kind::DFLASH2 || kind == drafter_kind::LILICORR) {
            model.conv_kernel = KERNEL;
            model.conv_group  = GROUP;
        }
    }

    void set_shared(bool by_layer) {
        model.target_layers = { 1, 2, 3 };
        model.fc            = by_layer ? nullptr : ggml_new_tensor_2d(ctx_.get(), GGML_TYPE_F16, 3 * N_EMBD, N_EMBD);
        model.layer_fusion  = by_layer ? floats(3, N_LAYERS) : nullptr;
        model.enc_norm = model.out_norm = floats(N_EMBD);
        model.mask_embd                 = floats(N_EMBD);
        model.tok_embd                  = floats(N_EMBD, N_VOCAB);
        model.output                    = floats(N_EMBD, N_VOCAB + 32);   // padding
        model.rope_freqs                = floats(HEAD_DIM / 2);
        if (model.kind->reduced_head || model.kind->head_in_part) {
            model.target_ids = ggml_new_tensor_2d(ctx_.get(), GGML_TYPE_I32, 1, N_VOCAB);
        }
    }

    void add_layer(int32_t il, bool by_layer) {
        constexpr int64_t Q = N_HEAD * HEAD_DIM, KV = N_HEAD_KV * HEAD_DIM;
        drafter_layer &   to = model.layers.emplace_back();
        to                   = {};
        to.attn_norm = to.attn_post_norm = to.ffn_norm = to.ffn_post_norm = floats(N_EMBD);
        to.q_norm = to.k_norm = floats(HEAD_DIM);
        to.wq                 = floats(N_EMBD, Q);
        to.wk                 = floats(N_EMBD, KV);
        to.wv                 = floats(N_EMBD, KV);
        to.wo                 = floats(Q, N_EMBD);
        to.bq                 = floats(Q);
        to.bk                 = floats(KV);
        to.bv                 = floats(KV);
        to.bo                 = floats(N_EMBD);
        if (by_layer) {
            to.wk_ctx = floats(N_EMBD, KV);
            to.wv_ctx = floats(N_EMBD, KV);
            to.bk_ctx = floats(KV);
            to.bv_ctx = floats(KV);
        }
        to.attn_sinks = floats(N_HEAD);
        to.ffn_gate   = floats(N_EMBD, N_EMBD);
        to.ffn_up     = floats(N_EMBD, N_EMBD);
        to.ffn_down   = floats(N_EMBD, N_EMBD);
        to.out_scale  = floats(1);
        to.swa        = il % 2 == 1;
        if (model.conv_kernel > 0) {
            to.attn_conv_base = floats(N_EMBD, KERNEL, 2);
            to.ffn_conv_base  = floats(N_EMBD, KERNEL, 2);
            to.attn_conv_proj = floats(N_EMBD, 2 * KERNEL * N_EMBD / GROUP);
            to.ffn_conv_proj  = floats(N_EMBD, 2 * KERNEL * N_EMBD / GROUP);
        }
    }

    void add_selector() {
        model.selector_rank   = 16;
        model.selector_top_k  = TOP_K;
        model.selector_prev   = floats(16, N_VOCAB);
        model.selector_next   = floats(16, N_VOCAB);
        model.selector_hidden = floats(N_EMBD, 16);
    }

    void add_markov() {
        model.markov_rank     = 16;
        model.markov_prev     = floats(16, N_VOCAB);
        model.markov_next     = floats(16, N_VOCAB);
        model.confidence      = floats(N_EMBD + 16);
        model.confidence_bias = floats(1);
    }

    void add_domino() {
        model.domino_prefix = 1;
        model.domino_ih     = floats(N_EMBD, 3 * 16);
        model.domino_hh     = floats(16, 3 * 16);
        model.domino_hidden = floats(N_EMBD, 32);
        model.domino_state  = floats(16, 32);
        model.domino_out    = floats(32, N_VOCAB);
    }

    void add_correlator() {
        constexpr int64_t WIDTH = 32;
        correlator &      to    = model.lilicorr;
        to.top_k                = TOP_K;
        to.n_head               = N_HEAD;
        to.scale = to.epsilon = 1.0f;
        to.token = to.hidden = to.context = matrix(N_EMBD, WIDTH);
        to.feature_norm                   = { floats(5), floats(5) };
        to.feature_up                     = matrix(5, WIDTH);
        to.feature_down = to.factor = to.out = to.in = to.start = matrix(WIDTH, WIDTH);
        to.position_embd                                        = floats(WIDTH, BLOCK - 1);
        to.rank_embd                                            = floats(WIDTH, TOP_K);
        to.distance_bias                                        = floats(2 * BLOCK - 1, N_HEAD);
        to.same_bias                                            = floats(N_HEAD);
        to.output_norm = to.context_norm = floats(WIDTH);
        to.factor_context = to.factor_product = floats(WIDTH, WIDTH);
        for (int32_t il = 0; il < 16; ++il) {
            to.layers.push_back({ floats(WIDTH), matrix(WIDTH, 3 * WIDTH), matrix(WIDTH, WIDTH), floats(WIDTH),
                matrix(WIDTH, WIDTH), matrix(WIDTH, WIDTH) });
        }
    }

    ggml_context_ptr        ctx_;
    ggml_backend_buffer_ptr buffer_;
};

// The largest shape: whole blocks for all slots.
graph_shape shape_of(const drafter_model & model, int32_t n_slots) {
    graph_shape shape;
    shape.n_inject     = 8;
    shape.n_block_rows = model.n_rows(model.max_length());
    shape.first        = model.anchor_first ? 0 : 1;
    shape.n_pos        = model.max_length() - 1;
    shape.probe        = true;
    for (int32_t slot = 0; slot < n_slots; ++slot) {
        shape.slots.push_back(slot);
        shape.spans.push_back(SPAN);
    }
    return shape;
}

// As block_drafter::build() does.
void build(draft_graph & graph, const drafter_model & model, int32_t n_slots, bool flash_attn) {
    const kv_ring                   kv(model, n_slots, SPAN, GGML_TYPE_F16, GGML_TYPE_F16, false, 0);
    const std::unique_ptr<selector> chooses = make_selector(model, n_slots);

    layer_builder builder(graph, model, kv, flash_attn);
    ggml_tensor * taps = builder.tap_rows(nullptr);
    chooses->keep(graph, taps);
    ggml_tensor * block = builder.block_rows();
    for (size_t il = 0; il < model.layers.size(); ++il) {
        block = builder.layer(il, taps, block);
    }
    const graph_shape & shape  = graph.shape;
    ggml_tensor *       hidden = builder.hidden(block);
    hidden                     = rows_of_blocks(graph, hidden, shape.n_block_rows, 0, shape.n_head());
    ggml_tensor * logits       = builder.logits(hidden);
    chooses->build(graph, hidden, logits);
}

void check_size(drafter_kind::kind_id kind, bool by_layer, int32_t n_slots, bool flash_attn) {
    const whole_model whole(kind, by_layer);
    const size_t      most = most_tensors(whole.model, n_slots);
    draft_graph       graph(shape_of(whole.model, n_slots), 1 << 17);
    graph.transfers = { true, true, true };
    build(graph, whole.model, n_slots, flash_attn);
    size_t n_created = 0;
    for (ggml_tensor * t = ggml_get_first_tensor(graph.ctx.get()); t; t = ggml_get_next_tensor(graph.ctx.get(), t)) {
        ++n_created;
    }
    const size_t n_in_graph = (size_t) graph.gf->n_nodes + (size_t) graph.gf->n_leafs;
    if (n_created > most || n_in_graph > most) {
        std::printf("%s, %d slots, flash attention %d: %zu created, %zu in the graph, at most %zu\n",
            whole.model.kind->name, n_slots, flash_attn, n_created, n_in_graph, most);
        CHECK(false);
    }
}

}   // namespace

int main() {
    for (const drafter_kind::kind_id kind : { drafter_kind::DFLASH, drafter_kind::DFLASH2, drafter_kind::DSPARK,
             drafter_kind::DOMINO, drafter_kind::LILICORR }) {
        for (const int32_t n_slots : { 1, 64 }) {
            for (const bool flash_attn : { false, true }) {
                check_size(kind, false, n_slots, flash_attn);
                if (kind == drafter_kind::DFLASH) {
                    check_size(kind, true, n_slots, flash_attn);
                }
            }
        }
    }
    return TEST_RESULT;
}
