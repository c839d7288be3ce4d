// Products of few rows on CUDA, emulated on the CPU: right for each type, and a row's bits are the same in every pass.

#include "common.cuh"

#include "check.h"

#include "gemm/cuda/few_rows_launch.cuh"
#include "normal.h"

#include "ggml.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

namespace {

struct kind {
    ggml_type     type;
    few_rows_type few;
};
constexpr kind KINDS[] = {
    { GGML_TYPE_Q4_K, few_rows_type::q4_K },
    { GGML_TYPE_Q5_K, few_rows_type::q5_K },
    { GGML_TYPE_Q6_K, few_rows_type::q6_K },
    { GGML_TYPE_Q8_0, few_rows_type::q8_0 },
    { GGML_TYPE_Q4_0, few_rows_type::q4_0 },
    { GGML_TYPE_Q4_1, few_rows_type::q4_1 },
    { GGML_TYPE_IQ4_XS, few_rows_type::iq4_xs },
};

// A matrix as it is in a file, on 16 bytes, and what it means.
struct matrix {
    int                n_columns, n_k;
    int64_t            row_bytes;
    std::vector<char>  memory;
    char *             data;
    std::vector<float> values;

    matrix(ggml_type type, int n_columns, int n_k, int seed = 1) :
        n_columns(n_columns), n_k(n_k), row_bytes((int64_t) ggml_row_size(type, n_k)),
        memory(n_columns * row_bytes + 64), values((size_t) n_columns * n_k) {
        data                       = (char *) (((uintptr_t) memory.data() + 15) / 16 * 16);
        const std::vector<float> x = normal(values.size(), 0.02f, seed);
        ggml_quantize_chunk(type, x.data(), data, 0, n_columns, n_k, nullptr);
        ggml_get_type_traits(type)->to_float(data, values.data(), (int64_t) values.size());
    }
};

// What a product needs. Everything is NaN or -1 at first, but the counts.
struct memory {
    std::vector<uint4>  tiles;
    std::vector<float4> parts;
    std::vector<int>    counts;

