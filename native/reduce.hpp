// Reductions over windows, one axis after the other, the innermost first: so the cells of a window are joined in
// row-major order, and an operation that keeps the first of equals keeps the first in row-major order.
//
// An operation Op has
//   Scalar            the type of the cells
//   Cell<N>           N partial results
//   Source, Ref       arrays of input cells and of partial results: at(i), get<N>(i), put<N>(i, cell)
//   join(a, b)        where a comes before b in row-major order; associative
//   pad()             an input cell that changes nothing
//   nothing()         the join of no cells
//   run(s, i, n)      the join of n contiguous cells
//   wholes(x, n, y)   where any_order: the joins of L rows of n >= L cells each; false if their cells are special
//   idempotent        whether join may meet the same cells twice
//   any_order         whether join may meet cells in any order, except where Order, which meets them all, says it matters
//   column(x, i, by)  one cell of each of L rows, the first at place i, the others `by` further each
//   arrays(a, b, f)   f for each pair of arrays that two Refs are made of
//   scan(x, n)        whether the cells are too special for join, so that Op::Careful must do the work
//   Watch             where scanning costs: meet(a, b) sees cells on their way into a join; special() says what scan would
#pragma once
#include <algorithm>
#include <concepts>

#include "rearrange.hpp"
#include "windows.hpp"

