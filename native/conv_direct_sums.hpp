// Direct convolution: how a Gather is cut into tiles of sums, how these are added and written.
#pragma once
#include "conv_direct_pack.hpp"
#include "epilogue.hpp"

namespace lunette::LN_ISA {
namespace {

constexpr i64 chunk_terms = 256;   // added one after another in registers; then sums of chunks are
constexpr i64 most_chunks = 250;   // 256 + 250 additions, and 256 + t/256 is at most 512 + t/512 up to there
constexpr i64 chunk_bytes = 16 << 10;  // of weights, so that they stay in the first cache
constexpr i64 tile_pixels = 256;
constexpr i64 beyond_cache = 256 << 10;
constexpr i64 few_terms = 192, long_line = 64;

// A Gather as lines of pixels.
template <class T>
struct Direct {
    const Gather& z;
    Axis plane{1, 1, 1, 0, 0, 1, 0, true};  // the axis above rows, if there is one
    i64 images = 1, image_in = 0, image_out = 0;
    i64 plane_low = 0, row_low, col_low;  // offset of the first tap
    i64 plane_apart = 1, row_apart = 1, col_apart = 1;  // from one tap to the next
    bool turned_planes = false, turned_rows, turned_cols;
    bool single;  // one tap, which all pixels see: channels take the place of taps
    DirectCut cut;
    i64 chunk = 0, width = 0, groups = 0;  // channels at a time; channels of the result at a time, and how often
    bool fits = false;
    bool blocks = false;  // the result is written in blocks of channels (blocked.hpp)

    bool dense;  // lines of the result lie one behind the other

    // `spread`: cells of the result lie so far apart, between those of other sums. `vectors`: as many as these have, if not 0.
    explicit Direct(const Gather& gather, i64 spread = 1, int vectors = 0) : z(gather) {
        const Axis &row = z.row(), &col = z.col();
        i64 outers = z.outers(), first = 0;
        if (outers && z.axes[0].plain) images = z.axes[0].m, image_in = z.axes[0].in, image_out = z.axes[0].out, first = 1;
        if (outers - first > 1 || col.in != 1 || col.out != spread || col.step > 2 || z.taps > 64) return;
        if (outers > first) plane = z.axes[first];
        dense = (row.m == 1 || row.out == col.m) && (plane.m == 1 || plane.out == row.m * col.m);
        if (outers > first && !line_up(plane, plane_low, plane_apart, turned_planes)) return;
        if (!line_up(row, row_low, row_apart, turned_rows) || !line_up(col, col_low, col_apart, turned_cols)) return;
        cut = vectors ? cut_line<T>(col.m, col.step, line_taps(), vectors) : best_cut<T>(col.m, col.step, line_taps(), z.rows);
        if (!cut.blocks) return;
        width = cut.vectors * lanes<T>, groups = up(z.rows, width);
        // On a map of one tile weights are met a few times only: longer runs of their rows are turned faster.
        const i64 bytes = z.cells <= 2 * tile_pixels ? 2 * chunk_bytes : chunk_bytes;
        chunk = even_split(z.channels, most(1, least(chunk_terms / z.taps, bytes / i64(sizeof(T)) / (z.taps * width))));
        if (up(z.channels, chunk) > most_chunks) return;
        for (i64 b = 0; z.absent && b < cut.blocks; ++b) {
            signed char cuts[64];
            if (!find_cuts(b, cuts)) return;
        }
        if (!all_see(row, row_low, row_apart) || (outers > first && !all_see(plane, plane_low, plane_apart))) return;
        single = z.taps == 1 && !z.absent;
        fits = true;
    }

    // Of a line, as far as there are kernels for so many side by side.
    i64 line_taps() const { return col_apart == 1 ? z.col().taps : 0; }

    // The taps first..last-1 of an axis that are present at a cell whose first tap is at `at`.
    static void present(const Axis& x, i64 at, i64 apart, i64& first, i64& last) {
        first = up(most(0, -at), apart), last = at < x.n ? least(x.taps, up(x.n - at, apart)) : 0;
    }

