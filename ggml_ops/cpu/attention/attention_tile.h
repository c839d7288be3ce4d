// A tile of lanes over all cells of a KV head (attention.h). Included once per instruction set, behind its simd_<set>.h
// and attention_steps.h.

// Whether any of n cells is visible in a mask row.
SIMD bool sees(const ggml_fp16_t * mask, int64_t n) {
    constexpr uint64_t HIDDEN = 0xFC00FC00FC00FC00u;   // four times minus infinity
    int64_t            i      = 0;
    for (; i + 4 <= n; i += 4) {
        uint64_t four;
        std::memcpy(&four, mask + i, 8);
        if (four != HIDDEN) {
            return true;
        }
    }
    for (; i < n; ++i) {
        if (mask[i] != 0xFC00) {
            return true;
        }
    }
    return false;
}

template <int R>
SIMD_INLINE void dot_lanes(
    int64_t lanes, const bool * seen, const float * q, const float * k, int64_t dk, float * out, int64_t stride) {
    int64_t l = 0;
    for (; l + R <= lanes; l += R) {
        bool any = false;
        for (int r = 0; r < R; ++r) {
            any |= seen[l + r];
        }
        if (any) {
            dot<R>(q + l * dk, k, dk, out + l * stride, stride);
        }
    }
    if constexpr (R > 1) {
        dot_lanes<R / 2>(lanes - l, seen + l, q + l * dk, k, dk, out + l * stride, stride);
    }
}

template <class T, int R>
SIMD_INLINE void mix_lanes(int64_t lanes, uint64_t seers, const float * p, int64_t stride, const typename T::type * v,
    int64_t v_stride, int64_t dv, float * out) {
    int64_t l = 0;
    for (; l + R <= lanes; l += R) {
        if (seers >> l & (((uint64_t) 1 << R) - 1)) {
            mix_columns<T, R>(p + l * stride, stride, v, v_stride, dv, out + l * dv, dv);
        }
    }
    if constexpr (R > 1) {
        mix_lanes<T, R / 2>(lanes - l, l < 64 ? seers >> l : 0, p + l * stride, stride, v, v_stride, dv, out + l * dv);
    }
}

