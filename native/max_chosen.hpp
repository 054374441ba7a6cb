// Lanes that were chosen by comparisons, and numbers to compare that have no NaN among them.
#pragma once
#include "max_numbers.hpp"

namespace lunette::LN_ISA {
namespace {

// Bits where the instruction set has registers of such, else lanes of ones.
template <class T>
struct Chosen {
    static constexpr int L = lanes<T>;
    using Ints = Vec<Int<T>, L>;
    using V = Vec<T, L>;
#if defined(__AVX512F__)
    using Mask = std::conditional_t<L == 16, std::uint16_t, std::uint8_t>;
    static Mask greater(Ints a, Ints b) {
        if constexpr (L == 16) return _mm512_cmpgt_epi32_mask(bits<__m512i>(a), bits<__m512i>(b));
        else return _mm512_cmpgt_epi64_mask(bits<__m512i>(a), bits<__m512i>(b));
    }
    static Mask greater(V a, V b) {
        if constexpr (L == 16) return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ);
        else return _mm512_cmp_pd_mask(a, b, _CMP_GT_OQ);
    }
    static V where(Mask m, V a, V b) {
        if constexpr (L == 16) return _mm512_mask_mov_ps(b, m, a);
        else return _mm512_mask_mov_pd(b, m, a);
    }
    static Ints where(Mask m, Ints a, Ints b) { return bits<Ints>(where(m, bits<V>(a), bits<V>(b))); }
    // The first n lanes.
    static Mask first(i64 n) { return static_cast<Mask>(n >= L ? -1 : n <= 0 ? 0 : (1 << n) - 1); }
    // One lane further on, and one behind the last.
    static Mask after(Mask m, bool behind) { return static_cast<Mask>(m >> 1 | (behind ? 1 << (L - 1) : 0)); }
    static bool holds_first(Mask m) { return m & 1; }
#else
    using Mask = Ints;
    static Mask greater(Ints a, Ints b) { return a > b; }
    static Mask greater(V a, V b) { return a > b; }
    static V where(Mask m, V a, V b) { return m ? a : b; }
    static Ints where(Mask m, Ints a, Ints b) { return m ? a : b; }
    static Mask first(i64 n) { return iota<L, Int<T>>(0, 1) < static_cast<Int<T>>(std::clamp<i64>(n, 0, L)); }
    static Mask after(Mask m, bool behind) { return lanes_from<1>(m, Mask(splat<L>(Int<T>(behind ? -1 : 0)))); }
    static bool holds_first(Mask m) { return m[0] != 0; }
#endif
    static Mask all() { return static_cast<Mask>(~Mask{}); }
};

// Integers in the order of the cells: both zeros are one number, and every NaN is the greatest. None is the least integer.
template <class T>
inline Vec<Int<T>, lanes<T>> key(Vec<T, lanes<T>> v) {
    using I = Int<T>;
    constexpr I most = std::numeric_limits<I>::max();
    const auto b = bits<Vec<I, lanes<T>>>(v + T(0));
    const auto ordered = b ^ ((b >> (8 * sizeof(I) - 1)) & most);
    return v != v ? splat<lanes<T>>(most) : ordered;
}
// The greater of two, where neither is NaN.
template <class N>
inline N greatest(N a, N b) {
    if constexpr (std::is_floating_point_v<std::remove_reference_t<decltype(a[0])>>) return greater(a, b);
    else return a > b ? a : b;
}

}  // namespace
}  // namespace lunette::LN_ISA
