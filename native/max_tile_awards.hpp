// The derivative of the greatest cells of windows that share no cell, whose winners are known by their numbers.
#pragma once
#include "max_numbers.hpp"
#include "tiles.hpp"

namespace lunette::LN_ISA {
namespace {

// Every output writes all cells of its window, once. For inner strides of 1, 2 and 4 without padding.
template <class T>
class TileAwards : public TileWindows {
    using I = Int<T>;
    static constexpr int L = lanes<T>;

public:
    using TileWindows::TileWindows;

    void operator()(i64 planes, const std::uint8_t* numbers, const T* g, T* dx) const {
        if (are_quarters()) return quarters(planes, numbers, g, dx);
        over_parts(pool_, planes, [&](i64 p0, i64 p1, i64 o0, i64 o1) {
            WindowRows rows;
            for (i64 p = p0; p < p1; ++p) {
                const i64 at = p * pool_.cells_out;
                T* const to = dx + p * pool_.cells_in;
                if (ax_.stride == 1) part<1, 0>(rows, numbers + at, g + at, to, o0, o1);
                else if (ax_.stride == 2 && ax_.taps == 2) part<2, 2>(rows, numbers + at, g + at, to, o0, o1);
                else if (ax_.stride == 2) part<2, 0>(rows, numbers + at, g + at, to, o0, o1);
                else part<4, 0>(rows, numbers + at, g + at, to, o0, o1);
            }
        });
    }

private:
    // Two by two cells to an output, and none left: the rows of all planes are one long list of rows.
    bool are_quarters() const {
        bool all = pool_.rank == 2;
        for (int a = 0; a < 2 && all; ++a) {
            const PoolAxis& ax = pool_.axes[a];
            all = ax.regular && ax.start == 0 && ax.stride == 2 && ax.taps == 2 && ax.step == 1 && ax.n == 2 * ax.m;
        }
        return all;
    }

    void quarters(i64 planes, const std::uint8_t* numbers, const T* g, T* dx) const {
        const i64 m = ax_.m, n = ax_.n, top = pool_.axes[0].m;
        const std::uint8_t* const end = numbers + planes * pool_.cells_out;
        const T* const g_end = g + planes * pool_.cells_out;
        over_parts(pool_, planes, [&](i64 p0, i64 p1, i64 o0, i64 o1) {
            Vec<I, L> mine[4];
            for (int k = 0; k < 4; ++k) mine[k] = kept(splat<L>(I(k)));
            i64 r = p0 * top + o0;
            const i64 last = (p1 - 1) * top + o1;  // more than one plane has all its rows
            if (2 * m == L)  // two rows at a time
                for (; r + 2 <= last; r += 2) {
                    const auto winner = load_numbers<T>(numbers + r * m);
                    const auto share = load<L>(g + r * m);
                    for (int k = 0; k < 4; k += 2) {
                        Vec<T, L> one, two;
                        auto part = [&](int e) { return bits<Vec<T, L>>((winner == mine[k + e]) & bits<Vec<I, L>>(share)); };
                        zip<L>(part(0), part(1), one, two);
                        soon_written(dx + (2 * r + k / 2) * n), soon_written(dx + (2 * r + 2 + k / 2) * n);
                        store<L>(dx + (2 * r + k / 2) * n, one), store<L>(dx + (2 * r + 2 + k / 2) * n, two);
                    }
                }
            for (; r < last; ++r) {
                const std::uint8_t* const from = numbers + r * m;
                const T* const given = g + r * m;
                T* const to = dx + 2 * r * n;
                for (i64 t = 0; t < m; t += L) {
                    if (t + L > m && m >= L) t = m - L;
                    const auto winner = load_some_numbers<T>(from + t, end);
                    Vec<T, L> share{}, low, high;
                    if (g_end - given >= t + L) share = load<L>(given + t);
                    else std::memcpy(&share, given + t, static_cast<std::size_t>(g_end - given - t) * sizeof(T));
                    for (int k = 0; k < 4; k += 2) {
                        T* const at = to + k / 2 * n + 2 * t;
                        auto part = [&](int e) { return bits<Vec<T, L>>((winner == mine[k + e]) & bits<Vec<I, L>>(share)); };
                        zip<L>(part(0), part(1), low, high);
                        soon_written(at), soon_written(at + L);
                        if (m >= L) store<L>(at, low), store<L>(at + L, high);
                        else store_some<L>(at, low, n), store_some<L>(at + L, high, n - L);
                    }
                }
            }
        });
    }

    // The outputs o0..o1-1 of axis 0 of one plane. K taps along a row, or as many as there are.
    template <int S, int K>
    void part(WindowRows& rows, const std::uint8_t* numbers, const T* g, T* dx, i64 o0, i64 o1) const {
        each_tile_row(pool_, size_, rows, o0, o1, dx, [&](i64 at, const i64* places, i64 many, i64 o, i64 m, i64 left) {
            if (K == 2 && many == 2) row<S, K, (K ? 2 : 0)>(numbers + o, g + o, dx + at, places, many, m, left);
            else row<S, K, 0>(numbers + o, g + o, dx + at, places, many, m, left);
        });
    }

    // One row of m outputs, whose windows have the rows of inputs at `places`; the last of these may write `left` cells.
    template <int S, int K, int R>
    [[gnu::always_inline]] inline void row(const std::uint8_t* numbers, const T* g, T* dx, const i64* places, i64 many, i64 m,
                                           i64 left) const {
        const int k = K ? K : static_cast<int>(ax_.taps);
        const i64 count = R ? R : many;
        auto some = [&](const std::uint8_t* number, const T* given, i64 hop, T* to) {  // rows `hop` apart, or at `places`
            const auto winner = load_numbers<T>(number);
            const auto share = bits<Vec<I, L>>(load<L>(given));
            I next = 0;
            for (i64 r = 0; r < count; ++r) {
                Vec<T, L> v[S];
                for (int e = 0; e < S; ++e) {
                    v[e] = splat<L>(T(0));
                    if (e < k) v[e] = bits<Vec<T, L>>((winner == next) & share), ++next;
                }
                interleave<S, false, T>(v, to + (hop ? r * hop : places[r]));
            }
        };
        if (m >= L) {
            i64 t = 0;
            for (; t + L <= m; t += L) some(numbers + t, g + t, 0, dx + t * S);
            if (t < m) some(numbers + m - L, g + m - L, 0, dx + (m - L) * S);
        } else {
            // Fewer than a vector: what is written too much is written again.
            std::uint8_t number[2 * L] = {};
            T given[L] = {}, out[WindowRows::most * S * L];
            std::memcpy(number, numbers, m), std::memcpy(static_cast<void*>(given), g, m * sizeof(T));
            if (left >= S * L) {
                some(number, given, 0, dx);
            } else {
                some(number, given, S * L, out);
                for (i64 r = 0; r < count; ++r)
                    std::memcpy(static_cast<void*>(dx + places[r]), out + r * S * L, m * S * sizeof(T));
            }
        }
        if (pool_.rank > 1 && m * S < ax_.n)
            for (i64 r = 0; r < count; ++r)
                for (i64 i = m * S; i < ax_.n; ++i) dx[places[r] + i] = 0;
    }
};

}  // namespace
}  // namespace lunette::LN_ISA
