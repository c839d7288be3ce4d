#include "cpu/dispatch.h"

#include "cpu/attention/attention.h"
#include "cpu/gemm/float_gemm.h"
#include "ggml-backend-impl.h"
#include "ggml-cpu.h"
#include "ggml-impl.h"
#include "cpu/huge_pages.h"
#include "cpu/gemm/packed_layout.h"
#include "cpu/gemm/packed_gemm.h"
#include "cpu/rows/rope.h"
#include "cpu/switches.h"
#include "traits.h"
#include "cpu/attention/attention_unfused.h"

#include <algorithm>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace dflash {

namespace {

bool attention_on() {
    static const bool on = is_on("DFLASH_ATTENTION") && *attention_tiles();
    return on;
}
bool dense_on() {
    static const bool on = is_on("DFLASH_DENSE") && *dense_kernels();
    return on;
}

class traits : public ggml::cpu::tensor_traits {
    bool work_size(int, const ggml_tensor * op, size_t & size) override {
        size = op->op == GGML_OP_MUL_MAT || op->op == GGML_OP_MUL_MAT_ID ? product_work_size(op) : 0;
        return size != 0;
    }

    bool compute_forward(ggml_compute_params * params, ggml_tensor * op) override {
        if (op->op == GGML_OP_MUL_MAT) {
            product_compute(params, &op, 1);
        } else if (op->op == GGML_OP_MUL_MAT_ID) {
            product_compute_mixture(params, op);
        } else {
            return false;
        }
        return true;
    }
};

traits & the_traits() {
    static traits t;
    return t;
}

// Ops that are served wherever their tensors lie.
template <size_t (*size_of)(int, const ggml_tensor *), void (*compute)(const ggml_compute_params *, ggml_tensor *)>
class op_traits : public ggml::cpu::tensor_traits {
    bool work_size(int n_threads, const ggml_tensor * op, size_t & size) override {
        size = size_of(n_threads, op);
        return true;
    }

    bool compute_forward(ggml_compute_params * params, ggml_tensor * op) override {
        compute(params, op);
        return true;
    }
};

size_t dense_size(int, const ggml_tensor * op) { return dense_work_size(op); }
size_t nothing(int, const ggml_tensor *) { return 0; }

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
    const int64_t of_one = panels_of(tensor), panels = of_one * tensor->ne[2];
    const auto    pack = [&](int64_t begin, int64_t end) {
        std::vector<char> edge;
        for (int64_t i = begin; i < end; ++i) {
            const int64_t e = i / of_one, c = i % of_one * PANEL;
            const char *  rows = (const char *) data + e * tensor->nb[2] + c * tensor->nb[1];
            if (c + PANEL > tensor->ne[1]) {   // zeros are a block of zeros in every type
                edge.assign(PANEL * tensor->nb[1], 0);
                std::memcpy(edge.data(), rows, (tensor->ne[1] - c) * tensor->nb[1]);
                rows = edge.data();
            }
            panel_pack(tensor->type, rows, tensor->nb[1], blocks, (char *) tensor->data + i * bytes);
        }
    };
    // Most of the time that loading takes: by all cores, up to 8.
    const int64_t threads =
        size < (1u << 20) ? 1
                          : std::min<int64_t>({ 8, panels, std::max<int64_t>(1, std::thread::hardware_concurrency()) });
    std::vector<std::thread> others;
    int64_t                  done = panels / threads;
    try {
        for (int64_t t = 1; t < threads; ++t, done = panels * t / threads) {
            others.emplace_back(pack, done, panels * (t + 1) / threads);
        }
    } catch (const std::system_error &) {
        pack(done, panels);   // no more threads to be had
    }
    pack(0, panels / threads);
    for (std::thread & other : others) {
        other.join();
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
    ask_for_huge_pages(data, size);   // a tenth to a fifth more bandwidth
    return data ? ggml_backend_buffer_init(type, interface, data, size) : nullptr;
}

size_t alignment(ggml_backend_buffer_type_t) { return 64; }

size_t alloc_size(ggml_backend_buffer_type_t, const ggml_tensor * tensor) {
    return panel_fits(tensor) ? (size_t) (panels_of(tensor) * tensor->ne[2]) *
                                    (tensor->ne[0] / panel_block(tensor->type)) * panel_block_bytes(tensor->type)
                              : ggml_nbytes(tensor);
}

class extra : public ggml::cpu::extra_buffer_type {
    static bool is_ours(const ggml_tensor * op) {
        return (op->op == GGML_OP_MUL_MAT || op->op == GGML_OP_MUL_MAT_ID) && op->src[0]->buffer &&
               op->src[0]->buffer->buft == dflash_panel_buffer_type();
    }

    bool supports_op(ggml_backend_dev_t, const ggml_tensor * op) override {
        const ggml_tensor *w = op->src[0], *x = op->src[1];
        return is_ours(op) && (op->op == GGML_OP_MUL_MAT_ID ? x->ne[3] == 1 : w->ne[2] == 1) && ggml_is_contiguous(w) &&
               panel_fits(w) && x->type == GGML_TYPE_F32 && x->nb[0] == sizeof(float) && op->type == GGML_TYPE_F32 &&
               (!x->buffer || ggml_backend_buft_is_host(x->buffer->buft));
    }

    ggml::cpu::tensor_traits * get_tensor_traits(const ggml_tensor * op) override {
        if (is_ours(op)) {
            return (ggml::cpu::tensor_traits *) op->src[0]->extra;
        }
        static op_traits<attention_work_size, attention_compute> attention;
        static op_traits<unfused_work_size, unfused_compute>     unfused;
        static op_traits<dense_size, dense_compute>              dense;
        static op_traits<nothing, rotation_compute>              rotation;
        if (rotation_fits(op)) {
            return &rotation;
        }
        if (attention_on() && attention_fits(op)) {
            return &attention;
        }
        if (dense_on() && dense_fits(op)) {
            return &dense;
        }
        return attention_on() && unfused_fits(op) ? &unfused : nullptr;
    }
};

}   // namespace

}   // namespace dflash

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

void * dflash_proc_address(const char * name) {
    static bool (*const is_row_invariant)()            = [] { return dflash::attention_on() && dflash::dense_on(); };
    static int (*const tile_rows)(ggml_type)           = dflash::panel_tiles_from;
    static void (*const set_tile_rows)(ggml_type, int) = dflash::panel_set_tiles_from;
    const std::pair<const char *, void *> ours[]       = {
        { "dflash_is_row_invariant", (void *) is_row_invariant },
        { "dflash_tile_rows", (void *) tile_rows },
        { "dflash_set_tile_rows", (void *) set_tile_rows },
    };
    for (const auto & [key, address] : ours) {
        if (std::strcmp(name, key) == 0) {
            return address;
        }
    }
    return nullptr;
}
