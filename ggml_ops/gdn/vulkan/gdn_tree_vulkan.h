// The Vulkan backend's side of the delta-net tree ops (gdn_tree.h). Hooked in by patches/0016.

#pragma once

#include "gdn/gdn_tree.h"
#include "ggml-vulkan-common.h"

#include <array>
#include <functional>

// Calls create(pipeline, name, spv_size, spv, n_buffers, push_constant_size, wg_denoms, specialization_constants) for
// each pipeline of the two ops.
using dflash_vk_create = std::function<void(vk_pipeline &, const char *, size_t, const void *, uint32_t, uint32_t,
    std::array<uint32_t, 3>, const std::vector<uint32_t> &)>;

void dflash_vk_gdn_create(vk_device & device, const dflash_vk_create & create);
bool dflash_vk_gdn_supported(const vk_device & device, const ggml_tensor * op);
void dflash_vk_gdn(ggml_backend_vk_context * ctx, vk_context & subctx, ggml_tensor * op);   // dispatches either op
