// What direct convolutions are made of, whatever the order of their cells: one broadcast cell for each pixel, times vectors of
// weights across the channels of the result.
#pragma once
#include "gemm.hpp"

namespace lunette::LN_ISA {
namespace {

inline constexpr i64 direct_registers = vector_bytes == 64 ? 28 : 12;  // of 32, of 16: for sums

template <int n>
struct Number {};

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

// One tap of one channel, which the first `cut` pixels lack, or the last -cut. One entrance for each number of pixels: as many
// copies of the code would be P times as long.
template <int P, int V, int S, class T>
[[gnu::always_inline]] inline void direct_tap_of_some(Vector<T> (&acc)[P][V], const T* x, const T* w, int cut) {
    static_assert(P <= direct_registers && direct_registers <= 28);
    Vector<T> by[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) by[v] = load(w + v * lanes<T>);
    auto pixel = [&]<int p>(Number<p>) __attribute__((always_inline)) {
        if constexpr (p < P) {
            const Vector<T> s = broadcast(x[p * S]);
#pragma GCC unroll 8
            for (int v = 0; v < V; ++v) acc[p][v] += s * by[v];
        }
    };
#define LN_PIXEL(p) \
    case p: pixel(Number<p>{}); [[fallthrough]];
#define LN_FOUR_UP(p) LN_PIXEL(p) LN_PIXEL(p + 1) LN_PIXEL(p + 2) LN_PIXEL(p + 3)
#define LN_FOUR_DOWN(p) LN_PIXEL(p + 3) LN_PIXEL(p + 2) LN_PIXEL(p + 1) LN_PIXEL(p)
    if (cut >= 0) switch (cut) {
            LN_FOUR_UP(0) LN_FOUR_UP(4) LN_FOUR_UP(8) LN_FOUR_UP(12) LN_FOUR_UP(16) LN_FOUR_UP(20) LN_FOUR_UP(24)
            default: break;
        }
    else switch (P - 1 + cut) {
            LN_FOUR_DOWN(24) LN_FOUR_DOWN(20) LN_FOUR_DOWN(16) LN_FOUR_DOWN(12) LN_FOUR_DOWN(8) LN_FOUR_DOWN(4) LN_FOUR_DOWN(0)
            default: break;
        }
#undef LN_FOUR_DOWN
#undef LN_FOUR_UP
#undef LN_PIXEL
    asm volatile("" ::: "memory");
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
