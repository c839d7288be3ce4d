#include "gemm/cuda/few_rows.cuh"

#if !defined(GGML_USE_HIP) && !defined(GGML_USE_MUSA)

#include <atomic>

// The kernel may start while the one before it ends (sm_90), and the blocks that share a column may form a cluster.
template <typename Kernel, typename Args>
static void start_kernel(
    Kernel kernel, dim3 grid, int threads, size_t shared, cudaStream_t stream, int cluster, Args args) {
    cudaLaunchConfig_t  config        = {};
    cudaLaunchAttribute attributes[2] = {};
    config.gridDim                    = grid;
    config.blockDim                   = dim3(threads);
    config.dynamicSmemBytes           = shared;
    config.stream                     = stream;
    config.attrs                      = attributes;
    if (shared > 48 << 10) {
        CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int) shared));
    }
#ifdef GGML_CUDA_USE_PDL
    static const char * const chosen = getenv("GGML_CUDA_PDL");
    if ((!chosen || std::atoi(chosen)) && ggml_cuda_kernel_can_use_pdl((const void *) kernel)) {
        cudaLaunchAttribute & early                      = attributes[config.numAttrs++];
        early.id                                         = cudaLaunchAttributeProgrammaticStreamSerialization;
        early.val.programmaticStreamSerializationAllowed = 1;
    }
#endif
    if (cluster > 1) {
        cudaLaunchAttribute & blocks = attributes[config.numAttrs++];
        blocks.id                    = cudaLaunchAttributeClusterDimension;
        blocks.val.clusterDim.x      = 1;
        blocks.val.clusterDim.y      = cluster;
        blocks.val.clusterDim.z      = 1;
    }
    CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, args));
}

#include "gemm/cuda/few_rows_launch.cuh"

constexpr int NEVER = MOST_ROWS + 1;

// 0: the default.
static std::atomic<int> few_rows_from[GGML_CUDA_MAX_DEVICES][GGML_TYPE_COUNT];

// Whether there is a kernel for a type, and which.
static bool few_rows_type_of(ggml_type type, few_rows_type & few) {
    switch (type) {
        case GGML_TYPE_Q4_K: few = few_rows_type::q4_K; return true;
        case GGML_TYPE_Q5_K: few = few_rows_type::q5_K; return true;
        case GGML_TYPE_Q6_K: few = few_rows_type::q6_K; return true;
        case GGML_TYPE_Q8_0: few = few_rows_type::q8_0; return true;
        case GGML_TYPE_Q4_0: few = few_rows_type::q4_0; return true;
        case GGML_TYPE_Q4_1: few = few_rows_type::q4_1; return true;
        case GGML_TYPE_IQ4_XS: few = few_rows_type::iq4_xs; return true;
        default: return false;
    }
}

static bool has_few_rows(int device, ggml_type type) {
    few_rows_type few;
    return device >= 0 && device < ggml_cuda_info().device_count && (unsigned) type < GGML_TYPE_COUNT &&
           GGML_CUDA_CC_IS_NVIDIA(ggml_cuda_info().devices[device].cc) &&
           ggml_cuda_highest_compiled_arch(ggml_cuda_info().devices[device].cc) >= GGML_CUDA_CC_AMPERE &&
           few_rows_type_of(type, few);
}

int dflash_cuda_set_few_rows(int device, ggml_type type, int rows) {
    if (!has_few_rows(device, type)) {
        return 0;
    }
    if (rows >= 0) {
        few_rows_from[device][type] = std::min(rows, NEVER);
    }
    const int from = few_rows_from[device][type];
    return from ? from : NEVER;
}

// A matrix of floats whose rows the kernels can read 16 bytes at a time.
static bool has_aligned_rows(const ggml_tensor * t) {
    return t->type == GGML_TYPE_F32 && t->nb[0] == sizeof(float) && t->nb[1] % 16 == 0 &&
           (uintptr_t) t->data % 16 == 0 && t->ne[2] == 1 && t->ne[3] == 1;
}

