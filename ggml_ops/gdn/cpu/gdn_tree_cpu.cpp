// Delta-net trees on the CPU: every path is computed with the operations of ggml_gated_delta_net, in the same order, so
// results have the same bits.
//
// A column of the state (S floats) is independent of the others. Rows are visited depth-first with a stack of columns.
// A row's last child reuses its column, and the child with the largest subtree comes last: so the stack is at most
// log2(rows) + 1 columns deep, and a chain needs only one. The committed state is read once, and no state is written.

#include "gdn/cpu/gdn_tree_cpu.h"

#include "cpu/threads/tasks.h"

#include "ggml-cpu-impl.h"
#include "ggml-impl.h"
#include "vec.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace {

constexpr int COLUMNS   = 16;   // per task: one cache line of results
constexpr int ROWS      = GGML_GDN_MAX_ROWS;
constexpr int STACK_MAX = 7;   // log2(64) + 1

// Columns stay in registers where vectors have a fixed size; sums are reduced in the order of ggml_vec_dot_f32.
#if defined(GGML_SIMD) && !defined(__ARM_FEATURE_SVE) && !defined(__riscv_v_intrinsic)
#define GDN_REGISTERS
constexpr int COLUMNS_AT_ONCE = GGML_F32_EPR >= 16 ? 2 : 1;   // as many columns as fit in the registers
#else
constexpr int COLUMNS_AT_ONCE = 1;
#endif

struct visit {
    int16_t row;
    int8_t  from, to;   // stack entries: the parent's column (-1: the committed state), the row's (-1: no child)
};

// The rows of a tree in the order of their visits.
struct visit_order {
    visit   visits[ROWS];
    int     n = 0, n_padding = 0;
    int16_t padding[ROWS];

    visit_order(const int32_t * parent, int T) {
        int size[ROWS], child[ROWS], next[ROWS], roots = -1;   // size of the subtree; first child; next sibling
        for (int t = 0; t < T; ++t) {
            const int p = parent[t];
            GGML_ASSERT(
                p >= GGML_GDN_PADDING && p < t && (p < 0 || parent[p] != GGML_GDN_PADDING) && "gdn_tree: bad parent");
            size[t]  = 1;
            child[t] = -1;
            if (p == GGML_GDN_PADDING) {
                padding[n_padding++] = (int16_t) t;
            }
        }
        for (int t = T - 1; t >= 0; --t) {   // children come after their parents, so size[t] is final
            if (parent[t] == GGML_GDN_PADDING) {
                continue;
            }
            int * link = parent[t] < 0 ? &roots : &child[parent[t]];
            if (parent[t] >= 0) {
                size[parent[t]] += size[t];
            }
            while (*link >= 0 && size[*link] < size[t]) {   // the largest subtree comes last
                link = &next[*link];
            }
            next[t] = *link;
            *link   = t;
        }
        int used = 0;
        for (int t = roots; t >= 0; t = next[t]) {
            visit_subtree(t, -1, false, child, next, used);
        }
    }

    void visit_subtree(int t, int from, bool last, const int * child, const int * next, int & used) {
        const bool leaf = child[t] < 0;
        const int  to   = leaf ? -1 : last ? from : used++;
        GGML_ASSERT(used <= STACK_MAX);
        visits[n++] = { (int16_t) t, (int8_t) from, (int8_t) to };
        for (int c = child[t]; c >= 0; c = next[c]) {
            visit_subtree(c, to, next[c] < 0, child, next, used);
        }
        used -= !leaf && !last;
    }
};

// A row of a tree, for all columns of a head.
struct row_of_head {
    const float *gate, *k, *q;   // gate: e^g of the head, or of each of its channels
    float        beta, scale;
};

// Columns of the state before and after a row, [][S], and what the row has for each of them.
struct row_columns {
    const float * from;
    float *       to;   // may be `from`; null: not needed
    const float * v;
    float *       out, *delta;
};

