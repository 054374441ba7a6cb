// The greatest of cells, alone or with its place: operations for Reducer.
#pragma once
#include <limits>

#include "reduce.hpp"

namespace lunette::LN_ISA {
namespace {

// Whether some cell is NaN, or, where absent cells are stood for by -inf and places matter, -inf.
template <bool lowest, class T>
bool scan_special(const T* x, i64 n) {
    constexpr int L = lanes<T>;
    constexpr T low = -std::numeric_limits<T>::infinity();
    auto odd = [](auto v) {
        if constexpr (lowest) return ~(v > low); else return v != v;
    };
    auto odd1 = [](T v) {
        if constexpr (lowest) return !(v > low); else return v != v;
    };
    i64 i = 0;
    Vec<Int<T>, L> found{};
    for (; i + 4 * L <= n; i += 4 * L) {
        auto a = load<L>(x + i), b = load<L>(x + i + L), c = load<L>(x + i + 2 * L), d = load<L>(x + i + 3 * L);
        if constexpr (lowest) found |= (odd(a) | odd(b)) | (odd(c) | odd(d));
        else found |= either_nan(a, b) | either_nan(c, d);
    }
    for (; i + L <= n; i += L) found |= odd(load<L>(x + i));
    bool rest = false;
    for (; i < n; ++i) rest |= odd1(x[i]);
    return rest || any(found);
}

// b where it is greater, else a, whatever that is: the earlier of equals, and a where either is NaN. (GCC 12 warns of the forms
// without a mask.)
template <class V>
[[gnu::always_inline]] inline V greater(V a, V b) {
#if defined(__AVX512F__)
    if constexpr (std::is_same_v<V, Vec<float, 16>>) return _mm512_maskz_max_ps(0xffff, b, a);
    else if constexpr (std::is_same_v<V, Vec<double, 8>>) return _mm512_maskz_max_pd(0xff, b, a);
    else
#endif
#if defined(__AVX2__)
    if constexpr (std::is_same_v<V, Vec<float, 8>>) return _mm256_max_ps(b, a);
    else if constexpr (std::is_same_v<V, Vec<double, 4>>) return _mm256_max_pd(b, a);
    else
#endif
    return b > a ? b : a;
}

#if defined(__AVX512DQ__)
// The lanes that are NaN or -0.
template <class V>
[[gnu::always_inline]] inline unsigned nan_or_negative_zero(V v) {
    constexpr int classes = 0x80 | 0x01 | 0x04;  // NaN of either kind, -0
    constexpr std::size_t lane = sizeof(v[0]);
    if constexpr (sizeof v == 64 && lane == 4) return _mm512_fpclass_ps_mask(bits<__m512>(v), classes);
    else if constexpr (sizeof v == 64) return _mm512_fpclass_pd_mask(bits<__m512d>(v), classes);
    else if constexpr (sizeof v == 32 && lane == 4) return _mm256_fpclass_ps_mask(bits<__m256>(v), classes);
    else if constexpr (sizeof v == 32) return _mm256_fpclass_pd_mask(bits<__m256d>(v), classes);
    else if constexpr (lane == 4) return _mm_fpclass_ps_mask(bits<__m128>(v), classes);
    else return _mm_fpclass_pd_mask(bits<__m128d>(v), classes);
}
#endif

// The cell 8 KiB behind p will be read soon. Of several rows at a time, processors do not foresee it.
template <class T>
inline void soon(const T* p) {
    __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(p) + (8 << 10)));
}

// The cell 4 KiB behind p will be written soon, maybe over what another processor wrote last.
template <class T>
inline void soon_written(T* p) {
    __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(p) + (4 << 10)), 1);
}

// b comes after a, so b wins only when it is greater; a NaN wins over all but an earlier NaN.
template <bool careful, class V>
inline auto later_wins(V a, V b) {
    if constexpr (!careful) return b > a;
    else if constexpr (sizeof(V) < 16) return (b > a) || (b != b && a == a);
    else return (b > a) | ((b != b) & (a == a));
}

