#include "rpc/own_ops.h"

#include "gdn/has_kernel.h"

#include <algorithm>

namespace dflash {

uint8_t rpc_own_ops(const std::vector<ggml_backend_t> & backends) {
    const bool all = std::all_of(backends.begin(), backends.end(), [](ggml_backend_t backend) {
        ggml_backend_dev_t device = ggml_backend_get_device(backend);
        return ggml_gdn_has_kernel(device, 64, 1, 1) && ggml_gdn_has_kernel(device, 128, 1, 1);
    });
    return OWN_BUILD | OWN_OPS | (all ? HAS_KERNELS : 0);
}

}   // namespace dflash
