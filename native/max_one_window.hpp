// Derivatives of the greatest cell of a whole plane.
#pragma once
#include "long_sum.hpp"
#include "max_join.hpp"

namespace lunette::LN_ISA {
namespace {

template <class T>
bool one_window(const Pool& pool) {
    return pool.rank == 1 && pool.axes[0].whole;
}

// f(i, x[i], whether cell i wins) for all cells of a plane, the last vector possibly twice: N at a time, or singly where
// the plane is shorter than that.
template <class T, class F>
inline void each_winner(const T* x, i64 n, T best, F&& f) {
    if (best == best) sweep<T>(n, [&]<int N>(i64 i) { f.template operator()<N>(i, load<N>(x + i) == best); });
    else sweep<T>(n, [&]<int N>(i64 i) { auto v = load<N>(x + i); f.template operator()<N>(i, v != v); });
}

// The greatest cell of a plane, NaN if it holds one.
template <class T>
T greatest(const T* x, i64 n) {
    constexpr int L = lanes<T>;
    if (scan_special<false>(x, n)) return std::numeric_limits<T>::quiet_NaN();
    if (n >= 2 * L) return MaxValue<T>::run({x, 0}, 0, n).v;
    T best = x[0];
    for (i64 i = 1; i < n; ++i) best = x[i] > best ? x[i] : best;
    return best;
}

template <class T>
i64 first_winner(const T* x, i64 n, T best) {
    if (best == best) return first_equal(x, n, best);
    i64 i = 0;
    while (x[i] == x[i]) ++i;
    return i;
}

// The number of winners, and the sum of t over them.
template <class T>
T sum_of_winners(const T* x, const T* t, i64 n, T best, i64& winners) {
    constexpr int L = lanes<T>;
    LongSum<T> total;  // winners may be far apart
    winners = 0;
    constexpr i64 block = 224;  // with the lanes and the rest, the terms of one block
    for (i64 j = 0; j < n; j += block * L) {
        auto part = splat<L>(-T(0));
        Vec<Int<T>, L> found{};
        T rest = -T(0);
        const i64 size = std::min(block * L, n - j), whole = size - size % L;
        each_winner(x + j, whole, best, [&]<int N>(i64 i, auto wins) {
            if constexpr (N == L) part += wins ? load<L>(t + j + i) : splat<L>(-T(0)), found -= wins;
        });
        for (i64 i = j + whole; i < j + size; ++i)
            if (best == best ? x[i] == best : x[i] != x[i]) rest += t[i], ++winners;
        for (int l = 0; l < L; ++l) winners += found[l];
        total.add_block(fold<L>(part, [](auto a, auto b) { return a + b; }) + rest);
    }
    return total.total();
}

// For each of L rows of cells, whose greatest are known: f(row, winning lanes, those of them not seen before, place) for all
// its vectors. Returns how many winners each row has.
template <class T, class F>
inline Vec<Int<T>, lanes<T>> each_winner_of_rows(const T* x, i64 n, Vec<T, lanes<T>> best, F&& f) {
    constexpr int L = lanes<T>;
    const auto fresh = iota<L, Int<T>>(0, 1) >= static_cast<Int<T>>(L - n % L);
    Vec<Int<T>, L> winners[L];
#pragma GCC unroll 16
    for (int r = 0; r < L; ++r) {
        const auto top = splat<L>(best[r]);
        Vec<Int<T>, L> mine{};
        for (i64 i = r * n; i + L <= (r + 1) * n; i += L) {
            const auto wins = load<L>(x + i) == top;
            mine -= wins, f(r, wins, wins, i);
        }
        if (n % L) {
            const auto wins = load<L>(x + (r + 1) * n - L) == top;
            mine -= wins & fresh, f(r, wins, wins & fresh, (r + 1) * n - L);
        }
        winners[r] = mine;
    }
    return fold_each<L>(winners, [](auto a, auto b) { return a + b; });
}

// L small planes at once; false if that needs a closer look.
template <class T>
bool one_window_jvps(i64 n, const T* x, const T* t, T* dy, Ties ties) {
    constexpr int L = lanes<T>;
    Vec<T, L> best, sum[L];
    if (!greatest_of_rows(x, n, best)) return false;
    for (auto& s : sum) s = splat<L>(-T(0));  // -0 changes no sum
    const auto winners = each_winner_of_rows(x, n, best, [&](int r, auto, auto wins, i64 i) {
        sum[r] += wins ? load<L>(t + i) : splat<L>(-T(0));
    });
    if (ties == Ties::first && any(winners > 1)) return false;
    auto total = fold_each<L>(sum, [](auto a, auto b) { return a + b; });
    if (ties == Ties::split) total /= __builtin_convertvector(winners, Vec<T, L>);
    store<L>(dy, total);
    return true;
}

// The lanes of a comparison that are true, as bits.
template <int N, class M>
inline std::uint32_t bits_of(M mask) {
#if defined(__AVX512F__)
    if constexpr (sizeof(M) == 64 && N == 16) return _mm512_movepi32_mask(bits<__m512i>(mask));
    else if constexpr (sizeof(M) == 64 && N == 8) return _mm512_movepi64_mask(bits<__m512i>(mask));
    else
#elif defined(__AVX2__)
    if constexpr (sizeof(M) == 32 && N == 8) return static_cast<std::uint32_t>(_mm256_movemask_ps(bits<__m256>(mask)));
    else if constexpr (sizeof(M) == 32 && N == 4) return static_cast<std::uint32_t>(_mm256_movemask_pd(bits<__m256d>(mask)));
    else
#endif
    {
        std::uint32_t found = 0;
        for (int l = 0; l < N; ++l) found |= static_cast<std::uint32_t>(mask[l] != 0) << l;
        return found;
    }
}

// The first cell of a row that equals `top`; there is one. Where it is no branch depends on.
template <class T>
i64 first_of_row(const T* x, i64 n, Vec<T, lanes<T>> top) {
    constexpr int L = lanes<T>;
    i64 place = 0;
    for (i64 i = n - L; i > -L; i -= L) {
        const i64 at = std::max<i64>(i, 0);
        const std::uint32_t wins = bits_of<L>(load<L>(x + at) == top);
        place = wins ? at + __builtin_ctz(wins) : place;
    }
    return place;
}

template <class T>
bool one_window_vjps(i64 n, const T* x, const T* g, T* dx, Ties ties) {
    constexpr int L = lanes<T>;
    Vec<T, L> best;
    if (ties == Ties::split || !greatest_of_rows(x, n, best)) return false;
    for (int r = 0; r < L; ++r, x += n, dx += n) {
        const auto top = splat<L>(best[r]);
        auto each = [&](auto f) {
            for (i64 i = 0; i + L <= n; i += L) f(i);
            if (n % L) f(n - L);
        };
        if (ties == Ties::all) {
            each([&](i64 i) { store<L>(dx + i, load<L>(x + i) == top ? splat<L>(g[r]) : splat<L>(T(0))); });
        } else {
            each([&](i64 i) { soon(x + i), soon_written(dx + i), store<L>(dx + i, splat<L>(T(0))); });
            dx[first_of_row(x, n, top)] = g[r];
        }
    }
    return true;
}

// Calls some(p) for L planes from p on, and one(p) for single planes where that is false or there are no L.
template <class T, class Some, class One>
inline void by_planes(i64 planes, i64 n, Some&& some, One&& one) {
    constexpr int L = lanes<T>;
    for (i64 p = 0; p < planes;) {
        const i64 next = std::min<i64>(planes, p + L);
        if (n >= L && n <= sum_block && next - p == L && some(p)) p = next;
        for (; p < next; ++p) one(p);
    }
}

template <class T>
void one_window_jvp(i64 planes, i64 n, const T* x, const T* t, T* dy, Ties ties) {
    auto one = [&](i64 p) {
        const T *xp = x + p * n, *tp = t + p * n, best = greatest(xp, n);
        i64 winners = 1;
        if (ties == Ties::first) dy[p] = tp[first_winner(xp, n, best)];
        else dy[p] = sum_of_winners(xp, tp, n, best, winners);
        if (ties == Ties::split) dy[p] /= static_cast<T>(winners);
    };
    by_planes<T>(planes, n, [&](i64 p) { return one_window_jvps(n, x + p * n, t + p * n, dy + p, ties); }, one);
}

template <class T>
void one_window_vjp(i64 planes, i64 n, const T* x, const T* g, T* dx, Ties ties) {
    auto one = [&](i64 p) {
        const T *xp = x + p * n, best = greatest(xp, n);
        T* to = dx + p * n;
        if (ties == Ties::first) {
            sweep<T>(n, [&]<int N>(i64 i) { soon(xp + i), store<N>(to + i, splat<N>(T(0))); });
            to[first_winner(xp, n, best)] = g[p];
            return;
        }
        i64 winners = 1;
        if (ties == Ties::split) sum_of_winners(xp, xp, n, best, winners);
        const T share = g[p] / static_cast<T>(winners);
        each_winner(xp, n, best, [&]<int N>(i64 i, auto wins) {
            store<N>(to + i, wins ? splat<N>(share) : splat<N>(T(0)));
        });
    };
    by_planes<T>(planes, n, [&](i64 p) { return one_window_vjps(n, x + p * n, g + p, dx + p * n, ties); }, one);
}

}  // namespace
}  // namespace lunette::LN_ISA
