// Direct convolution: where it is better than the blocked product, and its drive.
#include "conv_direct.hpp"

#include <cstdlib>

#include "conv_gather.hpp"
#include "direct.hpp"

namespace lunette::LN_ISA {
namespace {

constexpr i64 chunk_terms = 256;   // added one after another in registers; then sums of chunks are
constexpr i64 most_chunks = 250;   // 256 + 250 additions, and 256 + t/256 is at most 512 + t/512 up to there
constexpr i64 chunk_bytes = 16 << 10;  // of weights, so that they stay in the first cache
constexpr i64 tile_pixels = 256;
constexpr i64 beyond_cache = 256 << 10;

// A Gather as lines of pixels.
template <class T>
struct Direct {
    const Gather& z;
    i64 images = 1, image_in = 0, image_out = 0;
    i64 row_low, col_low;  // offset of the first tap
    bool turned_rows, turned_cols;
    DirectCut cut;
    i64 chunk = 0, chunks = 0, width = 0, groups = 0;  // channels at a time; channels of the result at a time, and how often
    bool fits = false;

    explicit Direct(const Gather& gather) : z(gather) {
        const Axis &row = z.row(), &col = z.col();
        if (z.axes.size > 3 || (z.axes.size == 3 && !z.axes[0].plain) || col.in != 1 || col.out != 1) return;
        if (col.step > 2 || z.taps > 64 || (row.m > 1 && row.out != col.m)) return;
        if (z.axes.size == 3) images = z.axes[0].m, image_in = z.axes[0].in, image_out = z.axes[0].out;
        if (!line_up(row, row_low, turned_rows) || !line_up(col, col_low, turned_cols)) return;
        cut = cut_line<T>(col.m, col.step);
        if (!cut.blocks) return;
        width = cut.vectors * lanes<T>, groups = up(z.rows, width);
        chunk = even_split(z.channels, most(1, least(chunk_terms / z.taps, chunk_bytes / i64(sizeof(T)) / (z.taps * width))));
        chunks = up(z.channels, chunk);
        if (chunks > most_chunks) return;
        for (i64 b = 0; b < cut.blocks; ++b) {
            signed char cuts[64];
            if (!find_cuts(b, cuts)) return;
        }
        for (i64 o : {i64(0), row.m - 1})  // every line sees a tap
            if (o * row.step + row_low >= row.n || o * row.step + row_low + row.taps <= 0) return;
        fits = true;
    }

    // Whether taps follow one another, and from where on.
    bool line_up(const Axis& x, i64& low, bool& turned) const {
        const i64* off = z.off.data + x.tap;
        turned = x.taps > 1 && off[1] < off[0];
        low = off[turned ? x.taps - 1 : 0];
        for (i64 k = 1; k < x.taps; ++k)
            if (off[k] - off[k - 1] != (turned ? -1 : 1)) return false;
        return true;
    }

    // Which pixels of a block lack a tap; false if there is no kernel for that.
    bool find_cuts(i64 block, signed char* cuts) const {
        const Axis& col = z.col();
        const i64 start = cut.start(block, col.m), size = cut.size(block);
        bool all = false;
        for (i64 k = 0; k < col.taps; ++k) {
            i64 first = 0, last = 0;
            for (i64 p = 0; p < size; ++p) {
                const i64 at = (start + p) * col.step + col_low + k;
                first += at < 0, last += at >= col.n;
            }
            if ((first && last) || first > 2 || last > 2) return false;
            all |= !first && !last;
            cuts[k] = static_cast<signed char>(first - last);
        }
        return all;  // so every pixel sees a tap
    }

    i64 packed() const { return z.groups * groups * z.channels * z.taps * width; }

