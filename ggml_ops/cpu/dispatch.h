// Chooses which ops of the CPU backend our kernels compute, and which kernel (called by patches/0005).
//
// ggml asks extra buffer types whether they support an op. Ours holds packed weights (gemm/panel_buffer.h), but also
// supports ops whose tensors may be anywhere: attention, products with float weights, RoPE. Ops that are computed
// together are found earlier, in op_fusion.h.

#pragma once

#include "ggml-backend.h"

ggml_backend_buffer_type_t dflash_panel_buffer_type(void);

// Functions that libdflash looks up in the CPU backend's registry; null if `name` is not ours:
//   bool dflash_is_row_invariant(void)           whether we compute attention and float products. If all other weights
//                                                are packed, a row's result does not depend on its pass
//   void dflash_pause_background(begin, end)     threads in the background wait between these (threads/background.h)
//   bool dflash_can_pack_type(ggml_type)         whether weights of this type can be packed
//   int  dflash_tile_rows(ggml_type)             the smallest number of rows for AMX tiles, 0 if there is no choice
//   void dflash_set_tile_rows(ggml_type, int)    sets it
void * dflash_proc_address(const char * name);

namespace dflash {

// Whether one of our kernels computes an op.
bool is_ours(const ggml_tensor * op);

}   // namespace dflash
