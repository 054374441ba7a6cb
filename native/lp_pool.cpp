// (sum |x|^p)^(1/p) over each window.
#include "operators.hpp"
#include "weighted.hpp"

namespace lunette::LN_ISA {
namespace {

template <class T>
class LpNorm {
public:
    using Scalar = T;
    static constexpr bool has_slope = false, terms_are_weights = false, counts_absent = false;

    explicit LpNorm(T p) : p_(p) {
        if (!std::isfinite(p)) return;
        power_ = Exponent<T>::of(p), less_ = Exponent<T>::of(static_cast<long double>(p) - 1);
        root_ = Exponent<T>::of(1 / static_cast<long double>(p));
        conjugate_ = Exponent<T>::of((static_cast<long double>(p) - 1) / static_cast<long double>(p));
    }
    T beta() const { return 1; }
    T absent() const { return 0; }

    bool terms(const T* x, i64 n, T* e) {
        if (!ready(x, n)) return false;
        if (p_ == 1) raise<1>(x, n, e);
        else if (p_ == 2) raise<2>(x, n, e);
        else if (p_ == 3) raise<3>(x, n, e);
        else raise<0>(x, n, e);
        return true;
    }
    void times_weights(const T* x, i64 n, T* d) const {
        if (p_ == 1) return weigh<1>(x, n, d);
        if (p_ == 2) return weigh<2>(x, n, d);
        if (p_ == 3) return weigh<3>(x, n, d);
        weigh<0>(x, n, d);
    }
    void values(const T* s, i64 n, T* y) const {
        if (p_ == 1) {
            for (i64 i = 0; i < n; ++i) y[i] = s[i] * unscale_;
        } else if (p_ == 2) {
            for (i64 i = 0; i < n; ++i) y[i] = std::sqrt(s[i]) * unscale_;
        } else {
            each_vector<T>(n, [&]<int N>(i64 i) { store<N>(y + i, power<T>(load<N>(s + i), root_) * unscale_); });
        }
    }
    // y^(p-1) with y scaled like the cells; a sum of zeros has weights 0, whatever it is divided by.
    void denominators(const T* s, i64 n, T* d) const {
        each_vector<T>(n, [&]<int N>(i64 i) {
            auto v = load<N>(s + i);
            store<N>(d + i, v == T(0) ? splat<N>(T(1)) : v);
        });
        if (p_ == 1) for (i64 i = 0; i < n; ++i) d[i] = 1;
        else if (p_ == 2) for (i64 i = 0; i < n; ++i) d[i] = std::sqrt(d[i]);
        else each_vector<T>(n, [&]<int N>(i64 i) { store<N>(d + i, power<T>(load<N>(d + i), conjugate_)); });
    }

    // Of squares that need no scale (WeightedTiles).
    bool unscale() {
        scale_ = unscale_ = 1;
        return true;
    }
    bool plain() const { return p_ == 2; }
    template <class V>
    [[gnu::always_inline]] V term(V v) const { return rounded_product(v, v); }  // as where terms are kept
    template <class V>
    [[gnu::always_inline]] V denominator(V s) const { return square_root<T>(V(s == T(0) ? s + T(1) : s)); }
    template <class V>
    [[gnu::always_inline]] V weight(V v, V) const { return v; }
    template <int N>
    struct Tally {
        using I = Vec<Int<T>, N>;
        Magnitude<T, N> most;
        I least = I{} + std::numeric_limits<Int<T>>::max();  // less one, so that zero is the greatest
        [[gnu::always_inline]] void meet(Vec<T, N> v) {
            most.meet(v);
            const I b = ((bits<I>(v) & std::numeric_limits<Int<T>>::max()) - 1) & std::numeric_limits<Int<T>>::max();
            least = b < least ? b : least;
        }
        bool fine(const LpNorm& model) const {
            const T greatest = most.greatest();
            const Int<T> low = fold<N>(least, [](auto p, auto q) { return p < q ? p : q; });
            return greatest == 0 || (greatest <= std::numeric_limits<T>::max() && model.unscaled(bits<T>(low + 1), greatest));
        }
    };

