#include "cpu/dispatch.h"

#include "cpu/attention/attention_no_flash.h"
#include "cpu/attention/flash_attention.h"
#include "cpu/gemm/float_gemm.h"
#include "cpu/gemm/packed_gemm.h"
#include "cpu/gemm/packed_gemm_choice.h"
#include "cpu/gemm/panel_buffer.h"
#include "cpu/isa/kernels.h"
#include "cpu/rope/rope.h"
#include "cpu/switches.h"
#include "cpu/threads/background.h"
#include "ggml-backend-impl.h"
#include "ggml-cpu.h"
#include "traits.h"

#include <cstring>
#include <utility>

namespace dflash {

namespace {

// The interface through which ggml calls a kernel.
class op_kernel : public ggml::cpu::tensor_traits {
    bool is_on_;
    bool (*serves_op_)(const ggml_tensor *);
    size_t (*op_work_size_)(int, const ggml_tensor *);
    void (*op_compute_)(const ggml_compute_params *, ggml_tensor *);

  public:
    op_kernel(bool is_on, bool (*serves)(const ggml_tensor * op),
        size_t (*work_size)(int n_threads, const ggml_tensor * op),
        void (*compute)(const ggml_compute_params * params, ggml_tensor * op)) :
        is_on_(is_on), serves_op_(serves), op_work_size_(work_size), op_compute_(compute) {}

    bool serves(const ggml_tensor * op) const { return is_on_ && serves_op_(op); }

    bool work_size(int n_threads, const ggml_tensor * op, size_t & size) override {
        size = op_work_size_(n_threads, op);
        return true;
    }

    bool compute_forward(ggml_compute_params * params, ggml_tensor * op) override {
        op_compute_(params, op);
        return true;
    }
};

size_t no_work_buffer(int, const ggml_tensor *) { return 0; }

// The kernel for an op, null if ggml computes it: the first that serves it. Packed weights come first, since no other
// kernel can read them; that we can compute all their ops was asked before they were packed (supports_op()).
op_kernel * find_kernel(const ggml_tensor * op) {
    static const switches & on        = switches::get();
    static op_kernel        kernels[] = {
        { true, has_packed_weights, packed_gemm_work_size, packed_gemm_compute },
        { on.rope, rope_fits, no_work_buffer, rope_compute },
        { on.attention, flash_attention_fits, flash_attention_work_size, flash_attention_compute },
        { on.float_gemm, float_gemm_fits, float_gemm_work_size, float_gemm_compute },
        { on.attention, attention_no_flash_fits, attention_no_flash_work_size, attention_no_flash_compute },
    };
    for (op_kernel & kernel : kernels) {
        if (kernel.serves(op)) {
            return &kernel;
        }
    }
    return nullptr;
}

class dispatch : public ggml::cpu::extra_buffer_type {
    // Whether we can compute an op on packed weights; otherwise ggml does not pack the weights.
    bool supports_op(ggml_backend_dev_t, const ggml_tensor * op) override { return packed_gemm_fits(op); }

    ggml::cpu::tensor_traits * get_tensor_traits(const ggml_tensor * op) override { return find_kernel(op); }
};

bool is_row_invariant() { return switches::get().attention && switches::get().float_gemm && best_kernels(); }

}   // namespace

bool is_ours(const ggml_tensor * op) { return find_kernel(op) != nullptr; }

}   // namespace dflash

ggml_backend_buffer_type_t dflash_panel_buffer_type(void) {
    static ggml_backend_buffer_type type = dflash::panel_buffer_type(new dflash::dispatch());
    return &type;
}

void * dflash_proc_address(const char * name) {
    const std::pair<const char *, void *> functions[] = {
        { "dflash_is_row_invariant", (void *) dflash::is_row_invariant },
        { "dflash_can_pack_type", (void *) dflash::can_pack_type },
        { "dflash_tile_rows", (void *) dflash::packed_gemm_tile_rows },
        { "dflash_pause_background", (void *) dflash::pause_background },
        { "dflash_set_tile_rows", (void *) dflash::set_packed_gemm_tile_rows },
    };
    for (const auto & [key, function] : functions) {
        if (std::strcmp(name, key) == 0) {
            return function;
        }
    }
    return nullptr;
}
