// Attention without flash attention: compared with float64, and the same bits for any combination of rows, gaps and
// threads.

#include "check.h"
#include "weights.h"
#include "cpu/isa/kernels.h"

#include "ggml-backend.h"
#include "ggml-cpu.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

using namespace dflash;

static std::mt19937 rng(1);

static float gauss() { return std::normal_distribution<float>()(rng); }
static int   pick(int a, int b) { return std::uniform_int_distribution<int>(a, b)(rng); }

struct problem {
    ggml_type k_type, v_type;
    int64_t   dk, dv, cells, rows, kv_heads, group, streams;
    float     scale, bias;
    bool      half_mask, has_sinks;
    // q [streams][rows][heads][dk], k [streams][cells][kv heads][dk], v the same with dv, mask [streams][rows][cells];
    // k and v as stored
    std::vector<float> q, k, v, mask, sinks;

    int64_t heads() const { return kv_heads * group; }
    float   slope(int64_t h) const {
        const int n = 1 << (int) std::log2(heads());
        return bias <= 0 ? 1.0f
                 : h < n   ? std::pow(2.0f, -bias / n * (h + 1))
                           : std::pow(2.0f, -bias / 2 / n * (2 * (h - n) + 1));
    }
};

static problem make() {
    static const ggml_type k_types[] = { GGML_TYPE_F16, GGML_TYPE_F32, GGML_TYPE_BF16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0 },
                           v_types[] = { GGML_TYPE_F16, GGML_TYPE_F32, GGML_TYPE_BF16 };
    problem p = { k_types[pick(0, 4)], v_types[pick(0, 2)], 32 * pick(1, 5), 16 * pick(1, 9), pick(1, 300), pick(1, 40),
        pick(1, 3), pick(1, 3), pick(1, 2), 0, 0, pick(0, 1) == 0, pick(0, 1) == 0, {}, {}, {}, {}, {} };
    p.scale   = 1.0f / std::sqrt((float) p.dk);
    p.bias    = pick(0, 2) == 0 ? 8.0f : 0.0f;
    p.q.resize(p.streams * p.rows * p.heads() * p.dk);
    p.k.resize(p.streams * p.cells * p.kv_heads * p.dk);
    p.v.resize(p.streams * p.cells * p.kv_heads * p.dv);
    p.sinks.resize(p.heads());
    for (auto * x : { &p.q, &p.k, &p.v, &p.sinks }) {
        for (float & y : *x) {
            y = 2 * gauss();
        }
    }
    pack(p.k_type, p.k, p.dk);
    pack(p.v_type, p.v, p.dv);
    const int64_t past = p.cells / 2;
    for (int64_t r = 0; r < p.streams * p.rows; ++r) {
        for (int64_t c = 0; c < p.cells; ++c) {   // a past with a window, a tree after it, or everything
            const bool is_visible = r % 5 == 4 ? c < past : c < past ? c + 100 > past : pick(0, 2) == 0;
            p.mask.push_back(!is_visible ? -INFINITY : p.bias > 0 ? -(float) (p.cells - c) : 0.0f);
        }
    }
    return p;
}

// The same problem with garbage in the cells that no row sees.
static problem with_garbage(problem p, float garbage) {
    const int64_t k = p.kv_heads * p.dk, v = p.kv_heads * p.dv;
    for (int64_t i = 0; i < p.streams * p.cells; ++i) {
        const int64_t s = i / p.cells, c = i % p.cells;
        bool          is_hidden = true;
        for (int64_t r = 0; r < p.rows; ++r) {
            is_hidden &= p.mask[(s * p.rows + r) * p.cells + c] == -INFINITY;
        }
        if (is_hidden) {
            std::fill_n(p.k.begin() + i * k, k, garbage);
            std::fill_n(p.v.begin() + i * v, v, garbage);
        }
    }
    return p;
}

