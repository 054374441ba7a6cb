// Loops over dense arrays that may be done in place, and the elementary functions over the whole range of T.
#pragma once
#include <algorithm>
#include <limits>

#include "elementary.hpp"
#include "rearrange.hpp"
#include "threads.hpp"

namespace lunette::LN_ISA {
namespace {

// f(begin, end) for parts of 0..count-1, multiples of `step`, in parallel where each is worth at least `grain`. The
// usual step is whole cache lines, so that no two threads write one.
template <class F>
inline void parallel_parts(i64 count, i64 grain, F f, i64 step = 64) {
    i64 parts = num_threads() == 1 ? 1 : std::min<i64>(4 * num_threads(), count / grain);
    if (parts <= 1) {
        if (count > 0) f(i64(0), count);
        return;
    }
    i64 size = ((count + parts - 1) / parts + step - 1) / step * step;
    parallel_for((count + size - 1) / size, [&](i64 p) { f(p * size, std::min(count, (p + 1) * size)); });
}

// Elements of cheap, and of dear, work that pay for waking another thread.
constexpr i64 cheap_grain = 1 << 15, dear_grain = 1 << 12;

template <int N, class T>
inline void store_some(T* p, Vec<T, N> v, i64 n) {
    static_assert(N == lanes<T>);
    constexpr bool single = sizeof(T) == 4;
#if defined(__AVX512F__)
    if constexpr (single) _mm512_mask_storeu_ps(p, __mmask16((1u << n) - 1), v);
    else _mm512_mask_storeu_pd(p, __mmask8((1u << n) - 1), v);
#elif defined(__AVX2__)
    if constexpr (single) _mm256_maskstore_ps(p, first_lanes<T>(n), v);
    else _mm256_maskstore_pd(p, first_lanes<T>(n), v);
#else
    p[0] = v[0];
    if constexpr (single)
        for (int l : {1, 2})
            if (n > l) p[l] = v[l];
#endif
}

// An operand of `map`: a row of numbers, or one number for all.
template <class T>
struct Row {
    const T* p;
    Vec<T, lanes<T>> at(i64 i) const { return load<lanes<T>>(p + i); }
    Vec<T, lanes<T>> some(i64 i, i64 n) const { return load_some<lanes<T>>(p + i, n); }
};
template <class T>
struct Same {
    Vec<T, lanes<T>> v;
    explicit Same(T s) : v(splat<lanes<T>>(s)) {}
    Vec<T, lanes<T>> at(i64) const { return v; }
    Vec<T, lanes<T>> some(i64, i64) const { return v; }
};

// y[i] = f(operands[i]...). Every vector is read before it is written and only once, so y may be an operand.
template <class T, class F, class... Operands>
inline void map(i64 n, T* y, F f, Operands... operand) {
    constexpr int N = lanes<T>;
    i64 i = 0;
    for (; i + N <= n; i += N) store<N>(y + i, f(operand.at(i)...));
    if (i < n) store_some<N>(y + i, f(operand.some(i, n - i)...), n - i);
}

template <class T>
inline constexpr T infinity = std::numeric_limits<T>::infinity();

template <class T, class V>
inline V magnitude(V x) {
    using I = IntsLike<T, V>;
    return bits<V>(bits<I>(x) & std::numeric_limits<Int<T>>::max());
}

template <class T, class V>
inline V with_sign_of(V size, V sign) {
    using I = IntsLike<T, V>;
    return bits<V>(bits<I>(size) | (bits<I>(sign) & std::numeric_limits<Int<T>>::min()));
}

template <class T>
struct Range;
template <>
struct Range<float> {
    static constexpr float exp_least = -110, exp_most = 90;  // beyond these exp is 0 or infinite in this format
    static constexpr float tanh_most = 10;                   // and tanh 1
};
template <>
struct Range<double> {
    static constexpr double exp_least = -750, exp_most = 711, tanh_most = 20;
};

// x = k*ln(2) + r; the integer k as a number, and within `rounded` as the low bits. NaN stays NaN in r.
template <class T, class V>
inline V cut_exponent(V x, V& rounded, V& k) {
    using F = Format<T>;
    rounded = x * T(1.44269504088896340736) + F::magic, k = rounded - F::magic;
    return (x - k * F::ln2_hi) - k * F::ln2_lo;
}

// exp(x) within 2 ulp, also where it is subnormal: the last of two multiplications by powers of two rounds.
template <class T, class V>
inline V exp_of(V x) {
    using F = Format<T>;
    using Unsigned = std::make_unsigned_t<Int<T>>;
    using U = Vec<Unsigned, sizeof(V) / sizeof(T)>;
    constexpr int N = sizeof(V) / sizeof(T);
    const V least = splat<N>(Range<T>::exp_least), most = splat<N>(Range<T>::exp_most);
    x = x < least ? least : x;
    x = x > most ? most : x;
    V rounded, k, r = cut_exponent<T>(x, rounded, k);
    // Both shifted by twice the bias, which keeps them positive: vectors have no cheap signed 64-bit shift.
    U both = bits<U>(rounded) - (bits<Unsigned>(F::magic) - 2 * F::bias);
    U half = both >> 1, other = both - half;
    return exp_small<T>(r) * bits<V>(half << F::fraction_bits) * bits<V>(other << F::fraction_bits);
}

// log(x) within 2 ulp.
template <class T, class V>
inline V log_of(V x) {
    using F = Format<T>;
    constexpr int N = sizeof(V) / sizeof(T);
    const V up = splat<N>(T(Int<T>(1) << (F::fraction_bits + 1)));
    auto subnormal = x < std::numeric_limits<T>::min();
    V m, k;
    split_exponent<T>(subnormal ? x * up : x, m, k);
    k = k - (subnormal ? splat<N>(T(F::fraction_bits + 1)) : V{});
    V y = k * F::ln2_hi + (log_near_one<T>(m) + k * F::ln2_lo);
    y = x < infinity<T> ? y : x;  // infinity and NaN
    y = x < T(0) ? splat<N>(std::numeric_limits<T>::quiet_NaN()) : y;
    return x == T(0) ? splat<N>(-infinity<T>) : y;
}

// 1 / (1 + exp(-x)) within 3 ulp, from an exponential that cannot overflow.
template <class T, class V>
inline V sigmoid_of(V x) {
    V e = exp_of<T>(-magnitude<T>(x));
    return (x < T(0) ? e : splat<sizeof(V) / sizeof(T)>(T(1))) / (e + T(1));
}

// tanh within 3 ulp: q / (q + 2) for q = exp(2|x|) - 1, which the series gives without cancellation.
template <class T, class V>
inline V tanh_of(V x) {
    using F = Format<T>;
    using I = IntsLike<T, V>;
    constexpr int K = F::exp_terms;
    constexpr auto series = [] {
        struct { T c[K + 2]; } s{};
        double factorial = 1;
        for (int k = 0; k <= K + 1; factorial *= ++k) s.c[k] = static_cast<T>(1 / factorial);
        return s;
    }();
    const V most = splat<sizeof(V) / sizeof(T)>(Range<T>::tanh_most);
    V a = magnitude<T>(x);
    a = a > most ? most : a;
    V rounded, k, r = cut_exponent<T>(a + a, rounded, k);
    V q = r * series.c[K + 1] + series.c[K];
    for (int j = K - 1; j >= 2; --j) q = q * r + series.c[j];
    q = q * (r * r) + r;
    V two = power_of_two<T>(bits<I>(rounded) - bits<Int<T>>(F::magic));
    q = two * q + (two - T(1));
    return with_sign_of<T>(q / (q + T(2)), x);
}

}  // namespace
}  // namespace lunette::LN_ISA
