// What a reduction over windows (reduce.hpp) joins its cells with, and the joins of a few taps.
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
//   any_order         whether join may meet cells in any order, except where Order, which meets them all, says it matters;
//                     its finish(v) are the results
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

constexpr i64 short_row = 48;         // rows up to this length are done several at a time

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

}  // namespace
}  // namespace lunette::LN_ISA
