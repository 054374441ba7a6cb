// The greatest cell of each window, and where it is.
#include "long_sum.hpp"
#include "max_claims.hpp"
#include "max_one_window.hpp"
#include "max_planes.hpp"
#include "max_tiles.hpp"
#include "operators.hpp"

namespace lunette::LN_ISA {
namespace {

template <class T>
void max_values(const Pool& pool, i64 planes, const T* x, T* y) {
    Reducer<MaxValue<T>> reducer(pool, x + planes * pool.cells_in);
    const i64 rest = pool.cells_out / pool.axes[0].m;
    over_parts(pool, planes, [&](i64 p0, i64 p1, i64 o0, i64 o1) {
        char* memory = static_cast<char*>(scratch(reducer.bytes()));
        if (o1 - o0 == pool.axes[0].m)
            return reducer.run_planes(x + p0 * pool.cells_in, p1 - p0, {y + p0 * pool.cells_out}, memory, [](i64, i64) {});
        for (i64 p = p0; p < p1; ++p)
            reducer.run(0, x + p * pool.cells_in, 0, o0, o1, {y + p * pool.cells_out + o0 * rest}, memory);
    });
}

template <class T>
inline bool wins(T x, T best) {
    return x == best || (best != best && x != x);
}

template <class T>
i64 count_winners(const Pool& pool, const T* x, i64 output, T best) {
    i64 winners = 0;
    each_run(pool, output, [&](i64 at, i64 n, i64 step) {
        for (i64 j = 0; j < n; ++j) winners += wins(x[at + j * step], best);
    });
    return winners;
}

// The place of the first winner of a window whose greatest cell is known.
template <class T>
i64 first_winner_of(const Pool& pool, const T* x, i64 output, T best) {
    i64 first = -1;
    each_run(pool, output, [&](i64 at, i64 n, i64 step) {
        for (i64 j = 0; j < n && first < 0; ++j)
            if (wins(x[at + j * step], best)) first = at + j * step;
    });
    return first;
}

// Calls f(plane, first output, count, values, places) for parts that cover all outputs. Places are as wide as T, except in
// planes of so many cells that these cannot count them: there winners are looked for once more.
template <class Op, class T, class F>
void max_places_by(const Pool& pool, i64 planes, const T* x, F&& f) {
    Reducer<Op> reducer(pool, x + planes * pool.cells_in);
    const i64 rest = pool.cells_out / pool.axes[0].m;
    over_parts(pool, planes, [&](i64 p0, i64 p1, i64 o0, i64 o1) {
        const i64 step = reducer.top_block();
        char* memory = static_cast<char*>(scratch(reducer.bytes() + 2 * (std::min(step, o1 - o0) * rest * sizeof(T) + 64)));
        typename Op::Ref found = Op::make(memory, std::min(step, o1 - o0) * rest);
        for (i64 p = p0; p < p1; ++p)
            for (i64 b0 = o0; b0 < o1; b0 += step) {
                i64 b1 = std::min(o1, b0 + step);
                const i64 first = b0 * rest, count = (b1 - b0) * rest;
                const T* xp = x + p * pool.cells_in;
                reducer.run(0, xp, 0, b0, b1, found, memory);
                if constexpr (requires { found.p; }) f(p, first, count, found.v, found.p);
                else
                    for (i64 q = 0; q < count; ++q) {
                        const i64 place = first_winner_of(pool, xp, first + q, found.v[q]);
                        f(p, first + q, 1, found.v + q, &place);
                    }
            }
    });
}
template <class T, class F>
void max_places(const Pool& pool, i64 planes, const T* x, F&& f) {
    if (places_fit<T>(pool)) max_places_by<MaxPlace<T>>(pool, planes, x, f);
    else max_places_by<MaxValue<T>>(pool, planes, x, f);
}

// dx for the input cells i0..i1-1 of axis 0: each(..., put, from, to) calls put(i, term) for the winners among the cells
// from..to-1 of a block of outputs. Cells that few outputs read are summed in place; there, where g holds -0, winners first
// get -0 in place of +0, so that a sum of -0 alone stays -0.
template <class Op, class Each>
void scatter(const Pool& pool, i64 planes, const typename Op::Scalar* x, const typename Op::Scalar* g,
             typename Op::Scalar* dx, Each each) {
    using T = typename Op::Scalar;
    Reducer<Op> reducer(pool, x + planes * pool.cells_in);
    const PoolAxis& ax = pool.axes[0];
    const i64 rest = pool.cells_out / ax.m, rin = pool.cells_in / ax.n;
    const bool deep = !pool.transposed || pool.transposed->window > sum_block;
    over_parts(pool.transposed ? *pool.transposed : pool, planes, [&](i64 p0, i64 p1, i64 i0, i64 i1) {
        if (!pool.transposed) {  // parts of outputs, not of inputs: the first does it all
            if (i0 > 0) return;
            i1 = ax.n;
        }
        i64 first = ax.m, end = 0, cells = (i1 - i0) * rin;
        for (i64 o = 0; o < ax.m; ++o)
            if (ax.last(o) >= i0 && ax.first[o] < i1) first = std::min(first, o), end = o + 1;
        const i64 step = std::min(reducer.top_block(), ax.m);
        char* memory = static_cast<char*>(scratch(reducer.bytes() + step * rest * Op::cell_bytes + 128));
        auto found = Op::make(memory, step * rest);
        for (i64 p = p0; p < p1; ++p) {
            const T* xp = x + p * pool.cells_in;
            const T* gp = g + p * pool.cells_out;
            T* dp = dx + p * pool.cells_in;
            auto pass = [&](bool zeroing, auto put) {
                i64 clean = i0;  // rows before it are zeroed
                auto zero_to = [&](i64 row) {
                    if (zeroing && row > clean) std::memset(static_cast<void*>(dp + clean * rin), 0, (row - clean) * rin * sizeof(T));
                    clean = std::max(clean, row);
                };
                for (i64 b0 = first; b0 < end; b0 += step) {
                    i64 b1 = std::min(end, b0 + step), hi = i0;
                    for (i64 o = b0; o < b1; ++o) hi = std::max(hi, ax.last(o) + 1);
                    zero_to(std::min(hi, i1));
                    reducer.run(0, xp, 0, b0, b1, found, memory);
                    each(xp, gp + b0 * rest, b0 * rest, (b1 - b0) * rest, found, put, i0 * rin, i1 * rin);
                }
                zero_to(i1);
            };
            if (deep) {
                Deposits<T> deposits(dp, scratch(Deposits<T>::bytes(cells), 1), i0 * rin, i1 * rin);
                pass(false, [&](i64 i, T term) { deposits.add(i, term); });
                deposits.finish();
                continue;
            }
            const bool mark = end > first && has_negative_zero(gp + first * rest, (end - first) * rest);
            if (mark) pass(true, [&](i64 i, T) { dp[i] = -T(0); });
            pass(!mark, [&](i64 i, T term) { dp[i] += term; });
        }
    });
}

}  // namespace

template <class T>
void max_pool(const Pool& pool, i64 planes, const T* x, T* y, i64* index) {
    if (planes == 0 || pool.cells_out == 0) return;
    if (!index) return max_values(pool, planes, x, y);
    max_places(pool, planes, x, [&](i64 p, i64 o, i64 count, const T* v, const auto* place) {
        std::memcpy(y + p * pool.cells_out + o, v, count * sizeof(T));
        i64* to = index + p * pool.cells_out + o;
        for (i64 q = 0; q < count; ++q) to[q] = place[q];
    });
}

template <class T>
void max_pool_jvp(const Pool& pool, i64 planes, const T* x, const T* t, T* dy, Ties ties) {
    if (planes == 0 || pool.cells_out == 0) return;
    const i64 n = pool.cells_in;
    if (one_window<T>(pool))
        return over_parts(pool, planes, [&](i64 p0, i64 p1, i64, i64) {
            one_window_jvp(p1 - p0, n, x + p0 * n, t + p0 * n, dy + p0, ties);
        });
    if (ties == Ties::first)
        return max_places(pool, planes, x, [&](i64 p, i64 o, i64 count, const T*, const auto* place) {
            const T* tp = t + p * pool.cells_in;
            T* to = dy + p * pool.cells_out + o;
            for (i64 q = 0; q < count; ++q) to[q] = tp[place[q]];
        });
    max_places(pool, planes, x, [&](i64 p, i64 o, i64 count, const T* best, const auto*) {
        const T *xp = x + p * pool.cells_in, *tp = t + p * pool.cells_in;
        T* to = dy + p * pool.cells_out + o;
        for (i64 q = 0; q < count; ++q) {
            LongSum<T> sum;
            i64 winners = 0;
            each_run(pool, o + q, [&](i64 at, i64 n, i64 step) {
                for (i64 j = at; j < at + n * step; j += step)
                    if (wins(xp[j], best[q])) sum.add(tp[j]), ++winners;
            });
            to[q] = sum.total() / (ties == Ties::split ? static_cast<T>(winners) : T(1));
        }
    });
}

template <class T>
void max_pool_vjp(const Pool& pool, i64 planes, const T* x, const T* g, T* dx, Ties ties) {
    if (planes == 0 || pool.cells_in == 0) return;
    const i64 n = pool.cells_in;
    if (one_window<T>(pool))
        return over_parts(pool, planes, [&](i64 p0, i64 p1, i64, i64) {
            one_window_vjp(p1 - p0, n, x + p0 * n, g + p0, dx + p0 * n, ties);
        });
    if (ties == Ties::first && PlanesInLanes<T>::suits(pool)) {
        const i64 done = PlanesInLanes<T>(pool)(planes, x, g, dx);
        planes -= done, x += done * n, g += done * pool.cells_out, dx += done * n;
        if (planes == 0) return;
    }
    if (ties == Ties::first && Tiles<T>::suits(pool)) return Tiles<T>(pool, x + planes * n, g + planes * pool.cells_out)(planes, x, g, dx);
    if (ties == Ties::first && Claims<T>::suits(pool)) return Claims<T>(pool, x + planes * n)(planes, x, g, dx);
    if (ties == Ties::first && places_fit<T>(pool)) {
        using Op = MaxPlace<T>;
        auto each = [&](const T*, const T* gp, i64, i64 count, typename Op::Ref found, auto put, i64 from, i64 to) {
            for (i64 q = 0; q < count; ++q)
                if (i64 i = found.p[q]; i >= from && i < to) put(i, gp[q]);
        };
        return scatter<Op>(pool, planes, x, g, dx, each);
    }
    using Op = MaxValue<T>;
    auto each = [&](const T* xp, const T* gp, i64 o, i64 count, typename Op::Ref found, auto put, i64 from, i64 to) {
        for (i64 q = 0; q < count; ++q) {
            const T best = found.v[q];
            if (ties == Ties::first) {
                if (i64 i = first_winner_of(pool, xp, o + q, best); i >= from && i < to) put(i, gp[q]);
                continue;
            }
            const T share = ties == Ties::split ? gp[q] / static_cast<T>(count_winners(pool, xp, o + q, best)) : gp[q];
            each_run(pool, o + q, [&](i64 at, i64 n, i64 step) {
                for (i64 i = at; i < at + n * step; i += step)
                    if (wins(xp[i], best) && i >= from && i < to) put(i, share);
            });
        }
    };
    scatter<Op>(pool, planes, x, g, dx, each);
}

template void max_pool<float>(const Pool&, i64, const float*, float*, i64*);
template void max_pool<double>(const Pool&, i64, const double*, double*, i64*);
template void max_pool_jvp<float>(const Pool&, i64, const float*, const float*, float*, Ties);
template void max_pool_jvp<double>(const Pool&, i64, const double*, const double*, double*, Ties);
template void max_pool_vjp<float>(const Pool&, i64, const float*, const float*, float*, Ties);
template void max_pool_vjp<double>(const Pool&, i64, const double*, const double*, double*, Ties);

}  // namespace lunette::LN_ISA
