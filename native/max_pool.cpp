// The greatest cell of each window, and where it is.
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

// Calls f(plane, first output, count, values, places) for parts that cover all outputs.
template <class T, class F>
void max_places(const Pool& pool, i64 planes, const T* x, F&& f) {
    using Op = MaxPlace<T>;
    Reducer<Op> reducer(pool, x + planes * pool.cells_in);
    const i64 rest = pool.cells_out / pool.axes[0].m;
    over_parts(pool, planes, [&](i64 p0, i64 p1, i64 o0, i64 o1) {
        const i64 step = reducer.top_block();
        char* memory = static_cast<char*>(scratch(reducer.bytes() + 2 * (std::min(step, o1 - o0) * rest * sizeof(T) + 64)));
        typename Op::Ref found = Op::make(memory, std::min(step, o1 - o0) * rest);
        for (i64 p = p0; p < p1; ++p)
            for (i64 b0 = o0; b0 < o1; b0 += step) {
                i64 b1 = std::min(o1, b0 + step);
                reducer.run(0, x + p * pool.cells_in, 0, b0, b1, found, memory);
                f(p, b0 * rest, (b1 - b0) * rest, found.v, found.p);
            }
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

// Sums that arrive one term at a time, in any order of cells. A cell that more than block_terms outputs may add to
// gets them in blocks: `part` collects one block, `dx` the blocks.
template <class T>
class Deposits {
public:
    // Cells from..to-1 of a plane; `part` has room for as many, or is null where blocks are not needed.
    Deposits(T* dx, T* part, i64 from, i64 to) : dx_(dx), part_(part), from_(from), to_(to) {
        if (part_) for (i64 i = from; i < to; ++i) part_[i - from] = -T(0);
        lo_ = to, hi_ = from;
    }
    bool holds(i64 i) const { return i >= from_ && i < to_; }
    void add(i64 i, T term) {
        if (!part_) dx_[i] += term;
        else part_[i - from_] += term, lo_ = std::min(lo_, i), hi_ = std::max(hi_, i + 1);
    }
    void output_done() {
        if (part_ && ++outputs_ == block_terms) flush();
    }
    void flush() {
        if (!part_) return;
        for (i64 i = lo_; i < hi_; ++i) dx_[i] += part_[i - from_], part_[i - from_] = -T(0);
        lo_ = to_, hi_ = from_, outputs_ = 0;
    }

private:
    T *dx_, *part_;
    i64 from_, to_, lo_, hi_, outputs_ = 0;
};

// dx for the input cells i0..i1-1 of axis 0: visit(again) calls its argument with every block of outputs that reads
// some of them. Where g holds -0, winners first get -0 in place of +0, so that a sum of -0 alone stays -0.
template <class Op, class Each>
void scatter(const Pool& pool, i64 planes, const typename Op::Scalar* x, const typename Op::Scalar* g,
             typename Op::Scalar* dx, Each each) {
    using T = typename Op::Scalar;
    Reducer<Op> reducer(pool, x + planes * pool.cells_in);
    const PoolAxis& ax = pool.axes[0];
    const i64 rest = pool.cells_out / ax.m, rin = pool.cells_in / ax.n;
    const bool deep = !pool.transposed || pool.transposed->window > block_terms;
    over_parts(pool.transposed ? *pool.transposed : pool, planes, [&](i64 p0, i64 p1, i64 i0, i64 i1) {
        if (!pool.transposed) {  // parts of outputs, not of inputs: the first does it all
            if (i0 > 0) return;
            i1 = ax.n;
        }
        i64 first = ax.m, end = 0, cells = (i1 - i0) * rin;
        for (i64 o = 0; o < ax.m; ++o)
            if (ax.last(o) >= i0 && ax.first[o] < i1) first = std::min(first, o), end = o + 1;
        const i64 step = std::min(reducer.top_block(), ax.m);
        std::size_t found_bytes = step * rest * Op::cell_bytes + 128, part_bytes = deep ? cells * sizeof(T) + 64 : 0;
        char* memory = static_cast<char*>(scratch(reducer.bytes() + found_bytes + part_bytes));
        auto found = Op::make(memory, step * rest);
        T* part = deep ? reinterpret_cast<T*>(memory) : nullptr;
        memory += part_bytes / 64 * 64;
        for (i64 p = p0; p < p1; ++p) {
            const T* xp = x + p * pool.cells_in;
            const T* gp = g + p * pool.cells_out;
            T* dp = dx + p * pool.cells_in;
            const bool mark = end > first && has_negative_zero(gp + first * rest, (end - first) * rest);
            for (bool marking : {true, false}) {
                if (marking && !mark) continue;
                Deposits<T> deposits(dp, marking ? nullptr : part, i0 * rin, i1 * rin);
                i64 clean = i0;  // rows before it are zeroed
                for (i64 b0 = first; b0 < end; b0 += step) {
                    i64 b1 = std::min(end, b0 + step), hi = i0;
                    for (i64 o = b0; o < b1; ++o) hi = std::max(hi, ax.last(o) + 1);
                    hi = std::min(hi, i1);
                    if ((marking || !mark) && hi > clean) std::memset(static_cast<void*>(dp + clean * rin), 0, (hi - clean) * rin * sizeof(T));
                    clean = std::max(clean, hi);
                    reducer.run(0, xp, 0, b0, b1, found, memory);
                    each(xp, gp + b0 * rest, b0 * rest, (b1 - b0) * rest, found, dp, deposits, marking, i1 - i0 == ax.n);
                }
                if ((marking || !mark) && i1 > clean) std::memset(static_cast<void*>(dp + clean * rin), 0, (i1 - clean) * rin * sizeof(T));
                deposits.flush();
            }
        }
    });
}

}  // namespace

template <class T>
void max_pool(const Pool& pool, i64 planes, const T* x, T* y, i64* index) {
    if (planes == 0 || pool.cells_out == 0) return;
    if (!index) return max_values(pool, planes, x, y);
    max_places(pool, planes, x, [&](i64 p, i64 o, i64 count, const T* v, const Int<T>* place) {
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
    max_places(pool, planes, x, [&](i64 p, i64 o, i64 count, const T* best, const Int<T>* place) {
        const T *xp = x + p * pool.cells_in, *tp = t + p * pool.cells_in;
        T* to = dy + p * pool.cells_out + o;
        if (ties == Ties::first) {
            for (i64 q = 0; q < count; ++q) to[q] = tp[place[q]];
            return;
        }
        for (i64 q = 0; q < count; ++q) {
            T total = -T(0), block = -T(0);  // -0 changes no sum
            i64 winners = 0;
            each_run(pool, o + q, [&](i64 at, i64 n, i64 step) {
                for (i64 j = at; j < at + n * step; j += step) {
                    if (!wins(xp[j], best[q])) continue;
                    block += tp[j];
                    if (++winners % block_terms == 0) total += block, block = -T(0);
                }
            });
            to[q] = (total + block) / (ties == Ties::split ? static_cast<T>(winners) : T(1));
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
    if (ties == Ties::first) {
        using Op = MaxPlace<T>;
        auto each = [&](const T*, const T* gp, i64, i64 count, typename Op::Ref found, T* dp, Deposits<T>& deposits,
                        bool marking, bool whole) {
            for (i64 q = 0; q < count; ++q) {
                i64 i = found.p[q];
                if (!whole && !deposits.holds(i)) continue;
                if (marking) dp[i] = -T(0);
                else deposits.add(i, gp[q]), deposits.output_done();
            }
        };
        return scatter<Op>(pool, planes, x, g, dx, each);
    }
    using Op = MaxValue<T>;
    auto each = [&](const T* xp, const T* gp, i64 o, i64 count, typename Op::Ref found, T* dp, Deposits<T>& deposits,
                    bool marking, bool) {
        for (i64 q = 0; q < count; ++q) {
            const T best = found.v[q];
            const T share = ties == Ties::split ? gp[q] / static_cast<T>(count_winners(pool, xp, o + q, best)) : gp[q];
            each_run(pool, o + q, [&](i64 at, i64 n, i64 step) {
                for (i64 i = at; i < at + n * step; i += step) {
                    if (!wins(xp[i], best) || !deposits.holds(i)) continue;
                    if (marking) dp[i] = -T(0);
                    else deposits.add(i, share);
                }
            });
            deposits.output_done();
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
