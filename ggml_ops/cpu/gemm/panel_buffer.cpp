#include "cpu/gemm/panel_buffer.h"

#include "cpu/gemm/packed_gemm.h"
#include "cpu/gemm/packed_weights.h"
#include "cpu/huge_pages.h"
#include "ggml-cpu.h"
#include "ggml-impl.h"

#include <cstring>

namespace dflash {

namespace {

// ---- buffer ----

void   free_buffer(ggml_backend_buffer_t buffer) { ggml_aligned_free(buffer->context, buffer->size); }
void * get_base(ggml_backend_buffer_t buffer) { return buffer->context; }

void set_tensor(ggml_backend_buffer_t, ggml_tensor * tensor, const void * data, size_t offset, size_t size) {
    GGML_ASSERT(offset == 0 && size == ggml_nbytes(tensor));
    pack_weights(tensor, data, tensor->data);
}

void clear(ggml_backend_buffer_t buffer, uint8_t value) { std::memset(buffer->context, value, buffer->size); }

const ggml_backend_buffer_i BUFFER_INTERFACE = {
    /* .free_buffer     = */ free_buffer,
    /* .get_base        = */ get_base,
    /* .init_tensor     = */ nullptr,
    /* .memset_tensor   = */ nullptr,
    /* .set_tensor      = */ set_tensor,
    /* .get_tensor      = */ nullptr,
    /* .set_tensor_2d   = */ nullptr,
    /* .get_tensor_2d   = */ nullptr,
    /* .cpy_tensor      = */ nullptr,
    /* .clear           = */ clear,
    /* .reset           = */ nullptr,
};

// ---- buffer type ----

const char * get_name(ggml_backend_buffer_type_t) { return "CPU_PANELS"; }

ggml_backend_buffer_t alloc_buffer(ggml_backend_buffer_type_t type, size_t size) {
    void * data = ggml_aligned_malloc(size);
    ask_for_huge_pages(data, size);   // 10 to 20 % more bandwidth
    return data ? ggml_backend_buffer_init(type, BUFFER_INTERFACE, data, size) : nullptr;
}

size_t get_alignment(ggml_backend_buffer_type_t) { return 64; }

size_t get_alloc_size(ggml_backend_buffer_type_t, const ggml_tensor * tensor) {
    return can_pack(tensor) ? n_panels_of(tensor) * tensor->ne[2] * panel_bytes(tensor) : ggml_nbytes(tensor);
}

}   // namespace

ggml_backend_buffer_type panel_buffer_type(void * context) {
    return {
        /* .iface = */ {
            /* .get_name       = */ get_name,
            /* .alloc_buffer   = */ alloc_buffer,
            /* .get_alignment  = */ get_alignment,
            /* .get_max_size   = */ nullptr,
            /* .get_alloc_size = */ get_alloc_size,
            /* .is_host        = */ nullptr,
        },
        /* .device  = */ ggml_backend_reg_dev_get(ggml_backend_cpu_reg(), 0),
        /* .context = */ context,
    };
}

}   // namespace dflash
