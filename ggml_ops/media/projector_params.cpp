#include "media/projector_params.h"

#include "base/error.h"
#include "llama/access.h"
#include "media/media_limits.h"

namespace dflash {

static llama_flash_attn_type flash_attention(int32_t wanted) {
    return wanted < 0 ? LLAMA_FLASH_ATTN_TYPE_AUTO
           : wanted   ? LLAMA_FLASH_ATTN_TYPE_ENABLED
                      : LLAMA_FLASH_ATTN_TYPE_DISABLED;
}

bool is_offloaded(const dflash_engine_params & params, const llama_model * target) {
    return params.mmproj_offload && !access_devices(target).empty();
}

mtmd_context_params projector_params(
    const dflash_engine_params & params, const projector_traits & traits, const llama_model * target) {
    const int64_t most = max_image_tokens(traits);
    refuse_if(params.image_max_tokens > most, "image_max_tokens is ", params.image_max_tokens,
        "; this projector takes at most ", most);
    mtmd_context_params p = mtmd_context_params_default();
    p.use_gpu             = is_offloaded(params, target);
    p.device              = p.use_gpu ? access_devices(target).front() : nullptr;
    p.print_timings       = false;
    p.n_threads           = params.n_threads_batch;
    p.flash_attn_type     = flash_attention(params.flash_attn);
    p.image_min_tokens    = params.image_min_tokens > 0 ? params.image_min_tokens : -1;
    p.image_max_tokens    = image_max_tokens(traits, params.image_max_tokens);
    return p;
}

}   // namespace dflash
