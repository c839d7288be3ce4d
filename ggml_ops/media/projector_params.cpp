#include "media/projector_params.h"

#include "llama/access.h"

#include "mtmd-helper.h"

#include <vector>

namespace dflash {

static void log_like_llama() {
    ggml_log_callback callback = nullptr;
    void *            user     = nullptr;
    llama_log_get(&callback, &user);
    mtmd_helper_log_set(callback, user);
}

mtmd_context_params projector_params(const dflash_engine_params & params, const llama_model * target) {
    log_like_llama();
    const std::vector<ggml_backend_dev_t> devices = access_devices(target);
    mtmd_context_params                   p       = mtmd_context_params_default();
    p.use_gpu                                     = params.mmproj_offload && !devices.empty();
    p.device                                      = p.use_gpu ? devices.front() : nullptr;
    p.print_timings                               = false;
    p.n_threads                                   = params.n_threads_batch;
    p.flash_attn_type                             = (llama_flash_attn_type) params.flash_attn;   // -1, 0, 1 in both
    p.image_min_tokens                            = params.image_min_tokens > 0 ? params.image_min_tokens : -1;
    p.image_max_tokens                            = params.image_max_tokens > 0 ? params.image_max_tokens : -1;
    p.warmup                                      = params.warmup;
    return p;
}

}   // namespace dflash
