// Ops of a pass that are computed as one step: fewer times to wait for the other threads, and rows quantized once. A
// step is one of
//   [ADD] RMS_NORM MUL [MUL_MAT ...]    row by row, every thread all of it for its rows; then products of what that
//   gave with matrices in panels SWIGLU MUL_MAT ...                  likewise, every thread for its positions
//   ... MUL_MAT MUL_MAT SWIGLU MUL_MAT ...   behind a norm or alone: a thread's results of gate and up stay with it, if
//   nobody else sees them MUL_MAT MUL_MAT ...                 products of one input RMS_NORM MUL ROPE row by row
//   SET_ROWS SET_ROWS                   of different tensors
// Every other tensor of these is written as its op alone would, with the same bits whatever is computed together; but
// an RMS norm's sum is made in another order than ggml's.

#pragma once

#include "ggml.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ggml_cgraph;
struct ggml_compute_params;

// Called by every thread for nodes[at] (patches/0011). How many nodes behind it were computed along with it; 0: none,
// and not this one either.
int dflash_fused_compute(const struct ggml_compute_params * params, const struct ggml_cgraph * graph, int at);

// Before memory is given to a graph's tensors: products of one input are moved together (Q, K and V).
void dflash_fused_order(struct ggml_cgraph * graph);

#ifdef __cplusplus
}
#endif
