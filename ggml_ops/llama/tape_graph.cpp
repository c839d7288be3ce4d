#include "llama/tape_graph.h"

#include "gdn/composed.h"
#include "llama/llama_tree.h"
#include "llama-memory-hybrid.h"
#include "llama-memory-recurrent.h"

#include <algorithm>

// The parents of an ubatch are the op's.
static_assert(LLAMA_PARENT_NONE == GGML_GDN_ROOT && LLAMA_PARENT_PADDING == GGML_GDN_PADDING);

namespace {

ggml_tensor * new_ids(ggml_context * ctx, const char * name, int64_t ne0, int64_t ne1 = 1) {
    ggml_tensor * t = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, ne0, ne1);
    ggml_set_input(t);
    ggml_set_name(t, name);
    return t;
}

// Columns [at, at + n) of a tape's rows.
ggml_tensor * part(ggml_context * ctx, ggml_tensor * tape, int64_t at, int64_t n) {
    return ggml_view_2d(ctx, tape, n, tape->ne[1], tape->nb[1], at * sizeof(float));
}

// The same as heads: [S, H, T, n].
ggml_tensor * heads(ggml_context * ctx, ggml_tensor * rows, int64_t at, int64_t size, int64_t n_heads, int64_t n_seqs) {
    const int64_t n = rows->ne[1] / n_seqs;
    return ggml_view_4d(
        ctx, rows, size, n_heads, n, n_seqs, size * sizeof(float), rows->nb[1], n * rows->nb[1], at * sizeof(float));
}

ggml_tensor * new_mask(ggml_context * ctx, const char * name, int64_t ne0, int64_t ne1, int64_t n) {
    ggml_tensor * t = ggml_new_tensor_4d(ctx, GGML_TYPE_F32, ne0, ne1, 1, n);
    ggml_set_input(t);
    ggml_set_name(t, name);
    return t;
}

// Inputs that no layer uses have no memory.
template <class T> void upload(ggml_tensor * t, const std::vector<T> & data) {
    if (t && t->buffer) {
        GGML_ASSERT(ggml_nbytes(t) == data.size() * sizeof(T));
        ggml_backend_tensor_set(t, data.data(), 0, ggml_nbytes(t));
    }
}

}   // namespace

llm_graph_input_tape::llm_graph_input_tape(
    ggml_context * ctx, const llama_ubatch & ubatch, const llama_memory_recurrent_context * mctx) :
    is_tree(ubatch.parents.is_tree()), n_path(dflash::pass_tapes{ *mctx }.n_path(ubatch)), mctx_(mctx) {
    const int64_t n = ubatch.n_seqs, T = ubatch.n_seq_tokens, d = tapes().d_conv - 1;
    if (n_path > 0) {
        path_rows = new_ids(ctx, "tape_path_rows", n_path * n);
        path      = new_ids(ctx, "tape_path", n_path, n);
        tail_rows = new_ids(ctx, "tape_tail_rows", d * n);
        tail_pick = new_ids(ctx, "tape_tail_pick", d, n);
        if (tapes().is_composed()) {
            path_mask = new_mask(ctx, "tape_path_mask", n_path, n_path + 2, n);
        }
    }
    if (is_tree) {
        parent   = new_ids(ctx, "tape_parent", T, n);
        window   = new_ids(ctx, "tape_window", (d + 1) * T, n);
        new_rows = new_ids(ctx, "tape_new_rows", T * n);
        if (tapes().is_composed()) {
            tree_mask = new_mask(ctx, "tape_tree_mask", T, T, n);
        }
    }
}

bool llm_graph_input_tape::can_reuse(const llm_graph_params & params) {
    mctx_ = static_cast<const llama_memory_hybrid_context *>(params.mctx)->get_recr();

    return is_tree == params.ubatch.parents.is_tree() && n_path == dflash::pass_tapes{ *mctx_ }.n_path(params.ubatch);
}

void llm_graph_input_tape::set_input(const llama_ubatch * ubatch) {
    if (n_path > 0) {
        set_path(ubatch->n_seqs);
    }
    if (is_tree) {
        set_tree(ubatch->n_seqs, ubatch->n_seq_tokens);
    }
}

