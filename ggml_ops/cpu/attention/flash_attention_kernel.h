// The kernel of flash_attention.h. Included by isa/<set>.cpp after its vectors and attention_blocks.h.

constexpr ggml_fp16_t HIDDEN = 0xFC00;   // minus infinity: the mask value of a hidden cell

// One kernel call: some queries of a KV head.
struct flash_attention_task {
    const flash_attention_args & args;
    int64_t                      stream, kv_head, first, n_queries;

    // in scratch memory; score blocks exist only for blocks of cells that some query sees
    float *    q;                // [n_queries][dk]
    float *    sums;             // [n_queries][dv]
    float *    cells;            // a block of K or V: [BLOCK][dk or dv]
    float *    transposed;       // a block of K: [dk][BLOCK]
    float *    scores;           // [n_queries][scores_stride], later the softmax weights
    int32_t *  block_of;         // the block of cells of a score block
    uint64_t * queries_seeing;   // bits of the queries that see a cell of a score block
    int64_t    scores_stride, n_score_blocks;

    const ggml_fp16_t * mask[FLASH_ATTENTION_QUERIES];    // mask row of a query; null: all cells are visible
    float               slope[FLASH_ATTENTION_QUERIES];   // ALiBi
    simd::f32           maximum[FLASH_ATTENTION_QUERIES];
    float               scale[FLASH_ATTENTION_QUERIES];   // 1 / denominator

    flash_attention_task(const flash_attention_args & args, int64_t stream, int64_t kv_head, int64_t first,
        int64_t n_queries) : args(args), stream(stream), kv_head(kv_head), first(first), n_queries(n_queries) {}

    int64_t row_of(int64_t i) const { return (first + i) / args.n_gqa; }
    int64_t head_of(int64_t i) const { return kv_head * args.n_gqa + (first + i) % args.n_gqa; }
    int64_t k_stream() const { return stream / (args.n_streams / args.n_k_streams); }
    int64_t n_cells_from(int64_t cell) const { return args.n_cells - cell < BLOCK ? args.n_cells - cell : BLOCK; }
};

ISA_INLINE void place_scratch(flash_attention_task & t, float * scratch) {
    const int64_t dk = t.args.dk, dv = t.args.dv, widest = dk > dv ? dk : dv,
                  blocks = (t.args.n_cells + BLOCK - 1) / BLOCK;
    t.q                  = scratch;
    t.sums               = t.q + t.n_queries * dk;
    t.cells              = t.sums + t.n_queries * dv;
    t.transposed         = t.cells + BLOCK * widest;
    t.scores             = t.transposed + BLOCK * widest;
    t.block_of           = (int32_t *) (t.scores + t.n_queries * blocks * BLOCK);
    t.queries_seeing     = (uint64_t *) (t.block_of + (blocks + 1) / 2 * 2);
    t.scores_stride      = blocks * BLOCK;
    t.n_score_blocks     = 0;
}

ISA_INLINE void load_queries(flash_attention_task & t) {
    const flash_attention_args & args = t.args;
    for (int64_t i = 0; i < t.n_queries; ++i) {
        const int64_t row = t.row_of(i), head = t.head_of(i);
        std::memcpy(t.q + i * args.dk, args.q + row * args.q_row + head * args.q_head + t.stream * args.q_stream,
            args.dk * sizeof(float));
        t.mask[i]    = args.mask ? (const ggml_fp16_t *) (args.mask + row * args.mask_row +
                                                       head % args.n_mask_heads * args.mask_head +
                                                       t.stream % args.n_mask_streams * args.mask_stream)
                                 : nullptr;
        t.slope[i]   = args.slopes.of(head);
        t.maximum[i] = simd::set1(-INFINITY);
    }
}

// Whether any of n cells is visible in a mask row.
ISA_FUNCTION bool sees_any(const ggml_fp16_t * mask, int64_t n) {
    constexpr uint64_t FOUR_HIDDEN = 0xFC00FC00FC00FC00u;
    int64_t            i           = 0;
    for (; i + 4 <= n; i += 4) {
        uint64_t four;
        std::memcpy(&four, mask + i, 8);
        if (four != FOUR_HIDDEN) {
            return true;
        }
    }
    for (; i < n; ++i) {
        if (mask[i] != HIDDEN) {
            return true;
        }
    }
    return false;
}