// The greatest cells of L rows of n >= L cells each, one after the other; false if some cell is NaN. Of zeros, any.
template <class T>
bool greatest_of_rows(const T* x, i64 n, Vec<T, lanes<T>>& best) {
    constexpr int L = lanes<T>;
    Vec<T, L> top[L];
    for (auto& v : top) v = splat<L>(-std::numeric_limits<T>::infinity());
    Vec<Int<T>, L> nan{};
    each_of_rows<T>(x, n, -std::numeric_limits<T>::infinity(), [&](int r, Vec<T, L> v) __attribute__((always_inline)) {
        nan |= v != v, top[r] = greater(top[r], v);
    });
    best = fold_each<L>(top, [](auto a, auto b) { return b > a ? b : a; });
    return !any(nan);
}

template <class T, bool careful = false>
struct MaxValue {
    using Scalar = T;
    using Careful = MaxValue<T, true>;
    static constexpr bool idempotent = true, any_order = true;
    // Of equal zeros the first wins, sign and all; and NaN needs care.
    struct Order {
        static constexpr int L = lanes<T>;
#if defined(__AVX512DQ__)
        unsigned odd = 0;
#else
        Vec<Int<T>, L> nan{}, least{};
#endif
        bool here = false;
        template <int N>
        [[gnu::always_inline]] void meet(Vec<T, N> v) {
            constexpr Int<T> negative_zero = std::numeric_limits<Int<T>>::min();
            if constexpr (N == 1) {
                here |= v != v || bits<Int<T>>(v) == negative_zero;
            } else {
#if defined(__AVX512DQ__)
                odd |= nan_or_negative_zero(v);
#else
                if constexpr (N != L) return meet<L>(repeated<L, N>(v));
                else {
                    const auto b = bits<Vec<Int<T>, L>>(v);
                    nan |= v != v, least = b < least ? b : least;
                }
#endif
            }
        }
        template <int N>
        [[gnu::always_inline]] void meet(Vec<T, N> a, Vec<T, N> b) {
#if !defined(__AVX512DQ__)
            if constexpr (N == L) {
                const auto p = bits<Vec<Int<T>, L>>(a), q = bits<Vec<Int<T>, L>>(b), less = p < q ? p : q;
                nan |= either_nan(a, b), least = less < least ? less : least;
                return;
            }
#endif
            meet<N>(a), meet<N>(b);
        }
        template <int N>
        [[gnu::always_inline]] Vec<T, N> finish(Vec<T, N> v) { return v; }
#if defined(__AVX512DQ__)
        bool matters() const { return here || odd; }
#else
        bool matters() const { return here || any(nan) || any(least == std::numeric_limits<Int<T>>::min()); }
#endif
    };
    struct Watch {
        Vec<Int<T>, lanes<T>> nan{};
        [[gnu::always_inline]] void meet(Vec<T, lanes<T>> a, Vec<T, lanes<T>> b) { nan |= either_nan(a, b); }
        bool special() const { return any(nan); }
    };
    static constexpr std::size_t cell_bytes = sizeof(T);
    template <int N>
    struct Lanes {
        Vec<T, N> v;
    };
    template <int N>
    using Cell = typename MaxValue<T, false>::template Lanes<N>;