void llm_graph_input_tape::set_path(int32_t n) {
    const int32_t d = tapes().d_conv - 1, capacity = tapes().capacity;

    std::vector<int32_t> rows(n_path * n), steps(n_path * n), tail(d * n), pick(d * n);
    for (int32_t s = 0; s < n; ++s) {
        const dflash::tape_ref & taken  = dflash::pass_tapes{ *mctx_ }.taken(s);
        const int32_t            length = taken.path.size();
        const auto row = [&](int32_t k) { return k >= 0 && k < length ? taken.region * capacity + taken.path[k] : 0; };
        for (int32_t k = 0; k < n_path; ++k) {
            rows[s * n_path + k]  = row(k);
            steps[s * n_path + k] = k < length ? k : -1;
        }
        // the newest d rows of [d inputs of the state | the path's last d rows]
        const int32_t n_new = std::min(length, d);
        for (int32_t k = 0; k < d; ++k) {
            tail[s * d + k] = row(length - d + k);
            pick[s * d + k] = k < d - n_new ? k + n_new : d + k;
        }
    }
    upload(path_rows, rows);
    upload(path, steps);
    upload(tail_rows, tail);
    upload(tail_pick, pick);
    if (path_mask) {
        std::vector<float> mask(n_path * (n_path + 2) * n);
        ggml_gdn_commit_mask(steps.data(), n_path, n_path, n, mask.data());
        upload(path_mask, mask);
    }
}

void llm_graph_input_tape::set_tree(int32_t n, int32_t T) {
    const int32_t d = tapes().d_conv - 1, capacity = tapes().capacity;

    std::vector<int32_t> parents(T * n), inputs((d + 1) * T * n), rows(T * n);
    for (int32_t s = 0; s < n; ++s) {
        const dflash::tape_ref & tape = dflash::pass_tapes{ *mctx_ }.written(s);
        for (int32_t t = 0; t < T; ++t) {
            parents[s * T + t] = tape.parents[t];
            rows[s * T + t]    = tape.region * capacity + t;
            // from the row itself to its ancestors, then into the state
            int32_t at = t, before = 0;
            for (int32_t k = d; k >= 0; --k) {
                inputs[(s * T + t) * (d + 1) + k] = at >= 0 ? d + at : std::max(0, d - ++before);
                at                                = at >= 0 ? tape.parents[at] : -1;
            }
        }
    }
    upload(parent, parents);
    upload(window, inputs);
    upload(new_rows, rows);
    if (tree_mask) {
        std::vector<float> mask(T * T * n);
        ggml_gdn_tree_mask(parents.data(), T, n, mask.data());
        upload(tree_mask, mask);
    }
}

