// The derivative of the greatest cells of windows of three by three, two apart.
#pragma once
#include "max_chosen.hpp"

namespace lunette::LN_ISA {
namespace {

// dx where ties go to the first, in one pass over x and dx. L windows of a row of outputs at a time go down the plane: each
// looks at its cells in threes along the rows, then at the three rows, and what it decided is still in registers when its
// cotangent is dealt out. The first cell of the first window belongs to the windows on the left as well: what it got waits for
// these, so strips of windows are done from the right to the left.
template <class T>
class Threes {
    using I = Int<T>;
    using V = Vec<T, lanes<T>>;
    using Some = Chosen<T>;
    using Mask = typename Some::Mask;
    static constexpr int L = lanes<T>;

public:
    static bool suits(const Pool& pool) {
        if (pool.rank != 2) return false;
        for (int a = 0; a < 2; ++a) {
            const PoolAxis& ax = pool.axes[a];
            if (!ax.regular || ax.stride != 2 || ax.taps != 3 || ax.step != 1 || ax.start < -1 || ax.start > 0) return false;
            if (ax.has_empty) return false;
        }
        return true;
    }

    // The ends are those of the whole arrays, past which nothing is read.
    Threes(const Pool& pool, const T* x_end, const T* g_end)
        : pool_(pool), top_(pool.axes[0]), ax_(pool.axes[1]), x_end_(x_end), g_end_(g_end), in_(pool.cells_in), out_(pool.cells_out) {
        const i64 cells = std::max(2 * ax_.m, ax_.n - ax_.start - 1);  // behind the first of a row, if that is by itself
        strips_ = (cells + 2 * L - 1) / (2 * L);
    }

    void operator()(i64 planes, const T* x, const T* g, T* dx) const {
        over_parts(pool_, planes, [&](i64 p0, i64 p1, i64 o0, i64 o1) {
            for (i64 p = p0; p < p1; ++p) plane({x + p * in_, g + p * out_, dx + p * in_, o0, o1});
        });
    }

private:
    // Rows of windows o0..o1-1 of a plane. The row of cells that two parts share is written by the later one.
    struct Part {
        const T *x, *g;
        T* dx;
        i64 o0, o1;
    };
    void plane(const Part& part) const {
        const i64 before = std::max<i64>(0, part.o0 - 1);
        const bool signs = has_negative_zero(part.g + before * ax_.m, (part.o1 - before) * ax_.m);
        if (signs ? strips<true, false>(part) : strips<false, false>(part)) return;
        signs ? strips<true, true>(part) : strips<false, true>(part);
    }

    // The same cell of the next plane will be wanted soon. Processors do not foresee what lies in strips.
    template <bool written>
    [[gnu::always_inline]] void ahead(const T* p) const {
        const auto far = static_cast<std::uintptr_t>(in_) * sizeof(T);
        __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(p) + far), written, 2);
    }

    // What waits at a row for the strip on the left, and whether it was given at all.
    struct Left {
        T share;
        bool given;
    };

    // False if there was a NaN, which only keys can be compared with; then this was in vain.
    template <bool signs, bool keys>
    bool strips(const Part& part) const {
        Left* const left = static_cast<Left*>(scratch((top_.n + 1) * sizeof(Left)));
        for (i64 i = 0; i < top_.n; ++i) left[i] = {signs ? -T(0) : T(0), false};
        for (i64 s = strips_ - 1; s >= 0; --s) {
            const bool inside = s > 0 && 2 * (s + 1) * L + ax_.start < ax_.n && (s + 1) * L <= ax_.m;
            if (!(inside ? strip<signs, keys, false>(part, s * L, left) : strip<signs, keys, true>(part, s * L, left)))
                return false;
        }
        const i64 n = ax_.n, i0 = std::max<i64>(0, 2 * part.o0 + top_.start);
        const i64 i1 = std::min(top_.n, 2 * part.o1 + top_.start + (part.o1 == top_.m));
        if (ax_.start == 0)
            for (i64 i = i0; i < i1; ++i) part.dx[i * n] = signs && !left[i].given ? T(0) : left[i].share;
        if (part.o1 == top_.m) std::memset(static_cast<void*>(part.dx + i1 * n), 0, (top_.n - i1) * n * sizeof(T));
        return true;
    }