    static bool all_see(const Axis& x, i64 low, i64 apart) {
        for (i64 o = 0; o < x.m; ++o) {
            i64 first, last;
            present(x, o * x.step + low, apart, first, last);
            if (first >= last) return false;
            if (apart == 1) o = most(o, x.m - 2);  // what lies between two that see a tap does
        }
        return true;
    }

    // Whether taps are equally far apart, how far, and from where on.
    bool line_up(const Axis& x, i64& low, i64& apart, bool& turned) const {
        const i64* off = z.off.data + x.tap;
        turned = x.taps > 1 && off[1] < off[0];
        low = off[turned ? x.taps - 1 : 0];
        apart = x.taps > 1 ? std::abs(off[1] - off[0]) : 1;
        for (i64 k = 1; k < x.taps; ++k)
            if (off[k] - off[k - 1] != (turned ? -apart : apart)) return false;
        return apart > 0;
    }

    // Which pixels of a block lack a tap; false if there is no kernel for that.
    bool find_cuts(i64 block, signed char* cuts) const {
        const Axis& col = z.col();
        const i64 start = cut.start(block, col.m), size = cut.size(block);
        if (cut.vectors == 1) return lacking(block, true) < col.taps && lacking(block, false) < col.taps;
        bool all = false;
        for (i64 k = 0; k < col.taps; ++k) {
            i64 first = 0, last = 0;
            for (i64 p = 0; p < size; ++p) {
                const i64 at = (start + p) * col.step + col_low + k * col_apart;
                first += at < 0, last += at >= col.n;
            }
            if (first && last) return false;
            all |= !first && !last;
            cuts[k] = static_cast<signed char>(first - last);
        }
        return all;  // so every pixel sees a tap
    }

    // How many cells are absent before the first or behind the last that a block sees.
    i64 lacking(i64 block, bool before) const {
        const Axis& col = z.col();
        const i64 start = cut.start(block, col.m) * col.step + col_low;
        return most(0, before ? -start : start + (cut.size(block) - 1) * col.step + (col.taps - 1) * col_apart + 1 - col.n);
    }

    i64 parts() const { return z.groups * groups; }
    i64 part_size() const { return z.channels * z.taps * width; }
    i64 packed() const { return parts() * part_size(); }  // [part][channel][tap][width]

    i64 lines() const { return images * plane.m * z.row().m; }

