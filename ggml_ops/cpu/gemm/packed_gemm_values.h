// What the integers of a panel stand for, for all kernels of packed GEMM. Included by them after the vectors of a set.

ISA_INLINE typename simd::f32 load_scales(const ggml_half * d) { return simd::load_f16(d); }
ISA_INLINE typename simd::f32 load_scales(const uint8_t * exponents) { return simd::load_e8m0(exponents); }

// The values of nibbles, plus OFFSET if the type has a table of them.
template <class T, int OFFSET> ISA_INLINE typename simd::u8 value_of(typename simd::u8 nibbles) {
    if constexpr (HAS_VALUES<T>) {
        return simd::lookup(NIBBLE_VALUES<T, OFFSET>.at, nibbles);
    } else {
        return nibbles;
    }
}