    // The windows q..q+L-1 of all rows. Where `edge`, some may not be there, or lack cells.
    template <bool signs, bool keys, bool edge>
    [[gnu::noinline]] bool strip(const Part& part, i64 q, Left* left) const {
        const T *const x = part.x, *const g = part.g;
        T* const dx = part.dx;
        using Number = std::conditional_t<keys, Vec<I, L>, V>;
        const i64 n = ax_.n, m = ax_.m, rows = top_.n, first = 2 * q + ax_.start + 1, some = std::min<i64>(L, m - q);
        Number absent;
        if constexpr (keys) absent = splat<L>(std::numeric_limits<I>::min());
        else absent = splat<L>(-std::numeric_limits<T>::infinity());
        const V nothing = kept(splat<L>(signs ? -T(0) : T(0)));
        const Mask there_e = Some::first((n - first + 1) / 2), there_o = Some::first((n - first) / 2);
        const Mask windows = Some::first(some), no_left = first == 0 ? Some::first(1) : Mask{};
        NaNs<T> odd;
        struct Row {
            Number best;
            Mask middle, last;  // greater than what came before
        };
        auto number = [&](V v) __attribute__((always_inline)) -> Number {
            if constexpr (keys) return key<T>(v);
            else return v;
        };
        auto look = [&](i64 i) __attribute__((always_inline)) -> Row {
            if (i >= rows) return {absent, Mask{}, Mask{}};
            const T* from = x + i * n + first;
            ahead<false>(from), ahead<false>(from + L);
            T own[2 * L];
            V one = edge && first == 0 ? splat<L>(T(0)) : splat<L>(from[-1]);
            if (edge && x_end_ - from < 2 * L) {
                std::fill(own, own + 2 * L, T(0));
                if (x_end_ > from) std::memcpy(static_cast<void*>(own), from, static_cast<std::size_t>(x_end_ - from) * sizeof(T));
                from = own;
            }
            V even, uneven;
            unzip<L>(in_register(load<L>(from)), in_register(load<L>(from + L)), even, uneven);
            one = lanes_from<L - 1>(one, uneven);
            if constexpr (!keys) odd.meet(even, uneven);
            if constexpr (!keys && edge) odd.meet(one, one);  // elsewhere the strip on the left has met it
            Number a = number(one), b = number(even), c = number(uneven);
            if constexpr (edge) {
                b = Some::where(there_e, b, absent), c = Some::where(there_o, c, absent);
                a = Some::where(no_left, absent, a);
            }
            Row row;
            row.middle = Some::greater(b, a);
            if constexpr (edge) row.middle |= no_left;
            const Number two = greatest(a, b);
            row.last = Some::greater(c, two), row.best = greatest(two, c);
            return row;
        };
        auto write = [&](i64 i, const Row& row, V share, Mask given) __attribute__((always_inline)) {
            const V end = Some::where(row.last, share, nothing), rest = Some::where(row.last, nothing, share);
            V middle = Some::where(row.middle, rest, nothing);
            const V begin = Some::where(row.middle, nothing, rest);
            V between = end + lanes_from<1>(begin, V(splat<L>(left[i].share)));
            left[i].share = begin[0];
            if constexpr (signs) {
                const Mask begins = given & ~row.last & ~row.middle;
                const Mask ends = (given & row.last) | Some::after(begins, left[i].given);
                left[i].given = Some::holds_first(begins);
                middle = Some::where(static_cast<Mask>(given & ~row.last & row.middle), middle, V{});
                between = Some::where(ends, between, V{});
            }
            V low, high;
            zip<L>(middle, between, low, high);
            T* const to = dx + i * n + first;
            ahead<true>(to), ahead<true>(to + L);
            if constexpr (edge) store_some<L>(to, low, n - first), store_some<L>(to + L, high, n - first - L);
            else store<L>(to, low), store<L>(to + L, high);
        };
        const i64 start = top_.start, before = std::max<i64>(0, part.o0 - 1);  // what a part above does, for the row they share
        Row a = 2 * before + start < 0 ? Row{absent, Mask{}, Mask{}} : look(2 * before + start);
        V waiting = nothing;
        Mask gave{};
        for (i64 o = before; o < part.o1; ++o) {
            const i64 i = 2 * o + start;
            const Row b = look(i + 1), c = look(i + 2);
            Mask middle = Some::greater(b.best, a.best);
            if (i < 0) middle = Some::all();
            const Mask last = Some::greater(c.best, greatest(a.best, b.best));
            const T* const from = g + o * m + q;
            V share;
            if (edge && (some < L || g_end_ - from < L)) {
                T own[L] = {};
                std::memcpy(static_cast<void*>(own), from, static_cast<std::size_t>(std::max<i64>(0, some)) * sizeof(T));
                share = Some::where(windows, load<L>(own), nothing);
            } else {
                share = load<L>(from);
            }
            const V end = Some::where(last, share, nothing), rest = Some::where(last, nothing, share);
            Mask to_begin{}, to_middle{}, to_end{};
            if constexpr (signs) {
                to_begin = windows & ~last & ~middle, to_middle = windows & ~last & middle, to_end = windows & last;
            }
            if (i >= 0 && o >= part.o0) write(i, a, waiting + Some::where(middle, nothing, rest), gave | to_begin);
            if (i + 1 < rows && o >= part.o0) write(i + 1, b, Some::where(middle, rest, nothing), to_middle);
            waiting = end, gave = to_end, a = c;
        }
        if (const i64 i = 2 * top_.m + start; part.o1 == top_.m && i < rows) write(i, a, waiting, gave);
        return keys || !odd.any();
    }

    const Pool& pool_;
    const PoolAxis &top_, &ax_;
    const T *x_end_, *g_end_;
    i64 in_, out_, strips_;
};

}  // namespace
}  // namespace lunette::LN_ISA
