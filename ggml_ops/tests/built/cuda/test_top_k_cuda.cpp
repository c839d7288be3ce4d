// The k largest values of rows on CUDA, emulated on the CPU, against a stable sort.

#include "common.cuh"

#include "check.h"
#include "top_k/cuda/top_k_kernels.cuh"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>
#include <vector>

namespace {

std::vector<int32_t> selected(const std::vector<float> & values, int n_rows, int k) {
    const int             n_columns = (int) values.size() / n_rows, n_parts = (n_columns + TOP_K_PART - 1) / TOP_K_PART;
    std::vector<uint64_t> lists((size_t) n_rows * n_parts * k, ~0ull);
    std::vector<int32_t>  out((size_t) n_rows * k, -1);
    const top_k_args      args = { values.data(), n_columns, n_parts, k, lists.data(), out.data() };
    const dim3            block(32 * TOP_K_WARPS);
    emulated_cuda::launch(
        top_k_parts_kernel, dim3((n_parts + TOP_K_WARPS - 1) / TOP_K_WARPS, n_rows), block, 0, nullptr, args);
    emulated_cuda::launch(top_k_merge_kernel, dim3(1, n_rows), block, 0, nullptr, args);
    return out;
}

// NaNs last, equal values by index.
std::vector<int32_t> expected(const std::vector<float> & values, int n_rows, int k) {
    const int            n_columns = (int) values.size() / n_rows;
    std::vector<int32_t> out, order(n_columns);
    for (int row = 0; row < n_rows; ++row) {
        const float * v = values.data() + (size_t) row * n_columns;
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(),
            [&](int a, int b) { return std::isnan(v[b]) ? !std::isnan(v[a]) : v[a] > v[b]; });
        out.insert(out.end(), order.begin(), order.begin() + k);
    }
    return out;
}

std::vector<float> random_values(int n, int seed, int n_different) {
    std::mt19937                       random(seed);
    std::uniform_int_distribution<int> one(-n_different, n_different);
    std::vector<float>                 x(n);
    for (float & value : x) {
        value = (float) one(random) / 8;
    }
    return x;
}

void test_rows() {
    struct size {
        int n_columns, n_rows, k;
    };
    for (const size s :
        { size{ 9000, 2, 16 }, { 512, 1, 64 }, { 64, 3, 64 }, { 1, 1, 1 }, { 513, 2, 1 }, { 140'000, 1, 8 } }) {
        for (const int n_different : { 1'000'000, 5 }) {   // few: most values are equal
            const std::vector<float> values = random_values(s.n_columns * s.n_rows, s.k, n_different);
            CHECK(selected(values, s.n_rows, s.k) == expected(values, s.n_rows, s.k));
        }
    }
}

void test_special_values() {
    std::vector<float> values = random_values(3000, 1, 1000);
    values[5] = values[2999] = INFINITY;
    values[7]                = -INFINITY;
    values[9]                = NAN;
    values[11]               = -0.0f;
    CHECK(selected(values, 1, 64) == expected(values, 1, 64));
    std::fill(values.begin(), values.end(), -INFINITY);
    values[100] = NAN;
    CHECK(selected(values, 1, 8) == expected(values, 1, 8));
}

// Without its barrier the result is wrong in one of the orders.
void test_faults() {
    const std::vector<float> values  = random_values(9000, 3, 1'000'000);
    int                      n_wrong = 0;
    emulated_cuda::barrier_lines.clear();
    for (const auto order : { emulated_cuda::turn_order::ascending, emulated_cuda::turn_order::descending }) {
        emulated_cuda::order        = order;
        emulated_cuda::missing_line = 0;
        CHECK(selected(values, 1, 16) == expected(values, 1, 16));
        CHECK(emulated_cuda::barrier_lines.size() == 1);
        emulated_cuda::missing_line = *emulated_cuda::barrier_lines.begin();
        n_wrong += selected(values, 1, 16) != expected(values, 1, 16);
    }
    emulated_cuda::missing_line = 0;
    CHECK(n_wrong > 0);
}

}   // namespace

int main() {
    for (const auto order : { emulated_cuda::turn_order::ascending, emulated_cuda::turn_order::descending }) {
        emulated_cuda::order = order;
        test_rows();
        test_special_values();
    }
    test_faults();
    return TEST_RESULT;
}
