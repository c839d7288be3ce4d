// Ops of a pass that are computed together: threads wait for each other less often, and rows are quantized once. These
// sequences of nodes are fused:
//
//   [ADD] RMS_NORM MUL [MUL_MAT ...]          each thread computes its rows, then all the products of the result
//                                             with packed weights
//   SWIGLU MUL_MAT ...                        the same; each thread computes its part of the values
//   ... MUL_MAT MUL_MAT SWIGLU MUL_MAT ...    after a norm or alone: the results of gate and up stay with the thread
//                                             that computes them, if nothing else reads them
//   MUL_MAT MUL_MAT ...                       products of the same input
//   RMS_NORM MUL ROPE                         row by row
//   SET_ROWS SET_ROWS                         of different tensors
//
// All other tensors are the same as without fusion, bit for bit. Only an RMS norm is summed in a different order than
// ggml's.

#pragma once

#include "ggml.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ggml_cgraph;
struct ggml_compute_params;

// Called by every thread for nodes[at] (patches/0011). Returns how many of the following nodes were computed with it;
// 0: nothing was computed, not even nodes[at].
int dflash_fused_compute(const struct ggml_compute_params * params, const struct ggml_cgraph * graph, int at);

// Called before memory is allocated for a graph's tensors: makes products of the same input adjacent (Q, K and V).
void dflash_fused_order(struct ggml_cgraph * graph);

#ifdef __cplusplus
}
#endif