    // Which cell of the kernel each tap is.
    void find_order(List<i64>& order) const {
        List<i64> place;
        places(z, place);
        auto turned = [](bool turn, i64 k, i64 taps) { return turn ? taps - 1 - k : k; };
        const i64 rows = z.row().taps, cols = z.col().taps;
        for (i64 u = 0; u < plane.taps; ++u)
            for (i64 r = 0; r < rows; ++r)
                for (i64 k = 0; k < cols; ++k)
                    order.push(place[(turned(turned_planes, u, plane.taps) * rows + turned(turned_rows, r, rows)) * cols +
                                     turned(turned_cols, k, cols)]);
    }
};

// Sums [pixel][width] become lines of a vector of pixels each, for a vector of channels or, if not All, `count` of them.
template <bool All, class T>
void turn_whole(const T* sums, i64 width, i64 count, const Epilogue<T>& e, T* y, i64 plane) {
    constexpr int L = lanes<T>;
    Vector<T> m[lanes<T>];
    load_turned(sums, width, m);
#pragma GCC unroll 16
    for (int i = 0; i < L; ++i) {
        if (!All && i >= count) break;
        if (e.bias) m[i] += e.bias[i];
        if (e.scale) m[i] = rounded_product(m[i], broadcast(e.scale[i]));
        if (e.shift) m[i] += e.shift[i];
        if (e.add) m[i] += load(e.add + i * plane);
        store(y + i * plane, e.relu ? positive<T>(m[i]) : m[i]);
    }
}

// Sums [pixel][width] of `count` channels become planes.
template <class T>
void turn_out(const T* sums, i64 width, i64 pixels, i64 count, const Epilogue<T>& e, T* y, i64 plane) {
    constexpr i64 L = lanes<T>;
    for (i64 c = 0; c < count; c += L)
        for (i64 p = 0; p < pixels; p += L) {
            if (p + L > pixels && pixels >= L) p = pixels - L;  // some pixels twice
            const i64 at = c * plane + p;
            const Epilogue<T> own = from_row(e, c, at);
            const T* from = sums + p * width + c;
            if (pixels >= L && c + L <= count) turn_whole<true>(from, width, L, own, y + at, plane);
            else if (pixels >= L) turn_whole<false>(from, width, count - c, own, y + at, plane);
            else
                for (i64 i = 0; i < least(L, count - c); ++i)
                    for (i64 k = 0; k < pixels; ++k)
                        y[at + i * plane + k] = finish_of(own, i)(from[k * width + i], own.add ? own.add + i * plane + k : nullptr);
        }
}

// The same sums as vectors of channels, in blocks of channels; `cells` is the size of a plane of the result.
template <class T>
void lay_out(const T* sums, i64 width, i64 pixels, i64 count, const Epilogue<T>& e, T* y, i64 cells) {
    constexpr i64 L = lanes<T>;
    auto some = [](const T* p, i64 c) { return p ? load(p + c) : broadcast(T(-0.0)); };
    for (i64 c = 0; c < count; c += L) {
        const Vector<T> bias = some(e.bias, c), shift = some(e.shift, c), scale = e.scale ? load(e.scale + c) : broadcast(T(1));
        for (i64 p = 0; p < pixels; ++p) {
            Vector<T> v = rounded_product(load(sums + p * width + c) + bias, scale) + shift;
            if (e.add) v += load(e.add + c * cells + p * L);
            store(y + c * cells + p * L, e.relu ? positive<T>(v) : v);
        }
    }
}

// Blocks of pixels of some lines, counted over the images.
struct DirectTile {
    i64 first, last, begin, end;  // lines first..last-1, of each the blocks begin..end-1
};

// A tile of `width` channels of the result, and its sums [line][pixel][width].
template <class T>
struct DirectSums {
    const Direct<T>* of;
    i64 group, part;
    DirectTile tile;
    T* sums = nullptr;

    i64 lines() const { return tile.last - tile.first; }
    i64 left() const { return of->cut.place(tile.begin); }
    i64 room() const { return of->cut.place(tile.end - 1) + of->cut.size(tile.end - 1) - left(); }
    i64 size() const { return lines() * room() * of->width; }
    i64 turns() const { return (tile.end - tile.begin) * lines(); }
    i64 channel() const { return part * of->width; }
    i64 count() const { return least(of->width, of->z.rows - channel()); }
    i64 row() const { return group * of->z.rows + channel(); }
    i64 place(i64 line, i64 start) const {
        const Axis& rows = of->z.row();
        const i64 image = of->plane.m * rows.m, l = line % image;
        const i64 pixel = l / rows.m * of->plane.out + l % rows.m * rows.out + start * of->z.col().out;
        return of->z.base + line / image * of->image_out + row() * of->z.out_channel + pixel * (of->blocks ? lanes<T> : 1);
    }

