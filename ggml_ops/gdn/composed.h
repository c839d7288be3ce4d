// The two ops of gdn_tree.h as graphs of ggml's own ops, for backends without our kernels (Vulkan, SYCL, ...). They use
// the closed form, so results are equal up to rounding. Shapes are those of gdn_tree.h, but only scalar gates are
// supported, and parents and paths are f32 masks that the host computes.

#pragma once

#include "gdn/gdn_tree.h"

struct gdn_tree_parts {
    ggml_tensor * output;   // [S, H_v, T, n]
    ggml_tensor * delta;    // [S, H_v, T, n]
};

// mask [T, T, 1, n] f32: mask[t][a] is 1 where row a is row t or an ancestor of it; rows of padding are zero.
GGML_API gdn_tree_parts ggml_gdn_tree_composed(ggml_context * ctx, ggml_tensor * q, ggml_tensor * k, ggml_tensor * v,
    ggml_tensor * g, ggml_tensor * beta, ggml_tensor * state, ggml_tensor * mask);
GGML_API void           ggml_gdn_tree_mask(const int32_t * parent, int64_t T, int64_t n, float * mask);

// mask [T, T + 2, 1, n] f32: row a of the path has 1 for each row of the path after a; the last two rows both have 1
// for every row of the path.
GGML_API ggml_tensor * ggml_gdn_commit_composed(
    ggml_context * ctx, ggml_tensor * state, ggml_tensor * k, ggml_tensor * delta, ggml_tensor * g, ggml_tensor * mask);
GGML_API void ggml_gdn_commit_mask(const int32_t * path, int64_t P, int64_t T, int64_t n, float * mask);
