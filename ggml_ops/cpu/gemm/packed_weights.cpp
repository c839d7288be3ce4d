// Weights into panels, activations into rows: portable code.

#include "cpu/gemm/packed_layout.h"

#include "ggml-cpu.h"

#include <algorithm>
#include <cstring>

namespace dflash {

bool panel_has_type(ggml_type type) { return panel_block_bytes(type) > 0; }

int panel_block(ggml_type type) {
    return type == GGML_TYPE_Q4_K || type == GGML_TYPE_Q5_K || type == GGML_TYPE_Q6_K ? QK_K : 32;
}

size_t panel_block_bytes(ggml_type type) {
    switch (type) {
        case GGML_TYPE_Q4_0:
        case GGML_TYPE_IQ4_NL: return sizeof(panel_q4_0);
        case GGML_TYPE_MXFP4: return sizeof(panel_mxfp4);
        case GGML_TYPE_Q8_0: return sizeof(panel_q8_0);
        case GGML_TYPE_Q4_K: return sizeof(panel_q4_K);
        case GGML_TYPE_Q5_K: return sizeof(panel_q5_K);
        case GGML_TYPE_Q6_K: return sizeof(panel_q6_K);
        default: return 0;
    }
}

namespace {

uint32_t load_4(const void * from) {
    uint32_t x;
    std::memcpy(&x, from, 4);
    return x;
}

void store_4(void * to, uint32_t x) { std::memcpy(to, &x, 4); }

template <class Panel> void pack_nibbles(const uint8_t * q, int c, Panel & p) {
    for (int i = 0; i < 4; ++i) {
        std::memcpy(&p.q[i][4 * c], q + 4 * i, 4);   // ggml's nibbles are 16 positions apart already
    }
}

void pack(const block_q4_0 & b, int c, panel_q4_0 & p) {
    p.d[c] = b.d;
    pack_nibbles(b.qs, c, p);
}

void pack(const block_iq4_nl & b, int c, panel_q4_0 & p) {
    p.d[c] = b.d;
    pack_nibbles(b.qs, c, p);
}

void pack(const block_mxfp4 & b, int c, panel_mxfp4 & p) {
    p.e[c] = b.e;
    pack_nibbles(b.qs, c, p);
}

void pack(const block_q8_0 & b, int c, panel_q8_0 & p) {
    p.d[c] = b.d;
    for (int i = 0; i < 8; ++i) {
        store_4(&p.q[i][4 * c], load_4(b.qs + 4 * i) ^ 0x80808080);   // + 128
    }
}

// Q4_K, and the nibbles, scales and minima of Q5_K.
template <class Block, class Panel> void pack_with_minima(const Block & b, int c, Panel & p) {
    p.d[c]    = b.data.data.d;
    p.dmin[c] = b.data.data.dmin;
    for (int s = 0; s < 8;
        ++s) {   // 6-bit scales and minima: four plain, four in pieces (ggml-quants.c, get_scale_min_k4)
        const uint8_t * q      = b.scales;
        const uint8_t   scale  = s < 4 ? q[s] & 63 : (q[s + 4] & 15) | (q[s - 4] >> 6) << 4;
        const uint8_t   min    = s < 4 ? q[s + 4] & 63 : q[s + 4] >> 4 | (q[s] >> 6) << 4;
        p.scale[s][c]          = scale;
        p.min[s / 2][c][s % 2] = min;
        for (int i = 0; i < 4; ++i) {   // ggml keeps two sub-blocks in the nibbles of 32 bytes; four positions at once
            const uint32_t low = 0x0f0f0f0f, x = load_4(b.qs + 32 * (s / 2) + 4 * i),
                           y = load_4(b.qs + 32 * (s / 2) + 16 + 4 * i);
            store_4(&p.q[s][i][4 * c], s % 2 == 0 ? (x & low) | (y & low) << 4 : (x >> 4 & low) | (y & ~low));
        }
    }
}

void pack(const block_q4_K & b, int c, panel_q4_K & p) { pack_with_minima(b, c, p); }

void pack(const block_q5_K & b, int c, panel_q5_K & p) {
    pack_with_minima(b, c, p);
    for (int s = 0; s < 8; ++s) {
        for (int j = 0; j < 4; ++j) {
            uint8_t h = 0;
            for (int g = 0; g < 8; ++g) {   // bit s of byte l is that of position l in sub-block s
                h |= (b.qh[4 * g + j] >> s & 1) << g;
            }
            p.h[s][4 * c + j] = h;
        }
    }
}

void pack(const block_q6_K & b, int c, panel_q6_K & p) {
    p.d[c] = b.d;
    for (int s = 0; s < 16; ++s) {
        p.scale[s / 2][c][s % 2] = b.scales[s];
        for (int j = 0; j < 4; ++j) {
            uint8_t low[4], h = 0;
            for (int g = 0; g < 4; ++g) {
                // half, quarter and place within it (ggml-quants.c, dequantize_row_q6_K)
                const int     at = 16 * s + 4 * g + j, half = at / 128, quarter = at % 128 / 32, l = at % 32;
                const uint8_t two = b.ql[64 * half + 32 * (quarter % 2) + l];
                low[g]            = quarter < 2 ? two & 15 : two >> 4;
                h |= (b.qh[32 * half + l] >> (2 * quarter) & 3) << (2 * g);
            }
            p.q[s][0][4 * c + j] = (uint8_t) (low[0] | low[2] << 4);
            p.q[s][1][4 * c + j] = (uint8_t) (low[1] | low[3] << 4);
            p.h[s][4 * c + j]    = h;
        }
    }
}

template <class Block, class Panel> void pack_rows(const void * rows, size_t stride, int64_t blocks, void * out) {
    for (int c = 0; c < PANEL; ++c) {
        const Block * from = (const Block *) ((const char *) rows + c * stride);
        for (int64_t b = 0; b < blocks; ++b) {
            pack(from[b], c, ((Panel *) out)[b]);
        }
    }
}

}   // namespace

void panel_pack(ggml_type type, const void * rows, size_t stride, int64_t blocks, void * out) {
    switch (type) {
        case GGML_TYPE_Q4_0: pack_rows<block_q4_0, panel_q4_0>(rows, stride, blocks, out); break;
        case GGML_TYPE_IQ4_NL: pack_rows<block_iq4_nl, panel_q4_0>(rows, stride, blocks, out); break;
        case GGML_TYPE_MXFP4: pack_rows<block_mxfp4, panel_mxfp4>(rows, stride, blocks, out); break;
        case GGML_TYPE_Q8_0: pack_rows<block_q8_0, panel_q8_0>(rows, stride, blocks, out); break;
        case GGML_TYPE_Q4_K: pack_rows<block_q4_K, panel_q4_K>(rows, stride, blocks, out); break;
        case GGML_TYPE_Q5_K: pack_rows<block_q5_K, panel_q5_K>(rows, stride, blocks, out); break;
        case GGML_TYPE_Q6_K: pack_rows<block_q6_K, panel_q6_K>(rows, stride, blocks, out); break;
        default: break;
    }
}

size_t row_bytes(ggml_type type, int64_t k) {
    const size_t scales = panel_block(type) == QK_K ? k / QK_K * sizeof(scale_q8_K) : k / 32 * sizeof(scale_q8_0);
    return (k + scales + 63) / 64 * 64 | 64;   // an odd number of cache lines: 16 rows lie in 16 sets of the cache
}

namespace {

void unpack(const block_q8_0 & b, int zero, int32_t start, int8_t * q, scale_q8_0 & s) {
    int sum = 0;
    for (int i = 0; i < 32; ++i) {
        sum += b.qs[i];
    }
    s.d      = ggml_fp16_to_fp32(b.d);
    s.offset = start - zero * sum;
    std::memcpy(q, b.qs, 32);
}

void unpack(const block_q8_K & b, int, int32_t, int8_t * q, scale_q8_K & s) {
    s.d = b.d;
    std::memcpy(s.sums, b.bsums, sizeof(s.sums));
    for (int i = 0; i < 8; ++i) {
        s.pairs[i] = (int16_t) (b.bsums[2 * i] + b.bsums[2 * i + 1]);
    }
    std::memcpy(q, b.qs, QK_K);
}

// The weight that stands for 0 in types with a scale per 32 positions.
int zero_of(ggml_type type) { return type == GGML_TYPE_Q4_0 ? 8 : type == GGML_TYPE_MXFP4 ? 12 : 128; }

template <class Block, class Scale>
void quantize(ggml_type type, int block, int zero, int32_t start, const float * x, void * row, int64_t k, int64_t from,
    int64_t to) {
    constexpr int64_t PART = 8;   // blocks at once, on the stack
    Block             part[PART];
    const auto        from_float = ggml_get_type_traits_cpu(type)->from_float;
    int8_t *          q          = (int8_t *) row;
    Scale *           s          = (Scale *) (q + k);
    for (int64_t b = from / block; b < to / block; b += PART) {
        const int64_t n = std::min(PART, to / block - b);
        from_float(x + block * b - from, part, block * n);
        for (int64_t i = 0; i < n; ++i) {
            unpack(part[i], zero, start, q + block * (b + i), s[b + i]);
        }
    }
}

}   // namespace

int row_kind(ggml_type type) { return panel_block(type) == QK_K ? QK_K : zero_of(type); }

void row_quantize(ggml_type type, const float * x, void * row, int64_t k, int64_t from, int64_t to) {
    if (row_quantize_here(type, zero_of(type), x, row, k, from, to)) {
        return;
    }
    if (panel_block(type) == QK_K) {
        quantize<block_q8_K, scale_q8_K>(GGML_TYPE_Q8_K, QK_K, 0, 0, x, row, k, from, to);
    } else {
        quantize<block_q8_0, scale_q8_0>(GGML_TYPE_Q8_0, 32, zero_of(type), row_start(type), x, row, k, from, to);
    }
}

}   // namespace dflash
