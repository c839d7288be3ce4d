#include "panel_buffer.h"

#include "attention.h"
#include "ggml-backend-impl.h"
#include "ggml-cpu.h"
#include "ggml-impl.h"
#include "panel_layout.h"
#include "traits.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace dflash {

namespace {

constexpr int64_t CHUNK_ROWS = 64;   // rows of a pass that are computed before the next panel is read

// Switches for measurements.
bool is_on(const char * name) {
    const char * s = std::getenv(name);
    return !(s && std::strcmp(s, "0") == 0);
}

// A weight that panels can hold.
bool fits(const ggml_tensor * w) {
    static const bool on = is_on("DFLASH_PANELS");
    return on && panel_has_type(w->type) && panel_find_kernel(w->type) && w->ne[2] == 1 && w->ne[3] == 1 && w->ne[0] % panel_block(w->type) == 0 && w->ne[1] % PANEL == 0;
}

class traits : public ggml::cpu::tensor_traits {
    bool work_size(int, const ggml_tensor * op, size_t & size) override {
        size = (size_t) ggml_nrows(op->src[1]) * row_bytes(op->src[0]->type, op->src[0]->ne[0]);
        return op->op == GGML_OP_MUL_MAT;
    }

    bool compute_forward(ggml_compute_params * params, ggml_tensor * op) override {
        if (op->op != GGML_OP_MUL_MAT) {
            return false;
        }
        const ggml_tensor * w = op->src[0], * x = op->src[1];
        const ggml_type type = w->type;
        const int64_t   k = w->ne[0], n = ggml_nrows(x), blocks = k / panel_block(type), panels = w->ne[1] / PANEL;
        const size_t    stride = row_bytes(type, k);
        char * rows = (char *) params->wdata;

        const auto row_of = [](const ggml_tensor * t, int64_t i) {
            const int64_t i1 = i % t->ne[1], i2 = i / t->ne[1] % t->ne[2], i3 = i / (t->ne[1] * t->ne[2]);
            return (char *) t->data + i1 * t->nb[1] + i2 * t->nb[2] + i3 * t->nb[3];
        };
        for (int64_t i = params->ith; i < n; i += params->nth) {
            row_quantize(type, (const float *) row_of(x, i), rows + i * stride, k);
        }
        // Panels are handed out in chunks as threads come for them; a result does not depend on who computes it.
        const int64_t chunk = std::max<int64_t>(4, panels / (8 * params->nth) / 4 * 4);
        if (params->ith == 0) {
            ggml_threadpool_chunk_set(params->threadpool, params->nth);
        }
        ggml_barrier(params->threadpool);

        const panel_kernel kernel = panel_find_kernel(type);
        for (int64_t c = params->ith; c * chunk < panels; c = ggml_threadpool_chunk_add(params->threadpool, 1)) {
            const int64_t end = std::min(panels, (c + 1) * chunk);
            for (int64_t i = 0; i < n; i += CHUNK_ROWS) {
                const int64_t take = std::min(CHUNK_ROWS, n - i);
                // a dst that is not one matrix goes row by row
                if (op->ne[2] * op->ne[3] == 1) {
                    kernel(w->data, blocks, c * chunk, end, rows + i * stride, stride, (int) take, (float *) row_of(op, i), op->nb[1] / sizeof(float));
                } else {
                    for (int64_t j = i; j < i + take; ++j) {
                        kernel(w->data, blocks, c * chunk, end, rows + j * stride, stride, 1, (float *) row_of(op, j), 0);
                    }
                }
            }
        }
        return true;
    }
};

traits & the_traits() {
    static traits t;
    return t;
}

class attention_traits : public ggml::cpu::tensor_traits {
    bool work_size(int n_threads, const ggml_tensor * op, size_t & size) override {
        size = attention_work_size(n_threads, op);
        return true;
    }