namespace lunette::LN_ISA {
namespace {

constexpr i64 scan_bytes = 8 << 10;   // what is scanned and then read again: a quarter of a first-level cache
constexpr i64 level_bytes = 20 << 10; // partial results that wait for an outer axis
constexpr i64 short_row = 48;         // rows up to this length are done several at a time
constexpr i64 most_rows = 64;
constexpr i64 row_outputs = 2048;     // outputs of one long row done at a time
constexpr i64 joined_bytes = 12 << 10; // rows that are joined before their cells are

// The join of `taps` cells, `hop` apart, for N neighbouring outputs that lie `S` input cells apart.
template <class Op, int N, int S, int K, class Source>
[[gnu::always_inline]] inline typename Op::template Cell<N> join_block(const Source& s, i64 i, i64 taps, i64 step) {
    typename Op::template Cell<N> c;
    const i64 k = K ? K : taps;
    if constexpr (S == 4 && N > 1) {  // as many taps: the cells of N windows lie side by side
        return s.template fours<Op, N>(i);
    } else if constexpr (S == 1 || N == 1) {
        c = s.template get<N>(i);
        for (i64 j = 1; j < k; ++j) c = Op::join(c, s.template get<N>(i + j * step));
    } else {
        typename Op::template Cell<N> odd;
        s.template pair<N>(i, c, odd);
        if (step == 1) {
            if (k > 1) c = Op::join(c, odd);
            typename Op::template Cell<N> even;
            i64 j = 2;
            for (; j + 1 < k; j += 2) {
                s.template pair<N>(i + j, even, odd);
                c = Op::join(Op::join(c, even), odd);
            }
            if (j < k) {
                s.template pair<N>(i + j, even, odd);
                c = Op::join(c, even);
            }
        } else {
            typename Op::template Cell<N> even;
            for (i64 j = 1; j < k; ++j) {
                s.template pair<N>(i + j * step, even, odd);
                c = Op::join(c, even);
            }
        }
    }
    return c;
}

// The same for any number of taps: sums of more than sum_block are sums of sums.
template <class Op, int N, int S, int K, class Source>
[[gnu::always_inline]] inline typename Op::template Cell<N> join_taps(const Source& s, i64 i, i64 taps, i64 step) {
    if (K > 0 || taps <= sum_block) return join_block<Op, N, S, K>(s, i, taps, step);
    auto c = join_block<Op, N, S, 0>(s, i, sum_block, step);
    for (i64 j = sum_block; j < taps; j += sum_block)
        c = Op::join(c, join_block<Op, N, S, 0>(s, i + j * step, std::min(sum_block, taps - j), step));
    return c;
}

// Input cells `stride` apart as if they were neighbours.
template <class Source>
struct Strided {
    Source s;
    i64 stride;
    template <int N>
    auto get(i64 i) const { return s.template spread<N>(i, stride); }
};

// Input cells that are watched on their way.
template <class Source, class Watch>
struct Watched {
    Source s;
    Watch& watch;
    template <int N, class Cell>
    [[gnu::always_inline]] void pair(i64 i, Cell& even, Cell& odd) const {
        s.template pair<N>(i, even, odd), watch.meet(even.v, odd.v);
    }
    template <class Op, int N>
    [[gnu::always_inline]] auto fours(i64 i) const {
        return s.template fours<Op, N>(i, [&](auto a, auto b) { watch.meet(a, b); });
    }
};

// The list above, as far as a compiler can check it.
template <class Op>
concept WindowReduction = requires(const typename Op::Scalar* x, i64 n, char*& memory, typename Op::Ref ref,
                                   typename Op::Source source, typename Op::template Cell<1> cell) {
    typename Op::Careful;
    { Op::join(cell, cell) } -> std::same_as<typename Op::template Cell<1>>;
    { Op::pad() } -> std::same_as<typename Op::Scalar>;
    { Op::nothing() } -> std::same_as<typename Op::template Cell<1>>;
    { Op::run(source, n, n) } -> std::same_as<typename Op::template Cell<1>>;
    { Op::make(memory, n) } -> std::same_as<typename Op::Ref>;
    { Op::scan(x, n) } -> std::same_as<bool>;
    { Op::column(x, n, n) } -> std::same_as<typename Op::template Cell<lanes<typename Op::Scalar>>>;
    { ref.template get<1>(n) } -> std::same_as<typename Op::template Cell<1>>;
    { source.template get<1>(n) } -> std::same_as<typename Op::template Cell<1>>;
    ref.template put<1>(n, cell), ref.at(n), source.at(n), Op::fill(ref, x, n, n);
    requires std::same_as<const bool, decltype(Op::idempotent)> && std::same_as<const bool, decltype(Op::any_order)>;
    requires Op::cell_bytes >= sizeof(typename Op::Scalar);
    requires !Op::any_order || requires(typename Op::Scalar* y, typename Op::Order order) {
        { Op::wholes(x, n, y) } -> std::same_as<bool>;
        { order.matters() } -> std::same_as<bool>;
    };
};

template <WindowReduction Op>
class Reducer {
    using T = typename Op::Scalar;
    using Ref = typename Op::Ref;
    using Source = typename Op::Source;
    static constexpr int L = lanes<T>;

public:
    // x_end is the end of the whole input array: vectors may read past a row, never past that. Null: read on.
    Reducer(const Pool& pool, const T* x_end) : pool_(pool), x_end_(x_end) {
        i64 rin = 1, rout = 1;
        for (int a = pool.rank - 1; a >= 0; --a) {
            const PoolAxis& ax = pool.axes[a];
            Level& l = levels_[a];
            l.rin = rin, l.rout = rout;
            rin *= ax.n, rout *= ax.m;
            if (a == pool.rank - 1) continue;
            const i64 span = ax.span();
            l.sparse = ax.regular && ax.stride >= span && ax.taps < ax.stride;
            l.block = 1, l.rows = l.sparse ? ax.most : span;
            i64 fits = level_bytes / (l.rout * static_cast<i64>(Op::cell_bytes) + 1);
            if (!l.sparse && ax.regular) {
                i64 some = std::max<i64>(1, 4 * span / ax.stride);  // rows shared with the next block are done twice
                l.block = std::min(ax.m, std::max(some, (fits - span) / ax.stride));
                l.rows = std::min(ax.n, (l.block - 1) * ax.stride + span);
            } else if (!l.sparse) {
                i64 jump = std::max<i64>(1, ax.jump), some = std::max<i64>(1, 4 * span / jump);
                l.block = std::min(ax.m, std::max(some, (fits - span) / jump));
                l.rows = std::min(ax.n, (l.block - 1) * jump + span);
            }
        }
        const PoolAxis& ax = pool.axes[pool.rank - 1];
        i64 outputs = std::min(ax.m, row_outputs);
        staged_ = stages(ax) ? room(ax, outputs) : 0;
        for (i64 r = 0; ax.period > 1 && r < ax.period; ++r)
            if (stages(ax.phases[r])) staged_ = std::max(staged_, room(ax.phases[r], outputs / ax.period + 2));
        rows_memory_ = (staged_ + (ax.period > 1 ? outputs + 2 * ax.period : 0)) * rows_at_once(ax) + 4 * L;
        const bool both = pool.rank == 2 && !pool.axes[0].identity && !ax.identity && !levels_[0].sparse;
        group_ = both || pool.rank == 1 ? few(2048 / std::max<i64>(1, pool.cells_in)) : 1;
        group_memory_ = pool.rank == 2 && group_ > 1 ? group_ * pool.axes[0].n * ax.m + 2 * L : 0;
        i64 most = 0;
        for (int a = 0; a + 1 < pool.rank; ++a) most = std::max(most, pool.axes[a].most);
        herk_ = most * herk_width;
        if (crosses(ax)) across_ = (ax.n + ax.m + 4 * L) * L;
        i64 in = 1, out = 1, window = 1;
        for (int a = 0; a + 1 < pool.rank; ++a) in *= pool.axes[a].n, out *= pool.axes[a].m, window *= pool.axes[a].most;
        // Side by side, rows of tiles are one long row, which is cheaper than joining them two by two.
        const bool long_row = ax.tiled && ax.stride <= 2 && window <= 2;
        outer_first_ = Op::any_order && !long_row && !pool.has_empty && 2 * out <= in && window <= WindowRows::most &&
                       out * window <= 3 * in;
        for (int a = 0; a < pool.rank; ++a) sizes_[a] = levels_[a].rin;
        joined_ = std::clamp<i64>(joined_bytes / (ax.n * static_cast<i64>(sizeof(T)) + 1), 1, most_rows);
        joined_memory_ = outer_first_ ? joined_ * ax.n + 4 * L : 0;
    }

