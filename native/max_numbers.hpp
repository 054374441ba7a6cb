// The greatest cell of each window, and its number among the cells of the window, straight from the input.
#pragma once
#include "max_join.hpp"

namespace lunette::LN_ISA {
namespace {

// Bytes of numbers below 256, one to each lane. (Compilers convert vectors of few bytes one by one; GCC 12 warns of the forms
// without a mask.)
template <class T>
inline Vec<Int<T>, lanes<T>> load_numbers(const std::uint8_t* p) {
    using V = Vec<Int<T>, lanes<T>>;
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == 4) return bits<V>(_mm512_maskz_cvtepu8_epi32(0xffff, bits<__m128i>(load<16>(p))));
    else return bits<V>(_mm512_maskz_cvtepu8_epi64(0xff, _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
#elif defined(__AVX2__)
    if constexpr (sizeof(T) == 4) return bits<V>(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
    else return bits<V>(_mm256_cvtepu8_epi64(_mm_loadu_si32(p)));
#else
    V v;
    for (int l = 0; l < lanes<T>; ++l) v[l] = p[l];
    return v;
#endif
}
// Those before `end`, and anything behind it.
template <class T>
inline Vec<Int<T>, lanes<T>> load_some_numbers(const std::uint8_t* p, const std::uint8_t* end) {
    if (end - p >= lanes<T>) return load_numbers<T>(p);
    std::uint8_t own[lanes<T>] = {};
    std::memcpy(own, p, static_cast<std::size_t>(end - p));
    return load_numbers<T>(own);
}
template <class T>
inline void store_numbers(std::uint8_t* p, Vec<Int<T>, lanes<T>> v) {
#if defined(__AVX512F__)
    const __m512i all = bits<__m512i>(v);
    if constexpr (sizeof(T) == 4) store<16>(p, bits<Vec<std::uint8_t, 16>>(_mm512_maskz_cvtepi32_epi8(0xffff, all)));
    else _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm512_maskz_cvtepi64_epi8(0xff, all));
#elif defined(__AVX2__)
    const __m256i low = _mm256_set1_epi64x(sizeof(T) == 4 ? 0x0c080400 : 0x0800);  // the low bytes of each half
    const __m256i packed = _mm256_shuffle_epi8(bits<__m256i>(v), low);
    const auto a = _mm256_castsi256_si128(packed), b = _mm256_extracti128_si256(packed, 1);
    if constexpr (sizeof(T) == 4) _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_unpacklo_epi32(a, b));
    else _mm_storeu_si32(p, _mm_unpacklo_epi16(a, b));
#else
    for (int l = 0; l < lanes<T>; ++l) p[l] = static_cast<std::uint8_t>(v[l]);
#endif
}

template <class T>
inline void store_some_numbers(std::uint8_t* p, Vec<Int<T>, lanes<T>> v, i64 n) {
    if (n >= lanes<T>) return store_numbers<T>(p, v);
    std::uint8_t own[lanes<T>];
    store_numbers<T>(own, v);
    std::memcpy(p, own, n);
}

// The first n of L lanes.
template <int L, class T>
inline void store_some(T* to, Vec<T, L> v, i64 n) {
    if (n >= L) return store<L>(to, v);
    if (n <= 0) return;
#if defined(__AVX512F__)
    const auto mask = static_cast<std::uint16_t>((1u << n) - 1);
    if constexpr (sizeof(T) == 4) _mm512_mask_storeu_ps(to, mask, v);
    else _mm512_mask_storeu_pd(to, static_cast<__mmask8>(mask), v);
#elif defined(__AVX2__)
    const auto there = iota<L, Int<T>>(0, 1) < static_cast<Int<T>>(n);
    if constexpr (sizeof(T) == 4) _mm256_maskstore_ps(to, bits<__m256i>(there), v);
    else _mm256_maskstore_pd(to, bits<__m256i>(there), v);
#else
    T own[L];
    store<L>(own, v);
    std::memcpy(static_cast<void*>(to), own, n * sizeof(T));
#endif
}

// A constant that stays in a register: compilers make it anew at every use, on the port that compares.
template <class V>
inline V kept(V v) {
    return vector_bytes == 64 ? in_register(v) : v;  // smaller sets have half as many
}

// Whether a NaN was among the vectors met.
template <class T, int L = lanes<T>>
class NaNs {
public:
    [[gnu::always_inline]] void meet(Vec<T, L> a, Vec<T, L> b) {
#if defined(__AVX512F__)
        if constexpr (sizeof(a) == 32 && sizeof(T) == 4) met_ |= _mm256_cmp_ps_mask(a, b, _CMP_UNORD_Q);
        else if constexpr (sizeof(a) == 32) met_ |= _mm256_cmp_pd_mask(a, b, _CMP_UNORD_Q);
        else if constexpr (sizeof(T) == 4) met_ |= _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q);
        else met_ |= _mm512_cmp_pd_mask(a, b, _CMP_UNORD_Q);
#else
        met_ |= either_nan(a, b);
#endif
    }
#if defined(__AVX512F__)
    bool any() const { return met_ != 0; }

private:
    std::uint32_t met_ = 0;
#else
    bool any() const { return LN_ISA::any(met_); }

private:
    Vec<Int<T>, L> met_{};
#endif
};

// For windows of a few cells: L outputs of a row look at every cell of their windows, one after the other. -inf is greater than
// nothing, so where all cells are, the first wins.
template <class T>
class Numbers {
    using I = Int<T>;
    static constexpr int L = lanes<T>;
    static constexpr i64 most_window = 64;  // beyond, joining axis after axis is cheaper
    static constexpr i64 strip_bytes = 64 << 10;  // of planes; larger ones are better read row by row
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
        three_ = pool.rank == 2 && pool.cells_in * static_cast<i64>(sizeof(T)) <= strip_bytes;
        for (int a = 0; a < 2 && three_; ++a) {
            const PoolAxis& ax = pool.axes[a];
            three_ = ax.regular && ax.stride == 2 && ax.taps == 3 && ax.step == 1 && !ax.has_empty;
        }
    }

