// Windows that share no cell: each input cell belongs to one output at most, so derivatives write every cell once.
#pragma once
#include "reduce.hpp"

namespace lunette::LN_ISA {
namespace {

// Whether no cell is read twice, and the innermost axis is plain: neither padded nor dilated, with room for every stride.
inline bool share_no_cell(const Pool& pool) {
    const PoolAxis& ax = pool.axes[pool.rank - 1];
    if (!ax.regular || ax.start != 0 || ax.full_hi - ax.full_lo != ax.m || ax.step != 1) return false;
    if (ax.taps > ax.stride || ax.m * ax.stride > ax.n) return false;
    i64 rows = 1;
    for (int a = 0; a < pool.rank; ++a) {
        if (a + 1 < pool.rank) rows *= pool.axes[a].most;
        if (!pool.axes[a].disjoint) return false;
    }
    return pool.transposed && rows <= WindowRows::most;
}

// For such a pool, the rows of outputs of the outputs o0..o1-1 of axis 0 of one plane: f(first cell read, rows of the
// window from there, how many, first output, outputs, cells from the start of the window's last row that may be written,
// because they are this row's or will be written later). size[a] is the number of input cells in one step along axis a.
// Rows of dx that belong to no window are zeroed here.
template <class T, class F>
inline void each_tile_row(const Pool& pool, const i64* size, WindowRows& rows, i64 o0, i64 o1, T* dx, F&& f) {
    const int outer = pool.rank - 1;
    const PoolAxis &top = pool.axes[0], &last = pool.axes[outer];
    if (pool.transposed->has_empty) {
        const i64 from = o0 == 0 ? 0 : top.first[o0], to = o1 == top.m ? top.n : top.first[o1];
        std::memset(static_cast<void*>(dx + from * size[0]), 0, (to - from) * size[0] * sizeof(T));
    }
    if (outer == 0) {
        const i64 one = 0;
        return f(o0 * top.stride, &one, i64(1), o0, o1 - o0, (o1 - o0) * top.stride);
    }
    i64 o[max_axes] = {o0}, output = o0 * (pool.cells_out / top.m);
    const PoolAxis& near = pool.axes[outer - 1];
    const i64 end = outer == 1 && o1 < top.m ? top.first[o1] : near.n;  // rows from there on may be another thread's
    for (;;) {
        const i64 at = rows.look(pool.axes, outer, size, o);
        const i64 left = pool.transposed->has_empty ? 0 : (end - near.last(o[outer - 1])) * last.n;
        f(at, rows.at, rows.many, output, last.m, left);
        output += last.m;
        int a = outer - 1;
        for (; a > 0 && ++o[a] == pool.axes[a].m; --a) o[a] = 0;
        if (a == 0 && ++o[0] == o1) return;
    }
}

// What the derivatives of such a pool share.
class TileWindows {
public:
    explicit TileWindows(const Pool& pool) : pool_(pool), ax_(pool.axes[pool.rank - 1]) {
        i64 size = 1;
        for (int a = pool.rank - 1; a >= 0; --a) size_[a] = size, size *= pool.axes[a].n;
    }

    // Whether vectors of outputs can be dealt out along the innermost axis.
    static bool suits(const Pool& pool) {
        const i64 stride = pool.axes[pool.rank - 1].stride;
        return share_no_cell(pool) && (stride == 1 || stride == 2 || stride == 4);
    }

protected:
    const Pool& pool_;
    const PoolAxis& ax_;
    i64 size_[max_axes];  // cells of one step along an axis
};

// dx of windows that share no cell: every share is written to all cells of its window, other cells are zeroed.
template <class T>
class Spread : TileWindows {
    static constexpr int L = lanes<T>;

public:
    using TileWindows::TileWindows;

    // The outputs o0..o1-1 of axis 0 of a plane: share and dx are where output 0 and cell 0 are, or would be. Every cell gets
    // its share times its weight, if there are any.
    void operator()(WindowRows& rows, i64 o0, i64 o1, const T* share, T* dx, const T* weights = nullptr) const {
        if (weights) any_stride<true>(rows, o0, o1, share, dx, weights);
        else any_stride<false>(rows, o0, o1, share, dx, dx);
    }

private:
    template <bool weighted>
    void any_stride(WindowRows& rows, i64 o0, i64 o1, const T* share, T* dx, const T* weights) const {
        const i64 stride = ax_.stride == ax_.taps ? ax_.stride : 0;
        if (stride == 1) part<1, weighted>(rows, o0, o1, share, dx, weights);
        else if (stride == 2) part<2, weighted>(rows, o0, o1, share, dx, weights);
        else if (stride == 4) part<4, weighted>(rows, o0, o1, share, dx, weights);
        else part<0, weighted>(rows, o0, o1, share, dx, weights);
    }

    template <int S, bool weighted>
    void part(WindowRows& rows, i64 o0, i64 o1, const T* share, T* dx, const T* weights) const {
        each_tile_row(pool_, size_, rows, o0, o1, dx, [&](i64 at, const i64* places, i64 many, i64 o, i64 m, i64 left) {
            for (i64 r = 0; r < many; ++r) {
                T* to = dx + at + places[r];
                row<S, weighted>(share + o, m, to, weights + at + places[r], left);
                if (pool_.rank > 1)
                    for (i64 i = m * ax_.stride; i < ax_.n; ++i) to[i] = 0;
            }
        });
    }

    // S = 0 is any stride.
    template <int S, bool weighted>
    void row(const T* share, i64 m, T* to, const T* weights, i64 left) const {
        if constexpr (S == 0) {
            const i64 stride = ax_.stride, k = ax_.taps;
            for (i64 q = 0; q < m; ++q, to += stride, weights += stride) {
                for (i64 i = 0; i < k; ++i) to[i] = weighted ? share[q] * weights[i] : share[q];
                for (i64 i = k; i < stride; ++i) to[i] = 0;
            }
        } else {
            auto some = [&](i64 q, T* at) {
                Vec<T, L> v[S], r[S];
                for (auto& e : v) e = load<L>(share + q);
                interleave<S>(v, r);
                for (int e = 0; e < S; ++e)
                    store<L>(at + e * L, weighted ? r[e] * load<L>(weights + q * S + e * L) : r[e]);
            };
            i64 q = 0;
            for (; q + L <= m; q += L) some(q, to + q * S);
            if (q == m) return;
            // The rest of a row: what is written too much is written again.
            if (m >= L) return some(m - L, to + (m - L) * S);
            if (left >= S * L) return some(0, to);
            T out[S * L];
            some(0, out);
            std::memcpy(static_cast<void*>(to), out, m * S * sizeof(T));
        }
    }
};

}  // namespace
}  // namespace lunette::LN_ISA