    std::size_t bytes() const {
        i64 cells = group_memory_ + rows_memory_ + 2 * staged_ + 2 * herk_ + across_ + joined_memory_ + 64 * L;
        for (int a = 0; a + 1 < pool_.rank; ++a) cells += levels_[a].rows * levels_[a].rout + 2 * L;
        return static_cast<std::size_t>(cells) * Op::cell_bytes + 1024;
    }

    // Outputs o0..o1-1 of axis a and everything inside them, from the cells at x, which lie `base` cells into their
    // plane. Whether the cells were special.
    bool run(int a, const T* x, i64 base, i64 o0, i64 o1, Ref out, char* memory) const {
        const PoolAxis& ax = pool_.axes[a];
        const Level& l = levels_[a];
        const int last = pool_.rank - 1;
        if (a == last) return rows(x, base, 1, o0, o1, out, memory);
        if (a == 0 && outer_first_ && join_outer_first(x, 1, o0, o1, out, memory)) return false;
        if (ax.identity) return inner(a, x + o0 * l.rin, base + o0 * l.rin, o1 - o0, out, memory);
        const bool direct = a + 1 == last && pool_.axes[last].identity;
        bool special = false;
        Ref buffer = Op::make(memory, l.rows * l.rout + 2 * L);
        for (i64 b0 = o0, b1; b0 < o1; b0 = b1) {
            b1 = std::min(o1, b0 + l.block);
            i64 lo, hi;
            cells_of(ax, b0, b1, lo, hi);
            Ref to = out.at((b0 - o0) * l.rout);
            bool here = false;
            if (direct) {
                const T* from = x + lo * l.rin;
                here = Op::scan(from, (hi - lo) * l.rin);
                join_rows(here, ax, b0, b1, Source{from, base + lo * l.rin}, lo, l.rout, to, memory);
            } else if (l.sparse) {
                for (i64 j = 0; j < ax.count[b0]; ++j) {
                    i64 i = ax.first[b0] + j * ax.step;
                    here |= inner(a, x + i * l.rin, base + i * l.rin, 1, buffer.at(j * l.rout), memory);
                }
                join_disjoint(here, buffer, l.rout, ax.count[b0], l.rout, to);
            } else {
                here = inner(a, x + lo * l.rin, base + lo * l.rin, hi - lo, buffer, memory);
                join_rows(here, ax, b0, b1, buffer, lo, l.rout, to, memory);
            }
            special |= here;
        }
        return special;
    }

    // The same for axis 0, block by block: finish(b0, b1, out) sees each block of outputs while it is in cache.
    template <class Finish>
    void run_blocks(const T* x, i64 o0, i64 o1, Ref out, char* memory, Finish finish) const {
        const i64 step = top_block();
        for (i64 b0 = o0; b0 < o1; b0 += step) {
            i64 b1 = std::min(o1, b0 + step);
            Ref to = out.at((b0 - o0) * levels_[0].rout);
            run(0, x, 0, b0, b1, to, memory);
            finish(b0, b1, to);
        }
    }

    i64 group() const { return group_; }

    // Several whole planes, several at a time where they are small; done(first plane, end) after each group. Places
    // would be counted from the group's start, so this is for operations without places.
    template <class Done>
    void run_planes(const T* x, i64 planes, Ref out, char* memory, Done done) const {
        const i64 group = std::min(planes, group_);
        if (outer_first_ && group > 1) {
            const i64 m = pool_.axes[0].m;
            if (!join_outer_first(x, planes, 0, m, out, memory))
                for (i64 p = 0; p < planes; ++p)
                    run(0, x + p * pool_.cells_in, 0, 0, m, out.at(p * pool_.cells_out), memory);
            return done(0, planes);
        }
        Ref buffer = Op::make(memory, group_memory_);
        for (i64 p = 0; p < planes; p += group) {
            const i64 count = std::min(group, planes - p);
            const T* from = x + p * pool_.cells_in;
            Ref to = out.at(p * pool_.cells_out);
            if (pool_.rank == 1) rows(from, 0, count, 0, pool_.axes[0].m, to, memory);
            else if (group_ == 1) run(0, from, 0, 0, pool_.axes[0].m, to, memory);
            else {
                const PoolAxis& ax = pool_.axes[0];
                const i64 length = levels_[0].rout;
                bool special = rows(from, 0, count * ax.n, 0, length, buffer, memory);
                for (i64 q = 0; q < count; ++q)
                    join_rows(special, ax, 0, ax.m, buffer.at(q * ax.n * length), 0, length, to.at(q * pool_.cells_out), memory);
            }
            done(p, p + count);
        }
    }

