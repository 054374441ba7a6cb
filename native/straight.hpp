// Windows of few rows whose innermost axis is plain, joined while they are in registers: only results are written.
#pragma once
#include <utility>

#include "reduce_taps.hpp"

namespace lunette::LN_ISA {
namespace {

// { a[N-1], b[0], b[1], ... }.
template <int N, class V>
[[gnu::always_inline]] inline V shifted_up(V a, V b) {
    return [&]<int... l>(std::integer_sequence<int, l...>) __attribute__((always_inline)) {
        return __builtin_shufflevector(a, b, (N - 1 + l)...);
    }(std::make_integer_sequence<int, N>());
}
// For an Op whose join may meet cells in any order. Along the innermost axis windows are one cell, or slide two by two, or are
// those of the transpose of the latter; there are vectors full of them.
template <WindowReduction Op>
class Straight {
    using T = typename Op::Scalar;
    using V = Vec<T, lanes<T>>;
    using Cell = typename Op::template Cell<lanes<T>>;
    static constexpr int L = lanes<T>;
    static constexpr i64 most_rows_joined = 9, least = 16 / static_cast<i64>(sizeof(T));
    enum Kind { none, cells, lines, pairs, dealt };

public:
    using Order = std::remove_pointer_t<decltype([] {
        if constexpr (Op::any_order) return static_cast<typename Op::Order*>(nullptr);
        else return static_cast<int*>(nullptr);
    }())>;
    explicit Straight(const Pool& pool) : pool_(pool), ax_(pool.axes[pool.rank - 1]), kind_(kind_of(pool)) {
        i64 size = 1;
        for (int a = pool.rank - 1; a >= 0; --a) size_[a] = size, size *= pool.axes[a].n;
        outer_ = kind_ == cells ? pool.rank - 2 : pool.rank - 1;
        q0_ = 0, q1_ = ax_.m, base_ = ax_.start;
        if (kind_ == pairs) {  // vectors hold both cells of every pair; a third one, before them, may be absent
            base_ += ax_.taps == 3;
            q0_ = std::clamp<i64>((1 - base_) / 2, 0, ax_.m), q1_ = std::clamp<i64>((ax_.n - base_) / 2, q0_, ax_.m);
        } else if (kind_ == dealt) {
            const PoolAxis &even = ax_.phases[0], &odd = ax_.phases[1];
            q0_ = std::max(even.full_lo, odd.full_lo), q1_ = std::max(q0_, std::min(even.full_hi, odd.full_hi));
            left_ = even.taps == 1, base_ = (left_ ? odd : even).start, second_ = (left_ ? even : odd).start != base_;
        }
        if (kind_ != none && q1_ - q0_ < (kind_ == pairs ? least / 2 + 1 : L)) kind_ = none;
    }

    bool suits() const { return kind_ != none; }

    // Outputs o0..o1-1 of axis 0 of `planes` planes, one after the other. False if the order of joins matters to these cells.
    [[gnu::noinline]] bool operator()(const T* x, i64 planes, i64 o0, i64 o1, T* out, Order& order) const {
        const PoolAxis& near = pool_.axes[outer_ - 1];  // of the axes that choose rows, the innermost
        const i64 m = kind_ == cells ? pool_.axes[outer_].m * ax_.m : ax_.m;
        const Ends ends{x + planes * pool_.cells_in, out + planes * (o1 - o0) * (pool_.cells_out / pool_.axes[0].m)};
        WindowRows window;
        if (outer_ == 1 && near.tiled && o1 - o0 == near.m) {  // rows of windows side by side: so are the planes
            const i64 first = 0;
            window.look(pool_.axes, 1, size_, &first);
            run({x, window.at, window.many, planes * near.m, near.stride * size_[0], out, m}, ends, order);
            return !order.matters();
        }
        for (i64 p = 0; p < planes; ++p, x += pool_.cells_in) {
            i64 o[max_axes] = {o0};
            for (bool more = true; more;) {
                const i64 begin = outer_ == 1 ? o0 : 0, end = outer_ == 1 ? o1 : near.m;
                each_run_of_rows(near, begin, end, [&](i64 first, i64 count, i64 by, i64 step) {
                    o[outer_ - 1] = first;
                    const T* from = x + window.look(pool_.axes, outer_, size_, o);
                    const Block rows{from, window.at, window.many, count, step * size_[outer_ - 1], out + (first - begin) * m, by * m};
                    run(rows, by == 1 ? ends : Ends{x, out}, order);  // where rows take turns, the next one may be done
                });
                if (order.matters()) return false;
                out += (end - begin) * m;
                int a = outer_ - 2;
                for (; a > 0 && ++o[a] == pool_.axes[a].m; --a) o[a] = 0;
                more = a > 0 || (a == 0 && ++o[0] < o1);
            }
        }
        return true;
    }

private:
    static Kind kind_of(const Pool& pool) {
        if (!Op::any_order || pool.rank < 2 || pool.has_empty) return none;
        i64 rows = 1;
        for (int a = 0; a + 1 < pool.rank; ++a) rows *= pool.axes[a].most;
        if (rows > most_rows_joined) return none;
        const PoolAxis& ax = pool.axes[pool.rank - 1];
        if (ax.identity) return pool.rank > 2 ? cells : lines;
        if (ax.step != 1) return none;
        if (ax.regular) return ax.stride == 2 && (ax.taps == 2 || ax.taps == 3) ? pairs : none;
        if (ax.period != 2) return none;
        const PoolAxis &even = ax.phases[0], &odd = ax.phases[1];
        if (!even.regular || !odd.regular || even.stride != 1 || odd.stride != 1 || even.taps + odd.taps != 3) return none;
        const i64 apart = even.taps == 1 ? even.start - odd.start : odd.start - even.start;
        return apart == 0 || apart == 1 ? dealt : none;
    }

