// The greatest cell of each window, and its number among the cells of the window, straight from the input.
#pragma once
#include "max_join.hpp"

namespace lunette::LN_ISA {
namespace {

// Bytes of numbers below 256, one to each lane.
template <class T>
inline Vec<Int<T>, lanes<T>> load_numbers(const std::uint8_t* p) {
    return __builtin_convertvector(load<lanes<T>>(p), Vec<Int<T>, lanes<T>>);
}
template <class T>
inline void store_numbers(std::uint8_t* p, Vec<Int<T>, lanes<T>> v) {
#if defined(__AVX2__) && !defined(__AVX512F__)
    const __m256i low = _mm256_set1_epi64x(sizeof(T) == 4 ? 0x0c080400 : 0x0800);  // the low bytes of each half
    const __m256i packed = _mm256_shuffle_epi8(bits<__m256i>(v), low);
    const auto a = _mm256_castsi256_si128(packed), b = _mm256_extracti128_si256(packed, 1);
    if constexpr (sizeof(T) == 4) _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_unpacklo_epi32(a, b));
    else _mm_storeu_si32(p, _mm_unpacklo_epi16(a, b));
#else
    store<lanes<T>>(p, __builtin_convertvector(v, Vec<std::uint8_t, lanes<T>>));
#endif
}

// For windows of a few cells: L outputs of a row look at every cell of their windows, one after the other. Cells that are
// absent are -inf to them, which is greater than nothing, and every search begins with the first cell that is there.
template <class T>
class Numbers {
    using I = Int<T>;
    static constexpr int L = lanes<T>;
    static constexpr i64 most_window = 64;  // beyond, joining axis after axis is cheaper
    static constexpr T low = -std::numeric_limits<T>::infinity();

public:
    static bool suits(const Pool& pool) {
        const PoolAxis& ax = pool.axes[pool.rank - 1];
        i64 rows = 1;
        for (int a = 0; a + 1 < pool.rank; ++a) rows *= pool.axes[a].most;
        return ax.regular && rows <= WindowRows::most && rows * ax.taps <= most_window && places_fit<T>(pool);
    }

    // x is the whole array, outside of which nothing is read.
    Numbers(const Pool& pool, const T* x, i64 planes)
        : pool_(pool), ax_(pool.axes[pool.rank - 1]), x_(x), cells_(planes * pool.cells_in) {
        i64 size = 1;
        for (int a = pool.rank - 1; a >= 0; --a) size_[a] = size, size *= pool.axes[a].n;
    }

    // y may be null.
    void operator()(i64 planes, T* y, std::uint8_t* numbers) const {
        over_parts(pool_, planes, [&](i64 p0, i64 p1, i64 o0, i64 o1) {
            for (i64 p = p0; p < p1; ++p)
                any_stride(p, o0, o1, y ? y + p * pool_.cells_out : nullptr, numbers + p * pool_.cells_out);
        });
    }

private:
    void any_stride(i64 plane, i64 o0, i64 o1, T* y, std::uint8_t* numbers) const {
        const i64 k = ax_.step == 1 ? ax_.taps : 0;
        const T* x = x_ + plane * pool_.cells_in;
        if (ax_.stride == 1 && k == 3) part<1, 3>(x, o0, o1, y, numbers);
        else if (ax_.stride == 1) part<1, 0>(x, o0, o1, y, numbers);
        else if (ax_.stride == 2 && k == 2) part<2, 2>(x, o0, o1, y, numbers);
        else if (ax_.stride == 2 && k == 3) part<2, 3>(x, o0, o1, y, numbers);
        else if (ax_.stride == 2) part<2, 0>(x, o0, o1, y, numbers);
        else if (ax_.stride == 4 && k == 4) part<4, 4>(x, o0, o1, y, numbers);
        else part<0, 0>(x, o0, o1, y, numbers);
    }

    // The outputs o0..o1-1 of axis 0 of one plane, row by row. S is the inner stride, K the inner taps; 0: any.
    template <int S, int K>
    void part(const T* x, i64 o0, i64 o1, T* y, std::uint8_t* numbers) const {
        const int outer = pool_.rank - 1;
        const i64 rest = pool_.cells_out / pool_.axes[0].m, end = o1 * rest;
        WindowRows rows;
        i64 o[max_axes] = {o0};
        const i64 q0 = outer == 0 ? o0 : 0, q1 = outer == 0 ? o1 : ax_.m;
        for (i64 at = o0 * rest; at < end; at += q1 - q0) {
            const T* from = x + rows.look(pool_.axes, outer, size_, o);
            row<S, K>(from, rows, q0, q1, y ? y + at : nullptr, numbers + at, end - at);
            for (int a = outer - 1; a >= 0 && ++o[a] == pool_.axes[a].m && a > 0; --a) o[a] = 0;
        }
    }

