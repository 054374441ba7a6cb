// The derivative of the greatest cells of windows that share no cell.
#pragma once
#include "max_numbers.hpp"
#include "tiles.hpp"

namespace lunette::LN_ISA {
namespace {

// dx where ties go to the first, in one pass: winners are found and written while their cells are at hand. For inner
// strides of 1, 2 and 4 without padding.
template <class T>
class Tiles : public TileWindows {
    using I = Int<T>;
    static constexpr int L = lanes<T>;
    // Of rows that are shorter than two vectors, vectors of 32 bytes: longer ones would mostly lie across two lines of the
    // cache.
    static constexpr int short_lanes = std::min(L, 32 / static_cast<int>(sizeof(T)));

public:
    // The ends are those of the whole arrays, past which nothing is read.
    Tiles(const Pool& pool, const T* x_end, const T* g_end)
        : TileWindows(pool), x_end_(x_end), g_end_(g_end) {}

    void operator()(i64 planes, const T* x, const T* g, T* dx) const {
        const int outer = pool_.rank - 1;
        const PoolAxis& near = pool_.axes[std::max(0, outer - 1)];
        const bool clipped = !near.regular || near.full_lo > 0 || near.full_hi < near.m;
        const bool even = outer > 0 && !clipped && !pool_.transposed->has_empty;
        over_parts(pool_, planes, [&](i64 p0, i64 p1, i64 o0, i64 o1) {
            WindowRows rows;
            const bool all = outer == 1 && even && near.n == near.stride * near.m && o1 - o0 == near.m;
            for (i64 p = p0; p < p1; ++p) {
                const T *xp = x + p * pool_.cells_in, *gp = g + p * pool_.cells_out;
                T* const to = dx + p * pool_.cells_in;
                auto some = [&](i64 at, const i64* places, i64 many, i64 o, i64 m, i64 left) {
                    any_windows({xp + at, places, many, gp + o, to + at, m, 1, 0}, left);
                };
                if (!even) {
                    each_tile_row(pool_, size_, rows, o0, o1, to, some);
                    continue;
                }
                // Rows of outputs that are the same but for where they are: of all planes, where no cell is between these.
                i64 o[max_axes] = {outer == 1 ? 0 : o0};
                const i64 first = outer == 1 ? o0 : 0, last = outer == 1 ? o1 : near.m;
                const i64 lines = (last - first) * (all ? p1 - p0 : 1);
                const i64 left = ((last < near.m ? near.first[last] : near.n) - near.last(last - 1)) * ax_.n;
                for (i64 q = outer == 1 ? o0 : o0 * (pool_.cells_out / pool_.axes[0].m / near.m);; q += near.m) {
                    const i64 at = rows.look(pool_.axes, outer, size_, o) + first * near.stride * ax_.n;
                    const Row row{xp + at, rows.at, rows.many, gp + q * ax_.m, to + at, ax_.m, lines, near.stride * ax_.n};
                    any_windows(row, left);
                    int a = outer - 2;
                    for (; a > 0 && ++o[a] == pool_.axes[a].m; --a) o[a] = 0;
                    if (a < 0 || (a == 0 && ++o[0] == o1)) break;
                }
                if (all) return;
            }
        });
    }

private:
    // m outputs, whose windows have `many` rows of inputs, at `places` from x and dx; and so many lines of them, whose inputs
    // are `hop` apart and whose outputs lie one after the other.
    struct Row {
        const T* x;
        const i64* places;
        i64 many;
        const T* g;
        T* dx;
        i64 m, lines, hop;
        Row line(i64 l) const { return {x + l * hop, places, many, g + l * m, dx + l * hop, m, 1, 0}; }
    };

    // The last row of the last line may write `left` cells.
    void any_windows(const Row& row, i64 left) const {
        const i64 s = ax_.stride, k = ax_.taps;
        if (s == 2 && k == 2 && row.many == 1) return any_pairs<1>(row, left);
        if (s == 2 && k == 2 && row.many == 2) return any_pairs<2>(row, left);
        if (s == 2 && k == 2 && row.many == 4) return any_pairs<4>(row, left);
        if (s == 4 && k == 4 && row.many == 1) return whole_or_short<4, L>(row, left, [&](const Row& r) { blocks<4, 4, 1>(r); });
        if (s == 4) return whole_or_short<4, L>(row, left, [&](const Row& r) { blocks<4, 0, 0>(r); });
        if (s == 2) return whole_or_short<2, L>(row, left, [&](const Row& r) { blocks<2, 0, 0>(r); });
        whole_or_short<1, L>(row, left, [&](const Row& r) { blocks<1, 0, 0>(r); });
    }

    template <int R>
    void any_pairs(const Row& row, i64 left) const {
        if (row.m >= L) return whole_or_short<2, L / 2>(row, left, [&](const Row& r) { pairs<R, L>(r); });
        whole_or_short<2, short_lanes / 2>(row, left, [&](const Row& r) { pairs<R, short_lanes>(r); });
    }