    bool compute_forward(ggml_compute_params * params, ggml_tensor * op) override {
        attention_compute(params, op);
        return true;
    }
};

// ---- buffer ----

void * base(ggml_backend_buffer_t buffer) { return buffer->context; }
void   release(ggml_backend_buffer_t buffer) { ggml_aligned_free(buffer->context, buffer->size); }

ggml_status init_tensor(ggml_backend_buffer_t, ggml_tensor * tensor) {
    tensor->extra = &the_traits();
    return GGML_STATUS_SUCCESS;
}

void set_tensor(ggml_backend_buffer_t, ggml_tensor * tensor, const void * data, size_t offset, size_t size) {
    GGML_ASSERT(offset == 0 && size == ggml_nbytes(tensor));
    const int64_t blocks = tensor->ne[0] / panel_block(tensor->type);
    const size_t  bytes  = (size_t) blocks * panel_block_bytes(tensor->type);
    for (int64_t p = 0; p < tensor->ne[1] / PANEL; ++p) {
        panel_pack(tensor->type, (const char *) data + p * PANEL * tensor->nb[1], tensor->nb[1], blocks, (char *) tensor->data + p * bytes);
    }
}

void clear(ggml_backend_buffer_t buffer, uint8_t value) { std::memset(buffer->context, value, buffer->size); }

const ggml_backend_buffer_i interface = {
    /* .free_buffer     = */ release,
    /* .get_base        = */ base,
    /* .init_tensor     = */ init_tensor,
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

const char * name(ggml_backend_buffer_type_t) { return "CPU_PANELS"; }

ggml_backend_buffer_t alloc(ggml_backend_buffer_type_t type, size_t size) {
    void * data = ggml_aligned_malloc(size);
    return data ? ggml_backend_buffer_init(type, interface, data, size) : nullptr;
}

size_t alignment(ggml_backend_buffer_type_t) { return 64; }

size_t alloc_size(ggml_backend_buffer_type_t, const ggml_tensor * tensor) {
    return fits(tensor) ? (size_t) (tensor->ne[1] / PANEL) * (tensor->ne[0] / panel_block(tensor->type)) * panel_block_bytes(tensor->type) : ggml_nbytes(tensor);
}

class extra : public ggml::cpu::extra_buffer_type {
    bool supports_op(ggml_backend_dev_t, const ggml_tensor * op) override {
        const ggml_tensor * w = op->src[0], * x = op->src[1];
        return op->op == GGML_OP_MUL_MAT && w->buffer && w->buffer->buft == dflash_panel_buffer_type() && ggml_is_contiguous(w) && fits(w) && x->type == GGML_TYPE_F32 &&
            x->nb[0] == sizeof(float) && op->type == GGML_TYPE_F32 && (!x->buffer || ggml_backend_buft_is_host(x->buffer->buft));
    }

    ggml::cpu::tensor_traits * get_tensor_traits(const ggml_tensor * op) override {
        if (op->op == GGML_OP_FLASH_ATTN_EXT) {
            static const bool on = is_on("DFLASH_ATTENTION");
            static attention_traits attention;
            return on && attention_fits(op) ? &attention : nullptr;
        }
        return op->op == GGML_OP_MUL_MAT && op->src[0]->buffer && op->src[0]->buffer->buft == dflash_panel_buffer_type() ? (ggml::cpu::tensor_traits *) op->src[0]->extra : nullptr;
    }
};

}  // namespace

}  // namespace dflash

ggml_backend_buffer_type_t dflash_panel_buffer_type(void) {
    static ggml_backend_buffer_type type = {
        /* .iface = */ {
            /* .get_name       = */ dflash::name,
            /* .alloc_buffer   = */ dflash::alloc,
            /* .get_alignment  = */ dflash::alignment,
            /* .get_max_size   = */ nullptr,
            /* .get_alloc_size = */ dflash::alloc_size,
            /* .is_host        = */ nullptr,
        },
        /* .device  = */ ggml_backend_reg_dev_get(ggml_backend_cpu_reg(), 0),
        /* .context = */ new dflash::extra(),
    };
    return &type;
}
