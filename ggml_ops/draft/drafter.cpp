#include "draft/drafter.h"

#include "base/abort_guard.h"

#include "ggml-alloc.h"
#include "ggml-cpp.h"
#include "ggml.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <stdexcept>
#include <string>

namespace dflash {

namespace {

constexpr int32_t MARGINALS     = 8;     // candidates per position kept of a DFlash drafter's marginals
constexpr int32_t KV_GRANULE    = 256;   // attention spans are multiples of this, so that graphs are reused
constexpr size_t  GRAPHS_CACHED = 4;
constexpr size_t  MAX_NODES     = 8192;

int32_t pad(int32_t x, int32_t n) { return (x + n - 1) / n * n; }

// Rows injected per pass come in a few sizes, so that graphs are reused.
int32_t inject_bucket(int32_t n) {
    for (int32_t b : { 0, 4, 8, 12, 16, 24, 32, 48, 64, 128, 256 }) {
        if (n <= b) {
            return b;
        }
    }
    return pad(n, 256);
}

}   // namespace

// ---- K/V memory ----

struct drafter::memory {
    std::vector<ggml_context_ptr>        contexts;
    std::vector<ggml_backend_buffer_ptr> buffers;
    std::vector<ggml_tensor *>           k, v;   // per layer [n_head_kv * head_dim, n_cells * n_slots]

    memory(const drafter_weights & w, const drafter_params & p, int64_t n_cells) {
        // Each layer's cells live on the device of its weights.
        std::map<ggml_backend_buffer_type_t, ggml_context *> by_type;
        for (const drafter_layer & layer : w.layers) {
            ggml_backend_dev_t dev = ggml_backend_buft_get_device(ggml_backend_buffer_get_type(layer.wk->buffer));
            if (!dev || ggml_backend_buffer_is_host(layer.wk->buffer)) {
                dev = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
            }
            const auto type = ggml_backend_dev_buffer_type(dev);
            if (!by_type.count(type)) {
                ggml_init_params ip = { 2 * w.layers.size() * ggml_tensor_overhead(), nullptr, true };
                contexts.emplace_back(ggml_init(ip));
                by_type[type] = contexts.back().get();
            }
            k.push_back(ggml_new_tensor_2d(by_type[type], p.type_k, w.n_head_kv * w.head_dim, n_cells * p.n_slots));
            v.push_back(ggml_new_tensor_2d(by_type[type], p.type_v, w.n_head_kv * w.head_dim, n_cells * p.n_slots));
        }
        for (const auto & [type, ctx] : by_type) {
            buffers.emplace_back(ggml_backend_alloc_ctx_tensors_from_buft(ctx, type));
            if (!buffers.back()) {
                throw std::runtime_error("not enough memory for the drafter's context: lower --draft-ctx or -np");
            }
            ggml_backend_buffer_clear(
                buffers.back().get(), 0);   // masked cells are still multiplied by 0: keep them finite
        }
    }
};

// ---- shapes and graphs ----

// What a graph depends on.
struct drafter::shape {
    int32_t              n_inject = 0;   // rows, a bucket
    int32_t              length   = 0;   // block tokens per slot, 0 = inject only
    bool                 probe    = false;
    std::vector<int32_t> slots;   // slots that denoise
    std::vector<int32_t> spans;   // their attention spans in cells