    // f of lines that are done M outputs at a time. Where they have fewer, what is read too much is not used, and what is
    // written too much is written again; the last ones, which have no room for that, are done in memory of our own.
    template <int S, int M, class F>
    void whole_or_short(const Row& row, i64 left, F&& f) const {
        const Row end = row.line(row.lines - 1);
        i64 tail = 0;
        auto need = [&](i64 cells, i64 room, i64 each) {
            if (room < cells) tail = std::max(tail, each > 0 ? (cells - room + each - 1) / each : row.lines);
        };
        if (row.m < M) {
            need(S * M, left, row.hop), need(M, g_end_ - end.g, row.m);
            need(S * M, x_end_ - end.x - row.places[row.many - 1], row.hop);
        }
        Row most = row;
        most.lines = std::max<i64>(0, row.lines - tail);
        if (most.lines > 0) f(most);
        for (i64 l = most.lines; l < row.lines; ++l) {
            const Row own = row.line(l);
            T share[M] = {}, in[WindowRows::most * S * M], out[WindowRows::most * S * M];
            i64 at[WindowRows::most];
            std::memcpy(static_cast<void*>(share), own.g, row.m * sizeof(T));
            for (i64 r = 0; r < row.many; ++r) {
                at[r] = r * S * M;
                std::fill(in + at[r], in + at[r] + S * M, T(0));
                std::memcpy(static_cast<void*>(in + at[r]), own.x + row.places[r], row.m * S * sizeof(T));
            }
            f(Row{in, at, row.many, share, out, row.m, 1, 0});
            for (i64 r = 0; r < row.many; ++r)
                std::memcpy(static_cast<void*>(own.dx + row.places[r]), out + at[r], row.m * S * sizeof(T));
        }
        if (pool_.rank == 1 || row.m * S == ax_.n) return;
        for (i64 l = 0; l < row.lines; ++l)  // cells behind the last window
            for (i64 r = 0; r < row.many; ++r)
                for (i64 i = row.m * S; i < ax_.n; ++i) row.dx[l * row.hop + row.places[r] + i] = 0;
    }

    // Windows of two cells in R rows each, N/2 of them at a time: both cells stay where they are, and every lane learns what its
    // window found.
    template <int R, int N>
    [[gnu::noinline]] void pairs(const Row& row) const {
        constexpr i64 H = N / 2;
        const i64 m = row.m;
        i64 places[R];
        for (int r = 0; r < R; ++r) places[r] = row.places[r];
        Vec<I, N> nth[R];
        for (int r = 0; r < R; ++r) nth[r] = splat<N>(I(r));
        for (i64 l = 0; l < row.lines; ++l) {
            const T *const x = row.x + l * row.hop, *const g = row.g + l * m;
            T* const dx = row.dx + l * row.hop;
            NaNs<T, N> odd;
            for (i64 q = 0; q < m; q += H) {
                if (q + H > m && m >= H) q = m - H;
                Vec<T, N> best;
                Vec<I, N> second[R], code{};
                for (int r = 0; r < R; ++r) {
                    const T* const from = x + places[r] + 2 * q;
                    soon(from);
                    const auto v = load<N>(from), a = twice<0, N>(v), b = twice<1, N>(v);
                    odd.meet(v, v);
                    second[r] = b > a;
                    const auto top = greater(a, b);
                    if (r == 0) best = top;
                    else code = top > best ? nth[r] : code, best = greater(best, top);
                }
                const auto even = dealt<0, N>(g + q), later = dealt<1, N>(g + q);
                for (int r = 0; r < R; ++r) {
                    auto won = second[r] ? later : even;
                    if constexpr (R > 1) won = code == nth[r] ? won : splat<N>(T(0));
                    store<N>(dx + places[r] + 2 * q, won);
                }
            }
            if (odd.any()) singly(row.line(l));
        }
    }
    // Lane e of each pair, in both.
    template <int e, int N>
    static Vec<T, N> twice(Vec<T, N> v) {
        return [&]<int... l>(std::integer_sequence<int, l...>) {
            return __builtin_shufflevector(v, v, (l / 2 * 2 + e)...);
        }(std::make_integer_sequence<int, N>());
    }
    // N/2 numbers in the lanes e of the pairs, and zeros in the others.
    template <int e, int N>
    static Vec<T, N> dealt(const T* p) {
        constexpr int H = N / 2;
        if constexpr (H == 1) {
            return e == 0 ? Vec<T, N>{*p, T(0)} : Vec<T, N>{T(0), *p};
        } else {
            return [&]<int... l>(std::integer_sequence<int, l...>) {
                return __builtin_shufflevector(load<H>(p), Vec<T, H>{}, (l % 2 == e ? l / 2 : H)...);
            }(std::make_integer_sequence<int, N>());
        }
    }

