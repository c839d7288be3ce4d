#include "base/backends.h"

#include "base/error.h"
#include "base/log.h"
#include "ggml-cpp.h"
#include "llama.h"
#include "llama/devices.h"
#include "modules/library_path.h"

#include <cstdlib>
#include <mutex>

namespace dflash {

namespace {

std::string missing_cpu() {
    if (const char * wanted = std::getenv("DFLASH_CPU_VARIANT"); is_set(wanted)) {
        return concat("DFLASH_CPU_VARIANT is '", wanted,
            "', which is no variant of this build that this processor can run: unset it");
    }
    return "none of the CPU backend's modules beside libggml can be loaded";
}

}   // namespace

void backends_init() {
    log_init();
    static std::once_flag once;
    std::call_once(once, llama_backend_init);
    if (!ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU)) {
        throw status_error(DFLASH_ERROR_INTERNAL, missing_cpu());
    }
}

std::string cpu_variant() {
    ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    const auto         any    = device ? backend_function<void()>(device, "ggml_backend_get_features") : nullptr;
    if (!any) {
        return "";
    }
    const std::string name = library_path(any).stem().u8string(), cpu = "ggml-cpu-";
    const size_t      at = name.find(cpu);
    return at == std::string::npos ? "" : name.substr(at + cpu.size());
}

void set_threads(ggml_backend_dev_t device, ggml_backend_t backend, int32_t n_threads) {
    if (const auto set = backend_function<void(ggml_backend_t, int)>(device, "ggml_backend_set_n_threads")) {
        set(backend, n_threads);
    }
}

ggml_backend_buffer_type_t best_buffer_type(ggml_backend_buffer_type_t plain, ggml_type type, int64_t k, int64_t m) {
    ggml_backend_dev_t device = ggml_backend_buft_get_device(plain);
    device =
        device ? device : ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);   // whose plain memory names none
    const auto own =
        backend_function<ggml_backend_buffer_type_t *(ggml_backend_dev_t)>(device, "ggml_backend_dev_get_extra_bufts");
    for (ggml_backend_buffer_type_t * found = own ? own(device) : nullptr; found && *found; ++found) {
        const ggml_context_ptr        ctx(ggml_init({ 3 * ggml_tensor_overhead(), nullptr, true }));
        const ggml_backend_buffer_ptr nothing(ggml_backend_buft_alloc_buffer(*found, 0));
        ggml_tensor *                 weight = ggml_new_tensor_2d(ctx.get(), type, k, m);
        weight->buffer                       = nothing.get();
        ggml_tensor * rows                   = ggml_new_tensor_2d(ctx.get(), GGML_TYPE_F32, k, 512);
        if (ggml_backend_dev_supports_op(device, ggml_mul_mat(ctx.get(), weight, rows))) {
            return *found;
        }
    }
    return plain;
}

}   // namespace dflash
