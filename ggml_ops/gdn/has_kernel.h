// Whether a device runs the two ops of gdn_tree.h.

#pragma once

#include "ggml-backend.h"

GGML_API bool ggml_gdn_has_kernel(ggml_backend_dev_t device, int64_t head, int64_t heads_k, int64_t heads_v);