// The same problem with hidden cells of other cells' contents in between.
static problem with_gaps(const problem & p) {
    problem              g = p;
    std::vector<int64_t> from;   // -1: a gap
    for (int64_t c = 0; c < p.cells; ++c) {
        for (int i = pick(0, 2); i > 0; --i) {
            from.push_back(-1);
        }
        from.push_back(c);
    }
    g.cells = (int64_t) from.size();
    g.k.clear();
    g.v.clear();
    g.mask.clear();
    const int64_t k = p.kv_heads * p.dk, v = p.kv_heads * p.dv;
    for (int64_t s = 0; s < p.streams; ++s) {
        for (const int64_t c : from) {
            const int64_t f = s * p.cells + (c < 0 ? pick(0, (int) p.cells - 1) : c);
            g.k.insert(g.k.end(), p.k.begin() + f * k, p.k.begin() + (f + 1) * k);
            g.v.insert(g.v.end(), p.v.begin() + f * v, p.v.begin() + (f + 1) * v);
        }
    }
    for (int64_t r = 0; r < p.streams * p.rows; ++r) {
        for (const int64_t c : from) {
            g.mask.push_back(c < 0 ? -INFINITY : p.mask[r * p.cells + c]);
        }
    }
    return g;
}

static std::vector<double> exact(const problem & p) {   // [streams][rows][heads][dv]
    std::vector<double> out;
    for (int64_t sr = 0; sr < p.streams * p.rows; ++sr) {
        const int64_t s = sr / p.rows;
        for (int64_t h = 0; h < p.heads(); ++h) {
            std::vector<double> x(p.cells), sum(p.dv);
            double              top = p.has_sinks ? p.sinks[h] : -INFINITY;
            for (int64_t c = 0; c < p.cells; ++c) {
                for (int64_t d = 0; d < p.dk; ++d) {
                    x[c] += (double) p.q[(sr * p.heads() + h) * p.dk + d] *
                            p.k[((s * p.cells + c) * p.kv_heads + h / p.group) * p.dk + d];
                }
                x[c] = x[c] * p.scale + (double) p.slope(h) * p.mask[sr * p.cells + c];
                top  = std::max(top, x[c]);
            }
            double total = p.has_sinks ? std::exp(p.sinks[h] - top) : 0;
            for (int64_t c = 0; c < p.cells && top > -INFINITY; ++c) {
                const double w = std::exp(x[c] - top);
                total += w;
                for (int64_t d = 0; d < p.dv; ++d) {
                    sum[d] += w * p.v[((s * p.cells + c) * p.kv_heads + h / p.group) * p.dv + d];
                }
            }
            for (const double y : sum) {
                out.push_back(total > 0 ? y / total : 0);
            }
        }
    }
    return out;
}

static double worst(const std::vector<float> & a, const std::vector<double> & b) {
    double most = a.size() == b.size() ? 0 : INFINITY;
    for (size_t i = 0; i < a.size(); ++i) {
        most = std::max(most, std::isnan(a[i]) ? INFINITY : std::abs(a[i] - b[i]));
    }
    return most;
}

