// Reductions over windows, one axis after the other, the innermost first: so the cells of a window are joined in
// row-major order, and an operation that keeps the first of equals keeps the first in row-major order.
#pragma once
#include "reduce_outer.hpp"
#include "reduce_rows.hpp"
#include "straight.hpp"

namespace lunette::LN_ISA {
namespace {

constexpr i64 level_bytes = 20 << 10; // partial results that wait for an outer axis
constexpr i64 straight_outputs = 2048;  // that are finished while they are in the first cache
constexpr i64 joined_bytes = 12 << 10; // rows that are joined before their cells are

template <WindowReduction Op>
class Reducer {
    using T = typename Op::Scalar;
    using Ref = typename Op::Ref;
    using Source = typename Op::Source;
    static constexpr int L = lanes<T>;

public:
    // x_end is the end of the whole input array: vectors may read past a row, never past that. Null: read on.
    Reducer(const Pool& pool, const T* x_end)
        : pool_(pool), outer_(most_outer(pool)), inner_(pool.axes[pool.rank - 1], x_end), straight_(pool) {
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
        const bool both = pool.rank == 2 && !pool.axes[0].identity && !ax.identity && !levels_[0].sparse;
        group_ = both || pool.rank == 1 ? rows_together<T>(2048 / std::max<i64>(1, pool.cells_in)) : 1;
        group_memory_ = pool.rank == 2 && group_ > 1 ? group_ * pool.axes[0].n * ax.m + 2 * L : 0;
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
        i64 cells = group_memory_ + inner_.cells() + outer_.cells() + joined_memory_ + 64 * L;
        for (int a = 0; a + 1 < pool_.rank; ++a) cells += levels_[a].rows * levels_[a].rout + 2 * L;
        return static_cast<std::size_t>(cells) * Op::cell_bytes + 1024;
    }

    // Outputs o0..o1-1 of axis a and everything inside them, from the cells at x, which lie `base` cells into their
    // plane. Whether the cells were special.
    bool run(int a, const T* x, i64 base, i64 o0, i64 o1, Ref out, char* memory) const {
        if (a == 0 && straight(x, 1, o0, o1, out)) return false;
        return axis_by_axis(a, x, base, o0, o1, out, memory);
    }

    bool axis_by_axis(int a, const T* x, i64 base, i64 o0, i64 o1, Ref out, char* memory) const {
        const PoolAxis& ax = pool_.axes[a];
        const Level& l = levels_[a];
        const int last = pool_.rank - 1;
        if (a == last) return inner_.rows(x, base, 1, o0, o1, out, memory);
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
                outer_.join_rows(here, ax, b0, b1, Source{from, base + lo * l.rin}, lo, l.rout, to, memory);
            } else if (l.sparse) {
                for (i64 j = 0; j < ax.count[b0]; ++j) {
                    i64 i = ax.first[b0] + j * ax.step;
                    here |= inner(a, x + i * l.rin, base + i * l.rin, 1, buffer.at(j * l.rout), memory);
                }
                outer_.join_disjoint(here, buffer, l.rout, ax.count[b0], l.rout, to);
            } else {
                here = inner(a, x + lo * l.rin, base + lo * l.rin, hi - lo, buffer, memory);
                outer_.join_rows(here, ax, b0, b1, buffer, lo, l.rout, to, memory);
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
        const i64 group = std::min(planes, group_), m = pool_.axes[0].m;
        if constexpr (Op::any_order)
            if (pool_.rank == 1 && pool_.axes[0].whole && pool_.cells_in >= L && planes >= L) {
                for (i64 p = 0; p < planes; p += L) {
                    p = std::min(p, planes - L);  // some a second time
                    const T* from = x + p * pool_.cells_in;
                    if (!Op::wholes(from, pool_.cells_in, out.v + p)) inner_.rows(from, 0, L, 0, 1, out.at(p), memory);
                }
                return done(0, planes);
            }
        if (straight_.suits()) {
            const i64 some = std::clamp<i64>(straight_outputs / pool_.cells_out, 1, planes);
            for (i64 p = 0; p < planes; p += some) {
                const i64 end = std::min(planes, p + some);
                if (!straight(x + p * pool_.cells_in, end - p, 0, m, out.at(p * pool_.cells_out)))
                    for (i64 q = p; q < end; ++q)
                        axis_by_axis(0, x + q * pool_.cells_in, 0, 0, m, out.at(q * pool_.cells_out), memory);
                done(p, end);
            }
            return;
        }
        if (outer_first_ && group > 1) {
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
            if (pool_.rank == 1) inner_.rows(from, 0, count, 0, m, to, memory);
            else if (group_ == 1) run(0, from, 0, 0, m, to, memory);
            else {
                const PoolAxis& ax = pool_.axes[0];
                const i64 length = levels_[0].rout;
                const bool special = inner_.rows(from, 0, count * ax.n, 0, length, buffer, memory);
                for (i64 q = 0; q < count; ++q)
                    outer_.join_rows(special, ax, 0, ax.m, buffer.at(q * ax.n * length), 0, length, to.at(q * pool_.cells_out), memory);
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
    static i64 most_outer(const Pool& pool) {
        i64 most = 0;
        for (int a = 0; a + 1 < pool.rank; ++a) most = std::max(most, pool.axes[a].most);
        return most;
    }

    struct Level {
        i64 rin, rout;          // cells of one step along this axis, in and out
        i64 block, rows;        // outputs done at a time, and the inputs they need
        bool sparse;            // gaps between windows: do only the cells that are read
    };

    // Whether that could be done without anything in memory.
    bool straight(const T* x, i64 planes, i64 o0, i64 o1, Ref out) const {
        if constexpr (Op::any_order) {
            typename Op::Order order;
            return straight_.suits() && straight_(x, planes, o0, o1, out.v, order);
        }
        return false;
    }

    bool inner(int a, const T* x, i64 base, i64 count, Ref out, char* memory) const {
        const PoolAxis& next = pool_.axes[a + 1];
        const Level& l = levels_[a];
        if (a + 1 == pool_.rank - 1) return inner_.rows(x, base, count, 0, next.m, out, memory);
        bool special = false;
        for (i64 i = 0; i < count; ++i)
            special |= axis_by_axis(a + 1, x + i * l.rin, base + i * l.rin, 0, next.m, out.at(i * l.rout), memory);
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
                if (waiting > 0) inner_.rows(joined, 0, waiting, 0, ax.m, out, memory, true);
                out = out.at(waiting * ax.m), waiting = 0;
            };
            for (i64 p = 0; p < planes; ++p, x += pool_.cells_in) {
                i64 o[max_axes] = {o0};
                for (bool more = true; more;) {
                    const i64 at = window.look(pool_.axes, outer, sizes_, o);
                    outer_.join_window(x + at, window, ax.n, joined + waiting * ax.n, order);
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

    const Pool& pool_;
    Level levels_[max_axes];
    i64 group_, group_memory_;         // small planes done together
    bool outer_first_;
    i64 sizes_[max_axes], joined_, joined_memory_;  // input cells in one step along an axis; rows joined at a time
    RowJoins<Op> outer_;
    RowReducer<Op> inner_;
    Straight<Op> straight_;
};

}  // namespace
}  // namespace lunette::LN_ISA
