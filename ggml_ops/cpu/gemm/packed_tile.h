// Panel kernels, written once for all instruction sets and included into a namespace of each. Before it, `lanes` and
// the macros LANES and LANES_INLINE (attributes of functions that are compiled for the set) must be there:
//   i, f, b, p         W int32, W floats, 4 W bytes (4 inner positions of W neighbouring columns), 2 W int16 (pairs of
//   W columns) W, ROWS            lanes; rows of a tile at most GROUPS[3]          how many groups of W columns 1, 2
//   and 3 rows take at once: a chain of dot products alone would wait for itself SIGNED             dot products take
//   signed bytes; if not, they take weights unsigned and whole bytes with 128 added load, flip (xor 0x80), low, high
//   (nibbles), either (or), bits<N>(b, mask) (shifted left by N, negative: right; then masked), table (of 16 signed
//   bytes) half, e8m0 (scales), bytes (W uint8 as int32), pairs_u8, pairs_s8, even, odd (int32 of signed pairs) dot2
//   (pairs against two int16), add_mul (a + b * c), less_32 (a - 32 * b), zero, to_float, mul, set1, fma (a * b + c),
//   fnma (c - a * b), store
// and products<R>: sums of R rows with W columns:
//   start(r, value), add<WHOLE>(w0, w1, a, at): 8 inner positions in two lines of weights against a[r] + at; row(r)
// All sets give the same bits: integers are exact, and the float operations on them and their order are written here.

// Asks for part `part` of PARTS of a panel's block; null: for nothing. LEVEL: of the caches, 3 the first, 2 the second.
// Kernels compute between the parts: more lines at once than a core can wait for would hold up its loads (types with
// 256 positions: a fifth to a third of the speed of narrow passes).
template <int LEVEL, class Panel, int PARTS> LANES_INLINE void prefetch(const void * from, int part) {
    constexpr int LINES = (sizeof(Panel) + 64 * PARTS - 1) / (64 * PARTS);
    if (from) {
        for (int n = 0; n < LINES; ++n) {
            __builtin_prefetch((const char *) from + 64 * (part * LINES + n), 0, LEVEL);
        }
    }
}

// A row's scales lie behind its values.
LANES_INLINE const scale_q8_0 & of_32(const int8_t * a, int64_t blocks, int64_t b) {
    return ((const scale_q8_0 *) (a + 32 * blocks))[b];
}
LANES_INLINE const scale_q8_K & of_256(const int8_t * a, int64_t blocks, int64_t b) {
    return ((const scale_q8_K *) (a + 256 * blocks))[b];
}

// ---- types with a scale per 32 positions: what a nibble stands for, and the scale ----

struct q4_0 {
    using panel                          = panel_q4_0;
    static constexpr bool          WHOLE = false;   // bytes beyond 127
    static constexpr int32_t       START = row_start(GGML_TYPE_Q4_0);
    LANES_INLINE typename lanes::b value(typename lanes::b nibble) { return nibble; }
    LANES_INLINE typename lanes::f scale(const panel & x, int c) { return lanes::half(x.d + c); }
};

struct iq4_nl {
    using panel                          = panel_q4_0;
    static constexpr bool          WHOLE = true;
    static constexpr int32_t       START = row_start(GGML_TYPE_IQ4_NL);
    LANES_INLINE typename lanes::b value(typename lanes::b nibble) {
        return lanes::table(lanes::SIGNED ? VALUES_IQ4_NL : VALUES_IQ4_NL_128, nibble);
    }
    LANES_INLINE typename lanes::f scale(const panel & x, int c) { return lanes::half(x.d + c); }
};

struct mxfp4 {
    using panel                          = panel_mxfp4;
    static constexpr bool          WHOLE = false;
    static constexpr int32_t       START = row_start(GGML_TYPE_MXFP4);
    LANES_INLINE typename lanes::b value(typename lanes::b nibble) { return lanes::table(VALUES_MXFP4_12, nibble); }
    LANES_INLINE typename lanes::f scale(const panel & x, int c) { return lanes::e8m0(x.e + c); }
};

template <class T> struct nibbles : T {
    template <int R>
    LANES_INLINE void add(const typename T::panel & x, int c, const int8_t * const * a, int64_t at, products<R> & sum) {
        for (int n = 0; n < 4; n += 2) {
            const typename lanes::b q0 = lanes::load(x.q[n] + 4 * c), q1 = lanes::load(x.q[n + 1] + 4 * c);
            sum.template add<T::WHOLE>(T::value(lanes::low(q0)), T::value(lanes::low(q1)), a, at + 4 * n);
            sum.template add<T::WHOLE>(T::value(lanes::high(q0)), T::value(lanes::high(q1)), a, at + 4 * n + 16);
        }
    }
};

