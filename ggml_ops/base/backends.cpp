#include "base/backends.h"

#include "base/error.h"
#include "base/log.h"
#include "ggml-backend.h"
#include "llama.h"
#include "modules/library_path.h"

#include <cstdlib>
#include <mutex>

namespace dflash {

namespace {

std::string missing_cpu() {
    const char * wanted = std::getenv("DFLASH_CPU_VARIANT");
    if (wanted && *wanted) {
        return std::string("DFLASH_CPU_VARIANT is '") + wanted +
               "', which is no variant of this build that this processor can run: unset it";
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
    void *             address =
        device ? ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device), "ggml_backend_get_features")
                           : nullptr;
    if (!address) {
        return "";
    }
    const std::string name = library_path(reinterpret_cast<void (*)()>(address)).stem().u8string(), cpu = "ggml-cpu-";
    const size_t      at = name.find(cpu);
    return at == std::string::npos ? "" : name.substr(at + cpu.size());
}

}   // namespace dflash
