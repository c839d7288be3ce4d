// Flash attention over a KV cache: compared with float64, and the same bits for any combination of rows, gaps and
// threads.

#include "cpu/isa/kernels.h"
#include "check.h"
#include "weights.h"

#include "ggml-backend.h"
#include "ggml-cpu.h"

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

using namespace dflash;

static std::mt19937 rng(1);

static float gauss() { return std::normal_distribution<float>()(rng); }
static int   pick(int a, int b) { return std::uniform_int_distribution<int>(a, b)(rng); }

struct problem {
    ggml_type                type;
    int64_t                  dk, dv, cells, rows, heads, group;
    float                    scale, softcap, bias;
    bool                     has_sinks;
    std::vector<float>       q, k, v, sinks;   // q [rows][heads][dk], k [cells][kv heads][dk]; k and v as stored
    std::vector<char>        k_bytes, v_bytes;
    std::vector<ggml_fp16_t> mask;   // [rows][cells]

    int64_t kv_heads() const { return heads / group; }
};

static problem make(
    ggml_type type, int64_t dk, int64_t dv, int64_t cells, int64_t rows, int64_t kv_heads, int64_t group) {
    problem p = { type, dk, dv, cells, rows, kv_heads * group, group, 1.0f / std::sqrt((float) dk),
        pick(0, 3) == 0 ? 30.0f : 0.0f, pick(0, 3) == 0 ? 8.0f : 0.0f, pick(0, 1) == 0, {}, {}, {}, {}, {}, {}, {} };
    p.q.resize(rows * p.heads * dk);
    p.k.resize(cells * kv_heads * dk);
    p.v.resize(cells * kv_heads * dv);
    p.sinks.resize(p.heads);
    for (auto * x : { &p.q, &p.k, &p.v, &p.sinks }) {
        for (float & y : *x) {
            y = 2 * gauss();
        }
    }
    p.k_bytes          = pack(type, p.k, dk);
    p.v_bytes          = pack(type, p.v, dv);
    const int64_t past = cells / 2;
    for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < cells; ++c) {   // a past with a window, a tree after it, or everything
            const bool is_visible = r % 5 == 4 ? c < past : c < past ? c + 100 > past : pick(0, 2) == 0;
            p.mask.push_back(ggml_fp32_to_fp16(!is_visible ? -INFINITY : p.bias > 0 ? -(float) (cells - c) : 0.0f));
        }
    }
    return p;
}

static flash_attention_args args_of(const problem & p, float * out) {
    flash_attention_args args = {};
    args.q                    = (const char *) p.q.data();
    args.k                    = p.k_bytes.data();
    args.v                    = p.v_bytes.data();
    args.mask                 = (const char *) p.mask.data();
    args.sinks                = p.has_sinks ? p.sinks.data() : nullptr;
    args.out                  = out;
    args.q_head               = p.dk * 4;
    args.q_row                = p.heads * args.q_head;
    args.k_head               = ggml_row_size(p.type, p.dk);
    args.k_cell               = p.kv_heads() * args.k_head;
    args.v_head               = ggml_row_size(p.type, p.dv);
    args.v_cell               = p.kv_heads() * args.v_head;
    args.mask_row             = p.cells * 2;
    args.n_mask_heads = args.n_mask_streams = args.n_k_streams = args.n_streams = 1;
    args.dk                                                                     = p.dk;
    args.dv                                                                     = p.dv;
    args.n_cells                                                                = p.cells;
    args.n_rows                                                                 = p.rows;
    args.n_heads                                                                = p.heads;
    args.n_gqa                                                                  = p.group;
    args.k_type = args.v_type = p.type;
    args.scale                = p.softcap != 0 ? p.scale / p.softcap : p.scale;
    args.softcap              = p.softcap;
    args.slopes               = alibi_slopes(p.bias, p.heads);
    return args;
}