struct q8_0 {
    using panel                          = panel_q8_0;
    static constexpr bool          WHOLE = true;
    static constexpr int32_t       START = row_start(GGML_TYPE_Q8_0);
    LANES_INLINE typename lanes::f scale(const panel & x, int c) { return lanes::half(x.d + c); }
    LANES_INLINE typename lanes::b value(const uint8_t * q) {
        return lanes::SIGNED ? lanes::flip(lanes::load(q)) : lanes::load(q);
    }
    template <int R>
    LANES_INLINE void add(const panel & x, int c, const int8_t * const * a, int64_t at, products<R> & sum) {
        for (int n = 0; n < 8; n += 2) {
            sum.template add<true>(value(x.q[n] + 4 * c), value(x.q[n + 1] + 4 * c), a, at + 4 * n);
        }
    }
};

template <class T> struct by_32 {
    using panel                = typename T::panel;
    static constexpr int PARTS = 2;
    template <int LEVEL, int R>
    LANES_INLINE void block(const panel & x, int c, const int8_t * const * a, int64_t blocks, int64_t b,
        const void * next, typename lanes::f (&out)[R]) {
        prefetch<LEVEL, panel, PARTS>(next, 0);
        products<R> sum;
        for (int r = 0; r < R; ++r) {
            sum.start(r, T::WHOLE && lanes::SIGNED ? T::START : of_32(a[r], blocks, b).offset);
        }
        T::template add<R>(x, c, a, 32 * b, sum);
        prefetch<LEVEL, panel, PARTS>(next, 1);
        // sum * d, rounded once: where the sum is a float that is 1.5 * 2^23 too large, that much times d (exact, as d
        // comes from a half) is taken off within the rounding
        const typename lanes::f d = T::scale(x, c), back = lanes::mul(d, lanes::set1(-0x1.8p23f));
        for (int r = 0; r < R; ++r) {
            const typename lanes::f scaled = T::START ? lanes::fma(lanes::as_float(sum.row(r)), d, back)
                                                      : lanes::mul(lanes::to_float(sum.row(r)), d);
            out[r]                         = lanes::fma(scaled, lanes::set1(of_32(a[r], blocks, b).d), out[r]);
        }
    }
};

// ---- types with integer scales within 256 positions ----

// 4 inner positions of a Q5_K sub-block: group G of 8, its high bit out of h.
template <int G> LANES_INLINE typename lanes::b fifth(typename lanes::b nibble, typename lanes::b h) {
    return lanes::either(nibble, lanes::template bits<4 - G>(h, 16));
}
// Of a Q6_K sub-block: group G of 4, its two high bits.
template <int G> LANES_INLINE typename lanes::b sixth(typename lanes::b nibble, typename lanes::b h) {
    return lanes::either(nibble, lanes::template bits<4 - 2 * G>(h, 48));
}

struct q4_K {
    using panel = panel_q4_K;
    template <int R>
    LANES_INLINE void add(const panel & x, int s, int c, const int8_t * const * a, int64_t at, products<R> & sum) {
        for (int n = 0; n < 4; n += 2) {
            const typename lanes::b q0 = lanes::load(x.q[s][n] + 4 * c), q1 = lanes::load(x.q[s][n + 1] + 4 * c);
            sum.template add<false>(lanes::low(q0), lanes::low(q1), a, at + 4 * n);
            sum.template add<false>(lanes::high(q0), lanes::high(q1), a, at + 4 * n + 16);
        }
    }
};

struct q5_K {
    using panel = panel_q5_K;
    template <int N, int R>
    LANES_INLINE void add_lines(
        const panel & x, int s, int c, const int8_t * const * a, int64_t at, products<R> & sum) {
        const typename lanes::b h = lanes::load(x.h[s] + 4 * c), q0 = lanes::load(x.q[s][N] + 4 * c),
                                q1 = lanes::load(x.q[s][N + 1] + 4 * c);
        sum.template add<false>(fifth<N>(lanes::low(q0), h), fifth<N + 1>(lanes::low(q1), h), a, at + 4 * N);
        sum.template add<false>(fifth<N + 4>(lanes::high(q0), h), fifth<N + 5>(lanes::high(q1), h), a, at + 4 * N + 16);
    }
    template <int R>
    LANES_INLINE void add(const panel & x, int s, int c, const int8_t * const * a, int64_t at, products<R> & sum) {
        add_lines<0, R>(x, s, c, a, at, sum);
        add_lines<2, R>(x, s, c, a, at, sum);
    }
};

