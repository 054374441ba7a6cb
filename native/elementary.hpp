// Exponential, logarithm and power on vectors, with the binary exponent kept apart, so that nothing overflows or
// cancels on the way. Series are cut where the next term is below half an ulp.
#pragma once
#include <cmath>

#include "simd.hpp"

namespace lunette::LN_ISA {
namespace {

template <class T>
struct Format;
template <>
struct Format<float> {
    static constexpr int fraction_bits = 23, bias = 127, split_bits = 12;
    static constexpr int exp_terms = 7, power_terms = 6, log_terms = 4;
    static constexpr float magic = 12582912.0f;            // 1.5 * 2^23: adding it rounds to an integer
    static constexpr float ln2_hi = 0x1.62ep-1f;           // few bits, so that k * ln2_hi is exact
    static constexpr float ln2_lo = 0x1.0bfbe8p-15f;
    static constexpr float log2e = 0x1.715476p+0f, log2e_rest = 0x1.4ae0cp-26f;
    static constexpr float half_root = 0x1.6a09e6p-1f;     // sqrt(1/2)
    // Terms are kept within 2^+-spread and what they meet within 2^+-tame, so products stay normal numbers.
    static constexpr int spread = 45, tame = 55;
    static constexpr float most_exponent = 500;
};
template <>
struct Format<double> {
    static constexpr int fraction_bits = 52, bias = 1023, split_bits = 26;
    static constexpr int exp_terms = 13, power_terms = 11, log_terms = 10;
    static constexpr double magic = 6755399441055744.0;
    static constexpr double ln2_hi = 0x1.62e42fefp-1;
    static constexpr double ln2_lo = 0x1.473de6af278edp-34;
    static constexpr double log2e = 0x1.71547652b82fep+0, log2e_rest = 0x1.777d0ffda0d24p-56;
    static constexpr double half_root = 0x1.6a09e667f3bcdp-1;
    static constexpr int spread = 380, tame = 450;
    static constexpr double most_exponent = 100000;
};

// 2^k for k held as integers.
template <class T, class I>
inline auto power_of_two(I k) {
    using F = Format<T>;
    if constexpr (sizeof(I) == sizeof(T)) return bits<T>(static_cast<Int<T>>((k + F::bias) << F::fraction_bits));
    else return bits<Vec<T, sizeof(I) / sizeof(T)>>((k + F::bias) << F::fraction_bits);
}

template <class T, class V>
using IntsLike = std::conditional_t<sizeof(V) == sizeof(T), Int<T>, Vec<Int<T>, sizeof(V) / sizeof(T)>>;

// a*b - p rounded once or nearly so, where p is near a*b: exact if p = a*b rounded.
template <class T, class V>
inline V product_error(V a, V b, V p) {
#if defined(__FMA__)
    constexpr int N = sizeof(V) / sizeof(T);
    constexpr bool single = sizeof(T) == 4;
    if constexpr (N == 1) return std::fma(a, b, -p);
    else if constexpr (sizeof(V) == 16 && single) return _mm_fmsub_ps(a, b, p);
    else if constexpr (sizeof(V) == 16) return _mm_fmsub_pd(a, b, p);
    else if constexpr (sizeof(V) == 32 && single) return _mm256_fmsub_ps(a, b, p);
    else if constexpr (sizeof(V) == 32) return _mm256_fmsub_pd(a, b, p);
#if defined(__AVX512F__)
    else if constexpr (single) return _mm512_fmsub_ps(a, b, p);
    else return _mm512_fmsub_pd(a, b, p);
#endif
#else
    // Cut each factor in two halves whose products are exact (Dekker); a compiler that fuses them does no harm.
    using I = IntsLike<T, V>;
    const Int<T> mask = -(Int<T>(1) << (Format<T>::fraction_bits + 3) / 2);
    V ah = bits<V>(bits<I>(a) & mask), bh = bits<V>(bits<I>(b) & mask), al = a - ah, bl = b - bh;
    return ((ah * bh - p) + (ah * bl + al * bh)) + al * bl;
#endif
}

template <class T, class V>
inline V square_root(V x) {
    constexpr bool single = sizeof(T) == 4;
    if constexpr (sizeof(V) == sizeof(T)) return std::sqrt(x);
#if defined(__x86_64__)
    else if constexpr (sizeof(V) == 16 && single) return _mm_sqrt_ps(x);
    else if constexpr (sizeof(V) == 16) return _mm_sqrt_pd(x);
#if defined(__AVX2__)
    else if constexpr (sizeof(V) == 32 && single) return _mm256_sqrt_ps(x);
    else if constexpr (sizeof(V) == 32) return _mm256_sqrt_pd(x);
#endif
#if defined(__AVX512F__)
    else if constexpr (single) return _mm512_maskz_sqrt_ps(0xffff, x);  // GCC warns of the one without
    else return _mm512_maskz_sqrt_pd(0xff, x);
#endif
#else
    else {
        V y;
        for (int l = 0; l < int(sizeof(V) / sizeof(T)); ++l) y[l] = std::sqrt(x[l]);
        return y;
    }
#endif
}

// a / b for normal b and quotients of middling size, or zero: within an ulp, and sooner than vectors are divided.
template <class T, class V>
inline V quotient(V a, V b) {
#if defined(__AVX512F__)
    if constexpr (std::is_same_v<V, Vec<float, 16>>) {
        V r = _mm512_maskz_rcp14_ps(0xffff, b);
        r = r - product_error<T>(r, b, splat<16>(T(1))) * r;
        const V q = a * r;
        return q - product_error<T>(q, b, a) * r;
    }
#endif
    return a / b;
}

// exp(r) for |r| <= ln(2)/2 or a little more.
template <class T, class V>
inline V exp_small(V r) {
    constexpr int K = Format<T>::exp_terms;
    constexpr auto series = [] {
        struct { T c[K + 1]; } s{};
        double factorial = 1;
        for (int k = 0; k <= K; factorial *= ++k) s.c[k] = static_cast<T>(1 / factorial);
        return s;
    }();
    V q = r * series.c[K] + series.c[K - 1];
    for (int k = K - 2; k >= 2; --k) q = q * r + series.c[k];
    return (q * (r * r) + r) + T(1);
}

// 2^r for |r| <= 1/2 or a little more: the Chebyshev series, which needs fewer terms than Taylor's. Its coefficients
// are Bessel functions: 2^r = I_0(a) + 2 * sum I_n(a) T_n(2*r) with a = ln(2)/2.
template <class T, class V>
inline V power_of_two_small(V r) {
    constexpr int K = Format<T>::power_terms;
    constexpr auto series = [] {
        struct { T c[K + 1]; } s{};
        const long double half = 0.173286795139986327354L;  // a/2
        long double sum[K + 1] = {}, before[K + 1] = {}, now[K + 1] = {1};  // T_(n-1) and T_n as polynomials in r
        for (int n = 0; n <= K; ++n) {
            long double bessel = 0, term = 1;
            for (int m = 1; m <= n; ++m) term *= half / m;
            for (int m = 1; m < 20; ++m) bessel += term, term *= half * half / (m * (m + n));
            for (int k = 0; k <= n; ++k) sum[k] += (n == 0 ? 1 : 2) * bessel * now[k];
            for (int k = K; k >= 0; --k) {
                const long double next = (n == 0 ? 2 : 4) * (k > 0 ? now[k - 1] : 0) - before[k];
                before[k] = now[k], now[k] = next;
            }
        }
        for (int k = 0; k <= K; ++k) s.c[k] = static_cast<T>(sum[k]);
        s.c[0] = 1;  // as it would be rounded
        return s;
    }();
    V q = r * series.c[K] + series.c[K - 1];
    for (int k = K - 2; k >= 0; --k) q = q * r + series.c[k];
    return q;
}

// log(m) for m between sqrt(1/2) and sqrt(2).
template <class T, class V>
inline V log_near_one(V m) {
    V f = m - T(1), s = quotient<T>(f, f + T(2)), z = s * s, half = f * f * T(0.5);
    constexpr int K = Format<T>::log_terms;
    V R = splat<sizeof(V) / sizeof(T)>(T(2.0 / (2 * K + 1)));
    for (int k = K - 1; k >= 1; --k) R = R * z + T(2.0 / (2 * k + 1));
    return f - (half - s * (half + R * z));
}

// a = m * 2^k with m between sqrt(1/2) and sqrt(2), for positive normal a; k as a number of type T.
// Unsigned where it may wrap: zeros come here too, -0 among them, and callers drop what they become.
template <class T, class V>
inline void split_exponent(V a, V& m, V& k) {
    using F = Format<T>;
    using I = IntsLike<T, V>;
    using Word = std::make_unsigned_t<Int<T>>;
    using W = std::conditional_t<sizeof(V) == sizeof(T), Word, Vec<Word, sizeof(V) / sizeof(T)>>;
    W w = bits<W>(a);
    I shifted = bits<I>(w - bits<Word>(F::half_root)) >> F::fraction_bits;
    m = bits<V>(w - (bits<W>(shifted) << F::fraction_bits));
    k = bits<V>(shifted + bits<Int<T>>(F::magic)) - F::magic;
}

// beta as a power of two: e^beta = 2^(hi + lo).
template <class T>
struct Rate {
    T hi, lo;
    explicit Rate(T beta) : hi(beta * Format<T>::log2e) {
        lo = product_error<T>(beta, Format<T>::log2e, hi) + beta * Format<T>::log2e_rest;
    }
    // Whether lo, and the inverse of hi, are normal numbers.
    bool precise() const {
        using F = Format<T>;
        const T size = std::fabs(hi);
        return size <= std::ldexp(T(1), F::bias - 3) && size >= std::ldexp(T(1), 3 * F::fraction_bits - F::bias);
    }
};

// exp(beta*x) * 2^-shift, where the result is a normal number and |beta*x| <= most_exponent; else anything.
template <class T, class V>
inline V exp_scaled(Rate<T> beta, V x, Int<T> shift) {
    using F = Format<T>;
    using Word = std::make_unsigned_t<Int<T>>;
    using W = std::conditional_t<sizeof(V) == sizeof(T), Word, Vec<Word, sizeof(V) / sizeof(T)>>;
    const V hi = splat<sizeof(V) / sizeof(T)>(beta.hi);
    const T magic = F::magic - static_cast<T>(shift);  // so the last bits of `rounded` are the exponent of the result
    const V rounded = hi * x + magic, r = product_error<T>(hi, x, rounded - magic) + x * beta.lo;
    return bits<V>(bits<W>(power_of_two_small<T>(r)) + (bits<W>(rounded) << F::fraction_bits));
}

// log(a * 2^shift).
template <class T, class V>
inline V log_scaled(V a, T shift) {
    using F = Format<T>;
    V m, k;
    split_exponent<T>(a, m, k);
    k = k + shift;
    return k * F::ln2_hi + (log_near_one<T>(m) + k * F::ln2_lo);
}

// An exponent p = hi + lo, where hi has few bits.
template <class T>
struct Exponent {
    T hi, lo;
    static Exponent of(long double p) {
        int e;
        std::frexp(p, &e);
        long double unit = std::ldexp(1.0L, e - Format<T>::split_bits + 1);
        T hi = static_cast<T>(std::nearbyint(p / unit) * unit);
        return {hi, static_cast<T>(p - hi)};
    }
};

// a^p for a in {0} or positive and normal, where the result is normal too.
template <class T, class V>
inline V power(V a, Exponent<T> p) {
    using F = Format<T>;
    using I = IntsLike<T, V>;
    V m, k;
    split_exponent<T>(a, m, k);
    V L = log_near_one<T>(m);
    V whole = k * p.hi;                       // exact
    V small = L * (p.hi + p.lo);
    V rounded = (whole + (k * p.lo + small * T(1.44269504088896340736))) + F::magic, n = rounded - F::magic;
    V rest = whole - n;                       // exact
    V r = rest * F::ln2_hi + (rest * F::ln2_lo + (k * p.lo * T(0.693147180559945309417) + small));
    V e = exp_small<T>(r) * power_of_two<T>(bits<I>(rounded) - bits<Int<T>>(F::magic));
    return a == T(0) ? a : e;
}

}  // namespace
}  // namespace lunette::LN_ISA