#ifdef GDN_REGISTERS
// update_columns() with the columns in registers. S: a multiple of GGML_F32_STEP.
template <int S, bool CHANNELS, int N> inline void update_registers(const row_of_head & row, const row_columns & at) {
    constexpr int      n = S / GGML_F32_EPR;
    GGML_F32_VEC       s[N][n], sum[N][GGML_F32_ARR];
    const GGML_F32_VEC g = GGML_F32_VEC_SET1(row.gate[0]);
    for (int i = 0; i < n; ++i) {
        const GGML_F32_VEC gi = CHANNELS ? GGML_F32_VEC_LOAD(row.gate + i * GGML_F32_EPR) : g,
                           ki = GGML_F32_VEC_LOAD(row.k + i * GGML_F32_EPR);
        for (int c = 0; c < N; ++c) {
            GGML_F32_VEC & x = sum[c][i % GGML_F32_ARR];
            s[c][i]          = GGML_F32_VEC_MUL(GGML_F32_VEC_LOAD(at.from + c * S + i * GGML_F32_EPR), gi);
            x                = GGML_F32_VEC_FMA(i < GGML_F32_ARR ? GGML_F32_VEC_ZERO : x, s[c][i], ki);
        }
    }
    GGML_F32_VEC d[N];
    for (int c = 0; c < N; ++c) {
        float total = 0;
        GGML_F32_VEC_REDUCE(total, sum[c]);
        at.delta[c] = (at.v[c] - total) * row.beta;
        d[c]        = GGML_F32_VEC_SET1(at.delta[c]);
    }
    for (int i = 0; i < n; ++i) {
        const GGML_F32_VEC ki = GGML_F32_VEC_LOAD(row.k + i * GGML_F32_EPR),
                           qi = GGML_F32_VEC_LOAD(row.q + i * GGML_F32_EPR);
        for (int c = 0; c < N; ++c) {
            GGML_F32_VEC & x = sum[c][i % GGML_F32_ARR];
            s[c][i]          = GGML_F32_VEC_FMA(s[c][i], ki, d[c]);
            x                = GGML_F32_VEC_FMA(i < GGML_F32_ARR ? GGML_F32_VEC_ZERO : x, s[c][i], qi);
            if (at.to) {
                GGML_F32_VEC_STORE(at.to + c * S + i * GGML_F32_EPR, s[c][i]);
            }
        }
    }
    for (int c = 0; c < N; ++c) {
        float total = 0;
        GGML_F32_VEC_REDUCE(total, sum[c]);
        at.out[c] = total * row.scale;
    }
}
#endif

// The decay of a row, for one column of the state.
template <int S, bool CHANNELS> inline void decay(float * column, const float * gate) {
    if (CHANNELS) {
        ggml_vec_mul_f32(S, column, column, gate);
    } else {
        ggml_vec_scale_f32(S, column, gate[0]);
    }
}

// N columns: decay, delta, rank-1 update, output.
template <int S, bool CHANNELS, int N> inline void update_columns(const row_of_head & row, const row_columns & at) {
#ifdef GDN_REGISTERS
    if constexpr (S % GGML_F32_STEP == 0) {
        return update_registers<S, CHANNELS, N>(row, at);
    }
#endif
    for (int c = 0; c < N; ++c) {
        float column[S], total = 0;
        memcpy(column, at.from + c * S, sizeof column);
        decay<S, CHANNELS>(column, row.gate);
        ggml_vec_dot_f32(S, &total, 0, column, 0, row.k, 0, 1);
        at.delta[c] = (at.v[c] - total) * row.beta;
        ggml_vec_mad_f32(S, column, row.k, at.delta[c]);
        ggml_vec_dot_f32(S, &total, 0, column, 0, row.q, 0, 1);
        at.out[c] = total * row.scale;
        if (at.to) {
            memcpy(at.to + c * S, column, sizeof column);
        }
    }
}

const float * row_at(const ggml_tensor * t, int64_t i1, int64_t i2, int64_t i3) {
    return (const float *) ((const char *) t->data + i1 * t->nb[1] + i2 * t->nb[2] + i3 * t->nb[3]);
}

// Computes exp(g) of all heads and the given rows once, with all threads: gates [g0, H, T, n].
void fill_gates(
    const ggml_compute_params * params, const ggml_tensor * g, float * gates, const int32_t * rows, int64_t n_rows) {
    const int64_t g0 = g->ne[0], H = g->ne[1], T = g->ne[2], n = g->ne[3];
    for (int64_t i = params->ith; i < n * n_rows; i += params->nth) {
        const int64_t seq = i / n_rows, t = rows ? rows[i] : i % n_rows;
        if (t < 0) {
            continue;
        }
        for (int64_t h = 0; h < H; ++h) {
            const float * from = row_at(g, h, t, seq);
            float *       to   = gates + ((seq * T + t) * H + h) * g0;
            for (int64_t c = 0; c < g0; ++c) {
                to[c] = expf(from[c]);
            }
        }
    }
}

// A task: COLUMNS of a head's state, from this one on.
struct task {
    int64_t seq, head, column;
};

// Threads take the tasks for H heads of n sequences, once all have filled their gates.
template <int S, class F>
void for_each_task(const ggml_compute_params * params, int64_t H, int64_t n, const F & compute) {
    constexpr int64_t OF_HEAD = S / COLUMNS;
    dflash::for_each_task(params, n * H * OF_HEAD,
        [&](int64_t i) { compute(task{ i / (H * OF_HEAD), i / OF_HEAD % H, i % OF_HEAD * COLUMNS }); });
}

