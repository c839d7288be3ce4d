#include "top_k/cuda/top_k_select.cuh"

#if !defined(GGML_USE_HIP) && !defined(GGML_USE_MUSA)

#include "top_k/cuda/top_k_kernels.cuh"

bool dflash_cuda_top_k(ggml_backend_cuda_context & ctx, ggml_tensor * dst) {
    const ggml_tensor * values = dst->src[0];
    const int64_t       k = dst->ne[0], n_rows = ggml_nrows(values);
    if (values->type != GGML_TYPE_F32 || !ggml_is_contiguous(values) || !ggml_is_contiguous(dst) || k > TOP_K_MOST ||
        values->ne[0] > TOP_K_COLUMNS || n_rows > 65535) {
        return false;
    }
    const int                      n_parts = (int) ((values->ne[0] + TOP_K_PART - 1) / TOP_K_PART);
    ggml_cuda_pool_alloc<uint64_t> lists(ctx.pool(), n_rows * n_parts * k);
    const top_k_args args = { (const float *) values->data, (int) values->ne[0], n_parts, (int) k, lists.get(),
        (int32_t *) dst->data };
    const dim3       parts((n_parts + TOP_K_WARPS - 1) / TOP_K_WARPS, n_rows), rows(1, n_rows);
    ggml_cuda_kernel_launch(
        top_k_parts_kernel, ggml_cuda_kernel_launch_params(parts, dim3(32 * TOP_K_WARPS), 0, ctx.stream()), args);
    ggml_cuda_kernel_launch(
        top_k_merge_kernel, ggml_cuda_kernel_launch_params(rows, dim3(32 * TOP_K_WARPS), 0, ctx.stream()), args);
    return true;
}

#else   // the kernels are for warps of 32

bool dflash_cuda_top_k(ggml_backend_cuda_context &, ggml_tensor *) { return false; }

#endif
