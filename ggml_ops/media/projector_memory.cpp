#include "media/projector_memory.h"

#include "base/abort_guard.h"
#include "base/error.h"
#include "files/gguf_check.h"
#include "files/projector_check.h"
#include "llama/access.h"
#include "media/media_limits.h"
#include "plan/planned_buffer.h"

#include "mtmd.h"

namespace dflash {

namespace {

// On the first device that the target may use; without one, or unless it is to be offloaded, on the CPU.
mtmd_context_params context_params(
    const dflash_engine_params & params, const llama_model * target, const projector_traits & traits) {
    const std::vector<ggml_backend_dev_t> devices = access_devices(target);
    mtmd_context_params                   context = mtmd_context_params_default();
    context.use_gpu                               = params.mmproj_offload && !devices.empty();
    context.device                                = context.use_gpu ? devices.front() : nullptr;
    context.n_threads                             = params.n_threads_batch;
    context.flash_attn_type                       = (llama_flash_attn_type) params.flash_attn;
    context.image_min_tokens                      = params.image_min_tokens > 0 ? params.image_min_tokens : -1;
    context.image_max_tokens                      = image_max_tokens(traits, params.image_max_tokens);
    context.warmup                                = true;   // else the buffers of passes are not counted
    return context;
}

}   // namespace

std::map<ggml_backend_buffer_type_t, size_t> projector_memory(
    const dflash_engine_params & params, const llama_model * target) {
    std::map<ggml_backend_buffer_type_t, size_t> bytes;
    if (!params.mmproj) {
        return bytes;
    }
    const projector_traits traits = traits_of(check_gguf(params.mmproj, gguf_use::project));
    const plan_scope       scope;
    const abort_guard      guard(abort_guard::phase::load);
    for (const auto & [device, size] : mtmd_get_memory_usage(params.mmproj, context_params(params, target, traits))) {
        bytes[ggml_backend_dev_buffer_type(device)] += size;
    }
    if (bytes.empty()) {
        throw status_error(DFLASH_ERROR_MODEL, params.mmproj, ": llama.cpp cannot load this projector");
    }
    return bytes;
}

}   // namespace dflash
