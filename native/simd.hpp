// Vectors of N lanes, N = 1 being the plain number. Everything here has internal linkage: each kernel file is
// compiled once per instruction set, and code of one set must never stand in for another's.
#pragma once
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "geometry.hpp"
#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__x86_64__)
#include <emmintrin.h>  // the rest takes a third of the time that a small file takes to compile
#endif

namespace lunette::LN_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int vector_bytes = 64;
#elif defined(__AVX2__)
constexpr int vector_bytes = 32;
#else
constexpr int vector_bytes = 16;
#endif

template <class T>
constexpr int lanes = vector_bytes / static_cast<int>(sizeof(T));

template <class T, int N>
struct VecOf {
    typedef T type __attribute__((vector_size(N * sizeof(T))));
};
template <class T>
struct VecOf<T, 1> {
    typedef T type;
};
template <class T, int N>
using Vec = typename VecOf<T, N>::type;

// Integers as wide as T: masks, places, bit patterns.
template <class T>
struct IntOf;
template <>
struct IntOf<float> {
    using type = std::int32_t;
};
template <>
struct IntOf<double> {
    using type = std::int64_t;
};
template <class T>
using Int = typename IntOf<T>::type;

template <int N, class T>
inline Vec<T, N> load(const T* p) {
    Vec<T, N> v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

template <int N, class T>
inline void store(T* p, Vec<T, N> v) {
    std::memcpy(p, &v, sizeof v);
}

template <int N, class T>
inline Vec<T, N> splat(T s) {
    if constexpr (N == 1) return s; else return s - Vec<T, N>{};  // s - 0 keeps the sign of a zero
}

// p[0], p[by], p[2*by], ...
template <int N, class T>
inline Vec<T, N> gather(const T* p, i64 by) {
    if constexpr (N == 1) return *p;
    else if constexpr (N == 2) return Vec<T, 2>{p[0], p[by]};
    else {
        static_assert(N == 4);
        return Vec<T, 4>{p[0], p[by], p[2 * by], p[3 * by]};
    }
}

template <int N, class T>
inline Vec<T, N> iota(T first, T by) {
    Vec<T, N> v;
    if constexpr (N == 1) v = first;
    else for (int l = 0; l < N; ++l) v[l] = first + static_cast<T>(l) * by;
    return v;
}

// Bits of a as they are.
template <class To, class From>
inline To bits(From a) {
    static_assert(sizeof(To) == sizeof(From));
    To r;
    std::memcpy(&r, &a, sizeof r);
    return r;
}

// Whether any lane of a comparison is true.
template <class M>
inline bool any(M mask) {
    if constexpr (sizeof(M) < 16) return mask != 0;
    else {
        std::uint64_t w[sizeof(M) / 8], all = 0;
        std::memcpy(w, &mask, sizeof w);
        for (std::uint64_t part : w) all |= part;
        return all != 0;
    }
}

// v, of which the compiler knows no longer where it came from: it is not computed or read anew where it is used.
template <class V>
[[gnu::always_inline]] inline V in_register(V v) {
#if defined(__AVX512F__)
    asm("" : "+v"(v));
#elif defined(__x86_64__)
    asm("" : "+x"(v));
#elif defined(__aarch64__)
    asm("" : "+w"(v));
#endif
    return v;
}

// A product that is rounded by itself: a program computes what its graph does, to the sign of a zero that underflows. The
// compiler would make one operation of this and the sum behind it.
template <class V>
[[gnu::always_inline]] inline V rounded_product(V a, V b) {
    return in_register(a * b);
}

// Lanes where a or b is NaN.
template <class V>
inline auto either_nan(V a, V b) {
#if defined(__AVX2__) && !defined(__AVX512F__)
    if constexpr (std::is_same_v<V, Vec<float, 8>>) return bits<Vec<std::int32_t, 8>>(_mm256_cmp_ps(a, b, _CMP_UNORD_Q));
    else if constexpr (std::is_same_v<V, Vec<double, 4>>) return bits<Vec<std::int64_t, 4>>(_mm256_cmp_pd(a, b, _CMP_UNORD_Q));
    else
#endif
    return (a != a) | (b != b);
}

// The even and the odd lanes of a followed by b.
template <int N, class V>
inline void unzip(V a, V b, V& even, V& odd) {
    if constexpr (N == 2) {
        even = __builtin_shufflevector(a, b, 0, 2), odd = __builtin_shufflevector(a, b, 1, 3);
    } else if constexpr (N == 4 && sizeof(V) == 16) {
        even = __builtin_shufflevector(a, b, 0, 2, 4, 6), odd = __builtin_shufflevector(a, b, 1, 3, 5, 7);
    } else if constexpr (N == 4) {
        V e = __builtin_shufflevector(a, b, 0, 4, 2, 6), o = __builtin_shufflevector(a, b, 1, 5, 3, 7);
        even = __builtin_shufflevector(e, e, 0, 2, 1, 3), odd = __builtin_shufflevector(o, o, 0, 2, 1, 3);
    } else if constexpr (N == 8 && sizeof(V) == 32) {
        V e = __builtin_shufflevector(a, b, 0, 2, 8, 10, 4, 6, 12, 14);
        V o = __builtin_shufflevector(a, b, 1, 3, 9, 11, 5, 7, 13, 15);
        even = __builtin_shufflevector(e, e, 0, 1, 4, 5, 2, 3, 6, 7);
        odd = __builtin_shufflevector(o, o, 0, 1, 4, 5, 2, 3, 6, 7);
    } else if constexpr (N == 8) {
        even = __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14);
        odd = __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
    } else {
        static_assert(N == 16);
        even = __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        odd = __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    }
}