// With minima: 8 sub-blocks of 32.
template <class T> struct by_256 {
    using panel                = typename T::panel;
    static constexpr int PARTS = 8;
    template <int LEVEL, int R>
    LANES_INLINE void block(const panel & x, int c, const int8_t * const * a, int64_t blocks, int64_t b,
        const void * next, typename lanes::f (&out)[R]) {
        typename lanes::i sum[R], min[R];
        for (int r = 0; r < R; ++r) {
            sum[r] = min[r] = lanes::zero();
        }
        for (int s = 0; s < 8; ++s) {
            prefetch<LEVEL, panel, PARTS>(next, s);
            products<R> part;
            for (int r = 0; r < R; ++r) {
                part.start(r, 0);
            }
            T::template add<R>(x, s, c, a, 256 * b + 32 * s, part);
            const typename lanes::i scale = lanes::bytes(x.scale[s] + c);
            for (int r = 0; r < R; ++r) {
                sum[r] = lanes::add_mul(sum[r], part.row(r), scale);
            }
        }
        for (int s = 0; s < 4; ++s) {   // two sub-blocks at once
            const typename lanes::p m = lanes::pairs_u8(x.min[s][c]);
            for (int r = 0; r < R; ++r) {
                min[r] = lanes::dot2(min[r], m, of_256(a[r], blocks, b).pairs + 2 * s);
            }
        }
        const typename lanes::f d = lanes::half(x.d + c), dmin = lanes::half(x.dmin + c);
        for (int r = 0; r < R; ++r) {
            const typename lanes::f da = lanes::set1(of_256(a[r], blocks, b).d);
            out[r]                     = lanes::fma(lanes::to_float(sum[r]), lanes::mul(d, da), out[r]);
            out[r]                     = lanes::fnma(lanes::to_float(min[r]), lanes::mul(dmin, da), out[r]);
        }
    }
};

// 16 sub-blocks of 16, weights 32 too large.
struct q6_K {
    using panel                = panel_q6_K;
    static constexpr int PARTS = 8;
    template <int LEVEL, int R>
    LANES_INLINE void block(const panel & x, int c, const int8_t * const * a, int64_t blocks, int64_t b,
        const void * next, typename lanes::f (&out)[R]) {
        typename lanes::i sum[R], all[R];   // all: what the offset of 32 multiplies
        for (int r = 0; r < R; ++r) {
            sum[r] = all[r] = lanes::zero();
        }
        for (int s = 0; s < 16; ++s) {
            if (s % 2 == 0) {
                prefetch<LEVEL, panel, PARTS>(next, s / 2);
            }
            products<R> part;
            for (int r = 0; r < R; ++r) {
                part.start(r, 0);
            }
            const typename lanes::b h = lanes::load(x.h[s] + 4 * c), q0 = lanes::load(x.q[s][0] + 4 * c),
                                    q1 = lanes::load(x.q[s][1] + 4 * c);
            part.template add<false>(sixth<0>(lanes::low(q0), h), sixth<1>(lanes::low(q1), h), a, 256 * b + 16 * s);
            part.template add<false>(
                sixth<2>(lanes::high(q0), h), sixth<3>(lanes::high(q1), h), a, 256 * b + 16 * s + 8);
            const typename lanes::p two   = lanes::pairs_s8(x.scale[s / 2][c]);
            const typename lanes::i scale = s % 2 == 0 ? lanes::even(two) : lanes::odd(two);
            for (int r = 0; r < R; ++r) {
                sum[r] = lanes::add_mul(sum[r], part.row(r), scale);
            }
            for (int r = 0; r < R && s % 2 == 1; ++r) {
                all[r] = lanes::dot2(all[r], two, of_256(a[r], blocks, b).sums + s - 1);
            }
        }
        const typename lanes::f d = lanes::half(x.d + c);
        for (int r = 0; r < R; ++r) {
            out[r] = lanes::fma(lanes::to_float(lanes::less_32(sum[r], all[r])),
                lanes::mul(d, lanes::set1(of_256(a[r], blocks, b).d)), out[r]);
        }
    }
};

// ---- driver ----