    // y may be null.
    void operator()(i64 planes, T* y, std::uint8_t* numbers) const {
        over_parts(pool_, planes, [&](i64 p0, i64 p1, i64 o0, i64 o1) {
            WindowRows rows;
            const bool whole = o0 == 0 && o1 == pool_.axes[0].m;
            for (i64 p = p0; p < p1; ++p) {
                const i64 at = p * pool_.cells_out, more = whole ? (p1 - p - 1) * pool_.cells_out : 0;
                T* const to = y ? y + at : nullptr;
                if (!three_ || !three(x_ + p * pool_.cells_in, o0, o1, to, numbers + at))
                    any_stride(rows, p, o0, o1, to, numbers + at, more);
            }
        });
    }

private:
    void any_stride(WindowRows& rows, i64 plane, i64 o0, i64 o1, T* y, std::uint8_t* numbers, i64 more) const {
        const i64 k = ax_.step == 1 ? ax_.taps : 0;
        const T* x = x_ + plane * pool_.cells_in;
        if (ax_.stride == 1 && k == 3) part<1, 3>(rows, x, o0, o1, y, numbers, more);
        else if (ax_.stride == 1) part<1, 0>(rows, x, o0, o1, y, numbers, more);
        else if (ax_.stride == 2 && k == 2) part<2, 2>(rows, x, o0, o1, y, numbers, more);
        else if (ax_.stride == 2 && k == 3) part<2, 3>(rows, x, o0, o1, y, numbers, more);
        else if (ax_.stride == 2) part<2, 0>(rows, x, o0, o1, y, numbers, more);
        else if (ax_.stride == 4 && k == 4) part<4, 4>(rows, x, o0, o1, y, numbers, more);
        else part<0, 0>(rows, x, o0, o1, y, numbers, more);
    }

    // The outputs o0..o1-1 of axis 0 of one plane, row by row, behind which there are `more` that will be written later. S is
    // the inner stride, K the inner taps; 0: any.
    template <int S, int K>
    void part(WindowRows& rows, const T* x, i64 o0, i64 o1, T* y, std::uint8_t* numbers, i64 more) const {
        const int outer = pool_.rank - 1;
        const i64 rest = pool_.cells_out / pool_.axes[0].m, end = o1 * rest;
        i64 o[max_axes] = {o0};
        const i64 q0 = outer == 0 ? o0 : 0, q1 = outer == 0 ? o1 : ax_.m;
        for (i64 at = o0 * rest; at < end; at += q1 - q0) {
            const T* from = x + rows.look(pool_.axes, outer, size_, o);
            Row to{from, rows.at, rows.many, q0, q1, y ? y + at : nullptr, numbers + at, end - at + more};
            if (K > 1 && rows.many == K) row<S, K, K>(to);
            else row<S, K, 0>(to);
            for (int a = outer - 1; a >= 0 && ++o[a] == pool_.axes[a].m && a > 0; --a) o[a] = 0;
        }
    }

    // The outputs q0..q1-1 of a row, whose windows have `many` rows of inputs, `at` from x. `left` outputs may be written
    // from y and numbers on: what is written too much is written again.
    struct Row {
        const T* x;
        const i64* at;
        i64 many, q0, q1;
        T* y;
        std::uint8_t* numbers;
        i64 left;
    };