    bool operator==(const shape & o) const {
        return n_inject == o.n_inject && length == o.length && probe == o.probe && slots == o.slots && spans == o.spans;
    }
    int32_t n_block() const { return length * (int32_t) slots.size(); }
};

struct drafter::graph {
    shape                  s;
    ggml_context_ptr       ctx;
    ggml_backend_sched_ptr sched;
    ggml_cgraph *          gf = nullptr;
    // inputs
    ggml_tensor *              taps = nullptr, *tokens = nullptr, *anchors = nullptr;
    ggml_tensor *              pos_kv = nullptr, *pos_q = nullptr, *cells = nullptr;
    std::vector<ggml_tensor *> masks, masks_swa;   // per slot [span, length]
    // outputs
    ggml_tensor *ids = nullptr, *probs = nullptr, *scores = nullptr, *hidden = nullptr, *logits = nullptr;
};

// ---- construction ----

drafter::drafter(const llama_model * model, const llama_model * target, const drafter_params & params) :
    w_(access_drafter(model)), p_(params) {
    const target_heads heads  = access_heads(target);
    const int32_t      n_embd = llama_model_n_embd(target);
    if (w_.n_embd != n_embd) {
        throw std::runtime_error("dflash.embedding_length is " + std::to_string(w_.n_embd) + ", the target's is " +
                                 std::to_string(n_embd) + ": use the drafter that was trained for this target");
    }
    if (w_.block_size < 2 || w_.block_size > 64) {
        throw std::runtime_error("dflash.block_size is " + std::to_string(w_.block_size) + ", must be 2..64");
    }
    const int32_t n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(target));
    if (w_.n_vocab != n_vocab) {
        throw std::runtime_error("the drafter's vocabulary has " + std::to_string(w_.n_vocab) +
                                 " tokens, the target's " + std::to_string(n_vocab) +
                                 ": convert the drafter with this target");
    }
    for (const int32_t layer : w_.target_layers) {
        if (!access_has_tap(target, layer)) {
            throw std::runtime_error("dflash.target_layers has " + std::to_string(layer) + ", which the target (" +
                                     access_arch(target) + ", " + std::to_string(llama_model_n_layer(target)) +
                                     " layers) does not offer as a tap");
        }
    }
    if (w_.target_layers.empty()) {
        throw std::runtime_error("dflash.target_layers is empty: convert the drafter again");
    }
    if (!w_.tok_embd) {
        w_.tok_embd = heads.tok_embd;
    }
    if (!w_.output) {
        if (heads.scaled_output) {
            throw std::runtime_error("the target's output projection is NVFP4, which a drafter cannot share");
        }
        w_.output = heads.output;
    }
    if (!w_.tok_embd || !w_.output) {
        throw std::runtime_error("neither the drafter nor the target has token embeddings and an output projection");
    }
    if (w_.output->ne[0] != n_embd || w_.tok_embd->ne[0] != n_embd) {
        throw std::runtime_error("the output projection's width differs from dflash.embedding_length");
    }
    if (w_.d2t) {
        d2t_.resize(w_.d2t->ne[0]);
        ggml_backend_tensor_get(w_.d2t, d2t_.data(), 0, ggml_nbytes(w_.d2t));
        for (const int64_t id : d2t_) {
            if (id < 0 || id >= n_vocab) {
                throw std::runtime_error("d2t maps to token " + std::to_string(id) + ", outside the vocabulary");
            }
        }
    }
    mask_ = llama_vocab_mask(llama_model_get_vocab(model));
    if (mask_ < 0 || mask_ >= n_vocab) {
        throw std::runtime_error(
            "tokenizer.ggml.mask_token_id is missing or outside the vocabulary: convert the drafter again");
    }
    top_k_ = lattice() ? w_.selector_top_k : std::min<int32_t>(MARGINALS, (int32_t) w_.output->ne[1]);
    if (top_k_ > w_.output->ne[1]) {
        throw std::runtime_error("dflash.selector_top_k exceeds the vocabulary");
    }

    first_   = w_.block_size + 1;
    n_cells_ = pad(first_ + p_.n_ctx, KV_GRANULE);
    rings_.resize(p_.n_slots);

    // The devices of both models, because embeddings and head may be the target's; CPU last, as the scheduler wants it.
    std::vector<ggml_backend_dev_t> devices = access_devices(model);
    for (ggml_backend_dev_t d : access_devices(target)) {
        if (std::find(devices.begin(), devices.end(), d) == devices.end()) {
            devices.push_back(d);
        }
    }
    devices.push_back(ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU));
    for (ggml_backend_dev_t d : devices) {
        ggml_backend_t b = d ? ggml_backend_dev_init(d, nullptr) : nullptr;
        if (!b) {
            throw std::runtime_error("a backend of the drafter could not be initialized");
        }
        backends_.push_back(b);
        using set_n_threads_t = void (*)(ggml_backend_t, int);
        if (auto f = (set_n_threads_t) ggml_backend_reg_get_proc_address(
                ggml_backend_dev_backend_reg(d), "ggml_backend_set_n_threads")) {
            f(b, p_.n_threads);
        }
    }
    kv_ = std::make_unique<memory>(w_, p_, n_cells_);
}

drafter::~drafter() {
    graphs_.clear();
    kv_.reset();
    for (ggml_backend_t b : backends_) {
        ggml_backend_free(b);
    }
}

size_t drafter::memory_bytes() const {
    size_t n = 0;
    for (const auto & b : kv_->buffers) {
        n += ggml_backend_buffer_get_size(b.get());
    }
    return n;
}

