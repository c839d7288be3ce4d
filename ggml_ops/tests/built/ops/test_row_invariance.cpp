// Every op of a target's pass: a row has the same bits alone and in passes of 1 to 64 rows, at any index, with 1 to 4
// threads.
//
//   test_row_invariance [NAME]     only the cases whose name begins with NAME

#include "check.h"
#include "weights.h"
#include "gdn/gdn_tree.h"

#include "ggml-backend.h"
#include "ggml-cpu.h"

#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

static constexpr int64_t POOL  = 70;    // rows that passes are taken from
static constexpr int64_t CELLS = 256;   // of a cache

static std::mt19937 rng(1);

// A tensor that an op reads. `rows` is the dimension with the rows of the pass; -1: the same tensor for all rows.
struct input {
    ggml_type              type;
    std::array<int64_t, 4> ne;
    int                    rows;
    enum { NORMAL, POSITIVE, MASK, PLACE, EXPERT, POSITION, ROOT } content = NORMAL;
    bool in_panels                                                         = false;
};

struct op_case {
    std::string                                                                name;
    std::vector<input>                                                         inputs;
    std::function<ggml_tensor *(ggml_context *, std::vector<ggml_tensor *> &)> build;
    int rows;   // dimension of the result with the rows
};

static constexpr int64_t EXPERTS = 8;

// One input for POOL rows.
static std::vector<char> content(const input & in) {
    std::array<int64_t, 4> ne = in.ne;
    if (in.rows >= 0) {
        ne[in.rows] = POOL;
    }
    const int64_t     n = ne[0] * ne[1] * ne[2] * ne[3];
    std::vector<char> out(n / ggml_blck_size(in.type) * ggml_type_size(in.type));
    if (in.type == GGML_TYPE_I32 || in.type == GGML_TYPE_I64) {
        for (int64_t i = 0; i < n; ++i) {
            const int64_t x = in.content == input::PLACE      ? i * 37 % POOL
                              : in.content == input::EXPERT   ? (int64_t) (rng() % EXPERTS)
                              : in.content == input::POSITION ? i * 13
                                                              : GGML_GDN_ROOT;
            if (in.type == GGML_TYPE_I32) {
                ((int32_t *) out.data())[i] = (int32_t) x;
            } else {
                ((int64_t *) out.data())[i] = x;
            }
        }
        return out;
    }
    std::normal_distribution<float> normal;
    std::vector<float>              x(n);
    for (int64_t i = 0; i < n; ++i) {
        x[i] = in.content == input::MASK       ? (i % ne[0] != 0 && rng() % 2 ? -INFINITY : 0.0f)
               : in.content == input::POSITIVE ? 0.1f + (rng() % 1000) / 1000.0f
                                               : normal(rng);
    }
    ggml_quantize_chunk(in.type, x.data(), out.data(), 0, n / ne[0], ne[0], nullptr);
    return out;
}

// Rows [first, first + n) of dimension `rows`, from content() or from a result with `of` rows.
static std::vector<char> slice(
    const std::vector<char> & all, const ggml_tensor * t, int rows, int64_t of, int64_t first, int64_t n) {
    size_t row = ggml_type_size(t->type);   // bytes of one row within the inner dimensions
    for (int d = 0; d < rows; ++d) {
        row *= t->ne[d];
    }
    row /= rows > 0 ? ggml_blck_size(t->type) : 1;
    std::vector<char> out;
    for (size_t at = 0; at < all.size(); at += row * of) {
        out.insert(out.end(), all.begin() + at + row * first, all.begin() + at + row * (first + n));
    }
    return out;
}

