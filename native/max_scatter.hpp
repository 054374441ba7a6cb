// Cotangents added up where the winners are.
#pragma once
#include "long_sum.hpp"
#include "max_join.hpp"

namespace lunette::LN_ISA {
namespace {

// What becomes of a cotangent: it is deposited, or marks its cell with -0, or is added. One type for all three, for what finds
// the winners is compiled with it.
template <class T>
struct Put {
    T* dx;
    Deposits<T>* deposits;
    bool mark;
    [[gnu::always_inline]] void operator()(i64 i, T term) const {
        if (deposits) deposits->add(i, term);
        else dx[i] = mark ? -T(0) : dx[i] + term;
    }
};

// dx of a pool: winners(plane, b0, b1, put) calls put(i, term) for the winners i of the outputs b0..b1-1 of axis 0 of
// a plane, `step` of them at most. Cells that few outputs read are summed in place; there, where g holds -0, winners first
// get -0 in place of +0, so that a sum of -0 alone stays -0.
template <class T, class Winners>
void scatter(const Pool& pool, i64 planes, i64 step, const T* g, T* dx, Winners winners) {
    const PoolAxis& ax = pool.axes[0];
    const i64 rest = pool.cells_out / ax.m, rin = pool.cells_in / ax.n;
    const bool deep = !pool.transposed || pool.transposed->window > sum_block;
    over_parts(pool.transposed ? *pool.transposed : pool, planes, [&](i64 p0, i64 p1, i64 i0, i64 i1) {
        if (!pool.transposed) {  // parts of outputs, not of inputs: the first does it all
            if (i0 > 0) return;
            i1 = ax.n;
        }
        i64 first = ax.m, end = 0;
        for (i64 o = 0; o < ax.m; ++o)
            if (ax.last(o) >= i0 && ax.first[o] < i1) first = std::min(first, o), end = o + 1;
        const i64 from = i0 * rin, cells = (i1 - i0) * rin;
        for (i64 p = p0; p < p1; ++p) {
            const T* gp = g + p * pool.cells_out;
            T* dp = dx + p * pool.cells_in;
            auto pass = [&](bool zeroing, const Put<T>& put) {
                i64 clean = i0;  // rows before it are zeroed
                auto zero_to = [&](i64 row) {
                    if (zeroing && row > clean) std::memset(static_cast<void*>(dp + clean * rin), 0, (row - clean) * rin * sizeof(T));
                    clean = std::max(clean, row);
                };
                for (i64 b0 = first; b0 < end; b0 += step) {
                    i64 b1 = std::min(end, b0 + step), hi = i0;
                    for (i64 o = b0; o < b1; ++o) hi = std::max(hi, ax.last(o) + 1);
                    zero_to(std::min(hi, i1));
                    winners(p, b0, b1, [&](i64 i, T term) {
                        if (static_cast<std::uint64_t>(i - from) < static_cast<std::uint64_t>(cells)) put(i, term);
                    });
                }
                zero_to(i1);
            };
            if (deep) {
                Deposits<T> deposits(dp, scratch(Deposits<T>::bytes(cells), 1), from, from + cells);
                pass(false, {dp, &deposits, false});
                deposits.finish();
                continue;
            }
            const bool mark = end > first && has_negative_zero(gp + first * rest, (end - first) * rest);
            if (mark) pass(true, {dp, nullptr, true});
            pass(!mark, {dp, nullptr, false});
        }
    });
}

}  // namespace
}  // namespace lunette::LN_ISA