    // Outputs of axis 0 that run() does in one go.
    i64 top_block() const {
        if (pool_.rank == 1) return row_outputs;
        if (pool_.axes[0].identity) return std::max<i64>(1, row_outputs / std::max<i64>(1, levels_[0].rin));
        return levels_[0].block;
    }

    // The most cells of input that so many neighbouring outputs of axis 0 read.
    i64 cells_read(i64 outputs) const {
        const PoolAxis& ax = pool_.axes[0];
        return std::min(ax.n, (outputs - 1) * ax.jump + ax.span()) * levels_[0].rin;
    }

private:

    static constexpr i64 herk_width = 4 * L;

    // Whether plain_rows may work on a copy of a row: wide strides and whole rows do not.
    static bool stages(const PoolAxis& ax) {
        return ax.regular && !ax.whole && (ax.stride < 3 || (ax.step == 1 && ax.taps > 3 * ax.stride));
    }

    // Cells of a staged row for so many outputs.
    static i64 room(const PoolAxis& ax, i64 outputs) {
        return (outputs - 1) * ax.stride + (ax.taps - 1) * ax.step + 1 + 4 * L;
    }

    struct Level {
        i64 rin, rout;          // cells of one step along this axis, in and out
        i64 block, rows;        // outputs done at a time, and the inputs they need
        bool sparse;            // gaps between windows: do only the cells that are read
    };

    bool inner(int a, const T* x, i64 base, i64 count, Ref out, char* memory) const {
        const PoolAxis& next = pool_.axes[a + 1];
        const Level& l = levels_[a];
        if (a + 1 == pool_.rank - 1) return rows(x, base, count, 0, next.m, out, memory);
        bool special = false;
        for (i64 i = 0; i < count; ++i)
            special |= run(a + 1, x + i * l.rin, base + i * l.rin, 0, next.m, out.at(i * l.rout), memory);
        return special;
    }

    // ---- outer axes first: fewer rows are left for the innermost axis, which costs more per cell ------------------

    // Outputs o0..o1-1 of axis 0 of `planes` planes. False if the order of joins matters to these cells.
    bool join_outer_first(const T* x, i64 planes, i64 o0, i64 o1, Ref out, char* memory) const {
        if constexpr (!Op::any_order) {
            return false;
        } else {
            const int outer = pool_.rank - 1;
            const PoolAxis& ax = pool_.axes[outer];
            T* joined = Op::make(memory, joined_memory_).v;
            WindowRows window;
            typename Op::Order order;
            i64 waiting = 0;
            auto finish = [&] {
                if (waiting > 0) rows(joined, 0, waiting, 0, ax.m, out, memory, true);
                out = out.at(waiting * ax.m), waiting = 0;
            };
            for (i64 p = 0; p < planes; ++p, x += pool_.cells_in) {
                i64 o[max_axes] = {o0};
                for (bool more = true; more;) {
                    const i64 at = window.look(pool_.axes, outer, sizes_, o);
                    join_window(x + at, window, ax.n, joined + waiting * ax.n, order);
                    if (++waiting == joined_) {
                        if (order.matters()) return false;
                        finish();
                    }
                    int a = outer - 1;
                    for (; a > 0 && ++o[a] == pool_.axes[a].m; --a) o[a] = 0;
                    more = a > 0 || ++o[0] < o1;
                }
            }
            if (order.matters()) return false;
            finish();
            return true;
        }
    }

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

    // ---- an outer axis: whole rows of `length` cells are joined --------------------------------------------------

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

    // ---- the innermost axis --------------------------------------------------------------------------------------

    // `count` rows, one after the other; `plain` if they are known not to be special.
    bool rows(const T* x, i64 base, i64 count, i64 o0, i64 o1, Ref out, char* memory, bool plain = false) const {
        const PoolAxis& ax = pool_.axes[pool_.rank - 1];
        const i64 pitch = o1 - o0, chunk = rows_at_once(ax);
        // What is scanned and then read again should still be in the cache.
        const i64 some = ax.regular ? std::clamp<i64>(row_outputs / ax.stride, 8 * L, row_outputs) : row_outputs;
        bool special = false;
        for (i64 r = 0; r < count; r += chunk)
            for (i64 b0 = o0; b0 < o1; b0 += some)
                special |= some_rows(ax, x + r * ax.n, base + r * ax.n, std::min(chunk, count - r), b0,
                                     std::min(o1, b0 + some), out.at(r * pitch + b0 - o0), pitch, memory, plain);
        return special;
    }

