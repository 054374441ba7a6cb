// The derivative of the greatest cells of windows that share no cell, whose winners are known by their numbers.
#pragma once
#include "max_numbers.hpp"
#include "tiles.hpp"

namespace lunette::LN_ISA {
namespace {

// Every output writes all cells of its window, once. For inner strides of 1, 2 and 4 without padding.
template <class T>
class TileAwards {
    using I = Int<T>;
    static constexpr int L = lanes<T>;

public:
    static bool suits(const Pool& pool) {
        const i64 stride = pool.axes[pool.rank - 1].stride;
        return share_no_cell(pool) && (stride == 1 || stride == 2 || stride == 4);
    }

    explicit TileAwards(const Pool& pool) : pool_(pool), ax_(pool.axes[pool.rank - 1]) {
        i64 size = 1;
        for (int a = pool.rank - 1; a >= 0; --a) size_[a] = size, size *= pool.axes[a].n;
    }

    void operator()(i64 planes, const std::uint8_t* numbers, const T* g, T* dx) const {
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

    const Pool& pool_;
    const PoolAxis& ax_;
    i64 size_[max_axes];  // cells of one step along an axis
};

}  // namespace
}  // namespace lunette::LN_ISA