// [rows][heads][dv], with `each` queries at once
static std::vector<float> compute(const problem & p, const flash_attention_kernel & kernel, int64_t each) {
    const int64_t      n_queries = p.rows * p.group;
    std::vector<float> out(p.rows * p.heads * p.dv),
        scratch(flash_attention_scratch(kernel, each, p.cells, p.dk, p.dv) + 2);
    float * const              aligned = scratch.data() + ((uintptr_t) scratch.data() % 8 ? 1 : 0);
    const flash_attention_args args    = args_of(p, out.data());
    for (int64_t h = 0; h < p.kv_heads(); ++h) {
        for (int64_t i = 0; i < n_queries; i += each) {
            kernel.compute(args, 0, h, i, std::min(each, n_queries - i), aligned);
        }
    }
    return out;
}

static std::vector<double> exact(const problem & p) {
    const flash_attention_args args = args_of(p, nullptr);
    std::vector<double>        out;
    for (int64_t r = 0; r < p.rows; ++r) {
        for (int64_t h = 0; h < p.heads; ++h) {
            const int64_t       high  = h - args.slopes.n_low;
            const double        slope = p.bias <= 0 ? 1
                                        : high < 0  ? std::pow(args.slopes.low, h + 1)
                                                    : std::pow(args.slopes.high, 2 * high + 1);
            std::vector<double> s(p.cells), sum(p.dv);
            double              top = p.has_sinks ? p.sinks[h] : -INFINITY, total = 0;
            for (int64_t c = 0; c < p.cells; ++c) {
                for (int64_t d = 0; d < p.dk; ++d) {
                    s[c] +=
                        (double) p.q[(r * p.heads + h) * p.dk + d] * p.k[(c * p.kv_heads() + h / p.group) * p.dk + d];
                }
                s[c] *= p.scale;
                s[c] = (p.softcap != 0 ? p.softcap * std::tanh(s[c] / p.softcap) : s[c]) +
                       slope * ggml_fp16_to_fp32(p.mask[r * p.cells + c]);
                top = std::max(top, s[c]);
            }
            total = p.has_sinks ? std::exp(p.sinks[h] - top) : 0;
            for (int64_t c = 0; c < p.cells; ++c) {
                const double w = std::exp(s[c] - top);
                total += w;
                for (int64_t d = 0; d < p.dv; ++d) {
                    sum[d] += w * p.v[(c * p.kv_heads() + h / p.group) * p.dv + d];
                }
            }
            for (double x : sum) {
                out.push_back(x / total);
            }
        }
    }
    return out;
}

static double worst(const std::vector<float> & a, const std::vector<double> & b) {
    double most = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        most = std::max(most, std::isnan(a[i]) ? INFINITY : std::abs(a[i] - b[i]));
    }
    return most;
}

