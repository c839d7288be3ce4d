// What patches/0005 hooks into ggml's CPU backend: the buffer type that keeps quantized weights in panels
// (panel_layout.h), which is also how ggml asks us for attention (attention.h) and products with float weights
// (dense.h).

#pragma once

#include "ggml-backend.h"

ggml_backend_buffer_type_t dflash_panel_buffer_type(void);

// What libdflash asks the CPU backend's registry for, null if `name` is not ours:
//   bool dflash_is_row_invariant(void)             whether attention and float products are ours: with all other
//   weights in panels, a row's result does not depend on the pass int  dflash_tile_rows(ggml_type)               from
//   how many rows on tiles serve a type, 0 where there is no choice void dflash_set_tile_rows(ggml_type, int)      sets
//   it
void * dflash_proc_address(const char * name);