    struct Ref_ {
        T* v;
        Ref_ at(i64 i) const { return {v + i}; }
        template <int N>
        Cell<N> get(i64 i) const { return {load<N>(v + i)}; }
        template <int N>
        void put(i64 i, Cell<N> c) const { store<N>(v + i, c.v); }
    };
    struct Source_ {
        const T* v;
        i64 base;
        Source_ at(i64 i) const { return {v + i, base + i}; }
        template <int N>
        Cell<N> get(i64 i) const { return {load<N>(v + i)}; }
        template <int N>
        [[gnu::always_inline]] void pair(i64 i, Cell<N>& even, Cell<N>& odd) const {
            part_pairs<N>(v + i, even.v, odd.v);
        }
        template <class Op, int N, class See>
        Cell<N> fours(i64 i, See&& see) const {
            return {join_fours<N>(v + i, [](auto a, auto b) { return Op::join(Cell<N>{a}, Cell<N>{b}).v; }, see)};
        }
        template <class Op, int N>
        Cell<N> fours(i64 i) const { return fours<Op, N>(i, [](auto, auto) {}); }
        template <int N>
        Cell<N> spread(i64 i, i64 by) const { return {gather<N>(v + i, by)}; }
    };
    using Ref = typename MaxValue<T, false>::Ref_;
    using Source = typename MaxValue<T, false>::Source_;

    static Ref make(char*& memory, i64 cells) {
        Ref r{reinterpret_cast<T*>(memory)};
        memory += (cells * sizeof(T) + 63) / 64 * 64;
        return r;
    }
    static T pad() { return -std::numeric_limits<T>::infinity(); }
    static Cell<1> nothing() { return {pad()}; }
    static void fill(Ref, const T*, i64, i64) {}
    static bool scan(const T* x, i64 n) { return scan_special<false>(x, n); }
    static Cell<lanes<T>> column(const T* x, i64, i64) { return {load<lanes<T>>(x)}; }
    template <class F>
    static void arrays(Ref a, Ref b, F&& f) { f(a.v, b.v); }

    template <class C>
    static C join(C a, C b) {
        if constexpr (careful) return {later_wins<true>(a.v, b.v) ? b.v : a.v};
        else return {greater(a.v, b.v)};
    }

    static bool wholes(const T* x, i64 n, T* y) {
        constexpr int L = lanes<T>;
        Vec<T, L> best;
        if (!greatest_of_rows(x, n, best)) return false;
        store<L>(y, best);
        for (int r = 0; any(best == T(0)) && r < L; ++r) y[r] = first_zero(x + r * n, y[r]);
        return true;
    }

    // `best`, but a zero with the sign of the first.
    static T first_zero(const T* x, T best) {
        for (; best == 0; ++x)
            if (*x == 0) return *x;
        return best;
    }

    // No NaN here, so only the sign of a zero depends on the order.
    static Cell<1> run(Source s, i64 i, i64 n) {
        constexpr int L = lanes<T>;
        const T* x = s.v + i;
        Vec<T, L> c[4];
        for (auto& v : c) v = load<L>(x);
        i64 j = 0;
        for (; j + 4 * L <= n; j += 4 * L)
            for (int w = 0; w < 4; ++w) { auto v = load<L>(x + j + w * L); c[w] = v > c[w] ? v : c[w]; }
        for (; j + L <= n; j += L) { auto v = load<L>(x + j); c[0] = v > c[0] ? v : c[0]; }
        auto v = load<L>(x + n - L);
        for (int w = 0; w < 4; ++w) v = c[w] > v ? c[w] : v;
        return {first_zero(x, fold<L>(v, [](auto a, auto b) { return b > a ? b : a; }))};
    }
};

// The place of the first cell that equals `value`; there is one.
template <class T>
i64 first_equal(const T* x, i64 n, T value) {
    constexpr int L = lanes<T>;
    i64 i = 0;
    while (i + L <= n && !any(load<L>(x + i) == value)) i += L;
    while (x[i] != value) ++i;
    return i;
}

template <class T, bool careful = false>
struct MaxPlace {
    using Scalar = T;
    using I = Int<T>;
    using Careful = MaxPlace<T, true>;
    static constexpr bool idempotent = true, any_order = false;
    static constexpr std::size_t cell_bytes = 2 * sizeof(T);
    template <int N>
    struct Lanes {
        Vec<T, N> v;
        Vec<I, N> p;
    };
    template <int N>
    using Cell = typename MaxPlace<T, false>::template Lanes<N>;