    static i64 rows_at_once(const PoolAxis& ax) {
        return few(scan_bytes / (ax.n * static_cast<i64>(sizeof(T)) + 1));
    }

    // So many rows at a time, whole groups of L where there are as many.
    static i64 few(i64 count) {
        count = std::clamp<i64>(count, 1, most_rows);
        return count < L ? count : count / L * L;
    }

    // The cells from the first that is read to the last, over `count` rows.
    bool scan_rows(const PoolAxis& ax, const T* x, i64 count, i64 o0, i64 o1) const {
        if (o0 == 0 && o1 == ax.m) return Op::scan(x, count * ax.n);
        i64 lo, hi;
        cells_of(ax, o0, o1, lo, hi);
        bool special = false;
        for (i64 r = 0; r < count; ++r) special |= lo < hi && Op::scan(x + r * ax.n + lo, hi - lo);
        return special;
    }

    bool some_rows(const PoolAxis& ax, const T* x, i64 base, i64 count, i64 o0, i64 o1, Ref out, i64 pitch, char* memory,
                   bool plain) const {
        if constexpr (Op::any_order)
            if (ax.whole && count >= L && ax.n >= L && wholes(ax.n, x, count, out)) return false;
        if (!plain && watched_rows(ax, x, base, count, o0, o1, out, pitch)) return false;
        bool special = !plain && scan_rows(ax, x, count, o0, o1);
        if (special)
            for (i64 r = 0; r < count; ++r)
                one_by_one<typename Op::Careful>(ax, Source{x + r * ax.n, base + r * ax.n}, o0, o1, o0, out.at(r * pitch));
        else if (!Op::idempotent && ax.period > 1) interleaved(ax, x, base, count, o0, o1, out, pitch, memory);
        else plain_rows(ax, x, base, count, o0, o1, out, pitch, memory);
        return special;
    }

    // Long rows of the commonest short windows, scanned and joined in one pass. False if that cannot be, or they are special.
    bool watched_rows(const PoolAxis& ax, const T* x, i64 base, i64 count, i64 o0, i64 o1, Ref out, i64 pitch) const {
        if constexpr (!requires { typename Op::Watch; }) {
            return false;
        } else {
            if (!ax.regular || ax.step != 1 || o1 - o0 <= short_row) return false;
            if (ax.stride == 4 && ax.taps == 4) return watched<4, 4>(ax, x, base, count, o0, o1, out, pitch);
            if (ax.stride == 2 && ax.taps == 2) return watched<2, 2>(ax, x, base, count, o0, o1, out, pitch);
            if (ax.stride == 2 && ax.taps == 3) return watched<2, 3>(ax, x, base, count, o0, o1, out, pitch);
            return false;
        }
    }

    template <int S, int K>
    bool watched(const PoolAxis& ax, const T* x, i64 base, i64 count, i64 o0, i64 o1, Ref out, i64 pitch) const {
        i64 f0, f1;
        full_outputs<S>(ax, x, count, o0, o1, f0, f1);
        if (f1 - f0 < L) return false;
        typename Op::Watch watch;
        for (i64 r = 0; r < count; ++r) {
            const Source s{x + r * ax.n, base + r * ax.n};
            const Ref to = out.at(r * pitch);
            one_by_one<typename Op::Careful>(ax, s, o0, f0, o0, to), one_by_one<typename Op::Careful>(ax, s, f1, o1, o0, to);
            const Watched<Source, typename Op::Watch> from{s, watch};
            auto some = [&](i64 o) { to.template put<L>(o - o0, join_block<Op, L, S, K>(from, ax.start + o * S, K, 1)); };
            i64 o = f0;
            for (; o + L <= f1; o += L) some(o);
            if (o < f1) some(f1 - L);
        }
        return !watch.special();
    }

    // Outputs f0..f1-1 of o0..o1-1 are not clipped, and vectors of them read no further than they may.
    template <int S>
    void full_outputs(const PoolAxis& ax, const T* x, i64 count, i64 o0, i64 o1, i64& f0, i64& f1) const {
        f0 = std::clamp(ax.full_lo, o0, o1), f1 = std::clamp(ax.full_hi, f0, o1);
        // The last pair of a stride-2 vector may reach one cell past the window.
        const i64 reach = (count - 1) * ax.n + ax.start + (f1 - 1) * ax.stride + (ax.taps - 1) * ax.step + 1;
        // (x may be a row of ours, which has room behind it.)
        const std::uintptr_t at = reinterpret_cast<std::uintptr_t>(x), end = reinterpret_cast<std::uintptr_t>(x_end_);
        if (S == 2 && f1 > f0 && x_end_ && at <= end && end - at <= reach * sizeof(T)) --f1;
    }