    // [group][channels of the result][channel][tap][width]
    void pack(const T* w, WeightLayout l, T* to) const {
        List<i64> place, order;
        places(z, place);
        for (i64 r = 0; r < z.row().taps; ++r)
            for (i64 k = 0; k < z.col().taps; ++k)
                order.push(place[(turned_rows ? z.row().taps - 1 - r : r) * z.col().taps +
                                 (turned_cols ? z.col().taps - 1 - k : k)]);
        bool as_they_lie = l.channel == z.taps;
        for (i64 t = 0; t < z.taps; ++t) as_they_lie &= order[t] == t;
        auto task = [&](i64 i) {
            const i64 group = i / groups, first = i % groups * width, count = least(width, z.rows - first);
            T* out = to + i * z.channels * z.taps * width;
            const T* from = w + group * l.group + first * l.row;
            for (i64 k = 0; k < z.channels * z.taps && count < width; ++k)
                for (i64 v = count; v < width; ++v) out[k * width + v] = 0;
            if (as_they_lie) return transpose_block(from, l.row, count, 0, z.channels * z.taps, out, width, 1);
            for (i64 c = 0; c < z.channels; ++c)
                for (i64 t = 0; t < z.taps; ++t)
                    for (i64 v = 0; v < count; ++v)
                        out[(c * z.taps + t) * width + v] = from[v * l.row + c * l.channel + order[t]];
        };
        if (packed() < 32768)
            for (i64 i = 0; i < z.groups * groups; ++i) task(i);
        else parallel_for(z.groups * groups, task);
    }
};

// Sums [pixel][width] of `count` channels become planes.
template <class T>
void turn_out(const T* sums, i64 width, i64 pixels, i64 count, const Epilogue<T>& e, T* y, i64 plane) {
    constexpr i64 L = lanes<T>;
    for (i64 c = 0; c < count; c += L)
        for (i64 p = 0; p < pixels; p += L) {
            if (p + L > pixels && pixels >= L) p = pixels - L;  // some pixels twice
            Vector<T> m[lanes<T>];
            const i64 n = least(L, pixels - p);
            for (i64 i = 0; i < L; ++i) m[i] = load(sums + (p + least(i, n - 1)) * width + c);
            transpose<T>(m);
            for (i64 i = 0; i < least(L, count - c); ++i) {
                Vector<T> v = m[i];
                const i64 to = (c + i) * plane + p;
                if (e.bias) v += e.bias[c + i];
                T add[lanes<T>] = {};
                if (e.add && n == L) v += load(e.add + to);
                else if (e.add) {
                    for (i64 k = 0; k < n; ++k) add[k] = e.add[to + k];
                    v += load(add);
                }
                if (e.relu) v = v < 0 ? Vector<T>{} : v;
                if (n == L) store(y + to, v);
                else
                    for (i64 k = 0; k < n; ++k) y[to + k] = v[k];
            }
        }
}

// Lines first..last-1 (counted over the images) of `width` channels of the result.
template <class T>
void run_tile(const Direct<T>& d, i64 group, i64 part, i64 first, i64 last, const T* x, const T* packed,
              const Epilogue<T>& e, T* y) {
    const Gather& z = d.z;
    const Axis &row = z.row(), &col = z.col();
    const i64 room = d.cut.room(), width = d.width;
    T* sums = workspace<T>(sums_slot, (last - first) * room * width + lanes<T>);
    const T* weights = packed + (group * d.groups + part) * z.channels * z.taps * width;
    const DirectBlock<T> large = direct_block_of<T>(d.cut.vectors, d.cut.pixels, col.step);
    const DirectBlock<T> small = direct_block_of<T>(d.cut.vectors, d.cut.pixels - 1, col.step);
    x += group * z.channels * z.in_channel;
    // Weights beyond the second cache are asked for a chunk ahead, some lines of memory with each block.
    constexpr i64 memory_line = 64 / sizeof(T);
    const i64 size = d.chunk * z.taps * width, calls = d.cut.blocks * (last - first);
    const i64 ahead = d.packed() * i64(sizeof(T)) > beyond_cache ? up(up(size, memory_line), calls) : 0;
    for (i64 c = 0; c < z.channels; c += d.chunk)
        for (i64 b = 0; b < d.cut.blocks; ++b) {
            signed char cuts[64];
            d.find_cuts(b, cuts);
            bool whole = true;
            for (i64 k = 0; k < col.taps; ++k) whole &= cuts[k] == 0;
            const DirectBlock<T> block = d.cut.size(b) == d.cut.pixels ? large : small;
            const i64 column = d.cut.start(b, col.m) * col.step + d.col_low;
            const i64 at = d.cut.again ? b * d.cut.pixels : d.cut.start(b, col.m);
            for (i64 l = first; l < last; ++l) {
                const i64 next = c * z.taps * width + size + (b * (last - first) + l - first) * ahead * memory_line;
                for (i64 i = 0; i < ahead; ++i) prefetch(weights, next + i * memory_line);
                const i64 top = l % row.m * row.step + d.row_low;
                DirectJob<T> j{x + l / row.m * d.image_in + c * z.in_channel + top * row.in + column,
                               weights + c * z.taps * width,
                               z.in_channel,
                               row.in,
                               least(d.chunk, z.channels - c),
                               most(0, -top),
                               least(row.taps, row.n - top),
                               row.taps,
                               col.taps,
                               whole ? nullptr : cuts,
                               c > 0,
                               sums + ((l - first) * room + at) * width};
                block(j);
            }
        }
    const i64 channel = part * width, count = least(width, z.rows - channel), from = group * z.rows + channel;
    auto out = [&](i64 line, const T* s, i64 start, i64 pixels) {
        const i64 to = z.base + line / row.m * d.image_out + from * z.out_channel + line % row.m * row.out + start;
        turn_out<T>(s, width, pixels, count, {e.bias ? e.bias + from : nullptr, e.add ? e.add + to : nullptr, e.relu}, y + to,
                    z.out_channel);
    };
    for (i64 l = first; l < last;) {
        const T* s = sums + (l - first) * room * width;
        if (!d.cut.again) {  // lines of an image lie one behind the other
            const i64 end = least(last, (l / row.m + 1) * row.m);
            out(l, s, 0, (end - l) * col.m);
            l = end;
            continue;
        }
        const i64 start = d.cut.start(d.cut.blocks - 1, col.m), before = (d.cut.blocks - 1) * d.cut.pixels;
        if (before) out(l, s, 0, before);
        out(l, s + (before + before - start) * width, before, col.m - before);
        ++l;
    }
}

// LUNETTE_DIRECT=1 takes direct sums wherever there are, "pays" where they should pay: to measure, and to test. Without it
// the blocked product is taken: on AVX2, with half the registers, it is better, and on AVX-512 nobody has measured yet.
enum class Wanted { nowhere, where_it_pays, everywhere };
Wanted wanted() {
    static const Wanted found = [] {
        const char* asked = std::getenv("LUNETTE_DIRECT");
        if (!asked || !*asked || *asked == '0') return Wanted::nowhere;
        return *asked == 'p' ? Wanted::where_it_pays : Wanted::everywhere;
    }();
    return found;
}

// Whether direct sums are better than the blocked product. `beforehand`: packing costs nothing.
template <class T>
bool pays(const Direct<T>& d, bool beforehand) {
    const Gather& z = d.z;
    if (!d.fits || wanted() == Wanted::everywhere) return d.fits;
    if (z.cells < (beforehand ? 16 : 1024)) return false;
    const double waste = double(d.groups * d.width) / double(z.rows) * double(d.cut.room()) / double(z.col().m);
    return waste < 1.15;
}

// f(d, layout) if that is how this convolution, or its input gradient, is summed.
template <class T, class F>
void if_direct(const Conv& c, bool input_grad, bool beforehand, F f) {
    if constexpr (vector_bytes >= 32) {
        if (wanted() == Wanted::nowhere) return;
        const Sizes s = sizes(c.axes, c.rank);
        if (any_zero(c.batch, c.cin, c.cout, s.n, s.m, s.kernel)) return;
        const i64 rows = (input_grad ? c.cin : c.cout) / c.groups, channels = (input_grad ? c.cout : c.cin) / c.groups;
        if (c.rank != 2 || rows < 2 * lanes<T> || channels * s.kernel < 16 || work(c.batch, s.m, rows, channels, s.kernel) < 200000)
            return;
        if (s.kernel == 1 && c.axes[0].stride == 1 && c.axes[1].stride == 1) return;  // a plain product
        if (input_grad && residues(c) > 1) return;
        Gather z;
        if (!(input_grad ? residue_gather(z, 0, c) : forward_gather(z, c))) return;
        const Direct<T> d(z);
        if (pays(d, beforehand)) f(d, input_grad ? residue_layout(z, s) : forward_layout(z, s));
    }
}

}  // namespace

template <class T>
i64 direct_packed_size(const Conv& conv, bool input_grad) {
    i64 size = 0;
    if_direct<T>(conv, input_grad, true, [&](const Direct<T>& d, WeightLayout) { size = d.packed(); });
    return size;
}

template <class T>
void direct_pack(const Conv& conv, bool input_grad, const T* w, T* packed) {
    if_direct<T>(conv, input_grad, true, [&](const Direct<T>& d, WeightLayout l) { d.pack(w, l, packed); });
}

template <class T>
bool direct_conv(const Conv& conv, bool input_grad, const T* x, const T* w, const T* packed, const Epilogue<T>& e, T* y) {
    bool done = false;
    if_direct<T>(conv, input_grad, packed != nullptr, [&](const Direct<T>& d, WeightLayout l) {
        const T* weights = packed;
        if (!packed) {
            T* own = workspace<T>(packed_weights_slot, d.packed());
            d.pack(w, l, own);
            weights = own;
        }
        const Gather& z = d.z;
        const i64 lines = d.images * z.row().m, some = most(1, least(lines, tile_pixels / z.col().m)), tiles = up(lines, some);
        const i64 parts = z.groups * d.groups;
        parallel_for(tiles * parts, [&](i64 i) {
            const i64 tile = i / parts, group = i % parts / d.groups, part = i % d.groups;
            run_tile(d, group, part, tile * some, least(lines, (tile + 1) * some), x, weights, e, y);
        });
        done = true;
    });
    return done;
}

template i64 direct_packed_size<float>(const Conv&, bool);
template i64 direct_packed_size<double>(const Conv&, bool);
template void direct_pack(const Conv&, bool, const float*, float*);
template void direct_pack(const Conv&, bool, const double*, double*);
template bool direct_conv(const Conv&, bool, const float*, const float*, const float*, const Epilogue<float>&, float*);
template bool direct_conv(const Conv&, bool, const double*, const double*, const double*, const Epilogue<double>&, double*);

}  // namespace lunette::LN_ISA
