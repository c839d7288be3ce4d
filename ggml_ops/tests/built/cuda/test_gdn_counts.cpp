// Counts the operations of the CUDA kernels of gdn_tree and gdn_commit in the emulation: one line per pass width, for
// one head of one sequence with scalar gates. benchmarks/gpu_roofline.py has formulas for the same numbers.

#include "gdn/cuda/gdn_tree_cuda.cuh"
#include "gdn/gdn_tree.h"

#include "check.h"
#include "gdn_trees.h"

#include <math.h>

#include <cmath>
#include <vector>

namespace {

struct counts {
    long long operations, exponentials, read, written, shared;   // the last three in floats

    counts operator-(const counts & x) const {
        return { operations - x.operations, exponentials - x.exponentials, read - x.read, written - x.written,
            shared - x.shared };
    }
};

counts       total;
const char * tensors_begin = nullptr;
const char * tensors_end   = nullptr;
size_t       shared_size   = 0;

}   // namespace

// A float that counts its operations. If it is neither in a tensor nor in shared memory, it is a register.
struct counted {
    float value;

    counted() = default;
    template <typename T, typename = std::enable_if_t<std::is_arithmetic<T>::value>>
    counted(T x) : value((float) x) {}   // NOLINT(google-explicit-constructor): it replaces a float
    counted(const counted & x) : value(x.value) { x.touched(total.read); }

    counted & operator=(const counted & x) {
        if (this != &x) {
            x.touched(total.read);
        }
        value = x.value;
        touched(total.written);
        return *this;
    }

    // Counts by memory: in a tensor as `global`, otherwise as shared memory.
    void touched(long long & global) const {
        const char * at     = (const char *) this;
        const char * shared = (const char *) emulated_cuda::shared_memory();
        if (at >= tensors_begin && at < tensors_end) {
            ++global;
        } else if (shared && at >= shared && at < shared + shared_size) {
            ++total.shared;
        }
    }

    counted & operator+=(const counted & x) {
        const float sum = operate(*this, x, value + x.value);
        value           = sum;
        touched(total.written);
        return *this;
    }

    counted & operator*=(const counted & x) {
        const float product = operate(*this, x, value * x.value);
        value               = product;
        touched(total.written);
        return *this;
    }

    static float operate(const counted & a, const counted & b, float result) {
        a.touched(total.read);
        b.touched(total.read);
        ++total.operations;
        return result;
    }

    friend counted operator+(const counted & a, const counted & b) { return operate(a, b, a.value + b.value); }
    friend counted operator-(const counted & a, const counted & b) { return operate(a, b, a.value - b.value); }
    friend counted operator*(const counted & a, const counted & b) { return operate(a, b, a.value * b.value); }
    friend counted operator/(const counted & a, const counted & b) { return operate(a, b, a.value / b.value); }
};

static inline counted exp(const counted & x) {
    x.touched(total.read);
    ++total.exponentials;
    return std::exp(x.value);
}

static inline counted sqrtf(const counted & x) { return std::sqrt(x.value); }

static_assert(sizeof(counted) == sizeof(float), "tensors hold floats");

namespace on_counted {
#define float counted
#include "gdn/gdn_tree_gpu.h"

#include "gdn_tree_cuda.inc"
#undef float
}   // namespace on_counted

namespace {

using namespace gdn_trees;

ggml_backend_cuda_context cuda;

counts count(void (*kernel)(ggml_backend_cuda_context &, ggml_tensor *), ggml_context * ctx, ggml_tensor * op) {
    tensors_begin       = (const char *) ggml_get_mem_buffer(ctx);
    tensors_end         = tensors_begin + ggml_get_mem_size(ctx);
    const counts before = total;
    kernel(cuda, op);
    return total - before;
}

}   // namespace

int main() {
    ggml_cpu_init();
    for (const int T : { 1, 2, 4, 8, 16, 32, 64 }) {
        const shape s = { 128, 1, 1, T, 1, false };
        inputs      in(s, make_parents(s, 1, 0));   // a chain
        shared_size         = (size_t) GDN_SHARED_FLOATS(T) * sizeof(float);
        ggml_tensor * tree  = ggml_gdn_tree(in.ctx, in.q, in.k, in.v, in.g, in.beta, in.state, in.parent);
        const counts  a     = count(on_counted::dflash_cuda_gdn_tree, in.ctx, tree);
        ggml_tensor * delta = ggml_gdn_tree_delta(in.ctx, tree);
        ggml_tensor * after =
            ggml_gdn_commit(in.ctx, in.state, in.k, delta, in.g, in.ids_of(path_to(in.parents(0), T - 1), 0));
        const counts b = count(on_counted::dflash_cuda_gdn_commit, in.ctx, after);
        std::printf("tree rows %d operations %lld exp %lld read %lld written %lld shared %lld\n", T, a.operations,
            a.exponentials, a.read, a.written, a.shared);
        std::printf("commit rows %d operations %lld exp %lld read %lld written %lld\n", T, b.operations, b.exponentials,
            b.read, b.written);
        CHECK(a.written == 2 * T * s.S);
        CHECK(b.written == s.S * s.S && b.exponentials == (long long) T * s.S * s.S);
    }
    return TEST_RESULT;
}
