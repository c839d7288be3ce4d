// Kernels of attention without flash attention (unfused.h). Included once per instruction set, behind its simd_<set>.h
// and attention_steps.h.

SIMD void turn(ggml_type type, const char * k, size_t cell, int64_t n, int64_t dk, float * scratch, float * turned) {
    for (int64_t first = 0; first < n; first += BLOCK, turned += BLOCK * dk) {
        read_turned(type, k + first * cell, cell, n - first < BLOCK ? n - first : BLOCK, dk, scratch, turned);
    }
}

template <int R>
SIMD_INLINE void score_lanes(
    int64_t lanes, const float * q, const float * k, int64_t dk, int64_t n, float * out, int64_t stride) {
    int64_t l = 0;
    for (; l + R <= lanes; l += R) {
        if (n == BLOCK) {
            dot<R>(q + l * dk, k, dk, out + l * stride, stride);
            continue;
        }
        float edge[R * BLOCK];
        dot<R>(q + l * dk, k, dk, edge, BLOCK);
        for (int r = 0; r < R; ++r) {
            std::memcpy(out + (l + r) * stride, edge + r * BLOCK, n * sizeof(float));
        }
    }
    if constexpr (R > 1) {
        score_lanes<R / 2>(lanes - l, q + l * dk, k, dk, n, out + l * stride, stride);
    }
}

SIMD void scores(
    const float * turned, int64_t n, int64_t dk, const float * q, int64_t lanes, float * out, int64_t stride) {
    for (int64_t first = 0; first < n; first += BLOCK) {
        score_lanes<simd::ROWS>(
            lanes, q, turned + first * dk, dk, n - first < BLOCK ? n - first : BLOCK, out + first, stride);
    }
}

SIMD void softmax(const float * x, float * out, int64_t n, float scale, float slope, const ggml_fp16_t * half_mask,
    const float * mask, float sink) {
    const int64_t whole = n / simd::W * simd::W, rest = n - whole;
    float         edge[simd::W];   // the cells behind the last whole vector, none of them visible that does not exist
    for (int i = 0; i < simd::W; ++i) {
        edge[i] = -INFINITY;
        if (i < rest) {
            const float bias = half_mask ? ggml_fp16_to_fp32(half_mask[whole + i]) : mask ? mask[whole + i] : 0.0f;
            simd::f     y    = simd::mul(simd::set1(x[whole + i]), simd::set1(scale));
            float       one[simd::W];
            simd::store(one, half_mask || mask ? simd::fma(simd::set1(bias), simd::set1(slope), y) : y);
            edge[i] = one[0];
        }
    }
    simd::f most = simd::load(edge);
    for (int64_t i = 0; i < whole; i += simd::W) {
        simd::f y = simd::mul(simd::load(x + i), simd::set1(scale));
        if (half_mask || mask) {
            y = simd::fma(half_mask ? simd::half(half_mask + i) : simd::load(mask + i), simd::set1(slope), y);
        }
        simd::store(out + i, y);
        most = simd::max(most, y);
    }
    float top = simd::greatest(most);
    top       = sink > top ? sink : top;
    if (top == -INFINITY) {   // sees nothing
        std::memset(out, 0, n * sizeof(float));
        return;
    }
    typename simd::integers total = simd::zero();
    for (int64_t i = 0; i < whole; i += simd::W) {
        const simd::f p = simd::exp(simd::fma(simd::set1(-1.0f), simd::set1(top), simd::load(out + i)));
        simd::store(out + i, p);
        total = simd::fixed(total, p);
    }
    const simd::f last = simd::exp(simd::fma(simd::set1(-1.0f), simd::set1(top), simd::load(edge)));
    total              = simd::fixed(total, last);
    const double  all  = (double) simd::total(total) * 0x1p-40 + (sink > -INFINITY ? (double) expf(sink - top) : 0.0);
    const simd::f norm = simd::set1((float) (1.0 / all));
    for (int64_t i = 0; i < whole; i += simd::W) {
        simd::store(out + i, simd::mul(simd::load(out + i), norm));
    }
    simd::store(edge, simd::mul(last, norm));
    std::memcpy(out + whole, edge, rest * sizeof(float));
}