    // The outputs q0..q1-1 of a row whose windows have these rows of inputs. `left` outputs may be written from here on:
    // what is written too much is written again.
    template <int S, int K>
    void row(const T* x, const WindowRows& rows, i64 q0, i64 q1, T* y, std::uint8_t* numbers, i64 left) const {
        for (i64 q = q0; q < q1; q += L) {
            if (q + L > q1 && q1 - q0 >= L) q = q1 - L;
            Found found = window<S, K>(x, rows, q);
            const i64 to = q - q0;
            if (to + L <= left) {
                if (y) store<L>(y + to, found.best);
                store_numbers<T>(numbers + to, found.number);
            } else {
                for (i64 l = 0; l < q1 - q; ++l) {
                    if (y) y[to + l] = found.best[l];
                    numbers[to + l] = static_cast<std::uint8_t>(found.number[l]);
                }
            }
        }
    }

    struct Found {
        Vec<T, L> best;
        Vec<I, L> number;
        bool nan;
    };

    // The windows of L outputs.
    template <int S, int K>
    [[gnu::always_inline]] inline Found window(const T* x, const WindowRows& rows, i64 q) const {
        const i64 stride = S ? S : ax_.stride, taps = K ? K : ax_.taps, step = K ? 1 : ax_.step;
        const i64 first = ax_.start + q * stride, last = first + (L - 1) * stride + (taps - 1) * step;
        if (first >= 0 && last < ax_.n && (S < 2 || readable(x, rows, first, last))) {
            Found found = look<S, K, false, false, false>(x, rows, first);
            return found.nan ? look<0, 0, true, false, true>(x, rows, first) : found;
        }
        if (S == 0 || !readable(x, rows, first, last)) return look<0, 0, true, true, true>(x, rows, first);
        Found found = look<S, K, true, false, false>(x, rows, first);
        return found.nan ? look<0, 0, true, true, true>(x, rows, first) : found;
    }

    // Whether whole vectors can be read where these windows are; those of stride S read S - 1 cells more.
    bool readable(const T* x, const WindowRows& rows, i64 first, i64 last) const {
        const i64 at = x - x_;
        return at + first >= 0 && at + rows.at[rows.many - 1] + last + ax_.stride <= cells_;
    }

    template <int S, int K, bool clipped, bool singly, bool careful>
    [[gnu::always_inline]] inline Found look(const T* x, const WindowRows& rows, i64 first) const {
        const i64 stride = S ? S : ax_.stride, taps = K ? K : ax_.taps, step = K ? 1 : ax_.step;
        const auto lane = iota<L, I>(0, 1) * static_cast<I>(stride) + static_cast<I>(first);
        Found found{splat<L>(low), {}, false};
        Vec<I, L> odd{}, next{};
        Vec<T, L> before{};
        I count = 0;
        for (i64 r = 0; r < rows.many; ++r) {
            const T* from = x + rows.at[r] + first;
            Vec<T, L> cells[S < 2 ? 1 : S];
            for (i64 k = 0; k < taps; ++k, ++count) {
                Vec<T, L> v;
                Vec<I, L> there;
                if constexpr (clipped) {
                    const auto cell = lane + static_cast<I>(k * step);
                    there = (cell >= I(0)) & (cell < static_cast<I>(ax_.n));
                }
                if constexpr (S == 0) {
                    for (int l = 0; l < L; ++l) v[l] = !singly || there[l] ? from[k * step + l * stride] : low;
                } else if constexpr (S == 1) {
                    v = load<L>(from + k * step);
                } else if constexpr (K > 0) {
                    if (k % S == 0) take_apart<S, L>(from + k, cells);
                    v = cells[k % S];
                } else {
                    take_apart<S, L>(from + k * step, cells);
                    v = cells[0];
                }
                if constexpr (clipped) v = there ? v : splat<L>(low);
                if constexpr (!careful) {
                    if (k % 2) odd |= either_nan(before, v);
                    else if (k + 1 == taps) odd |= either_nan(v, v);
                    before = v;
                }
                if (!clipped && count == 0) {
                    found.best = v;
                    continue;
                }
                const auto later = later_wins<careful>(found.best, v);
                found.best = later ? v : found.best;
                if constexpr (clipped) found.number = later ? next : found.number, next -= there;
                else found.number = later ? splat<L>(count) : found.number;
            }
        }
        if constexpr (!careful) found.nan = any(odd);
        return found;
    }

    const Pool& pool_;
    const PoolAxis& ax_;
    const T* x_;
    i64 cells_;  // of the whole array
    i64 size_[max_axes];  // cells of one step along an axis
};

}  // namespace
}  // namespace lunette::LN_ISA