    // Adds the channels from c on, some of a group of which x is the first. ahead(j, size, turn, asks) asks for what is wanted next,
    // or has the block ask for it, so many times.
    template <class Ahead>
    void add(i64 c, const T* x, const T* weights, const Epilogue<T>& e, T* y, Ahead ahead) const {
        const Gather& z = of->z;
        const Axis &plane = of->plane, &rows = z.row(), &col = z.col();
        const DirectCut& cut = of->cut;
        const i64 width = of->width, image = plane.m * rows.m, channels = least(of->chunk, z.channels - c);
        const DirectBlock<T> large = direct_block_of<T>(cut.vectors, cut.pixels, col.step, of->line_taps());
        const DirectBlock<T> small = direct_block_of<T>(cut.vectors, cut.pixels - 1, col.step, of->line_taps());
        const bool last = c + of->chunk >= z.channels;
        for (i64 b = tile.begin; b < tile.end; ++b) {
            signed char cuts[64];
            const i64 before = of->lacking(b, true), behind = of->lacking(b, false);
            const bool whole = !before && !behind;
            if (!whole) of->find_cuts(b, cuts);
            const DirectBlock<T> block = cut.size(b) == cut.pixels ? large : small;
            const i64 column = cut.start(b, col.m) * col.step + of->col_low;
            DirectJob<T> j{nullptr,
                           weights,
                           z.in_channel,
                           plane.in * of->plane_apart,
                           rows.in * of->row_apart,
                           of->single ? z.in_channel : of->col_apart,
                           of->single ? 1 : channels,
                           0,
                           1,
                           plane.taps,
                           0,
                           1,
                           rows.taps,
                           of->single ? channels : col.taps,
                           whole ? nullptr : cuts,
                           before,
                           behind,
                           c > 0,
                           sums + (cut.place(b) - left()) * width,
                           nullptr,
                           0};
            for (i64 l = tile.first; l < tile.last; ++l, j.sums += room() * width) {
                ahead(j, (b - tile.begin) * lines() + l - tile.first);
                const i64 far = l % image / rows.m * plane.step + of->plane_low, top = l % rows.m * rows.step + of->row_low;
                j.x = x + l / image * of->image_in + c * z.in_channel + far * plane.in + top * rows.in + column;
                of->present(plane, far, of->plane_apart, j.first_plane, j.last_plane);
                of->present(rows, top, of->row_apart, j.first, j.last);
                if (last && !of->blocks) {  // what is written last is asked for first
                    const i64 to = place(l, cut.start(b, col.m));
                    for (i64 i = 0; i < count(); ++i) {
                        __builtin_prefetch(y + to + i * z.out_channel, 1);
                        if (e.add) __builtin_prefetch(e.add + to + i * z.out_channel);
                    }
                }
                block(j);
            }
        }
    }

    void write(const Epilogue<T>& e, T* y) const {
        const DirectCut& cut = of->cut;
        const i64 m = of->z.col().m, image = of->plane.m * of->z.row().m, width = of->width, start = cut.start(tile.begin, m);
        auto out = [&](i64 line, const T* s, i64 from, i64 pixels) {
            const i64 to = place(line, from);
            const Epilogue<T> own = from_row(e, row(), to);
            if (of->blocks) lay_out<T>(s, width, pixels, count(), own, y + to, of->z.out_channel);
            else turn_out<T>(s, width, pixels, count(), own, y + to, of->z.out_channel);
        };
        for (i64 l = tile.first; l < tile.last;) {
            const T* s = sums + (l - tile.first) * room() * width;
            if (!cut.again || tile.end < cut.blocks) {
                const i64 end = room() == m && of->dense ? least(tile.last, (l / image + 1) * image) : l + 1;
                out(l, s, start, (end - l) * room());
                l = end;
                continue;
            }
            const i64 plain = (cut.blocks - 1 - tile.begin) * cut.pixels, again = start + plain - cut.start(cut.blocks - 1, m);
            if (plain) out(l, s, start, plain);
            out(l, s + (plain + again) * width, start + plain, cut.pixels - again);
            ++l;
        }
    }

    // Of a whole line, the sums of a pixel.
    const T* pixel(i64 line, i64 p) const {
        const i64 again = of->cut.again && p >= (of->cut.blocks - 1) * of->cut.pixels ? of->cut.place(of->cut.blocks - 1) - of->cut.start(of->cut.blocks - 1, of->z.col().m) : 0;
        return sums + ((line - tile.first) * room() + p + again) * of->width;
    }
};

// The same lines of several sums, whose cells take turns along them: first those of each first pixel.
template <class T>
void write_joined(const DirectSums<T>* t, i64 count, T* line, const Epilogue<T>& e, T* y) {
    const Direct<T>& d = *t->of;
    const i64 width = d.width;
    for (i64 l = t->tile.first; l < t->tile.last; ++l) {
        i64 cells = 0;
        for (i64 i = 0; i < count; ++i) {
            const i64 m = t[i].of->z.col().m;
            cells += m;
            for (i64 p = 0; p < m; ++p)
                for (i64 v = 0; v < width; v += lanes<T>) store(line + (p * count + i) * width + v, load(t[i].pixel(l, p) + v));
        }
        const i64 to = t->place(l, 0);
        turn_out<T>(line, width, cells, t->count(), from_row(e, t->row(), to), y + to, d.z.out_channel);
    }
}

}  // namespace
}  // namespace lunette::LN_ISA
