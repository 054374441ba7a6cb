// How large numbers are: whether products with them keep their digits, the least and the greatest of them.
#pragma once
#include "elementary.hpp"
#include "sum.hpp"

namespace lunette::LN_ISA {
namespace {

// Lanes that are neither zero nor of middling size, so that products with terms might overflow or underflow.
template <class T, class V>
[[gnu::always_inline]] inline auto untame(V v) {
    const T low = std::ldexp(T(1), -Format<T>::tame), high = std::ldexp(T(1), Format<T>::tame);
    const V a = v < T(0) ? -v : v;
    return ~((a >= low) & (a <= high)) & (a != T(0));
}

// The greatest magnitude of cells, or NaN if one is.
template <class T, int N>
class Magnitude {
    using I = Vec<Int<T>, N>;
    // All bits but the sign: greater numbers have greater ones, NaN the greatest.
    static constexpr Int<T> size = std::numeric_limits<Int<T>>::max();
    I most_{};

public:
    [[gnu::always_inline]] void meet(Vec<T, N> v) {
        const I b = bits<I>(v) & size;
        most_ = b > most_ ? b : most_;
    }
    void meet(const Magnitude& other) { most_ = other.most_ > most_ ? other.most_ : most_; }
    T greatest() const {
        if constexpr (N == 1) return bits<T>(most_);
        else return bits<T>(fold<N>(most_, [](auto p, auto q) { return p > q ? p : q; }));
    }
};

// Whether all cells are zero or of middling size, so that products with terms neither overflow nor underflow.
template <class T>
bool all_tame(const T* x, i64 n) {
    constexpr int L = lanes<T>;
    Vec<Int<T>, L> wild{};
    i64 i = 0;
    for (; i + L <= n; i += L) wild |= untame<T>(load<L>(x + i));
    bool rest = false;
    for (; i < n; ++i) rest |= untame<T>(Vec<T, 1>(x[i])) != 0;
    return !rest && !any(wild);
}

// The greatest magnitude of n cells, or NaN if one is. f.<N>(i, cells i..i+N-1) meets all cells on the way, some of them twice.
template <class T, class F>
T greatest_magnitude(const T* x, i64 n, F&& f) {
    constexpr int L = lanes<T>;
    Magnitude<T, L> even, odd;
    Magnitude<T, 1> last;
    auto one = [&](i64 at, Magnitude<T, L>& seen) __attribute__((always_inline)) {
        const auto v = load<L>(x + at);
        seen.meet(v);
        f.template operator()<L>(at, v);
    };
    i64 i = 0;
    for (; i + 2 * L <= n; i += 2 * L) one(i, even), one(i + L, odd);
    if (i + L <= n) one(i, even), i += L;
    if (i < n && n >= L) one(n - L, odd), i = n;
    for (; i < n; ++i) last.meet(x[i]), f.template operator()<1>(i, x[i]);
    even.meet(odd), last.meet(even.greatest());
    return last.greatest();
}

// The least and the greatest of n cells; false if some cell is not finite. f.<N>(i, cells i..i+N-1) meets all cells on the
// way, some of them twice.
template <bool magnitude, class T, class F>
bool range(const T* x, i64 n, T& least, T& greatest, F&& f) {
    constexpr int L = lanes<T>;
    constexpr T most = std::numeric_limits<T>::max();
    auto lo = splat<L>(most), hi = splat<L>(-most);
    Vec<Int<T>, L> nan{};
    auto meet = [&](Vec<T, L> v) {
        auto w = v;
        if constexpr (magnitude) {
            v = v < T(0) ? -v : v;
            w = v == T(0) ? splat<L>(most) : v;  // of magnitudes, the least that is not zero
        }
        lo = w < lo ? w : lo, hi = v > hi ? v : hi;
    };
    i64 i = 0;
    for (; i + 2 * L <= n; i += 2 * L) {
        const auto a = load<L>(x + i), b = load<L>(x + i + L);
        nan |= either_nan(a, b), meet(a), meet(b);
        f.template operator()<L>(i, a), f.template operator()<L>(i + L, b);
    }
    auto one = [&](i64 at) {
        const auto v = load<L>(x + at);
        nan |= v != v, meet(v);
        f.template operator()<L>(at, v);
    };
    if (i + L <= n) one(i), i += L;
    if (i < n && n >= L) one(n - L), i = n;
    for (; i < n; ++i) {
        const auto v = splat<L>(x[i]);
        nan |= v != v, meet(v);
        f.template operator()<1>(i, x[i]);
    }
    least = fold<L>(lo, [](auto p, auto q) { return p < q ? p : q; });
    greatest = fold<L>(hi, [](auto p, auto q) { return p > q ? p : q; });
    return !any(nan) && least >= -most && greatest <= most;
}

// Numbers too small to be tame, times a power of two that makes them so, if their greatest is small: what is then too small
// beside that changes results by less than the least number there is.
template <class T>
class Lift {
public:
    // Whether these n numbers are tame, or can be.
    bool fits(const T* x, i64 n) {
        if (all_tame(x, n)) return true;
        T least, greatest;
        if (!range<true>(x, n, least, greatest, []<int N>(i64, Vec<T, N>) {}) || greatest > 256) return false;
        power_ = Format<T>::tame - 1 - std::ilogb(greatest);
        return true;
    }
    bool needed() const { return power_ != 0; }
    double down(double y) const { return std::ldexp(y, -power_); }
    // y = x * 2^power, in place or not, and back.
    void up(const T* x, i64 n, T* y) const { times(power_, x, n, y); }
    void back(i64 n, T* y) const { times(-power_, y, n, y); }

private:
    static void times(int power, const T* x, i64 n, T* y) {
        const T first = std::ldexp(T(1), power / 2), second = std::ldexp(T(1), power - power / 2);
        each_vector<T>(n, [&]<int N>(i64 i) { store<N>(y + i, load<N>(x + i) * first * second); });
    }
    int power_ = 0;
};

}  // namespace
}  // namespace lunette::LN_ISA
