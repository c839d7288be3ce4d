// Sizes of the GPU kernels of delta-net trees: nothing but macros, which C++, CUDA, Metal and GLSL can read.

#ifndef GDN_GEOMETRY_H
#define GDN_GEOMETRY_H

#define GDN_THREADS  128    // of a group
#define GDN_COLUMNS  16     // of a head's state, that a group computes
#define GDN_CHANNELS 8      // that it loads in a phase
#define GDN_PADDING  (-2)   // GGML_GDN_PADDING

// Floats of a group's shared memory for trees of up to T rows: the members of gdn_tree_shared (gdn_tree_gpu.h).
#define GDN_SHARED_FLOATS(T) \
    (3 * (T) + 3 * (T) * GDN_CHANNELS + GDN_COLUMNS * (GDN_CHANNELS + 1) + 2 * (T) * GDN_COLUMNS + (T) * ((T) + 1))

#endif