    struct Window {
        using W = Wide<T>;
        W p, top, sum, value;
        i64 place, winners;
        W weight(i64 i, T x) const {
            if (value != value) return value;
            const W sign = x > 0 ? 1 : x < 0 ? -1 : 0;
            if (winners > 0) return std::isinf(x) ? sign / winners : W(0);
            if (std::isinf(p)) return i == place ? sign : W(0);
            if (top == 0) return 0;
            return sign * std::pow(std::fabs(W(x)) / top, p - 1) / std::pow(sum, (p - 1) / p);
        }
    };
    Window look(const Pool& pool, const T* x, i64 output) const {
        using W = Wide<T>;
        Window w{p_, 0, 0, 0, -1, 0};
        bool nan = false;
        each_cell(pool, output, [&](i64 i) {
            W a = std::fabs(W(x[i]));
            nan = nan || a != a;
            if (a > w.top || w.place < 0) w.top = a, w.place = i;
            w.winners += std::isinf(x[i]);
        });
        w.value = nan ? std::numeric_limits<W>::quiet_NaN() : w.top;
        if (nan || w.winners > 0 || w.top == 0 || std::isinf(p_)) return w;
        each_cell(pool, output, [&](i64 i) { w.sum += std::pow(std::fabs(W(x[i])) / w.top, w.p); });
        w.value = w.top * std::pow(w.sum, 1 / w.p);
        return w;
    }

private:
    // Whether that holds without a scale of cells of magnitudes in this range.
    bool unscaled(T least, T greatest) const {
        const int low = std::ilogb(least), high = std::ilogb(greatest) + 1;
        return std::max(std::abs(low), std::abs(high)) * p_ <= Format<T>::spread;
    }
    // All (|x| * scale_)^p, and the same to the power p-1, must be 0 or within 2^+-spread.
    bool ready(const T* x, i64 n) {
        T least = 1, greatest = 1;
        if (!(p_ <= 64) || (n > 0 && !range<true>(x, n, least, greatest, []<int N>(i64, Vec<T, N>) {}))) return false;
        if (greatest == 0) least = greatest = 1;
        const int low = std::ilogb(least), high = std::ilogb(greatest) + 1, middle = (low + high) / 2;
        unscale();
        if (unscaled(least, greatest)) return true;  // most data
        if (low <= -Format<T>::bias) {  // as far up as one power of two goes
            const int up = std::min(-middle, Format<T>::bias);
            scale_ = std::ldexp(T(1), up), unscale_ = std::ldexp(T(1), -up);
            return std::max(std::abs(low + up), std::abs(high + up)) * p_ <= Format<T>::spread;
        }
        if ((high - low) * p_ > 2 * (Format<T>::spread - 1) || std::abs(middle) > Format<T>::bias - 30) return false;
        scale_ = std::ldexp(T(1), -middle), unscale_ = std::ldexp(T(1), middle);
        return true;
    }
    // K = p when p is a small integer, else 0.
    template <int K>
    void raise(const T* x, i64 n, T* e) const {
        each_vector<T>(n, [&]<int N>(i64 i) {
            auto v = load<N>(x + i) * scale_, a = (v < T(0) ? -v : v) + T(0);  // no -0
            if constexpr (K == 1) store<N>(e + i, a);
            else if constexpr (K == 2) store<N>(e + i, v * v);
            else if constexpr (K == 3) store<N>(e + i, a * a * a);
            else store<N>(e + i, power<T>(a, power_));
        });
    }
    template <int K>
    void weigh(const T* x, i64 n, T* d) const {
        each_vector<T>(n, [&]<int N>(i64 i) {
            auto v = load<N>(x + i) * scale_, a = v < T(0) ? -v : v, t = load<N>(d + i), w = v;
            if constexpr (K == 3) w = v * a;
            if constexpr (K == 0 || K == 1) {
                if constexpr (K == 0) w = power<T>(a, less_); else w = splat<N>(T(1));
                w = v < T(0) ? -w : w;
                w = v == T(0) ? splat<N>(T(0)) : w;
            }
            store<N>(d + i, t * w);
        });
    }

    T p_, scale_ = 1, unscale_ = 1;
    Exponent<T> power_{}, less_{}, root_{}, conjugate_{};
};

}  // namespace

template <class T>
void lp_pool(const Pool& pool, i64 planes, const T* x, T* y, T p) {
    weighted_pool(LpNorm<T>(p), pool, planes, x, y);
}

template <class T>
void lp_pool_jvp(const Pool& pool, i64 planes, const T* x, const T* t, T* dy, T p) {
    weighted_pool_jvp(LpNorm<T>(p), pool, planes, x, t, dy, T(0));
}

template <class T>
void lp_pool_vjp(const Pool& pool, i64 planes, const T* x, const T* g, T* dx, T p) {
    weighted_pool_vjp(LpNorm<T>(p), pool, planes, x, g, dx, nullptr);
}

template void lp_pool<float>(const Pool&, i64, const float*, float*, float);
template void lp_pool<double>(const Pool&, i64, const double*, double*, double);
template void lp_pool_jvp<float>(const Pool&, i64, const float*, const float*, float*, float);
template void lp_pool_jvp<double>(const Pool&, i64, const double*, const double*, double*, double);
template void lp_pool_vjp<float>(const Pool&, i64, const float*, const float*, float*, float);
template void lp_pool_vjp<double>(const Pool&, i64, const double*, const double*, double*, double);

}  // namespace lunette::LN_ISA
