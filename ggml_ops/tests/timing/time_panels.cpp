// How fast the panel kernels are: 10^9 multiply-adds per second by type, rows and kernel, best of many passes over
// weights that no cache holds. Arguments: threads, inner dimension, columns, and the instruction sets if not all.
// Prints a table.

#include "cpu/gemm/packed_layout.h"

#include "ggml-cpu.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <thread>
#include <vector>

using namespace dflash;
using clock_type = std::chrono::steady_clock;

// A second thread that waits for work without sleeping.
static std::function<void()> job;
static std::atomic<bool>     waiting{ false }, done{ false };

static void serve() {
    while (!done) {
        if (waiting) {
            job();
            waiting = false;
        } else {
            std::this_thread::yield();
        }
    }
}

static char * aligned(std::vector<char> & v, size_t n) {
    v.resize(n + 64);
    return v.data() + (64 - (uintptr_t) v.data() % 64);
}

int main(int argc, char ** argv) {
    ggml_cpu_init();
    const int     threads = argc > 1 ? std::atoi(argv[1]) : 1;
    const int64_t k = argc > 2 ? std::atoll(argv[2]) : 1024, m = argc > 3 ? std::atoll(argv[3]) : 3072,
                  panels = m / PANEL;
    const int64_t chunk  = std::max<int64_t>(4, panels / (8 * threads) / 4 * 4);
    std::thread   other;
    if (threads == 2) {
        other = std::thread(serve);
    }
    std::mt19937                    rng(1);
    std::normal_distribution<float> normal;
    std::vector<float>              w(k * m), x(k), out(512 * m);
    for (float & v : w) {
        v = 0.05f * normal(rng);
    }
    std::printf("%d threads, k = %d, m = %d\n| type | kernel |", threads, (int) k, (int) m);
    const int counts[] = { 1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 512 };
    for (const int n : counts) {
        std::printf(" %d |", n);
    }
    for (const ggml_type type : { GGML_TYPE_Q4_0, GGML_TYPE_IQ4_NL, GGML_TYPE_MXFP4, GGML_TYPE_Q8_0, GGML_TYPE_Q4_K,
             GGML_TYPE_Q5_K, GGML_TYPE_Q6_K }) {
        const size_t      weight_row = ggml_row_size(type, k), row = row_bytes(type, k);
        const int64_t     blocks = k / panel_block(type);
        const size_t      one    = (panels * blocks * panel_block_bytes(type) + 63) / 64 * 64;
        const int         copies = (int) (120000000 / one) + 1;
        std::vector<char> quantized(weight_row * m), packed, activations;
        char *            weights = aligned(packed, one * copies), *rows = aligned(activations, 512 * row);
        ggml_quantize_chunk(type, w.data(), quantized.data(), 0, m, k, nullptr);
        for (int64_t p = 0; p < panels; ++p) {
            panel_pack(type, quantized.data() + p * PANEL * weight_row, weight_row, blocks,
                weights + p * blocks * panel_block_bytes(type));
        }
        for (int c = 1; c < copies; ++c) {
            std::memcpy(weights + c * one, weights, one);
        }
        for (int r = 0; r < 512; ++r) {
            for (float & v : x) {
                v = normal(rng);
            }
            row_quantize(type, x.data(), rows + r * row, k);
        }
        std::vector<panel_choice> kernels = panel_kernels(type);
        if (argc > 4) {
            kernels.erase(std::remove_if(kernels.begin(), kernels.end(),
                              [&](const panel_choice & c) {
                                  return std::find_if(argv + 4, argv + argc,
                                             [&](const char * a) { return std::strcmp(a, c.set) == 0; }) == argv + argc;
                              }),
                kernels.end());
        }
        std::vector<std::array<double, 12>> best(kernels.size());
        for (int at = 0; at < 12; ++at) {
            const int n    = counts[at];
            int       turn = 0;
            for (const auto start = clock_type::now();
                clock_type::now() - start < std::chrono::milliseconds((75 + n) * kernels.size());) {
                for (size_t which = 0; which < kernels.size(); ++which, ++turn) {
                    const char * from = weights + turn % copies * one;
                    const auto   work = [&](int ith) {   // as panel_buffer.cpp hands it out
                        for (int64_t p = ith * chunk; p < panels; p += threads * chunk) {
                            for (int i = 0; i < n; i += 64) {
                                kernels[which].kernel(from, blocks, p, std::min(panels, p + chunk), rows + i * row, row,
                                      std::min(64, n - i), out.data() + i * m, m);
                            }
                        }
                    };
                    const auto begin = clock_type::now();
                    if (threads == 2) {
                        job     = [&] { work(1); };
                        waiting = true;
                    }
                    work(0);
                    while (waiting) {
                        std::this_thread::yield();
                    }
                    best[which][at] = std::max(best[which][at],
                        k * m * n / std::chrono::duration<double>(clock_type::now() - begin).count() / 1e9);
                }
            }
        }
        for (size_t which = 0; which < kernels.size(); ++which) {
            std::printf("\n| %s | %s |", ggml_type_name(type), kernels[which].set);
            for (const double speed : best[which]) {
                std::printf(" %.0f |", speed);
            }
        }
    }
    std::printf("\n");
    done = true;
    if (threads == 2) {
        other.join();
    }
    return 0;
}