// Cells [0, n) of a column of V as floats, zeros behind them.
SIMD_INLINE void read_column(ggml_type type, const char * v, int64_t n, float * out) {
    if (n < BLOCK) {
        if (type == GGML_TYPE_F32) {
            std::memcpy(out, v, n * sizeof(float));
        } else {
            ggml_get_type_traits(type)->to_float(v, out, n);
        }
        std::memset(out + n, 0, (BLOCK - n) * sizeof(float));
        return;
    }
    for (int i = 0; i < BLOCK; i += simd::W) {
        simd::store(out + i, type == GGML_TYPE_F32   ? simd::load((const float *) v + i)
                             : type == GGML_TYPE_F16 ? simd::half((const ggml_fp16_t *) v + i)
                                                     : simd::bfloat((const uint16_t *) v + i));
    }
}

// Whether any cell of a block has some weight.
SIMD_INLINE bool weighs(const float * p) {
    uint64_t bits = 0;
    for (int i = 0; i < BLOCK; i += 2) {
        uint64_t two;
        std::memcpy(&two, p + i, sizeof(two));
        bits |= two;
    }
    return bits != 0;
}

template <int R>
SIMD_INLINE void value_lanes(int64_t lanes, const bool * seen, const float * p, int64_t stride, const float * v,
    int64_t dv, float * out, int64_t out_stride) {
    int64_t l = 0;
    for (; l + R <= lanes; l += R) {
        bool any = false;
        for (int r = 0; r < R; ++r) {
            any |= seen[l + r];
        }
        if (any) {
            mix_columns<copied, R>(p + l * stride, stride, v, dv, dv, out + l * out_stride, out_stride);
        }
    }
    if constexpr (R > 1) {
        value_lanes<R / 2>(lanes - l, seen + l, p + l * stride, stride, v, dv, out + l * out_stride, out_stride);
    }
}

SIMD void values(ggml_type type, const char * v, size_t column, int64_t n, int64_t dv, const float * p, int64_t lanes,
    int64_t stride, float * out, int64_t out_stride, float * scratch) {
    float *const cells = scratch, *const turned = cells + simd::W * BLOCK, *const edge = turned + BLOCK * dv;
    const size_t size = type == GGML_TYPE_F32 ? 4 : 2;
    bool         seen[VALUE_LANES];
    for (int64_t l = 0; l < lanes; ++l) {
        std::memset(out + l * out_stride, 0, dv * sizeof(float));
    }
    for (int64_t first = 0; first < n; first += BLOCK, p += BLOCK, v += BLOCK * size) {
        const int64_t take = n - first < BLOCK ? n - first : BLOCK;
        if (take < BLOCK) {
            std::memset(edge, 0, lanes * BLOCK * sizeof(float));
            for (int64_t l = 0; l < lanes; ++l) {
                std::memcpy(edge + l * BLOCK, p + l * stride, take * sizeof(float));
            }
            p      = edge;
            stride = BLOCK;
        }
        bool any = false;
        for (int64_t l = 0; l < lanes; ++l) {
            any |= seen[l] = weighs(p + l * stride);
        }
        if (!any) {
            continue;
        }
        for (int64_t d = 0; d < dv; d += simd::W) {
            for (int i = 0; i < simd::W; ++i) {
                __builtin_prefetch(
                    v + (d + i) * column + 2 * BLOCK * size);   // columns are too many for the hardware's prefetch
                read_column(type, v + (d + i) * column, take, cells + i * BLOCK);
            }
            simd::transpose(cells, BLOCK, turned + d, dv);
            simd::transpose(cells + simd::W, BLOCK, turned + simd::W * dv + d, dv);
        }
        value_lanes<simd::ROWS / 2>(lanes, seen, p, stride, turned, dv, out, out_stride);
    }
}
