#include "plan/planned_buffer.h"

#include "ggml-backend-impl.h"

#include <atomic>
#include <cstdint>
#include <cstring>

namespace dflash {

namespace {

thread_local int n_plans = 0;

// Distinct addresses, as if the buffers had memory.
void * next_address(size_t size) {
    constexpr uintptr_t           PAGE = 1 << 16;
    static std::atomic<uintptr_t> next{ PAGE };
    return (void *) next.fetch_add((size + 2 * PAGE - 1) / PAGE * PAGE);
}

ggml_backend_buffer_t planned_buffer(ggml_backend_buffer_type_t type, size_t size) {
    ggml_backend_buffer_i functions = {};
    functions.get_base              = [](ggml_backend_buffer_t buffer) { return buffer->context; };
    functions.memset_tensor         = [](ggml_backend_buffer_t, ggml_tensor *, uint8_t, size_t, size_t) {};
    functions.set_tensor            = [](ggml_backend_buffer_t, ggml_tensor *, const void *, size_t, size_t) {};
    functions.get_tensor            = [](ggml_backend_buffer_t, const ggml_tensor *, void * data, size_t, size_t n) {
        memset(data, 0, n);
    };
    functions.clear = [](ggml_backend_buffer_t, uint8_t) {};
    return ggml_backend_buffer_init(type, functions, next_address(size), size);
}

}   // namespace

void plan_begin() { ++n_plans; }
void plan_end() { --n_plans; }

ggml_backend_buffer_t alloc_buffer(ggml_backend_buffer_type_t type, size_t size) {
    return n_plans > 0 ? planned_buffer(type, size) : type->iface.alloc_buffer(type, size);
}

}   // namespace dflash