void drafter::rewind(int32_t slot, int32_t pos) {
    ring & r = rings_[slot];
    if (pos > r.end || pos <= r.begin) {
        r.begin = r.end = pos;
    } else {
        r.end = pos;
    }
}

// ---- the graph ----

namespace {

// GroupedDynamicCausalConv of package `dflash`: out[t] = sum_o (base[o] + dynamic[t, o]) * x[t - o] inside each block.
// x: [n_embd, rows]; dynamic: [2 * kernel * groups, rows]; base: [n_embd, kernel, 2]; side 0 before, 1 after the
// sublayer.
ggml_tensor * convolve(ggml_context * c, const drafter_weights & w, ggml_tensor * x, ggml_tensor * dynamic,
    ggml_tensor * base, int side, int64_t length) {
    const int64_t n_embd = w.n_embd, rows = x->ne[1], blocks = rows / length, group = w.conv_group,
                  groups = n_embd / group, kernel = w.conv_kernel;
    ggml_tensor * in  = ggml_reshape_3d(c, ggml_is_contiguous(x) ? x : ggml_cont(c, x), n_embd, length, blocks);
    ggml_tensor * out = nullptr;
    for (int64_t o = 0; o < std::min(kernel, length); ++o) {
        ggml_tensor * shifted = in;
        if (o > 0) {   // rows move down by o inside each block, zeros come in
            shifted = ggml_view_3d(c, in, n_embd, length - o, blocks, in->nb[1], in->nb[2], 0);
            shifted = ggml_pad_ext(c, shifted, 0, 0, (int) o, 0, 0, 0, 0, 0);
        }
        shifted = ggml_reshape_3d(c, shifted, group, groups, rows);
        // dynamic rows: [side][kernel][groups]
        ggml_tensor * d    = ggml_view_3d(c, dynamic, 1, groups, rows, dynamic->nb[0], dynamic->nb[1],
               (size_t) ((side * kernel + o) * groups) * dynamic->nb[0]);
        ggml_tensor * b    = ggml_view_3d(c, base, group, groups, 1, group * base->nb[0], base->nb[1],
               (size_t) side * base->nb[2] + (size_t) o * base->nb[1]);
        ggml_tensor * term = ggml_add(c, ggml_mul(c, shifted, b), ggml_mul(c, shifted, ggml_cont(c, d)));
        out                = out ? ggml_add(c, out, term) : term;
    }
    return ggml_reshape_2d(c, out, n_embd, rows);
}

}   // namespace

