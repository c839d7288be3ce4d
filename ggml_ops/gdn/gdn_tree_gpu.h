// Delta-net trees on GPUs, in closed form: the arithmetic of the CUDA and Metal kernels. A C++ test runs it on the CPU,
// in loops over the threads. docs/hybrid.md has the formulas.
//
// A threadgroup computes GDN_COLUMNS columns of one head's state for one sequence. It runs these phases, with a barrier
// after each: begin; load and multiply, for every GDN_CHANNELS channels; decay; solve; write. Within a phase no thread
// reads what another one writes.

#ifndef GDN_TREE_GPU_H
#define GDN_TREE_GPU_H

#if defined(__METAL_VERSION__)   // gdn_geometry.h is inserted before
#define GDN_FN     static inline
#define GDN_GLOBAL device
#define GDN_SHARED threadgroup
#define GDN_REF    thread
#else
#include "gdn/gdn_geometry.h"
#include "gdn/gdn_tree.h"
#include <math.h>
#include <stdint.h>
static_assert(GDN_PADDING == GGML_GDN_PADDING, "one number");
#if defined(__CUDACC__) || defined(__HIPCC__)
#define GDN_FN static __device__ __forceinline__
#else
#define GDN_FN static inline
#endif
#define GDN_GLOBAL
#define GDN_SHARED
#define GDN_REF
#endif

// Shapes and strides (in floats) of the tensors in gdn_tree.h; strides `1`, `2`, `3`: per head, row, sequence.
struct gdn_tree_args {
    int32_t S, H, H_k, T, n, channels;
    float   scale;
    int32_t unused;
    int64_t q1, q2, q3, k1, k2, k3, v1, v2, v3, g1, g2, g3, b1, b2, b3, s3;
};

struct gdn_commit_args {
    int32_t S, H, H_k, T, P, channels;
    int64_t k1, k2, k3, d1, d2, d3, g1, g2, g3, s3;
};

struct gdn_tree_data {
    GDN_GLOBAL const float *   q;
    GDN_GLOBAL const float *   k;
    GDN_GLOBAL const float *   v;
    GDN_GLOBAL const float *   g;
    GDN_GLOBAL const float *   beta;
    GDN_GLOBAL const float *   state;
    GDN_GLOBAL const int32_t * parent;
    GDN_GLOBAL float *         out;   // outputs, then deltas
};

struct gdn_tree_group {
    int32_t head, sequence, column;   // the group's first column
};

// The group's shared memory for T rows. Pairs: row t and a row a <= t are at t * (t + 1) / 2 + a.
struct gdn_tree_shared {
    GDN_SHARED int32_t *  up;      // [T] parent
    GDN_SHARED uint32_t * above;   // [T][2] bits of the ancestors and the row itself; empty in padding rows
    GDN_SHARED float *    k;       // [T][GDN_CHANNELS]
    GDN_SHARED float *    q;       // [T][GDN_CHANNELS]
    GDN_SHARED float *    g;       // [T][GDN_CHANNELS] log-gates summed from the root to the row; scalar: the row's own
    GDN_SHARED float *    state;   // [GDN_COLUMNS][GDN_CHANNELS + 1]
    GDN_SHARED float *    s_k;     // [T][GDN_COLUMNS] the decayed committed state times k; after solve: delta
    GDN_SHARED float *    s_q;     // [T][GDN_COLUMNS]
    GDN_SHARED float *    k_k;     // pairs: decay from a to t times k_a . k_t, zero unless a is an ancestor
    GDN_SHARED float *    q_k;     // pairs: the same with q_t, including t itself
};

GDN_FN gdn_tree_shared gdn_tree_share(GDN_SHARED float * base, int T) {
    gdn_tree_shared m;
    m.up = (GDN_SHARED int32_t *) base;
    base += T;
    m.above = (GDN_SHARED uint32_t *) base;
    base += 2 * T;
    m.k = base;
    base += T * GDN_CHANNELS;
    m.q = base;
    base += T * GDN_CHANNELS;
    m.g = base;
    base += T * GDN_CHANNELS;
    m.state = base;
    base += GDN_COLUMNS * (GDN_CHANNELS + 1);
    m.s_k = base;
    base += T * GDN_COLUMNS;
    m.s_q = base;
    base += T * GDN_COLUMNS;
    m.k_k = base;
    base += T * (T + 1) / 2;
    m.q_k = base;
    return m;
}

GDN_FN bool gdn_tree_is_above(gdn_tree_shared m, int a, int t) { return m.above[2 * t + a / 32] >> (a % 32) & 1u; }

