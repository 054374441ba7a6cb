// Convolution and its three gradients, in any number of dimensions, as one blocked matrix product.
//
// Forward and input gradient are the same sum, a Gather:  out[r, q] = sum over (c, t) of a[r][c, t] * in[c, q*step + off_t]
// where r is a row (a channel of the result), c a channel of the source, q an output cell, t a tap (a kernel cell).
// A strided input gradient is one Gather per residue of the input cell modulo the stride.
//
// A tile of output cells first gets a zero-padded copy of the source it needs, channel by channel, split so that every
// tap of a line of output cells is one contiguous run. The product then reads its vectors either straight from that copy
// (shifted by the tap) or, where lines are too short for that, from panels packed from it.
#include "gemm.hpp"
#include "operators.hpp"
#include "threads.hpp"

namespace lunette::LN_ISA {
namespace {

inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
inline int64_t up(int64_t a, int64_t b) { return (a + b - 1) / b; }  // a >= 0
inline int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }

struct Axis {
  int64_t n, m, step;      // cells in the source, cells of the result, source cells from one to the next
  int64_t in, out;         // distance of neighbours in memory
  int64_t taps, tap;       // its taps are Gather::off[tap ...], and their place in the kernel Gather::place[tap ...]
  bool plain;              // cell q reads cell q and nothing else
};

struct Spot {
  int64_t in, out;
};

struct Gather {
  List<Axis> axes;         // outermost first, the batch among them; the last two are rows and columns
  List<int64_t> off, place;
  int64_t rows, channels, groups;         // per group
  int64_t in_size, in_channel, out_channel, base = 0;  // distances in memory; the first output cell
  int64_t cells, taps, first_place = 0;
  bool absent = false;     // some tap of some cell lies outside

  const Axis& row() const { return axes[axes.size - 2]; }
  const Axis& col() const { return axes[axes.size - 1]; }
  int64_t outers() const { return axes.size - 2; }