    // Outputs o0..o1-1 of an axis as runs of windows alike: f(first output, how many, outputs to the next, input cells to it).
    template <class F>
    static void each_run_of_rows(const PoolAxis& ax, i64 o0, i64 o1, F&& f) {
        const i64 turns = ax.regular || !ax.phases ? 1 : ax.period;
        for (i64 r = 0; r < turns; ++r) {
            const PoolAxis& own = turns > 1 ? ax.phases[r] : ax;
            const i64 q0 = std::max<i64>(0, (o0 - r + turns - 1) / turns), q1 = std::max(q0, (o1 - r + turns - 1) / turns);
            const i64 f0 = own.regular ? std::clamp(own.full_lo, q0, q1) : q1, f1 = own.regular ? std::clamp(own.full_hi, f0, q1) : q1;
            for (i64 q = q0; q < q1; ++q) {
                const bool alike = q == f0 && f1 > f0;
                f(q * turns + r, alike ? f1 - f0 : 1, turns, own.stride);
                if (alike) q = f1 - 1;
            }
        }
    }

    // Rows of outputs, each `hop` further than the one before in the input and `pitch` in the output; `many` rows of input make
    // one of them, at these places.
    struct Block {
        const T* x;
        const i64* at;
        i64 many, count, hop;
        T* y;
        i64 pitch;
    };

    // The ends of what may be read and written.
    struct Ends {
        const T* x;
        T* y;
    };

    void run(const Block& b, const Ends& ends, Order& order) const {
        if (kind_ == cells) return b.many == 3 ? by_cells<3>(b, order) : b.many == 2 ? by_cells<2>(b, order) : by_cells<0>(b, order);
        if (kind_ == lines) return by_lines(b, order);
        if (kind_ == dealt) b.many == 2 ? by_turns<2>(b, order) : by_turns<0>(b, order);
        else if (ax_.taps == 2) b.many == 2 ? by_pairs<2, 2>(b, ends, order) : by_pairs<2, 0>(b, ends, order);
        else if (b.many == 3 && b.at[2] - b.at[0] == b.hop) by_pairs<3, 3>(b, ends, order);
        else b.many == 2 ? by_pairs<3, 2>(b, ends, order) : by_pairs<3, 0>(b, ends, order);
        const i64 scale = kind_ == dealt ? 2 : 1;
        for (i64 line = 0; line < b.count && scale * (q1_ - q0_) < ax_.m; ++line) {
            singly(b, line, 0, scale * q0_, order);
            singly(b, line, scale * q1_, ax_.m, order);
        }
    }

    // Outputs o0..o1-1 of a line.
    void singly(const Block& b, i64 line, i64 o0, i64 o1, Order& order) const {
        T* const y = b.y + line * b.pitch;
        for (i64 o = o0; o < o1; ++o) {
            auto c = down<0, 1>(b, line, ax_.first[o], order);
            for (i64 k = 1; k < ax_.count[o]; ++k) c = Op::join(c, down<0, 1>(b, line, ax_.first[o] + k, order));
            y[o] = order.template finish<1>(c.v);
        }
    }

    // The join of cell i of all R rows of a line, and of those behind it.
    template <int R, int N = L>
    [[gnu::always_inline]] static typename Op::template Cell<N> down(const Block& b, i64 line, i64 i, Order& order) {
        const T* x = b.x + line * b.hop + i;
        typename Op::template Cell<N> c{load<N>(x + b.at[0])};
        order.template meet<N>(c.v);
        for (i64 r = 1; r < (R ? R : b.many); ++r) {
            typename Op::template Cell<N> d{load<N>(x + b.at[r])};
            order.template meet<N>(d.v);
            c = Op::join(c, d);
        }
        return c;
    }

