// The CPU backend's side of the delta-net tree ops (gdn_tree.h). Hooked in by patches/0006.

#pragma once

#include "gdn/gdn_tree.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ggml_compute_params;

void   dflash_cpu_gdn_tree(const struct ggml_compute_params * params, struct ggml_tensor * op);
void   dflash_cpu_gdn_commit(const struct ggml_compute_params * params, struct ggml_tensor * op);
size_t dflash_cpu_gdn_work_size(const struct ggml_tensor * op, int n_tasks);   // bytes

#ifdef __cplusplus
}
#endif