    memory(const few_rows_product & p, int splits) :
        tiles(few_rows_tile_bytes(p.n_rows, p.n_k) / sizeof(uint4), uint4{ ~0u, ~0u, ~0u, ~0u }),
        parts(few_rows_part_bytes(p, splits) / sizeof(float4), float4{ NAN, NAN, NAN, NAN }),
        counts(few_rows_blocks(p)) {}
    few_rows_memory get() { return { (char *) tiles.data(), parts.data(), counts.data() }; }
};

int most_shared = 227 << 10;   // of an H100

few_rows_product product_of(few_rows_type type, const matrix & m, int n_rows, std::vector<float> & out) {
    few_rows_product p = {};
    p.type             = type;
    p.weights          = m.data;
    p.out              = out.data();
    p.row_bytes        = m.row_bytes;
    p.out_stride = p.added_stride = p.n_columns = m.n_columns;
    p.n_rows                                    = n_rows;
    p.n_k                                       = m.n_k;
    p.most_shared                               = most_shared;
    return p;
}

// NaN where nothing was written.
std::vector<float> product(
    few_rows_type type, const matrix & m, const std::vector<float> & rows, int n_rows, int splits) {
    std::vector<float>     out((size_t) n_rows * m.n_columns, NAN);
    const few_rows_product p = product_of(type, m, n_rows, out);
    memory                 needed(p, splits);
    few_rows_tile(order_of(type), { rows.data(), m.n_k, n_rows, m.n_k, needed.get().tiles }, nullptr);
    few_rows_multiply<false>(p, needed.get(), splits, nullptr);
    CHECK(std::all_of(needed.counts.begin(), needed.counts.end(), [](int n) { return n == 0; }));
    return out;
}

// The squared error over the squared result.
double error(const matrix & m, const std::vector<float> & rows, int n_rows, const std::vector<float> & out) {
    double of_error = 0, of_result = 0;
    for (int row = 0; row < n_rows; ++row) {
        for (int column = 0; column < m.n_columns; ++column) {
            double sum = 0;
            for (int k = 0; k < m.n_k; ++k) {
                sum += (double) m.values[(size_t) column * m.n_k + k] * rows[(size_t) row * m.n_k + k];
            }
            const double off = out[(size_t) row * m.n_columns + column] - sum;
            of_error += off * off;
            of_result += sum * sum;
        }
    }
    return of_error / of_result;
}

void test_kind(const kind & kind, bool whole) {
    const std::string name = ggml_type_name(kind.type);
    for (const int n_k : whole ? std::vector<int>{ 256, 768, 1280 } : std::vector<int>{ 768 }) {
        const matrix             m(kind.type, whole ? 300 : 40, n_k);
        const std::vector<float> rows = normal((size_t) 64 * n_k, 1.0f, 2);
        for (const int splits : { 1, 2 }) {
            if (splits > n_k / CHUNK) {
                continue;
            }
            const std::vector<float> one = product(kind.few, m, rows, 1, splits);
            for (const int n_rows : whole ? std::vector<int>{ 1, 7, 8, 13, 16, 31, 64 } : std::vector<int>{ 13 }) {
                const std::vector<float> out   = product(kind.few, m, rows, n_rows, splits);
                const double             wrong = error(m, rows, n_rows, out);
                std::printf("%s, k %d, splits %d, %d rows: %.2e\n", name.c_str(), n_k, splits, n_rows, wrong);
                CHECK(wrong < 2e-6);   // of halves; activations of 8 bits: 2e-5
                CHECK(std::equal(one.begin(), one.end(), out.begin()));
            }
        }
    }
}

// A norm ahead, something to add, and gated: against the same in single steps.
void test_fused() {
    constexpr int            n_rows = 11, n_k = 512, n_columns = 72;
    const matrix             gate(GGML_TYPE_Q4_K, n_columns, n_k), up(GGML_TYPE_Q4_K, n_columns, n_k, 5);
    const std::vector<float> x = normal(n_rows * n_k, 3.0f, 2), weight = normal(n_k, 1.0f, 4);
    const std::vector<float> added = normal(n_rows * n_columns, 1.0f, 6);

    std::vector<float> normed(n_rows * n_k), expected(n_rows * n_k);
    for (int row = 0; row < n_rows; ++row) {
        double sum = 0;
        for (int k = 0; k < n_k; ++k) {
            sum += (double) x[row * n_k + k] * x[row * n_k + k];
        }
        for (int k = 0; k < n_k; ++k) {
            expected[row * n_k + k] = (float) (x[row * n_k + k] / std::sqrt(sum / n_k + 1e-6) * weight[k]);
        }
    }
    for (const int splits : { 1, 2 }) {
        std::vector<float> gated(n_rows * n_columns, NAN), sum(n_rows * n_columns, NAN);
        few_rows_product   p = product_of(few_rows_type::q4_K, gate, n_rows, gated);
        p.up                 = up.data;
        memory    needed(p, splits);
        norm_args norm  = {};
        norm.rows       = { x.data(), n_k, n_rows, n_k, needed.get().tiles };
        norm.weight     = weight.data();
        norm.out        = normed.data();
        norm.out_stride = n_k;
        norm.eps        = 1e-6f;
        few_rows_norm(k_order::halves_of_64, norm, nullptr);
        for (size_t i = 0; i < normed.size(); ++i) {
            CHECK(std::fabs(normed[i] - expected[i]) <= 1e-5f * (1 + std::fabs(expected[i])));
        }
        few_rows_multiply<false>(p, needed.get(), splits, nullptr);

        const std::vector<float> gates = product(few_rows_type::q4_K, gate, normed, n_rows, splits);
        const std::vector<float> ups   = product(few_rows_type::q4_K, up, normed, n_rows, splits);
        few_rows_product         q     = product_of(few_rows_type::q4_K, gate, n_rows, sum);
        q.added                        = added.data();
        memory more(q, splits);
        few_rows_tile(k_order::halves_of_64, { normed.data(), n_k, n_rows, n_k, more.get().tiles }, nullptr);
        few_rows_multiply<false>(q, more.get(), splits, nullptr);
        for (size_t i = 0; i < gated.size(); ++i) {
            const float swiglu = gates[i] / (1.0f + std::exp(-gates[i])) * ups[i];
            CHECK(std::fabs(gated[i] - swiglu) <= 1e-6f * (1 + std::fabs(swiglu)));
            CHECK(sum[i] == gates[i] + added[i]);
        }
    }
}

// As many stages as fit: on an RTX 3090 a block has 99 KiB.
void test_stages() {
    const matrix             m(GGML_TYPE_Q8_0, 40, 1280);
    const std::vector<float> rows = normal((size_t) 64 * 1280, 1.0f, 2),
                             one  = product(few_rows_type::q8_0, m, rows, 16, 1);
    for (const int kib : { 99, 163 }) {
        most_shared = kib << 10;
        CHECK(product(few_rows_type::q8_0, m, rows, 16, 1) == one);
        CHECK(product(few_rows_type::q8_0, m, rows, 16, 2) == product(few_rows_type::q8_0, m, rows, 16, 2));
    }
    most_shared = 227 << 10;
    CHECK(few_rows_fit(few_rows_type::q4_K, 32, 99 << 10) && !few_rows_fit(few_rows_type::q4_K, 64, 99 << 10));
    CHECK(few_rows_fit(few_rows_type::q8_0, 16, 99 << 10) && !few_rows_fit(few_rows_type::q8_0, 32, 99 << 10));
    for (const kind & kind : KINDS) {
        CHECK(few_rows_fit(kind.few, 64, 227 << 10) && few_rows_fit(kind.few, 16, 99 << 10));
    }
    for (const int chunks : { 1, 2, 3, 4, 5, 48 }) {
        const few_rows_stages s = few_rows_stages_of(30'000, chunks, 99 << 10);
        CHECK(s.n >= 1 && s.n <= chunks && s.bytes <= 99 << 10 && s.ahead >= 1 && s.ahead <= s.n);
        CHECK(s.n == chunks || s.ahead < s.n);   // the stage that is filled is not the one that is read
    }
}

// Values that halves do not have: a row of the largest activations seen in models, one of tiny ones, and a NaN.
void test_range() {
    const matrix       m(GGML_TYPE_Q4_K, 40, 256);
    std::vector<float> rows = normal(4 * 256, 1.0f, 3);
    for (int k = 0; k < 256; ++k) {
        rows[k] *= 2e5f;
        rows[256 + k] *= 1e-3f;
    }
    for (int row = 0; row < 2; ++row) {
        const std::vector<float> one(rows.begin() + row * 256, rows.begin() + (row + 1) * 256);
        CHECK(error(m, one, 1, product(few_rows_type::q4_K, m, one, 1, 1)) < 2e-5);
    }
    rows[3 * 256 + 100]          = NAN;
    const std::vector<float> out = product(few_rows_type::q4_K, m, rows, 4, 1);
    CHECK(std::isnan(out[3 * 40 + 7]) && !std::isnan(out[2 * 40 + 7]));
}

// A kernel without one of its barriers, or that does not wait for its copies, is noticed in one of the orders. One
// barrier orders what a block writes and what others read; here they run one after another.
void test_faults() {
    const matrix             m(GGML_TYPE_Q4_1, 40, 1280);   // as many chunks as stages are used again
    const std::vector<float> rows  = normal((size_t) 16 * 1280, 1.0f, 2);
    const auto               fails = [&] {
        for (const auto order : { emulated_cuda::turn_order::ascending, emulated_cuda::turn_order::descending }) {
            emulated_cuda::order = order;
            for (const int splits : { 1, 2 }) {
                if (!(error(m, rows, 16, product(few_rows_type::q4_1, m, rows, 16, splits)) < 2e-6)) {
                    return true;
                }
            }
        }
        return false;
    };
    emulated_cuda::barrier_lines.clear();
    CHECK(!fails());
    const std::set<int> lines = emulated_cuda::barrier_lines;
    CHECK(lines.size() >= 3);   // stages, and two where parts are added
    int n_unnoticed = 0;
    for (const int line : lines) {
        emulated_cuda::missing_line = line;
        n_unnoticed += !fails();
    }
    CHECK(n_unnoticed == 1);
    emulated_cuda::missing_line = 0;
    emulated_cuda::late_copies  = true;
    CHECK(fails());
    emulated_cuda::late_copies = false;
}

}   // namespace

int main(int argc, char ** argv) {
    const bool whole = argc > 1 && std::string(argv[1]) == "all";
    for (const kind & kind : KINDS) {
        test_kind(kind, whole);
    }
    test_fused();
    test_stages();
    test_range();
    test_faults();
    return TEST_RESULT;
}
