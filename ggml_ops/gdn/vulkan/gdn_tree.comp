#version 450

// Delta-net trees in closed form: the phases of gdn_tree_gpu.h, with a barrier after each. A workgroup computes
// GDN_COLUMNS columns of one head's state for one sequence. Within a phase no thread reads what another one writes.

#include "gdn_geometry.h"

layout(local_size_x = GDN_THREADS, local_size_y = 1, local_size_z = 1) in;

layout(constant_id = 0) const int ROWS = 64;   // max. rows of a sequence

// Strides and offsets in floats; strides `1`, `2`, `3`: per head, row, sequence.
layout(push_constant) uniform parameter {
    int   S, H, H_k, T, n, channels;
    float scale;
    int   q1, q2, q3, k1, k2, k3, v1, v2, v3, g1, g2, g3, b1, b2, b3, s3;
    int   q0, k0, v0, g0, b0, s0, p0, o0;
} x;

layout(binding = 0) readonly buffer Q { float q[]; };
layout(binding = 1) readonly buffer K { float k[]; };
layout(binding = 2) readonly buffer V { float v[]; };
layout(binding = 3) readonly buffer G { float g[]; };
layout(binding = 4) readonly buffer B { float beta[]; };
layout(binding = 5) readonly buffer S { float state[]; };
layout(binding = 6) readonly buffer P { int parent[]; };
layout(binding = 7) writeonly buffer O { float result[]; };   // outputs, then deltas

// Named as in gdn_tree_gpu.h, with `m_` for its `m.` where a buffer has the name. Pairs: row t and a row a <= t are at
// t * (t + 1) / 2 + a.
shared int   up[ROWS];           // parent
shared uvec2 above[ROWS];        // bits of the ancestors and the row itself; empty in padding rows
shared float m_k[ROWS * GDN_CHANNELS];
shared float m_q[ROWS * GDN_CHANNELS];
shared float m_g[ROWS * GDN_CHANNELS];   // log-gates summed from the root to the row; scalar: the row's own
shared float m_state[GDN_COLUMNS * (GDN_CHANNELS + 1)];
shared float s_k[ROWS * GDN_COLUMNS];      // the decayed committed state times k; after solve: delta
shared float s_q[ROWS * GDN_COLUMNS];
shared float k_k[ROWS * (ROWS + 1) / 2];   // decay from a to t times k_a . k_t, zero unless a is an ancestor
shared float q_k[ROWS * (ROWS + 1) / 2];   // the same with q_t, including t itself

int id, head, sequence, column;

bool is_above(int a, int t) { return (above[t][a / 32] >> (a % 32) & 1u) != 0u; }

void begin() {
    const int first = x.p0 + sequence * x.T;
    for (int t = id; t < x.T; t += GDN_THREADS) {
        uvec2 bits = uvec2(0);
        for (int a = t; a >= 0 && parent[first + t] != GDN_PADDING; a = parent[first + a]) {
            bits[a / 32] |= 1u << (a % 32);
        }
        up[t]    = parent[first + t];
        above[t] = bits;
    }
    for (int e = id; e < x.T * GDN_COLUMNS; e += GDN_THREADS) {
        s_k[e] = s_q[e] = 0.0;
    }
    for (int p = id; p < x.T * (x.T + 1) / 2; p += GDN_THREADS) {
        k_k[p] = q_k[p] = 0.0;
    }
}

void load(int channel) {
    const int head_k = head % x.H_k, gates = x.g0 + sequence * x.g3 + head * x.g1;
    for (int e = id; e < x.T * GDN_CHANNELS; e += GDN_THREADS) {
        const int t = e / GDN_CHANNELS, i = channel + e % GDN_CHANNELS;
        m_k[e]    = k[x.k0 + sequence * x.k3 + t * x.k2 + head_k * x.k1 + i];
        m_q[e]    = q[x.q0 + sequence * x.q3 + t * x.q2 + head_k * x.q1 + i];
        float sum = g[gates + t * x.g2 + (x.channels != 0 ? i : 0)];
        for (int a = up[t]; x.channels != 0 && a >= 0; a = up[a]) {
            sum += g[gates + a * x.g2 + i];
        }
        m_g[e] = sum;
    }
    for (int e = id; e < GDN_COLUMNS * GDN_CHANNELS; e += GDN_THREADS) {
        const int c = e / GDN_CHANNELS, i = e % GDN_CHANNELS;
        m_state[c * (GDN_CHANNELS + 1) + i] =
            state[x.s0 + sequence * x.s3 + (head * x.S + column + c) * x.S + channel + i];
    }
}