// Results for rows [first, first + n), one per number of threads; empty if this CPU has no kernel.
static std::vector<std::vector<char>> compute(ggml_backend_t cpu, const op_case & c,
    const std::vector<std::vector<char>> & data, int64_t first, int64_t n, int most_threads) {
    ggml_context *ctx = ggml_init({ 1 << 20, nullptr, true }), *apart = ggml_init({ 1 << 16, nullptr, true });
    std::vector<ggml_tensor *> in, kept;
    for (const input & i : c.inputs) {
        auto ne = i.ne;
        if (i.rows >= 0) {
            ne[i.rows] = n;
        }
        in.push_back(ggml_new_tensor(i.in_panels ? apart : ctx, i.type, 4, ne.data()));
    }
    kept                = in;
    ggml_tensor * out   = c.build(ctx, in);
    ggml_cgraph * graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, out);
    ggml_backend_buffer_t buffer  = ggml_backend_alloc_ctx_tensors(ctx, cpu),
                          weights = ggml_backend_alloc_ctx_tensors_from_buft(
                              apart, panels() ? panels() : ggml_backend_cpu_buffer_type());
    std::vector<std::vector<char>> results;
    bool                           runs = true;
    for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
        runs &= ggml_backend_supports_op(cpu, ggml_graph_node(graph, i));
    }
    if (runs) {
        for (size_t i = 0; i < kept.size(); ++i) {
            const auto bytes =
                c.inputs[i].rows < 0 ? data[i] : slice(data[i], kept[i], c.inputs[i].rows, POOL, first, n);
            ggml_backend_tensor_set(kept[i], bytes.data(), 0, bytes.size());
        }
        for (int threads = 1; threads <= most_threads; ++threads) {
            ggml_backend_cpu_set_n_threads(cpu, threads);
            CHECK(ggml_backend_graph_compute(cpu, graph) == GGML_STATUS_SUCCESS);
            results.emplace_back(ggml_nbytes(out));
            ggml_backend_tensor_get(out, results.back().data(), 0, results.back().size());
        }
        CHECK(ggml_is_contiguous(out) && out->ne[c.rows] == n);
        for (auto & result : results) {   // one row at a time
            std::vector<char> sorted;
            for (int64_t r = 0; r < n; ++r) {
                const auto row = slice(result, out, c.rows, n, r, 1);
                sorted.insert(sorted.end(), row.begin(), row.end());
            }
            result = sorted;
        }
    }
    ggml_backend_buffer_free(buffer);
    if (weights) {
        ggml_backend_buffer_free(weights);
    }
    ggml_free(ctx);
    ggml_free(apart);
    return results;
}

static void check(ggml_backend_t cpu, const op_case & c) {
    std::vector<std::vector<char>> data, alone;
    for (const input & in : c.inputs) {
        data.push_back(content(in));
    }
    for (int64_t r = 0; r < POOL; ++r) {
        const auto row = compute(cpu, c, data, r, 1, 1);
        if (row.empty()) {
            std::printf("%s: no kernel\n", c.name.c_str());
            return;
        }
        alone.push_back(row[0]);
    }
    CHECK(alone[0] != alone[1] || alone[1] != alone[2]);
    int wrong = 0;
    for (const int64_t n : { 1, 2, 3, 5, 8, 17, 33, 64 }) {
        const int64_t first = rng() % (POOL - n + 1);
        for (const auto & got : compute(cpu, c, data, first, n, 4)) {
            for (int64_t r = 0; r < n; ++r) {
                const auto & want = alone[first + r];
                wrong += std::memcmp(got.data() + r * want.size(), want.data(), want.size()) != 0;
            }
        }
    }
    if (wrong > 0) {
        std::printf("%s: %d rows differ\n", c.name.c_str(), wrong);
    }
    CHECK(wrong == 0);
}

// ---- the cases ----

using tensors = std::vector<ggml_tensor *>;

static constexpr ggml_type F32 = GGML_TYPE_F32, F16 = GGML_TYPE_F16, I32 = GGML_TYPE_I32, I64 = GGML_TYPE_I64;

static std::string named(const std::string & op, ggml_type type) { return op + " " + ggml_type_name(type); }