GDN_FN void gdn_tree_begin(GDN_REF const gdn_tree_args & x, GDN_REF const gdn_tree_data & d, gdn_tree_group at,
    GDN_SHARED float * shared, int id) {
    const gdn_tree_shared      m      = gdn_tree_share(shared, x.T);
    GDN_GLOBAL const int32_t * parent = d.parent + (int64_t) at.sequence * x.T;
    for (int t = id; t < x.T; t += GDN_THREADS) {
        uint32_t above[2] = { 0, 0 };
        for (int a = t; a >= 0 && parent[t] != GDN_PADDING; a = parent[a]) {
            above[a / 32] |= 1u << (a % 32);
        }
        m.up[t]            = parent[t];
        m.above[2 * t]     = above[0];
        m.above[2 * t + 1] = above[1];
    }
    for (int e = id; e < x.T * GDN_COLUMNS; e += GDN_THREADS) {
        m.s_k[e] = m.s_q[e] = 0.0f;
    }
    for (int p = id; p < x.T * (x.T + 1) / 2; p += GDN_THREADS) {
        m.k_k[p] = m.q_k[p] = 0.0f;
    }
}

GDN_FN void gdn_tree_load(GDN_REF const gdn_tree_args & x, GDN_REF const gdn_tree_data & d, gdn_tree_group at,
    GDN_SHARED float * shared, int channel, int id) {
    const gdn_tree_shared    m      = gdn_tree_share(shared, x.T);
    const int                head_k = at.head % x.H_k;
    GDN_GLOBAL const float * g      = d.g + at.sequence * x.g3 + at.head * x.g1;
    for (int e = id; e < x.T * GDN_CHANNELS; e += GDN_THREADS) {
        const int t = e / GDN_CHANNELS, i = channel + e % GDN_CHANNELS;
        m.k[e]    = d.k[at.sequence * x.k3 + t * x.k2 + head_k * x.k1 + i];
        m.q[e]    = d.q[at.sequence * x.q3 + t * x.q2 + head_k * x.q1 + i];
        float sum = g[t * x.g2 + (x.channels ? i : 0)];
        for (int a = m.up[t]; x.channels && a >= 0; a = m.up[a]) {
            sum += g[a * x.g2 + i];
        }
        m.g[e] = sum;
    }
    for (int e = id; e < GDN_COLUMNS * GDN_CHANNELS; e += GDN_THREADS) {
        const int c = e / GDN_CHANNELS, i = e % GDN_CHANNELS;
        m.state[c * (GDN_CHANNELS + 1) + i] =
            d.state[at.sequence * x.s3 + ((int64_t) at.head * x.S + at.column + c) * x.S + channel + i];
    }
}

GDN_FN void gdn_tree_multiply(GDN_REF const gdn_tree_args & x, GDN_SHARED float * shared, int id) {
    const gdn_tree_shared m = gdn_tree_share(shared, x.T);
    for (int e = id; e < x.T * GDN_COLUMNS; e += GDN_THREADS) {
        const int t = e / GDN_COLUMNS, c = e % GDN_COLUMNS;
        float     s_k = 0.0f, s_q = 0.0f;
        for (int i = 0; i < GDN_CHANNELS; ++i) {
            const float s = m.state[c * (GDN_CHANNELS + 1) + i] * (x.channels ? exp(m.g[t * GDN_CHANNELS + i]) : 1.0f);
            s_k += s * m.k[t * GDN_CHANNELS + i];
            s_q += s * m.q[t * GDN_CHANNELS + i];
        }
        m.s_k[e] += s_k;
        m.s_q[e] += s_q;
    }
    int t = 0;
    for (int p = id; p < x.T * (x.T + 1) / 2; p += GDN_THREADS) {
        while ((t + 1) * (t + 2) / 2 <= p) {
            ++t;
        }
        const int a = p - t * (t + 1) / 2;
        if (!gdn_tree_is_above(m, a, t)) {
            continue;
        }
        float k_k = 0.0f, q_k = 0.0f;
        for (int i = 0; i < GDN_CHANNELS; ++i) {
            const float k = m.k[a * GDN_CHANNELS + i] *
                            (x.channels ? exp(m.g[t * GDN_CHANNELS + i] - m.g[a * GDN_CHANNELS + i]) : 1.0f);
            k_k += k * m.k[t * GDN_CHANNELS + i];
            q_k += k * m.q[t * GDN_CHANNELS + i];
        }
        m.k_k[p] += k_k;
        m.q_k[p] += q_k;
    }
}

// Scalar gates are summed along the path, from the row up, so that sums over short paths keep their precision.
GDN_FN void gdn_tree_decay(GDN_REF const gdn_tree_args & x, GDN_SHARED float * shared, int id) {
    const gdn_tree_shared m = gdn_tree_share(shared, x.T);
    if (x.channels) {
        return;
    }
    for (int e = id; e < x.T * GDN_COLUMNS; e += GDN_THREADS) {
        float sum = 0.0f;
        for (int a = e / GDN_COLUMNS; a >= 0; a = m.up[a]) {
            sum += m.g[a * GDN_CHANNELS];
        }
        m.s_k[e] *= exp(sum);
        m.s_q[e] *= exp(sum);
    }
    int t = 0;
    for (int p = id; p < x.T * (x.T + 1) / 2; p += GDN_THREADS) {
        while ((t + 1) * (t + 2) / 2 <= p) {
            ++t;
        }
        const int a   = p - t * (t + 1) / 2;
        float     sum = 0.0f;
        for (int b = t; b > a; b = m.up[b]) {
            sum += m.g[b * GDN_CHANNELS];
        }
        m.k_k[p] *= exp(sum);
        m.q_k[p] *= exp(sum);
    }
}

