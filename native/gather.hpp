// Where the sums of a convolution look, in any number of dimensions: how a Gather is cut into tiles, and how
// the source of a tile is copied and packed.
#pragma once
#include "gemm.hpp"

namespace lunette::LN_ISA {
namespace {

inline i64 floor_div(i64 a, i64 b) { return a / b - (a % b < 0); }

struct Axis {
    i64 n, m, step;  // cells in the source, cells of the result, source cells from one to the next
    i64 in, out;     // distance of neighbours in memory
    i64 taps, tap;  // its taps are Gather::off[tap ...], and their place in the kernel Gather::place[tap ...]
    bool plain;     // cell q reads cell q and nothing else
};

struct Spot {
    i64 in, out;
};

struct Gather {
    List<Axis> axes;  // outermost first, the batch among them; the last two are rows and columns
    List<i64> off, place;
    i64 rows, channels, groups;                      // per group
    i64 in_size, in_channel, out_channel, base = 0;  // distances in memory; the first output cell
    i64 cells, taps, first_place = 0;
    bool absent = false;  // some tap of some cell lies outside

    const Axis& row() const { return axes[axes.size - 2]; }
    const Axis& col() const { return axes[axes.size - 1]; }
    i64 outers() const { return axes.size - 2; }

    // Where tap t of cell q reads (-1: absent) and where q is written, within a channel.
    Spot spot(i64 q, i64 t) const {
        Spot s{0, base};
        for (i64 a = axes.size - 1; a >= 0; --a) {
            const Axis& x = axes[a];
            i64 o = q % x.m, i = o * x.step + off[x.tap + t % x.taps];
            q /= x.m, t /= x.taps;
            s.in = s.in < 0 || i < 0 || i >= x.n ? -1 : s.in + i * x.in;
            s.out += o * x.out;
        }
        return s;
    }
};

// Adds an axis with taps off(k), k < kernel, without those that no cell can see.
template <class Off>
void add_axis(Gather& z, Axis x, i64 kernel, i64 place, Off off) {
    x.tap = z.off.size;
    for (i64 k = 0; k < kernel; ++k) {
        i64 o;
        if (!off(k, o)) continue;
        i64 first = o >= 0 ? 0 : up(-o, x.step), last = floor_div(x.n - 1 - o, x.step);
        if (first > x.m - 1 || last < 0 || first > last) continue;
        if (o < 0 || (x.m - 1) * x.step + o >= x.n) z.absent = true;
        z.off.push(o), z.place.push(k * place);
    }
    x.taps = z.off.size - x.tap;
    x.plain = x.taps == 1 && z.off[x.tap] == 0 && x.step == 1 && x.n == x.m;
    if (x.plain && x.m == 1) {  // says nothing but which kernel cell is seen
        z.first_place += z.place[x.tap];
        return;
    }
    z.axes.push(x);
}

// Merges plain neighbours that are contiguous on both sides, and makes sure that rows and columns exist.
void finish_axes(Gather& z) {
    i64 kept = 0;
    for (i64 a = 0; a < z.axes.size; ++a) {
        Axis x = z.axes[a];
        if (kept) {
            Axis& p = z.axes[kept - 1];
            if (p.plain && x.plain && p.in == x.n * x.in && p.out == x.m * x.out) {
                z.first_place += z.place[p.tap];
                x.n *= p.n, x.m *= p.m, p = x;
                continue;
            }
        }
        z.axes[kept++] = x;
    }
    z.axes.size = kept;
    while (z.axes.size < 2) {
        z.off.push(0), z.place.push(0);
        z.axes.push(Axis{1, 1, 1, 1, 1, 1, z.off.size - 1, true});
        if (z.axes.size == 2) {  // columns stay last
            Axis x = z.axes[0];
            z.axes[0] = z.axes[1], z.axes[1] = x;
        }
    }
    z.cells = z.taps = 1;
    for (i64 a = 0; a < z.axes.size; ++a) z.cells *= z.axes[a].m, z.taps *= z.axes[a].taps;
}

// Where a tap of the kernel lies: in the order outer taps, row taps, column taps.
void places(const Gather& z, List<i64>& place) {
    place.push(z.first_place);
    for (i64 a = 0; a < z.axes.size; ++a) {
        const Axis& x = z.axes[a];
        List<i64> next;
        for (i64 i = 0; i < place.size; ++i)
            for (i64 k = 0; k < x.taps; ++k) next.push(place[i] + z.place[x.tap + k]);
        place.swap(next);
    }
}

// A run of cells of a tile: neighbours in the copy and in the result.
struct Run {
    int32_t at, length;    // in its panel
    i64 from, to, packed;  // in the copy of a channel, in the result, among the packed panels
};
struct Panel {
    i64 base;                    // what its vectors read, beside the tap's offset
    int32_t vectors, run, runs;  // no vectors: one cell
    bool whole;  // its runs fill the vectors and are neighbours in the result: the product is stored as it is
};

// How a Gather is cut into tiles, and what a tile's copy looks like.
template <class T>
struct Plan {
    const Gather& z;
    i64 cols, rows, slabs;  // of a full tile; a slab is one cell of the outer axes
    i64 col_tiles, row_tiles, slab_tiles, all_slabs;
    i64 outer_taps;
    bool dense_rows;  // one line per source row, else one per (row tap, output row)
    i64 first_row, lines, sublines, sub, line, row_pitch, plane, slab, channel;
    List<i64> starts;   // per subline: source column of its first cell, for output column 0
    List<int32_t> off;  // offset of (channel in block, tap)
    i64 block_channels;
    bool packed, flat;
    bool by_lines = false;  // one run per line and no panels: depthwise sums read the copy themselves
    bool straight =
        false;          // nothing is absent and lines are contiguous: no copy, panels come from the source
    bool dots = false;  // single cells at the end are summed by dot products
    explicit Plan(const Gather& g) : z(g) {}
    i64 tiles() const { return col_tiles * row_tiles * slab_tiles; }

