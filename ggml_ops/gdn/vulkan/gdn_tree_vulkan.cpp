// Delta-net trees on Vulkan: dispatches the shaders in this folder. Part of ggml-vulkan.

#include "gdn/vulkan/gdn_tree_vulkan.h"

#include "gdn/gdn_geometry.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace {

constexpr uint32_t ROWS[] = { 16, 32, 64 };   // one pipeline each, for trees of up to this many rows

// Push constants; the shaders use the same field names.
struct tree_args {
    int32_t S, H, H_k, T, n, channels;
    float   scale;
    int32_t q1, q2, q3, k1, k2, k3, v1, v2, v3, g1, g2, g3, b1, b2, b3, s3;
    int32_t q0, k0, v0, g0, b0, s0, p0, o0;
};

struct commit_args {
    int32_t S, H, H_k, T, P, channels;
    int32_t k1, k2, k3, d1, d2, d3, g1, g2, g3, s3;
    int32_t s0, k0, d0, g0, p0, o0;
};

static_assert(sizeof(tree_args) <= 128 && sizeof(commit_args) <= 128, "all devices have 128 bytes of push constants");

int32_t stride(const ggml_tensor * t, int axis) { return (int32_t) (t->nb[axis] / sizeof(float)); }

// A descriptor's offset has to be aligned: this is where the tensor begins after it, in floats.
int32_t first(ggml_backend_vk_context * ctx, const ggml_tensor * t) {
    return (int32_t) (get_misalign_bytes(ctx, t) / sizeof(float));
}

// The shaders use 32-bit indices.
bool is_small(const ggml_tensor * t) { return ggml_nbytes(t) / sizeof(float) <= INT32_MAX; }

uint32_t shared_bytes(uint32_t rows) { return sizeof(float) * GDN_SHARED_FLOATS(rows); }

void tree(ggml_backend_vk_context * ctx, vk_context & subctx, ggml_tensor * op) {
    ggml_tensor * const * src = op->src;
    const ggml_tensor *   q = src[0], *k = src[1], *v = src[2], *g = src[3], *beta = src[4], *state = src[5];

    const tree_args args = { (int32_t) v->ne[0], (int32_t) v->ne[1], (int32_t) k->ne[1], (int32_t) v->ne[2],
        (int32_t) v->ne[3], g->ne[0] > 1, 1.0f / std::sqrt((float) v->ne[0]), stride(q, 1), stride(q, 2), stride(q, 3),
        stride(k, 1), stride(k, 2), stride(k, 3), stride(v, 1), stride(v, 2), stride(v, 3), stride(g, 1), stride(g, 2),
        stride(g, 3), stride(beta, 1), stride(beta, 2), stride(beta, 3), stride(state, 3), first(ctx, q), first(ctx, k),
        first(ctx, v), first(ctx, g), first(ctx, beta), first(ctx, state), first(ctx, src[6]), first(ctx, op) };
    const size_t  at = std::find_if(ROWS, std::end(ROWS) - 1, [&](uint32_t n) { return args.T <= (int32_t) n; }) - ROWS;
    vk_pipeline & pipeline = ctx->device->pipeline_gdn_tree[at];

    const auto buffer = [&](const ggml_tensor * t) { return ggml_vk_tensor_subbuffer(ctx, t, true); };
    ggml_pipeline_request_descriptor_sets(ctx, pipeline, 1);
    ggml_vk_dispatch_pipeline(ctx, subctx, pipeline,
        { buffer(q), buffer(k), buffer(v), buffer(g), buffer(beta), buffer(state), buffer(src[6]), buffer(op) }, args,
        { (uint32_t) args.S, (uint32_t) args.H, (uint32_t) args.n });
}

void commit(ggml_backend_vk_context * ctx, vk_context & subctx, ggml_tensor * op) {
    ggml_tensor * const * src   = op->src;
    const ggml_tensor *   state = src[0], *k = src[1], *delta = src[2], *g = src[3], *path = src[4];

    const commit_args args     = { (int32_t) delta->ne[0], (int32_t) delta->ne[1], (int32_t) k->ne[1],
            (int32_t) delta->ne[2], (int32_t) path->ne[0], g->ne[0] > 1, stride(k, 1), stride(k, 2), stride(k, 3),
            stride(delta, 1), stride(delta, 2), stride(delta, 3), stride(g, 1), stride(g, 2), stride(g, 3),
            stride(state, 3), first(ctx, state), first(ctx, k), first(ctx, delta), first(ctx, g), first(ctx, path),
            first(ctx, op) };
    vk_pipeline &     pipeline = ctx->device->pipeline_gdn_commit;

    const auto buffer = [&](const ggml_tensor * t) { return ggml_vk_tensor_subbuffer(ctx, t, true); };
    ggml_pipeline_request_descriptor_sets(ctx, pipeline, 1);
    ggml_vk_dispatch_pipeline(ctx, subctx, pipeline,
        { buffer(state), buffer(k), buffer(delta), buffer(g), buffer(path), buffer(op) }, args,
        { (uint32_t) (args.S * args.S), (uint32_t) args.H, (uint32_t) op->ne[3] });
}

}   // namespace

void dflash_vk_gdn_create(vk_device & device, const dflash_vk_create & create) {
    const char * names[] = { "gdn_tree_f32_16", "gdn_tree_f32_32", "gdn_tree_f32_64" };
    for (size_t i = 0; i < std::size(ROWS); ++i) {
        create(device->pipeline_gdn_tree[i], names[i], gdn_tree_f32_len, gdn_tree_f32_data, 8, sizeof(tree_args),
            { GDN_COLUMNS, 1, 1 }, { ROWS[i] });
    }
    create(device->pipeline_gdn_commit, "gdn_commit_f32", gdn_commit_f32_len, gdn_commit_f32_data, 6,
        sizeof(commit_args), { GDN_THREADS, 1, 1 }, {});
}

bool dflash_vk_gdn_supported(const vk_device & device, const ggml_tensor * op) {
    bool small = is_small(op);
    for (const ggml_tensor * const * src = op->src; *src; ++src) {
        small = small && is_small(*src);
    }
    return small && ggml_gdn_supported(op) &&
           device->properties.limits.maxComputeSharedMemorySize >= shared_bytes(ROWS[std::size(ROWS) - 1]);
}

void dflash_vk_gdn(ggml_backend_vk_context * ctx, vk_context & subctx, ggml_tensor * op) {
    op->op == GGML_OP_GDN_TREE ? tree(ctx, subctx, op) : commit(ctx, subctx, op);
}
