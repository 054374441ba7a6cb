// What direct convolutions are made of, whatever the order of their cells: one broadcast cell for each pixel, times vectors of
// weights across the channels of the result.
#pragma once
#include "gemm.hpp"

namespace lunette::LN_ISA {
namespace {

inline constexpr i64 direct_registers = vector_bytes == 64 ? 28 : 12;  // of 32, of 16: for sums

// One tap of one channel, without the first Lo and the last Hi pixels.
template <int P, int V, int S, int Lo, int Hi, class T>
[[gnu::always_inline]] inline void direct_tap(Vector<T> (&acc)[P][V], const T* x, const T* w) {
    Vector<T> by[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) by[v] = load(w + v * lanes<T>);
#pragma GCC unroll 32
    for (int p = Lo; p < P - Hi; ++p) {
        const Vector<T> s = broadcast(x[p * S]);
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) acc[p][v] += s * by[v];
    }
    asm volatile("" ::: "memory");  // or the compiler loads ahead and runs out of registers
}

#if defined(__AVX512F__)
inline constexpr __mmask16 lanes_16 = 0xffff;  // masks of all lanes: without one GCC warns of its own headers
inline constexpr __mmask8 lanes_8 = 0xff;
#endif

// v, or 0 where it is less; NaN and -0 stay.
template <class T>
[[gnu::always_inline]] inline Vector<T> positive(Vector<T> v) {
#if defined(__AVX512F__)  // the greater of two, the second where neither is
    if constexpr (sizeof(T) == 4) return _mm512_maskz_max_ps(lanes_16, _mm512_setzero_ps(), v);
    else return _mm512_maskz_max_pd(lanes_8, _mm512_setzero_pd(), v);
#else
    return v < 0 ? Vector<T>{} : v;
#endif
}

}  // namespace
}  // namespace lunette::LN_ISA