void drafter::build(graph & g) {
    const shape &    s  = g.s;
    ggml_init_params ip = { MAX_NODES * ggml_tensor_overhead() + ggml_graph_overhead_custom(MAX_NODES, false), nullptr,
        true };
    g.ctx.reset(ggml_init(ip));
    ggml_context * c = g.ctx.get();
    g.gf             = ggml_new_graph_custom(c, MAX_NODES, false);

    const int64_t hd = w_.head_dim, n_head = w_.n_head, n_kv = w_.n_head_kv;
    const int64_t n_inject = s.n_inject, n_block = s.n_block(), n_rows = n_inject + n_block,
                  n_slots = (int64_t) s.slots.size();
    const bool mrope      = w_.rope_type == LLAMA_ROPE_TYPE_MROPE;
    const auto input      = [&](ggml_tensor * t) {
        ggml_set_input(t);
        return t;
    };
    const auto norm = [&](ggml_tensor * x, ggml_tensor * weight) {
        return ggml_mul(c, ggml_rms_norm(c, x, w_.rms_eps), weight);
    };
    const auto rope = [&](ggml_tensor * x, ggml_tensor * pos) {
        return mrope ? ggml_rope_multi(c, x, pos, nullptr, w_.n_rot, w_.rope_sections, w_.rope_type, w_.n_ctx_orig,
                           w_.rope_base, w_.rope_scale, w_.ext_factor, w_.attn_factor, w_.beta_fast, w_.beta_slow)
                     : ggml_rope_ext(c, x, pos, w_.rope_freqs, w_.n_rot, w_.rope_type, w_.n_ctx_orig, w_.rope_base,
                           w_.rope_scale, w_.ext_factor, w_.attn_factor, w_.beta_fast, w_.beta_slow);
    };

    g.pos_kv = input(ggml_new_tensor_1d(c, GGML_TYPE_I32, n_rows * (mrope ? 4 : 1)));
    g.cells  = input(ggml_new_tensor_1d(c, GGML_TYPE_I64, n_rows));

    // inject: fc and norm once, K/V in every layer
    ggml_tensor * fused = nullptr;
    if (n_inject > 0) {
        g.taps = input(ggml_new_tensor_2d(c, GGML_TYPE_F32, tap_width(), n_inject));
        fused  = norm(ggml_mul_mat(c, w_.fc, g.taps), w_.enc_norm);
    }
    // the block [anchor, MASK, MASK, ...] of every slot
    ggml_tensor * x = nullptr;
    if (n_block > 0) {
        g.tokens = input(ggml_new_tensor_1d(c, GGML_TYPE_I32, n_block));
        g.pos_q  = input(ggml_new_tensor_1d(c, GGML_TYPE_I32, n_block * (mrope ? 4 : 1)));
        for (size_t i = 0; i < s.slots.size(); ++i) {
            const ggml_type type = p_.flash_attn ? GGML_TYPE_F16 : GGML_TYPE_F32;
            g.masks.push_back(input(ggml_new_tensor_2d(c, type, s.spans[i], s.length)));
            g.masks_swa.push_back(w_.n_swa > 0 ? input(ggml_new_tensor_2d(c, type, s.spans[i], s.length)) : nullptr);
        }
        x = ggml_get_rows(c, w_.tok_embd, g.tokens);
        if (w_.embedding_scale != 0.0f) {
            x = ggml_scale(c, x, w_.embedding_scale);
        }
    }

    for (size_t il = 0; il < w_.layers.size(); ++il) {
        const drafter_layer & l     = w_.layers[il];
        ggml_tensor *         noise = nullptr, *conv = nullptr;
        if (x) {
            noise = norm(x, l.attn_norm);
            if (l.attn_conv_proj) {
                conv  = ggml_mul_mat(c, l.attn_conv_proj, noise);
                noise = convolve(c, w_, noise, conv, l.attn_conv_base, 0, s.length);
            }
        }

        // K and V of injected and block rows together: the weights are read once
        ggml_tensor * rows = fused && noise ? ggml_concat(c, fused, noise, 1) : fused ? fused : noise;
        ggml_tensor * k    = ggml_reshape_3d(c, ggml_mul_mat(c, l.wk, rows), hd, n_kv, n_rows);
        ggml_tensor * v =
            l.wv ? ggml_reshape_3d(c, ggml_mul_mat(c, l.wv, rows), hd, n_kv, n_rows) : ggml_rms_norm(c, k, w_.rms_eps);
        k = rope(norm(k, l.k_norm), g.pos_kv);
        ggml_build_forward_expand(
            g.gf, ggml_set_rows(c, kv_->k[il], ggml_reshape_2d(c, k, hd * n_kv, n_rows), g.cells));
        ggml_build_forward_expand(
            g.gf, ggml_set_rows(c, kv_->v[il], ggml_reshape_2d(c, v, hd * n_kv, n_rows), g.cells));
        if (!x) {
            continue;
        }

        ggml_tensor * q = ggml_reshape_3d(c, ggml_mul_mat(c, l.wq, noise), hd, n_head, n_block);
        q               = rope(norm(q, l.q_norm), g.pos_q);

        ggml_tensor * attn = nullptr;
        for (int64_t i = 0; i < n_slots; ++i) {
            const auto cache = [&](ggml_tensor * t) {
                return ggml_permute(c,
                    ggml_view_3d(c, t, hd, n_kv, s.spans[i], ggml_row_size(t->type, hd), t->nb[1],
                        (size_t) s.slots[i] * n_cells_ * t->nb[1]),
                    0, 2, 1, 3);
            };
            ggml_tensor * qi = ggml_permute(c,
                ggml_view_3d(c, q, hd, n_head, s.length, q->nb[1], q->nb[2], (size_t) i * s.length * q->nb[2]), 0, 2, 1,
                3);
            ggml_tensor * ki = cache(kv_->k[il]), *vi = cache(kv_->v[il]), *mask = l.swa ? g.masks_swa[i] : g.masks[i],
                        *out;
            if (p_.flash_attn) {
                out = ggml_flash_attn_ext(c, qi, ki, vi, mask, w_.attention_scale, 0.0f, 0.0f);
                ggml_flash_attn_ext_add_sinks(out, l.attn_sinks);
                ggml_prec_set_acc(out, GGML_PREC_F32);
                out = ggml_reshape_2d(c, out, hd * n_head, s.length);
            } else {
                ggml_tensor * kq = ggml_mul_mat(c, ki, qi);
                ggml_prec_set_acc(kq, GGML_PREC_F32);
                kq = ggml_soft_max_ext(c, kq, mask, w_.attention_scale, 0.0f);
                ggml_soft_max_add_sinks(kq, l.attn_sinks);
                out = ggml_mul_mat(c, ggml_cont(c, ggml_transpose(c, vi)), kq);
                out = ggml_cont_2d(c, ggml_permute(c, out, 0, 2, 1, 3), hd * n_head, s.length);
            }
            attn = attn ? ggml_concat(c, attn, out, 1) : out;
        }
        attn = ggml_mul_mat(c, l.wo, attn);
        if (w_.value_scale != 0.0f) {
            attn = ggml_scale(c, attn, w_.value_scale);
        }
        if (conv) {
            attn = convolve(c, w_, attn, conv, l.attn_conv_base, 1, s.length);
        }
        if (l.attn_post_norm) {
            attn = norm(attn, l.attn_post_norm);
        }
        x = ggml_add(c, x, attn);

        ggml_tensor * y        = norm(x, l.ffn_norm);
        ggml_tensor * ffn_conv = nullptr;
        if (l.ffn_conv_proj) {
            ffn_conv = ggml_mul_mat(c, l.ffn_conv_proj, y);
            y        = convolve(c, w_, y, ffn_conv, l.ffn_conv_base, 0, s.length);
        }
        ggml_tensor *gate = ggml_mul_mat(c, l.ffn_gate, y), *up = ggml_mul_mat(c, l.ffn_up, y);
        y = ggml_mul_mat(c, l.ffn_down, w_.gelu ? ggml_geglu_split(c, gate, up) : ggml_swiglu_split(c, gate, up));
        if (ffn_conv) {
            y = convolve(c, w_, y, ffn_conv, l.ffn_conv_base, 1, s.length);
        }
        if (l.ffn_post_norm) {
            y = norm(y, l.ffn_post_norm);
        }
        x = ggml_add(c, x, y);
        if (l.out_scale) {
            x = ggml_mul(c, x, l.out_scale);
        }
    }
    if (!x) {
        return;
    }

    const auto head = [&](ggml_tensor * hidden) {
        ggml_tensor * logits = ggml_mul_mat(c, w_.output, hidden);
        if (w_.logit_scale != 0.0f) {
            logits = ggml_scale(c, logits, w_.logit_scale);
        }
        if (w_.logit_softcap > 0.0f) {
            logits = ggml_scale(c, ggml_tanh(c, ggml_scale(c, logits, 1.0f / w_.logit_softcap)), w_.logit_softcap);
        }
        return logits;
    };
    const auto output = [&](ggml_tensor * t) {
        ggml_set_output(t);
        ggml_build_forward_expand(g.gf, t);
        return t;
    };

    // The anchor's row predicts nothing, yet the head runs over whole blocks: row counts that are multiples of 4 are
    // what the CPU's matrix products do best, and one view is cheaper than a gap.
    x                 = norm(x, w_.out_norm);
    ggml_tensor * all = head(x);
    if (s.probe) {
        g.hidden = output(x);
        g.logits = output(all);
    }
    const int64_t len = s.length - 1, n_out = len * n_slots, k = top_k_;
    const auto    drop_anchors = [&](ggml_tensor * t) {   // [n, length * n_slots] -> [n, len * n_slots]
        ggml_tensor * v = ggml_view_3d(c, t, t->ne[0], len, n_slots, t->nb[1], t->nb[1] * s.length, t->nb[1]);
        return ggml_reshape_2d(c, n_slots == 1 ? v : ggml_cont(c, v), t->ne[0], n_out);
    };
    ggml_tensor * hidden = drop_anchors(x), *logits = drop_anchors(all);
    ggml_tensor * ids = ggml_top_k(c, logits, (int) k);
    g.ids             = output(ids);
    const auto pick   = [&](ggml_tensor * rows) {   // rows[ids]: [k, n_out]
        return ggml_reshape_2d(c, ggml_get_rows(c, ggml_reshape_3d(c, rows, 1, rows->ne[0], n_out), ids), k, n_out);
    };
    if (!lattice()) {
        g.probs = output(pick(ggml_soft_max(c, logits)));
        return;
    }

    // CandidateSelector of package `dflash`: unary[succ] + <next[succ], prev[pred] * gate>, for every pair of
    // candidates of neighbouring positions; before the first position stands the anchor.
    g.anchors          = input(ggml_new_tensor_1d(c, GGML_TYPE_I32, n_slots));
    const int64_t rank = w_.selector_rank;
    ggml_tensor * gate = ggml_reshape_4d(c, ggml_mul_mat(c, w_.selector_hidden, hidden), rank, 1, len, n_slots);
    ggml_tensor * succ = ggml_reshape_4d(
        c, ggml_get_rows(c, w_.selector_next, ggml_reshape_1d(c, ids, k * n_out)), rank, k, len, n_slots);
    ggml_tensor * pred = ggml_repeat_4d(
        c, ggml_reshape_4d(c, ggml_get_rows(c, w_.selector_prev, g.anchors), rank, 1, 1, n_slots), rank, k, 1, n_slots);
    if (len > 1) {
        ggml_tensor * before = ggml_view_3d(c, ids, k, len - 1, n_slots, ids->nb[1], ids->nb[1] * len, 0);
        before               = ggml_reshape_1d(c, ggml_cont(c, before), k * (len - 1) * n_slots);
        pred                 = ggml_concat(
            c, pred, ggml_reshape_4d(c, ggml_get_rows(c, w_.selector_prev, before), rank, k, len - 1, n_slots), 2);
    }
    ggml_tensor * scores = ggml_mul_mat(c, succ, ggml_mul(c, pred, gate));   // [succ, pred, len, n_slots]
    g.scores             = output(ggml_add(c, scores, ggml_reshape_4d(c, pick(logits), k, 1, len, n_slots)));
}