    i64 copy_size() const { return up(block_channels * channel + 2 * panel_width<T>, 16) * 16; }

    // A block of terms is some whole channels, or some taps of one channel.
    i64 parts() const { return up(z.taps, packed ? packed_terms : block_terms); }
    i64 blocks() const { return up(z.channels, block_channels) * parts(); }
    struct Block {
        i64 channel, tap, terms;
    };
    Block block(i64 k) const {
        i64 part = up(z.taps, parts()), c = k / parts() * block_channels, t = k % parts() * part;
        if (parts() > 1) return {c, t, least(part, z.taps - t)};
        return {c, 0, least(block_channels, z.channels - c) * z.taps};
    }
};

// Which of the numbers it has met is the same modulo `step`: a table with room to spare, for there may be as many residues as
// taps.
class Residues {
public:
    Residues(i64 step, i64 most) : step_(step) {
        while ((i64(1) << bits_) < 2 * most) ++bits_;
        first_.resize(step > 1 ? i64(1) << bits_ : 1);
        for (i64 i = 0; i < first_.size; ++i) first_[i] = -1;
    }
    // `next` if none is.
    i64 find(i64 number, i64 next) {
        if (step_ == 1) return first_[0] < 0 ? first_[0] = next : first_[0];
        const i64 residue = number - floor_div(number, step_) * step_;
        i64 at = static_cast<i64>(static_cast<std::uint64_t>(residue) * 0x9e3779b97f4a7c15u >> (64 - bits_));
        while (first_[at] >= 0 && residues_[first_[at]] != residue) at = (at + 1) & (first_.size - 1);
        if (first_[at] < 0) first_[at] = next, residues_.push(residue);
        return first_[at];
    }

private:
    i64 step_, bits_ = 1;
    List<i64> first_, residues_;  // places in the order of arrival, or -1; the residue of each
};

template <class T>
void lay_out(Plan<T>& p) {
    const Gather& z = p.z;
    const Axis &row = z.row(), &col = z.col();
    i64 lo = row.taps ? z.off[row.tap] : 0, hi = lo;
    for (i64 k = 0; k < row.taps; ++k) lo = least(lo, z.off[row.tap + k]), hi = most(hi, z.off[row.tap + k]);
    i64 span = (p.rows - 1) * row.step + hi - lo + 1;
    p.dense_rows = span <= p.rows * row.taps;
    p.first_row = lo;
    p.lines = p.dense_rows ? span : p.rows * row.taps;

    // Columns: one subline per residue of the taps modulo the step, or one per tap where these lie far apart.
    List<i64> which, shift;
    p.starts.size = 0;
    i64 reach = 0;
    for (int pass = 0; pass < 2; ++pass) {
        p.starts.size = which.size = shift.size = 0, reach = 0;
        Residues residues(col.step, col.taps);
        for (i64 k = 0; k < col.taps; ++k) {
            i64 o = z.off[col.tap + k], s = pass ? p.starts.size : residues.find(o, p.starts.size);
            if (s == p.starts.size) p.starts.push(o);
            which.push(s), shift.push(o);
            if (o < p.starts[s]) p.starts[s] = o;
        }
        for (i64 k = 0; k < col.taps; ++k) {
            shift[k] = (shift[k] - p.starts[which[k]]) / col.step;
            reach = most(reach, shift[k]);
        }
        if (p.starts.size * (p.cols + reach) <= col.taps * p.cols + 64) break;
    }
    p.sublines = p.starts.size;
    p.sub = p.cols + reach;
    // The zeros right of a line may serve as those left of the next.
    i64 shared = 0;
    if (p.sublines == 1 && p.cols == col.m) {
        i64 left = most(0, up(most(0, -p.starts[0]), col.step));
        i64 right = most(0, p.sub - most(0, up(most(0, col.n - p.starts[0]), col.step)));
        shared = least(least(left, right), reach);  // lines of output cells stay apart
    }
    p.line = p.sublines * p.sub - shared;
    p.row_pitch = p.dense_rows ? row.step * p.line : p.line;
    p.plane = p.lines * p.line + shared;
    p.slab = p.outer_taps * p.plane;
    p.channel = p.slabs * p.slab;
    p.channel += 2 * panel_width<T>;  // a panel may read past the last run
    p.off.size = 0;
    for (i64 c = 0; c < p.block_channels; ++c)
        for (i64 u = 0; u < p.outer_taps; ++u)
            for (i64 r = 0; r < row.taps; ++r)
                for (i64 k = 0; k < col.taps; ++k) {
                    i64 ln = p.dense_rows ? z.off[row.tap + r] - lo : r * p.rows;
                    p.off.push(
                        int32_t(c * p.channel + u * p.plane + ln * p.line + which[k] * p.sub + shift[k]));
                }
}

template <class T>
void cut(Plan<T>& p, i64 cells) {
    const Gather& z = p.z;
    const Axis &row = z.row(), &col = z.col();
    p.cols = even_split(col.m, cells);
    if (p.cols < col.m) p.cols = up(p.cols, panel_width<T>) * panel_width<T>;
    p.rows = p.cols >= col.m ? even_split(row.m, cells / p.cols) : 1;
    p.slabs = p.cols >= col.m && p.rows == row.m ? even_split(p.all_slabs, cells / (p.rows * p.cols)) : 1;
    p.col_tiles = up(col.m, p.cols), p.row_tiles = up(row.m, p.rows), p.slab_tiles = up(p.all_slabs, p.slabs);
}

inline constexpr i64 most_dots = 3;  // that many dot products cost less than a tile of one vector

// The cost of panels over so many cells, in vectors: narrow tiles use the registers less well.
template <class T>
double panels_cost(i64 cells, bool dots) {
    i64 v = up(cells, lanes<T>), rest = cells % lanes<T>;
    if (dots && v % 3 == 1 && rest && rest <= most_dots) return double(v - 1) + 0.45 * double(rest);
    return double(v) + (v % 3 == 1 ? 0.4 : v % 3 == 2 ? 0.15 : 0.0);
}

// z has cells, rows, channels and taps. force_packed: the caller wants panels (weight gradients do).
template <class T>
void make_plan(Plan<T>& p, bool force_packed, bool dots, i64 threads) {
    const Gather& z = p.z;
    const Axis& col = z.col();
    p.all_slabs = p.outer_taps = 1;
    for (i64 a = 0; a < z.outers(); ++a) p.all_slabs *= z.axes[a].m, p.outer_taps *= z.axes[a].taps;
    p.block_channels = even_split(z.channels, most(1, block_terms / z.taps));
    constexpr i64 W = panel_width<T>, L = lanes<T>;
    i64 most_cells = force_packed ? 256 : 768;
    i64 fair =
        threads == 1 ? most_cells : up(up(z.cells * (force_packed ? 1 : z.groups), 4 * threads), W) * W;
    i64 cells = most(least(most_cells, fair), 8 * W);
    for (;; cells = cells / 2) {
        cut(p, cells);
        lay_out(p);
        // What a panel reads of a block, a line or two more than itself per line of the copy, stays in the first cache.
        i64 seen = p.outer_taps * z.row().taps * p.sublines * (W * i64(sizeof(T)) + 64);
        i64 fit = even_split(z.channels, most(1, least(block_terms / z.taps, 22 * 1024 / seen)));
        if (fit < p.block_channels) p.block_channels = fit, lay_out(p);
        if (p.block_channels * p.channel * i64(sizeof(T)) <= 144 * 1024 || cells <= W) break;
    }
    // Which way costs least, in vectors of work per tile: panels that end with their line, panels that run on
    // from line to line (over cells between lines that are thrown away), or packed panels (over nothing, but
    // packing costs).
    i64 n = p.rows * p.cols, all = n * p.slabs;
    p.dots = dots;
    auto cost = [&](i64 width) { return panels_cost<T>(width, dots); };
    double by_line = cost(p.cols) * double(p.rows * p.slabs);
    double by_slab = cost((p.rows - 1) * p.row_pitch + p.cols) * double(p.slabs);
    double runs = double(all) / W + double(p.rows * p.slabs);
    double by_pack = cost(all) + (5 * runs + 2 * double(all) / L) / (double(z.rows) / 2);
    p.flat = by_slab < by_line;
    p.packed = force_packed || z.taps == 1 || by_pack < (p.flat ? by_slab : by_line);
    p.straight = p.packed && !z.absent && col.step == 1 && col.in == 1;
    if (!p.packed) return;
    p.block_channels = even_split(z.channels, most(1, packed_terms / z.taps));
    cut(p, least(cells, 256));
    lay_out(p);
    if (!p.straight) return;
    List<i64> at;  // of each tap in the source
    at.push(0);
    for (i64 a = 0; a < z.axes.size; ++a) {
        const Axis& x = z.axes[a];
        List<i64> next;
        for (i64 i = 0; i < at.size; ++i)
            for (i64 k = 0; k < x.taps; ++k) next.push(at[i] + z.off[x.tap + k] * x.in);
        at.swap(next);
    }
    p.straight = p.block_channels * z.in_channel < (i64(1) << 31);
    for (i64 i = 0; i < p.off.size && p.straight; ++i)
        p.off[i] = int32_t(i / z.taps * z.in_channel + at[i % z.taps]);
}

// One tile at work: which source lines it copies, which panels it has.
template <class T>
struct Work {
    const Plan<T>& p;
    i64 col, row, slab, cols, rows, slabs;
    List<i64> plane_at, line_at;  // where a source plane and line begin, or -1: absent
    struct Span {
        i64 left, middle, from;
    };
    List<Span> spans;  // per subline: zeros, then cells from here on, then zeros
    List<Run> runs;
    List<Panel> panels;
    explicit Work(const Plan<T>& plan) : p(plan) {}
};

template <class T>
inline constexpr i64 packed_panel = (packed_terms + 1) * panel_width<T>;

template <class T>
void set_tile(Work<T>& w, i64 index) {
    const Plan<T>& p = w.p;
    const Gather& z = p.z;
    const Axis &row = z.row(), &col = z.col();
    w.col = index % p.col_tiles * p.cols, index /= p.col_tiles;
    w.row = index % p.row_tiles * p.rows, index /= p.row_tiles;
    w.slab = index * p.slabs;
    w.cols = least(p.cols, col.m - w.col), w.rows = least(p.rows, row.m - w.row);
    w.slabs = least(p.slabs, p.all_slabs - w.slab);

    List<i64> to, source;  // of each slab
    w.plane_at.size = 0;
    for (i64 s = 0; s < w.slabs; ++s) {
        i64 t = z.base, first = 0;
        for (i64 u = 0; u < p.outer_taps; ++u) {
            i64 q = w.slab + s, tap = u, at = 0;
            t = z.base, first = 0;
            for (i64 a = z.outers() - 1; a >= 0; --a) {
                const Axis& x = z.axes[a];
                i64 o = q % x.m, i = o * x.step + z.off[x.tap + tap % x.taps];
                q /= x.m, tap /= x.taps, t += o * x.out, first += o * x.step * x.in;
                at = at < 0 || i < 0 || i >= x.n ? -1 : at + i * x.in;
            }
            w.plane_at.push(at);
        }
        to.push(t), source.push(first);
    }
    w.line_at.size = 0;
    for (i64 l = 0; l < p.lines; ++l) {
        i64 i = p.dense_rows ? w.row * row.step + p.first_row + l
                             : (w.row + l % p.rows) * row.step + z.off[row.tap + l / p.rows];
        bool used = p.dense_rows ? l <= p.lines - 1 - (p.rows - w.rows) * row.step : l % p.rows < w.rows;
        w.line_at.push(i < 0 || i >= row.n || !used ? -1 : i * row.in);
    }
    w.spans.size = 0;
    for (i64 s = 0; s < p.sublines; ++s) {
        i64 first = w.col * col.step + p.starts[s];
        i64 left = least(p.sub, first < 0 ? up(-first, col.step) : 0);
        i64 end = least(p.sub, first >= col.n ? 0 : up(col.n - first, col.step));
        w.spans.push({left, most(0, end - left), (first + left * col.step) * col.in});
    }

    constexpr i64 W = panel_width<T>, L = lanes<T>;
    w.runs.size = w.panels.size = 0;
    if (p.by_lines) {
        for (i64 s = 0; s < w.slabs; ++s)
            for (i64 r = 0; r < w.rows; ++r)
                w.runs.push({0, int32_t(w.cols), s * p.slab + r * p.row_pitch,
                             to[s] + (w.row + r) * row.out + w.col * col.out, 0});
        return;
    }
    auto add = [&](i64 at, i64 length, i64 s, i64 r, i64 c) {
        i64 from = s * p.slab + r * p.row_pitch + c;
        if (p.straight) from = source[s] + (w.row + r) * row.step * row.in + w.col + c;
        w.runs.push(
            {int32_t(at), int32_t(length), from, to[s] + (w.row + r) * row.out + (w.col + c) * col.out, 0});
    };
    auto close = [&](i64 base, i64 first, i64 width) {
        bool whole = width % L == 0 && col.out == 1;
        i64 covered = 0;
        for (i64 i = first; i < w.runs.size; ++i) {
            Run& r = w.runs[i];
            r.packed = base + r.at;
            whole &= r.at == covered && r.to == w.runs[first].to + covered;
            covered += r.length;
        }
        w.panels.push({base, int32_t(up(width, L)), int32_t(first), int32_t(w.runs.size - first), whole});
    };
    if (p.packed) {
        i64 all = w.slabs * w.rows * w.cols, s = 0, r = 0, c = 0;
        for (i64 i = 0; i < all; i += W) {
            i64 first = w.runs.size, width = least(W, all - i);
            if (p.dots && width <= most_dots) {
                for (; i < all; ++i) {
                    add(0, 1, s, r, c);
                    w.panels.push({w.runs[first].from, 0, int32_t(first), 1, false});
                    ++first;
                    if (++c == w.cols) c = 0, ++r;
                    if (r == w.rows) r = 0, ++s;
                }
                break;
            }
            for (i64 at = 0; at < width;) {
                i64 n = least(width - at, w.cols - c);
                add(at, n, s, r, c);
                at += n, c += n;
                if (c == w.cols) c = 0, ++r;
                if (r == w.rows) r = 0, ++s;
            }
            close(i / W * packed_panel<T>, first, width);
        }
        return;
    }
    for (i64 s = 0; s < w.slabs; ++s) {
        if (!p.flat) {
            for (i64 r = 0; r < w.rows; ++r)
                for (i64 c = 0; c < w.cols;) {
                    i64 first = w.runs.size, n = least(W, w.cols - c);
                    if (p.dots && n <= most_dots) n = 1;
                    add(0, n, s, r, c);
                    close(s * p.slab + r * p.row_pitch + c, first, n);
                    if (p.dots && w.cols - c <= most_dots) w.panels[w.panels.size - 1].vectors = 0;
                    c += n;
                }
            continue;
        }
        i64 end = (w.rows - 1) * p.row_pitch + w.cols;
        for (i64 f = 0; f < end; f += W) {
            i64 first = w.runs.size, width = 0;
            for (i64 r = f / p.row_pitch; r < w.rows && r * p.row_pitch < f + W; ++r) {
                i64 from = most(f, r * p.row_pitch), to_ = least(f + W, r * p.row_pitch + w.cols);
                if (from >= to_) continue;
                add(from - f, to_ - from, s, r, from - r * p.row_pitch);
                width = to_ - f;
            }
            if (width) close(s * p.slab + f, first, width);
        }
    }
}

// Copies n >= lanes cells: the last vector may overlap the one before.
template <class T>
inline void copy_run(T* out, const T* in, i64 n) {
    constexpr i64 L = lanes<T>;
    for (i64 i = 0; i + L < n; i += L) store(out + i, load(in + i));
    store(out + n - L, load(in + n - L));
}

// out[i] = in[i*step] for i < n, in whole vectors as long as the source (up to `end`) allows: what lies
// behind a line in the copy is written later. `ahead` from here lies what will be copied next.
template <class T>
inline void copy_line(T* out, const T* in, i64 step, i64 n, const T* end, i64 ahead) {
    constexpr i64 L = lanes<T>;
    i64 i = 0, room = end - in;
    if (step == 1) {
        for (; i < n && i + L <= room; i += L) {
            prefetch(in, ahead + i);
            store(out + i, load(in + i));
        }
    } else if (step == 2) {
        for (; i < n && 2 * i + 2 * L <= room; i += L) {
            Vector<T> even, odd;
            unzip<int(L)>(load(in + 2 * i), load(in + 2 * i + L), even, odd);
            store(out + i, even);
        }
    }
    for (; i < n; ++i) out[i] = in[i * step];
}

template <class T>
void copy_channel(const Work<T>& w, const T* in, const T* end, T* out) {
    const Plan<T>& p = w.p;
    const Axis& col = p.z.col();
    for (i64 s = 0; s < w.slabs * p.outer_taps; ++s) {
        T* plane = out + s * p.plane;
        i64 at = w.plane_at[s];
        for (i64 l = 0; l < p.lines; ++l, plane += p.line)
            for (i64 k = 0; k < p.sublines; ++k) {
                T* line = plane + k * p.sub;
                const auto& span = w.spans[k];
                if (at < 0 || w.line_at[l] < 0 || !span.middle) {
                    for (i64 i = 0; i < p.sub; ++i) line[i] = 0;
                    continue;
                }
                for (i64 i = 0; i < span.left; ++i) line[i] = 0;
                copy_line(line + span.left, in + at + w.line_at[l] + span.from, col.step * col.in,
                          span.middle, end, p.z.in_channel);
                for (i64 i = span.left + span.middle; i < p.sub; ++i) line[i] = 0;
            }
    }
}

// Packs the taps `off` of the copy (or of the source, which ends at `end`) into panels [panel][k][width]. A
// run is written in whole vectors: what comes after it in memory is written later.
template <class T>
void pack_panels(const Work<T>& w, const T* copy, const T* end, const int32_t* off, i64 terms, T* out) {
    constexpr i64 W = panel_width<T>, L = lanes<T>;
    i64 runs = w.runs.size, ahead = w.p.straight ? 2 * w.p.z.in_channel : 0;
    while (runs && !w.panels[w.panels.size - 1 - (w.runs.size - runs)].vectors)
        --runs;  // single cells are not packed
    for (i64 k = 0; k < terms; ++k) {
        const T* x = copy + off[k];
        T* y = out + k * W;
        for (i64 r = 0; r < runs; ++r) {
            const Run& run = w.runs[r];
            const T* from = x + run.from;
            T* to = y + run.packed;
            if (ahead) {
                prefetch(from, ahead), prefetch(from, ahead + 2 * L);
                if (end - from < W) {
                    for (int l = 0; l < run.length; ++l) to[l] = from[l];
                    continue;
                }
            }
            store(to, load(from));
            if (run.length > L) store(to + L, load(from + L));
            if (run.length > 2 * L) store(to + 2 * L, load(from + 2 * L));
        }
    }
}

// a[r][c, t] = w[group*group_pitch + r*row_pitch + c*channel_pitch + place_t]
struct WeightLayout {
    i64 group, row, channel, kernel;
};

}  // namespace
}  // namespace lunette::LN_ISA