    // The same of the N cells from x on and of the N behind them, the even ones and the odd ones apart; the first row may have been
    // met before.
    template <int R, int N, bool met>
    [[gnu::always_inline]] static void down_pairs(const T* x, const Block& b, Order& order, typename Op::template Cell<N>& even,
                                                  typename Op::template Cell<N>& odd) {
        auto row = [&](i64 r, bool old, auto& low, auto& high) __attribute__((always_inline)) {  // each vector is read once
            low.v = in_register(load<N>(x + b.at[r])), high.v = in_register(load<N>(x + b.at[r] + N));
            if (!old) order.template meet<N>(low.v, high.v);
        };
        typename Op::template Cell<N> low, high, next_low, next_high;
        row(0, met, low, high);
        for (i64 r = 1; r < (R ? R : b.many); ++r) {
            row(r, false, next_low, next_high);
            low = Op::join(low, next_low), high = Op::join(high, next_high);
        }
        unzip<N>(low.v, high.v, even.v, odd.v);
    }

    // f(place) for vectors that cover q0..q1-1, the last of which may reach back.
    template <class F>
    [[gnu::always_inline]] static void vectors(i64 q0, i64 q1, F&& f) {
        for (i64 q = q0;;) {
            f(q);
            if (q + L >= q1) return;
            q = std::min(q + L, q1 - L);
        }
    }

    // The lines from..to-1, in registers what does not change from one to the next: nothing that is stored can be part of it.
    template <int R, class F>
    [[gnu::always_inline]] static void each_line(const Block& given, i64 from, i64 to, Order& known, F&& f) {
        Block b = given;
        i64 at[R ? R : 1];
        for (int r = 0; r < R; ++r) at[r] = given.at[r];
        if (R) b.at = at;
        Order order = known;
        for (i64 line = from; line < to; ++line) f(b, line, b.y + line * b.pitch, order);
        known = order;
    }

    [[gnu::noinline]] void by_lines(const Block& given, Order& known) const {
        each_line<0>(given, 0, given.count, known, [m = ax_.m](const Block& b, i64 line, T* y, Order& order) __attribute__((always_inline)) {
            vectors(0, m, [&](i64 q) __attribute__((always_inline)) { store<L>(y + q, order.template finish<L>(down<0>(b, line, q, order).v)); });
        });
    }

    // The innermost axis is as it is, and the one around it slides: what neighbouring windows share is joined once.
    template <int R>
    [[gnu::noinline]] void by_cells(const Block& given, Order& known) const {
        const PoolAxis& wide = pool_.axes[pool_.rank - 2];
        const i64 n = ax_.n, m = wide.m, stride = wide.stride;
        const bool shared = R == 3 && wide.regular && wide.step == 1 && wide.taps == 3 && stride <= 2 && wide.full_lo < wide.full_hi;
        each_line<R>(given, 0, given.count, known, [=, &wide](const Block& b, i64 line, T* y, Order& order) __attribute__((always_inline)) {
            vectors(0, n, [&](i64 i) __attribute__((always_inline)) {
                auto at = [&](i64 cell) __attribute__((always_inline)) { return down<R>(b, line, cell * n + i, order); };
                auto put = [&](i64 o, Cell c) __attribute__((always_inline)) {
                    store<L>(y + o * n + i, order.template finish<L>(c.v));
                };
                auto window = [&](i64 o) __attribute__((always_inline)) {
                    const i64 first = wide.first[o], count = wide.count[o];
                    Cell c = at(first);
                    if (R && count == R)
                        for (i64 k = 1; k < R; ++k) c = Op::join(c, at(first + k * wide.step));
                    else
                        for (i64 k = 1; k < count; ++k) c = Op::join(c, at(first + k * wide.step));
                    put(o, c);
                };
                i64 o = 0;
                if (shared) {
                    for (; o < wide.full_lo; ++o) window(o);
                    i64 first = wide.first[o];
                    Cell before = at(first);
                    if (stride == 1) {
                        Cell here = at(first + 1);
                        for (; o < wide.full_hi; ++o, ++first) {
                            const Cell next = at(first + 2);
                            put(o, Op::join(Op::join(before, here), next));
                            before = here, here = next;
                        }
                    } else {
                        for (; o < wide.full_hi; ++o, first += 2) {
                            const Cell here = at(first + 1), next = at(first + 2);
                            put(o, Op::join(Op::join(before, here), next));
                            before = next;
                        }
                    }
                }
                for (; o < m; ++o) window(o);
            });
        });
    }