drafter::graph & drafter::prepare(const shape & s) {
    const auto it = std::find_if(graphs_.begin(), graphs_.end(), [&](const auto & g) { return g->s == s; });
    if (it != graphs_.end()) {
        ++n_graphs_reused;
        std::rotate(graphs_.begin(), it, it + 1);
        return *graphs_.front();
    }
    ++n_graphs_built;
    auto g              = std::make_unique<graph>();
    g->s                = s;
    const bool inherits = graphs_.size() >= GRAPHS_CACHED;
    if (inherits) {   // a scheduler keeps its compute buffers: hand the oldest one's on
        g->sched = std::move(graphs_.back()->sched);
        graphs_.pop_back();
        ggml_backend_sched_reset(g->sched.get());
    } else {
        g->sched.reset(
            ggml_backend_sched_new(backends_.data(), nullptr, (int) backends_.size(), MAX_NODES, false, true));
    }
    build(*g);
    // An inherited plan must be made anew: the allocator keeps it for any graph with as many nodes of the same sizes,
    // though what is an input or an output may differ.
    if ((inherits && !ggml_backend_sched_reserve(g->sched.get(), g->gf)) ||
        !ggml_backend_sched_alloc_graph(g->sched.get(), g->gf)) {
        throw std::runtime_error("not enough memory for a drafter pass: lower -ub, -np or --draft-ctx");
    }
    graphs_.insert(graphs_.begin(), std::move(g));
    return *graphs_.front();
}

