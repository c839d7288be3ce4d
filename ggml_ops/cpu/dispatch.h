// Which ops of the CPU backend are computed by our kernels, and by which (patches/0005 calls this).
//
// ggml asks extra buffer types whether they serve an op. Ours is that of weights in panels (gemm/panel_buffer.h); it
// also answers for ops whose tensors lie anywhere: attention, products with float weights, RoPE. Ops that are computed
// together are found before, in op_fusion.h.

#pragma once

#include "ggml-backend.h"

ggml_backend_buffer_type_t dflash_panel_buffer_type(void);

// What libdflash looks up in the CPU backend's registry; null if `name` is not ours:
//   bool dflash_is_row_invariant(void)           whether attention and float products are ours. Then, with all other
//                                                weights in panels, a row's result does not depend on its pass
//   int  dflash_tile_rows(ggml_type)             from how many rows on AMX tiles serve a type, 0: there is no choice
//   void dflash_set_tile_rows(ggml_type, int)    sets it
void * dflash_proc_address(const char * name);

namespace dflash {

// Whether one of our kernels computes an op.
bool is_ours(const ggml_tensor * op);

}   // namespace dflash
