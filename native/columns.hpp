// Input gradients (and transposed convolutions) as one matrix product and a sum of its columns.
//
// cols[(j, k), o] = sum over c of w[c, j, k] * g[c, o] reads the weights once, as they lie; dx[j, i] is the sum of the
// cols that land on cell i. Strided ones would otherwise be a product per residue of i, each with its own selection of
// the weights. No cell is padded, so no product is made that does not count.
#pragma once
#include "epilogue.hpp"
#include "gather.hpp"
#include "rearrange.hpp"

namespace lunette::LN_ISA {
namespace {

// Whether every cell of dx is reached by one tap of one cell of g.
inline bool side_by_side(const Conv& c) {
    bool all = true;
    for (i64 a = 0; a < c.rank; ++a) {
        const ConvAxis& x = c.axes[a];
        all &= x.kernel == x.stride && x.dilation == 1 && x.lo == 0 && x.n == x.m * x.stride;
    }
    return all;
}

struct Columns {
    const ConvAxis* axes;
    i64 d, groups, batch, rows, channels;  // rows: channels of dx per group; channels: of g per group
    i64 n = 1, m = 1, kernel = 1;          // cells of dx, of g, of the kernel
    i64 lines, length, taps, outer_taps;   // of g: lines of so many cells; taps along a line, and of the other axes
    struct Hop {                           // a line of g lands on a line of dx, seen through a tap of the outer axes
        i64 line, tap, to, band;           // band: place on the first axis
    };
    List<Hop> hops;  // in the order of g's lines
    List<i64> first_hop;
    List<bool> unseen;  // cells of dx that no tap reaches, if any
    bool tiles;         // whether taps are side by side

    const ConvAxis& last() const { return axes[d - 1]; }

    explicit Columns(const Conv& c)
        : axes(c.axes),
          d(c.rank),
          groups(c.groups),
          batch(c.batch),
          rows(c.cin / c.groups),
          channels(c.cout / c.groups),
          tiles(side_by_side(c)) {
        for (i64 a = 0; a < d; ++a) n *= axes[a].n, m *= axes[a].m, kernel *= axes[a].kernel;
        length = last().m, lines = m / length, taps = last().kernel, outer_taps = kernel / taps;
        for (i64 l = 0; l < lines; ++l) {
            first_hop.push(hops.size);
            for (i64 t = 0; t < outer_taps; ++t) {
                Hop h{l, t, 0, 0};
                i64 o = l, k = t, distance = last().n;
                bool inside = true;
                for (i64 a = d - 2; a >= 0; --a) {
                    const ConvAxis& x = axes[a];
                    h.band = o % x.m * x.stride - x.lo + k % x.kernel * x.dilation;
                    inside &= h.band >= 0 && h.band < x.n;
                    h.to += h.band * distance;
                    o /= x.m, k /= x.kernel, distance *= x.n;
                }
                if (inside) hops.push(h);
            }
        }
        first_hop.push(hops.size);
        find_unseen();
    }