    template <int S, int K, int R>
    void row(const Row& row) const {
        const i64 stride = S ? S : ax_.stride, span = ((K ? K : ax_.taps) - 1) * (K ? 1 : ax_.step) + 1;
        // Vectors of outputs from `first` to `last` read no further than the array, and write no further than `left`.
        const i64 before = (row.x - x_) + ax_.start, behind = cells_ - before - row.at[row.many - 1] - span - (stride - 1);
        const i64 first = before < 0 ? (-before + stride - 1) / stride : 0;
        const i64 last = behind < 0 ? -1 : std::min(behind / stride - (L - 1), row.q0 + row.left - L);
        NaNs<T> odd;
        for (i64 q = row.q0; q < row.q1; q += L) {
            if (q + L > row.q1 && row.q1 - row.q0 >= L) q = row.q1 - L;
            const i64 end = std::min(q + L, row.q1);
            if (q < first || q > last)
                for (i64 o = q; o < end; ++o) single(row, o);
            else if (q >= ax_.full_lo && end <= ax_.full_hi) windows<S, K, R, false>(row, q, odd);
            else windows<S, K, R, true>(row, q, odd);
        }
        if (odd.any())
            for (i64 q = row.q0; q < row.q1; ++q) single(row, q);
    }

    // L windows, in which absent cells are -inf, and are counted with the others until the end. NaN is only told of.
    template <int S, int K, int R, bool clipped>
    [[gnu::always_inline]] inline void windows(const Row& row, i64 q, NaNs<T>& odd) const {
        const i64 stride = S ? S : ax_.stride, taps = K ? K : ax_.taps, step = K ? 1 : ax_.step;
        const T* x = row.x + ax_.start + q * stride;
        const i64 many = R ? R : row.many;
        const auto lane = iota<L, I>(0, 1) * static_cast<I>(stride) + static_cast<I>(ax_.start + q * stride);
        auto is_there = [&](i64 k) __attribute__((always_inline)) {
            const auto cell = lane + static_cast<I>(k * step);
            return (cell >= I(0)) & (cell < static_cast<I>(ax_.n));
        };
        Vec<I, L> there[clipped && K ? K : 1], lacking{}, first{};
        if constexpr (clipped) {
            Vec<I, L> none = splat<L>(I(-1));  // as long as no cell was there
            for (i64 k = 0; k < taps; ++k) {
                const auto here = is_there(k);
                none &= ~here, first -= none, lacking += I(1) + here;
                if constexpr (K > 0) there[k] = here;
            }
        }
        Vec<T, L> best = splat<L>(low);
        Vec<I, L> number = first;
        for (i64 r = 0; r < many; ++r) {
            const T* from = x + row.at[r];
            Vec<T, L> cells[S < 2 ? 1 : S], before{};
            for (i64 k = 0; k < taps; ++k) {
                Vec<T, L> v;
                if constexpr (S == 0) {
                    T some[L];
                    for (int l = 0; l < L; ++l) some[l] = from[k * step + l * stride];
                    v = load<L>(some);
                } else if constexpr (S == 1) {
                    v = load<L>(from + k * step);
                } else if constexpr (K > 0) {
                    if (k % S == 0) take_apart<S, L>(from + k, cells);
                    v = cells[k % S];
                } else {
                    take_apart<S, L>(from + k * step, cells);
                    v = cells[0];
                }
                if constexpr (clipped && K > 0) v = there[k] ? v : splat<L>(low);
                else if constexpr (clipped) v = is_there(k) ? v : splat<L>(low);
                if (k % 2) odd.meet(before, v);
                else if (k + 1 == taps) odd.meet(v, v);
                before = v;
                const auto later = v > best;
                best = later ? v : best;
                number = later ? splat<L>(static_cast<I>(r * taps + k)) : number;
            }
        }
        if constexpr (clipped) {  // of the cells that are there
            const I least = static_cast<I>((1 << 14) / taps + 1);  // number / taps, as there are few of both
            number -= first + ((number * least) >> 14) * lacking;
        }
        if (row.y) store<L>(row.y + (q - row.q0), best);
        store_numbers<T>(row.numbers + (q - row.q0), number);
    }

    // Windows of three by three, two apart: L outputs of a row after the other from top to bottom, so that the rows of inputs
    // that two windows share are looked at once. False if there was a NaN; then this was in vain.
    bool three(const T* x, i64 o0, i64 o1, T* y, std::uint8_t* numbers) const {
        NaNs<T> odd;
        for (i64 q = 0; q < ax_.m; q += L) {
            if (q + L > ax_.m && ax_.m >= L) q = ax_.m - L;
            if (q >= ax_.full_lo && q + L <= ax_.full_hi) strip<false>(x, q, o0, o1, y, numbers, odd);
            else strip<true>(x, q, o0, o1, y, numbers, odd);
        }
        return !odd.any();
    }