    // Rows of fewer outputs than a vector has take as many lanes as they need.
    template <int K, int R>
    void by_pairs(const Block& b, const Ends& ends, Order& order) const {
        if constexpr (L / 4 >= least)
            if (q1_ - q0_ <= L / 4) return by_pairs_of<K, R, L / 4>(b, ends, order);
        if constexpr (L / 2 >= least)
            if (q1_ - q0_ <= L / 2) return by_pairs_of<K, R, L / 2>(b, ends, order);
        by_pairs_of<K, R, L>(b, ends, order);
    }

    // Three rows: the first of a line is the last one of the line before.
    template <int K, int R, int N>
    [[gnu::noinline]] void by_pairs_of(const Block& given, const Ends& ends, Order& known) const {
        using Some = typename Op::template Cell<N>;
        const i64 q0 = q0_, q1 = q1_, base = base_, over = q0 + (q1 - q0 + N - 1) / N * N;
        constexpr bool met = R == 3;
        auto join = [=](const Block& b, i64 line, T* y, Order& order, bool runs_over) __attribute__((always_inline)) {
            const T* x = b.x + line * b.hop + base;
            auto column = [&](i64 q) __attribute__((always_inline)) {  // that before output q, where there is one
                return splat<N>(base + 2 * q > 0 ? down<R, 1>(b, line, base + 2 * q - 1, order).v : Op::pad());
            };
            Vec<T, N> before{};
            auto some = [&](i64 q) __attribute__((always_inline)) {
                Some even, odd;
                down_pairs<R, N, met>(x + 2 * q, b, order, even, odd);
                auto c = Op::join(even, odd);
                if constexpr (K == 3) c = Op::join(Some{shifted_up<N>(before, odd.v)}, c), before = odd.v;
                store<N>(y + q, order.template finish<N>(c.v));
            };
            if constexpr (K == 3) before = column(q0);
            i64 q = q0;
            for (; runs_over ? q < q1 : q + N <= q1; q += N) some(q);
            if (runs_over || q == q1) return;
            if constexpr (K == 3) before = column(q1 - N);
            some(q1 - N);
        };
        const T* top = given.x + given.at[0] + base;
        for (i64 i = 2 * q0; met && i < 2 * q1; i += N) known.template meet<N>(load<N>(top + std::min(i, 2 * q1 - N)));
        // The last vector of a row may go on into the next row, where there is one, which is written later.
        i64 lines = given.count;
        auto fits = [&](i64 line) {
            return ends.y - given.y >= line * given.pitch + over &&
                   ends.x - given.x >= line * given.hop + given.at[given.many - 1] + base + 2 * over;
        };
        while (lines > 0 && !fits(lines - 1)) --lines;
        each_line<R>(given, 0, lines, known, [=](const Block& b, i64 line, T* y, Order& order) __attribute__((always_inline)) {
            join(b, line, y, order, true);
        });
        if constexpr (N == L)
            if (q1 - q0 >= N)
                return each_line<R>(given, lines, given.count, known,
                                    [=](const Block& b, i64 line, T* y, Order& order) __attribute__((always_inline)) {
                                        join(b, line, y, order, false);
                                    });
        for (i64 line = lines; line < given.count; ++line) singly(given, line, q0, q1, known);
    }

    // Even outputs and odd ones slide by themselves: the ones are windows of two cells, the others have one of these.
    template <int R>
    [[gnu::noinline]] void by_turns(const Block& given, Order& known) const {
        const i64 q0 = q0_, q1 = q1_, base = base_;
        const bool left = left_, second = second_;
        each_line<R>(given, 0, given.count, known, [=](const Block& b, i64 line, T* y, Order& order) __attribute__((always_inline)) {
            vectors(q0, q1, [&](i64 q) __attribute__((always_inline)) {
                const auto first = down<R>(b, line, base + q, order), next = down<R>(b, line, base + q + 1, order);
                const V both = order.template finish<L>(Op::join(first, next).v);
                const V one = order.template finish<L>(second ? next.v : first.v);
                V low, high;
                zip<L>(left ? one : both, left ? both : one, low, high);
                store<L>(y + 2 * q, low), store<L>(y + 2 * q + L, high);
            });
        });
    }

    const Pool& pool_;
    const PoolAxis& ax_;
    Kind kind_;
    int outer_;              // axes that choose rows
    i64 size_[max_axes];     // cells of one step along an axis
    i64 q0_, q1_, base_;     // along the innermost axis: what vectors do, where the first of them reads
    bool left_ = false, second_ = false;
};

}  // namespace
}  // namespace lunette::LN_ISA