bool dflash_cuda_has_mul_mat(int device, const ggml_tensor * dst) {
    const ggml_tensor * weights = dst->src[0];
    const ggml_tensor * rows    = dst->src[1];
    if (dst->op != GGML_OP_MUL_MAT || rows->ne[1] > MOST_ROWS || !has_few_rows(device, weights->type)) {
        return false;
    }
    const int from = few_rows_from[device][weights->type];
    // Weights that a graph computes could still be written when the copies of their first chunks start.
    return rows->ne[1] >= (from ? from : NEVER) && weights->ne[0] % CHUNK == 0 && weights->ne[2] == 1 &&
           weights->ne[3] == 1 && ggml_is_contiguous(weights) && (uintptr_t) weights->data % 16 == 0 &&
           weights->buffer && ggml_backend_buffer_get_usage(weights->buffer) == GGML_BACKEND_BUFFER_USAGE_WEIGHTS &&
           has_aligned_rows(rows) && dst->type == GGML_TYPE_F32 && dst->nb[0] == sizeof(float) && dst->ne[0] < 1 << 24;
}

template <few_rows_type type>
static void multiply(ggml_backend_cuda_context & ctx, const few_rows_product & product, int splits, bool cluster) {
    ggml_cuda_pool_alloc<char> memory(ctx.pool(), few_rows_scratch_of(product, splits, cluster).bytes);
    if (cluster) {
        few_rows_launch<type, true>(product, memory.get(), splits, ctx.stream());
    } else {
        few_rows_launch<type, false>(product, memory.get(), splits, ctx.stream());
    }
}

void dflash_cuda_mul_mat(ggml_backend_cuda_context & ctx, ggml_tensor * dst) {
    const ggml_tensor * weights = dst->src[0];
    const ggml_tensor * rows    = dst->src[1];
    const auto &        device  = ggml_cuda_info().devices[ctx.device];
    few_rows_type       type;
    GGML_ASSERT(few_rows_type_of(weights->type, type));
    const few_rows_product product = { type, weights->data, (const float *) rows->data, (float *) dst->data,
        (int64_t) weights->nb[1], (int64_t) (rows->nb[1] / sizeof(float)), (int64_t) (dst->nb[1] / sizeof(float)),
        (int) weights->ne[1], (int) rows->ne[1], (int) weights->ne[0] };
    const int              splits  = few_rows_splits(product.n_columns, product.n_k, device.nsm);
    const bool             cluster = splits > 1 && ggml_cuda_highest_compiled_arch(device.cc) >= GGML_CUDA_CC_HOPPER;
    switch (type) {
        case few_rows_type::q4_K: multiply<few_rows_type::q4_K>(ctx, product, splits, cluster); break;
        case few_rows_type::q5_K: multiply<few_rows_type::q5_K>(ctx, product, splits, cluster); break;
        case few_rows_type::q6_K: multiply<few_rows_type::q6_K>(ctx, product, splits, cluster); break;
        case few_rows_type::q8_0: multiply<few_rows_type::q8_0>(ctx, product, splits, cluster); break;
        case few_rows_type::q4_0: multiply<few_rows_type::q4_0>(ctx, product, splits, cluster); break;
        case few_rows_type::q4_1: multiply<few_rows_type::q4_1>(ctx, product, splits, cluster); break;
        case few_rows_type::iq4_xs: multiply<few_rows_type::iq4_xs>(ctx, product, splits, cluster); break;
    }
}

#else   // HIP and MUSA: no mma.sync

bool dflash_cuda_has_mul_mat(int, const ggml_tensor *) { return false; }
void dflash_cuda_mul_mat(ggml_backend_cuda_context &, ggml_tensor *) { GGML_ABORT("no kernels for few rows"); }
int  dflash_cuda_set_few_rows(int, ggml_type, int) { return 0; }

#endif
