// Convolution and its three gradients, in any number of dimensions, as one blocked matrix product.
//
// Forward and input gradient are the same sum, a Gather:  out[r, q] = sum over (c, t) of a[r][c, t] * in[c,
// q*step + off_t] where r is a row (a channel of the result), c a channel of the source, q an output cell, t
// a tap (a kernel cell). A strided input gradient is one Gather per residue of the input cell modulo the
// stride.
//
// A tile of output cells first gets a zero-padded copy of the source it needs, channel by channel, split so
// that every tap of a line of output cells is one contiguous run. The product then reads its vectors either
// straight from that copy (shifted by the tap) or, where lines are too short for that, from panels packed
// from it.
#include "columns.hpp"
#include "depthwise.hpp"
#include "gather.hpp"
#include "operators.hpp"

namespace lunette::LN_ISA {
namespace {

// The rows of the product, ready to run. For many cells they are packed into panels. For few that would cost
// more than it gains: rows are used as they lie, or, where their terms are not neighbours, gathered block by
// block. Packed beforehand, rows may also lie side by side, so that vectors run across them and single cells are
// broadcast: no vector is wasted on a map of four cells.
enum class Rows { packed, as_they_lie, gathered, plain, across };
inline bool is_packed(Rows kind) { return kind == Rows::packed || kind == Rows::plain || kind == Rows::across; }
template <class T>
struct PackedWeights {
    Rows kind;
    const T* data = nullptr;
    i64 depth = 0, group = 0;  // distance of rows (terms of a row, at least) and of groups
    WeightLayout layout;
    List<i64> place;
    bool runs = true;  // whether the taps of a channel are neighbours
};

// Whether few cells cost less as broadcast numbers than as vectors; counted in multiply-adds of vectors per row and
// term.
inline constexpr i64 most_across = 64;
template <class T>
bool pays_across(const Gather& z) {
    constexpr i64 W = panel_width<T>;
    if (z.cells > most_across || z.channels * z.taps > 100000) return false;
    i64 rest = z.cells % panel_rows;
    double cells = double(z.cells - rest + (rest ? most(rest, 3) : 0)) / lanes<T>;
    double across = cells * double(up(z.rows, W) * W) / double(z.rows) + 2 * double(z.cells) / double(z.rows);
    return across < 0.9 * panels_cost<T>(z.cells, true);
}

// How the rows of z are used. `beforehand`: packing them costs nothing, so all but rows that lie well are.
template <class T>
Rows kind_of_rows(const Gather& z, WeightLayout l, bool beforehand) {
    if (beforehand && pays_across<T>(z)) return Rows::across;
    if (z.cells >= 1024 || (beforehand && panels_cost<T>(z.cells, true) >= panels_cost<T>(z.cells, false)))
        return Rows::packed;
    bool neighbours = l.channel == l.kernel && z.taps == l.kernel && l.row == z.channels * z.taps;
    return neighbours ? Rows::as_they_lie : beforehand ? Rows::plain : Rows::gathered;
}

// Rows of a packed panel.
template <class T>
i64 panel_height(Rows kind) {
    return kind == Rows::across ? panel_width<T> : kind == Rows::plain ? 1 : panel_rows;
}

template <class T>
void choose_rows(PackedWeights<T>& a, const Gather& z, WeightLayout l, bool beforehand) {
    a.kind = kind_of_rows<T>(z, l, beforehand);
    a.depth = z.channels * z.taps, a.layout = l, a.group = l.group;
    i64 height = panel_height<T>(a.kind);
    if (is_packed(a.kind)) a.group = up(z.rows, height) * height * a.depth;
    places(z, a.place);
    for (i64 t = 0; t < z.taps; ++t) a.runs &= a.place[t] == a.place[0] + t;
}

template <class T>
void pack_weights(PackedWeights<T>& a, const Gather& z, const T* w, T* out) {
    const WeightLayout l = a.layout;
    i64 height = panel_height<T>(a.kind), panels = up(z.rows, height), threads = num_threads();
    constexpr i64 B = 8;  // channels at a time, so that lines read are used whole
    i64 chunk = up(panels, most(1, least(panels, threads))), chunks = up(panels, chunk);
    auto task = [&](i64 i) {
        i64 g = i / chunks, first = i % chunks * chunk, last = least(panels, first + chunk);
        for (i64 c0 = 0; c0 < z.channels; c0 += B)
            for (i64 p = first; p < last; ++p)
                for (i64 c = c0; c < least(z.channels, c0 + B); ++c) {
                    const T* x = w + g * l.group + p * height * l.row + c * l.channel;
                    T* y = out + g * a.group + (p * a.depth + c * z.taps) * height;
                    i64 n = least(height, z.rows - p * height);
                    for (i64 t = 0; t < z.taps; ++t, y += height) {
                        for (i64 r = 0; r < n; ++r) y[r] = x[r * l.row + a.place[t]];
                        for (i64 r = n; r < height; ++r) y[r] = 0;
                    }
                }
    };
    if (z.groups * a.group < 32768) {
        for (i64 i = 0; i < z.groups * chunks; ++i) task(i);
    } else {
        parallel_for(z.groups * chunks, task);
    }
}

// How many numbers pack_weights makes beforehand.
template <class T>
i64 packed_size(const Gather& z, WeightLayout l) {
    Rows kind = kind_of_rows<T>(z, l, true);
    if (is_depthwise(z) || !is_packed(kind)) return 0;
    i64 height = panel_height<T>(kind);
    return z.groups * up(z.rows, height) * height * z.channels * z.taps;
}

// Gathers the terms (c, t), (c, t+1), ... of rows m0.. of a group into plain rows `pitch` apart.
template <class T>
void gather_rows(const PackedWeights<T>& a, const Gather& z, i64 group, i64 m0, i64 rows, i64 c, i64 t,
                 i64 terms, T* out, i64 pitch) {
    const WeightLayout& l = a.layout;
    const T* w = a.data + group * l.group + m0 * l.row + c * l.channel;
    if (z.taps == 1 && l.row == 1)
        return transpose_block(w + a.place[0], l.channel, terms, 0, rows, out, pitch, 64 / vector_bytes);
    bool runs = a.runs && t == 0 && z.taps >= lanes<T> && terms % z.taps == 0;
    for (i64 k = 0; k < terms; t = 0) {
        i64 n = least(z.taps - t, terms - k);
        for (i64 r = 0; r < rows; ++r) {
            const T* x = w + r * l.row;
            T* y = out + r * pitch + k;
            if (runs) copy_run(y, x + a.place[0], n);
            else
                for (i64 i = 0; i < n; ++i) y[i] = x[a.place[t + i]];
        }
        k += n, w += l.channel;
    }
}

// Stores `rows` rows of a panel that does not lie in one piece in the result: `more` is added to what is there, and
// the last (`done`) gets the epilogue, its pointers at the first row.
template <class T>
bool scatter(const Gather& z, const Panel& panel, const Run* runs, const T* sums, i64 rows, bool more, bool done,
             const Epilogue<T>& e, T* out) {
    constexpr i64 L = lanes<T>;
    i64 pitch = z.col().out;
    const T* add = done ? e.add : nullptr;
    bool relu = done && e.relu, bad = false;
    auto doubt = in_doubt(broadcast(T(1)));
    for (i64 m = 0; m < rows; ++m, sums += panel_width<T>) {
        T bias = done && e.bias ? e.bias[m] : T(-0.0);
        for (int x = 0; x < panel.runs; ++x) {
            i64 first = m * z.out_channel + runs[x].to, l = 0, n = runs[x].length;
            const T* from = sums + runs[x].at;
            T* y = out + first;
            auto some = [&](i64 at) {
                Vector<T> v = load(from + at);
                if (more) v += load(y + at);
                doubt |= in_doubt(v);
                v += bias;
                if (add) v += load(add + first + at);
                store(y + at, relu ? v < 0 ? Vector<T>{} : v : v);
            };
            if (pitch == 1) {
                for (; l + L <= n; l += L) some(l);
                if (l < n && n > L && !more) some(n - L), l = n;  // some cells twice
            }
            if (!more && !add && !relu) {  // almost always
                for (i64 q = l; q < n; ++q) y[q * pitch] = from[q] + bias;
                for (; l < n; ++l) bad |= in_doubt(from[l]);
            }
            for (; l < n; ++l) {
                T v = more ? y[l * pitch] + from[l] : from[l];
                bad |= in_doubt(v);
                v += bias;
                if (add) v += add[first + l * pitch];
                y[l * pitch] = relu && v < 0 ? T(0) : v;
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
    const T* add = e.add ? e.add + group * z.rows * z.out_channel : nullptr;
    const T* bias = e.bias ? e.bias + group * z.rows : nullptr;
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
                        if (done && bias) job.bias = bias + m0;
                        if (done && add) job.add = add + (job.out - out);
                    }
                    if (fresh) job.before = nullptr;
                    bad |= column<Packed>(panel.vectors, job, count);
                    if (whole) continue;
                }
                ladder.climb(k, [&](i64 l, bool empty) {
                    T* from = sum + l * level;
                    if (l + 1 < ladder.levels) return go_up(empty, count * W, from, from + level);
                    bad |= scatter(z, panel, runs, from, count, !empty, done,
                                   Epilogue<T>{bias ? bias + m0 : nullptr,
                                               add ? add + m0 * z.out_channel : nullptr, e.relu},
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
        const T* sum = sums + (m / W - first) * z.cells * W + m % W;
        for (i64 r = 0; r < w.runs.size; ++r)
            for (i64 l = 0; l < w.runs[r].length; ++l, sum += W) {
                i64 to = at + w.runs[r].to + l * z.col().out;
                T v = *sum;
                bad |= in_doubt(v);
                if (e.bias) v += e.bias[row];
                if (e.add) v += e.add[to];
                out[to] = e.relu && v < 0 ? T(0) : v;
            }
    }
    return bad;
}

template <class T>
bool finite(const T* p, i64 n) {
    T s = 0;
    for (i64 i = 0; i < n; ++i) s += p[i] * 0;  // NaN if any is infinite or NaN
    return s == 0;
}

// What a sum in doubt should be: its terms once more, term(i) for i < n, those that are absent left out; `y`, with the
// epilogue applied by `finish`, is what came out. A sum that is zero is -0 only if every term is.
template <class T, class Term, class Finish>
T mended(T y, i64 n, Term term, Finish finish) {
    if (y == 0) {
        for (i64 i = 0; i < n; ++i)
            if (T v = term(i); v != 0 || !__builtin_signbit(v)) return y;
        return finish(T(-0.0));
    }
    LongSum<T> sum;
    for (i64 i = 0; i < n; ++i) {
        T v = term(i);
        if (v != v) return finish(v);
        sum.add(v);
    }
    return finish(sum.total());
}

// Only outputs that read an absent cell can be wrong.
template <class T>
void mend_sums(const Gather& z, const T* in, const T* w, WeightLayout l, const Epilogue<T>& e, T* out) {
    struct Present {
        i64 in, place;
    };
    List<i64> place;
    places(z, place);
    auto mend_cell = [&](i64 q) {
        List<Present> taps;
        for (i64 t = 0; t < z.taps; ++t)
            if (i64 at = z.spot(q, t).in; at >= 0) taps.push({at, place[t]});
        for (i64 row = 0; row < z.groups * z.rows; ++row) {
            i64 g = row / z.rows, to = row * z.out_channel + z.spot(q, 0).out;
            if (!in_doubt(out[to])) continue;
            const T *from = in + g * z.channels * z.in_channel, *by = w + g * l.group + row % z.rows * l.row;
            auto term = [&](i64 i) {
                const Present& t = taps[i % taps.size];
                i64 c = i / taps.size;
                return from[c * z.in_channel + t.in] * by[c * l.channel + t.place];
            };
            out[to] = mended(out[to], z.channels * taps.size, term, [&](T y) {
                if (!taps.size) y = T(e.bias ? -0.0 : 0.0);  // the bias is the only term
                if (e.bias) y += e.bias[row];
                if (e.add) y += e.add[to];
                return e.relu && y < 0 ? T(0) : y;
            });
        }
    };
    constexpr i64 some = 64;
    parallel_for(up(z.cells, some), [&](i64 i) {
        for (i64 q = i * some; q < least(z.cells, (i + 1) * some); ++q)
            if (z.lacks(q)) mend_cell(q);
    });
}

template <class T>
void run_gather(const Gather& z, const T* in, const T* w, const T* packed, WeightLayout l, const Epilogue<T>& e,
                T* out) {
    if (is_depthwise(z)) {
        if (run_depthwise(z, in, w, l, e, out) && z.absent) mend_sums(z, in, w, l, e, out);
        return;
    }
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

// The arguments of a convolution, as the kernels below want them.
struct Sizes {
    i64 n = 1, m = 1, kernel = 1;
};
inline Sizes sizes(const ConvAxis* axes, i64 d) {
    Sizes s;
    for (i64 a = 0; a < d; ++a) s.n *= axes[a].n, s.m *= axes[a].m, s.kernel *= axes[a].kernel;
    return s;
}

// False: there are no terms at all.
bool forward_gather(Gather& z, const Conv& c) {
    auto [axes, d, groups, batch, cin, cout] = c;
    Sizes s = sizes(axes, d);
    if (any_zero(batch, cin, cout, s.n, s.m, s.kernel)) return false;
    z.groups = groups;
    z.rows = cout / groups, z.channels = cin / groups;
    z.in_size = batch * cin * s.n, z.in_channel = s.n, z.out_channel = s.m;
    z.off.reserve(8);
    add_axis(z, Axis{batch, batch, 1, cin * s.n, cout * s.m, 0, 0, false}, 1, 0,
             [](i64, i64& o) { return o = 0, true; });
    i64 in = s.n, out = s.m, place = s.kernel;
    for (i64 a = 0; a < d; ++a) {
        const ConvAxis& x = axes[a];
        in /= most(1, x.n), out /= x.m, place /= x.kernel;
        add_axis(z, Axis{x.n, x.m, x.stride, in, out, 0, 0, false}, x.kernel, place,
                 [&](i64 k, i64& o) { return o = k * x.dilation - x.lo, true; });
    }
    finish_axes(z);
    return z.taps > 0;
}
inline WeightLayout forward_layout(const Gather& z, const Sizes& s) {
    return {z.rows * z.channels * s.kernel, z.channels * s.kernel, s.kernel, s.kernel};
}

// The result where there are no terms.
template <class T>
void fill(T* y, i64 batch, i64 channels, i64 cells, const Epilogue<T>& e) {
    for (i64 i = 0; i < batch * channels; ++i)
        for (i64 j = 0; j < cells; ++j) {
            T v = e.bias ? e.bias[i % channels] : T(0);
            if (e.add) v += e.add[i * cells + j];
            y[i * cells + j] = e.relu && v < 0 ? T(0) : v;
        }
}

// dx[j, i] = b[j] + sum of g[c, o] * w[c, j, k] over o*stride - lo + k*dilation = i. Input cells of one
// residue modulo the stride see the same kernel cells, at steps of one output cell: each residue is a Gather
// of its own. False: it sees none.
bool residue_gather(Gather& z, i64 residue, const Conv& c) {
    auto [axes, d, groups, batch, cin, cout] = c;
    Sizes s = sizes(axes, d);
    if (any_zero(batch, cin, cout, s.n, s.m, s.kernel)) return false;
    z.groups = groups, z.rows = cin / groups, z.channels = cout / groups;
    z.in_size = batch * cout * s.m, z.in_channel = s.m, z.out_channel = s.n;
    add_axis(z, Axis{batch, batch, 1, cout * s.m, cin * s.n, 0, 0, false}, 1, 0,
             [](i64, i64& o) { return o = 0, true; });
    i64 in = s.m, out = s.n, place = s.kernel;
    for (i64 a = 0; a < d; ++a) {
        const ConvAxis& x = axes[a];
        in /= x.m, out /= x.n, place /= x.kernel;
        i64 r = residue % least(x.stride, x.n), seen = z.off.size;
        residue /= least(x.stride, x.n);
        z.base += r * out;
        add_axis(z, Axis{x.m, up(x.n - r, x.stride), 1, in, out * x.stride, 0, 0, false}, x.kernel, place,
                 [&](i64 k, i64& o) {
                     i64 at = r + x.lo - k * x.dilation;
                     return o = floor_div(at, x.stride), o * x.stride == at;
                 });
        if (z.off.size == seen) return false;
    }
    finish_axes(z);
    return true;
}
inline i64 residues(const Conv& c) {
    i64 count = 1;
    for (i64 a = 0; a < c.rank; ++a) count *= least(c.axes[a].stride, most(1, c.axes[a].n));
    return count;
}
inline WeightLayout residue_layout(const Gather& z, const Sizes& s) {
    return {z.channels * z.rows * s.kernel, s.kernel, z.rows * s.kernel, s.kernel};
}

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

// The same for dw; `nan`: a NaN may be wrong too.
template <class T>
void mend_weight_grad(const Gather& z, const List<i64>& place, i64 kernel, const T* x, const T* g, bool nan, T* dw) {
    parallel_for(z.taps, [&](i64 t) {
        List<Spot> cells;
        for (i64 q = 0; q < z.cells; ++q)
            if (Spot at = z.spot(q, t); at.in >= 0) cells.push(at);
        for (i64 row = 0; row < z.groups * z.rows; ++row) {
            const T *from = x + row / z.rows * z.channels * z.in_channel, *by = g + row * z.out_channel;
            T* to = dw + row * z.channels * kernel + place[t];
            // One NaN of g that the tap does see makes all its sums NaN, rightly.
            auto sees_nan = [&] {
                for (i64 i = 0; i < cells.size; ++i)
                    if (by[cells[i].out] != by[cells[i].out]) return true;
                return false;
            };
            bool looked = false;
            for (i64 c = 0; c < z.channels; ++c) {
                T& sum = to[c * kernel];
                if (sum != 0 && (sum == sum || !nan)) continue;
                if (!looked && sees_nan()) break;
                looked = true;
                const T* channel = from + c * z.in_channel;
                auto term = [&](i64 i) { return channel[cells[i].in] * by[cells[i].out]; };
                sum = mended(sum, cells.size, term, [&](T y) { return cells.size ? y : T(0); });
            }
        }
    });
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
            mend_weight_grad(z, place, s.kernel, x, g, !finite(x, z.in_size) || !finite(g, batch * cout * s.m), dw);
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
        T* to = dw + (group * z.rows * z.channels + c) * s.kernel;
        bool doubt = false;
        for (i64 m = 0; m < z.rows; m += W) {
            const T* from = sums + m * n;
            i64 width = least(W, z.rows - m), pitch = z.channels * s.kernel;
            for (i64 i = 0; i < n && z.absent; ++i)
                for (i64 l = 0; l < width; ++l) doubt |= in_doubt(from[i * W + l]);
            if (z.taps == s.kernel) {
                transpose_block(from, W, n, 0, width, to + m * pitch + t, pitch, 1);
                continue;
            }
            for (i64 r = 0; r < n; ++r)
                for (i64 l = 0; l < width; ++l)
                    to[(m + l) * pitch + (t + r) / z.taps * s.kernel + place[(t + r) % z.taps]] =
                        from[r * W + l];
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
    if (bad) mend_weight_grad(z, place, s.kernel, x, g, !finite(g, batch * cout * s.m), dw);
}

// Whether every cell reads itself only, for so few rows that packing it would cost as much as the sums do.
inline bool is_short_product(const Conv& c) {
    if (c.groups != 1 || c.cout > 4) return false;
    for (i64 a = 0; a < c.rank; ++a) {
        const ConvAxis& x = c.axes[a];
        if (x.kernel != 1 || x.stride != 1 || x.lo != 0 || x.n != x.m) return false;
    }
    return true;
}

template <class T>
void short_product(const Conv& c, const T* x, const T* w, const Epilogue<T>& e, T* y) {
    i64 cells = sizes(c.axes, c.rank).m;
    bool plain = !e.bias && !e.add;
    matmul<T>(c.batch, c.cout, cells, c.cin, false, false, w, 0, x, c.cin * cells, nullptr, plain && e.relu, y);
    for (i64 i = 0; i < c.batch * c.cout && !plain; ++i) {
        T bias = e.bias ? e.bias[i % c.cout] : T(-0.0);
        T* line = y + i * cells;
        const T* add = e.add ? e.add + i * cells : nullptr;
        for (i64 j = 0; j < cells; ++j) {
            T v = line[j] + bias;
            if (add) v += add[j];
            line[j] = e.relu && v < 0 ? T(0) : v;
        }
    }
}

}  // namespace

template <class T>
void conv(const Conv& conv, const T* x, const T* w, const T* packed, const Epilogue<T>& e, T* y) {
    auto [axes, d, groups, batch, cin, cout] = conv;
    Sizes s = sizes(axes, d);
    if (any_zero(batch, cout, s.m)) return;
    Gather z;
    if (!forward_gather(z, conv)) return fill(y, batch, cout, s.m, e);
    if (is_short_product(conv)) return short_product(conv, x, w, e, y);
    run_gather(z, x, w, packed, forward_layout(z, s), e, y);
}

template <class T>
void conv_input_grad(const Conv& conv, const T* w, const T* packed, const T* g, const Epilogue<T>& e, T* dx) {
    auto [axes, d, groups, batch, cin, cout] = conv;
    Sizes s = sizes(axes, d);
    if (any_zero(batch, cin, s.n)) return;
    if (by_columns(conv)) return input_grad_by_columns(conv, w, g, e, dx);
    i64 count = residues(conv);
    bool all_seen = true;
    for (i64 i = 0; i < count && all_seen; ++i) {
        Gather z;
        all_seen = residue_gather(z, i, conv);
    }
    if (!all_seen) fill(dx, batch, cin, s.n, e);
    for (i64 i = 0; i < count; ++i) {
        Gather z;
        if (!residue_gather(z, i, conv)) continue;
        run_gather(z, g, w, packed, residue_layout(z, s), e, dx);
        if (packed) packed += packed_size<T>(z, residue_layout(z, s));
    }
}

// f(z, l) for every product that a convolution or its input gradient is made of.
template <class F>
static void each_gather(const Conv& conv, bool input_grad, F f) {
    Sizes s = sizes(conv.axes, conv.rank);
    if (input_grad ? by_columns(conv) : is_short_product(conv)) return;
    for (i64 i = 0; i < (input_grad ? residues(conv) : 1); ++i) {
        Gather z;
        if (input_grad ? residue_gather(z, i, conv) : forward_gather(z, conv))
            f(z, input_grad ? residue_layout(z, s) : forward_layout(z, s));
    }
}

template <class T>
i64 conv_packed_size(const Conv& conv, bool input_grad) {
    i64 size = 0;
    each_gather(conv, input_grad, [&](const Gather& z, WeightLayout l) { size += packed_size<T>(z, l); });
    return size;
}

template <class T>
void conv_pack(const Conv& conv, bool input_grad, const T* w, T* packed) {
    each_gather(conv, input_grad, [&](const Gather& z, WeightLayout l) {
        if (!packed_size<T>(z, l)) return;
        PackedWeights<T> a;
        choose_rows(a, z, l, true);
        pack_weights(a, z, w, packed);
        packed += packed_size<T>(z, l);
    });
}

template <class T>
void conv_weight_grad(const Conv& conv, const T* x, const T* g, T* dw) {
    weight_grad(conv, x, g, dw);
}

// db[c] = sum of g[c, o] over batch and cells, in vectors as far as there are cells, the rest singly.
template <class T>
void conv_bias_grad(i64 batch, i64 channels, i64 cells, const T* g, T* db) {
    constexpr i64 L = lanes<T>, B = 512 * L;
    auto task = [&](i64 c) {
        LongSum<Vector<T>> wide;
        LongSum<T> rest;
        for (i64 b = 0; b < batch; ++b) {
            const T* p = g + (b * channels + c) * cells;
            i64 i = 0;
            while (i + L <= cells) {
                Vector<T> acc[4];
                for (auto& v : acc) v = broadcast(T(-0.0));
                i64 end = least(cells, i + B);
                for (; i + 4 * L <= end; i += 4 * L)
                    for (int v = 0; v < 4; ++v) acc[v] += load(p + i + v * L);
                for (; i + L <= end; i += L) acc[0] += load(p + i);
                wide.add_block((acc[0] + acc[1]) + (acc[2] + acc[3]));
            }
            for (; i < cells; ++i) rest.add(p[i]);
        }
        T sum = fold<int(L)>(wide.total(), [](auto a, auto b) { return a + b; }) + rest.total();
        db[c] = batch > 0 && cells > 0 ? sum : T(0);
    };
    if (work(batch, channels, cells) < 100000)
        for (i64 c = 0; c < channels; ++c) task(c);
    else parallel_for(channels, task);
}

template void conv(const Conv&, const float*, const float*, const float*, const Epilogue<float>&, float*);
template void conv(const Conv&, const double*, const double*, const double*, const Epilogue<double>&, double*);
template void conv_input_grad(const Conv&, const float*, const float*, const float*, const Epilogue<float>&, float*);
template void conv_input_grad(const Conv&, const double*, const double*, const double*, const Epilogue<double>&,
                              double*);
template i64 conv_packed_size<float>(const Conv&, bool);
template i64 conv_packed_size<double>(const Conv&, bool);
template void conv_pack(const Conv&, bool, const float*, float*);
template void conv_pack(const Conv&, bool, const double*, double*);
template void conv_weight_grad<float>(const Conv&, const float*, const float*, float*);
template void conv_weight_grad<double>(const Conv&, const double*, const double*, double*);
template void conv_bias_grad<float>(i64, i64, i64, const float*, float*);
template void conv_bias_grad<double>(i64, i64, i64, const double*, double*);

}  // namespace lunette::LN_ISA
