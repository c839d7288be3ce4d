// Delta-net trees on CUDA and HIP: one block per head, sequence and GDN_COLUMNS columns runs the phases of
// gdn_tree_gpu.h.

#include "gdn/cuda/gdn_tree_cuda.cuh"
#include "gdn/gdn_tree_gpu.h"

static __global__ void __launch_bounds__(GDN_THREADS)
    gdn_tree_kernel(const gdn_tree_args args, const gdn_tree_data data) {
    extern __shared__ float gdn_shared[];
    const gdn_tree_group    group  = { (int32_t) blockIdx.y, (int32_t) blockIdx.z, (int32_t) blockIdx.x * GDN_COLUMNS };
    const int               thread = threadIdx.x;

    gdn_tree_begin(args, data, group, gdn_shared, thread);
    __syncthreads();
    for (int channel = 0; channel < args.S; channel += GDN_CHANNELS) {
        gdn_tree_load(args, data, group, gdn_shared, channel, thread);
        __syncthreads();
        gdn_tree_multiply(args, gdn_shared, thread);
        __syncthreads();
    }
    gdn_tree_decay(args, gdn_shared, thread);
    __syncthreads();
    gdn_tree_solve(args, data, group, gdn_shared, thread);
    __syncthreads();
    gdn_tree_write(args, data, group, gdn_shared, thread);
}

static __global__ void __launch_bounds__(GDN_THREADS) gdn_commit_kernel(const gdn_commit_args args, const float * state,
    const float * k, const float * delta, const float * g, const int32_t * path, float * out) {
    const int element = blockIdx.x * GDN_THREADS + threadIdx.x, head = blockIdx.y, sequence = blockIdx.z;
    out[((int64_t) sequence * args.H + head) * args.S * args.S + element] =
        gdn_commit_element(args, state, k, delta, g, path, element % args.S, element / args.S, head, sequence);
}

void dflash_cuda_gdn_tree(ggml_backend_cuda_context & ctx, ggml_tensor * op) {
    ggml_tensor **      src    = op->src;
    const gdn_tree_args args   = gdn_tree_args_of(src[0], src[1], src[2], src[3], src[4], src[5]);
    const gdn_tree_data data   = { (const float *) src[0]->data, (const float *) src[1]->data,
          (const float *) src[2]->data, (const float *) src[3]->data, (const float *) src[4]->data,
          (const float *) src[5]->data, (const int32_t *) src[6]->data, (float *) op->data };
    const size_t        shared = GDN_SHARED_FLOATS(args.T) * sizeof(float);   // at most 32 KiB
    gdn_tree_kernel<<<dim3(args.S / GDN_COLUMNS, args.H, args.n), GDN_THREADS, shared, ctx.stream()>>>(args, data);
    CUDA_CHECK(cudaGetLastError());
}

void dflash_cuda_gdn_commit(ggml_backend_cuda_context & ctx, ggml_tensor * op) {
    ggml_tensor **        src  = op->src;
    const gdn_commit_args args = gdn_commit_args_of(src[0], src[1], src[2], src[3], src[4]);
    gdn_commit_kernel<<<dim3(args.S * args.S / GDN_THREADS, args.H, op->ne[3]), GDN_THREADS, 0, ctx.stream()>>>(args,
        (const float *) src[0]->data, (const float *) src[1]->data, (const float *) src[2]->data,
        (const float *) src[3]->data, (const int32_t *) src[4]->data, (float *) op->data);
    CUDA_CHECK(cudaGetLastError());
}