static void add_elementwise(std::vector<op_case> & cases) {
    const struct {
        const char * name;
        ggml_tensor * (*make)(ggml_context *, ggml_tensor *);
    } unary[] = {
        { "SILU", ggml_silu },
        { "GELU", ggml_gelu },
        { "GELU_QUICK", ggml_gelu_quick },
        { "GELU_ERF", ggml_gelu_erf },
        { "RELU", ggml_relu },
        { "SIGMOID", ggml_sigmoid },
        { "TANH", ggml_tanh },
        { "SOFTPLUS", ggml_softplus },
        { "EXP", ggml_exp },
        { "NEG", ggml_neg },
        { "SQR", ggml_sqr },
        { "CUMSUM", ggml_cumsum },
        { "SUM_ROWS", ggml_sum_rows },
        { "CONT", [](ggml_context * c, ggml_tensor * x) { return ggml_cont(c, ggml_permute(c, x, 1, 0, 2, 3)); } },
        { "SCALE", [](ggml_context * c, ggml_tensor * x) { return ggml_scale_bias(c, x, 0.3f, 0.1f); } },
        { "CLAMP", [](ggml_context * c, ggml_tensor * x) { return ggml_clamp(c, x, -0.5f, 0.7f); } },
        { "RMS_NORM", [](ggml_context * c, ggml_tensor * x) { return ggml_rms_norm(c, x, 1e-6f); } },
        { "NORM", [](ggml_context * c, ggml_tensor * x) { return ggml_norm(c, x, 1e-5f); } },
        { "L2_NORM", [](ggml_context * c, ggml_tensor * x) { return ggml_l2_norm(c, x, 1e-6f); } },
        { "ARGSORT", [](ggml_context * c, ggml_tensor * x) { return ggml_argsort(c, x, GGML_SORT_ORDER_DESC); } },
        { "TOP_K", [](ggml_context * c, ggml_tensor * x) { return ggml_top_k(c, x, 5); } },
        { "CPY f16", [](ggml_context * c, ggml_tensor * x) { return ggml_cast(c, x, F16); } },
        { "SWIGLU", ggml_swiglu },
        { "GEGLU", ggml_geglu },
        { "REGLU", ggml_reglu },
        { "GEGLU_ERF", ggml_geglu_erf },
        { "GEGLU_QUICK", ggml_geglu_quick },
        { "SOFT_MAX of a router", ggml_soft_max },
    };
    for (const auto & u : unary) {
        const auto make    = u.make;
        const bool is_cont = std::string(u.name) == "CONT";   // rows become the first dimension
        for (const int64_t width : { 64, 102 }) {             // whole vectors or not
            cases.push_back({ std::string(u.name) + " " + std::to_string(width), { { F32, { width, 1, 1, 1 }, 1 } },
                [=](ggml_context * c, tensors & t) { return make(c, t[0]); }, is_cont ? 0 : 1 });
        }
        if (!is_cont) {   // heads of a row
            cases.push_back({ std::string(u.name) + " heads", { { F32, { 32, 3, 1, 1 }, 2 } },
                [=](ggml_context * c, tensors & t) { return make(c, t[0]); }, 2 });
        }
    }
    const struct {
        const char * name;
        ggml_tensor * (*make)(ggml_context *, ggml_tensor *, ggml_tensor *);
    } binary[] = {
        { "ADD", ggml_add },
        { "SUB", ggml_sub },
        { "MUL", ggml_mul },
        { "DIV", ggml_div },
        { "SWIGLU split", ggml_swiglu_split },
        { "GEGLU split", ggml_geglu_split },
        { "SWIGLU_OAI",
            [](ggml_context * c, ggml_tensor * a, ggml_tensor * b) { return ggml_swiglu_oai(c, a, b, 1.7f, 7.0f); } },
        { "CONCAT", [](ggml_context * c, ggml_tensor * a, ggml_tensor * b) { return ggml_concat(c, a, b, 0); } },
    };
    for (const auto & b : binary) {
        const auto make = b.make;
        cases.push_back({ b.name, { { F32, { 102, 1, 1, 1 }, 1 }, { F32, { 102, 1, 1, 1 }, 1, input::POSITIVE } },
            [=](ggml_context * c, tensors & t) { return make(c, t[0], t[1]); }, 1 });
        if (&b - binary < 4) {
            cases.push_back({ std::string(b.name) + " of one row",
                { { F32, { 102, 1, 1, 1 }, 1 }, { F32, { 102, 1, 1, 1 }, -1, input::POSITIVE } },
                [=](ggml_context * c, tensors & t) { return make(c, t[0], t[1]); }, 1 });
            cases.push_back({ std::string(b.name) + " of a number",
                { { F32, { 102, 3, 1, 1 }, 2 }, { F32, { 1, 3, 1, 1 }, 2, input::POSITIVE } },
                [=](ggml_context * c, tensors & t) { return make(c, t[0], t[1]); }, 2 });
        }
    }
    cases.push_back({ "RMS_NORM and MUL", { { F32, { 102, 1, 1, 1 }, 1 }, { F32, { 102, 1, 1, 1 }, -1 } },
        [](ggml_context * c, tensors & t) { return ggml_mul(c, ggml_rms_norm(c, t[0], 1e-6f), t[1]); }, 1 });
    cases.push_back({ "REPEAT", { { F32, { 32, 1, 1, 1 }, 2 }, { F32, { 32, 6, 1, 1 }, 2 } },
        [](ggml_context * c, tensors & t) { return ggml_repeat(c, t[0], t[1]); }, 2 });
    cases.push_back({ "ADD_ID",
        { { F32, { 48, 2, 1, 1 }, 2 }, { F32, { 48, EXPERTS, 1, 1 }, -1 }, { I32, { 2, 1, 1, 1 }, 1, input::EXPERT } },
        [](ggml_context * c, tensors & t) { return ggml_add_id(c, t[0], t[1], t[2]); }, 2 });
    cases.push_back({ "routing", { { F32, { 66, 1, 1, 1 }, 1 } },
        [](ggml_context * c, tensors & t) {
            ggml_tensor *p = ggml_soft_max(c, t[0]), *chosen = ggml_argsort_top_k(c, p, 4);
            p = ggml_reshape_2d(c, ggml_get_rows(c, ggml_reshape_3d(c, p, 1, 66, p->ne[1]), chosen), 4, p->ne[1]);
            return ggml_div(c, p, ggml_clamp(c, ggml_sum_rows(c, p), 6e-5f, INFINITY));
        },
        1 });
    cases.push_back({ "SUM of experts", { { F32, { 102, 4, 1, 1 }, 2 } },
        [](ggml_context * c, tensors & t) {
            ggml_tensor * sum = nullptr;
            for (int i = 0; i < 4; ++i) {
                ggml_tensor * one = ggml_view_2d(c, t[0], 102, t[0]->ne[2], t[0]->nb[2], i * t[0]->nb[1]);
                sum               = sum ? ggml_add(c, sum, one) : one;
            }
            return sum;
        },
        1 });
}

