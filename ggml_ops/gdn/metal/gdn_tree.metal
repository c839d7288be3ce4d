// Delta-net trees on Metal: one threadgroup per head, sequence and GDN_COLUMNS columns. inject.cmake inserts
// gdn_geometry.h and gdn_tree_gpu.h here.

#include "common.h"

@GDN_GEOMETRY@
@GDN_TREE_GPU@

kernel void kernel_gdn_tree(
        constant gdn_tree_args & x,
        device const float   * q,
        device const float   * k,
        device const float   * v,
        device const float   * g,
        device const float   * beta,
        device const float   * state,
        device const int32_t * parent,
        device       float   * out,
        threadgroup  float   * shared [[threadgroup(0)]],
        uint3 at   [[threadgroup_position_in_grid]],
        uint3 thread_index [[thread_position_in_threadgroup]]) {
    const gdn_tree_args  args  = x;
    const gdn_tree_data  data  = { q, k, v, g, beta, state, parent, out };
    const gdn_tree_group group = { (int32_t) at.y, (int32_t) at.z, (int32_t) at.x * GDN_COLUMNS };
    const int id = thread_index.x;

    gdn_tree_begin(args, data, group, shared, id);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int channel = 0; channel < args.S; channel += GDN_CHANNELS) {
        gdn_tree_load(args, data, group, shared, channel, id);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        gdn_tree_multiply(args, shared, id);
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    gdn_tree_decay(args, shared, id);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    gdn_tree_solve(args, data, group, shared, id);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    gdn_tree_write(args, data, group, shared, id);
}

kernel void kernel_gdn_commit(
        constant gdn_commit_args & x,
        device const float   * state,
        device const float   * k,
        device const float   * delta,
        device const float   * g,
        device const int32_t * path,
        device       float   * out,
        uint3 at   [[threadgroup_position_in_grid]],
        uint3 thread_index [[thread_position_in_threadgroup]]) {
    const gdn_commit_args args = x;
    const int element = at.x * GDN_THREADS + thread_index.x;
    out[((int64_t) at.z * args.H + at.y) * args.S * args.S + element] =
        gdn_commit_element(args, state, k, delta, g, path, element % args.S, element / args.S, at.y, at.z);
}
