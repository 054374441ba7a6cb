// Walks over windows, over the cells of one window, and over the parts of many planes.
#pragma once
#include <algorithm>

#include "kernels.hpp"
#include "threads.hpp"

namespace lunette::LN_ISA {
namespace {

// The input cells of an axis that the outputs o0..o1-1 read lie in lo..hi-1; lo = hi if there are none.
inline void cells_of(const PoolAxis& ax, i64 o0, i64 o1, i64& lo, i64& hi) {
    if (ax.monotone && o0 < o1) {
        lo = ax.first[o0], hi = ax.last(o1 - 1) + 1;
        return;
    }
    if (ax.regular && o0 < o1) {
        lo = std::clamp<i64>(ax.start + o0 * ax.stride, 0, ax.n);
        hi = std::clamp<i64>(ax.start + (o1 - 1) * ax.stride + (ax.taps - 1) * ax.step + 1, lo, ax.n);
        return;
    }
    lo = ax.n, hi = 0;
    for (i64 o = o0; o < o1; ++o)
        if (ax.count[o] > 0) lo = std::min(lo, ax.first[o]), hi = std::max(hi, ax.last(o) + 1);
    lo = std::min(lo, hi);
}

// Cells of a window over the axes 0..axes-1 in row-major order, relative to the first: kept while windows stay the same.
class WindowRows {
public:
    static constexpr i64 most = 32;
    // size[a] is what one step along axis a passes. Where the window at o starts; `at` and `many` describe it.
    i64 look(const PoolAxis* axes, int count, const i64* size, const i64* o) {
        i64 start = 0, key = 0;
        for (int a = 0; a < count; ++a) {
            start += axes[a].first[o[a]] * size[a];
            key = 3 * key + axes[a].count[o[a]];
        }
        Known& known = known_[key & 7];
        bool same = known.many >= 0;
        for (int a = 0; a < count; ++a) same = same && known.counts[a] == axes[a].count[o[a]];
        if (!same) list(axes, count, size, o, known);
        many = known.many, at = known.at;
        return start;
    }
    i64 many = 0;
    const i64* at = nullptr;

private:
    struct Known {
        i64 many = -1, counts[max_axes], at[most];
    };
    [[gnu::noinline]] static void list(const PoolAxis* axes, int count, const i64* size, const i64* o, Known& w) {
        w.many = 1, w.at[0] = 0;
        for (int a = 0; a < count; ++a) {
            const i64 n = w.counts[a] = axes[a].count[o[a]];
            for (i64 r = w.many - 1; r >= 0; --r)
                for (i64 k = n - 1; k >= 0; --k) w.at[r * n + k] = w.at[r] + k * axes[a].step * size[a];
            w.many *= n;
        }
    }
    Known known_[8];  // windows at edges and between take turns
};

// Visits the cells of one window in row-major order, as runs along the innermost axis: f(flat place of the first cell,
// count, step).
template <class F>
inline void each_run(const Pool& pool, i64 output, F&& f) {
    const int last = pool.rank - 1;
    i64 count[max_axes], hop[max_axes], j[max_axes] = {}, size = 1, at = 0;
    for (int a = last; a >= 0; --a) {
        const PoolAxis& ax = pool.axes[a];
        i64 o = output % ax.m;
        output /= ax.m;
        count[a] = ax.count[o], hop[a] = ax.step * size;
        if (count[a] == 0) return;
        at += ax.first[o] * size, size *= ax.n;
    }
    for (;;) {
        f(at, count[last], hop[last]);
        int a = last - 1;
        for (; a >= 0 && ++j[a] == count[a]; --a) at -= (count[a] - 1) * hop[a], j[a] = 0;
        if (a < 0) return;
        at += hop[a];
    }
}

template <class F>
inline void each_cell(const Pool& pool, i64 output, F&& f) {
    each_run(pool, output, [&](i64 at, i64 count, i64 step) {
        for (i64 j = 0; j < count; ++j) f(at + j * step);
    });
}

// Where cell 0 would be if `p`, which holds the cells from `cells` on, held them all: run() takes that, and reads
// only what its outputs need.
template <class T>
inline const T* origin(const T* p, i64 cells) {
    return reinterpret_cast<const T*>(reinterpret_cast<std::uintptr_t>(p) - static_cast<std::uintptr_t>(cells) * sizeof(T));
}

// Cuts planes x outputs of the outermost axis into parts worth a task each: f(plane0, plane1, o0, o1).
template <class F>
inline void over_parts(const Pool& pool, i64 planes, F&& f) {
    constexpr i64 task_cells = 24 << 10, most_outputs = 1 << 20;
    if (planes == 0 || pool.cells_out == 0) return;
    const PoolAxis& ax = pool.axes[0];
    i64 cells = std::max<i64>(1, std::max(pool.cells_in, pool.cells_out)), threads = num_threads();
    i64 per_task = std::clamp<i64>(task_cells / cells, 1, planes);
    i64 groups = (planes + per_task - 1) / per_task, cuts = 1;
    if (groups < 4 * threads && threads > 1) cuts = std::min(4 * threads / groups + 1, cells / task_cells);
    cuts = std::max(cuts, pool.cells_out / most_outputs + 1);
    i64 reach = ax.regular ? std::max<i64>(1, ax.taps * ax.step / ax.stride) : 1;  // outputs that share input
    cuts = std::clamp<i64>(std::min(cuts, ax.m / reach), 1, ax.m);
    i64 per_cut = (ax.m + cuts - 1) / cuts;
    cuts = (ax.m + per_cut - 1) / per_cut;
    auto part = [&](i64 i) {
        i64 group = i / cuts, cut = i % cuts;
        f(group * per_task, std::min(planes, (group + 1) * per_task), cut * per_cut, std::min(ax.m, (cut + 1) * per_cut));
    };
    if (groups * cuts == 1) part(0);
    else parallel_for(groups * cuts, part);
}

}  // namespace
}  // namespace lunette::LN_ISA