static bool same(const std::vector<float> & a, const std::vector<float> & b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Values that are not finite, as every two bytes of a cell: a NaN of all types, and infinities of halves and of BF16.
constexpr uint16_t GARBAGE[] = { 0xFFFF, 0x7C00, 0xFC00, 0x7F80 };

static void spoil(std::vector<char> & cells, int64_t cell, int64_t bytes, uint16_t garbage) {
    for (int64_t i = 0; i < bytes; i += 2) {
        std::memcpy(cells.data() + cell * bytes + i, &garbage, 2);
    }
}

static int64_t k_cell(const problem & p) { return ggml_row_size(p.type, p.dk) * p.kv_heads(); }   // bytes
static int64_t v_cell(const problem & p) { return ggml_row_size(p.type, p.dv) * p.kv_heads(); }

// The same problem with garbage in the cells that no row sees.
static problem with_garbage(problem p, uint16_t garbage) {
    for (int64_t c = 0; c < p.cells; ++c) {
        bool is_hidden = true;
        for (int64_t r = 0; r < p.rows; ++r) {
            is_hidden &= p.mask[r * p.cells + c] == 0xFC00;
        }
        if (is_hidden) {
            spoil(p.k_bytes, c, k_cell(p), garbage);
            spoil(p.v_bytes, c, v_cell(p), garbage);
        }
    }
    return p;
}

// The same problem with hidden cells of other cells' contents in between.
static problem with_gaps(const problem & p) {
    problem g = p;
    g.k_bytes.clear();
    g.v_bytes.clear();
    std::vector<int64_t> from;   // -1: a gap
    for (int64_t c = 0; c < p.cells; ++c) {
        for (int i = pick(0, 2); i > 0; --i) {
            from.push_back(-1);
        }
        from.push_back(c);
    }
    g.cells         = (int64_t) from.size();
    const int64_t k = k_cell(p), v = v_cell(p);
    for (const int64_t c : from) {
        const int64_t f = c < 0 ? pick(0, (int) p.cells - 1) : c;
        g.k_bytes.insert(g.k_bytes.end(), p.k_bytes.begin() + f * k, p.k_bytes.begin() + (f + 1) * k);
        g.v_bytes.insert(g.v_bytes.end(), p.v_bytes.begin() + f * v, p.v_bytes.begin() + (f + 1) * v);
    }
    g.mask.clear();
    for (int64_t r = 0; r < p.rows; ++r) {
        for (const int64_t c : from) {
            g.mask.push_back(c < 0 ? ggml_fp32_to_fp16(-INFINITY) : p.mask[r * p.cells + c]);
        }
    }
    return g;
}

static void test_kernels() {
    const ggml_type types[] = { GGML_TYPE_F16, GGML_TYPE_F32, GGML_TYPE_BF16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0 };
    for (int i = 0; i < 60; ++i) {
        const problem p =
            make(types[i % 5], 32 * pick(1, 5), 32 * pick(1, 5), pick(1, 150), pick(1, 20), pick(1, 2), pick(1, 3));
        const problem g    = with_gaps(p);
        const auto    want = exact(p);
        for (const kernel_table * kernels : kernel_tables()) {
            const auto got = compute(p, kernels->flash_attention, 64);
            CHECK(worst(got, want) < 2e-5);
            CHECK(same(got, compute(p, kernels->flash_attention, 1)));
            CHECK(same(got, compute(p, kernels->flash_attention, 7)));
            CHECK(same(got, compute(g, kernels->flash_attention, 13)));
            for (const uint16_t garbage : GARBAGE) {
                CHECK(same(got, compute(with_garbage(g, garbage), kernels->flash_attention, 1)));
                CHECK(same(got, compute(with_garbage(p, garbage), kernels->flash_attention, 64)));
            }
        }
        problem wrong = p;   // this test can fail
        for (int64_t c = 0; c < p.cells; ++c) {
            wrong.mask[c] = wrong.mask[c] == 0xFC00 ? 0 : 0xFC00;
        }
        CHECK(!best_kernels() || worst(compute(wrong, best_kernels()->flash_attention, 64), want) > 1e-3);
    }
}

// A cell that is not finite spoils the rows that see it and no others, though they are computed together.
static void test_spoilt_cell() {
    for (const ggml_type type : { GGML_TYPE_F16, GGML_TYPE_F32, GGML_TYPE_Q8_0 }) {
        for (const int64_t rows : { 2, 20 }) {
            const problem p = make(type, 64, 96, 150, rows, 2, 2);
            for (const kernel_table * kernels : kernel_tables()) {
                const auto clean = compute(p, kernels->flash_attention, 64);
                problem    g     = p;
                const int  c     = pick(75, 149);   // of the tree
                spoil(g.k_bytes, c, k_cell(p), GARBAGE[0]);
                spoil(g.v_bytes, c, v_cell(p), GARBAGE[0]);
                const auto    got = compute(g, kernels->flash_attention, 64);
                const int64_t row = p.heads * p.dv;
                for (int64_t r = 0; r < rows; ++r) {
                    const bool is_same =
                        std::memcmp(got.data() + r * row, clean.data() + r * row, row * sizeof(float)) == 0;
                    CHECK(is_same == (p.mask[r * p.cells + c] == 0xFC00));
                    CHECK(is_same || std::isnan(got[r * row]));
                }
            }
        }
    }
}

// A row that sees nothing is zero; hidden cells may contain anything.
static void test_blind_row() {
    problem p   = make(GGML_TYPE_F16, 64, 64, 40, 2, 1, 1);
    p.has_sinks = false;
    spoil(p.k_bytes, 39, k_cell(p), GARBAGE[0]);
    spoil(p.v_bytes, 39, v_cell(p), GARBAGE[0]);
    std::fill(p.mask.begin(), p.mask.begin() + 40, ggml_fp16_t(0xFC00));
    for (const kernel_table * kernels : kernel_tables()) {
        const auto got = compute(p, kernels->flash_attention, 64);
        for (int d = 0; d < 64; ++d) {
            CHECK(got[d] == 0.0f);
        }
    }
}

#ifndef KERNELS_ONLY
// ggml's op in a graph: streams, strided Q, 1 to 3 threads, all rows at once or one by one.
static void test_op() {
    const int64_t  dk = 64, heads = 4, kv_heads = 2, cells = 600, rows = 11, streams = 2;
    ggml_backend_t backend = ggml_backend_cpu_init();
    ggml_context * ctx     = ggml_init({ 1 << 20, nullptr, true });
    ggml_tensor *  q       = ggml_new_tensor_4d(ctx, GGML_TYPE_F32, dk, heads, rows, streams),
                *k         = ggml_new_tensor_4d(ctx, GGML_TYPE_F16, dk, kv_heads, cells, streams);
    ggml_tensor *v         = ggml_new_tensor_4d(ctx, GGML_TYPE_F16, dk, kv_heads, cells, streams),
                *mask      = ggml_new_tensor_4d(ctx, GGML_TYPE_F16, cells, rows, 1, streams);
    ggml_tensor *qp = ggml_permute(ctx, q, 0, 2, 1, 3), *kp = ggml_permute(ctx, k, 0, 2, 1, 3),
                *vp        = ggml_permute(ctx, v, 0, 2, 1, 3);
    ggml_tensor * all      = ggml_flash_attn_ext(ctx, qp, kp, vp, mask, 0.125f, 0, 0);
    ggml_cgraph * together = ggml_new_graph(ctx), *alone = ggml_new_graph(ctx);
    ggml_build_forward_expand(together, all);
    std::vector<ggml_tensor *> one;
    for (int64_t r = 0; r < rows; ++r) {
        ggml_tensor * qr = ggml_view_4d(ctx, qp, dk, 1, heads, streams, qp->nb[1], qp->nb[2], qp->nb[3], r * qp->nb[1]);
        ggml_tensor * mr =
            ggml_view_4d(ctx, mask, cells, 1, 1, streams, mask->nb[1], mask->nb[2], mask->nb[3], r * mask->nb[1]);
        one.push_back(ggml_flash_attn_ext(ctx, qr, kp, vp, ggml_cont(ctx, mr), 0.125f, 0, 0));
        ggml_build_forward_expand(alone, one.back());
    }
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(ctx, backend);
    const auto            fill   = [](ggml_tensor * t) {
        std::vector<float> x(ggml_nelements(t));
        for (float & y : x) {
            y = 2 * gauss();
        }
        const auto bytes = pack(t->type, x, t->ne[0]);
        ggml_backend_tensor_set(t, bytes.data(), 0, bytes.size());
    };
    fill(q);
    fill(k);
    fill(v);
    std::vector<ggml_fp16_t> m(ggml_nelements(mask));
    for (auto & x : m) {
        x = pick(0, 1) ? 0xFC00 : 0;
    }
    ggml_backend_tensor_set(mask, m.data(), 0, ggml_nbytes(mask));

    const auto read = [](ggml_tensor * t) {
        std::vector<float> x(ggml_nelements(t));
        ggml_backend_tensor_get(t, x.data(), 0, ggml_nbytes(t));
        return x;
    };
    std::vector<float> first;
    for (int threads = 1; threads <= 3; ++threads) {
        ggml_backend_cpu_set_n_threads(backend, threads);
        CHECK(ggml_backend_graph_compute(backend, together) == GGML_STATUS_SUCCESS);
        CHECK(ggml_backend_graph_compute(backend, alone) == GGML_STATUS_SUCCESS);
        const auto got = read(all);
        first          = threads == 1 ? got : first;
        CHECK(same(got, first));
        for (int64_t s = 0; s < streams; ++s) {
            for (int64_t r = 0; r < rows; ++r) {
                const auto row = read(one[r]);
                CHECK(std::memcmp(row.data() + s * heads * dk, got.data() + (s * rows + r) * heads * dk,
                          heads * dk * sizeof(float)) == 0);
            }
        }
    }
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
    ggml_backend_free(backend);
}

#endif

int main() {
#ifndef KERNELS_ONLY   // without ggml's CPU backend: for other processors in an emulator
    test_op();
#endif
    test_kernels();
    test_spoilt_cell();
    test_blind_row();
    return TEST_RESULT;
}