// stack: [STACK_MAX][COLUMNS][S]
template <int S, bool CHANNELS>
void compute_tree(ggml_tensor * op, const task & at, const visit_order & tree, const float * gates, float * stack) {
    const ggml_tensor *q = op->src[0], *k = op->src[1], *v = op->src[2], *beta = op->src[4];
    const int64_t      H = v->ne[1], T = v->ne[2], n = v->ne[3], head_of_k = at.head % k->ne[1];
    const float *      committed = row_at(op->src[5], at.column, at.head, at.seq);
    float *out = (float *) op->data + (at.seq * T * H + at.head) * S + at.column, *delta = out + n * T * H * S;
    for (int i = 0; i < tree.n; ++i) {
        const visit &     now  = tree.visits[i];
        const int64_t     t    = now.row;
        const row_of_head row  = { gates + ((at.seq * T + t) * H + at.head) * (CHANNELS ? S : 1),
             row_at(k, head_of_k, t, at.seq), row_at(q, head_of_k, t, at.seq), *row_at(beta, at.head, t, at.seq),
             1.0f / sqrtf((float) S) };
        const float *     from = now.from < 0 ? committed : stack + now.from * COLUMNS * S;
        float *           to   = now.to < 0 ? nullptr : stack + now.to * COLUMNS * S;
        const float *     v_t  = row_at(v, at.head, t, at.seq) + at.column;
        for (int c = 0; c < COLUMNS; c += COLUMNS_AT_ONCE) {
            update_columns<S, CHANNELS, COLUMNS_AT_ONCE>(
                row, { from + c * S, to ? to + c * S : nullptr, v_t + c, out + t * H * S + c, delta + t * H * S + c });
        }
    }
    for (int i = 0; i < tree.n_padding; ++i) {
        std::fill_n(out + tree.padding[i] * H * S, COLUMNS, 0.0f);
        std::fill_n(delta + tree.padding[i] * H * S, COLUMNS, 0.0f);
    }
}

template <int S, bool CHANNELS> void run_tree(const ggml_compute_params * params, ggml_tensor * op) {
    const ggml_tensor *v = op->src[2], *g = op->src[3], *parent = op->src[6];
    const int64_t      T     = v->ne[2];
    float *            gates = (float *) params->wdata;
    float *            stack = gates + GGML_PAD(ggml_nelements(g), 16) + params->ith * STACK_MAX * COLUMNS * S;
    fill_gates(params, g, gates, nullptr, T);

    int64_t     ordered = -1;
    visit_order tree(nullptr, 0);
    for_each_task<S>(params, v->ne[1], v->ne[3], [&](const task & at) {
        if (ordered != at.seq) {
            ordered = at.seq;
            tree    = visit_order((const int32_t *) parent->data + at.seq * T, (int) T);
        }
        compute_tree<S, CHANNELS>(op, at, tree, gates, stack);
    });
}

template <int S, bool CHANNELS> void run_commit(const ggml_compute_params * params, ggml_tensor * op) {
    const ggml_tensor *state = op->src[0], *k = op->src[1], *delta = op->src[2], *g = op->src[3], *path = op->src[4];
    const int64_t      H = delta->ne[1], H_k = k->ne[1], T = delta->ne[2], n = delta->ne[3], P = path->ne[0];
    const int32_t *    rows = (const int32_t *) path->data;
    constexpr int      g0   = CHANNELS ? S : 1;
    for (int64_t i = 0; i < n * P; ++i) {
        GGML_ASSERT(rows[i] >= -1 && rows[i] < T && "gdn_commit: bad path");
    }
    float * gates = (float *) params->wdata;
    fill_gates(params, g, gates, rows, P);
    for_each_task<S>(params, H, n, [&](const task & at) {
        const auto [seq, h, j0] = at;
        float * to              = (float *) op->data + ((seq * H + h) * S + j0) * S;
        memcpy(to, row_at(state, j0, h, seq), sizeof(float) * COLUMNS * S);
        for (int64_t p = 0; p < P && rows[seq * P + p] >= 0; ++p) {
            const int64_t t   = rows[seq * P + p];
            const float * k_t = row_at(k, h % H_k, t, seq), *d = row_at(delta, h, t, seq) + j0,
                        *gate = gates + ((seq * T + t) * H + h) * g0;
            for (int c = 0; c < COLUMNS; ++c) {
                decay<S, CHANNELS>(to + c * S, gate);
                ggml_vec_mad_f32(S, to + c * S, k_t, d[c]);
            }
        }
    });
}

}   // namespace

void dflash_cpu_gdn_tree(const ggml_compute_params * params, ggml_tensor * op) {
    const bool channels = op->src[3]->ne[0] > 1;
    switch (op->src[2]->ne[0]) {
        case 64: return channels ? run_tree<64, true>(params, op) : run_tree<64, false>(params, op);
        case 128: return channels ? run_tree<128, true>(params, op) : run_tree<128, false>(params, op);
        default: GGML_ABORT("gdn_tree: head size");
    }
}

void dflash_cpu_gdn_commit(const ggml_compute_params * params, ggml_tensor * op) {
    const bool channels = op->src[3]->ne[0] > 1;
    switch (op->src[0]->ne[0]) {
        case 64: return channels ? run_commit<64, true>(params, op) : run_commit<64, false>(params, op);
        case 128: return channels ? run_commit<128, true>(params, op) : run_commit<128, false>(params, op);
        default: GGML_ABORT("gdn_commit: head size");
    }
}

size_t dflash_cpu_gdn_work_size(const ggml_tensor * op, int n_tasks) {
    const size_t gates = GGML_PAD(ggml_nelements(op->src[3]), 16);
    return sizeof(float) *
           (gates + (op->op == GGML_OP_GDN_TREE ? (size_t) n_tasks * STACK_MAX * COLUMNS * op->src[2]->ne[0] : 0));
}
