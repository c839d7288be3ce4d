#include "media/projector_params.h"

#include "base/error.h"
#include "llama/access.h"
#include "llama/devices.h"
#include "media/media_limits.h"

#include <algorithm>
#include <vector>

namespace dflash {

static llama_flash_attn_type flash_attention(int32_t wanted) {
    return wanted < 0 ? LLAMA_FLASH_ATTN_TYPE_AUTO
           : wanted   ? LLAMA_FLASH_ATTN_TYPE_ENABLED
                      : LLAMA_FLASH_ATTN_TYPE_DISABLED;
}

// Null: the CPU. Not an RPC server's: a medium would cross the network after each group of its ops.
static ggml_backend_dev_t device_of_projector(const dflash_engine_params & params, const llama_model * target) {
    const std::vector<ggml_backend_dev_t> devices = access_devices(target);
    const auto                            here    = std::find_if_not(devices.begin(), devices.end(), is_rpc);
    return params.mmproj_offload && here != devices.end() ? *here : nullptr;
}

bool is_offloaded(const dflash_engine_params & params, const llama_model * target) {
    return device_of_projector(params, target);
}

dflash_engine_params params_beside(const dflash_engine_params & target, const dflash_engine_params & given) {
    dflash_engine_params params = target;
    if (given.flash_attn < 0 && !target.flash_attn) {
        params.flash_attn = given.flash_attn;
    }
    return params;
}

mtmd_context_params projector_params(
    const dflash_engine_params & params, const projector_traits & traits, const llama_model * target) {
    const int64_t most = max_image_tokens(traits);
    refuse_if(params.image_max_tokens > most, "image_max_tokens is ", params.image_max_tokens,
        "; this projector takes at most ", most);
    mtmd_context_params p = mtmd_context_params_default();
    p.device              = device_of_projector(params, target);
    p.use_gpu             = p.device;
    p.print_timings       = false;
    p.n_threads           = params.n_threads_batch;
    p.flash_attn_type     = flash_attention(params.flash_attn);
    p.image_min_tokens    = params.image_min_tokens > 0 ? params.image_min_tokens : -1;
    p.image_max_tokens    = image_max_tokens(traits, params.image_max_tokens);
    return p;
}

}   // namespace dflash