// Scores of a block for all queries. R queries are computed together if any of them sees the block.
template <int R>
ISA_INLINE void score_queries(int64_t n_queries, const bool * sees, const float * q, const float * k, int64_t dk,
    float * scores, int64_t scores_stride) {
    int64_t i = 0;
    for (; i + R <= n_queries; i += R) {
        bool any = false;
        for (int r = 0; r < R; ++r) {
            any |= sees[i + r];
        }
        if (any) {
            score_rows<R>(q + i * dk, k, dk, scores + i * scores_stride, scores_stride);
        }
    }
    if constexpr (R > 1) {
        score_queries<R / 2>(n_queries - i, sees + i, q + i * dk, k, dk, scores + i * scores_stride, scores_stride);
    }
}

// Applies scale, soft-cap and mask to a query's scores in the block of n cells from `cell` on, and finds their maximum.
ISA_INLINE void mask_scores(flash_attention_task & t, int64_t i, float * scores, int64_t cell, int64_t n) {
    const flash_attention_args & args = t.args;
    ggml_fp16_t                  copy[BLOCK];   // cells after the last are hidden
    const ggml_fp16_t *          bias = copy;
    if (t.mask[i] && n == BLOCK) {
        bias = t.mask[i] + cell;
    } else {
        for (int64_t c = 0; c < BLOCK; ++c) {
            copy[c] = c >= n ? HIDDEN : t.mask[i] ? t.mask[i][cell + c] : 0;
        }
    }
    for (int c = 0; c < BLOCK; c += simd::W) {
        simd::f32 x = simd::mul(simd::load_f32(scores + c), simd::set1(args.scale));
        if (args.softcap != 0.0f) {
            float capped[simd::W];
            simd::store(capped, x);
            for (float & y : capped) {
                y = args.softcap * tanhf(y);
            }
            x = simd::load_f32(capped);
        }
        x = masked(x, simd::load_f16(bias + c), t.slope[i]);
        simd::store(scores + c, x);
        t.maximum[i] = simd::max(t.maximum[i], x);
    }
}

// All scores, block after block; blocks that no query sees are skipped.
ISA_INLINE void compute_scores(flash_attention_task & t) {
    const flash_attention_args & args = t.args;
    bool                         sees[FLASH_ATTENTION_QUERIES];
    for (int64_t cell = 0; cell < args.n_cells; cell += BLOCK) {
        const int64_t n   = t.n_cells_from(cell);
        bool          any = false;
        for (int64_t i = 0; i < t.n_queries; ++i) {
            const bool same_row = i > 0 && t.mask[i] == t.mask[i - 1];
            sees[i]             = !t.mask[i] || (same_row ? sees[i - 1] : sees_any(t.mask[i] + cell, n));
            any |= sees[i];
        }
        if (!any) {
            continue;
        }
        read_cells_transposed(args.k_type,
            args.k + cell * args.k_cell + t.kv_head * args.k_head + t.k_stream() * args.k_stream, args.k_cell, n,
            args.dk, t.cells, t.transposed);
        float * const block = t.scores + t.n_score_blocks * BLOCK;
        score_queries<simd::ROWS>(t.n_queries, sees, t.q, t.transposed, args.dk, block, t.scores_stride);
        uint64_t seeing = 0;
        for (int64_t i = 0; i < t.n_queries; ++i) {
            float * const scores = block + i * t.scores_stride;
            if (sees[i]) {
                seeing |= (uint64_t) 1 << i;
                mask_scores(t, i, scores, cell, n);
                continue;
            }
            for (int c = 0; c < BLOCK; c += simd::W) {
                simd::store(scores + c, simd::set1(-INFINITY));
            }
        }
        t.queries_seeing[t.n_score_blocks] = seeing;
        t.block_of[t.n_score_blocks++]     = (int32_t) (cell / BLOCK);
    }
}

// Weights of a query's cells, without the factor 1 / denominator.
ISA_INLINE void compute_weights(flash_attention_task & t, int64_t i) {
    const flash_attention_args & args   = t.args;
    float * const                scores = t.scores + i * t.scores_stride;
    float                        top    = simd::reduce_max(t.maximum[i]);
    const float                  sink   = args.sinks ? args.sinks[t.head_of(i)] : -INFINITY;
    top                                 = sink > top ? sink : top;
    if (top == -INFINITY && !has_nan(scores, t.n_score_blocks * BLOCK)) {   // no visible cell
        std::memset(scores, 0, t.n_score_blocks * BLOCK * sizeof(float));
        t.scale[i] = 0.0f;
        return;
    }
    t.scale[i] = norm_of(exponentials(scores, t.n_score_blocks * BLOCK, top, simd::zero_i64()), top, sink);
}

