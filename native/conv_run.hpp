// A Gather at work: tile by tile, on as many threads as there are.
#pragma once
#include "conv_mend.hpp"
#include "conv_weights.hpp"

namespace lunette::LN_ISA {
namespace {

// Stores `rows` rows of a panel that does not lie in one piece in the result: `more` is added to what is there, and
// the last (`done`) gets the epilogue, its pointers at the first row.
template <class T>
bool scatter(const Gather& z, const Panel& panel, const Run* runs, const T* sums, i64 rows, bool more, bool done,
             const Epilogue<T>& e, T* out) {
    constexpr i64 L = lanes<T>;
    i64 pitch = z.col().out;
    const T* add = done ? e.add : nullptr;
    const bool relu = done && e.relu;
    bool bad = false;
    auto doubt = in_doubt(broadcast(T(1)));
    for (i64 m = 0; m < rows; ++m, sums += panel_width<T>) {
        const Finish<T> finish = done ? finish_of(e, m) : Finish<T>{};
        for (int x = 0; x < panel.runs; ++x) {
            i64 first = m * z.out_channel + runs[x].to, l = 0, n = runs[x].length;
            const T* from = sums + runs[x].at;
            T* y = out + first;
            auto some = [&](i64 at) {
                Vector<T> v = load(from + at);
                if (more) v += load(y + at);
                doubt |= in_doubt(v);
                v = finish.moved(v);
                if (add) v += load(add + first + at);
                store(y + at, finish.ended(v));
            };
            if (pitch == 1) {
                for (; l + L <= n; l += L) some(l);
                if (l < n && n > L && !more) some(n - L), l = n;  // some cells twice
            }
            if (!more && !add && !relu) {  // almost always
                for (i64 q = l; q < n; ++q) y[q * pitch] = finish.moved(from[q]);
                for (; l < n; ++l) bad |= in_doubt(from[l]);
            }
            for (; l < n; ++l) {
                T v = more ? y[l * pitch] + from[l] : from[l];
                bad |= in_doubt(v);
                y[l * pitch] = finish(v, add ? add + first + l * pitch : nullptr);
            }
        }
    }
    return bad || any(doubt);
}

// Rows first..last of one group over one tile.
inline constexpr i64 row_block = 128;  // so that its terms stay in the second cache
template <bool Packed, class T>
bool run_rows(const Work<T>& w, const PackedWeights<T>& a, i64 group, i64 first, i64 last, const T* in,
              const Epilogue<T>& e, T* out) {
    const Plan<T>& p = w.p;
    const Gather& z = p.z;
    constexpr i64 W = panel_width<T>;
    i64 blocks = p.blocks(), copied = p.copy_size();
    const Ladder ladder(blocks);
    bool deep = !ladder.one_level();
    i64 packed = p.packed ? w.panels.size * packed_panel<T> + W : 0;
    constexpr i64 gathered_pitch = block_terms + 16;  // not a power of two
    T* copy = workspace<T>(tile_slot, copied + packed + row_block * gathered_pitch);
    T *panels = copy + copied, *gathered = panels + packed;
    // Sums of panels that do not lie in one piece in the result.
    i64 level = w.panels.size * (blocks > 1 ? last - first : row_block) * W;
    T* sums = workspace<T>(sums_slot, ladder.levels * level);
    int32_t even[packed_terms];
    for (i64 k = 0; k < packed_terms && p.packed; ++k) even[k] = int32_t(k * W);
    const T* in_end = in + z.in_size;
    in += group * z.channels * z.in_channel;
    out += group * z.rows * z.out_channel;
    const Epilogue<T> own = from_row(e, group * z.rows, group * z.rows * z.out_channel);
    const T* rows = a.data + group * a.group;
    bool bad = false;
    for (i64 k = 0; k < blocks; ++k) {
        auto [c, t, n] = p.block(k);
        const T* source = p.straight ? in + c * z.in_channel : copy;
        if (t == 0 && !p.straight)
            for (i64 i = 0; i < up(n, z.taps); ++i)
                copy_channel(w, in + (c + i) * z.in_channel, in_end, copy + i * p.channel);
        const int32_t *taps = p.off.data + t, *off = taps;
        if (p.packed) pack_panels(w, source, in_end, taps, n, panels), off = even;
        bool fresh = ladder.starts(k), done = k == blocks - 1;
        for (i64 m0 = first; m0 < last; m0 += row_block) {
            i64 count = least(row_block, last - m0), depth = a.depth;
            const T* first_row = rows + m0 * depth + (c * z.taps + t) * (Packed ? panel_rows : 1);
            if (a.kind == Rows::gathered) {
                first_row = gathered, depth = gathered_pitch;
                gather_rows(a, z, group, m0, count, c, t, n, gathered, depth);
            }
            for (i64 i = 0; i < w.panels.size; ++i) {
                const Panel& panel = w.panels[i];
                const Run* runs = w.runs.data + panel.run;
                T* sum = sums + (blocks > 1 ? i * (last - first) + m0 - first : 0) * W;
                if (!panel.vectors) {
                    T cells[block_terms];
                    for (i64 x = 0; x < n; ++x) cells[x] = source[panel.base + taps[x]];
                    dots(first_row, depth, count, cells, n, fresh, sum, W);
                } else {
                    bool whole = panel.whole && !deep;
                    Column<T> job{first_row, depth,   off,     n,   (p.packed ? panels : copy) + panel.base,
                                  sum,       nullptr, nullptr, sum, W, W,
                                  false,     false};
                    if (whole) {
                        job.out = out + m0 * z.out_channel + runs[0].to, job.pitch = z.out_channel;
                        job.before = job.out, job.before_pitch = job.pitch;
                        job.relu = done && e.relu, job.watch = done && z.absent;
                        const Epilogue<T> end = from_row(done ? own : Epilogue<T>{}, m0, job.out - out);
                        job.bias = end.bias, job.scale = end.scale, job.shift = end.shift, job.add = end.add;
                    }
                    if (fresh) job.before = nullptr;
                    bad |= column<Packed>(panel.vectors, job, count);
                    if (whole) continue;
                }
                ladder.climb(k, [&](i64 l, bool empty) {
                    T* from = sum + l * level;
                    if (l + 1 < ladder.levels) return go_up(empty, count * W, from, from + level);
                    bad |= scatter(z, panel, runs, from, count, !empty, done, from_row(own, m0, m0 * z.out_channel),
                                   out + m0 * z.out_channel);
                });
            }
        }
    }
    return bad;
}

// All cells are one tile, for run_across.
template <class T>
void plan_across(Plan<T>& p) {
    const Gather& z = p.z;
    p.all_slabs = p.outer_taps = 1;
    for (i64 a = 0; a < z.outers(); ++a) p.all_slabs *= z.axes[a].m, p.outer_taps *= z.axes[a].taps;
    p.block_channels = even_split(z.channels, most(1, block_terms / z.taps));
    p.packed = p.flat = false, p.by_lines = true;
    cut(p, z.cells);
    lay_out(p);
}

// Panels first..last of one group over all cells.
template <class T>
bool run_across(const Work<T>& w, const PackedWeights<T>& a, i64 group, i64 first, i64 last, const T* in,
                const Epilogue<T>& e, T* out) {
    const Plan<T>& p = w.p;
    const Gather& z = p.z;
    constexpr i64 W = panel_width<T>, pitch = block_terms + 16;
    T* copy = workspace<T>(tile_slot, p.copy_size() + z.cells * pitch);
    T* cells = copy + p.copy_size();
    const Ladder ladder(p.blocks());
    const i64 level = (last - first) * z.cells * W;
    T* sums = workspace<T>(sums_slot, (ladder.levels + 1) * level);  // the result on top
    int32_t even[block_terms];
    for (i64 k = 0; k < block_terms; ++k) even[k] = int32_t(k * W);
    const T* in_end = in + z.in_size;
    in += group * z.channels * z.in_channel;
    for (i64 k = 0; k < p.blocks(); ++k) {
        auto [c, t, n] = p.block(k);
        for (i64 i = 0; t == 0 && i < up(n, z.taps); ++i)
            copy_channel(w, in + (c + i) * z.in_channel, in_end, copy + i * p.channel);
        T* cell = cells;
        for (i64 r = 0; r < w.runs.size; ++r)
            for (i64 l = 0; l < w.runs[r].length; ++l, cell += pitch)
                for (i64 x = 0; x < n; ++x) cell[x] = copy[w.runs[r].from + l + p.off[t + x]];
        for (i64 q = first; q < last; ++q) {
            T* sum = sums + (q - first) * z.cells * W;
            const T* panel = a.data + group * a.group + (q * a.depth + c * z.taps + t) * W;
            const T* before = ladder.starts(k) ? nullptr : sum;
            Column<T> job{cells, pitch, even, n, panel, before, nullptr, nullptr, sum, W, W, false, false};
            column<false>(int(up(least(W, z.rows - q * W), lanes<T>)), job, z.cells);
        }
        ladder.climb(k, [&](i64 l, bool empty) { go_up(empty, level, sums + l * level, sums + (l + 1) * level); });
    }
    sums += ladder.levels * level;
    bool bad = false;
    for (i64 m = first * W; m < least(z.rows, last * W); ++m) {
        i64 row = group * z.rows + m, at = row * z.out_channel;
        const Finish<T> finish = finish_of(e, row);
        const T* sum = sums + (m / W - first) * z.cells * W + m % W;
        for (i64 r = 0; r < w.runs.size; ++r)
            for (i64 l = 0; l < w.runs[r].length; ++l, sum += W) {
                i64 to = at + w.runs[r].to + l * z.col().out;
                bad |= in_doubt(*sum);
                out[to] = finish(*sum, e.add ? e.add + to : nullptr);
            }
    }
    return bad;
}

template <class T>
void run_gather(const Gather& z, const T* in, const T* w, const T* packed, WeightLayout l, const Epilogue<T>& e,
                T* out) {
    if (is_depthwise(z)) return run_depthwise(z, in, w, l, e, out);
    i64 threads = num_threads();
    Plan<T> p(z);
    PackedWeights<T> a;
    choose_rows(a, z, l, packed != nullptr);
    bool across = a.kind == Rows::across;
    if (across) plan_across(p);
    else {
        // Rows that are not packed are read, or gathered, once per tile: threads rather share them than the cells.
        bool by_rows = a.kind != Rows::packed && z.rows * z.groups >= 32 * threads;
        make_plan(p, false, a.kind != Rows::packed, by_rows ? 1 : threads);
    }
    a.data = packed && is_packed(a.kind) ? packed : w;
    if (a.kind == Rows::packed && !packed) {
        T* own = workspace<T>(packed_weights_slot, z.groups * a.group);
        pack_weights(a, z, w, own);
        a.data = own;
    }
    // Tasks: tiles x groups; where these are few, the rows are shared out too; where they are tiny, groups
    // are joined.
    i64 tiles = p.tiles();
    double task_work = work(z.channels, z.taps, z.rows, most(1, z.cells / most(1, tiles)));
    i64 row_chunks = 1;
    if (tiles * z.groups < 2 * threads && threads > 1)
        row_chunks = least(up(2 * threads, tiles * z.groups), up(z.rows, 16));
    i64 height = across ? panel_height<T>(a.kind) : panel_rows;
    i64 row_chunk = up(up(z.rows, row_chunks), height) * height;
    row_chunks = up(z.rows, row_chunk);
    i64 join = most(1, least(z.groups, least(i64(300000 / task_work), up(z.groups * tiles, 4 * threads))));
    i64 group_chunks = up(z.groups, join);
    i64 tasks = tiles * group_chunks * row_chunks;
    bool bad = false;
    auto task = [&](i64 i) {
        i64 rc = i % row_chunks, gc = i / row_chunks % group_chunks, tile = i / row_chunks / group_chunks;
        Work<T> work_(p);
        set_tile(work_, tile);
        bool b = false;
        for (i64 g = gc * join; g < least(z.groups, gc * join + join); ++g) {
            i64 first = rc * row_chunk, last = least(z.rows, first + row_chunk);
            b |= across                   ? run_across(work_, a, g, first / height, up(last, height), in, e, out)
                 : a.kind == Rows::packed ? run_rows<true>(work_, a, g, first, last, in, e, out)
                                          : run_rows<false>(work_, a, g, first, last, in, e, out);
        }
        if (b) __atomic_store_n(&bad, true, __ATOMIC_RELAXED);
    };
    if (threads == 1 || work(z.cells, z.channels, z.taps, z.rows, z.groups) < 200000) {
        for (i64 i = 0; i < tasks; ++i) task(i);
    } else {
        parallel_for(tasks, task);
    }
    if (bad && z.absent) mend_sums(z, in, w, l, e, out);
}

}  // namespace
}  // namespace lunette::LN_ISA