static void add_rows(std::vector<op_case> & cases) {
    for (const ggml_type type : { F32, F16, GGML_TYPE_BF16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0 }) {
        cases.push_back(
            { named("GET_ROWS", type), { { type, { 96, POOL, 1, 1 }, -1 }, { I32, { 1, 1, 1, 1 }, 0, input::PLACE } },
                [](ggml_context * c, tensors & t) { return ggml_get_rows(c, t[0], t[1]); }, 1 });
        cases.push_back({ named("SET_ROWS", type),
            { { type, { 96, POOL, 1, 1 }, -1 }, { F32, { 96, 1, 1, 1 }, 1 }, { I64, { 1, 1, 1, 1 }, 0, input::PLACE },
                { I32, { 1, 1, 1, 1 }, 0, input::PLACE } },
            [](ggml_context * c, tensors & t) { return ggml_get_rows(c, ggml_set_rows(c, t[0], t[1], t[2]), t[3]); },
            1 });
    }
    for (const int mode : { GGML_ROPE_TYPE_NORMAL, GGML_ROPE_TYPE_NEOX, GGML_ROPE_TYPE_MROPE, GGML_ROPE_TYPE_IMROPE,
             GGML_ROPE_TYPE_VISION }) {
        const bool sections = mode & GGML_ROPE_TYPE_MROPE;
        for (const bool factors : { false, true }) {
            cases.push_back({ "ROPE mode " + std::to_string(mode) + (factors ? " with factors" : ""),
                { { F32, { 64, 3, 1, 1 }, 2 }, { I32, { 1, sections ? 4 : 1, 1, 1 }, 0, input::POSITION },
                    { F32, { 32, 1, 1, 1 }, -1, input::POSITIVE } },
                [=](ggml_context * c, tensors & t) {
                    int          parts[4] = { 8, 12, 12, 0 };
                    ggml_tensor *f = factors ? t[2] : nullptr, *at = ggml_reshape_1d(c, t[1], ggml_nelements(t[1]));
                    return sections
                               ? ggml_rope_multi(c, t[0], at, f, mode == GGML_ROPE_TYPE_VISION ? 32 : 64, parts, mode,
                                     4096, 10000.0f, 1.0f, 0.2f, 1.0f, 32.0f, 1.0f)
                               : ggml_rope_ext(c, t[0], at, f, 48, mode, 4096, 10000.0f, 0.5f, 0.2f, 1.0f, 32.0f, 1.0f);
                },
                2 });
        }
    }
    cases.push_back({ "SSM_CONV", { { F32, { 4, 48, 1, 1 }, 2 }, { F32, { 4, 48, 1, 1 }, -1 } },
        [](ggml_context * c, tensors & t) { return ggml_ssm_conv(c, t[0], t[1]); }, 2 });   // a row of each sequence
    const auto wide = [](int64_t a, int64_t heads) { return input{ F32, { a, heads, 1, 1 }, 2 }; };
    const auto gate = [](int64_t a, int64_t heads) { return input{ F32, { a, heads, 1, 1 }, 2, input::POSITIVE }; };
    cases.push_back({ "GDN_TREE",
        { wide(64, 2), wide(64, 2), wide(64, 4), gate(1, 4), gate(1, 4), { F32, { 64, 64, 4, 1 }, -1 },
            { I32, { 1, 1, 1, 1 }, 0, input::ROOT } },
        [](ggml_context * c, tensors & t) {
            ggml_tensor * tree = ggml_gdn_tree(c, ggml_l2_norm(c, t[0], 1e-6f), ggml_l2_norm(c, t[1], 1e-6f), t[2],
                ggml_neg(c, t[3]), t[4], t[5], t[6]);
            return ggml_cont(c, ggml_gdn_tree_output(c, tree));
        },
        2 });
}