// Adds the weighted values of a block for all queries. R queries are computed together if any of them sees the block.
template <class V, int R>
ISA_INLINE void weigh_values(int64_t n_queries, uint64_t queries_seeing, const float * weights, int64_t weights_stride,
    const typename V::type * v, int64_t v_stride, int64_t dv, float * sums) {
    int64_t i = 0;
    for (; i + R <= n_queries; i += R) {
        if (queries_seeing >> i & (((uint64_t) 1 << R) - 1)) {
            value_columns<V, R>(weights + i * weights_stride, weights_stride, v, v_stride, dv, sums + i * dv, dv);
        }
    }
    if constexpr (R > 1) {
        weigh_values<V, R / 2>(n_queries - i, i < 64 ? queries_seeing >> i : 0, weights + i * weights_stride,
            weights_stride, v, v_stride, dv, sums + i * dv);
    }
}

ISA_INLINE const char * v_block(const flash_attention_task & t, int64_t cell) {
    const flash_attention_args & args = t.args;
    return args.v + cell * args.v_cell + t.kv_head * args.v_head + t.k_stream() * args.v_stream;
}

// With few queries, the halves of V are read in place; with more, a copy as floats pays off.
ISA_INLINE void compute_values(flash_attention_task & t) {
    const flash_attention_args & args = t.args;
    for (int64_t b = 0; b < t.n_score_blocks; ++b) {
        const int64_t       cell = (int64_t) t.block_of[b] * BLOCK, n = t.n_cells_from(cell);
        const char * const  v       = v_block(t, cell);
        const float * const weights = t.scores + b * BLOCK;
        if (t.n_queries <= simd::ROWS && n == BLOCK && args.v_type == GGML_TYPE_F16) {
            weigh_values<v_in_place, simd::ROWS / 2>(t.n_queries, t.queries_seeing[b], weights, t.scores_stride,
                (const ggml_fp16_t *) v, args.v_cell / 2, args.dv, t.sums);
        } else {
            read_cells(args.v_type, v, args.v_cell, n, args.dv, t.cells);
            weigh_values<v_copied, simd::ROWS / 2>(
                t.n_queries, t.queries_seeing[b], weights, t.scores_stride, t.cells, args.dv, args.dv, t.sums);
        }
    }
}

// The values of a query without the cells that are hidden from it: the same sums, unless such a cell spoils them.
ISA_FUNCTION void compute_visible_values(flash_attention_task & t, int64_t i) {
    const flash_attention_args & args = t.args;
    float * const                sums = t.sums + i * args.dv;
    std::memset(sums, 0, args.dv * sizeof(float));
    for (int64_t b = 0; b < t.n_score_blocks; ++b) {
        if (!(t.queries_seeing[b] >> i & 1)) {
            continue;
        }
        const int64_t cell = (int64_t) t.block_of[b] * BLOCK, n = t.n_cells_from(cell);
        read_cells(args.v_type, v_block(t, cell), args.v_cell, n, args.dv, t.cells);
        for (int64_t c = 0; c < n; ++c) {
            if (t.mask[i] && t.mask[i][cell + c] == HIDDEN) {
                std::memset(t.cells + c * args.dv, 0, args.dv * sizeof(float));
            }
        }
        value_columns<v_copied, 1>(
            t.scores + i * t.scores_stride + b * BLOCK, t.scores_stride, t.cells, args.dv, args.dv, sums, args.dv);
    }
}

ISA_INLINE void write_results(const flash_attention_task & t) {
    const flash_attention_args & args = t.args;
    for (int64_t i = 0; i < t.n_queries; ++i) {
        const int64_t row = t.row_of(i), head = t.head_of(i);
        float * const out = args.out + ((t.stream * args.n_rows + row) * args.n_heads + head) * args.dv;
        for (int64_t d = 0; d < args.dv; d += simd::W) {
            simd::store(out + d, simd::mul(simd::load_f32(t.sums + i * args.dv + d), simd::set1(t.scale[i])));
        }
    }
}

ISA_FUNCTION void flash_attention(const flash_attention_args & args, int64_t stream, int64_t kv_head, int64_t first,
    int64_t n_queries, float * scratch) {
    flash_attention_task t(args, stream, kv_head, first, n_queries);
    place_scratch(t, scratch);
    load_queries(t);
    compute_scores(t);
    for (int64_t i = 0; i < n_queries; ++i) {
        compute_weights(t, i);
    }
    std::memset(t.sums, 0, n_queries * args.dv * sizeof(float));
    compute_values(t);
    for (int64_t i = 0; i < n_queries; ++i) {
        if (!all_finite(t.sums + i * args.dv, args.dv)) {
            compute_visible_values(t, i);
        }
    }
    write_results(t);
}
