// The CPU backend's buffer type for packed weights: "CPU_PANELS".

#pragma once

#include "ggml-backend-impl.h"

namespace dflash {

// context: ggml's extra_buffer_type, which tells ggml the ops that we support on such weights (dispatch.cpp).
ggml_backend_buffer_type panel_buffer_type(void * context);

}   // namespace dflash