static void add_products(std::vector<op_case> & cases) {
    for (const ggml_type type :
        { F32, F16, GGML_TYPE_BF16, GGML_TYPE_Q4_0, GGML_TYPE_Q8_0, GGML_TYPE_Q4_K, GGML_TYPE_Q6_K }) {
        const int64_t k      = ggml_is_quantized(type) ? 256 : 96;
        const input   matrix = { type, { k, 60, 1, 1 }, -1, input::NORMAL, ggml_is_quantized(type) },
                    experts  = { type, { k, 60, EXPERTS, 1 }, -1, input::NORMAL, ggml_is_quantized(type) };
        cases.push_back({ named("MUL_MAT", type), { matrix, { F32, { k, 1, 1, 1 }, 1 } },
            [](ggml_context * c, tensors & t) { return ggml_mul_mat(c, t[0], t[1]); }, 1 });
        for (const int64_t slots : { 1, 3 }) {   // the same input for all experts, or one each
            cases.push_back({ named("MUL_MAT_ID", type) + " " + std::to_string(slots),
                { experts, { F32, { k, slots, 1, 1 }, 2 }, { I32, { 3, 1, 1, 1 }, 1, input::EXPERT } },
                [](ggml_context * c, tensors & t) { return ggml_mul_mat_id(c, t[0], t[1], t[2]); }, 2 });
        }
    }
}