static bool same(const std::vector<float> & a, const std::vector<float> & b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// V as stored in a cache without flash attention: [streams][kv heads][dv][cells]
static std::vector<char> transposed_values(const problem & p) {
    std::vector<float> x(p.v.size());
    for (int64_t s = 0; s < p.streams; ++s) {
        for (int64_t c = 0; c < p.cells; ++c) {
            for (int64_t i = 0; i < p.kv_heads * p.dv; ++i) {
                x[(s * p.kv_heads * p.dv + i) * p.cells + c] = p.v[(s * p.cells + c) * p.kv_heads * p.dv + i];
            }
        }
    }
    return pack(p.v_type, x, p.cells);
}

// Computes the first stream with the kernels of one instruction set, `each` queries and a chunk of cells at a time:
// [rows][heads][dv]
static std::vector<float> by_kernels(problem p, const attention_no_flash_kernels & kernels, int64_t each) {
    const auto         k = pack(p.k_type, p.k, p.dk), v = transposed_values(p);
    std::vector<float> out(p.rows * p.heads() * p.dv), w(each * p.cells), part(each * p.dv), q(each * p.dk),
        scratch(kernels.block * p.dk), transposed((p.cells + kernels.block) * p.dk),
        values(multiply_weights_v_scratch(kernels, p.dv));
    const size_t  head = ggml_row_size(p.k_type, p.dk), column = ggml_row_size(p.v_type, p.cells);
    const int64_t chunk = kernels.block * pick(1, 3);
    for (int64_t h = 0; h < p.heads(); ++h) {
        for (int64_t r = 0; r < p.rows; r += each) {
            const int64_t n = std::min(each, p.rows - r);
            for (int64_t l = 0; l < n; ++l) {
                std::memcpy(q.data() + l * p.dk, p.q.data() + ((r + l) * p.heads() + h) * p.dk, p.dk * sizeof(float));
            }
            for (int64_t c = 0; c < p.cells; c += chunk) {
                const int64_t take = std::min(chunk, p.cells - c);
                kernels.transpose_k(p.k_type, k.data() + (c * p.kv_heads + h / p.group) * head, p.kv_heads * head, take,
                    p.dk, scratch.data(), transposed.data());
                kernels.multiply_q_k(transposed.data(), take, p.dk, q.data(), n, w.data() + c, p.cells);
            }
            for (int64_t l = 0; l < n; ++l) {
                float *                  x    = w.data() + l * p.cells;
                const float *            mask = p.mask.data() + (r + l) * p.cells;
                std::vector<ggml_fp16_t> half(p.cells);
                ggml_fp32_to_fp16_row(mask, half.data(), p.cells);
                kernels.softmax(x, x, p.cells, p.scale, p.slope(h), p.half_mask ? half.data() : nullptr,
                    p.half_mask ? nullptr : mask, p.has_sinks ? p.sinks[h] : -INFINITY);
            }
            kernels.multiply_weights_v(p.v_type, v.data() + h / p.group * p.dv * column, column, p.cells, p.dv,
                w.data(), n, p.cells, part.data(), p.dv, values.data());
            for (int64_t l = 0; l < n; ++l) {
                std::memcpy(
                    out.data() + ((r + l) * p.heads() + h) * p.dv, part.data() + l * p.dv, p.dv * sizeof(float));
            }
        }
    }
    return out;
}

static void test_kernels() {
    for (int i = 0; i < 20; ++i) {
        problem p = make();
        p.streams = 1;
        p.q.resize(p.rows * p.heads() * p.dk);
        p.k.resize(p.cells * p.kv_heads * p.dk);
        p.v.resize(p.cells * p.kv_heads * p.dv);
        p.mask.resize(p.rows * p.cells);
        const problem g    = with_gaps(p);
        const auto    want = exact(p);
        for (const kernel_table * table : kernel_tables()) {
            const attention_no_flash_kernels & kernels = table->attention_no_flash;
            const auto                         got     = by_kernels(p, kernels, MAX_WEIGHTED_QUERIES);
            CHECK(worst(got, want) < 2e-5);
            CHECK(same(got, by_kernels(p, kernels, 1)));
            CHECK(same(got, by_kernels(p, kernels, 7)));
            CHECK(same(got, by_kernels(g, kernels, 13)));
            for (const float garbage : { NAN, INFINITY, -INFINITY }) {
                CHECK(same(got, by_kernels(with_garbage(g, garbage), kernels, 1)));
                CHECK(same(got, by_kernels(with_garbage(p, garbage), kernels, MAX_WEIGHTED_QUERIES)));
            }
        }
    }
}

// A cell that is not finite spoils the rows that see it and no others, though they are computed together.
static void test_spoilt_cell() {
    for (int i = 0; i < 10; ++i) {
        problem p = make();
        p.streams = 1;
        p.k_type = p.v_type = GGML_TYPE_F16;
        p.q.resize(p.rows * p.heads() * p.dk);
        p.k.resize(p.cells * p.kv_heads * p.dk);
        p.v.resize(p.cells * p.kv_heads * p.dv);
        p.mask.resize(p.rows * p.cells);
        const int64_t c = p.cells / 2, k = p.kv_heads * p.dk, v = p.kv_heads * p.dv, row = p.heads() * p.dv;
        problem       g = p;
        std::fill_n(g.k.begin() + c * k, k, NAN);
        std::fill_n(g.v.begin() + c * v, v, NAN);
        for (const kernel_table * table : kernel_tables()) {
            const auto clean = by_kernels(p, table->attention_no_flash, MAX_WEIGHTED_QUERIES),
                       got   = by_kernels(g, table->attention_no_flash, MAX_WEIGHTED_QUERIES);
            for (int64_t r = 0; r < p.rows; ++r) {
                const bool is_same =
                    std::memcmp(got.data() + r * row, clean.data() + r * row, row * sizeof(float)) == 0;
                CHECK(is_same == (p.mask[r * p.cells + c] == -INFINITY));
                CHECK(is_same || std::isnan(got[r * row]));
            }
        }
    }
}

// A row that sees nothing is zero, and one that sees almost only the sink is almost zero.
static void test_blind_row() {
    for (const kernel_table * table : kernel_tables()) {
        for (const int64_t n : { 1, 7, 16, 45 }) {
            std::vector<float> x(n, 1.0f), mask(n, -INFINITY);
            table->attention_no_flash.softmax(x.data(), x.data(), n, 1.0f, 1.0f, nullptr, mask.data(), -INFINITY);
            CHECK(std::all_of(x.begin(), x.end(), [](float y) { return y == 0.0f; }));
            std::fill(x.begin(), x.end(), 0.0f);
            table->attention_no_flash.softmax(x.data(), x.data(), n, 1.0f, 1.0f, nullptr, nullptr, 50.0f);
            CHECK(std::all_of(x.begin(), x.end(), [](float y) { return y > 0.0f && y < 1e-20f; }));
        }
    }
}

#ifndef KERNELS_ONLY
// Computes it with ggml, as llama.cpp does: views of larger caches, permuted Q, streams. [streams][rows][heads][dv]
static std::vector<float> by_graph(problem p, int threads, int64_t only_row = -1) {
    const int64_t  size = p.cells + pick(0, 20), rows = only_row < 0 ? p.rows : 1;   // cells of the cache
    ggml_backend_t cpu = ggml_backend_cpu_init();
    ggml_backend_cpu_set_n_threads(cpu, threads);
    ggml_context * ctx = ggml_init({ 1 << 20, nullptr, true });
    ggml_tensor *  kc  = ggml_new_tensor_3d(ctx, p.k_type, p.dk * p.kv_heads, size, p.streams),
                *vc    = ggml_new_tensor_3d(ctx, p.v_type, size, p.dv * p.kv_heads, p.streams);
    ggml_tensor *q     = ggml_new_tensor_4d(ctx, GGML_TYPE_F32, p.dk, p.heads(), p.rows, p.streams),
                *sinks = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, p.heads());
    ggml_tensor * mask =
        ggml_new_tensor_4d(ctx, p.half_mask ? GGML_TYPE_F16 : GGML_TYPE_F32, p.cells, rows, 1, p.streams);
    const size_t  head = ggml_row_size(p.k_type, p.dk), column = ggml_row_size(p.v_type, size);
    ggml_tensor * k = ggml_permute(
        ctx, ggml_view_4d(ctx, kc, p.dk, p.kv_heads, p.cells, p.streams, head, kc->nb[1], kc->nb[2], 0), 0, 2, 1, 3);
    ggml_tensor * v  = ggml_permute(ctx,
         ggml_view_4d(ctx, vc, p.cells, p.kv_heads, p.dv, p.streams, column * p.dv, column, vc->nb[2], 0), 0, 2, 1, 3);
    ggml_tensor * qv = ggml_view_4d(ctx, q, p.dk, p.heads(), rows, p.streams, q->nb[1], q->nb[2], q->nb[3],
        std::max<int64_t>(0, only_row) * q->nb[2]);
    ggml_tensor * weights =
        ggml_soft_max_ext(ctx, ggml_mul_mat(ctx, k, ggml_permute(ctx, qv, 0, 2, 1, 3)), mask, p.scale, p.bias);
    ggml_soft_max_add_sinks(weights, p.has_sinks ? sinks : nullptr);
    ggml_tensor * out   = ggml_cont(ctx, ggml_permute(ctx, ggml_mul_mat(ctx, v, weights), 0, 2, 1, 3));
    ggml_cgraph * graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, out);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(ctx, cpu);
    ggml_backend_buffer_clear(buffer, 0);
    const auto k_bytes = pack(p.k_type, p.k, p.dk), v_bytes = transposed_values(p);
    for (int64_t s = 0; s < p.streams; ++s) {
        ggml_backend_tensor_set(
            kc, k_bytes.data() + s * p.cells * p.kv_heads * head, s * kc->nb[2], p.cells * p.kv_heads * head);
        for (int64_t i = 0; i < p.dv * p.kv_heads; ++i) {
            const size_t bytes = ggml_row_size(p.v_type, p.cells);
            ggml_backend_tensor_set(
                vc, v_bytes.data() + (s * p.dv * p.kv_heads + i) * bytes, s * vc->nb[2] + i * vc->nb[1], bytes);
        }
        for (int64_t r = 0; r < rows; ++r) {
            const float *            row = p.mask.data() + (s * p.rows + std::max<int64_t>(0, only_row) + r) * p.cells;
            std::vector<ggml_fp16_t> half(p.cells);
            ggml_fp32_to_fp16_row(row, half.data(), p.cells);
            ggml_backend_tensor_set(mask, p.half_mask ? (const void *) half.data() : row,
                s * mask->nb[3] + r * mask->nb[1], p.cells * ggml_type_size(mask->type));
        }
    }
    ggml_backend_tensor_set(q, p.q.data(), 0, ggml_nbytes(q));
    ggml_backend_tensor_set(sinks, p.sinks.data(), 0, ggml_nbytes(sinks));
    CHECK(ggml_backend_graph_compute(cpu, graph) == GGML_STATUS_SUCCESS);
    std::vector<float> result(ggml_nelements(out));
    ggml_backend_tensor_get(out, result.data(), 0, ggml_nbytes(out));
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
    ggml_backend_free(cpu);
    return result;
}

static void test_graphs() {
    for (int i = 0; i < 20; ++i) {
        const problem p   = make();
        const auto    got = by_graph(p, 1);
        CHECK(worst(got, exact(p)) < 2e-5);
        CHECK(same(got, by_graph(p, pick(2, 8))));
        CHECK(same(got, by_graph(with_gaps(p), pick(1, 8))));
        CHECK(same(got, by_graph(with_garbage(p, NAN), 2)));
        const int64_t r = pick(0, (int) p.rows - 1), row = p.heads() * p.dv;
        const auto    alone = by_graph(p, pick(1, 8), r);
        for (int64_t s = 0; s < p.streams; ++s) {
            CHECK(std::memcmp(alone.data() + s * row, got.data() + (s * p.rows + r) * row, row * sizeof(float)) == 0);
        }
    }
}
#endif

int main() {
#ifndef KERNELS_ONLY   // without ggml's CPU backend: for other processors in an emulator
    test_graphs();
#endif
    test_kernels();
    test_spoilt_cell();
    test_blind_row();
    return TEST_RESULT;
}