// Forward substitution, one thread per column.
GDN_FN void gdn_tree_solve(GDN_REF const gdn_tree_args & x, GDN_REF const gdn_tree_data & d, gdn_tree_group at,
    GDN_SHARED float * shared, int id) {
    const gdn_tree_shared m = gdn_tree_share(shared, x.T);
    if (id >= GDN_COLUMNS) {
        return;
    }
    for (int t = 0; t < x.T; ++t) {
        float sum = m.s_k[t * GDN_COLUMNS + id];
        for (int a = 0; a < t; ++a) {
            sum += m.k_k[t * (t + 1) / 2 + a] * m.s_k[a * GDN_COLUMNS + id];
        }
        const float v               = d.v[at.sequence * x.v3 + t * x.v2 + at.head * x.v1 + at.column + id];
        const float beta            = d.beta[at.sequence * x.b3 + t * x.b2 + at.head * x.b1];
        m.s_k[t * GDN_COLUMNS + id] = m.up[t] == GDN_PADDING ? 0.0f : beta * (v - sum);
    }
}

GDN_FN void gdn_tree_write(GDN_REF const gdn_tree_args & x, GDN_REF const gdn_tree_data & d, gdn_tree_group at,
    GDN_SHARED float * shared, int id) {
    const gdn_tree_shared m = gdn_tree_share(shared, x.T);
    for (int e = id; e < x.T * GDN_COLUMNS; e += GDN_THREADS) {
        const int t = e / GDN_COLUMNS, c = e % GDN_COLUMNS;
        float     sum = m.s_q[e];
        for (int a = 0; a <= t; ++a) {
            sum += m.q_k[t * (t + 1) / 2 + a] * m.s_k[a * GDN_COLUMNS + c];
        }
        const int64_t to = (((int64_t) at.sequence * x.T + t) * x.H + at.head) * x.S + at.column + c;
        d.out[to]        = m.up[t] == GDN_PADDING ? 0.0f : sum * x.scale;
        d.out[to + (int64_t) x.n * x.T * x.H * x.S] = m.s_k[e];
    }
}

// One element of the state after the accepted path: channel i of column j.
GDN_FN float gdn_commit_element(GDN_REF const gdn_commit_args & x, GDN_GLOBAL const float * state,
    GDN_GLOBAL const float * k, GDN_GLOBAL const float * delta, GDN_GLOBAL const float * g,
    GDN_GLOBAL const int32_t * path, int i, int j, int head, int sequence) {
    float s = state[sequence * x.s3 + ((int64_t) head * x.S + j) * x.S + i];
    for (int p = 0; p < x.P; ++p) {
        const int t = path[sequence * x.P + p];
        if (t < 0) {
            break;
        }
        s = s * exp(g[sequence * x.g3 + t * x.g2 + head * x.g1 + (x.channels ? i : 0)]) +
            k[sequence * x.k3 + t * x.k2 + head % x.H_k * x.k1 + i] *
                delta[sequence * x.d3 + t * x.d2 + head * x.d1 + j];
    }
    return s;
}

#if !defined(__METAL_VERSION__)

static inline int64_t gdn_stride(const struct ggml_tensor * t, int axis) {
    return (int64_t) (t->nb[axis] / sizeof(float));
}

static inline struct gdn_tree_args gdn_tree_args_of(const ggml_tensor * q, const ggml_tensor * k, const ggml_tensor * v,
    const ggml_tensor * g, const ggml_tensor * beta, const ggml_tensor * state) {
    return { (int32_t) v->ne[0], (int32_t) v->ne[1], (int32_t) k->ne[1], (int32_t) v->ne[2], (int32_t) v->ne[3],
        g->ne[0] > 1, 1.0f / sqrtf((float) v->ne[0]), 0, gdn_stride(q, 1), gdn_stride(q, 2), gdn_stride(q, 3),
        gdn_stride(k, 1), gdn_stride(k, 2), gdn_stride(k, 3), gdn_stride(v, 1), gdn_stride(v, 2), gdn_stride(v, 3),
        gdn_stride(g, 1), gdn_stride(g, 2), gdn_stride(g, 3), gdn_stride(beta, 1), gdn_stride(beta, 2),
        gdn_stride(beta, 3), gdn_stride(state, 3) };
}

static inline struct gdn_commit_args gdn_commit_args_of(const ggml_tensor * state, const ggml_tensor * k,
    const ggml_tensor * delta, const ggml_tensor * g, const ggml_tensor * path) {
    return { (int32_t) delta->ne[0], (int32_t) delta->ne[1], (int32_t) k->ne[1], (int32_t) delta->ne[2],
        (int32_t) path->ne[0], g->ne[0] > 1, gdn_stride(k, 1), gdn_stride(k, 2), gdn_stride(k, 3), gdn_stride(delta, 1),
        gdn_stride(delta, 2), gdn_stride(delta, 3), gdn_stride(g, 1), gdn_stride(g, 2), gdn_stride(g, 3),
        gdn_stride(state, 3) };
}

#endif
#endif