    // Other windows, L of them at a time.
    template <int S, int K, int R>
    [[gnu::noinline]] void blocks(const Row& row) const {
        const i64 k = K ? K : ax_.taps, many = R ? R : row.many, m = row.m;
        for (i64 l = 0; l < row.lines; ++l) {
            const T *const x = row.x + l * row.hop, *const g = row.g + l * m;
            T* const dx = row.dx + l * row.hop;
            NaNs<T> odd;
            for (i64 q = 0; q < m; q += L) {
                if (q + L > m && m >= L) q = m - L;
                Vec<T, L> v[S], best{};
                Vec<I, L> code{};
                I next = 0;
                for (i64 r = 0; r < many; ++r) {
                    const T* const from = x + row.places[r] + q * S;
                    for (int e = 0; e < S; ++e) soon(from + e * L);
                    deal<S>(from, v);
                    for (i64 e = 0; e < k; ++e, ++next) {
                        odd.meet(v[e], v[e]);
                        if (next == 0) best = v[e];
                        else code = v[e] > best ? splat<L>(next) : code, best = greater(best, v[e]);
                    }
                }
                const auto share = bits<Vec<I, L>>(order<S>(load<L>(g + q)));
                next = 0;
                for (i64 r = 0; r < many; ++r) {
                    for (int e = 0; e < S; ++e) {
                        v[e] = splat<L>(T(0));
                        if (e < k) v[e] = bits<Vec<T, L>>((code == next++) & share);
                    }
                    collect<S>(v, dx + row.places[r] + q * S);
                }
            }
            if (odd.any()) singly(row.line(l));
        }
    }

    // Cells in vectors as take_apart has them, but fours of floats in whatever order of outputs costs no shuffle across lanes of
    // 16 bytes.
    template <int S>
    static constexpr bool by_lanes = S == 4 && sizeof(T) == 4;
    template <int S>
    static void deal(const T* p, Vec<T, L>* v) {
        if constexpr (by_lanes<S>) {
            for (int k = 0; k < 4; ++k) v[k] = load<L>(p + k * L);
            turn(v);
        } else {
            take_apart<S, L>(p, v);
        }
    }
    template <int S>
    static void collect(Vec<T, L>* v, T* p) {
        if constexpr (by_lanes<S>) {
            turn(v);
            for (int k = 0; k < 4; ++k) store<L>(p + k * L, v[k]);
        } else {
            interleave<S, false, T>(v, p);
        }
    }
    template <int S>
    static Vec<T, L> order(Vec<T, L> v) {
        if constexpr (!by_lanes<S>) return v;
        else
            return [&]<int... l>(std::integer_sequence<int, l...>) {
                return __builtin_shufflevector(v, v, (l % 4 * (L / 4) + l / 4)...);
            }(std::make_integer_sequence<int, L>());
    }
    // Four by four within each lane of 16 bytes, there and back.
    static void turn(Vec<T, L>* v) {
        const auto a = mix<0, 4, 1, 5>(v[0], v[1]), b = mix<2, 6, 3, 7>(v[0], v[1]);
        const auto c = mix<0, 4, 1, 5>(v[2], v[3]), d = mix<2, 6, 3, 7>(v[2], v[3]);
        v[0] = mix<0, 1, 4, 5>(a, c), v[1] = mix<2, 3, 6, 7>(a, c);
        v[2] = mix<0, 1, 4, 5>(b, d), v[3] = mix<2, 3, 6, 7>(b, d);
    }
    // Of every four lanes of a (0 to 3) and b (4 to 7), these.
    template <int... k>
    static Vec<T, L> mix(Vec<T, L> a, Vec<T, L> b) {
        constexpr int of[] = {k...};
        return [&]<int... l>(std::integer_sequence<int, l...>) {
            return __builtin_shufflevector(a, b, (l / 4 * 4 + of[l % 4] % 4 + of[l % 4] / 4 * L)...);
        }(std::make_integer_sequence<int, L>());
    }

    // Where a NaN is among the cells.
    [[gnu::noinline]] void singly(const Row& row) const {
        const i64 s = ax_.stride, k = ax_.taps;
        for (i64 q = 0; q < row.m; ++q) {
            T best = row.x[row.places[0] + q * s];
            i64 winner = row.places[0] + q * s;
            for (i64 r = 0; r < row.many; ++r)
                for (i64 i = row.places[r] + q * s, e = 0; e < s; ++e, ++i) {
                    row.dx[i] = 0;
                    if (e < k && later_wins<true>(best, row.x[i])) best = row.x[i], winner = i;
                }
            row.dx[winner] = row.g[q];
        }
    }

    const T *x_end_, *g_end_;
};

}  // namespace
}  // namespace lunette::LN_ISA
