// One panel kernel for a type, out of those that this CPU has.

#include "cpu/gemm/packed_layout.h"

#include <atomic>
#include <cstdlib>
#include <cstring>

namespace dflash {

namespace {

// From how many rows on tiles are faster: what was measured (docs/kernels.md).
int tiles_from_default(ggml_type type) {
    return type == GGML_TYPE_Q5_K ? 2 : type == GGML_TYPE_Q4_K ? 4 : type == GGML_TYPE_Q8_0 ? 8 : 9;
}

template <ggml_type T> struct choice {
    panel_kernel     few = nullptr, many = nullptr;
    std::atomic<int> tiles_from{ tiles_from_default(T) };

    choice() {
        const char * only = std::getenv("DFLASH_PANELS");
        for (const panel_choice & c : panel_kernels(T)) {
            panel_kernel & which = std::strcmp(c.set, "amx") == 0 ? many : few;
            if (!which && (!only || std::strcmp(only, "1") == 0 || std::strcmp(only, c.set) == 0)) {
                which = c.kernel;
            }
        }
    }
    static choice & get() {
        static choice c;
        return c;
    }
    static void run(const void * panels, int64_t blocks, int64_t p0, int64_t p1, const void * rows, size_t row_stride,
        int n, float * out, size_t out_stride) {
        const choice & c = get();
        (!c.few || n >= c.tiles_from.load(std::memory_order_relaxed) ? c.many : c.few)(
            panels, blocks, p0, p1, rows, row_stride, n, out, out_stride);
    }
    static panel_kernel find() {
        const choice & c = get();
        return c.few && c.many ? run : c.few ? c.few : c.many;
    }
};

// A type's choice, handed to `what`.
template <class What> auto with(ggml_type type, What && what) {
    switch (type) {
        case GGML_TYPE_Q4_0: return what(choice<GGML_TYPE_Q4_0>::get());
        case GGML_TYPE_IQ4_NL: return what(choice<GGML_TYPE_IQ4_NL>::get());
        case GGML_TYPE_MXFP4: return what(choice<GGML_TYPE_MXFP4>::get());
        case GGML_TYPE_Q8_0: return what(choice<GGML_TYPE_Q8_0>::get());
        case GGML_TYPE_Q4_K: return what(choice<GGML_TYPE_Q4_K>::get());
        case GGML_TYPE_Q5_K: return what(choice<GGML_TYPE_Q5_K>::get());
        default: return what(choice<GGML_TYPE_Q6_K>::get());
    }
}

}   // namespace

panel_kernel panel_find_kernel(ggml_type type) {
    return panel_has_type(type) ? with(type, [](auto & c) { return c.find(); }) : nullptr;
}

int panel_tiles_from(ggml_type type) {
    return panel_has_type(type) ? with(type, [](auto & c) { return c.few && c.many ? c.tiles_from.load() : 0; }) : 0;
}

void panel_set_tiles_from(ggml_type type, int rows) {
    if (panel_has_type(type)) {
        with(type, [rows](auto & c) { c.tiles_from = rows; });
    }
}

}   // namespace dflash
