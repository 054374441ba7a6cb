// Cells of memory in other orders: every S-th cell as a vector and back, rows as columns and back.
#pragma once
#include "simd.hpp"

namespace lunette::LN_ISA {
namespace {

#if defined(__AVX2__) && !defined(__AVX512F__)
// The mask of the first n lanes.
template <class T>
inline __m256i first_lanes(i64 n) {
    alignas(64) static constexpr std::int32_t ones_and_zeros[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return bits<__m256i>(load<8>(ones_and_zeros + 8 - n * sizeof(T) / 4));
}
#endif

// The first n < N elements of a widest vector; the other lanes are `rest`.
template <int N, class T>
inline Vec<T, N> load_some(const T* p, i64 n, T rest = 0) {
    static_assert(N == lanes<T>);
    Vec<T, N> others = splat<N>(rest);
    constexpr bool single = sizeof(T) == 4;
#if defined(__AVX512F__)
    if constexpr (single) return _mm512_mask_loadu_ps(others, __mmask16((1u << n) - 1), p);
    else return _mm512_mask_loadu_pd(others, __mmask8((1u << n) - 1), p);
#elif defined(__AVX2__)
    const __m256i mask = first_lanes<T>(n);
    if constexpr (single) return _mm256_blendv_ps(others, _mm256_maskload_ps(p, mask), _mm256_castsi256_ps(mask));
    else return _mm256_blendv_pd(others, _mm256_maskload_pd(p, mask), _mm256_castsi256_pd(mask));
#else
    others[0] = p[0];
    if constexpr (single)
        for (int l : {1, 2})
            if (n > l) others[l] = p[l];
    return others;
#endif
}
// N lanes again and again.
template <int wide, int N, class V>
inline auto repeated(V v) {
    return [&]<int... l>(std::integer_sequence<int, l...>) {
        return __builtin_shufflevector(v, v, (l % N)...);
    }(std::make_integer_sequence<int, wide>());
}

// The even and the odd cells of 2*N cells.
template <int N, class T>
inline void part_pairs(const T* x, Vec<T, N>& even, Vec<T, N>& odd) {
#if defined(__AVX2__)
    if constexpr (sizeof(T) * N == 32 && sizeof(T) == 4) {  // halves placed by the loads spare a shuffle across lanes
        const __m256 a = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(x)), _mm_loadu_ps(x + 8), 1);
        const __m256 b = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(x + 4)), _mm_loadu_ps(x + 12), 1);
        even = _mm256_shuffle_ps(a, b, 0x88), odd = _mm256_shuffle_ps(a, b, 0xdd);
        return;
    } else if constexpr (sizeof(T) * N == 32) {
        const __m256d a = _mm256_insertf128_pd(_mm256_castpd128_pd256(_mm_loadu_pd(x)), _mm_loadu_pd(x + 4), 1);
        const __m256d b = _mm256_insertf128_pd(_mm256_castpd128_pd256(_mm_loadu_pd(x + 2)), _mm_loadu_pd(x + 6), 1);
        even = _mm256_unpacklo_pd(a, b), odd = _mm256_unpackhi_pd(a, b);
        return;
    }
#endif
    unzip<N>(load<N>(x), load<N>(x + N), even, odd);
}

// S vectors from S*N cells, the e-th with the cells e, e + S, e + 2*S, ...
template <int S, int N, class T>
inline void take_apart(const T* x, Vec<T, N>* v) {
    if constexpr (S == 1) {
        v[0] = load<N>(x);
    } else if constexpr (S == 2) {
        part_pairs<N>(x, v[0], v[1]);
    } else {
#if defined(__AVX2__)
        if constexpr (sizeof(T) * N == 32 && sizeof(T) == 4) {  // four by four within each half
            __m256 r[4], t[4];
            for (int k = 0; k < 4; ++k)
                r[k] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(x + 4 * k)),
                                            _mm_loadu_ps(x + 16 + 4 * k), 1);
            t[0] = _mm256_unpacklo_ps(r[0], r[1]), t[1] = _mm256_unpackhi_ps(r[0], r[1]);
            t[2] = _mm256_unpacklo_ps(r[2], r[3]), t[3] = _mm256_unpackhi_ps(r[2], r[3]);
            v[0] = _mm256_shuffle_ps(t[0], t[2], 0x44), v[1] = _mm256_shuffle_ps(t[0], t[2], 0xee);
            v[2] = _mm256_shuffle_ps(t[1], t[3], 0x44), v[3] = _mm256_shuffle_ps(t[1], t[3], 0xee);
            return;
        }
#endif
        Vec<T, N> a[2], b[2];
        part_pairs<N>(x, a[0], b[0]), part_pairs<N>(x + 2 * N, a[1], b[1]);
        unzip<N>(a[0], a[1], v[0], v[2]), unzip<N>(b[0], b[1], v[1], v[3]);
    }
}