// ---- one pass ----

namespace {

template <class T> void upload(ggml_tensor * t, const std::vector<T> & data) {
    if (t) {
        ggml_backend_tensor_set(t, data.data(), 0, data.size() * sizeof(T));
    }
}

template <class T> std::vector<T> download(ggml_tensor * t) {
    std::vector<T> data(ggml_nelements(t));
    ggml_backend_tensor_get(t, data.data(), 0, data.size() * sizeof(T));
    return data;
}

}   // namespace

void drafter::run(
    const std::vector<draft_job> & all, int32_t length, std::vector<draft> & drafts, draft_probe * probe) {
    const abort_guard guard(abort_guard::phase::pass);
    drafts.assign(all.size(), {});
    std::vector<draft_job> jobs     = all;
    int32_t                n_inject = 0;
    for (draft_job & j : jobs) {
        ring & r = rings_[j.slot];
        if (j.pos != r.end) {
            rewind(j.slot, j.pos);
        }
        // Rows that would leave the ring within this pass are not computed at all.
        const int32_t skip = std::max(0, j.n_inject - p_.n_ctx);
        j.taps += (size_t) skip * tap_width();
        j.pos += skip;
        j.n_inject -= skip;
        if (skip > 0) {
            r.begin = r.end = j.pos;
        }
        // Long prompts go in passes of their own; what is left joins the block's pass.
        while (j.n_inject > p_.n_batch) {
            draft_job part = j;
            part.n_inject  = p_.n_batch;
            inject_only(part);
            j.taps += (size_t) p_.n_batch * tap_width();
            j.pos += p_.n_batch;
            j.n_inject -= p_.n_batch;
        }
        if (n_inject + j.n_inject > p_.n_batch) {
            inject_only(j);
            j.taps += (size_t) j.n_inject * tap_width();
            j.pos += j.n_inject;
            j.n_inject = 0;
        }
        n_inject += j.n_inject;
    }

    shape s;
    s.n_inject = inject_bucket(n_inject);
    s.probe    = probe != nullptr;
    for (const draft_job & j : jobs) {
        if (j.denoise) {
            s.slots.push_back(j.slot);
            const int32_t used = std::min(p_.n_ctx, j.pos + j.n_inject);   // ring cells in use lie in [0, used)
            s.spans.push_back(std::min(n_cells_, pad(first_ + used, KV_GRANULE)));
        }
    }
    s.length = s.slots.empty() ? 0 : length;
    if (s.n_inject + s.n_block() == 0) {
        return;
    }

    graph &              g      = prepare(s);
    const int32_t        n_rows = s.n_inject + s.n_block();
    const bool           mrope  = w_.rope_type == LLAMA_ROPE_TYPE_MROPE;
    const int32_t        axes   = mrope ? 4 : 1;   // M-RoPE text: the same position on three axes, 0 on the fourth
    std::vector<float>   taps((size_t) s.n_inject * tap_width());
    std::vector<int32_t> pos_kv((size_t) n_rows * axes), pos_q((size_t) s.n_block() * axes), tokens(s.n_block()),
        anchors;
    std::vector<int64_t> cells(n_rows);
    const auto           put = [&](std::vector<int32_t> & v, int32_t n, int32_t i, int32_t p) {
        for (int32_t a = 0; a < std::min(axes, 3); ++a) {
            v[(size_t) a * n + i] = p;
        }
    };

    int32_t row = 0;
    for (const draft_job & j : jobs) {
        if (j.n_inject > 0) {
            std::memcpy(
                taps.data() + (size_t) row * tap_width(), j.taps, (size_t) j.n_inject * tap_width() * sizeof(float));
        }
        for (int32_t i = 0; i < j.n_inject; ++i, ++row) {
            put(pos_kv, n_rows, row, j.pos + i);
            cells[row] = (int64_t) j.slot * n_cells_ + first_ + (j.pos + i) % p_.n_ctx;
        }
        ring & r = rings_[j.slot];
        r.end    = j.pos + j.n_inject;
        r.begin  = std::max(r.begin, r.end - p_.n_ctx);
    }
    const int64_t trash = (int64_t) jobs[0].slot * n_cells_ + w_.block_size;
    for (; row < s.n_inject; ++row) {
        cells[row] = trash;
    }

    int32_t b = 0;
    for (const draft_job & j : jobs) {
        if (!j.denoise) {
            continue;
        }
        const int32_t start = rings_[j.slot].end;
        for (int32_t i = 0; i < s.length; ++i) {
            tokens[b * s.length + i] = i == 0 ? j.anchor : mask_;
            put(pos_kv, n_rows, row, start + i);
            put(pos_q, s.n_block(), b * s.length + i, start + i);
            cells[row++] = (int64_t) j.slot * n_cells_ + i;
        }
        anchors.push_back(j.anchor);
        set_mask(g.masks[b], j.slot, s.spans[b], s.length, false);
        if (g.masks_swa[b]) {
            set_mask(g.masks_swa[b], j.slot, s.spans[b], s.length, true);
        }
        ++b;
    }

    upload(g.taps, taps);
    upload(g.pos_kv, pos_kv);
    upload(g.cells, cells);
    upload(g.tokens, tokens);
    upload(g.pos_q, pos_q);
    upload(g.anchors, anchors);
    if (ggml_backend_sched_graph_compute(g.sched.get(), g.gf) != GGML_STATUS_SUCCESS) {
        throw std::runtime_error("a drafter pass failed");
    }
    if (s.slots.empty()) {
        return;
    }
    read(g.ids, g.probs, g.scores, jobs, length, drafts, probe);
    if (probe) {
        probe->hidden = download<float>(g.hidden);
        probe->logits = download<float>(g.logits);
    }
}