    static bool reached(const ConvAxis& x, i64 i) {
        for (i64 k = 0; k < x.kernel; ++k) {
            i64 at = i + x.lo - k * x.dilation;
            if (at >= 0 && at % x.stride == 0 && at / x.stride < x.m) return true;
        }
        return false;
    }
    void find_unseen() {
        bool all = true;
        for (i64 a = 0; a < d; ++a)
            for (i64 i = 0; i < axes[a].n; ++i) all &= reached(axes[a], i);
        for (i64 i = 0; i < n && !all; ++i) {
            bool here = true;
            for (i64 a = d - 1, rest = i; a >= 0; rest /= axes[a].n, --a) here &= reached(axes[a], rest % axes[a].n);
            unseen.push(!here);
        }
    }
};

// Worth it where a product per residue would be many, or would have few cells or few rows; and sums must stay within
// the bound of "fast": 256 terms, then blocks, then taps.
inline bool by_columns(const Conv& c) {
    if (c.rank == 0 || any_zero(c.batch, c.cin, c.cout)) return false;
    i64 residues = 1, kernel = 1, cells = c.batch, n = 1;
    for (i64 a = 0; a < c.rank; ++a) {
        const ConvAxis& x = c.axes[a];
        residues *= least(x.stride, x.n), kernel *= x.kernel, cells *= x.m, n *= x.n;
    }
    i64 rows = c.cin / c.groups, channels = c.cout / c.groups, inner = c.axes[c.rank - 1].stride;
    i64 few = side_by_side(c) && (inner <= 2 || inner == 4) ? 4 : 32;  // cells are written once, in vectors
    if (n == 0 || kernel > 200 || kernel == 1 || channels > 10000 || channels < few || rows * kernel < 8) return false;
    return residues > 1 || rows < panel_rows || cells <= 16;
}

inline constexpr i64 column_terms = 256, column_rows = 128, few_columns = 64;

// The part of a product that one task is at: rows (j, k) of some channels j, columns o of some lines of g.
template <class T>
struct ColumnTile {
    i64 j0, j1;        // channels of dx, in the group
    i64 b, l0, l1;     // image, lines of g
    i64 o0, o1;        // cells of these lines
    i64 row, cell;     // distances in cols
    T* cols;
};

// line[o*stride + shift_k] += cols[k][o], two taps at a time where these fill gaps between each other.
template <class T>
void add_line(const ConvAxis& x, const ColumnTile<T>& t, const T* cols, T* line) {
    constexpr i64 L = lanes<T>;
    auto range = [&](i64 k, i64& from, i64& to) {
        i64 shift = k * x.dilation - x.lo;
        from = most(t.o0, shift < 0 ? up(-shift, x.stride) : 0);
        to = least(t.o1, x.n > shift ? up(x.n - shift, x.stride) : 0);
        return shift;
    };
    for (i64 k = 0; k < x.kernel;) {
        i64 from, to, shift = range(k, from, to);
        const T* c = cols + k * t.row - t.o0 * t.cell;
        if (t.cell != 1 || x.stride > 2 || (x.stride == 2 && (x.dilation != 1 || k + 1 == x.kernel))) {
            for (i64 o = from; o < to; ++o) line[o * x.stride + shift] += c[o * t.cell];
            ++k;
            continue;
        }
        if (x.stride == 1) {
            i64 o = from;
            for (; o + L <= to; o += L) store(line + o + shift, load(line + o + shift) + load(c + o));
            for (; o < to; ++o) line[o + shift] += c[o];
            ++k;
            continue;
        }
        const T* next = c + t.row;
        i64 from2, to2;
        range(k + 1, from2, to2);
        for (i64 o = from; o < least(to, from2); ++o) line[2 * o + shift] += c[o];
        for (i64 o = from2; o < least(to2, from); ++o) line[2 * o + shift + 1] += next[o];
        i64 o = most(from, from2), end = least(to, to2);
        for (; o + L <= end; o += L) {
            Vector<T> low, high;
            zip<int(L)>(load(c + o), load(next + o), low, high);
            T* y = line + 2 * o + shift;
            store(y, load(y) + low), store(y + L, load(y + L) + high);
        }
        for (; o < end; ++o) line[2 * o + shift] += c[o], line[2 * o + shift + 1] += next[o];
        for (i64 p = most(from, end); p < to; ++p) line[2 * p + shift] += c[p];
        for (i64 p = most(from2, end); p < to2; ++p) line[2 * p + shift + 1] += next[p];
        k += 2;
    }
}

// line[o*stride + k] = cols[k][o], where every cell has one term, and so is done. S: the stride, of those that have vectors; else 0.
template <int S, class T>
void put_line(const ConvAxis& x, const ColumnTile<T>& t, const T* cols, const Finish<T>& finish, const T* add, T* line) {
    constexpr int L = lanes<T>;
    const i64 cells = t.o1 - t.o0;
    line += t.o0 * x.stride;
    if (add) add += t.o0 * x.stride;
    i64 o = 0;
    if constexpr (S > 0)
        for (; o + L <= cells; o += L) {
            Vector<T> tap[S], v[S];
            for (int k = 0; k < S; ++k) tap[k] = load(cols + k * t.row + o);
            interleave<S>(tap, v);
            for (int k = 0; k < S; ++k) {
                const i64 at = S * o + k * L;
                v[k] = finish.moved(v[k]);
                if (add) v[k] += load(add + at);
                store(line + at, finish.ended(v[k]));
            }
        }
    for (; o < cells; ++o)
        for (i64 k = 0; k < x.kernel; ++k) {
            const i64 at = o * x.stride + k;
            line[at] = finish(cols[k * t.row + o * t.cell], add ? add + at : nullptr);
        }
}

template <class T>
auto line_putter(i64 stride, bool in_vectors) {
    if (in_vectors && stride == 1) return put_line<1, T>;
    if (in_vectors && stride == 2) return put_line<2, T>;
    if (in_vectors && stride == 4) return put_line<4, T>;
    return put_line<0, T>;
}

template <class T>
struct ColumnJob {
    const Columns& z;
    const T *w, *g;
    const Epilogue<T>& e;
    T* dx;

