// Joins of whole rows, for the outer axes of a window.
#pragma once
#include "reduce_taps.hpp"

namespace lunette::LN_ISA {
namespace {

template <WindowReduction Op>
class RowJoins {
    using T = typename Op::Scalar;
    using Ref = typename Op::Ref;
    using Source = typename Op::Source;
    static constexpr int L = lanes<T>;

public:
    // `most` rows at most are joined.
    explicit RowJoins(i64 most) : herk_(most * herk_width) {}

    i64 cells() const { return 2 * herk_; }

    // The rows of a window of the input itself, where join may meet cells in any order.
    template <class Order>
    static void join_window(const T* x, const WindowRows& window, i64 n, T* joined, Order& order) {
        if (window.many == 2) return join_rows_of<2>(x, window, n, joined, order);
        if (window.many == 3) return join_rows_of<3>(x, window, n, joined, order);
        if (window.many == 4) return join_rows_of<4>(x, window, n, joined, order);
        join_rows_of<0>(x, window, n, joined, order);
    }

    template <int K, class Order>
    static void join_rows_of(const T* x, const WindowRows& window, i64 n, T* joined, Order& known) {
        const i64 k = K ? K : window.many;
        Order order = known;  // in registers: nothing that is stored can be part of it
        i64 at[K + 1];
        for (int r = 0; r < K; ++r) at[r] = window.at[r];
        sweep<T>(n, [&]<int N>(i64 q) {
            typename Op::template Cell<N> c{load<N>(x + window.at[0] + q)};
            order.template meet<N>(c.v);
            for (i64 r = 1; r < k; ++r) {
                typename Op::template Cell<N> d{load<N>(x + (K ? at[K ? r : 0] : window.at[r]) + q)};
                order.template meet<N>(d.v);
                c = Op::join(c, d);
            }
            store<N>(joined + q, c.v);
        });
        known = order;
    }

    template <class In>
    void join_rows(bool special, const PoolAxis& ax, i64 o0, i64 o1, In in, i64 row0, i64 length, Ref out,
                   char* memory) const {
        if (special) return join_rows_as<typename Op::Careful>(ax, o0, o1, in, row0, length, out, memory);
        join_rows_as<Op>(ax, o0, o1, in, row0, length, out, memory);
    }

    template <class Join, class In>
    void join_rows_as(const PoolAxis& ax, i64 o0, i64 o1, In in, i64 row0, i64 length, Ref out, char* memory) const {
        bool herk = ax.regular && ax.step == 1 && ax.taps >= 8 && ax.taps > 4 * ax.stride && ax.taps <= sum_block;
        if (herk && length >= L && o1 - o0 > ax.taps / 2)
            return van_herk<Join>(ax, o0, o1, in, row0, length, out, memory);
        // Short rows: down the rows first, so that what there is to decide is decided once for all of them.
        i64 f0 = o0, f1 = o0;
        if (ax.regular && length <= short_row) f0 = std::clamp(ax.full_lo, o0, o1), f1 = std::clamp(ax.full_hi, f0, o1);
        auto one = [&](i64 o) {
            join_some<Join>(in.at((ax.first[o] - row0) * length), ax.step * length, ax.count[o], length,
                            out.at((o - o0) * length));
        };
        for (i64 o = o0; o < f0; ++o) one(o);
        if (f0 < f1) {
            auto from = in.at((ax.first[f0] - row0) * length);
            auto to = out.at((f0 - o0) * length);
            if (ax.taps == 2) join_columns<Join, 2>(ax, from, f1 - f0, length, to);
            else if (ax.taps == 3) join_columns<Join, 3>(ax, from, f1 - f0, length, to);
            else join_columns<Join, 0>(ax, from, f1 - f0, length, to);
        }
        for (i64 o = f1; o < o1; ++o) one(o);
    }

    template <class Join, int K, class In>
    static void join_columns(const PoolAxis& ax, In in, i64 m, i64 length, Ref out) {
        const i64 hop = ax.step * length, stride = ax.stride * length;
        sweep<T>(length, [&]<int N>(i64 q) {
            for (i64 o = 0; o < m; ++o)
                out.template put<N>(o * length + q, join_taps<Join, N, 1, K>(in, o * stride + q, ax.taps, hop));
        });
    }

    void join_disjoint(bool special, Ref in, i64 hop, i64 count, i64 length, Ref out) const {
        if (special) join_some<typename Op::Careful>(in, hop, count, length, out);
        else join_some<Op>(in, hop, count, length, out);
    }

private:
    template <class Join, class In>
    static void join_some(In in, i64 hop, i64 count, i64 length, Ref out) {
        if (count == 2) return join_few<Join, 2>(in, hop, length, out);
        if (count == 3) return join_few<Join, 3>(in, hop, length, out);
        if (count == 0) {
            auto nothing = Op::nothing();
            for (i64 q = 0; q < length; ++q) out.template put<1>(q, nothing);
            return;
        }
        i64 done = 0;
        for (; done + 4 * L <= length; done += 4 * L) join_wide<Join, L, 4>(in.at(done), hop, count, out.at(done));
        sweep<T>(length - done, [&]<int N>(i64 q) {
            join_wide<Join, N, 1>(in.at(done + q), hop, count, out.at(done + q));
        });
    }