  // Where tap t of cell q reads (-1: absent) and where q is written, within a channel.
  Spot spot(int64_t q, int64_t t) const {
    Spot s{0, base};
    for (int64_t a = axes.size - 1; a >= 0; --a) {
      const Axis& x = axes[a];
      int64_t o = q % x.m, i = o * x.step + off[x.tap + t % x.taps];
      q /= x.m, t /= x.taps;
      s.in = s.in < 0 || i < 0 || i >= x.n ? -1 : s.in + i * x.in;
      s.out += o * x.out;
    }
    return s;
  }
};

// Adds an axis with taps off(k), k < kernel, without those that no cell can see.
template <class Off>
void add_axis(Gather& z, Axis x, int64_t kernel, int64_t place, Off off) {
  x.tap = z.off.size;
  for (int64_t k = 0; k < kernel; ++k) {
    int64_t o;
    if (!off(k, o)) continue;
    int64_t first = o >= 0 ? 0 : up(-o, x.step), last = floor_div(x.n - 1 - o, x.step);
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
  int64_t kept = 0;
  for (int64_t a = 0; a < z.axes.size; ++a) {
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
  for (int64_t a = 0; a < z.axes.size; ++a) z.cells *= z.axes[a].m, z.taps *= z.axes[a].taps;
}

// Where a tap of the kernel lies: in the order outer taps, row taps, column taps.
void places(const Gather& z, List<int64_t>& place) {
  place.push(z.first_place);
  for (int64_t a = 0; a < z.axes.size; ++a) {
    const Axis& x = z.axes[a];
    List<int64_t> next;
    for (int64_t i = 0; i < place.size; ++i)
      for (int64_t k = 0; k < x.taps; ++k) next.push(place[i] + z.place[x.tap + k]);
    place.swap(next);
  }
}

// A run of cells of a tile: neighbours in the copy and in the result.
struct Run {
  int32_t at, length;        // in its panel
  int64_t from, to, packed;  // in the copy of a channel, in the result, among the packed panels
};
struct Panel {
  int64_t base;  // what its vectors read, beside the tap's offset
  int32_t vectors, run, runs;  // no vectors: one cell
  bool whole;  // its runs fill the vectors and are neighbours in the result: the product is stored as it is
};

// How a Gather is cut into tiles, and what a tile's copy looks like.
template <class T>
struct Plan {
  const Gather& z;
  int64_t cols, rows, slabs;                  // of a full tile; a slab is one cell of the outer axes
  int64_t col_tiles, row_tiles, slab_tiles, all_slabs;
  int64_t outer_taps, row_taps, col_taps;
  bool dense_rows;                            // one line per source row, else one per (row tap, output row)
  int64_t first_row, lines, sublines, sub, line, row_pitch, plane, slab, channel;
  List<int64_t> starts;                       // per subline: source column of its first cell, for output column 0
  List<int32_t> off;                          // offset of (channel in block, tap)
  int64_t block_channels;
  bool packed, flat;
  bool by_lines = false;                      // one run per line and no panels: depthwise sums read the copy themselves
  bool straight = false;                      // nothing is absent and lines are contiguous: no copy, panels come from the source
  bool dots = false;                          // single cells at the end are summed by dot products
  explicit Plan(const Gather& g) : z(g) {}
  int64_t tiles() const { return col_tiles * row_tiles * slab_tiles; }

  int64_t copy_size() const { return up(block_channels * channel + 2 * panel_width<T>, 16) * 16; }

  // A block of terms is some whole channels, or some taps of one channel.
  int64_t parts() const { return up(z.taps, packed ? packed_terms : block_terms); }
  int64_t blocks() const { return up(z.channels, block_channels) * parts(); }
  struct Block { int64_t channel, tap, terms; };
  Block block(int64_t k) const {
    int64_t part = up(z.taps, parts()), c = k / parts() * block_channels, t = k % parts() * part;
    if (parts() > 1) return {c, t, least(part, z.taps - t)};
    return {c, 0, least(block_channels, z.channels - c) * z.taps};
  }
};

template <class T>
void lay_out(Plan<T>& p) {
  const Gather& z = p.z;
  const Axis &row = z.row(), &col = z.col();
  int64_t lo = row.taps ? z.off[row.tap] : 0, hi = lo;
  for (int64_t k = 0; k < row.taps; ++k) lo = least(lo, z.off[row.tap + k]), hi = most(hi, z.off[row.tap + k]);
  int64_t span = (p.rows - 1) * row.step + hi - lo + 1;
  p.dense_rows = span <= p.rows * row.taps;
  p.first_row = lo;
  p.lines = p.dense_rows ? span : p.rows * row.taps;

  // Columns: one subline per residue of the taps modulo the step, or one per tap where these lie far apart.
  List<int64_t> which, shift;
  p.starts.size = 0;
  int64_t reach = 0;
  for (int pass = 0; pass < 2; ++pass) {
    p.starts.size = which.size = shift.size = 0, reach = 0;
    for (int64_t k = 0; k < col.taps; ++k) {
      int64_t o = z.off[col.tap + k], s = p.starts.size;
      for (int64_t i = 0; i < p.starts.size && !pass; ++i)
        if ((o - p.starts[i]) % col.step == 0) s = i;
      if (s == p.starts.size) p.starts.push(o);
      which.push(s), shift.push(o);
      if (o < p.starts[s]) p.starts[s] = o;
    }
    for (int64_t k = 0; k < col.taps; ++k) {
      shift[k] = (shift[k] - p.starts[which[k]]) / col.step;
      reach = most(reach, shift[k]);
    }
    if (p.starts.size * (p.cols + reach) <= col.taps * p.cols + 64) break;
  }
  p.sublines = p.starts.size;
  p.sub = p.cols + reach;
  // The zeros right of a line may serve as those left of the next.
  int64_t shared = 0;
  if (p.sublines == 1 && p.cols == col.m) {
    int64_t left = most(0, up(most(0, -p.starts[0]), col.step));
    int64_t right = most(0, p.sub - most(0, up(most(0, col.n - p.starts[0]), col.step)));
    shared = least(least(left, right), reach);  // lines of output cells stay apart
  }
  p.line = p.sublines * p.sub - shared;
  p.row_pitch = p.dense_rows ? row.step * p.line : p.line;
  p.plane = p.lines * p.line + shared;
  p.slab = p.outer_taps * p.plane;
  p.channel = p.slabs * p.slab;
  p.channel += 2 * panel_width<T>;  // a panel may read past the last run
  p.off.size = 0;
  for (int64_t c = 0; c < p.block_channels; ++c)
    for (int64_t u = 0; u < p.outer_taps; ++u)
      for (int64_t r = 0; r < row.taps; ++r)
        for (int64_t k = 0; k < col.taps; ++k) {
          int64_t ln = p.dense_rows ? z.off[row.tap + r] - lo : r * p.rows;
          p.off.push(int32_t(c * p.channel + u * p.plane + ln * p.line + which[k] * p.sub + shift[k]));
        }
}

// The least size of a part that needs no more parts than parts of at_most.
inline int64_t even_split(int64_t all, int64_t at_most) {
  return up(all, up(all, most(1, least(at_most, all))));
}

template <class T>
void cut(Plan<T>& p, int64_t cells) {
  const Gather& z = p.z;
  const Axis &row = z.row(), &col = z.col();
  p.cols = even_split(col.m, cells);
  if (p.cols < col.m) p.cols = up(p.cols, panel_width<T>) * panel_width<T>;
  p.rows = p.cols >= col.m ? even_split(row.m, cells / p.cols) : 1;
  p.slabs = p.cols >= col.m && p.rows == row.m ? even_split(p.all_slabs, cells / (p.rows * p.cols)) : 1;
  p.col_tiles = up(col.m, p.cols), p.row_tiles = up(row.m, p.rows), p.slab_tiles = up(p.all_slabs, p.slabs);
}

inline constexpr int64_t most_dots = 3;  // that many dot products cost less than a tile of one vector

// z has cells, rows, channels and taps. force_packed: the caller wants panels (weight gradients do).
template <class T>
void make_plan(Plan<T>& p, bool force_packed, bool dots, int64_t threads) {
  const Gather& z = p.z;
  const Axis &row = z.row(), &col = z.col();
  p.all_slabs = p.outer_taps = 1;
  for (int64_t a = 0; a < z.outers(); ++a) p.all_slabs *= z.axes[a].m, p.outer_taps *= z.axes[a].taps;
  p.row_taps = row.taps, p.col_taps = col.taps;
  p.block_channels = even_split(z.channels, most(1, block_terms / z.taps));
  constexpr int64_t W = panel_width<T>, L = lanes<T>;
  int64_t most_cells = force_packed ? 256 : 768;
  int64_t fair = threads == 1 ? most_cells : up(up(z.cells * (force_packed ? 1 : z.groups), 4 * threads), W) * W;
  int64_t cells = most(least(most_cells, fair), 8 * W);
  for (;; cells = cells / 2) {
    cut(p, cells);
    lay_out(p);
    if (p.block_channels * p.channel * int64_t(sizeof(T)) <= 256 * 1024 || cells <= W) break;
  }
  // Which way costs least, in vectors of work per tile: panels that end with their line, panels that run on from line
  // to line (over cells between lines that are thrown away), or packed panels (over nothing, but packing costs).
  int64_t n = p.rows * p.cols, all = n * p.slabs;
  p.dots = dots;
  auto cost = [&](int64_t width) {  // narrow tiles use the registers less well
    int64_t v = up(width, L);
    if (dots && v % 3 == 1 && width % L && width % L <= most_dots) return double(v - 1) + 0.2 * double(width % L);
    return double(v) + (v % 3 == 1 ? 0.4 : v % 3 == 2 ? 0.15 : 0.0);
  };
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
  List<int64_t> at;  // of each tap in the source
  at.push(0);
  for (int64_t a = 0; a < z.axes.size; ++a) {
    const Axis& x = z.axes[a];
    List<int64_t> next;
    for (int64_t i = 0; i < at.size; ++i)
      for (int64_t k = 0; k < x.taps; ++k) next.push(at[i] + z.off[x.tap + k] * x.in);
    at.swap(next);
  }
  p.straight = p.block_channels * z.in_channel < (int64_t(1) << 31);
  for (int64_t i = 0; i < p.off.size && p.straight; ++i)
    p.off[i] = int32_t(i / z.taps * z.in_channel + at[i % z.taps]);
}

// One tile at work: which source lines it copies, which panels it has.
template <class T>
struct Work {
  const Plan<T>& p;
  int64_t col, row, slab, cols, rows, slabs;
  List<int64_t> plane_at, line_at;  // where a source plane and line begin, or -1: absent
  struct Span { int64_t left, middle, from; };
  List<Span> spans;                 // per subline: zeros, then cells from here on, then zeros
  List<Run> runs;
  List<Panel> panels;
  explicit Work(const Plan<T>& plan) : p(plan) {}
};

template <class T>
inline constexpr int64_t packed_panel = (packed_terms + 1) * panel_width<T>;

template <class T>
void set_tile(Work<T>& w, int64_t index) {
  const Plan<T>& p = w.p;
  const Gather& z = p.z;
  const Axis &row = z.row(), &col = z.col();
  w.col = index % p.col_tiles * p.cols, index /= p.col_tiles;
  w.row = index % p.row_tiles * p.rows, index /= p.row_tiles;
  w.slab = index * p.slabs;
  w.cols = least(p.cols, col.m - w.col), w.rows = least(p.rows, row.m - w.row);
  w.slabs = least(p.slabs, p.all_slabs - w.slab);

  List<int64_t> to, source;  // of each slab
  w.plane_at.size = 0;
  for (int64_t s = 0; s < w.slabs; ++s) {
    int64_t t = z.base, first = 0;
    for (int64_t u = 0; u < p.outer_taps; ++u) {
      int64_t q = w.slab + s, tap = u, at = 0;
      t = z.base, first = 0;
      for (int64_t a = z.outers() - 1; a >= 0; --a) {
        const Axis& x = z.axes[a];
        int64_t o = q % x.m, i = o * x.step + z.off[x.tap + tap % x.taps];
        q /= x.m, tap /= x.taps, t += o * x.out, first += o * x.step * x.in;
        at = at < 0 || i < 0 || i >= x.n ? -1 : at + i * x.in;
      }
      w.plane_at.push(at);
    }
    to.push(t), source.push(first);
  }
  w.line_at.size = 0;
  for (int64_t l = 0; l < p.lines; ++l) {
    int64_t i = p.dense_rows ? w.row * row.step + p.first_row + l
                             : (w.row + l % p.rows) * row.step + z.off[row.tap + l / p.rows];
    bool used = p.dense_rows ? l <= p.lines - 1 - (p.rows - w.rows) * row.step : l % p.rows < w.rows;
    w.line_at.push(i < 0 || i >= row.n || !used ? -1 : i * row.in);
  }
  w.spans.size = 0;
  for (int64_t s = 0; s < p.sublines; ++s) {
    int64_t first = w.col * col.step + p.starts[s];
    int64_t left = least(p.sub, first < 0 ? up(-first, col.step) : 0);
    int64_t end = least(p.sub, first >= col.n ? 0 : up(col.n - first, col.step));
    w.spans.push({left, most(0, end - left), (first + left * col.step) * col.in});
  }

  constexpr int64_t W = panel_width<T>, L = lanes<T>;
  w.runs.size = w.panels.size = 0;
  if (p.by_lines) {
    for (int64_t s = 0; s < w.slabs; ++s)
      for (int64_t r = 0; r < w.rows; ++r)
        w.runs.push({0, int32_t(w.cols), s * p.slab + r * p.row_pitch,
                     to[s] + (w.row + r) * row.out + w.col * col.out, 0});
    return;
  }
  auto add = [&](int64_t at, int64_t length, int64_t s, int64_t r, int64_t c) {
    int64_t from = s * p.slab + r * p.row_pitch + c;
    if (p.straight) from = source[s] + (w.row + r) * row.step * row.in + w.col + c;
    w.runs.push({int32_t(at), int32_t(length), from, to[s] + (w.row + r) * row.out + (w.col + c) * col.out, 0});
  };
  auto close = [&](int64_t base, int64_t first, int64_t width) {
    bool whole = width % L == 0 && col.out == 1;
    int64_t covered = 0;
    for (int64_t i = first; i < w.runs.size; ++i) {
      Run& r = w.runs[i];
      r.packed = base + r.at;
      whole &= r.at == covered && r.to == w.runs[first].to + covered;
      covered += r.length;
    }
    w.panels.push({base, int32_t(up(width, L)), int32_t(first), int32_t(w.runs.size - first), whole});
  };
  if (p.packed) {
    int64_t all = w.slabs * w.rows * w.cols, s = 0, r = 0, c = 0;
    for (int64_t i = 0; i < all; i += W) {
      int64_t first = w.runs.size, width = least(W, all - i);
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
      for (int64_t at = 0; at < width;) {
        int64_t n = least(width - at, w.cols - c);
        add(at, n, s, r, c);
        at += n, c += n;
        if (c == w.cols) c = 0, ++r;
        if (r == w.rows) r = 0, ++s;
      }
      close(i / W * packed_panel<T>, first, width);
    }
    return;
  }
  for (int64_t s = 0; s < w.slabs; ++s) {
    if (!p.flat) {
      for (int64_t r = 0; r < w.rows; ++r)
        for (int64_t c = 0; c < w.cols;) {
          int64_t first = w.runs.size, n = least(W, w.cols - c);
          if (p.dots && n <= most_dots) n = 1;
          add(0, n, s, r, c);
          close(s * p.slab + r * p.row_pitch + c, first, n);
          if (p.dots && w.cols - c <= most_dots) w.panels[w.panels.size - 1].vectors = 0;
          c += n;
        }
      continue;
    }
    int64_t end = (w.rows - 1) * p.row_pitch + w.cols;
    for (int64_t f = 0; f < end; f += W) {
      int64_t first = w.runs.size, width = 0;
      for (int64_t r = f / p.row_pitch; r < w.rows && r * p.row_pitch < f + W; ++r) {
        int64_t from = most(f, r * p.row_pitch), to_ = least(f + W, r * p.row_pitch + w.cols);
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
inline void copy_run(T* out, const T* in, int64_t n) {
  constexpr int64_t L = lanes<T>;
  for (int64_t i = 0; i + L < n; i += L) store(out + i, load(in + i));
  store(out + n - L, load(in + n - L));
}

// out[i] = in[i*step] for i < n, in whole vectors as long as the source (up to `end`) allows: what lies behind a line in
// the copy is written later. `ahead` from here lies what will be copied next.
template <class T>
inline void copy_line(T* out, const T* in, int64_t step, int64_t n, const T* end, int64_t ahead) {
  constexpr int64_t L = lanes<T>;
  int64_t i = 0, room = end - in;
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
  for (int64_t s = 0; s < w.slabs * p.outer_taps; ++s) {
    T* plane = out + s * p.plane;
    int64_t at = w.plane_at[s];
    for (int64_t l = 0; l < p.lines; ++l, plane += p.line)
      for (int64_t k = 0; k < p.sublines; ++k) {
        T* line = plane + k * p.sub;
        const auto& span = w.spans[k];
        if (at < 0 || w.line_at[l] < 0 || !span.middle) {
          for (int64_t i = 0; i < p.sub; ++i) line[i] = 0;
          continue;
        }
        for (int64_t i = 0; i < span.left; ++i) line[i] = 0;
        copy_line(line + span.left, in + at + w.line_at[l] + span.from, col.step * col.in, span.middle, end, p.z.in_channel);
        for (int64_t i = span.left + span.middle; i < p.sub; ++i) line[i] = 0;
      }
  }
}

// Packs the taps `off` of the copy (or of the source, which ends at `end`) into panels [panel][k][width]. A run is written
// in whole vectors: what comes after it in memory is written later.
template <class T>
void pack_panels(const Work<T>& w, const T* copy, const T* end, const int32_t* off, int64_t terms, T* out) {
  constexpr int64_t W = panel_width<T>, L = lanes<T>;
  int64_t runs = w.runs.size, ahead = w.p.straight ? 2 * w.p.z.in_channel : 0;
  while (runs && !w.panels[w.panels.size - 1 - (w.runs.size - runs)].vectors) --runs;  // single cells are not packed
  for (int64_t k = 0; k < terms; ++k) {
    const T* x = copy + off[k];
    T* y = out + k * W;
    for (int64_t r = 0; r < runs; ++r) {
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

// Working memory of a thread: what it packs, what it sums, and what the caller keeps while all threads work.
enum Slot { tile_slot, sums_slot, caller_slot, packed_weights_slot };
template <class T>
T* workspace(Slot slot, int64_t n) {
  return static_cast<T*>(scratch(static_cast<size_t>(n) * sizeof(T), slot));
}

// a[r][c, t] = w[group*group_pitch + r*row_pitch + c*channel_pitch + place_t]
struct WeightLayout {
  int64_t group, row, channel, kernel;
};

// The rows of the product, ready to run. For many cells they are packed into panels. For few that would cost more than it
// gains: rows are used as they lie, or, where their terms are not neighbours, gathered block by block.
enum class Rows { packed, as_they_lie, gathered };
template <class T>
struct PackedWeights {
  Rows kind;
  const T* data = nullptr;
  int64_t depth = 0, group = 0;  // distance of rows (terms of a row, at least) and of groups
  WeightLayout layout;
  List<int64_t> place;
  bool runs = true;              // whether the taps of a channel are neighbours
};

// to[r][c] = from[c][r] for r in first..last, so many vectors of rows at once
template <class T>
void transpose_block(const T* from, int64_t pitch, int64_t columns, int64_t first, int64_t last, T* to, int64_t to_pitch,
                     int64_t vectors) {
  constexpr int64_t L = lanes<T>;
  for (int64_t r0 = first; r0 < last; r0 += vectors * L)
    for (int64_t c = 0; c < columns; c += L)
      for (int64_t r = r0; r < least(last, r0 + vectors * L); r += L) {
        if (c + L <= columns && r + L <= last) {
          Vector<T> m[lanes<T>];
          for (int64_t i = 0; i < L; ++i) m[i] = load(from + (c + i) * pitch + r);
          transpose<T>(m);
          for (int64_t i = 0; i < L; ++i) store(to + (r + i) * to_pitch + c, m[i]);
          continue;
        }
        for (int64_t i = c; i < least(columns, c + L); ++i)
          for (int64_t j = r; j < least(last, r + L); ++j) to[j * to_pitch + i] = from[i * pitch + j];
      }
}

template <class T>
void choose_rows(PackedWeights<T>& a, const Gather& z, WeightLayout l) {
  a.depth = z.channels * z.taps, a.layout = l, a.group = l.group;
  bool neighbours = l.channel == l.kernel && z.taps == l.kernel && l.row == a.depth;
  a.kind = z.cells >= 1024 ? Rows::packed : neighbours ? Rows::as_they_lie : Rows::gathered;
  places(z, a.place);
  for (int64_t t = 0; t < z.taps; ++t) a.runs &= a.place[t] == a.place[0] + t;
}

template <class T>
void pack_weights(PackedWeights<T>& a, const Gather& z, const T* w, int64_t threads) {
  a.data = w;
  if (a.kind != Rows::packed) return;
  const WeightLayout l = a.layout;
  int64_t panels = up(z.rows, panel_rows);
  a.group = panels * panel_rows * a.depth;
  T* out = workspace<T>(packed_weights_slot, z.groups * a.group);
  a.data = out;
  constexpr int64_t B = 8;  // channels at a time, so that lines read are used whole
  int64_t chunk = up(panels, most(1, least(panels, threads))), chunks = up(panels, chunk);
  auto task = [&](int64_t i) {
    int64_t g = i / chunks, first = i % chunks * chunk, last = least(panels, first + chunk);
    for (int64_t c0 = 0; c0 < z.channels; c0 += B)
      for (int64_t p = first; p < last; ++p)
        for (int64_t c = c0; c < least(z.channels, c0 + B); ++c) {
          const T* x = w + g * l.group + p * panel_rows * l.row + c * l.channel;
          T* y = out + g * a.group + (p * a.depth + c * z.taps) * panel_rows;
          int64_t n = least(panel_rows, z.rows - p * panel_rows);
          for (int64_t t = 0; t < z.taps; ++t, y += panel_rows)
            for (int64_t r = 0; r < n; ++r) y[r] = x[r * l.row + a.place[t]];
        }
  };
  if (z.groups * a.group < 32768) {
    for (int64_t i = 0; i < z.groups * chunks; ++i) task(i);
  } else {
    parallel_for(z.groups * chunks, task);
  }
}

// Gathers the terms (c, t), (c, t+1), ... of rows m0.. of a group into plain rows `pitch` apart.
template <class T>
void gather_rows(const PackedWeights<T>& a, const Gather& z, int64_t group, int64_t m0, int64_t rows, int64_t c, int64_t t,
                 int64_t terms, T* out, int64_t pitch) {
  const WeightLayout& l = a.layout;
  const T* w = a.data + group * l.group + m0 * l.row + c * l.channel;
  if (z.taps == 1 && l.row == 1)
    return transpose_block(w + a.place[0], l.channel, terms, 0, rows, out, pitch, 64 / vector_bytes);
  bool runs = a.runs && t == 0 && z.taps >= lanes<T> && terms % z.taps == 0;
  for (int64_t k = 0; k < terms; t = 0) {
    int64_t n = least(z.taps - t, terms - k);
    for (int64_t r = 0; r < rows; ++r) {
      const T* x = w + r * l.row;
      T* y = out + r * pitch + k;
      if (runs) copy_run(y, x + a.place[0], n);
      else for (int64_t i = 0; i < n; ++i) y[i] = x[a.place[t + i]];
    }
    k += n, w += l.channel;
  }
}

// Stores `rows` rows of a panel that does not lie in one piece in the result.
template <class T>
bool scatter(const Gather& z, const Panel& panel, const Run* runs, const T* sums, int64_t rows, bool more, bool done,
             const T* bias, const T* add, bool relu, T* out) {
  int64_t pitch = z.col().out;
  bool bad = false;
  for (int64_t m = 0; m < rows; ++m, sums += panel_width<T>)
    for (int x = 0; x < panel.runs; ++x) {
      int64_t first = m * z.out_channel + runs[x].to;
      const T* from = sums + runs[x].at;
      T* y = out + first;
      if (!more && !add && !relu) {  // almost always
        T b = bias ? bias[m] : T(-0.0);
        if (pitch == 1)
          for (int l = 0; l < runs[x].length; ++l) y[l] = from[l] + b;
        else
          for (int l = 0; l < runs[x].length; ++l) y[l * pitch] = from[l] + b;
        for (int l = 0; l < runs[x].length; ++l) bad |= from[l] != from[l];
        continue;
      }
      for (int l = 0; l < runs[x].length; ++l) {
        T v = more ? y[l * pitch] + from[l] : from[l];
        if (done && bias) v += bias[m];
        if (done && add) v += add[first + l * pitch];
        if (done && relu) v = v < 0 ? T(0) : v;
        bad |= v != v;
        y[l * pitch] = v;
      }
    }
  return bad;
}

// Rows first..last of one group over one tile.
inline constexpr int64_t row_block = 128;  // so that its terms stay in the second cache
template <bool Packed, class T>
bool run_rows(const Work<T>& w, const PackedWeights<T>& a, int64_t group, int64_t first, int64_t last, const T* in,
              const Epilogue<T>& e, T* out) {
  const Plan<T>& p = w.p;
  const Gather& z = p.z;
  constexpr int64_t W = panel_width<T>;
  int64_t blocks = p.blocks(), copied = p.copy_size();
  bool deep = blocks > block_limit;  // then levels of block_limit blocks are added to the output one by one
  int64_t packed = p.packed ? w.panels.size * packed_panel<T> + W : 0;
  constexpr int64_t gathered_pitch = block_terms + 16;  // not a power of two
  T* copy = workspace<T>(tile_slot, copied + packed + row_block * gathered_pitch);
  T *panels = copy + copied, *gathered = panels + packed;
  // Sums of panels that do not lie in one piece in the result.
  T* sums = workspace<T>(sums_slot, w.panels.size * (blocks > 1 ? last - first : row_block) * W);
  int32_t even[packed_terms];
  for (int64_t k = 0; k < packed_terms && p.packed; ++k) even[k] = int32_t(k * W);
  const T* in_end = in + z.in_size;
  in += group * z.channels * z.in_channel;
  out += group * z.rows * z.out_channel;
  const T* add = e.add ? e.add + group * z.rows * z.out_channel : nullptr;
  const T* bias = e.bias ? e.bias + group * z.rows : nullptr;
  const T* rows = a.data + group * a.group;
  bool bad = false;
  for (int64_t k = 0; k < blocks; ++k) {
    auto [c, t, n] = p.block(k);
    const T* source = p.straight ? in + c * z.in_channel : copy;
    if (t == 0 && !p.straight)
      for (int64_t i = 0; i < up(n, z.taps); ++i) copy_channel(w, in + (c + i) * z.in_channel, in_end, copy + i * p.channel);
    const int32_t *taps = p.off.data + t, *off = taps;
    if (p.packed) pack_panels(w, source, in_end, taps, n, panels), off = even;
    bool fresh = k % block_limit == 0, done = k == blocks - 1;
    bool flush = done || (k + 1) % block_limit == 0;
    for (int64_t m0 = first; m0 < last; m0 += row_block) {
      int64_t count = least(row_block, last - m0), depth = a.depth;
      const T* first_row = rows + m0 * depth + (c * z.taps + t) * (Packed ? panel_rows : 1);
      if (a.kind == Rows::gathered) {
        first_row = gathered, depth = gathered_pitch;
        gather_rows(a, z, group, m0, count, c, t, n, gathered, depth);
      }
      for (int64_t i = 0; i < w.panels.size; ++i) {
        const Panel& panel = w.panels[i];
        const Run* runs = w.runs.data + panel.run;
        T* sum = sums + (blocks > 1 ? i * (last - first) + m0 - first : 0) * W;
        if (!panel.vectors) {
          T cells[block_terms];
          for (int64_t x = 0; x < n; ++x) cells[x] = source[panel.base + taps[x]];
          dots(first_row, depth, count, cells, n, fresh, sum, W);
        } else {
          bool whole = panel.whole && !deep;
          Column<T> job{first_row, depth, off, n, (p.packed ? panels : copy) + panel.base, sum, nullptr, nullptr, sum, W,
                        false, false};
          if (whole) {
            job.out = out + m0 * z.out_channel + runs[0].to, job.pitch = z.out_channel;
            job.before = job.out;
            job.relu = done && e.relu, job.watch = done && z.absent;
            if (done && bias) job.bias = bias + m0;
            if (done && add) job.add = add + (job.out - out);
          }
          if (fresh) job.before = nullptr;
          bad |= column<Packed>(panel.vectors, job, count);
          if (whole) continue;
        }
        if (flush)
          bad |= scatter(z, panel, runs, sum, count, k >= block_limit, done, done && bias ? bias + m0 : nullptr,
                         add ? add + m0 * z.out_channel : nullptr, e.relu, out + m0 * z.out_channel);
      }
    }
  }
  return bad;
}

template <class T>
bool finite(const T* p, int64_t n) {
  T s = 0;
  for (int64_t i = 0; i < n; ++i) s += p[i] * 0;  // NaN if any is infinite or NaN
  return s == 0;
}

// A running sum of any length within the bound of "fast".
template <class T>
struct Cascade {
  T level[3] = {T(-0.0), T(-0.0), T(-0.0)};
  int64_t terms = 0;
  void add(T v) {
    level[0] += v;
    if (++terms % block_terms == 0) level[1] += level[0], level[0] = T(-0.0);
    if (terms % (block_terms * block_limit) == 0) level[2] += level[1], level[1] = T(-0.0);
  }
  T value() const { return terms ? level[2] + (level[1] + level[0]) : T(0); }
};

// The same sum term by term, skipping absent cells: for multipliers that are not finite, where a padded zero would count.
template <class T>
void run_carefully(const Gather& z, const T* in, const T* w, WeightLayout l, const Epilogue<T>& e, T* out) {
  List<int64_t> place;
  places(z, place);
  parallel_for(z.groups * z.rows, [&](int64_t row) {
    int64_t g = row / z.rows;
    const T* a = w + g * l.group + row % z.rows * l.row;
    for (int64_t q = 0; q < z.cells; ++q) {
      Cascade<T> sum;
      int64_t to = row * z.out_channel + z.spot(q, 0).out;
      for (int64_t c = 0; c < z.channels; ++c)
        for (int64_t t = 0; t < z.taps; ++t) {
          int64_t at = z.spot(q, t).in;
          if (at >= 0) sum.add(in[(g * z.channels + c) * z.in_channel + at] * a[c * l.channel + place[t]]);
        }
      T y = sum.value();
      if (e.bias) y += e.bias[row];
      if (e.add) y += e.add[to];
      out[to] = e.relu && y < 0 ? T(0) : y;
    }
  });
}

// One channel in, one out: too little to pack for. A tile's copy stays in the first cache and every tap reads from it.
inline bool is_depthwise(const Gather& z) { return z.rows == 1 && z.channels == 1 && z.taps <= packed_terms; }

template <class T>
void plan_lines(Plan<T>& p) {
  const Gather& z = p.z;
  p.all_slabs = p.outer_taps = p.block_channels = 1;
  for (int64_t a = 0; a < z.outers(); ++a) p.all_slabs *= z.axes[a].m, p.outer_taps *= z.axes[a].taps;
  p.row_taps = z.row().taps, p.col_taps = z.col().taps;
  p.packed = p.flat = false, p.by_lines = true;
  for (int64_t cells = 2048;; cells /= 2) {
    cut(p, cells);
    lay_out(p);
    if (p.channel * int64_t(sizeof(T)) <= 24 * 1024 || cells <= 64) return;
  }
}

// out[v*lanes ...] = sum_t w[t] * x[off[t] + v*lanes ...], v < N
template <int N, class T>
[[gnu::always_inline]] inline void line_sums(const T* x, const int32_t* off, const T* w, int64_t taps, T bias, T* out,
                                             Vector<T>& watch) {
  constexpr int L = lanes<T>;
  Vector<T> acc[N];
  for (int v = 0; v < N; ++v) acc[v] = broadcast(T(-0.0));
  for (int64_t t = 0; t < taps; ++t) {
    Vector<T> a = broadcast(w[t]);
#pragma GCC unroll 8
    for (int v = 0; v < N; ++v) acc[v] += a * load(x + off[t] + v * L);
  }
#pragma GCC unroll 8
  for (int v = 0; v < N; ++v) {
    acc[v] += broadcast(bias);
    watch += acc[v] * T(0);  // NaN once a sum is NaN or infinite
    store(out + v * L, acc[v]);
  }
}

template <class T>
bool depthwise_tile(const Work<T>& w, const T* copy, const T* weights, T bias, T* out) {
  constexpr int64_t L = lanes<T>;
  const Plan<T>& p = w.p;
  int64_t taps = p.z.taps, pitch = p.z.col().out;
  const int32_t* off = p.off.data;
  Vector<T> watch{};
  for (int64_t i = 0; i < w.runs.size; ++i) {
    const Run& run = w.runs[i];
    const T* x = copy + run.from;
    T* y = out + run.to;
    int64_t l = 0, n = run.length;
    if (pitch == 1) {
      for (; l + 4 * L <= n; l += 4 * L) line_sums<4>(x + l, off, weights, taps, bias, y + l, watch);
      // The last vector may do some cells twice, or some of the next line, which is done again in its turn.
      int64_t rest = up(n - l, L);
      bool over = i + 1 < w.runs.size && run.to + n == w.runs[i + 1].to && w.runs[i + 1].length >= up(n - l, L) * L - (n - l);
      if (rest && (over || n >= rest * L)) {
        if (!over) l = n - rest * L;
        if (rest == 1) line_sums<1>(x + l, off, weights, taps, bias, y + l, watch);
        if (rest == 2) line_sums<2>(x + l, off, weights, taps, bias, y + l, watch);
        if (rest == 3) line_sums<3>(x + l, off, weights, taps, bias, y + l, watch);
        if (rest == 4) line_sums<4>(x + l, off, weights, taps, bias, y + l, watch);
        l = n;
      }
    }
    for (; l < n; l += L) {
      T some[lanes<T>];
      line_sums<1>(x + l, off, weights, taps, bias, some, watch);
      for (int64_t j = 0; j < least(L, n - l); ++j) y[(l + j) * pitch] = some[j];
    }
  }
  return any(watch != Vector<T>{});
}

template <class T>
bool run_depthwise(const Gather& z, const T* in, const T* w, WeightLayout l, const Epilogue<T>& e, T* out) {
  Plan<T> p(z);
  plan_lines(p);
  List<int64_t> place;
  places(z, place);
  int64_t threads = num_threads(), tiles = p.tiles(), work = z.cells / tiles * z.taps;
  int64_t join = most(1, least(up(z.groups, threads == 1 ? 1 : 4 * threads), 200000 / most(1, work)));
  int64_t chunks = up(z.groups, join);
  bool bad = false;
  auto task = [&](int64_t i) {
    Work<T> tile(p);
    set_tile(tile, i / chunks);
    T* copy = workspace<T>(tile_slot, p.copy_size());
    T weights[packed_terms];
    bool b = false;
    for (int64_t g = i % chunks * join; g < least(z.groups, (i % chunks + 1) * join); ++g) {
      for (int64_t t = 0; t < z.taps; ++t) weights[t] = w[g * l.group + place[t]];
      copy_channel(tile, in + g * z.in_channel, in + z.in_size, copy);
      b |= depthwise_tile(tile, copy, weights, e.bias ? e.bias[g] : T(-0.0), out + g * z.out_channel);
    }
    if (b) __atomic_store_n(&bad, true, __ATOMIC_RELAXED);
  };
  if (threads == 1 || z.cells * z.taps * z.groups < 100000)
    for (int64_t i = 0; i < tiles * chunks; ++i) task(i);
  else
    parallel_for(tiles * chunks, task);
  return bad;
}

// sums[t] += sum over the tile's cells of g * x_t, for N taps.
template <int N, class T>
void depthwise_dots(const Work<T>& w, const T* copy, const int32_t* off, const T* g, T* sums) {
  constexpr int64_t L = lanes<T>;
  int64_t pitch = w.p.z.col().out;
  Vector<T> acc[N];
  for (int t = 0; t < N; ++t) acc[t] = broadcast(T(-0.0));
  for (int64_t i = 0; i < w.runs.size; ++i) {
    const Run& run = w.runs[i];
    const T *x = copy + run.from, *y = g + run.to;
    for (int64_t l = 0; l < run.length; l += L) {
      Vector<T> v;
      if (pitch == 1 && l + L <= run.length) {
        v = load(y + l);
      } else {
        T some[lanes<T>] = {};
        for (int64_t j = 0; j < least(L, run.length - l); ++j) some[j] = y[(l + j) * pitch];
        v = load(some);
      }
#pragma GCC unroll 16
      for (int t = 0; t < N; ++t) acc[t] += v * load(x + off[t] + l);
    }
  }
  for (int t = 0; t < N; ++t) {
    T s = T(-0.0);
    for (int64_t l = 0; l < L; ++l) s += acc[t][l];
    sums[t] += s;
  }
}

template <class T>
bool depthwise_weight_grad(const Gather& z, const List<int64_t>& place, int64_t kernel, const T* x, const T* g, T* dw) {
  Plan<T> p(z);
  plan_lines(p);
  int64_t threads = num_threads(), tiles = p.tiles();
  int64_t join = up(z.groups, threads == 1 ? 1 : 4 * threads), chunks = up(z.groups, join);
  bool bad = false;
  auto task = [&](int64_t i) {
    Work<T> tile(p);
    T* copy = workspace<T>(tile_slot, p.copy_size());
    T* sums = workspace<T>(sums_slot, join * z.taps);
    int64_t first = i * join, last = least(z.groups, first + join);
    for (int64_t k = 0; k < (last - first) * z.taps; ++k) sums[k] = T(-0.0);
    for (int64_t k = 0; k < 2 * panel_width<T>; ++k) copy[p.channel - 1 - k] = 0;  // read, times zero
    for (int64_t t = 0; t < tiles; ++t) {
      set_tile(tile, t);
      for (int64_t c = first; c < last; ++c) {
        copy_channel(tile, x + c * z.in_channel, x + z.in_size, copy);
        const T* y = g + c * z.out_channel;
        T* s = sums + (c - first) * z.taps;
        int64_t k = 0;
        for (; k + 9 <= z.taps; k += 9) depthwise_dots<9>(tile, copy, p.off.data + k, y, s + k);
        for (; k + 4 <= z.taps; k += 4) depthwise_dots<4>(tile, copy, p.off.data + k, y, s + k);
        for (; k < z.taps; ++k) depthwise_dots<1>(tile, copy, p.off.data + k, y, s + k);
      }
    }
    bool nan = false;
    for (int64_t c = first; c < last; ++c)
      for (int64_t t = 0; t < z.taps; ++t) {
        T v = sums[(c - first) * z.taps + t];
        nan |= v != v;
        dw[c * kernel + place[t]] = v;
      }
    if (nan) __atomic_store_n(&bad, true, __ATOMIC_RELAXED);
  };
  if (threads == 1 || z.cells * z.taps * z.groups < 100000)
    for (int64_t i = 0; i < chunks; ++i) task(i);
  else
    parallel_for(chunks, task);
  return bad;
}

template <class T>
void run_gather(const Gather& z, const T* in, const T* w, WeightLayout l, int64_t weights, const Epilogue<T>& e, T* out) {
  if (is_depthwise(z) && !e.add && !e.relu) {
    bool odd = run_depthwise(z, in, w, l, e, out);
    if (odd && !finite(w, weights)) run_carefully(z, in, w, l, e, out);
    return;
  }
  int64_t threads = num_threads();
  Plan<T> p(z);
  PackedWeights<T> a;
  choose_rows(a, z, l);
  make_plan(p, false, a.kind != Rows::packed, threads);
  pack_weights(a, z, w, threads);
  // Tasks: tiles x groups; where these are few, the rows are shared out too; where they are tiny, groups are joined.
  int64_t tiles = p.tiles(), work = z.channels * z.taps * z.rows * most(1, z.cells / most(1, tiles));
  int64_t row_chunks = 1;
  if (tiles * z.groups < 2 * threads && threads > 1) row_chunks = least(up(2 * threads, tiles * z.groups), up(z.rows, 16));
  int64_t row_chunk = up(up(z.rows, row_chunks), panel_rows) * panel_rows;
  row_chunks = up(z.rows, row_chunk);
  int64_t join = most(1, least(z.groups, least(300000 / most(1, work), up(z.groups * tiles, 4 * threads))));
  int64_t group_chunks = up(z.groups, join);
  int64_t tasks = tiles * group_chunks * row_chunks;
  bool bad = false;
  auto task = [&](int64_t i) {
    int64_t rc = i % row_chunks, gc = i / row_chunks % group_chunks, tile = i / row_chunks / group_chunks;
    Work<T> work_(p);
    set_tile(work_, tile);
    bool b = false;
    for (int64_t g = gc * join; g < least(z.groups, gc * join + join); ++g) {
      int64_t first = rc * row_chunk, last = least(z.rows, first + row_chunk);
      b |= a.kind == Rows::packed ? run_rows<true>(work_, a, g, first, last, in, e, out)
                    : run_rows<false>(work_, a, g, first, last, in, e, out);
    }
    if (b) __atomic_store_n(&bad, true, __ATOMIC_RELAXED);
  };
  if (threads == 1 || z.cells * z.channels * z.taps * z.rows * z.groups < 200000) {
    for (int64_t i = 0; i < tasks; ++i) task(i);
  } else {
    parallel_for(tasks, task);
  }
  if (bad && !finite(w, weights)) run_carefully(z, in, w, l, e, out);
}

// The arguments of a convolution, as the kernels below want them.
struct Sizes {
  int64_t n = 1, m = 1, kernel = 1;
};
inline Sizes sizes(const ConvAxis* axes, int64_t d) {
  Sizes s;
  for (int64_t a = 0; a < d; ++a) s.n *= axes[a].n, s.m *= axes[a].m, s.kernel *= axes[a].kernel;
  return s;
}

void forward_gather(Gather& z, const Conv& c) {
  auto [axes, d, groups, batch, cin, cout] = c;
  Sizes s = sizes(axes, d);
  z.groups = groups;
  z.rows = cout / groups, z.channels = cin / groups;
  z.in_size = batch * cin * s.n, z.in_channel = s.n, z.out_channel = s.m;
  z.off.reserve(8);
  add_axis(z, Axis{batch, batch, 1, cin * s.n, cout * s.m, 0, 0, false}, 1, 0,
           [](int64_t, int64_t& o) { return o = 0, true; });
  int64_t in = s.n, out = s.m, place = s.kernel;
  for (int64_t a = 0; a < d; ++a) {
    const ConvAxis& x = axes[a];
    in /= most(1, x.n), out /= x.m, place /= x.kernel;
    add_axis(z, Axis{x.n, x.m, x.stride, in, out, 0, 0, false}, x.kernel, place,
             [&](int64_t k, int64_t& o) { return o = k * x.dilation - x.lo, true; });
  }
  finish_axes(z);
}

template <class T>
void fill(T* y, int64_t batch, int64_t channels, int64_t cells, const T* b) {
  for (int64_t i = 0; i < batch * channels; ++i)
    for (int64_t j = 0; j < cells; ++j) y[i * cells + j] = b ? b[i % channels] : T(0);
}

// dx[j, i] = b[j] + sum of g[c, o] * w[c, j, k] over o*stride - lo + k*dilation = i. Input cells of one residue modulo the
// stride see the same kernel cells, at steps of one output cell: each residue is a Gather of its own. False: it sees none.
bool residue_gather(Gather& z, int64_t residue, const Conv& c) {
  auto [axes, d, groups, batch, cin, cout] = c;
  Sizes s = sizes(axes, d);
  z.groups = groups, z.rows = cin / groups, z.channels = cout / groups;
  z.in_size = batch * cout * s.m, z.in_channel = s.m, z.out_channel = s.n;
  add_axis(z, Axis{batch, batch, 1, cout * s.m, cin * s.n, 0, 0, false}, 1, 0,
           [](int64_t, int64_t& o) { return o = 0, true; });
  int64_t in = s.m, out = s.n, place = s.kernel;
  for (int64_t a = 0; a < d; ++a) {
    const ConvAxis& x = axes[a];
    in /= x.m, out /= x.n, place /= x.kernel;
    int64_t r = residue % least(x.stride, x.n), seen = z.off.size;
    residue /= least(x.stride, x.n);
    z.base += r * out;
    add_axis(z, Axis{x.m, up(x.n - r, x.stride), 1, in, out * x.stride, 0, 0, false}, x.kernel, place,
             [&](int64_t k, int64_t& o) {
               int64_t at = r + x.lo - k * x.dilation;
               return o = floor_div(at, x.stride), o * x.stride == at;
             });
    if (z.off.size == seen) return false;
  }
  finish_axes(z);
  return true;
}

// dw[c, (j, t)] = sum over cells of g[c, o] * x[j, o*step + off_t]: the rows of the product are the packed panels of a
// forward tile (one row per (j, t), cells along it), its vectors the channels of g, packed cell by cell.
// Packs g's channels c .. c+width of the tile's cells into [cell][panel_width].
template <class T>
void pack_cells(const Work<T>& w, const T* g, int64_t channels, int64_t pitch, int64_t cell_pitch, T* out) {
  constexpr int64_t W = panel_width<T>, L = lanes<T>;
  for (int64_t i = 0; i < w.runs.size; ++i) {
    Run run = w.runs[i];
    for (; cell_pitch == 1 && i + 1 < w.runs.size && w.runs[i + 1].to == run.to + run.length; ++i)
      run.length += w.runs[i + 1].length;  // neighbours in g
    const T* from = g + run.to;
    for (int64_t c = 0; c < channels; c += L) {
      T* to = out + c;
      int64_t l = 0;
      if (cell_pitch == 1 && c + L <= channels)
        for (; l + L <= run.length; l += L) {
          Vector<T> m[lanes<T>];
          for (int64_t r = 0; r < L; ++r) m[r] = load(from + (c + r) * pitch + l);
          transpose<T>(m);
          for (int64_t r = 0; r < L; ++r) store(to + (l + r) * W, m[r]);
        }
      for (; l < run.length; ++l)
        for (int64_t r = 0; r < L; ++r) to[l * W + r] = c + r < channels ? from[(c + r) * pitch + l * cell_pitch] : T(0);
    }
    out += run.length * W;
  }
}

// acc[r][v] += sum over the tile's cells; a: rows of packed panels, b: packed cells.
template <int R, int N, class T>
[[gnu::noinline]] void sum_cells(const T* a, int64_t cells, const T* b, T* sums, bool fresh) {
  constexpr int64_t W = panel_width<T>;
  Vector<T> acc[R][N];
  each<R, N>([&](int r, int v) { acc[r][v] = broadcast(T(-0.0)); });
  for (int64_t i = 0; i < cells; i += W, a += packed_panel<T>) {
    int64_t n = least(W, cells - i);
#pragma GCC unroll 4
    for (int64_t l = 0; l < n; ++l, b += W) {
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
inline void sum_cells(int vectors, const T* a, int64_t cells, const T* b, T* sums, bool fresh) {
  if (vectors == 1) return sum_cells<R, 1>(a, cells, b, sums, fresh);
  if (vectors == 2) return sum_cells<R, 2>(a, cells, b, sums, fresh);
  return sum_cells<R, 3>(a, cells, b, sums, fresh);
}

// The sums of one block of rows (j, t) over tiles first..last, in [channel panel][row][panel_width].
template <class T>
void sum_tiles(const Plan<T>& p, int64_t group, int64_t block, int64_t first, int64_t last, const T* x, const T* g, T* sums,
               T* level) {
  const Gather& z = p.z;
  constexpr int64_t W = panel_width<T>;
  auto [c, t, n] = p.block(block);
  const T* x_end = x + z.in_size;
  x += group * z.channels * z.in_channel;
  g += group * z.rows * z.out_channel;
  int64_t size = up(z.rows, W) * n * W;
  T* into = last - first > block_limit ? level : sums;
  for (int64_t tile = first; tile < last; ++tile) {
    Work<T> w(p);
    set_tile(w, tile);
    int64_t cells = w.slabs * w.rows * w.cols;
    int64_t size_of_panels = w.panels.size * packed_panel<T> + W;
    T* copy = workspace<T>(tile_slot, p.copy_size() + size_of_panels + up(cells, W) * W * W);
    T* panels = copy + p.copy_size();
    T* packed = panels + size_of_panels;
    for (int64_t i = 0; i < up(n, z.taps) && !p.straight; ++i)
      copy_channel(w, x + (c + i) * z.in_channel, x_end, copy + i * p.channel);
    pack_panels(w, p.straight ? x + c * z.in_channel : copy, x_end, p.off.data + t, n, panels);
    bool fresh = (tile - first) % block_limit == 0;
    for (int64_t m = 0; m < z.rows; m += W) {
      int64_t width = least(W, z.rows - m);
      int vectors = int(up(width, lanes<T>));
      pack_cells(w, g + m * z.out_channel, width, z.out_channel, z.col().out, packed);
      T* to = into + m * n;
      for (int64_t r = 0; r < n;) {
        int rows = panel_rows;
        while (rows > n - r) rows /= 2;
        const T* a = panels + r * W;
        if (rows == 4) sum_cells<4>(vectors, a, cells, packed, to + r * W, fresh);
        else if (rows == 2) sum_cells<2>(vectors, a, cells, packed, to + r * W, fresh);
        else if (rows == 1) sum_cells<1>(vectors, a, cells, packed, to + r * W, fresh);
        else sum_cells<panel_rows>(vectors, a, cells, packed, to + r * W, fresh);
        r += rows;
      }
    }
    if (into == sums || ((tile + 1 - first) % block_limit && tile + 1 < last)) continue;
    bool start = tile - first < block_limit;
    for (int64_t i = 0; i < size; ++i) sums[i] = start ? level[i] : sums[i] + level[i];
  }
}

template <class T>
void weight_grad_carefully(const Gather& z, const List<int64_t>& place, int64_t kernel, const T* x, const T* g, T* dw) {
  parallel_for(z.groups * z.rows, [&](int64_t task) {
    int64_t group = task / z.rows;
    for (int64_t c = 0; c < z.channels; ++c)
      for (int64_t t = 0; t < z.taps; ++t) {
        Cascade<T> sum;
        for (int64_t q = 0; q < z.cells; ++q) {
          Spot at = z.spot(q, t);
          if (at.in >= 0) sum.add(x[(group * z.channels + c) * z.in_channel + at.in] * g[task * z.out_channel + at.out]);
        }
        dw[(task * z.channels + c) * kernel + place[t]] = sum.value();
      }
  });
}

template <class T>
void weight_grad(const Conv& conv, const T* x, const T* g, T* dw) {
  auto [axes, d, groups, batch, cin, cout] = conv;
  Sizes s = sizes(axes, d);
  int64_t per_group = groups ? cin / groups : 0;
  if (cout * per_group * s.kernel == 0) return;
  bool empty = batch * s.n * s.m == 0;
  Gather z;
  if (!empty) forward_gather(z, conv);
  if (empty || z.taps < s.kernel)
    for (int64_t i = 0; i < cout * per_group * s.kernel; ++i) dw[i] = 0;
  if (empty || z.taps == 0) return;
  List<int64_t> place;
  places(z, place);
  if (is_depthwise(z)) {
    bool nan = depthwise_weight_grad(z, place, s.kernel, x, g, dw);
    if (nan && !(finite(x, z.in_size) && finite(g, batch * cout * s.m)))
      weight_grad_carefully(z, place, s.kernel, x, g, dw);
    return;
  }
  int64_t threads = num_threads();
  Plan<T> p(z);
  make_plan(p, true, false, threads);
  constexpr int64_t W = panel_width<T>;
  int64_t tiles = p.tiles(), blocks = p.blocks();
  // Blocks of dw are independent. Where they are too few, the cells are shared out too, and the shares added in order.
  int64_t shares = groups * blocks >= 2 * threads ? 1 : least(threads, tiles);
  int64_t size = up(z.rows, W) * W * packed_terms;
  if (shares > 1 && groups * blocks * shares * size > (int64_t(4) << 20)) shares = 1;
  T* all = shares > 1 ? workspace<T>(caller_slot, groups * blocks * shares * size) : nullptr;
  bool bad = false;
  auto finish = [&](int64_t group, int64_t block, const T* sums) {  // turns [channel panel][row][channel] into dw
    auto [c, t, n] = p.block(block);
    T* to = dw + (group * z.rows * z.channels + c) * s.kernel;
    bool nan = false;
    for (int64_t m = 0; m < z.rows; m += W) {
      const T* from = sums + m * n;
      int64_t width = least(W, z.rows - m), pitch = z.channels * s.kernel;
      for (int64_t i = 0; i < n && z.absent; ++i)
        for (int64_t l = 0; l < width; ++l) nan |= from[i * W + l] != from[i * W + l];
      if (z.taps == s.kernel) {
        transpose_block(from, W, n, 0, width, to + m * pitch + t, pitch, 1);
        continue;
      }
      for (int64_t r = 0; r < n; ++r)
        for (int64_t l = 0; l < width; ++l)
          to[(m + l) * pitch + (t + r) / z.taps * s.kernel + place[(t + r) % z.taps]] = from[r * W + l];
    }
    if (nan) __atomic_store_n(&bad, true, __ATOMIC_RELAXED);
  };
  auto task = [&](int64_t i) {
    int64_t share = i % shares, block = i / shares % blocks, group = i / shares / blocks;
    int64_t first = tiles * share / shares, last = tiles * (share + 1) / shares;
    T* level = workspace<T>(sums_slot, 2 * size);
    T* sums = shares > 1 ? all + i * size : level + size;
    sum_tiles(p, group, block, first, last, x, g, sums, level);
    if (shares == 1) finish(group, block, sums);
  };
  if (threads == 1 || z.cells * z.channels * z.taps * z.rows * groups < 200000)
    for (int64_t i = 0; i < groups * blocks * shares; ++i) task(i);
  else
    parallel_for(groups * blocks * shares, task);
  if (shares > 1)
    for (int64_t i = 0; i < groups * blocks; ++i) {
      T* sums = all + i * shares * size;
      for (int64_t k = 1; k < shares; ++k)
        for (int64_t j = 0; j < size; ++j) sums[j] += sums[k * size + j];
      finish(i / blocks, i % blocks, sums);
    }
  if (bad && z.absent && !finite(g, batch * cout * s.m)) weight_grad_carefully(z, place, s.kernel, x, g, dw);
}

}  // namespace

template <class T>
void conv(const Conv& conv, const T* x, const T* w, const T* b, T* y) {
  auto [axes, d, groups, batch, cin, cout] = conv;
  Sizes s = sizes(axes, d);
  if (batch * cout * s.m == 0) return;
  if (cin * s.n * s.kernel == 0) return fill(y, batch, cout, s.m, b);
  Gather z;
  forward_gather(z, conv);
  if (z.taps == 0) return fill(y, batch, cout, s.m, b);
  WeightLayout l{z.rows * z.channels * s.kernel, z.channels * s.kernel, s.kernel, s.kernel};
  run_gather(z, x, w, l, cout * z.channels * s.kernel, Epilogue<T>{b, nullptr, false}, y);
}

template <class T>
void conv_input_grad(const Conv& conv, const T* w, const T* g, const T* b, T* dx) {
  auto [axes, d, groups, batch, cin, cout] = conv;
  Sizes s = sizes(axes, d);
  if (batch * cin * s.n == 0) return;
  if (cout * s.m * s.kernel == 0) return fill(dx, batch, cin, s.n, b);
  int64_t residues = 1;
  for (int64_t a = 0; a < d; ++a) residues *= least(axes[a].stride, axes[a].n);
  bool all_seen = true;
  for (int64_t i = 0; i < residues && all_seen; ++i) {
    Gather z;
    all_seen = residue_gather(z, i, conv);
  }
  if (!all_seen) fill(dx, batch, cin, s.n, b);
  for (int64_t i = 0; i < residues; ++i) {
    Gather z;
    if (!residue_gather(z, i, conv)) continue;
    WeightLayout l{z.channels * z.rows * s.kernel, s.kernel, z.rows * s.kernel, s.kernel};
    run_gather(z, g, w, l, cout * z.rows * s.kernel, Epilogue<T>{b, nullptr, false}, dx);
  }
}

template <class T>
void conv_weight_grad(const Conv& conv, const T* x, const T* g, T* dw) {
  weight_grad(conv, x, g, dw);
}

// db[c] = sum of g[c, o] over batch and cells, in four vectors of running sums, then block by block.
template <class T>
void conv_bias_grad(int64_t batch, int64_t channels, int64_t cells, const T* g, T* db) {
  constexpr int64_t L = lanes<T>, B = 64 * L;
  auto task = [&](int64_t c) {
    T all = T(-0.0);
    for (int64_t b = 0; b < batch; ++b) {
      const T* p = g + (b * channels + c) * cells;
      for (int64_t i = 0; i < cells; i += B) {
        int64_t n = least(B, cells - i), l = 0;
        Vector<T> acc[4];
        for (auto& v : acc) v = broadcast(T(-0.0));
        for (; l + 4 * L <= n; l += 4 * L)
          for (int v = 0; v < 4; ++v) acc[v] += load(p + i + l + v * L);
        acc[0] = (acc[0] + acc[1]) + (acc[2] + acc[3]);
        T sum = T(-0.0);
        for (int k = 0; k < L; ++k) sum += acc[0][k];
        for (; l < n; ++l) sum += p[i + l];
        all += sum;
      }
    }
    db[c] = batch > 0 && cells > 0 ? all : T(0);
  };
  if (batch * channels * cells < 100000)
    for (int64_t c = 0; c < channels; ++c) task(c);
  else
    parallel_for(channels, task);
}

template void conv<float>(const Conv&, const float*, const float*, const float*, float*);
template void conv<double>(const Conv&, const double*, const double*, const double*, double*);
template void conv_input_grad<float>(const Conv&, const float*, const float*, const float*, float*);
template void conv_input_grad<double>(const Conv&, const double*, const double*, const double*, double*);
template void conv_weight_grad<float>(const Conv&, const float*, const float*, float*);
template void conv_weight_grad<double>(const Conv&, const double*, const double*, double*);
template void conv_bias_grad<float>(i64, i64, i64, const float*, float*);
template void conv_bias_grad<double>(i64, i64, i64, const double*, double*);

}  // namespace lunette::LN_ISA
