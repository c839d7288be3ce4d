#include "llama/weight_lock.h"

#include "llama-mmap.h"
#include "llama-model.h"
#include "llama/devices.h"

#include "ggml-backend.h"

#include <cstdint>
#include <set>

#if !defined(_WIN32)
#include <unistd.h>
#endif

namespace dflash {

namespace {

uintptr_t page_size() {
#if defined(_WIN32)
    return 4096;
#else
    return (uintptr_t) sysconf(_SC_PAGESIZE);
#endif
}

}   // namespace

weight_lock access_lock_packed(const llama_model * model) {
    std::set<ggml_backend_buffer_t> packed;
    for (const auto & [name, w] : model->tensors_by_name) {
        if (w->buffer && is_cpu(device_of(w)) && !ggml_backend_buffer_is_host(w->buffer)) {
            packed.insert(w->buffer);
        }
    }
    auto locks = std::make_shared<llama_mlocks>();
    for (ggml_backend_buffer_t buffer : packed) {
        // from the page's start: whole pages from within one would end in a page behind the buffer, which may be none
        const uintptr_t base = (uintptr_t) ggml_backend_buffer_get_base(buffer), before = base % page_size();
        locks->push_back(std::make_unique<llama_mlock>());
        locks->back()->init((void *) (base - before));
        locks->back()->grow_to(before + ggml_backend_buffer_get_size(buffer));
    }
    return locks;
}

}   // namespace dflash