// R rows and P groups of W columns, from group g on: per row and column the operations and their order do not depend on
// R and P.
template <class T, int R, int P>
LANES void run(const void * panels, int64_t blocks, int64_t g, const void * rows, size_t row_stride, float * out,
    size_t out_stride) {
    constexpr int             C = PANEL / lanes::W;   // groups of a panel
    const typename T::panel * w[P];
    const int8_t *            a[R];
    int                       c[P];
    typename lanes::f         sums[P][R];
    for (int p = 0; p < P; ++p) {
        w[p] = (const typename T::panel *) panels + (g + p) / C * blocks;
        c[p] = C == 1 ? 0 : (int) ((g + p) % C) * lanes::W;
        for (int r = 0; r < R; ++r) {
            sums[p][r] = lanes::set1(0);
        }
    }
    for (int r = 0; r < R; ++r) {
        a[r] = (const int8_t *) rows + r * row_stride;
    }
    // What is read PANEL_AHEAD bytes later: the same panels' blocks, behind their last those of the panels that come
    // next.
    constexpr int     TOGETHER = P / C > 1 ? P / C : 1, BLOCKS = PANEL_AHEAD / sizeof(typename T::panel) / TOGETHER;
    constexpr int64_t AHEAD  = BLOCKS > 1 ? BLOCKS : 1;
    const int64_t     behind = (TOGETHER - 1) * blocks;
    constexpr int     LEVEL  = T::PARTS == 2 && sizeof(typename T::panel) > 512 && R > 2
                                   ? 2
                                   : 3;   // for Q8_0 the first is too full then (measured: 3 to 6 %)
    for (int64_t b = 0; b < blocks; ++b) {
        for (int p = 0; p < P; ++p) {
            const void * const next =
                C == 1 || c[p] == 0 ? w[p] + (b + AHEAD < blocks ? b + AHEAD : b + AHEAD + behind) : nullptr;
            T::template block<LEVEL, R>(w[p][b], c[p], a, blocks, b, next, sums[p]);
        }
    }
    for (int r = 0; r < R; ++r) {
        for (int p = 0; p < P; ++p) {
            lanes::store(out + r * out_stride + lanes::W * (g + p), sums[p][r]);
        }
    }
}

using run_t = void (*)(const void *, int64_t, int64_t, const void *, size_t, float *, size_t);

template <class T, int... N> run_t one(int rows, std::integer_sequence<int, N...>) {
    static constexpr run_t runs[] = { run<T, N + 1, 1>... };
    return runs[rows - 1];
}

template <class T>
void kernel(const void * panels, int64_t blocks, int64_t p0, int64_t p1, const void * rows, size_t row_stride, int n,
    float * out, size_t out_stride) {
    static constexpr run_t few[] = { run<T, 1, lanes::GROUPS[0]>, run<T, 2, lanes::GROUPS[1]>,
        run<T, 3, lanes::GROUPS[2]> };
    constexpr int          C     = PANEL / lanes::W;
    for (int64_t g = p0 * C; g < p1 * C;) {
        int64_t step = 1;
        for (int r = 0; r < n;) {
            // rows in even groups: 9 rows are 5 and 4
            const int    groups = (n - r + lanes::ROWS - 1) / lanes::ROWS, take = (n - r + groups - 1) / groups;
            const char * a = (const char *) rows + r * row_stride;
            if (n <= 3 && n <= lanes::ROWS && g + lanes::GROUPS[n - 1] <= p1 * C) {
                step = lanes::GROUPS[n - 1];
                few[n - 1](panels, blocks, g, a, row_stride, out, out_stride);
            } else {
                one<T>(take, std::make_integer_sequence<int, lanes::ROWS>())(
                    panels, blocks, g, a, row_stride, out + r * out_stride, out_stride);
            }
            r += take;
        }
        g += step;
    }
}

inline panel_kernel find(ggml_type type) {
    switch (type) {
        case GGML_TYPE_Q4_0: return kernel<by_32<nibbles<q4_0>>>;
        case GGML_TYPE_IQ4_NL: return kernel<by_32<nibbles<iq4_nl>>>;
        case GGML_TYPE_MXFP4: return kernel<by_32<nibbles<mxfp4>>>;
        case GGML_TYPE_Q8_0: return kernel<by_32<q8_0>>;
        case GGML_TYPE_Q4_K: return kernel<by_256<q4_K>>;
        case GGML_TYPE_Q5_K: return kernel<by_256<q5_K>>;
        case GGML_TYPE_Q6_K: return kernel<q6_K>;
        default: return nullptr;
    }
}
