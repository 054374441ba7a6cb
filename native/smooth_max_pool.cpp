// (1/beta) * log(sum exp(beta*x)) over each window.
#include "operators.hpp"
#include "weighted.hpp"

namespace lunette::LN_ISA {
namespace {

// 2^r = 1 + r * (series in r), cut at r^K, for |r| <= 1/(2*parts): Chebyshev's series. Its coefficients are Bessel functions:
// 2^r = I_0(a) + 2 * sum I_n(a) T_n(2*parts*r) with a = ln(2)/(2*parts).
template <class T, int K, int parts>
constexpr auto powers_of_two_near_one() {
    struct { T c[K + 1]; } s{};
    const long double half = 0.173286795139986327354L / parts;  // a/2
    long double sum[K + 1] = {}, before[K + 1] = {}, now[K + 1] = {1};  // T_(n-1) and T_n as polynomials in r
    for (int n = 0; n <= K; ++n) {
        long double bessel = 0, term = 1;
        for (int m = 1; m <= n; ++m) term *= half / m;
        for (int m = 1; m < 20; ++m) bessel += term, term *= half * half / (m * (m + n));
        for (int k = 0; k <= n; ++k) sum[k] += (n == 0 ? 1 : 2) * bessel * now[k];
        for (int k = K; k >= 0; --k) {
            const long double next = (n == 0 ? 2 : 4) * parts * (k > 0 ? now[k - 1] : 0) - before[k];
            before[k] = now[k], now[k] = next;
        }
    }
    for (int k = 0; k <= K; ++k) s.c[k] = static_cast<T>(sum[k]);
    return s;
}

// exp_scaled (elementary.hpp). With AVX-512 registers hold the sixteen powers of two from 1 to 2, so r is at most 1/32, and the
// series, cut below 0.07 u, is short: the power rounds 1 u, the last sum another, all before it less than 0.2 (exp_scaled: below
// 5, see lunette.arithmetic.interval_pool). Whatever N is, the bits are the same: a cell may be in a vector or left over.
template <class T, class V>
[[gnu::always_inline]] inline V exponential(Rate<T> beta, V x, Int<T> shift) {
#if defined(__AVX512F__)
    if constexpr (std::is_same_v<T, double>) {
        constexpr int N = sizeof(V) / sizeof(T), K = 6, bits_of_part = 4;
        constexpr auto series = powers_of_two_near_one<T, K, 1 << bits_of_part>();
        alignas(64) static constexpr T powers[16] = {
            0x1.0000000000000p+0, 0x1.0b5586cf9890fp+0, 0x1.172b83c7d517bp+0, 0x1.2387a6e756238p+0,
            0x1.306fe0a31b715p+0, 0x1.3dea64c123422p+0, 0x1.4bfdad5362a27p+0, 0x1.5ab07dd485429p+0,
            0x1.6a09e667f3bcdp+0, 0x1.7a11473eb0187p+0, 0x1.8ace5422aa0dbp+0, 0x1.9c49182a3f090p+0,
            0x1.ae89f995ad3adp+0, 0x1.c199bdd85529cp+0, 0x1.d5818dcfba487p+0, 0x1.ea4afa2a490dap+0};
        const T magic = Format<T>::magic / (1 << bits_of_part) - static_cast<T>(shift);  // `rounded` ends in sixteenths
        const V rounded = splat<N>(beta.hi) * x + magic;
        const V r = product_error<T>(splat<N>(beta.hi), x, rounded - magic) + x * beta.lo;
        V power;
        if constexpr (N == 1) {
            power = powers[bits<std::uint64_t>(rounded) & 15];
        } else {  // the last four bits of every lane choose
            __m512i place;
            if constexpr (N == 8) place = bits<__m512i>(rounded);
            else if constexpr (N == 4) place = _mm512_zextsi256_si512(bits<__m256i>(rounded));
            else place = _mm512_zextsi128_si512(bits<__m128i>(rounded));
            const __m512d found = _mm512_permutex2var_pd(_mm512_load_pd(powers), place, _mm512_load_pd(powers + 8));
            std::memcpy(&power, &found, sizeof power);
        }
        V q = r * series.c[K] + series.c[K - 1];
        for (int k = K - 2; k >= 1; --k) q = q * r + series.c[k];
        using Word = std::conditional_t<N == 1, std::uint64_t, Vec<std::uint64_t, N>>;
        return bits<V>(bits<Word>(power + power * (q * r)) + (bits<Word>(rounded) >> bits_of_part << Format<T>::fraction_bits));
    }
#endif
    return exp_scaled<T>(beta, x, shift);
}

template <class T>
class SmoothMax {
public:
    using Scalar = T;
    static constexpr bool has_slope = true, terms_are_weights = true;
    bool counts_absent;

    SmoothMax(const Pool& pool, T beta, bool include_pad)
        : counts_absent(include_pad && any_absent(pool)), beta_(beta), rate_(beta), include_pad_(include_pad) {}
    T beta() const { return beta_; }

    // Whether exp(beta*x) is within 2^+-spread for cells up to this magnitude.
    bool unscaled(T far) const { return far * std::fabs(rate_.hi) <= Format<T>::spread - 2; }