    // The greatest of three cells of a row, for each of L windows, and which it is.
    struct Third {
        Vec<T, L> best;
        Vec<I, L> tap;
    };

    template <bool clipped>
    [[gnu::noinline]] void strip(const T* x, i64 q, i64 o0, i64 o1, T* y, std::uint8_t* numbers, NaNs<T>& met) const {
        const PoolAxis& top = pool_.axes[0];
        const i64 n = ax_.n, m = ax_.m, some = std::min<i64>(L, m - q);
        const T* const x_end = x_ + cells_;
        Vec<I, L> there[3], first{}, lacking{};
        if constexpr (clipped) {
            const auto lane = iota<L, I>(0, 1) * I(2) + static_cast<I>(ax_.start + 2 * q);
            Vec<I, L> none = splat<L>(I(-1));
            for (int k = 0; k < 3; ++k) {
                there[k] = (lane + I(k) >= I(0)) & (lane + I(k) < static_cast<I>(n));
                none &= ~there[k], first -= none, lacking += I(1) + there[k];
            }
        }
        const auto one = kept(splat<L>(I(1))), two = kept(splat<L>(I(2))), three = kept(splat<L>(I(3)));
        NaNs<T> odd;
        auto look = [&](i64 i) __attribute__((always_inline)) -> Third {
            const T* from = x + i * n + ax_.start + 2 * q;
            T own[2 * L + 2];
            if (from < x_ || x_end - from < 2 * L + 2) {  // nothing is read outside of the array
                const i64 before = from < x_ ? x_ - from : 0, behind = std::min<i64>(2 * L + 2, x_end - from);
                for (i64 k = 0; k < 2 * L + 2; ++k) own[k] = k >= before && k < behind ? from[k] : T(0);
                from = own;
            }
            Vec<T, L> v[3], rest;
            unzip<L>(load<L>(from), load<L>(from + L), v[0], v[1]);
            unzip<L>(load<L>(from + 2), load<L>(from + 2 + L), v[2], rest);
            if constexpr (clipped)
                for (int k = 0; k < 3; ++k) v[k] = there[k] ? v[k] : splat<L>(low);
            odd.meet(v[0], v[1]), odd.meet(v[2], v[2]);
            Third third{v[0], first};
            for (int k = 1; k < 3; ++k) {
                const auto later = v[k] > third.best;
                third.best = later ? v[k] : third.best, third.tap = later ? (k == 1 ? one : two) : third.tap;
            }
            return third;
        };
        i64 row = -1;
        Third now{};  // of this row
        for (i64 o = o0; o < o1; ++o) {
            const i64 from = top.first[o], end = from + top.count[o];
            if (row != from) now = look(from);
            Third all = now;
            Vec<I, L> before{};
            for (row = from; row + 1 < end;) {
                now = look(++row), before += three;
                const auto later = now.best > all.best;
                all.best = later ? now.best : all.best, all.tap = later ? now.tap + before : all.tap;
            }
            if constexpr (clipped) all.tap -= first + ((all.tap * I(11)) >> 5) * lacking;  // * 11 / 32 is / 3 up to 8
            const i64 at = o * m + q;
            if (y) store_some<L>(y + at, all.best, some);
            store_some_numbers<T>(numbers + at, all.tap, some);
        }
        if (odd.any()) met.meet(splat<L>(std::numeric_limits<T>::quiet_NaN()), splat<L>(T(0)));
    }

    // One window, which may be clipped, lie at the end of the array, or hold NaN.
    [[gnu::noinline]] void single(const Row& row, i64 q) const {
        T best = low;
        i64 number = 0, next = 0;
        for (i64 r = 0; r < row.many; ++r) {
            const T* x = row.x + row.at[r] + ax_.first[q];
            for (i64 k = 0; k < ax_.count[q]; ++k, ++next)
                if (later_wins<true>(best, x[k * ax_.step])) best = x[k * ax_.step], number = next;
        }
        if (row.y) row.y[q - row.q0] = best;
        row.numbers[q - row.q0] = static_cast<std::uint8_t>(number);
    }

    const Pool& pool_;
    const PoolAxis& ax_;
    const T* x_;
    i64 cells_;  // of the whole array
    i64 size_[max_axes];  // cells of one step along an axis
    bool three_;          // whether windows are three by three, two apart, of small planes
};

}  // namespace
}  // namespace lunette::LN_ISA