// Q [d, heads, rows], K and V like those of llama.cpp's caches, and a mask row per row.
static void add_attention(std::vector<op_case> & cases) {
    constexpr int64_t D = 64, HEADS = 4, KV = 2;
    const auto        in = [](ggml_type k, ggml_type v, ggml_type mask) {
        return std::vector<input>{ { F32, { D, HEADS, 1, 1 }, 2 }, { k, { D * KV, CELLS, 1, 1 }, -1 },
            { v, { D * KV, CELLS, 1, 1 }, -1 }, { mask, { CELLS, 1, 1, 1 }, 1, input::MASK },
            { F32, { HEADS, 1, 1, 1 }, -1 } };
    };
    const auto cache = [](ggml_context * c, ggml_tensor * t) {
        return ggml_permute(c, ggml_view_3d(c, t, D, KV, CELLS, ggml_row_size(t->type, D), t->nb[1], 0), 0, 2, 1, 3);
    };
    for (const ggml_type type : { F16, GGML_TYPE_Q8_0 }) {
        cases.push_back({ named("FLASH_ATTN_EXT", type), in(type, type, F16),
            [=](ggml_context * c, tensors & t) {
                ggml_tensor * out = ggml_flash_attn_ext(
                    c, ggml_permute(c, t[0], 0, 2, 1, 3), cache(c, t[1]), cache(c, t[2]), t[3], 0.125f, 0.0f, 0.0f);
                ggml_flash_attn_ext_add_sinks(out, t[4]);
                return out;
            },
            2 });
    }
    for (const ggml_type type : { F16, F32, GGML_TYPE_BF16, GGML_TYPE_Q8_0 }) {
        for (const bool bias : { false, true }) {   // ALiBi with a soft-cap
            const ggml_type v_type = ggml_is_quantized(type) ? F16 : type;
            cases.push_back({ named("attention without flash attention", type) + (bias ? " with bias" : ""),
                in(type, v_type, bias ? F32 : F16),
                [=](ggml_context * c, tensors & t) {
                    ggml_tensor * kq = ggml_mul_mat(c, cache(c, t[1]), ggml_permute(c, t[0], 0, 2, 1, 3));
                    kq               = bias ? ggml_scale(c, ggml_tanh(c, ggml_scale(c, kq, 0.1f)), 10.0f) : kq;
                    kq               = ggml_soft_max_ext(c, kq, t[3], 0.125f, bias ? 8.0f : 0.0f);
                    ggml_soft_max_add_sinks(kq, bias ? nullptr : t[4]);
                    ggml_tensor * v   = ggml_permute(c,
                          ggml_view_3d(
                            c, t[2], CELLS, KV, D, ggml_row_size(v_type, CELLS * D), ggml_row_size(v_type, CELLS), 0),
                          0, 2, 1, 3);
                    ggml_tensor * out = ggml_mul_mat(c, v, kq);
                    return ggml_cont_2d(c, ggml_permute(c, out, 0, 2, 1, 3), D * HEADS, t[0]->ne[2]);
                },
                1 });
        }
    }
}

// Compares a convolution along one sequence with one for each of its rows and the rows before it.
static void test_sequence(ggml_backend_t cpu) {
    constexpr int64_t ROWS = 33, CHANNELS = 48, WIDTH = 4;
    ggml_context *    ctx = ggml_init({ 1 << 20, nullptr, true });
    ggml_tensor *     x   = ggml_new_tensor_3d(ctx, F32, WIDTH - 1 + ROWS, CHANNELS, 1),
                *w        = ggml_new_tensor_2d(ctx, F32, WIDTH, CHANNELS);
    ggml_tensor *windows = ggml_new_tensor_3d(ctx, F32, WIDTH, CHANNELS, ROWS), *together = ggml_ssm_conv(ctx, x, w),
                *apart  = ggml_ssm_conv(ctx, windows, w);
    ggml_cgraph * graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, together);
    ggml_build_forward_expand(graph, apart);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(ctx, cpu);
    for (ggml_tensor * t : { x, w }) {
        const auto bytes = content({ F32, { t->ne[0], t->ne[1], 1, 1 }, -1 });
        ggml_backend_tensor_set(t, bytes.data(), 0, bytes.size());
    }
    for (int64_t i = 0; i < ROWS * CHANNELS; ++i) {
        std::memcpy((float *) windows->data + i * WIDTH,
            (const float *) x->data + i % CHANNELS * x->ne[0] + i / CHANNELS, WIDTH * sizeof(float));
    }
    for (int threads = 1; threads <= 4; ++threads) {
        ggml_backend_cpu_set_n_threads(cpu, threads);
        CHECK(ggml_backend_graph_compute(cpu, graph) == GGML_STATUS_SUCCESS);
        CHECK(std::memcmp(together->data, apart->data, ggml_nbytes(apart)) == 0);
    }
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
}

int main(int argc, char ** argv) {
    std::vector<op_case> cases;
    add_elementwise(cases);
    add_rows(cases);
    add_products(cases);
    add_attention(cases);
    ggml_backend_t cpu = ggml_backend_cpu_init();
    int            n   = 0;
    for (const auto & c : cases) {
        if (argc < 2 || c.name.rfind(argv[1], 0) == 0) {
            check(cpu, c);
            ++n;
        }
    }
    CHECK(n > 0);
    test_sequence(cpu);
    ggml_backend_free(cpu);
    return TEST_RESULT;
}
