// Gated delta-net layers over a draft tree, without a state per node: two ggml ops. docs/hybrid.md says how they work.
//
// Shapes, all f32 with contiguous rows unless said otherwise. S: size of a head (64 or 128); H_v: value heads; H_k: key
// heads, H_v % H_k == 0, value head h reads key head h % H_k, as in ggml_gated_delta_net; T: rows of a sequence, 1..64;
// n: sequences.
//
//   q, k    [S, H_k, T, n]     normalised like the input of ggml_gated_delta_net; the op scales by 1/sqrt(S)
//   v       [S, H_v, T, n]
//   g       [1, H_v, T, n]     log-gate of a head, or [S, H_v, T, n]: one per channel
//   beta    [1, H_v, T, n]
//   state   [S, S, H_v, n]     as ggml_gated_delta_net stores it (S[i][j] at j*S + i); contiguous but for the stride
//                              between sequences
//   parent  [T, n] i32         row of the parent in the same sequence, smaller than the row's own; -1: the committed
//                              state; -2: a padding row
//   path    [P, n] i32         the accepted rows from the root on, P <= 64; from the first -1 on padding
//
// CPU backends check parent and path and abort on bad values; device backends trust them.

#pragma once

#include "ggml.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GGML_GDN_MAX_ROWS 64
#define GGML_GDN_ROOT     (-1)
#define GGML_GDN_PADDING  (-2)

// Outputs and replay data (delta) of every row of n trees; the states are only read. Padding rows get zeros.
// On the CPU, each row is bit for bit what ggml_gated_delta_net computes for the path from the root to it.
// Result [S * H_v, 2 * T * n]: see ggml_gdn_tree_output and ggml_gdn_tree_delta.
GGML_API struct ggml_tensor * ggml_gdn_tree(struct ggml_context * ctx, struct ggml_tensor * q, struct ggml_tensor * k,
    struct ggml_tensor * v, struct ggml_tensor * g, struct ggml_tensor * beta, struct ggml_tensor * state,
    struct ggml_tensor * parent);

// Views [S, H_v, T, n] of ggml_gdn_tree's result: the layer's output, and delta = beta * (v - e^g S'k) for the tape.
GGML_API struct ggml_tensor * ggml_gdn_tree_output(struct ggml_context * ctx, struct ggml_tensor * tree);
GGML_API struct ggml_tensor * ggml_gdn_tree_delta(struct ggml_context * ctx, struct ggml_tensor * tree);

// The states after the accepted paths, [S, S, H_v, n], computed from the rows' k, g and the delta of ggml_gdn_tree. On
// the CPU, bit for bit the state of ggml_gated_delta_net after the path; an empty path copies the state.
GGML_API struct ggml_tensor * ggml_gdn_commit(struct ggml_context * ctx, struct ggml_tensor * state,
    struct ggml_tensor * k, struct ggml_tensor * delta, struct ggml_tensor * g, struct ggml_tensor * path);

// Whether our kernels can run this op. All backends use it in supports_op.
GGML_API bool ggml_gdn_supported(const struct ggml_tensor * op);

#ifdef __cplusplus
}
#endif