// N results from 4*N cells a, b, c, d, ...: join(join(a, b), join(c, d)) and so on. see(v, w) meets all cells.
template <int N, class T, class Join, class See>
[[gnu::always_inline]] inline Vec<T, N> join_fours(const T* x, Join&& join, See&& see) {
#if defined(__AVX2__)
    if constexpr (sizeof(T) * N == 32 && sizeof(T) == 4) {  // two by two: fewer shuffles than taking four apart
        Vec<T, N> r[4];
        for (int k = 0; k < 4; ++k)
            r[k] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(x + 4 * k)), _mm_loadu_ps(x + 16 + 4 * k), 1);
        see(r[0], r[1]), see(r[2], r[3]);
        auto pairs = [&](Vec<T, N> a, Vec<T, N> b) -> Vec<T, N> {
            return join(Vec<T, N>(_mm256_shuffle_ps(a, b, 0x88)), Vec<T, N>(_mm256_shuffle_ps(a, b, 0xdd)));
        };
        return pairs(pairs(r[0], r[1]), pairs(r[2], r[3]));
    }
#endif
    Vec<T, N> v[4];
    take_apart<4, N>(x, v);
    see(v[0], v[1]), see(v[2], v[3]);
    return join(join(v[0], v[1]), join(v[2], v[3]));
}

// v[r][l] becomes v[l][r]: each round deals the first half and the second like cards.
template <int L, class V>
inline void transpose(V* v) {
    for (int round = 1; round < L; round *= 2) {
        V w[L];
        for (int r = 0; r < L / 2; ++r) zip<L>(v[r], v[r + L / 2], w[2 * r], w[2 * r + 1]);
        for (int r = 0; r < L; ++r) v[r] = w[r];
    }
}

// Lane r of the result joins the lanes of v[r], in any order; v is spent.
template <int L, class V, class Join>
inline V fold_each(V* v, Join&& join) {
    for (int half = L / 2; half > 0; half /= 2)
        for (int r = 0; r < half; ++r) {
            V low, high;
            zip<L>(v[r], v[r + half], low, high);
            v[r] = join(low, high);
        }
    return v[0];
}

// The vectors of L rows of n >= L cells, row by row as they lie in memory: f(row, cells), the last of a row filled up.
template <class T, class F>
[[gnu::always_inline]] inline void each_of_rows(const T* x, i64 n, T fill, F&& f) {
    constexpr int L = lanes<T>;
    const i64 rest = n % L;
#pragma GCC unroll 16
    for (int r = 0; r < L; ++r) {
        const T* row = x + r * n;
        i64 i = 0;
        for (; i + L <= n; i += L) f(r, load<L>(row + i));
        if (rest > 0) f(r, load_some<L>(row + i, rest, fill));
    }
}

// S*L cells in order, of which v[e] has the cells e, e + S, e + 2*S, ...
template <int S, class V>
inline void interleave(const V* v, V* r) {
    constexpr int L = sizeof(V) / sizeof(v[0][0]);
    if constexpr (S == 1) {
        r[0] = v[0];
    } else if constexpr (S == 2) {
        zip<L>(v[0], v[1], r[0], r[1]);
    } else {
        V a[2], b[2];
        zip<L>(v[0], v[2], a[0], a[1]), zip<L>(v[1], v[3], b[0], b[1]);
        zip<L>(a[0], b[0], r[0], r[1]), zip<L>(a[1], b[1], r[2], r[3]);
    }
}
template <int S, bool add, class T, int L = lanes<T>>
inline void interleave(const Vec<T, L>* v, T* to) {
    Vec<T, L> r[S];
    interleave<S>(v, r);
    for (int e = 0; e < S; ++e) store<L>(to + e * L, add ? load<L>(to + e * L) + r[e] : r[e]);
}

// L rows of `from`, `pitch` apart, as columns: cell i of row r goes to to[i*L + r], for i < n.
template <class T, int L = lanes<T>>
inline void to_columns(const T* from, i64 pitch, i64 n, T* to) {
    if (n < L) {
        for (i64 i = 0; i < n; ++i)
            for (int r = 0; r < L; ++r) to[i * L + r] = from[r * pitch + i];
        return;
    }
    for (i64 i = 0; i < n; i += L) {
        if (i + L > n) i = n - L;
        Vec<T, L> v[L];
        for (int r = 0; r < L; ++r) v[r] = load<L>(from + r * pitch + i);
        transpose<L>(v);
        for (int r = 0; r < L; ++r) store<L>(to + (i + r) * L, v[r]);
    }
}

// The opposite. `from` has room for L columns at least.
template <class T, int L = lanes<T>>
inline void to_rows(const T* from, i64 n, T* to, i64 pitch) {
    for (i64 i = 0; i < n; i += L) {
        if (i + L > n && n >= L) i = n - L;
        Vec<T, L> v[L];
        for (int r = 0; r < L; ++r) v[r] = load<L>(from + (i + r) * L);
        transpose<L>(v);
        for (int r = 0; r < L; ++r) {
            // A short row may write past its end, where the next rows will write; the last ones must not.
            if (n >= L || r * pitch + L <= (L - 1) * pitch + n) {
                store<L>(to + r * pitch + i, v[r]);
            } else {
                T row[L];
                store<L>(row, v[r]);
                for (i64 k = 0; k < n; ++k) to[r * pitch + k] = row[k];
            }
        }
    }
}

}  // namespace
}  // namespace lunette::LN_ISA