void drafter::inject_only(const draft_job & job) {
    draft_job j = job;
    j.denoise   = false;
    std::vector<draft> none;
    run({ j }, 0, none);
}

// Cells of one slot that a block starting at the ring's end may see.
void drafter::set_mask(ggml_tensor * t, int32_t slot, int32_t span, int32_t length, bool sliding) {
    const ring &  r      = rings_[slot];
    const int32_t window = sliding ? w_.n_swa : INT32_MAX;
    const bool    causal = sliding ? w_.causal_swa : w_.causal;
    mask_row_.assign((size_t) span * length, -INFINITY);
    for (int32_t q = 0; q < length; ++q) {
        float *       m  = mask_row_.data() + (size_t) q * span;
        const int32_t at = r.end + q;
        for (int32_t i = 0; i < length; ++i) {
            const bool seen = (!causal || i <= q) && std::abs(q - i) < window;
            m[i]            = seen ? 0.0f : -INFINITY;
        }
        const int32_t from = std::max(r.begin, sliding ? at - window + 1 : 0);
        for (int32_t p = from; p < r.end; ++p) {
            m[first_ + p % p_.n_ctx] = 0.0f;
        }
    }
    if (t->type == GGML_TYPE_F32) {
        upload(t, mask_row_);
        return;
    }
    mask_half_.resize(mask_row_.size());
    ggml_fp32_to_fp16_row(mask_row_.data(), mask_half_.data(), (int64_t) mask_row_.size());
    upload(t, mask_half_);
}

