// The Metal backend's side of the delta-net tree ops (gdn_tree.h). Hooked in by patches/0006.

#pragma once

#include "gdn/gdn_tree.h"
#include "ggml-metal-device.h"

void dflash_metal_gdn(
    ggml_metal_library_t lib, ggml_metal_encoder_t enc, const ggml_tensor * op);   // encodes either op