    // All exp(beta*x) * 2^-shift_ must be within 2^+-spread.
    bool terms(const T* x, i64 n, T* e) {
        constexpr T spread = Format<T>::spread;
        if (!rate_.precise()) return false;
        shift_ = 0;  // right for most data
        const T far = greatest_magnitude(x, n, [e, rate = rate_]<int N>(i64 i, Vec<T, N> v) {
            store<N>(e + i, exponential<T>(rate, v, 0));
        });
        if (unscaled(far)) return true;
        T least = 0, greatest = 0;
        if (n > 0 && !range<false>(x, n, least, greatest, []<int N>(i64, Vec<T, N>) {})) return false;
        auto exponentials = [&] {
            each_vector<T>(n, [&]<int N>(i64 i) { store<N>(e + i, exponential<T>(rate_, load<N>(x + i), shift_)); });
            return true;
        };
        T a = beta_ * least, b = beta_ * greatest;
        T low = std::min(a, b), high = std::max(a, b);
        if (counts_absent) low = std::min(low, T(0)), high = std::max(high, T(0));
        if (!(low >= -Format<T>::most_exponent && high <= Format<T>::most_exponent)) return false;
        T k0 = std::floor(low * T(1.4426950408889634)) - 1, k1 = std::ceil(high * T(1.4426950408889634)) + 1;
        shift_ = static_cast<Int<T>>((k0 + k1) / 2);
        return k1 - k0 <= 2 * spread && exponentials();
    }
    T absent() const { return power_of_two<T>(-shift_); }
    void values(const T* s, i64 n, T* y) const {
        const T inverse = 1 / beta_, shift = static_cast<T>(shift_);
        each_vector<T>(n, [&]<int N>(i64 i) {
            store<N>(y + i, log_scaled<T>(load<N>(s + i), shift) * inverse);
        });
    }
    void denominators(const T* s, i64 n, T* d) const { std::memcpy(d, s, n * sizeof(T)); }

    // Of cells whose terms need no scale (WeightedTiles).
    bool plain() const { return rate_.precise(); }
    template <class V>
    [[gnu::always_inline]] V term(V v) const { return exponential<T>(rate_, v, 0); }
    template <class V>
    [[gnu::always_inline]] V denominator(V s) const { return s; }
    template <class V>
    [[gnu::always_inline]] V weight(V, V term) const { return term; }
    template <int N>
    struct Tally {
        Magnitude<T, N> most;
        [[gnu::always_inline]] void meet(Vec<T, N> v) { most.meet(v); }
        bool fine(const SmoothMax& model) const { return model.unscaled(most.greatest()); }
    };

    struct Window {
        using W = Wide<T>;
        W beta, top, sum, value;
        i64 winners;  // infinite cells that share the derivative, or 0
        W weight(i64, T x) const {
            if (value != value) return value;
            W z = beta * x;
            if (winners > 0) return z == top ? W(1) / winners : W(0);
            return std::exp(z - top) / sum;
        }
    };
    Window look(const Pool& pool, const T* x, i64 output) const {
        using W = Wide<T>;
        constexpr W inf = std::numeric_limits<W>::infinity();
        const i64 absent = include_pad_ ? absent_cells(pool, output) : 0;
        Window w{beta_, absent > 0 ? W(0) : -inf, 0, 0, 0};
        bool nan = false;
        each_cell(pool, output, [&](i64 i) {
            W z = w.beta * x[i];
            nan = nan || z != z;
            w.top = std::max(w.top, z);
        });
        if (nan) {
            w.value = std::numeric_limits<W>::quiet_NaN();
            return w;
        }
        if (w.top == inf || w.top == -inf) {
            each_cell(pool, output, [&](i64 i) { w.winners += w.beta * x[i] == w.top; });
            w.value = w.top / w.beta;
            return w;
        }
        each_cell(pool, output, [&](i64 i) { w.sum += std::exp(w.beta * x[i] - w.top); });
        if (absent > 0) w.sum += absent * std::exp(-w.top);
        w.value = (w.top + std::log(w.sum)) / w.beta;
        return w;
    }

private:
    T beta_;
    Rate<T> rate_;
    bool include_pad_;
    Int<T> shift_ = 0;
};

}  // namespace

template <class T>
void smooth_max_pool(const Pool& pool, i64 planes, const T* x, T* y, T beta, bool include_pad) {
    weighted_pool(SmoothMax<T>(pool, beta, include_pad), pool, planes, x, y);
}

template <class T>
void smooth_max_pool_jvp(const Pool& pool, i64 planes, const T* x, const T* t, T* dy, T beta, T dbeta, bool include_pad) {
    weighted_pool_jvp(SmoothMax<T>(pool, beta, include_pad), pool, planes, x, t, dy, dbeta);
}

template <class T>
void smooth_max_pool_vjp(const Pool& pool, i64 planes, const T* x, const T* g, T* dx, T beta, bool include_pad,
                         double* dbeta) {
    weighted_pool_vjp(SmoothMax<T>(pool, beta, include_pad), pool, planes, x, g, dx, dbeta);
}

template void smooth_max_pool<float>(const Pool&, i64, const float*, float*, float, bool);
template void smooth_max_pool<double>(const Pool&, i64, const double*, double*, double, bool);
template void smooth_max_pool_jvp<float>(const Pool&, i64, const float*, const float*, float*, float, float, bool);
template void smooth_max_pool_jvp<double>(const Pool&, i64, const double*, const double*, double*, double, double, bool);
template void smooth_max_pool_vjp<float>(const Pool&, i64, const float*, const float*, float*, float, bool, double*);
template void smooth_max_pool_vjp<double>(const Pool&, i64, const double*, const double*, double*, double, bool, double*);

}  // namespace lunette::LN_ISA