// Outputs of a pass -> one draft per job: candidates sorted (marginals) or normalized per predecessor (lattice).
void drafter::read(ggml_tensor * ids_t, ggml_tensor * probs_t, ggml_tensor * scores_t,
    const std::vector<draft_job> & jobs, int32_t length, std::vector<draft> & drafts, draft_probe * probe) {
    const std::vector<int32_t> ids    = download<int32_t>(ids_t);
    const std::vector<float>   scores = download<float>(lattice() ? scores_t : probs_t);
    const int32_t              k = top_k_, len = length - 1;
    const int32_t              width = lattice() ? k * k : k;
    int32_t                    b     = 0;
    for (size_t ji = 0; ji < jobs.size(); ++ji) {
        if (!jobs[ji].denoise) {
            continue;
        }
        draft & d = drafts[ji];
        d.length  = length;
        d.top_k   = k;
        d.lattice = lattice();
        d.ids.assign(ids.begin() + (size_t) b * len * k, ids.begin() + (size_t) (b + 1) * len * k);
        d.probs.assign(scores.begin() + (size_t) b * len * width, scores.begin() + (size_t) (b + 1) * len * width);
        if (probe) {
            probe->ids    = d.ids;
            probe->scores = d.probs;
        }
        for (int32_t i = 0; i < len; ++i) {
            if (lattice()) {
                for (int32_t pred = 0; pred < k; ++pred) {   // softmax over the successors of each predecessor
                    float *     p   = d.probs.data() + ((size_t) i * k + pred) * k;
                    const float top = *std::max_element(p, p + k);
                    float       sum = 0;
                    for (int32_t j = 0; j < k; ++j) {
                        sum += p[j] = std::exp(p[j] - top);
                    }
                    for (int32_t j = 0; j < k; ++j) {
                        p[j] /= sum;
                    }
                }
                continue;
            }
            // ggml_top_k promises no order
            int32_t *                              id = d.ids.data() + (size_t) i * k;
            float *                                p  = d.probs.data() + (size_t) i * k;
            std::vector<std::pair<float, int32_t>> order(k);
            for (int32_t j = 0; j < k; ++j) {
                order[j] = { -p[j], id[j] };
            }
            std::sort(order.begin(), order.end());
            for (int32_t j = 0; j < k; ++j) {
                p[j]  = -order[j].first;
                id[j] = order[j].second;
            }
            if (probe) {
                for (int32_t j = 0; j < k; ++j) {
                    probe->ids[(size_t) i * k + j]    = id[j];
                    probe->scores[(size_t) i * k + j] = std::log(p[j]);
                }
            }
        }
        for (int32_t & id : d.ids) {
            id = d2t_.empty() ? id : (int32_t) d2t_[id];
        }
        ++b;
    }
}

}   // namespace dflash
