// The buffer type of the CPU backend that keeps weights in panels: "CPU_PANELS".

#pragma once

#include "ggml-backend-impl.h"

namespace dflash {

// context: ggml's extra_buffer_type, which says what ops on such weights we serve (dispatch.cpp).
ggml_backend_buffer_type panel_buffer_type(void * context);

}   // namespace dflash