    void plain_rows(const PoolAxis& ax, const T* x, i64 base, i64 count, i64 o0, i64 o1, Ref out, i64 pitch, char* memory) const {
        if (ax.tiled && (ax.stride < 3 || !crosses(ax)) && pitch == ax.m && o1 - o0 == ax.m && ax.taps < 2 * L &&
            (ax.stride != 2 || ax.taps == 2)) {
            // Rows side by side are one long row. (A stride-2 window of one cell would be read past its end.)
            Source s{x, base};
            if (ax.stride == 1) unclipped<1>(ax, s, 1, 0, 0, count * ax.m, out, 0);
            else if (ax.stride == 2) unclipped<2>(ax, s, 1, 0, 0, count * ax.m, out, 0);
            else unclipped<3>(ax, s, 1, 0, 0, count * ax.m, out, 0);
        } else if (across_ > 0 && count >= L && crosses(ax)) {
            across(ax, x, base, count, o0, o1, out, pitch, memory);
        } else if (!ax.regular || ax.whole || (ax.stride >= 3 && ax.step == 1 && ax.taps >= 2 * L)) {
            for (i64 r = 0; r < count; ++r) runs(ax, Source{x + r * ax.n, base + r * ax.n}, o0, o1, out.at(r * pitch));
        } else if (ax.step == 1 && ax.taps > 10 && ax.taps > 3 * ax.stride && o1 - o0 > ax.taps / 2) {
            for (i64 r = 0; r < count; ++r) doubling(ax, x + r * ax.n, base + r * ax.n, o0, o1, out.at(r * pitch), memory);
        } else if (ax.stride == 1) {
            slide<1>(ax, x, base, count, o0, o1, out, pitch, memory);
        } else if (ax.stride == 2) {
            slide<2>(ax, x, base, count, o0, o1, out, pitch, memory);
        } else {
            slide<3>(ax, x, base, count, o0, o1, out, pitch, memory);
        }
    }

    // Rows that are one window each, L at a time.
    static bool wholes(i64 n, const T* x, i64 count, Ref out) {
        for (i64 r = 0; r < count; r += L) {
            if (r + L > count) r = count - L;
            if (!Op::wholes(x + r * n, n, out.v + r)) return false;
        }
        return true;
    }

    // Short windows without a common rhythm that vectors could follow.
    static bool crosses(const PoolAxis& ax) {
        const bool uneven = !ax.regular && ax.period <= 1;
        const bool wide = ax.regular && ax.stride >= 3 && !(ax.stride == 4 && ax.taps == 4);
        if (!(uneven || wide) || ax.whole || ax.most >= 2 * L) return false;
        return (ax.n + ax.m) * L * static_cast<i64>(sizeof(T)) <= (48 << 10);
    }

    // L rows at a time, one to a lane.
    void across(const PoolAxis& ax, const T* x, i64 base, i64 count, i64 o0, i64 o1, Ref out, i64 pitch,
                char* memory) const {
        i64 lo, hi;
        cells_of(ax, o0, o1, lo, hi);
        T* columns = reinterpret_cast<T*>(memory);
        memory += (ax.n + L) * L * sizeof(T);
        Ref found = Op::make(memory, (ax.m + L) * L);
        for (i64 r = 0; r < count; r += L) {
            if (r + L > count) r = count - L;
            to_columns(x + r * ax.n + lo, ax.n, hi - lo, columns);
            auto column = [&](i64 i) { return Op::column(columns + (i - lo) * L, base + r * ax.n + i, ax.n); };
            for (i64 o = o0; o < o1; ++o) {
                typename Op::template Cell<L> c;
                if (ax.count[o] > 0) {
                    c = column(ax.first[o]);
                    for (i64 j = 1; j < ax.count[o]; ++j) c = Op::join(c, column(ax.first[o] + j * ax.step));
                    found.template put<L>((o - o0) * L, c);
                } else {
                    for (int l = 0; l < L; ++l) found.template put<1>((o - o0) * L + l, Op::nothing());
                }
            }
            Op::arrays(found, out.at(r * pitch), [&](auto* from, auto* to) { to_rows(from, o1 - o0, to, pitch); });
        }
    }

