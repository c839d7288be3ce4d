// All kernels of gemm/cuda, for compilers of GPU code that are tested without a GPU (tests/ggml_ops).

#include "gemm/cuda/few_rows_kernel.cuh"

template __global__ void tile_rows_kernel<k_order::halves_of_64>(rows_args);
template __global__ void tile_rows_kernel<k_order::halves_of_32>(rows_args);
template __global__ void tile_rows_kernel<k_order::strides_of_32>(rows_args);
template __global__ void tile_norms_kernel<k_order::halves_of_64>(norm_args);
template __global__ void tile_norms_kernel<k_order::halves_of_32>(norm_args);
template __global__ void tile_norms_kernel<k_order::strides_of_32>(norm_args);

#define WIDTHS(type)                                                                               \
    template __global__ void few_rows_kernel<few_rows_type::type, 1, true, true>(few_rows_args);   \
    template __global__ void few_rows_kernel<few_rows_type::type, 2, true, true>(few_rows_args);   \
    template __global__ void few_rows_kernel<few_rows_type::type, 4, true, true>(few_rows_args);   \
    template __global__ void few_rows_kernel<few_rows_type::type, 8, true, true>(few_rows_args);   \
    template __global__ void few_rows_kernel<few_rows_type::type, 1, true, false>(few_rows_args);  \
    template __global__ void few_rows_kernel<few_rows_type::type, 2, true, false>(few_rows_args);  \
    template __global__ void few_rows_kernel<few_rows_type::type, 4, true, false>(few_rows_args);  \
    template __global__ void few_rows_kernel<few_rows_type::type, 8, true, false>(few_rows_args);  \
    template __global__ void few_rows_kernel<few_rows_type::type, 1, false, true>(few_rows_args);  \
    template __global__ void few_rows_kernel<few_rows_type::type, 2, false, true>(few_rows_args);  \
    template __global__ void few_rows_kernel<few_rows_type::type, 4, false, true>(few_rows_args);  \
    template __global__ void few_rows_kernel<few_rows_type::type, 8, false, true>(few_rows_args);  \
    template __global__ void few_rows_kernel<few_rows_type::type, 1, false, false>(few_rows_args); \
    template __global__ void few_rows_kernel<few_rows_type::type, 2, false, false>(few_rows_args); \
    template __global__ void few_rows_kernel<few_rows_type::type, 4, false, false>(few_rows_args); \
    template __global__ void few_rows_kernel<few_rows_type::type, 8, false, false>(few_rows_args);
WIDTHS(q4_K)
WIDTHS(q5_K)
WIDTHS(q6_K)
WIDTHS(q8_0)
WIDTHS(q4_0)
WIDTHS(q4_1)
WIDTHS(iq4_xs)
