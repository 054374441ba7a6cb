// Windows of few rows whose innermost axis is plain, joined while they are in registers: only results are written.
#pragma once
#include <utility>

#include "reduce_taps.hpp"

namespace lunette::LN_ISA {
namespace {

// { a[N-1], b[0], b[1], ... } and { a[1], a[2], ..., b[0] }.
template <int N, class V>
[[gnu::always_inline]] inline V shifted_up(V a, V b) {
    return [&]<int... l>(std::integer_sequence<int, l...>) __attribute__((always_inline)) {
        return __builtin_shufflevector(a, b, (N - 1 + l)...);
    }(std::make_integer_sequence<int, N>());
}
template <int N, class V>
[[gnu::always_inline]] inline V shifted_down(V a, V b) {
    return [&]<int... l>(std::integer_sequence<int, l...>) __attribute__((always_inline)) {
        return __builtin_shufflevector(a, b, (1 + l)...);
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
    static constexpr i64 most_rows_joined = 9;
    enum Kind { none, cells, lines, pairs, dealt };

public:
    explicit Straight(const Pool& pool) : pool_(pool), ax_(pool.axes[pool.rank - 1]), kind_(kind_of(pool)) {
        i64 size = 1;
        for (int a = pool.rank - 1; a >= 0; --a) size_[a] = size, size *= pool.axes[a].n;
        outer_ = kind_ == cells ? pool.rank - 2 : pool.rank - 1;
        q0_ = 0, q1_ = ax_.m, base_ = ax_.start;
        if (kind_ == pairs) {  // vectors hold both cells of every pair; a third one, on the left or on the right, may be absent
            left_ = ax_.taps == 3 && ax_.start % 2 != 0, base_ += left_;
            q0_ = std::clamp<i64>((1 - base_) / 2, 0, ax_.m), q1_ = std::clamp<i64>((ax_.n - base_) / 2, q0_, ax_.m);
        } else if (kind_ == dealt) {
            const PoolAxis &even = ax_.phases[0], &odd = ax_.phases[1];
            q0_ = std::max(even.full_lo, odd.full_lo), q1_ = std::max(q0_, std::min(even.full_hi, odd.full_hi));
            left_ = even.taps == 1, base_ = (left_ ? odd : even).start, second_ = (left_ ? even : odd).start != base_;
        }
        if (kind_ != none && q1_ - q0_ < L) kind_ = none;
    }

    bool suits() const { return kind_ != none; }

    // Outputs o0..o1-1 of axis 0 of `planes` planes, one after the other. False if the order of joins matters to these cells.
    [[gnu::noinline]] bool operator()(const T* x, i64 planes, i64 o0, i64 o1, T* out) const {
        typename Op::Order order;
        const PoolAxis& near = pool_.axes[outer_ - 1];  // of the axes that choose rows, the innermost
        const i64 m = kind_ == cells ? pool_.axes[outer_].m * ax_.m : ax_.m;
        WindowRows window;
        for (i64 p = 0; p < planes; ++p, x += pool_.cells_in) {
            i64 o[max_axes] = {o0};
            for (bool more = true; more;) {
                const i64 begin = outer_ == 1 ? o0 : 0, end = outer_ == 1 ? o1 : near.m;
                each_run_of_rows(near, begin, end, [&](i64 first, i64 count, i64 by, i64 step) {
                    o[outer_ - 1] = first;
                    const T* from = x + window.look(pool_.axes, outer_, size_, o);
                    run({from, window.at, window.many, count, step * size_[outer_ - 1], out + (first - begin) * m, by * m}, order);
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
    using Order = decltype([] { if constexpr (Op::any_order) return typename Op::Order{}; else return 0; }());

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

    void run(const Block& b, Order& order) const {
        if (kind_ == cells) return b.many == 3 ? by_cells<3>(b, order) : b.many == 2 ? by_cells<2>(b, order) : by_cells<0>(b, order);
        if (kind_ == lines) by_lines(b, order);
        else if (kind_ == dealt) b.many == 2 ? by_turns<2>(b, order) : by_turns<0>(b, order);
        else if (ax_.taps == 2) b.many == 2 ? by_pairs<2, 2>(b, order) : by_pairs<2, 0>(b, order);
        else b.many == 3 ? by_pairs<3, 3>(b, order) : b.many == 2 ? by_pairs<3, 2>(b, order) : by_pairs<3, 0>(b, order);
        if (kind_ == cells || kind_ == lines) return;
        const i64 scale = kind_ == dealt ? 2 : 1;
        for (i64 line = 0; line < b.count && scale * (q1_ - q0_) < ax_.m; ++line) {
            T* const y = b.y + line * b.pitch;
            auto one = [&](i64 o) {
                auto c = down<0, 1>(b, line, ax_.first[o], order);
                for (i64 k = 1; k < ax_.count[o]; ++k) c = Op::join(c, down<0, 1>(b, line, ax_.first[o] + k, order));
                y[o] = c.v;
            };
            for (i64 o = 0; o < scale * q0_; ++o) one(o);
            for (i64 o = scale * q1_; o < ax_.m; ++o) one(o);
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

    // f(place) for vectors that cover q0..q1-1, the last of which may reach back.
    template <class F>
    [[gnu::always_inline]] static void vectors(i64 q0, i64 q1, F&& f) {
        for (i64 q = q0;;) {
            f(q);
            if (q + L >= q1) return;
            q = std::min(q + L, q1 - L);
        }
    }

    // Every line, in registers what does not change from one to the next: nothing that is stored can be part of it.
    template <int R, class F>
    [[gnu::always_inline]] static void each_line(const Block& given, Order& known, F&& f) {
        Block b = given;
        i64 at[R ? R : 1];
        for (int r = 0; r < R; ++r) at[r] = given.at[r];
        if (R) b.at = at;
        Order order = known;
        for (i64 line = 0; line < b.count; ++line) f(b, line, b.y + line * b.pitch, order);
        known = order;
    }

    [[gnu::noinline]] void by_lines(const Block& given, Order& known) const {
        each_line<0>(given, known, [m = ax_.m](const Block& b, i64 line, T* y, Order& order) __attribute__((always_inline)) {
            vectors(0, m, [&](i64 q) __attribute__((always_inline)) { store<L>(y + q, down<0>(b, line, q, order).v); });
        });
    }

    // The innermost axis is as it is, and the one around it slides: what neighbouring windows share is joined once.
    template <int R>
    [[gnu::noinline]] void by_cells(const Block& given, Order& known) const {
        const PoolAxis& wide = pool_.axes[pool_.rank - 2];
        const i64 n = ax_.n, m = wide.m, stride = wide.stride;
        const bool shared = R == 3 && wide.regular && wide.step == 1 && wide.taps == 3 && stride <= 2 && wide.full_lo < wide.full_hi;
        each_line<R>(given, known, [=, &wide](const Block& b, i64 line, T* y, Order& order) __attribute__((always_inline)) {
            vectors(0, n, [&](i64 i) __attribute__((always_inline)) {
                auto at = [&](i64 cell) __attribute__((always_inline)) { return down<R>(b, line, cell * n + i, order); };
                auto put = [&](i64 o, Cell c) __attribute__((always_inline)) { store<L>(y + o * n + i, c.v); };
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

    template <int K, int R>
    [[gnu::noinline]] void by_pairs(const Block& given, Order& known) const {
        const i64 q0 = q0_, q1 = q1_, base = base_, n = ax_.n;
        const bool left = left_;
        each_line<R>(given, known, [=](const Block& b, i64 line, T* y, Order& order) __attribute__((always_inline)) {
            auto third = [&](i64 i) { return splat<L>(i >= 0 && i < n ? down<0, 1>(b, line, i, order).v : Op::pad()); };
            V before{};
            i64 after = -1;  // the vector that `before` comes before
            vectors(q0, q1, [&](i64 q) __attribute__((always_inline)) {
                const i64 i = base + 2 * q;
                Cell even, odd;
                unzip<L>(down<R>(b, line, i, order).v, down<R>(b, line, i + L, order).v, even.v, odd.v);
                auto c = Op::join(even, odd);
                if constexpr (K == 3) {
                    if (left) {
                        if (q != after) before = third(i - 1);
                        c = Op::join(Cell{shifted_up<L>(before, odd.v)}, c);
                        before = odd.v, after = q + L;
                    } else {
                        c = Op::join(c, Cell{shifted_down<L>(even.v, third(i + 2 * L))});
                    }
                }
                store<L>(y + q, c.v);
            });
        });
    }

    // Even outputs and odd ones slide by themselves: the ones are windows of two cells, the others have one of these.
    template <int R>
    [[gnu::noinline]] void by_turns(const Block& given, Order& known) const {
        const i64 q0 = q0_, q1 = q1_, base = base_;
        const bool left = left_, second = second_;
        each_line<R>(given, known, [=](const Block& b, i64 line, T* y, Order& order) __attribute__((always_inline)) {
            vectors(q0, q1, [&](i64 q) __attribute__((always_inline)) {
                const auto first = down<R>(b, line, base + q, order), next = down<R>(b, line, base + q + 1, order);
                const V both = Op::join(first, next).v, one = second ? next.v : first.v;
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
