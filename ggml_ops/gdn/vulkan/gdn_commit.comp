#version 450

// The states after the accepted paths, one element per thread: gdn_commit_element() of gdn_tree_gpu.h.

#include "gdn_geometry.h"

layout(local_size_x = GDN_THREADS, local_size_y = 1, local_size_z = 1) in;

// Strides and offsets in floats; strides `1`, `2`, `3`: per head, row, sequence.
layout(push_constant) uniform parameter {
    int S, H, H_k, T, P, channels;
    int k1, k2, k3, d1, d2, d3, g1, g2, g3, s3;
    int s0, k0, d0, g0, p0, o0;
} x;

layout(binding = 0) readonly buffer S { float state[]; };
layout(binding = 1) readonly buffer K { float k[]; };
layout(binding = 2) readonly buffer D { float delta[]; };
layout(binding = 3) readonly buffer G { float g[]; };
layout(binding = 4) readonly buffer P { int path[]; };
layout(binding = 5) writeonly buffer O { float result[]; };

void main() {
    const int element = int(gl_GlobalInvocationID.x), i = element % x.S, j = element / x.S;
    const int head = int(gl_WorkGroupID.y), sequence = int(gl_WorkGroupID.z);

    float s = state[x.s0 + sequence * x.s3 + (head * x.S + j) * x.S + i];
    for (int p = 0; p < x.P; ++p) {
        const int t = path[x.p0 + sequence * x.P + p];
        if (t < 0) {
            break;
        }
        s = s * exp(g[x.g0 + sequence * x.g3 + t * x.g2 + head * x.g1 + (x.channels != 0 ? i : 0)]) +
            k[x.k0 + sequence * x.k3 + t * x.k2 + head % x.H_k * x.k1 + i] *
                delta[x.d0 + sequence * x.d3 + t * x.d2 + head * x.d1 + j];
    }
    result[x.o0 + (sequence * x.H + head) * x.S * x.S + element] = s;
}