    struct Ref_ {
        T* v;
        I* p;
        Ref_ at(i64 i) const { return {v + i, p + i}; }
        template <int N>
        Cell<N> get(i64 i) const { return {load<N>(v + i), load<N>(p + i)}; }
        template <int N>
        void put(i64 i, Cell<N> c) const { store<N>(v + i, c.v), store<N>(p + i, c.p); }
    };
    struct Source_ {
        const T* v;
        i64 base;
        Source_ at(i64 i) const { return {v + i, base + i}; }
        template <int N>
        Cell<N> get(i64 i) const { return {load<N>(v + i), iota<N, I>(0, 1) + static_cast<I>(base + i)}; }
        template <int N>
        [[gnu::always_inline]] void pair(i64 i, Cell<N>& even, Cell<N>& odd) const {
            part_pairs<N>(v + i, even.v, odd.v);
            even.p = iota<N, I>(0, 2) + static_cast<I>(base + i), odd.p = even.p + 1;
        }
        template <class Op, int N>
        Cell<N> fours(i64 i) const {
            Vec<T, N> cells[4];
            take_apart<4, N>(v + i, cells);
            auto cell = [&](int e) { return Cell<N>{cells[e], iota<N, I>(0, 4) + static_cast<I>(base + i + e)}; };
            return Op::join(Op::join(cell(0), cell(1)), Op::join(cell(2), cell(3)));
        }
        template <int N>
        Cell<N> spread(i64 i, i64 by) const {
            return {gather<N>(v + i, by), iota<N, I>(0, 1) * static_cast<I>(by) + static_cast<I>(base + i)};
        }
    };
    using Ref = typename MaxPlace<T, false>::Ref_;
    using Source = typename MaxPlace<T, false>::Source_;

    static Ref make(char*& memory, i64 cells) {
        i64 bytes = (cells * sizeof(T) + 63) / 64 * 64;
        Ref r{reinterpret_cast<T*>(memory), reinterpret_cast<I*>(memory + bytes)};
        memory += 2 * bytes;
        return r;
    }
    static T pad() { return -std::numeric_limits<T>::infinity(); }
    static Cell<1> nothing() { return {pad(), 0}; }
    static void fill(Ref r, const T*, i64 base, i64 n) {
        for (i64 i = 0; i < n; ++i) r.p[i] = static_cast<I>(base + i);
    }
    static bool scan(const T* x, i64 n) { return scan_special<true>(x, n); }
    static Cell<lanes<T>> column(const T* x, i64 place, i64 by) {
        return {load<lanes<T>>(x), iota<lanes<T>, I>(0, 1) * static_cast<I>(by) + static_cast<I>(place)};
    }
    template <class F>
    static void arrays(Ref a, Ref b, F&& f) { f(a.v, b.v), f(a.p, b.p); }

    template <class C>
    static C join(C a, C b) {
        auto later = later_wins<careful>(a.v, b.v);
        return {later ? b.v : a.v, later ? b.p : a.p};
    }

    static Cell<1> run(Source s, i64 i, i64 n) {
        const T* x = s.v + i;
        T best = MaxValue<T>::run({x, 0}, 0, n).v;
        i64 place = first_equal(x, n, best);
        return {x[place], static_cast<I>(s.base + i + place)};
    }
};

// Places as wide as T can count the cells of a plane.
template <class T>
bool places_fit(const Pool& pool) {
    return pool.cells_in <= std::numeric_limits<Int<T>>::max();
}

template <class T>
bool has_negative_zero(const T* x, i64 n) {
    constexpr int L = lanes<T>;
    constexpr auto sign = std::numeric_limits<Int<T>>::min();
    Vec<Int<T>, L> found{};
    i64 i = 0;
    for (; i + L <= n; i += L) found |= bits<Vec<Int<T>, L>>(load<L>(x + i)) == sign;
    bool rest = false;
    for (; i < n; ++i) rest |= bits<Int<T>>(x[i]) == sign;
    return rest || any(found);
}

}  // namespace
}  // namespace lunette::LN_ISA
