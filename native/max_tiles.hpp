// The derivative of the greatest cells of windows that share no cell.
#pragma once
#include "max_join.hpp"
#include "tiles.hpp"

namespace lunette::LN_ISA {
namespace {

// dx where ties go to the first, in one pass: winners are found and written while their cells are at hand. For inner
// strides of 1, 2 and 4 without padding.
template <class T>
class Tiles : public TileWindows {
    using I = Int<T>;
    static constexpr int L = lanes<T>;

public:
    // The ends are those of the whole arrays, past which nothing is read.
    Tiles(const Pool& pool, const T* x_end, const T* g_end)
        : TileWindows(pool), x_end_(x_end), g_end_(g_end) {}

    void operator()(i64 planes, const T* x, const T* g, T* dx) const {
        over_parts(pool_, planes, [&](i64 p0, i64 p1, i64 o0, i64 o1) {
            WindowRows rows;
            for (i64 p = p0; p < p1; ++p) {
                const T *xp = x + p * pool_.cells_in, *gp = g + p * pool_.cells_out;
                if (ax_.stride == 1) part<1>(rows, xp, gp, dx + p * pool_.cells_in, o0, o1);
                else if (ax_.stride == 2) part<2>(rows, xp, gp, dx + p * pool_.cells_in, o0, o1);
                else part<4>(rows, xp, gp, dx + p * pool_.cells_in, o0, o1);
            }
        });
    }

private:
    // The outputs o0..o1-1 of axis 0 of one plane.
    template <int S>
    void part(WindowRows& rows, const T* x, const T* g, T* dx, i64 o0, i64 o1) const {
        each_tile_row(pool_, size_, rows, o0, o1, dx, [&](i64 at, const i64* places, i64 many, i64 o, i64 m, i64 left) {
            row<S>(x + at, places, many, g + o, dx + at, m, left);
        });
    }

    // One row of m outputs, whose windows have the rows of inputs at `places`; the last of these may write `left` cells.
    template <int S>
    void row(const T* x, const i64* places, i64 many, const T* g, T* dx, i64 m, i64 left) const {
        if (m >= L) {
            i64 t = 0;
            for (; t + L <= m; t += L) block<S>(x + t * S, places, many, g + t, dx + t * S);
            if (t < m) block<S>(x + (m - L) * S, places, many, g + (m - L), dx + (m - L) * S);
        } else {
            // Fewer than a vector: what is read too much is not used, what is written too much is written again.
            if (left >= S * L && x_end_ - (x + places[many - 1]) >= S * L && g_end_ - g >= L) {
                block<S>(x, places, many, g, dx);
            } else {
                T given[L] = {};
                for (i64 q = 0; q < m; ++q) given[q] = g[q];
                T in[WindowRows::most * S * L], out[WindowRows::most * S * L];
                i64 at[WindowRows::most];
                for (i64 r = 0; r < many; ++r) {
                    at[r] = r * S * L;
                    for (i64 i = 0; i < S * L; ++i) in[at[r] + i] = i < m * S ? x[places[r] + i] : T(0);
                }
                block<S>(in, at, many, given, out);
                for (i64 r = 0; r < many; ++r)
                    std::memcpy(static_cast<void*>(dx + places[r]), out + at[r], m * S * sizeof(T));
            }
        }
        if (pool_.rank > 1 && m * S < ax_.n)
            for (i64 r = 0; r < many; ++r)
                for (i64 i = m * S; i < ax_.n; ++i) dx[places[r] + i] = 0;
    }

    template <int S>
    [[gnu::always_inline]] inline void block(const T* x, const i64* places, i64 many, const T* g, T* dx) const {
        const bool done = ax_.taps == S ? some<S, S, false>(x, places, many, g, dx)
                                        : some<S, 0, false>(x, places, many, g, dx);
        if (!done) some<S, 0, true>(x, places, many, g, dx);
    }

    // L windows. False, and nothing written, if one of them holds NaN, which only `careful` can do. K taps, or ax_.taps.
    template <int S, int K, bool careful>
    [[gnu::always_inline]] inline bool some(const T* x, const i64* places, i64 many, const T* g, T* dx) const {
        const int k = K ? K : static_cast<int>(ax_.taps);
        Vec<T, L> v[S], best, share = load<L>(g);
        Vec<I, L> code{}, odd{};
        I next = 0;
        for (i64 r = 0; r < many; ++r) {
            take_apart<S, L>(x + places[r], v);
            for (int e = 0; e < k; ++e, ++next) {
                if constexpr (!careful) odd |= v[e] != v[e];
                if (next == 0) {
                    best = v[0];
                    continue;
                }
                auto later = later_wins<careful>(best, v[e]);
                best = later ? v[e] : best, code = later ? splat<L>(next) : code;
            }
        }
        if (!careful && any(odd)) return false;
        next = 0;
        for (i64 r = 0; r < many; ++r) {
            for (int e = 0; e < S; ++e) {
                v[e] = splat<L>(T(0));
                if (e < k) v[e] = code == next++ ? share : v[e];
            }
            interleave<S, false, T>(v, dx + places[r]);
        }
        return true;
    }

    const T *x_end_, *g_end_;
};

}  // namespace
}  // namespace lunette::LN_ISA
