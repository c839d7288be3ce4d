// Threads of the CPU backend: pools are reused for later graphs, results do not depend on the number of threads,
// several callers can compute at once, a graph without memory fails alone, and a forked process can still compute.

#include "check.h"
#include "cpu/threads/thread_pools.h"
#include "graphs.h"

#include "ggml-alloc.h"
#include "ggml-cpu.h"

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

static constexpr int     N_LAYERS = 12;
static constexpr int64_t WIDTH = 256, ROWS = 3;

using floats = std::vector<float>;

// Layers of a product and a norm, computed repeatedly.
class layers {
    context                         ctx_ = metadata(4 * N_LAYERS);
    buffer                          buffer_{ nullptr, ggml_backend_buffer_free };
    ggml_backend_t                  cpu_ = ggml_backend_cpu_init();
    ggml_cgraph *                   graph_;
    std::vector<ggml_tensor *>      weights_;
    ggml_tensor *                   in_, *out_;
    std::normal_distribution<float> normal_;
    std::mt19937                    rng_{ 7 };

    void fill(ggml_tensor * t) {
        floats x(ggml_nelements(t));
        std::generate(x.begin(), x.end(), [&] { return normal_(rng_); });
        ggml_backend_tensor_set(t, x.data(), 0, ggml_nbytes(t));
    }

  public:
    layers() {
        in_ = out_ = ggml_new_tensor_2d(ctx_.get(), GGML_TYPE_F32, WIDTH, ROWS);
        for (int i = 0; i < N_LAYERS; ++i) {
            weights_.push_back(ggml_new_tensor_2d(ctx_.get(), GGML_TYPE_F32, WIDTH, WIDTH));
            out_ = ggml_rms_norm(ctx_.get(), ggml_mul_mat(ctx_.get(), weights_.back(), out_), 1e-6f);
        }
        graph_ = ggml_new_graph_custom(ctx_.get(), 4 * N_LAYERS, false);
        ggml_build_forward_expand(graph_, out_);
        buffer_.reset(ggml_backend_alloc_ctx_tensors(ctx_.get(), cpu_));
        fill(in_);
        for (ggml_tensor * w : weights_) {
            fill(w);
        }
    }
    ~layers() { ggml_backend_free(cpu_); }

    floats compute(int n_threads) {
        ggml_backend_cpu_set_n_threads(cpu_, n_threads);
        CHECK(ggml_backend_graph_compute(cpu_, graph_) == GGML_STATUS_SUCCESS);
        floats x(ggml_nelements(out_));
        ggml_backend_tensor_get(out_, x.data(), 0, ggml_nbytes(out_));
        return x;
    }

    // A product whose input, converted to halves, takes more memory than there are addresses.
    ggml_status compute_too_much() {
        const context ctx = metadata(4);
        ggml_tensor * w   = ggml_new_tensor_2d(ctx.get(), GGML_TYPE_F16, 1 << 10, 1);
        ggml_tensor * x   = ggml_new_tensor_2d(ctx.get(), GGML_TYPE_F32, 1 << 10, (int64_t) 1 << 40);
        ggml_cgraph * all = ggml_new_graph_custom(ctx.get(), 4, false);
        ggml_build_forward_expand(all, ggml_mul_mat(ctx.get(), w, x));
        return ggml_backend_graph_compute(cpu_, all);
    }
};

// AddressSanitizer would end the process instead.
extern "C" const char * __asan_default_options() { return "allocator_may_return_null=1"; }   // NOLINT

static void no_memory() {
    layers       model;
    const floats expected = model.compute(2);
    CHECK(model.compute_too_much() == GGML_STATUS_ALLOC_FAILED);
    CHECK(model.compute(2) == expected);
}

static void same_bits() {
    layers       model;
    const floats one = model.compute(1);
    for (int round = 0; round < 20; ++round) {
        for (int n = 1; n <= 9; ++n) {
            CHECK(model.compute(n) == one);
        }
    }
}

static void several_callers() {
    const floats             expected = layers().compute(1);
    std::vector<std::thread> callers;
    std::atomic<int>         n_wrong{ 0 };
    for (int i = 0; i < 3; ++i) {
        callers.emplace_back([&] {
            layers model;
            for (int round = 0; round < 100; ++round) {
                n_wrong += model.compute(3) != expected;
            }
        });
    }
    for (std::thread & caller : callers) {
        caller.join();
    }
    CHECK(n_wrong == 0);
}

#if defined(__linux__)
static int count_threads() {
    int   n      = 0;
    DIR * folder = opendir("/proc/self/task");
    while (const dirent * entry = readdir(folder)) {
        n += entry->d_name[0] != '.';
    }
    closedir(folder);
    return n;
}

static void kept() {
    ggml_threadpool * pool = dflash_pool_take(4);   // directly: a team that computes may be smaller
    dflash_pool_give(pool, 4);
    CHECK(count_threads() >= 4);
    CHECK(dflash_pool_take(4) == pool);
    dflash_pool_give(pool, 4);
    for (int size = 2; size < 30; ++size) {
        dflash_pool_give(dflash_pool_take(size), size);
    }
    CHECK(count_threads() < 4 * 30);   // threads of the last pools, not of all sizes
}

static void forked() {
    layers       model;
    const floats expected = model.compute(4);
    const pid_t  child    = fork();
    if (child == 0) {
        alarm(60);   // ends a child that waits for threads it does not have
        _exit(model.compute(4) == expected ? 0 : 1);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(model.compute(4) == expected);
}
#else
static void kept() {}
static void forked() {}
#endif

int main() {
    same_bits();
    several_callers();
    no_memory();
    kept();
    forked();
    return TEST_RESULT;
}
