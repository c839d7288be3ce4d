// The CPU backend's buffer type that keeps quantized weights in panels (panel_layout.h). Hooked in by patches/0005.

#pragma once

#include "ggml-backend.h"

// Null where the CPU has no kernel for it, or with DFLASH_PANELS=0.
ggml_backend_buffer_type_t dflash_panel_buffer_type(void);
