// Delta-net trees on Metal: encodes the kernels of gdn_tree.metal. Part of ggml-metal.

#include "gdn/metal/gdn_tree_metal.h"
#include "gdn/gdn_tree_gpu.h"

#include "ggml-backend-impl.h"
#include "ggml-impl.h"

static void set_tensor(ggml_metal_encoder_t enc, const ggml_tensor * t, int index) {
    ggml_backend_buffer_t buffer = t->view_src ? t->view_src->buffer : t->buffer;
    ggml_metal_encoder_set_buffer(enc, ggml_metal_buffer_get_id((ggml_metal_buffer_t) buffer->context, t), index);
}

void dflash_metal_gdn(ggml_metal_library_t lib, ggml_metal_encoder_t enc, const ggml_tensor * op) {
    const bool                      tree     = op->op == GGML_OP_GDN_TREE;
    const char *                    name     = tree ? "kernel_gdn_tree" : "kernel_gdn_commit";
    ggml_metal_pipeline_with_params pipeline = ggml_metal_library_get_pipeline(lib, name);
    if (!pipeline.pipeline) {
        pipeline = ggml_metal_library_compile_pipeline(lib, name, name, nullptr);
    }
    ggml_tensor * const * src = op->src;
    ggml_metal_encoder_set_pipeline(enc, pipeline);
    int n = 0;
    for (; src[n]; ++n) {
        set_tensor(enc, src[n], n + 1);
    }
    set_tensor(enc, op, n + 1);
    if (tree) {
        gdn_tree_args args = gdn_tree_args_of(src[0], src[1], src[2], src[3], src[4], src[5]);
        ggml_metal_encoder_set_bytes(enc, &args, sizeof args, 0);
        ggml_metal_encoder_set_threadgroup_memory_size(enc, GGML_PAD(GDN_SHARED_FLOATS(args.T) * sizeof(float), 16), 0);
        ggml_metal_encoder_dispatch_threadgroups(enc, args.S / GDN_COLUMNS, args.H, args.n, GDN_THREADS, 1, 1);
    } else {
        gdn_commit_args args = gdn_commit_args_of(src[0], src[1], src[2], src[3], src[4]);
        ggml_metal_encoder_set_bytes(enc, &args, sizeof args, 0);
        ggml_metal_encoder_dispatch_threadgroups(
            enc, args.S * args.S / GDN_THREADS, args.H, (int) op->ne[3], GDN_THREADS, 1, 1);
    }
}