    // Each phase by itself, then woven together.
    void interleaved(const PoolAxis& ax, const T* x, i64 base, i64 count, i64 o0, i64 o1, Ref out, i64 pitch, char* memory) const {
        const i64 P = ax.period, most = (o1 - o0) / P + 2;
        const bool weave = P == 2 && (o0 & 1) == 0;
        Ref woven = Op::make(memory, count * P * most);
        for (i64 r = 0; r < P; ++r) {
            i64 q0 = (o0 - r + P - 1) / P, q1 = (o1 - r + P - 1) / P;
            if (q0 == q1) continue;
            Ref phase = woven.at(r * count * most);
            plain_rows(ax.phases[r], x, base, count, q0, q1, phase, most, memory);
            for (i64 i = 0; !weave && i < count; ++i)
                for (i64 q = q0; q < q1; ++q)
                    out.template put<1>(i * pitch + q * P + r - o0, phase.template get<1>(i * most + q - q0));
        }
        if constexpr (!Op::idempotent)
            for (i64 i = 0; weave && i < count; ++i)
                Op::weave(woven.at(i * most), woven.at((count + i) * most), o1 - o0, out.at(i * pitch));
    }

    template <class Join>
    static void one_by_one(const PoolAxis& ax, Source s, i64 b0, i64 b1, i64 o0, Ref out) {
        for (i64 o = b0; o < b1; ++o) {
            auto c = Op::nothing();
            if (ax.count[o] > 0) c = join_taps<Join, 1, 1, 0>(s, ax.first[o], ax.count[o], ax.step);
            out.template put<1>(o - o0, c);
        }
    }

    static void runs(const PoolAxis& ax, Source s, i64 o0, i64 o1, Ref out) {
        for (i64 o = o0; o < o1; ++o) {
            if (ax.step == 1 && ax.count[o] >= 2 * L) out.template put<1>(o - o0, Op::run(s, ax.first[o], ax.count[o]));
            else one_by_one<Op>(ax, s, o, o + 1, o0, out);
        }
    }

    // A row of Source cells where the windows of o0..o1-1 are not clipped: `pad` cells stand for the absent ones.
    // Returns where output o0 starts to read.
    T* stage(const PoolAxis& ax, const T* x, i64 o0, i64 o1, T* row) const {
        i64 lo = ax.start + o0 * ax.stride;
        i64 hi = ax.start + (o1 - 1) * ax.stride + (ax.taps - 1) * ax.step + 1 + 3 * L;
        i64 from = std::clamp<i64>(lo, 0, ax.n), to = std::clamp<i64>(hi, from, ax.n);
        for (i64 i = lo; i < from; ++i) row[i - lo] = Op::pad();
        T* inside = row + (from - lo);
        sweep<T>(to - from, [&]<int N>(i64 i) { store<N>(inside + i, load<N>(x + from + i)); });
        for (i64 i = std::max(to, lo); i < hi; ++i) row[i - lo] = Op::pad();
        return row;
    }

    template <int S>
    void slide(const PoolAxis& ax, const T* x, i64 base, i64 count, i64 o0, i64 o1, Ref out, i64 pitch, char* memory) const {
        Source s{x, base};
        i64 f0, f1;
        full_outputs<S>(ax, x, count, o0, o1, f0, f1);
        i64 edge = (f0 - o0) + (o1 - f1);
        if (S < 3 && edge > 0 && edge * ax.taps > 12) {
            T* row = reinterpret_cast<T*>(memory);
            const i64 step = room(ax, o1 - o0);
            for (i64 r = 0; r < count; ++r) stage(ax, x + r * ax.n, o0, o1, row + r * step);
            // Places are those of the input, where rows are ax.n apart.
            unclipped<S>(ax, Source{row, base + ax.start + o0 * ax.stride}, count, step, ax.n, o1 - o0, out, pitch);
            for (i64 r = 0; ax.has_empty && r < count; ++r) mend(ax, o0, o1, out.at(r * pitch));
            return;
        }
        for (i64 r = 0; edge > 0 && r < count; ++r) {
            one_by_one<Op>(ax, s.at(r * ax.n), o0, f0, o0, out.at(r * pitch));
            one_by_one<Op>(ax, s.at(r * ax.n), f1, o1, o0, out.at(r * pitch));
        }
        unclipped<S>(ax, s.at(ax.start + f0 * ax.stride), count, ax.n, ax.n, f1 - f0, out.at(f0 - o0), pitch);
    }

    // Windows without a cell have met padding only.
    static void mend(const PoolAxis& ax, i64 o0, i64 o1, Ref out) {
        if (!ax.has_empty) return;
        for (i64 o = o0; o < o1; ++o)
            if (ax.count[o] == 0) out.template put<1>(o - o0, Op::nothing());
    }