SIMD void run(
    const attention_job & job, int64_t stream, int64_t kv_head, int64_t lane, int64_t lanes, float * scratch) {
    const int64_t dk = job.dk, dv = job.dv, widest = dk > dv ? dk : dv, blocks = (job.cells + BLOCK - 1) / BLOCK,
                  k_stream = stream / (job.streams / job.k_streams);
    float *    q           = scratch;
    float *    sum         = q + lanes * dk;
    float *    cells       = sum + lanes * dv;
    float *    turned      = cells + BLOCK * widest;
    float *    scores      = turned + BLOCK * widest;   // [lanes][blocks that some lane sees]
    int32_t *  used        = (int32_t *) (scores + lanes * blocks * BLOCK);
    uint64_t * seers_of = (uint64_t *) (used + (blocks + 1) / 2 * 2);   // per used block, the lanes that see some of it
    const int64_t stride = blocks * BLOCK;

    const ggml_fp16_t * mask[64];
    bool                seen[64];
    float               slope[64];
    simd::f             most[64];
    for (int64_t l = 0; l < lanes; ++l) {
        const int64_t row = (lane + l) / job.group, head = kv_head * job.group + (lane + l) % job.group;
        std::memcpy(
            q + l * dk, job.q + row * job.q_row + head * job.q_head + stream * job.q_stream, dk * sizeof(float));
        mask[l]  = job.mask
                       ? (const ggml_fp16_t *) (job.mask + row * job.mask_row + head % job.mask_heads * job.mask_head +
                                               stream % job.mask_streams * job.mask_stream)
                       : nullptr;
        slope[l] = job.bias <= 0.0f        ? 1.0f
                   : head < job.bias_heads ? powf(job.bias_low, head + 1)
                                           : powf(job.bias_high, 2 * (head - job.bias_heads) + 1);
        most[l]  = simd::set1(-INFINITY);
    }

    int64_t n_used = 0;
    for (int64_t b = 0; b < blocks; ++b) {
        const int64_t first = b * BLOCK, n = job.cells - first < BLOCK ? job.cells - first : BLOCK;
        bool          any = false;
        for (int64_t l = 0; l < lanes; ++l) {
            seen[l] = !mask[l] || (l > 0 && mask[l] == mask[l - 1] ? seen[l - 1] : sees(mask[l] + first, n));
            any |= seen[l];
        }
        if (!any) {
            continue;
        }
        read_turned(job.k_type, job.k + first * job.k_cell + kv_head * job.k_head + k_stream * job.k_stream, job.k_cell,
            n, dk, cells, turned);
        float * const s = scores + n_used * BLOCK;
        dot_lanes<simd::ROWS>(lanes, seen, q, turned, dk, s, stride);
        uint64_t seers = 0;
        for (int64_t l = 0; l < lanes; ++l) {
            float * const x = s + l * stride;
            if (!seen[l]) {
                for (int i = 0; i < BLOCK; i += simd::W) {
                    simd::store(x + i, simd::set1(-INFINITY));
                }
                continue;
            }
            seers |= (uint64_t) 1 << l;
            ggml_fp16_t         edge[BLOCK];   // hidden behind the last cell
            const ggml_fp16_t * bias = edge;
            if (mask[l] && n == BLOCK) {
                bias = mask[l] + first;
            } else {
                for (int64_t c = 0; c < BLOCK; ++c) {
                    edge[c] = c >= n ? 0xFC00 : mask[l] ? mask[l][first + c] : 0;
                }
            }
            for (int i = 0; i < BLOCK; i += simd::W) {
                simd::f y = simd::mul(simd::load(x + i), simd::set1(job.scale));
                if (job.softcap != 0.0f) {
                    float t[simd::W];
                    simd::store(t, y);
                    for (float & z : t) {
                        z = job.softcap * tanhf(z);
                    }
                    y = simd::load(t);
                }
                y = simd::fma(simd::half(bias + i), simd::set1(slope[l]), y);
                simd::store(x + i, y);
                most[l] = simd::max(most[l], y);
            }
        }
        seers_of[n_used] = seers;
        used[n_used++]   = (int32_t) b;
    }

    float scale[64];
    for (int64_t l = 0; l < lanes; ++l) {
        float       top  = simd::greatest(most[l]);
        const float sink = job.sinks ? job.sinks[kv_head * job.group + (lane + l) % job.group] : -INFINITY;
        top              = sink > top ? sink : top;
        std::memset(sum + l * dv, 0, dv * sizeof(float));
        typename simd::integers total = simd::zero();
        float * const           s     = scores + l * stride;
        if (top == -INFINITY) {   // sees nothing
            std::memset(s, 0, n_used * BLOCK * sizeof(float));
            scale[l] = 0.0f;
            continue;
        }
        for (int64_t i = 0; i < n_used * BLOCK; i += simd::W) {
            const simd::f p = simd::exp(simd::fma(simd::set1(-1.0f), simd::set1(top), simd::load(s + i)));
            simd::store(s + i, p);
            total = simd::fixed(total, p);
        }
        const double all = (double) simd::total(total) * 0x1p-40 + (sink > -INFINITY ? (double) expf(sink - top) : 0.0);
        scale[l]         = (float) (1.0 / all);
    }

    for (int64_t u = 0; u < n_used; ++u) {
        const int64_t      first = (int64_t) used[u] * BLOCK, n = job.cells - first < BLOCK ? job.cells - first : BLOCK;
        const char * const v = job.v + first * job.v_cell + kv_head * job.v_head + k_stream * job.v_stream;
        if (lanes <= simd::ROWS && n == BLOCK && job.v_type == GGML_TYPE_F16) {
            mix_lanes<in_place, simd::ROWS / 2>(
                lanes, seers_of[u], scores + u * BLOCK, stride, (const ggml_fp16_t *) v, job.v_cell / 2, dv, sum);
        } else {
            read_cells(job.v_type, v, job.v_cell, n, dv, cells);
            mix_lanes<copied, simd::ROWS / 2>(lanes, seers_of[u], scores + u * BLOCK, stride, cells, dv, dv, sum);
        }
    }

    for (int64_t l = 0; l < lanes; ++l) {
        const int64_t row = (lane + l) / job.group, head = kv_head * job.group + (lane + l) % job.group;
        float * const out = job.out + ((stream * job.rows + row) * job.heads + head) * dv;
        for (int64_t d = 0; d < dv; d += simd::W) {
            simd::store(out + d, simd::mul(simd::load(sum + l * dv + d), simd::set1(scale[l])));
        }
    }
}
