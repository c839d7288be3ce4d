// Speed of the kernels for packed weights: 10^9 multiply-adds per second by type, rows and kernel, best of many passes
// over weights that are in no cache. Arguments: threads (1 or 2), inner dimension, columns, and the instruction sets
// (default: all). Prints a table.

#include "cpu/gemm/packed_weights.h"
#include "cpu/isa/kernels.h"
#include "cpu/quantize_rows/quantize_rows.h"

#include "weights.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace dflash;
using clock_type = std::chrono::steady_clock;

static constexpr int MAX_ROWS = 512;
static constexpr int COUNTS[] = { 1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, MAX_ROWS };   // of rows

// A second thread that waits for work without sleeping.
class second_thread {
    std::function<void()> job_;
    std::atomic<bool>     has_job_{ false }, is_done_{ false };
    std::thread           thread_;

    void serve() {
        while (!is_done_) {
            if (has_job_) {
                job_();
                has_job_ = false;
            } else {
                std::this_thread::yield();
            }
        }
    }

  public:
    second_thread() : thread_([this] { serve(); }) {}
    ~second_thread() {
        is_done_ = true;
        thread_.join();
    }
    void start(std::function<void()> f) {
        job_     = std::move(f);
        has_job_ = true;
    }
    void wait() const {
        while (has_job_) {
            std::this_thread::yield();
        }
    }
};

static char * aligned(std::vector<char> & v, size_t n) {
    v.resize(n + 64);
    return v.data() + (64 - (uintptr_t) v.data() % 64);
}

// Copies of a packed matrix that together exceed any cache, and rows of activations.
struct problem {
    ggml_type         type;
    int64_t           k, m, n_panels, n_blocks;
    size_t            row, matrix;   // bytes
    int               copies;
    std::vector<char> weights_memory, rows_memory;
    char *            weights, *rows;

    problem(ggml_type type, int64_t k, int64_t m, const std::vector<float> & w, std::mt19937 & rng) :
        type(type), k(k), m(m), n_panels(m / PANEL), n_blocks(k / panel_block_size(type)),
        row(quantized_row_size(type, k)), matrix((n_panels * n_blocks * panel_block_bytes(type) + 63) / 64 * 64),
        copies((int) (120000000 / matrix) + 1), weights(aligned(weights_memory, matrix * copies)),
        rows(aligned(rows_memory, MAX_ROWS * row)) {
        const size_t            weight_row = ggml_row_size(type, k);
        const std::vector<char> quantized  = quantize(type, w, k, m);
        for (int64_t p = 0; p < n_panels; ++p) {
            pack_panel(type, quantized.data() + p * PANEL * weight_row, weight_row, n_blocks,
                weights + p * n_blocks * panel_block_bytes(type));
        }
        for (int c = 1; c < copies; ++c) {
            std::memcpy(weights + c * matrix, weights, matrix);
        }
        std::normal_distribution<float> normal;
        std::vector<float>              x(k);
        for (int r = 0; r < MAX_ROWS; ++r) {
            for (float & v : x) {
                v = normal(rng);
            }
            quantize_row(type, x.data(), rows + r * row, k);
        }
    }

    // A thread's share of a pass of n rows, distributed in pieces.
    void multiply(packed_gemm_kernel kernel, const char * panels, int n, int ith, int n_threads, float * out) const {
        const int64_t piece = std::max<int64_t>(4, n_panels / (8 * n_threads) / 4 * 4);
        for (int64_t p = ith * piece; p < n_panels; p += n_threads * piece) {
            for (int i = 0; i < n; i += 64) {
                kernel({ panels + p * n_blocks * panel_block_bytes(type), n_blocks, std::min(piece, n_panels - p),
                    rows + i * row, row, std::min(64, n - i), out + i * m + p * PANEL, (size_t) m });
            }
        }
    }
};

using kernel_list = std::vector<std::pair<const char *, packed_gemm_kernel>>;

static kernel_list find_kernels(ggml_type type, const std::vector<std::string> & names) {
    kernel_list kernels;
    for (const packed_gemm_variant & variant : packed_gemm_variants()) {
        const bool is_wanted = names.empty() || std::find(names.begin(), names.end(), variant.name) != names.end();
        if (const packed_gemm_kernel kernel = is_wanted ? variant.find(type) : nullptr) {
            kernels.emplace_back(variant.name, kernel);
        }
    }
    return kernels;
}

// The best speed of each kernel; kernels take turns.
static std::vector<double> measure(
    const problem & p, const kernel_list & kernels, int n, second_thread * other, std::vector<float> & out) {
    std::vector<double> best(kernels.size());
    int                 pass     = 0;
    const int           threads  = other ? 2 : 1;
    const auto          duration = std::chrono::milliseconds((75 + n) * kernels.size());
    for (const auto start = clock_type::now(); clock_type::now() - start < duration;) {
        for (size_t i = 0; i < kernels.size(); ++i, ++pass) {
            const char * panels = p.weights + pass % p.copies * p.matrix;
            const auto   begin  = clock_type::now();
            if (other) {
                other->start([&] { p.multiply(kernels[i].second, panels, n, 1, threads, out.data()); });
            }
            p.multiply(kernels[i].second, panels, n, 0, threads, out.data());
            if (other) {
                other->wait();
            }
            const double seconds = std::chrono::duration<double>(clock_type::now() - begin).count();
            best[i]              = std::max(best[i], p.k * p.m * n / seconds / 1e9);
        }
    }
    return best;
}

int main(int argc, char ** argv) {
    ggml_cpu_init();
    const int                      n_threads = argc > 1 ? std::atoi(argv[1]) : 1;
    const int64_t                  k = argc > 2 ? std::atoll(argv[2]) : 1024, m = argc > 3 ? std::atoll(argv[3]) : 3072;
    const std::vector<std::string> names(argv + std::min(argc, 4), argv + argc);
    std::unique_ptr<second_thread> other;
    if (n_threads == 2) {
        other = std::make_unique<second_thread>();
    }
    std::mt19937                    rng(1);
    std::normal_distribution<float> normal;
    std::vector<float>              w(k * m), out(MAX_ROWS * m);
    for (float & v : w) {
        v = 0.05f * normal(rng);
    }
    std::printf("%d threads, k = %d, m = %d\n| type | kernel |", n_threads, (int) k, (int) m);
    for (const int n : COUNTS) {
        std::printf(" %d |", n);
    }
    for_each_weight_type([&](auto record) {
        const ggml_type                  type = record.TYPE;
        const problem                    p(type, k, m, w, rng);
        const kernel_list                kernels = find_kernels(type, names);
        std::vector<std::vector<double>> speeds;   // [count][kernel]
        for (const int n : COUNTS) {
            speeds.push_back(measure(p, kernels, n, other.get(), out));
        }
        for (size_t i = 0; i < kernels.size(); ++i) {
            std::printf("\n| %s | %s |", ggml_type_name(type), kernels[i].first);
            for (const std::vector<double> & of_count : speeds) {
                std::printf(" %.0f |", of_count[i]);
            }
        }
        std::fflush(stdout);
    });
    std::printf("\n");
    return 0;
}