    template <class Join, int K, class In>
    static void join_few(In in, i64 hop, i64 length, Ref out) {
        sweep<T>(length, [&]<int N>(i64 q) {
            auto c = Join::join(in.template get<N>(q), in.template get<N>(q + hop));
            if constexpr (K == 3) c = Join::join(c, in.template get<N>(q + 2 * hop));
            out.template put<N>(q, c);
        });
    }

    template <class Join, int N, int W, class In>
    static inline void join_wide(In in, i64 hop, i64 count, Ref out) {
        typename Op::template Cell<N> total[W]{}, c[W];
        for (i64 j0 = 0; j0 < count; j0 += sum_block) {
            i64 j1 = std::min(count, j0 + sum_block);
            for (int w = 0; w < W; ++w) c[w] = in.template get<N>(j0 * hop + w * N);
            for (i64 j = j0 + 1; j < j1; ++j)
                for (int w = 0; w < W; ++w) c[w] = Join::join(c[w], in.template get<N>(j * hop + w * N));
            for (int w = 0; w < W; ++w) total[w] = j0 == 0 ? c[w] : Join::join(total[w], c[w]);
        }
        for (int w = 0; w < W; ++w) out.template put<N>(w * N, total[w]);
    }

    // Windows of k rows at a cost that does not grow with k (van Herk, Gil and Werman): cut the rows into blocks of
    // k; a window is the end of one block and the start of the next, or all of one.
    template <class Join, class In>
    void van_herk(const PoolAxis& ax, i64 o0, i64 o1, In in, i64 row0, i64 length, Ref out, char* memory) const {
        Ref ends = Op::make(memory, 2 * herk_ + 2 * L);
        i64 q = 0;
        for (; q + herk_width <= length; q += herk_width)
            van_herk_columns<Join, L, 4>(ax, o0, o1, in.at(q), row0, length, out.at(q), ends);
        sweep<T>(length - q, [&]<int N>(i64 r) {
            van_herk_columns<Join, N, 1>(ax, o0, o1, in.at(q + r), row0, length, out.at(q + r), ends);
        });
    }

    template <class Join, int N, int W, class In>
    static inline void van_herk_columns(const PoolAxis& ax, i64 o0, i64 o1, In in, i64 row0, i64 pitch, Ref out, Ref ends) {
        const i64 k = ax.taps;
        typename Op::template Cell<N> start[W]{}, c[W];
        i64 block = row0, row = row0 - 1;     // start[] joins the rows block..row
        i64 ends_of = -1;                     // the block whose ends are kept
        auto keep_ends = [&](i64 from, i64 to) {
            for (int w = 0; w < W; ++w) c[w] = in.template get<N>((to - row0) * pitch + w * N);
            for (i64 r = to;; --r) {
                for (int w = 0; w < W; ++w) ends.template put<N>((r - from) * W * N + w * N, c[w]);
                if (r == from) break;
                for (int w = 0; w < W; ++w) c[w] = Join::join(in.template get<N>((r - 1 - row0) * pitch + w * N), c[w]);
            }
            ends_of = from;
        };
        for (i64 o = o0; o < o1; ++o) {
            i64 f = ax.first[o], e = ax.last(o);
            if (ax.count[o] == 0) {
                for (int w = 0; w < W; ++w)
                    for (int l = 0; l < N; ++l) out.template put<1>((o - o0) * pitch + w * N + l, Op::nothing());
                continue;
            }
            while (row < e) {
                ++row;
                if (row == block + k) {
                    if (ends_of != block) keep_ends(block, row - 1);
                    block = row;
                }
                if (row == block)
                    for (int w = 0; w < W; ++w) start[w] = in.template get<N>((row - row0) * pitch + w * N);
                else
                    for (int w = 0; w < W; ++w)
                        start[w] = Join::join(start[w], in.template get<N>((row - row0) * pitch + w * N));
            }
            if (f > block && ends_of != block) keep_ends(block, row);  // clipped at the end of the input
            for (int w = 0; w < W; ++w) {
                auto r = start[w];
                if (f != block) {
                    r = ends.template get<N>((f - ends_of) * W * N + w * N);
                    if (f < block) r = Join::join(r, start[w]);
                }
                out.template put<N>((o - o0) * pitch + w * N, r);
            }
        }
    }

    static constexpr i64 herk_width = 4 * L;
    const i64 herk_;  // cells of block ends
};

}  // namespace
}  // namespace lunette::LN_ISA
