#include "media/projector_memory.h"

#include "base/abort_guard.h"
#include "base/error.h"
#include "media/projector_params.h"
#include "plan/planned_buffer.h"

namespace dflash {

std::map<ggml_backend_buffer_type_t, size_t> projector_memory(
    const dflash_engine_params & params, const projector_traits & traits, const llama_model * target) {
    std::map<ggml_backend_buffer_type_t, size_t> bytes;

    const plan_scope    scope;
    const abort_guard   guard(abort_guard::phase::load);
    mtmd_context_params context = projector_params(params, traits, target);
    context.warmup              = true;   // else the buffers of passes are not counted
    for (const auto & [device, size] : mtmd_get_memory_usage(params.mmproj, context)) {
        bytes[ggml_backend_dev_buffer_type(device)] += size;
    }
    if (bytes.empty()) {
        throw status_error(DFLASH_ERROR_MODEL, params.mmproj, ": llama.cpp cannot load this projector");
    }
    return bytes;
}

}   // namespace dflash
