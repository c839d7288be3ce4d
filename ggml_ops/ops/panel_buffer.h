// What patches/0005 hooks into ggml's CPU backend: the buffer type that keeps quantized weights in panels (panel_layout.h), which is also how
// ggml asks us for attention (attention.h) and products with float weights (dense.h).

#pragma once

#include "ggml-backend.h"

ggml_backend_buffer_type_t dflash_panel_buffer_type(void);

// Whether attention and float products are ours: with all other weights in panels, a row's result does not depend on the pass.
bool dflash_is_row_invariant(void);