// The opposite: a0 b0 a1 b1 ...
template <int N, class V>
inline void zip(V a, V b, V& low, V& high) {
    if constexpr (N == 2) {
        low = __builtin_shufflevector(a, b, 0, 2), high = __builtin_shufflevector(a, b, 1, 3);
    } else if constexpr (N == 4) {
        low = __builtin_shufflevector(a, b, 0, 4, 1, 5), high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    } else if constexpr (N == 8) {
        low = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
        high = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
    } else {
        static_assert(N == 16);
        low = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
        high = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    }
}

// The lanes of a followed by b, from lane k of a on.
template <int k, class V, int... I>
[[gnu::always_inline]] inline V lanes_from(V a, V b, std::integer_sequence<int, I...>) {
#if defined(__AVX512F__)  // compilers take a vector of places, which needs a register
    const __m512i low = bits<__m512i>(a), high = bits<__m512i>(b);
    if constexpr (sizeof...(I) == 16) return bits<V>(_mm512_maskz_alignr_epi32(0xffff, high, low, k));
    else return bits<V>(_mm512_maskz_alignr_epi64(0xff, high, low, k));
#else
    return __builtin_shufflevector(a, b, (I + k)...);
#endif
}
template <int k, class V>
[[gnu::always_inline]] inline V lanes_from(V a, V b) {
    if constexpr (k == 0) return a;
    else return lanes_from<k>(a, b, std::make_integer_sequence<int, sizeof(V) / sizeof(a[0])>{});
}

// Joins the lanes of v, in any order.
template <int N, class V, class F>
inline auto fold(V v, F&& join) {
    if constexpr (N == 2) {
        return join(v, __builtin_shufflevector(v, v, 1, 0))[0];
    } else if constexpr (N == 4) {
        return fold<2>(join(__builtin_shufflevector(v, v, 0, 1), __builtin_shufflevector(v, v, 2, 3)), join);
    } else if constexpr (N == 8) {
        return fold<4>(join(__builtin_shufflevector(v, v, 0, 1, 2, 3), __builtin_shufflevector(v, v, 4, 5, 6, 7)), join);
    } else {
        static_assert(N == 16);
        return fold<8>(join(__builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7),
                            __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15)), join);
    }
}

// f.operator()<N>(o) for o = 0, N, 2N, ... so that 0..m-1 are covered, with the widest vectors that fit; the last
// vector may do some cells a second time, so f must not read what it writes.
template <class T, int N = lanes<T>, class F>
inline void sweep(i64 m, F&& f) {
    if constexpr (N * sizeof(T) < 16) {
        for (i64 o = 0; o < m; ++o) f.template operator()<1>(o);
    } else {
        if (m < N) return sweep<T, N / 2>(m, f);
        i64 o = 0;
        for (; o + N <= m; o += N) f.template operator()<N>(o);
        if (o < m) f.template operator()<N>(m - N);
    }
}

}  // namespace
}  // namespace lunette::LN_ISA