namespace dflash {

llm_graph_input_tape * add_tape_input(llm_graph_result & res, ggml_context * ctx, const llama_ubatch & ubatch,
    const llama_memory_recurrent_context * mctx) {
    if (pass_tapes{ *mctx }.store().capacity == 0) {
        return nullptr;
    }
    return (llm_graph_input_tape *) res.add_input(std::make_unique<llm_graph_input_tape>(ctx, ubatch, mctx));
}

// Copies the sequences' states [size, n] to their place among all.
static void write_back(ggml_context * ctx, ggml_cgraph * gf, const llm_graph_input_rs * inp, ggml_tensor * states,
    ggml_tensor * all, int64_t size, int64_t n) {
    ggml_build_forward_expand(gf, ggml_cpy(ctx, ggml_reshape_2d(ctx, states, size, n),
                                      ggml_view_2d(ctx, all, size, n, all->nb[1], inp->mctx->get_head() * all->nb[1])));
}

static ggml_tensor * take_in_conv(
    ggml_context * ctx, ggml_cgraph * gf, const llm_graph_input_rs * inp, ggml_tensor * conv_states, int il) {
    const tape_store & tapes = inp->tape->tapes();
    if (inp->tape->n_path == 0) {
        return conv_states;
    }
    const int64_t d = tapes.d_conv - 1, n = conv_states->ne[2];
    ggml_tensor * old = ggml_cont(ctx, ggml_permute(ctx, conv_states, 1, 0, 2, 3));   // [channels, d, n]
    ggml_tensor * tail =
        ggml_get_rows(ctx, part(ctx, tapes.layers[il], tapes.n_state(), tapes.channels), inp->tape->tail_rows);
    ggml_tensor * both = ggml_concat(ctx, old, ggml_reshape_3d(ctx, tail, tapes.channels, d, n), 1);
    ggml_tensor * now  = ggml_get_rows(ctx, both, inp->tape->tail_pick);
    conv_states        = ggml_cont(ctx, ggml_permute(ctx, now, 1, 0, 2, 3));
    ggml_build_forward_expand(gf, conv_states);   // before the tape is overwritten
    return conv_states;
}

ggml_tensor * tape_conv_input(ggml_context * ctx, ggml_cgraph * gf, const llm_graph_input_rs * inp,
    ggml_tensor *& conv_states, ggml_tensor * qkv, int il) {
    if (!inp->tape) {
        return nullptr;
    }
    conv_states = take_in_conv(ctx, gf, inp, conv_states, il);
    if (!inp->tape->is_tree) {
        return nullptr;
    }

    const tape_store & tapes = inp->tape->tapes();
    const int64_t      d = tapes.d_conv - 1, C = tapes.channels, T = qkv->ne[1], n = qkv->ne[2];

    write_back(ctx, gf, inp, conv_states, inp->mctx->get_r_l(il), d * C, n);

    ggml_tensor * rows = ggml_reshape_2d(ctx, qkv, C, T * n);
    ggml_build_forward_expand(
        gf, ggml_set_rows(ctx, part(ctx, tapes.layers[il], tapes.n_state(), C), rows, inp->tape->new_rows));

    ggml_tensor * old = ggml_cont(ctx, ggml_permute(ctx, conv_states, 1, 0, 2, 3));
    ggml_tensor * inputs =
        ggml_get_rows(ctx, ggml_concat(ctx, old, qkv, 1), inp->tape->window);   // [C, (d + 1) * T, n]
    return ggml_cont(ctx, ggml_permute(ctx, ggml_reshape_3d(ctx, inputs, C, d + 1, T * n), 1, 0, 2, 3));
}

static ggml_tensor * take_in_state(
    ggml_context * ctx, ggml_cgraph * gf, const llm_graph_input_rs * inp, ggml_tensor * state, int il) {
    const tape_store & tapes = inp->tape->tapes();
    if (inp->tape->n_path == 0) {
        return state;
    }
    const int64_t n     = state->ne[3];
    ggml_tensor * rows  = ggml_get_rows(ctx, part(ctx, tapes.layers[il], 0, tapes.n_state()), inp->tape->path_rows);
    ggml_tensor * k     = heads(ctx, rows, 0, tapes.head, tapes.heads_k, n);
    ggml_tensor * delta = heads(ctx, rows, tapes.n_k(), tapes.head, tapes.heads_v, n);
    ggml_tensor * gate  = heads(ctx, rows, tapes.n_k() + tapes.n_delta(), 1, tapes.heads_v, n);
    state = tapes.composed[il] ? ggml_gdn_commit_composed(ctx, state, k, delta, gate, inp->tape->path_mask)
                               : ggml_gdn_commit(ctx, state, k, delta, gate, inp->tape->path);
    ggml_build_forward_expand(gf, state);
    return state;
}

ggml_tensor * tape_attention(ggml_context * ctx, ggml_cgraph * gf, const llm_graph_input_rs * inp, ggml_tensor * q,
    ggml_tensor * k, ggml_tensor * v, ggml_tensor * g, ggml_tensor * b, ggml_tensor *& state, int il) {
    if (!inp->tape) {
        return nullptr;
    }
    state = take_in_state(ctx, gf, inp, state, il);
    if (!inp->tape->is_tree) {
        return nullptr;
    }

    const tape_store & tapes = inp->tape->tapes();
    const int64_t      n = state->ne[3], rows = k->ne[2] * n;

    ggml_tensor * all = inp->mctx->get_s_l(il);
    write_back(ctx, gf, inp, state, all, all->ne[0], n);

    gdn_tree_parts tree;
    if (tapes.composed[il]) {
        tree = ggml_gdn_tree_composed(ctx, q, k, v, g, b, state, inp->tape->tree_mask);
    } else {
        ggml_tensor * both = ggml_gdn_tree(ctx, q, k, v, g, b, state, inp->tape->parent);
        tree               = { ggml_gdn_tree_output(ctx, both), ggml_gdn_tree_delta(ctx, both) };
    }

    const auto keep = [&](int64_t at, ggml_tensor * t, int64_t row_size) {
        ggml_build_forward_expand(gf, ggml_set_rows(ctx, part(ctx, tapes.layers[il], at, row_size),
                                          ggml_reshape_2d(ctx, t, row_size, rows), inp->tape->new_rows));
    };
    keep(0, k, tapes.n_k());
    keep(tapes.n_k(), tree.delta, tapes.n_delta());
    keep(tapes.n_k() + tapes.n_delta(), g, tapes.heads_v);

    return tree.output;
}

}   // namespace dflash