    // cols = w^T g for a tile: vectors along cells, or, where these are few, along the rows (j, k).
    void product(i64 group, const ColumnTile<T>& t, T* rows, T* panels) const {
        constexpr i64 W = panel_width<T>, L = lanes<T>;
        i64 cells = (t.l1 - t.l0 - 1) * z.length + t.o1 - t.o0, all_rows = (t.j1 - t.j0) * z.kernel;
        i64 pitch = z.rows * z.kernel;  // of w
        const T* weights = w + group * z.channels * pitch + t.j0 * z.kernel;
        const T* source = g + (t.b * z.groups + group) * z.channels * z.m + t.l0 * z.length + t.o0;
        bool across = t.cell != 1;
        i64 vector_side = across ? all_rows : cells, row_side = across ? cells : all_rows;
        const T *along = across ? weights : source, *beside = across ? source : weights;
        i64 along_pitch = across ? pitch : z.m, beside_pitch = across ? z.m : pitch;
        int32_t off[column_terms];
        for (i64 k = 0; k < column_terms; ++k) off[k] = int32_t(k * W);
        i64 block = even_split(z.channels, column_terms), out_pitch = across ? t.cell : t.row;
        for (i64 c0 = 0; c0 < z.channels; c0 += block) {
            i64 terms = least(block, z.channels - c0);
            for (i64 c = 0; c < terms; ++c) {
                const T* from = along + (c0 + c) * along_pitch;
                T* to = panels + c * W;
                i64 p = 0;
                for (; p + W <= vector_side; p += W, to += (block + 1) * W)
                    for (i64 l = 0; l < W; l += L) store(to + l, load(from + p + l));
                if (p == vector_side) continue;
                for (i64 l = 0; l < W; ++l) to[l] = p + l < vector_side ? from[p + l] : T(0);
            }
            for (i64 i = 0; i < row_side; i += column_rows) {
                i64 count = least(column_rows, row_side - i);
                pack_columns(beside + c0 * beside_pitch + i, beside_pitch, count, terms, rows);
                for (i64 p = 0; p < vector_side; p += W) {
                    T* out = t.cols + i * out_pitch + p;
                    const T* before = c0 ? out : nullptr;
                    Column<T> job{rows, terms, off, terms, panels + p * (block + 1), before, nullptr, nullptr,
                                  out, out_pitch, out_pitch, false, false};
                    column<true>(int(up(least(W, vector_side - p), L)), job, count);
                }
            }
        }
    }

