// The weight gradient of a convolution: the same product, summed over cells.
#pragma once
#include "conv_gather.hpp"
#include "conv_mend.hpp"
#include "depthwise.hpp"

namespace lunette::LN_ISA {
namespace {

// dw[c, (j, t)] = sum over cells of g[c, o] * x[j, o*step + off_t]: the rows of the product are the packed
// panels of a forward tile (one row per (j, t), cells along it), its vectors the channels of g, packed cell
// by cell. Packs g's channels c .. c+width of the tile's cells into [cell][panel_width].
template <class T>
void pack_cells(const Work<T>& w, const T* g, i64 channels, i64 pitch, i64 cell_pitch, T* out) {
    constexpr i64 W = panel_width<T>, L = lanes<T>;
    for (i64 i = 0; i < w.runs.size; ++i) {
        Run run = w.runs[i];
        for (; cell_pitch == 1 && i + 1 < w.runs.size && w.runs[i + 1].to == run.to + run.length; ++i)
            run.length += w.runs[i + 1].length;  // neighbours in g
        const T* from = g + run.to;
        for (i64 c = 0; c < channels; c += L) {
            T* to = out + c;
            i64 l = 0;
            if (cell_pitch == 1 && c + L <= channels)
                for (; l + L <= run.length; l += L) {
                    Vector<T> m[lanes<T>];
                    for (i64 r = 0; r < L; ++r) m[r] = load(from + (c + r) * pitch + l);
                    transpose<T>(m);
                    for (i64 r = 0; r < L; ++r) store(to + (l + r) * W, m[r]);
                }
            for (; l < run.length; ++l)
                for (i64 r = 0; r < L; ++r)
                    to[l * W + r] = c + r < channels ? from[(c + r) * pitch + l * cell_pitch] : T(0);
        }
        out += run.length * W;
    }
}

// acc[r][v] += sum over the tile's cells; a: rows of packed panels, b: packed cells.
template <int R, int N, class T>
[[gnu::noinline]] void sum_cells(const T* a, i64 cells, const T* b, T* sums, bool fresh) {
    constexpr i64 W = panel_width<T>;
    Vector<T> acc[R][N];
    each<R, N>([&](int r, int v) { acc[r][v] = broadcast(T(-0.0)); });
    for (i64 i = 0; i < cells; i += W, a += packed_panel<T>) {
        i64 n = least(W, cells - i);
#pragma GCC unroll 4
        for (i64 l = 0; l < n; ++l, b += W) {
            multiply_term<R, N, false>(a, W, l, b, acc);
            asm volatile("" ::: "memory");  // as in multiply
        }
    }
    each<R, N>([&](int r, int v) {
        T* y = sums + r * W + v * lanes<T>;
        store(y, fresh ? acc[r][v] : acc[r][v] + load(y));
    });
}
template <int R, class T>
inline void sum_cells(int vectors, const T* a, i64 cells, const T* b, T* sums, bool fresh) {
    if (vectors == 1) return sum_cells<R, 1>(a, cells, b, sums, fresh);
    if (vectors == 2) return sum_cells<R, 2>(a, cells, b, sums, fresh);
    return sum_cells<R, 3>(a, cells, b, sums, fresh);
}

// The sums of one block of rows (j, t) over tiles first..last, in [channel panel][row][panel_width].
template <class T>
void sum_tiles(const Plan<T>& p, i64 group, i64 block, i64 first, i64 last, const T* x, const T* g, T* sums,
               T* levels) {
    const Gather& z = p.z;
    constexpr i64 W = panel_width<T>;
    auto [c, t, n] = p.block(block);
    const T* x_end = x + z.in_size;
    x += group * z.channels * z.in_channel;
    g += group * z.rows * z.out_channel;
    i64 size = up(z.rows, W) * n * W;
    const Ladder ladder(last - first);
    T* into = ladder.one_level() ? sums : levels;
    for (i64 tile = first; tile < last; ++tile) {
        Work<T> w(p);
        set_tile(w, tile);
        i64 cells = w.slabs * w.rows * w.cols;
        i64 size_of_panels = w.panels.size * packed_panel<T> + W;
        T* copy = workspace<T>(tile_slot, p.copy_size() + size_of_panels + up(cells, W) * W * W);
        T* panels = copy + p.copy_size();
        T* packed = panels + size_of_panels;
        for (i64 i = 0; i < up(n, z.taps) && !p.straight; ++i)
            copy_channel(w, x + (c + i) * z.in_channel, x_end, copy + i * p.channel);
        pack_panels(w, p.straight ? x + c * z.in_channel : copy, x_end, p.off.data + t, n, panels);
        bool fresh = ladder.starts(tile - first);
        for (i64 m = 0; m < z.rows; m += W) {
            i64 width = least(W, z.rows - m);
            int vectors = int(up(width, lanes<T>));
            pack_cells(w, g + m * z.out_channel, width, z.out_channel, z.col().out, packed);
            T* to = into + m * n;
            for (i64 r = 0; r < n;) {
                int rows = vectors == 1 ? 2 * panel_rows : panel_rows;  // enough sums under way
                while (rows > n - r) rows /= 2;
                const T* a = panels + r * W;
                if (rows == 2 * panel_rows) sum_cells<2 * panel_rows, 1>(a, cells, packed, to + r * W, fresh);
                else if (rows == 4) sum_cells<4>(vectors, a, cells, packed, to + r * W, fresh);
                else if (rows == 2) sum_cells<2>(vectors, a, cells, packed, to + r * W, fresh);
                else if (rows == 1) sum_cells<1>(vectors, a, cells, packed, to + r * W, fresh);
                else sum_cells<panel_rows>(vectors, a, cells, packed, to + r * W, fresh);
                r += rows;
            }
        }
        if (into == sums) continue;
        ladder.climb(tile - first, [&](i64 l, bool empty) {
            go_up(empty, size, levels + l * size, l + 1 < ladder.levels ? levels + (l + 1) * size : sums);
        });
    }
}

template <class T>
void weight_grad(const Conv& conv, const T* x, const T* g, T* dw) {
    auto [axes, d, groups, batch, cin, cout] = conv;
    Sizes s = sizes(axes, d);
    i64 per_group = groups ? cin / groups : 0;
    if (any_zero(cout, per_group, s.kernel)) return;
    Gather z;
    bool empty = !forward_gather(z, conv);
    if (empty || z.taps < s.kernel)
        for (i64 i = 0; i < cout * per_group * s.kernel; ++i) dw[i] = 0;
    if (empty) return;
    List<i64> place;
    places(z, place);
    if (is_depthwise(z)) {
        if (depthwise_weight_grad(z, place, s.kernel, x, g, dw))
            mend_weight_grad(z, place, s.kernel, x, g, dw);
        return;
    }
    i64 threads = num_threads();
    Plan<T> p(z);
    make_plan(p, true, false, threads);
    constexpr i64 W = panel_width<T>;
    i64 tiles = p.tiles(), blocks = p.blocks();
    // Blocks of dw are independent. Where they are too few, the cells are shared out too, and the shares
    // added in order.
    i64 shares = groups * blocks >= 2 * threads ? 1 : least(least(threads, tiles), 64);
    i64 size = up(z.rows, W) * W * packed_terms;
    if (shares > 1 && groups * blocks * shares * size > (i64(4) << 20)) shares = 1;
    T* all = shares > 1 ? workspace<T>(caller_slot, groups * blocks * shares * size) : nullptr;
    bool bad = false;
    auto finish = [&](i64 group, i64 block, const T* sums) {  // turns [channel panel][row][channel] into dw
        auto [c, t, n] = p.block(block);
        bool doubt = false;
        for (i64 m = 0; m < z.rows; m += W) {
            const T* from = sums + m * n;
            const i64 width = least(W, z.rows - m);
            for (i64 i = 0; i < n && z.absent; ++i)
                for (i64 l = 0; l < width; ++l) doubt |= in_doubt(from[i * W + l]);
            put_weights(z, place, s.kernel, from, W, width, t, n, dw + ((group * z.rows + m) * z.channels + c) * s.kernel);
        }
        if (doubt) __atomic_store_n(&bad, true, __ATOMIC_RELAXED);
    };
    auto task = [&](i64 i) {
        i64 share = i % shares, block = i / shares % blocks, group = i / shares / blocks;
        i64 first = tiles * share / shares, last = tiles * (share + 1) / shares;
        T* own = workspace<T>(sums_slot, (Ladder(tiles).levels + 1) * size);
        T* sums = shares > 1 ? all + i * size : own;
        sum_tiles(p, group, block, first, last, x, g, sums, own + size);
        if (shares == 1) finish(group, block, sums);
    };
    if (threads == 1 || work(z.cells, z.channels, z.taps, z.rows, groups) < 200000)
        for (i64 i = 0; i < groups * blocks * shares; ++i) task(i);
    else parallel_for(groups * blocks * shares, task);
    if (shares > 1)
        for (i64 i = 0; i < groups * blocks; ++i) {
            T* sums = all + i * shares * size;
            for (i64 k = 1; k < shares; ++k)
                for (i64 j = 0; j < size; ++j) sums[j] += sums[k * size + j];
            finish(i / blocks, i % blocks, sums);
        }
    if (bad) mend_weight_grad(z, place, s.kernel, x, g, dw);
}

}  // namespace
}  // namespace lunette::LN_ISA