void multiply() {
    for (int e = id; e < x.T * GDN_COLUMNS; e += GDN_THREADS) {
        const int t = e / GDN_COLUMNS, c = e % GDN_COLUMNS;
        float     of_k = 0.0, of_q = 0.0;
        for (int i = 0; i < GDN_CHANNELS; ++i) {
            const float s = m_state[c * (GDN_CHANNELS + 1) + i] *
                (x.channels != 0 ? exp(m_g[t * GDN_CHANNELS + i]) : 1.0);
            of_k += s * m_k[t * GDN_CHANNELS + i];
            of_q += s * m_q[t * GDN_CHANNELS + i];
        }
        s_k[e] += of_k;
        s_q[e] += of_q;
    }
    int t = 0;
    for (int p = id; p < x.T * (x.T + 1) / 2; p += GDN_THREADS) {
        while ((t + 1) * (t + 2) / 2 <= p) {
            ++t;
        }
        const int a = p - t * (t + 1) / 2;
        if (!is_above(a, t)) {
            continue;
        }
        float of_k = 0.0, of_q = 0.0;
        for (int i = 0; i < GDN_CHANNELS; ++i) {
            const float decayed = m_k[a * GDN_CHANNELS + i] *
                (x.channels != 0 ? exp(m_g[t * GDN_CHANNELS + i] - m_g[a * GDN_CHANNELS + i]) : 1.0);
            of_k += decayed * m_k[t * GDN_CHANNELS + i];
            of_q += decayed * m_q[t * GDN_CHANNELS + i];
        }
        k_k[p] += of_k;
        q_k[p] += of_q;
    }
}

// Scalar gates are summed along the path, from the row up, so that sums over short paths keep their precision.
void decay() {
    if (x.channels != 0) {
        return;
    }
    for (int e = id; e < x.T * GDN_COLUMNS; e += GDN_THREADS) {
        float sum = 0.0;
        for (int a = e / GDN_COLUMNS; a >= 0; a = up[a]) {
            sum += m_g[a * GDN_CHANNELS];
        }
        s_k[e] *= exp(sum);
        s_q[e] *= exp(sum);
    }
    int t = 0;
    for (int p = id; p < x.T * (x.T + 1) / 2; p += GDN_THREADS) {
        while ((t + 1) * (t + 2) / 2 <= p) {
            ++t;
        }
        const int a   = p - t * (t + 1) / 2;
        float     sum = 0.0;
        for (int b = t; b > a; b = up[b]) {
            sum += m_g[b * GDN_CHANNELS];
        }
        k_k[p] *= exp(sum);
        q_k[p] *= exp(sum);
    }
}

// Forward substitution, one thread per column.
void solve() {
    if (id >= GDN_COLUMNS) {
        return;
    }
    for (int t = 0; t < x.T; ++t) {
        float sum = s_k[t * GDN_COLUMNS + id];
        for (int a = 0; a < t; ++a) {
            sum += k_k[t * (t + 1) / 2 + a] * s_k[a * GDN_COLUMNS + id];
        }
        const float value = v[x.v0 + sequence * x.v3 + t * x.v2 + head * x.v1 + column + id];
        const float gate  = beta[x.b0 + sequence * x.b3 + t * x.b2 + head * x.b1];
        s_k[t * GDN_COLUMNS + id] = up[t] == GDN_PADDING ? 0.0 : gate * (value - sum);
    }
}

void write() {
    for (int e = id; e < x.T * GDN_COLUMNS; e += GDN_THREADS) {
        const int t = e / GDN_COLUMNS, c = e % GDN_COLUMNS;
        float     sum = s_q[e];
        for (int a = 0; a <= t; ++a) {
            sum += q_k[t * (t + 1) / 2 + a] * s_k[a * GDN_COLUMNS + c];
        }
        const int to = x.o0 + ((sequence * x.T + t) * x.H + head) * x.S + column + c;
        result[to]                         = up[t] == GDN_PADDING ? 0.0 : sum * x.scale;
        result[to + x.n * x.T * x.H * x.S] = s_k[e];
    }
}

void main() {
    id       = int(gl_LocalInvocationID.x);
    column   = int(gl_WorkGroupID.x) * GDN_COLUMNS;
    head     = int(gl_WorkGroupID.y);
    sequence = int(gl_WorkGroupID.z);

    begin();
    barrier();
    for (int channel = 0; channel < x.S; channel += GDN_CHANNELS) {
        load(channel);
        barrier();
        multiply();
        barrier();
    }
    decay();
    barrier();
    solve();
    barrier();
    write();
}