    // Channels j0..j1 of one image, in a band of the first axis.
    void run(i64 group, i64 b, i64 j0, i64 j1, i64 band0, i64 band1) const {
        constexpr i64 W = panel_width<T>;
        const ConvAxis& x = z.last();
        // The lines of g that reach the band.
        i64 top = z.lines, bottom = 0;
        for (i64 h = 0; h < z.hops.size; ++h)
            if (z.d == 1 || (z.hops[h].band >= band0 && z.hops[h].band < band1))
                top = least(top, z.hops[h].line), bottom = z.hops[h].line + 1;
        bool across = z.m <= few_columns;
        i64 all_rows = (j1 - j0) * z.kernel, most_cells = 20 * W;
        i64 tile_lines = bottom > top ? even_split(bottom - top, most_cells / z.length) : 1;
        i64 tile_cells = even_split(z.length, most_cells);
        i64 cells = up(tile_lines * tile_cells, W) * W, row_cells = up(all_rows, W) * W;
        i64 block = even_split(z.channels, column_terms);
        i64 panels_size = (across ? row_cells : cells) * (block + 1);  // panels not a power of two apart
        T* panels = workspace<T>(tile_slot, panels_size + column_rows * block);
        T* cols = workspace<T>(sums_slot, across ? z.m * row_cells : all_rows * cells);
        T* out = dx + ((b * z.groups + group) * z.rows + j0) * z.n;
        i64 per_band = z.d > 1 ? z.n / z.axes[0].n : z.n, first = z.d > 1 ? band0 * per_band : 0;
        i64 last = z.d > 1 ? band1 * per_band : z.n;
        for (i64 j = 0; j < j1 - j0 && !z.tiles; ++j)
            for (i64 i = first; i < last; ++i) out[j * z.n + i] = T(-0.0);
        const auto put = line_putter<T>(x.stride, !across);
        bool whole = first == 0 && last == z.n;
        for (i64 l = top; l < bottom; l += tile_lines) {
            i64 end = least(bottom, l + tile_lines);
            for (i64 o = 0; o < z.length; o += tile_cells) {
                ColumnTile<T> t{j0, j1, b, l, end, o, least(z.length, o + tile_cells), across ? 1 : cells,
                                across ? row_cells : 1, cols};
                product(group, t, panels + panels_size, panels);
                for (i64 j = 0; j < j1 - j0; ++j)
                    for (i64 h = z.first_hop[l]; h < z.first_hop[end]; ++h) {
                        const Columns::Hop& hop = z.hops[h];
                        if (!whole && (hop.band < band0 || hop.band >= band1)) continue;
                        const T* from = cols + (j * z.kernel + hop.tap * z.taps) * t.row + (hop.line - l) * z.length * t.cell;
                        T* const line = out + j * z.n + hop.to;
                        if (z.tiles)
                            put(x, t, from, finish_of(e, group * z.rows + j0 + j), e.add ? e.add + (line - dx) : nullptr,
                                line);
                        else add_line(x, t, from, line);
                    }
            }
        }
        if (z.tiles) return;
        for (i64 j = j0; j < j1; ++j, out += z.n) {
            i64 row = group * z.rows + j;
            const T* add = e.add ? e.add + (out - dx) : nullptr;
            if (!e.bias && !e.scale && !e.shift && !add && !e.relu && !z.unseen.size) continue;
            const Finish<T> finish = finish_of(e, row);
            for (i64 i = first; i < last; ++i)
                out[i] = finish(z.unseen.size && z.unseen[i] ? T(0) : out[i], add ? add + i : nullptr);
        }
    }
};

template <class T>
void input_grad_by_columns(const Conv& conv, const T* w, const T* g, const Epilogue<T>& e, T* dx) {
    Columns z(conv);
    ColumnJob<T> job{z, w, g, e, dx};
    i64 threads = num_threads();
    if (work(z.batch, z.groups, z.rows, z.kernel, z.channels, z.m) < 200000) threads = 1;
    // Enough rows (j, k) for the packed lines of g to pay; more, smaller parts where there are threads to feed.
    i64 chunk = even_split(z.rows, most(1, up(512, z.kernel)));
    i64 bands = 1, parts = z.batch * z.groups * up(z.rows, chunk);
    if (threads > 1 && parts < 4 * threads) {
        chunk = even_split(z.rows, most(up(z.rows, up(4 * threads, z.batch * z.groups)), up(64, z.kernel)));
        parts = z.batch * z.groups * up(z.rows, chunk);
        if (parts < 4 * threads && z.d > 1) bands = most(1, least(up(4 * threads, parts), z.axes[0].n / 16));
    }
    i64 chunks = up(z.rows, chunk), first_axis = conv.axes[0].n;
    auto task = [&](i64 i) {
        i64 band = i % bands, c = i / bands % chunks, group = i / bands / chunks % z.groups;
        job.run(group, i / bands / chunks / z.groups, c * chunk, least(z.rows, c * chunk + chunk),
                first_axis * band / bands, first_axis * (band + 1) / bands);
    };
    i64 tasks = z.batch * z.groups * chunks * bands;
    if (threads == 1)
        for (i64 i = 0; i < tasks; ++i) task(i);
    else parallel_for(tasks, task);
}

}  // namespace
}  // namespace lunette::LN_ISA