    // m outputs of each of `count` rows, `hop` cells (and `places` cells of the input) apart, none of them clipped.
    template <int S>
    static void unclipped(const PoolAxis& ax, Source s, i64 count, i64 hop, i64 places, i64 m, Ref out, i64 pitch) {
        switch (ax.step == 1 ? ax.taps : 0) {
            case 2: return taps<S, 2>(ax, s, count, hop, places, m, out, pitch);
            case 4:
                if (S == 3 && ax.stride == 4) return taps<4, 4>(ax, s, count, hop, places, m, out, pitch);
                return taps<S, 0>(ax, s, count, hop, places, m, out, pitch);
            case 3: return taps<S, 3>(ax, s, count, hop, places, m, out, pitch);
            default: return taps<S, 0>(ax, s, count, hop, places, m, out, pitch);
        }
    }

    template <int S, int K>
    static void taps(const PoolAxis& ax, Source s, i64 count, i64 hop, i64 places, i64 m, Ref out, i64 pitch) {
        const i64 step = K ? 1 : ax.step, stride = S == 3 ? ax.stride : S;
        constexpr int widest = S == 3 ? 16 / static_cast<int>(sizeof(T)) : L;
        auto window = [&]<int N>(i64 r, i64 o) {
            Source row{s.v + r * hop, s.base + r * places};
            if constexpr (S != 3) return join_taps<Op, N, S, K>(row, o * stride, ax.taps, step);
            else return join_taps<Op, N, 1, K>(Strided<Source>{row, stride}, o * stride, ax.taps, step);
        };
        if (count > 2 && m <= short_row) {
            sweep<T, widest>(m, [&]<int N>(i64 o) {
                for (i64 r = 0; r < count; ++r) out.template put<N>(r * pitch + o, window.template operator()<N>(r, o));
            });
            return;
        }
        for (i64 r = 0; r < count; ++r)
            sweep<T, widest>(m, [&]<int N>(i64 o) { out.template put<N>(r * pitch + o, window.template operator()<N>(r, o)); });
    }

    // Long windows: joins of 2, 4, 8, ... cells, each from two of the joins before.
    void doubling(const PoolAxis& ax, const T* x, i64 base, i64 o0, i64 o1, Ref out, char* memory) const {
        const i64 k = ax.taps, m = o1 - o0;
        Ref w = Op::make(memory, staged_ + 2 * L);
        i64 size = (m - 1) * ax.stride + k;
        Op::fill(w, stage(ax, x, o0, o1, w.v), base + ax.start + o0 * ax.stride, size + 2 * L);
        i64 h = 1;
        if constexpr (Op::idempotent) {
            for (; 2 * h <= k; h *= 2)
                for (i64 i = 0; i < size - h; i += L)
                    w.template put<L>(i, Op::join(w.template get<L>(i), w.template get<L>(i + h)));
            auto some = [&]<int N>(i64 o) {
                out.template put<N>(o, Op::join(w.template get<N>(o * ax.stride), w.template get<N>(o * ax.stride + k - h)));
            };
            if (ax.stride == 1) sweep<T>(m, some);
            else for (i64 o = 0; o < m; ++o) some.template operator()<1>(o);
        } else {
            // k in binary: the joins of 1, 2, 4, ... cells that make it up, one after the other.
            Ref sum = Op::make(memory, staged_ + 2 * L);
            i64 done = 0;
            for (;; h *= 2) {
                if (k & h) {
                    for (i64 i = 0; i < size - k + 1; i += L) {
                        auto c = w.template get<L>(i + done);
                        sum.template put<L>(i, done ? Op::join(sum.template get<L>(i), c) : c);
                    }
                    done += h;
                }
                if (done == k) break;
                for (i64 i = 0; i < size - h; i += L)
                    w.template put<L>(i, Op::join(w.template get<L>(i), w.template get<L>(i + h)));
            }
            auto some = [&]<int N>(i64 o) { out.template put<N>(o, sum.template get<N>(o * ax.stride)); };
            if (ax.stride == 1) sweep<T>(m, some);
            else for (i64 o = 0; o < m; ++o) some.template operator()<1>(o);
        }
        mend(ax, o0, o1, out);
    }

    const Pool& pool_;
    const T* x_end_;
    Level levels_[max_axes];
    i64 group_, group_memory_;         // small planes done together
    i64 across_ = 0;                   // cells of the rows done one to a lane
    bool outer_first_;
    i64 sizes_[max_axes], joined_, joined_memory_;  // input cells in one step along an axis; rows joined at a time
    i64 staged_, rows_memory_, herk_;  // cells of a padded row, of the padded rows done together, of block ends
};

}  // namespace
}  // namespace lunette::LN_ISA
