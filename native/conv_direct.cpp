// Direct convolution: where it is better than the blocked product, and its drive.
#include "conv_direct_pack.hpp"

#include <cstdlib>

#include "conv_gather.hpp"
#include "direct.hpp"

namespace lunette::LN_ISA {
namespace {

constexpr i64 chunk_terms = 256;   // added one after another in registers; then sums of chunks are
constexpr i64 most_chunks = 250;   // 256 + 250 additions, and 256 + t/256 is at most 512 + t/512 up to there
constexpr i64 chunk_bytes = 32 << 10;  // of weights at a time: shorter runs of their rows took longer to turn
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
    i64 chunk = 0, chunks = 0, width = 0, groups = 0;  // channels at a time; channels of the result at a time, and how often
    bool fits = false;
    bool blocks = false;  // the result is written in blocks of channels (blocked.hpp)

    explicit Direct(const Gather& gather) : z(gather) {
        const Axis &row = z.row(), &col = z.col();
        i64 outers = z.outers(), first = 0;
        if (outers && z.axes[0].plain) images = z.axes[0].m, image_in = z.axes[0].in, image_out = z.axes[0].out, first = 1;
        if (outers - first > 1 || col.in != 1 || col.out != 1 || col.step > 2 || z.taps > 64) return;
        if (outers > first) plane = z.axes[first];
        if ((row.m > 1 && row.out != col.m) || (plane.m > 1 && plane.out != row.m * col.m)) return;
        if (outers > first && !line_up(plane, plane_low, plane_apart, turned_planes)) return;
        if (!line_up(row, row_low, row_apart, turned_rows) || !line_up(col, col_low, col_apart, turned_cols)) return;
        cut = best_cut<T>(col.m, col.step, line_taps(), z.rows);
        if (!cut.blocks) return;
        width = cut.vectors * lanes<T>, groups = up(z.rows, width);
        chunk = even_split(z.channels, most(1, least(chunk_terms / z.taps, chunk_bytes / i64(sizeof(T)) / (z.taps * width))));
        chunks = up(z.channels, chunk);
        if (chunks > most_chunks) return;
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

    DirectPacking<T> packing(const T* w, WeightLayout l) const {
        List<i64> place, order;
        places(z, place);
        auto turned = [](bool turn, i64 k, i64 taps) { return turn ? taps - 1 - k : k; };
        const i64 rows = z.row().taps, cols = z.col().taps;
        for (i64 u = 0; u < plane.taps; ++u)
            for (i64 r = 0; r < rows; ++r)
                for (i64 k = 0; k < cols; ++k)
                    order.push(place[(turned(turned_planes, u, plane.taps) * rows + turned(turned_rows, r, rows)) * cols +
                                     turned(turned_cols, k, cols)]);
        return DirectPacking<T>(z, w, l, width, order);
    }

    void pack(const T* w, WeightLayout l, T* to) const {
        const DirectPacking<T> p = packing(w, l);
        auto task = [&](i64 i) { p.pack(i / groups, i % groups * width, 0, z.channels, to + i * part_size()); };
        if (packed() < 32768)
            for (i64 i = 0; i < parts(); ++i) task(i);
        else parallel_for(parts(), task);
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

// The packed weights of all parts; or what packs them chunk by chunk, and room for a chunk.
template <class T>
struct DirectWeights {
    const T* packed;
    const DirectPacking<T>* packing = nullptr;
    T* chunk = nullptr;
};

// A tile of `width` channels of the result.
template <class T>
void run_tile(const Direct<T>& d, i64 group, i64 part, DirectTile tile, const T* x, const DirectWeights<T>& w, const Epilogue<T>& e,
              T* y) {
    const Gather& z = d.z;
    const Axis &plane = d.plane, &row = z.row(), &col = z.col();
    const DirectCut& cut = d.cut;
    const i64 width = d.width, lines = tile.last - tile.first, image = plane.m * row.m;
    const i64 left = cut.place(tile.begin), room = cut.place(tile.end - 1) + cut.size(tile.end - 1) - left;
    T* sums = workspace<T>(sums_slot, lines * room * width + lanes<T>);
    const DirectBlock<T> large = direct_block_of<T>(cut.vectors, cut.pixels, col.step, d.line_taps());
    const DirectBlock<T> small = direct_block_of<T>(cut.vectors, cut.pixels - 1, col.step, d.line_taps());
    x += group * z.channels * z.in_channel;
    // Weights beyond the second cache are asked for a chunk ahead, a few lines of memory at a time.
    constexpr i64 memory_line = 64 / sizeof(T);
    const i64 size = d.chunk * z.taps * width, asks = d.single ? 1 : d.chunk * plane.taps * row.taps;
    const i64 ahead = !w.packing && d.packed() * i64(sizeof(T)) > beyond_cache
                          ? up(up(size, memory_line), (tile.end - tile.begin) * lines * asks)
                          : 0;
    const i64 channel = part * width, count = least(width, z.rows - channel), from = group * z.rows + channel;
    auto place = [&](i64 line, i64 start) {
        const i64 pixel = (line % image * col.m + start) * (d.blocks ? lanes<T> : 1);
        return z.base + line / image * d.image_out + from * z.out_channel + pixel;
    };
    const T* const weights_end = w.packed + d.packed();
    const i64 turns = (tile.end - tile.begin) * lines;
    for (i64 c = 0; c < z.channels; c += d.chunk) {
        const T* weights = w.packing ? w.chunk : w.packed + (group * d.groups + part) * d.part_size() + c * z.taps * width;
        if (w.packing) w.packing->pack(group, channel, c, least(z.channels, c + d.chunk), w.chunk);
        const bool last = c + d.chunk >= z.channels;
        for (i64 b = tile.begin; b < tile.end; ++b) {
            signed char cuts[64];
            const i64 before = d.lacking(b, true), behind = d.lacking(b, false);
            const bool whole = !before && !behind;
            if (!whole) d.find_cuts(b, cuts);
            const DirectBlock<T> block = cut.size(b) == cut.pixels ? large : small;
            const i64 column = cut.start(b, col.m) * col.step + d.col_low, channels = least(d.chunk, z.channels - c);
            DirectJob<T> j{nullptr,
                           weights,
                           z.in_channel,
                           plane.in * d.plane_apart,
                           row.in * d.row_apart,
                           d.single ? z.in_channel : d.col_apart,
                           d.single ? 1 : channels,
                           0,
                           1,
                           plane.taps,
                           0,
                           1,
                           row.taps,
                           d.single ? channels : col.taps,
                           whole ? nullptr : cuts,
                           before,
                           behind,
                           c > 0,
                           sums + (cut.place(b) - left) * width,
                           nullptr,
                           ahead};
            for (i64 l = tile.first; l < tile.last; ++l, j.sums += room * width) {
                const i64 turn = (b - tile.begin) * lines + l - tile.first;
                if (!w.packing) j.ahead = j.w + least(size + turn * asks * ahead * memory_line, weights_end - j.w);
                else if (!last) w.packing->ask(group, channel, c + d.chunk, least(z.channels, c + 2 * d.chunk), turn, turns);
                else if (part + 1 < d.groups) w.packing->ask(group, channel + width, 0, d.chunk, turn, turns);
                const i64 far = l % image / row.m * plane.step + d.plane_low, top = l % row.m * row.step + d.row_low;
                j.x = x + l / image * d.image_in + c * z.in_channel + far * plane.in + top * row.in + column;
                d.present(plane, far, d.plane_apart, j.first_plane, j.last_plane);
                d.present(row, top, d.row_apart, j.first, j.last);
                if (last && !d.blocks) {  // what is written last is asked for first
                    const i64 to = place(l, cut.start(b, col.m));
                    for (i64 i = 0; i < count; ++i) {
                        __builtin_prefetch(y + to + i * z.out_channel, 1);
                        if (e.add) __builtin_prefetch(e.add + to + i * z.out_channel);
                    }
                }
                block(j);
            }
        }
    }
    auto out = [&](i64 line, const T* s, i64 start, i64 pixels) {
        const i64 to = place(line, start);
        const Epilogue<T> own = from_row(e, from, to);
        if (d.blocks) lay_out<T>(s, width, pixels, count, own, y + to, z.out_channel);
        else turn_out<T>(s, width, pixels, count, own, y + to, z.out_channel);
    };
    const i64 start = cut.start(tile.begin, col.m);
    for (i64 l = tile.first; l < tile.last;) {
        const T* s = sums + (l - tile.first) * room * width;
        if (!cut.again || tile.end < cut.blocks) {  // whole lines of an image lie one behind the other
            const i64 end = room == col.m ? least(tile.last, (l / image + 1) * image) : l + 1;
            out(l, s, start, (end - l) * room);
            l = end;
            continue;
        }
        const i64 plain = (cut.blocks - 1 - tile.begin) * cut.pixels, again = start + plain - cut.start(cut.blocks - 1, col.m);
        if (plain) out(l, s, start, plain);
        out(l, s + (plain + again) * width, start + plain, cut.pixels - again);
        ++l;
    }
}

// LUNETTE_DIRECT=1 takes direct sums wherever there are, "pays" where they should pay, 0 nowhere: to measure, and to test.
// Without it they are taken where they pay with AVX-512; with half the registers the blocked product is better.
enum class Wanted { nowhere, where_it_pays, everywhere };
Wanted wanted() {
    static const Wanted found = [] {
        const char* asked = std::getenv("LUNETTE_DIRECT");
        if (!asked || !*asked) return vector_bytes == 64 ? Wanted::where_it_pays : Wanted::nowhere;
        return *asked == '0' ? Wanted::nowhere : *asked == 'p' ? Wanted::where_it_pays : Wanted::everywhere;
    }();
    return found;
}

// Whether direct sums are better than the blocked product. `beforehand`: packing costs nothing; for an input gradient the
// product has to gather its weights, too.
template <class T>
bool pays(const Direct<T>& d, bool input_grad, bool beforehand) {
    const Gather& z = d.z;
    if (!d.fits || wanted() == Wanted::everywhere) return d.fits;
    if (sizeof(T) == 8) return false;  // vectors of half as many channels: nothing is gained
    if (z.cells < (beforehand ? 4 : input_grad ? 16 : z.rows <= 64 ? 32 : 128)) return false;
    // A plain product: panels are packed as cells lie, and stored as they are; only many terms pay for turning sums.
    if (z.taps == 1 && z.channels < few_terms && (z.col().step == 1 || !beforehand)) return false;
    // Sums are turned when they are finished, which few terms do not pay for; but then the blocked product has to cut its
    // panels into lines, unless lines are long.
    if (z.channels * z.taps < few_terms && z.col().m > long_line) return false;
    const double pixels = double(d.cut.place(d.cut.blocks - 1) + d.cut.size(d.cut.blocks - 1)) / double(z.col().m);
    return double(d.groups * d.width) / double(z.rows) * pixels < 1.15;
}

// f(d, layout) if that is how this convolution, or its input gradient, is summed.
template <class T, class F>
void if_direct(const Conv& c, bool input_grad, bool beforehand, F f) {
    if constexpr (vector_bytes >= 32) {
        if (wanted() == Wanted::nowhere) return;
        const Sizes s = sizes(c.axes, c.rank);
        if (any_zero(c.batch, c.cin, c.cout, s.n, s.m, s.kernel)) return;
        const i64 rows = (input_grad ? c.cin : c.cout) / c.groups, channels = (input_grad ? c.cout : c.cin) / c.groups;
        const double least_work = input_grad ? 200000 : 20000;  // direct sums have less to plan, so little pays, too
        if (channels * s.kernel < 16 || work(c.batch, s.m, rows, channels, s.kernel) < least_work) return;
        if (input_grad && residues(c) > 1) return;
        Gather z;
        if (!(input_grad ? residue_gather(z, 0, c) : forward_gather(z, c))) return;
        const Direct<T> d(z);
        if (pays(d, input_grad, beforehand)) f(d, input_grad ? residue_layout(z, s) : forward_layout(z, s));
    }
}

// All of it, with weights packed beforehand, or with those that `packing` packs.
template <class T>
void run_direct(const Direct<T>& d, const T* x, const T* packed, const DirectPacking<T>* packing, const Epilogue<T>& e, T* y) {
    const Gather& z = d.z;
    const i64 m = z.col().m, lines = d.images * d.plane.m * z.row().m;
    const i64 some = lines * m <= 2 * tile_pixels ? lines : most(1, least(lines, tile_pixels / m));
    const i64 blocks = m > tile_pixels ? even_split(d.cut.blocks, tile_pixels / d.cut.pixels) : d.cut.blocks;
    const i64 across = up(d.cut.blocks, blocks), tiles = up(lines, some) * across, parts = d.parts();
    const bool small = work(z.cells, z.channels, z.taps, z.rows, z.groups) < 200000;
    auto all = [&](i64 tasks, auto task) {
        if (small)
            for (i64 i = 0; i < tasks; ++i) task(i);
        else parallel_for(tasks, task);
    };
    const bool chunkwise = packing && tiles == 1;  // each weight is wanted once: it is packed right before
    if (packing && !chunkwise) {
        T* own = workspace<T>(packed_weights_slot, d.packed());
        all(parts, [&](i64 i) { packing->pack(i / d.groups, i % d.groups * d.width, 0, z.channels, own + i * d.part_size()); });
        packed = own;
    }
    all(tiles * parts, [&](i64 i) {
        const i64 tile = i / parts, group = i % parts / d.groups, part = i % d.groups;
        const i64 first = tile / across * some, begin = tile % across * blocks;
        const DirectTile own{first, least(lines, first + some), begin, least(d.cut.blocks, begin + blocks)};
        DirectWeights<T> w{packed};
        if (chunkwise) w = {nullptr, packing, workspace<T>(packed_weights_slot, d.chunk * z.taps * d.width)};
        run_tile(d, group, part, own, x, w, e, y);
    });
}

// f(d, layout) for a convolution of planes whose result is in blocks, if there is one.
template <class T, class F>
void if_into_blocks(const Conv& c, F f) {
    if constexpr (vector_bytes >= 32) {
        const Sizes s = sizes(c.axes, c.rank);
        Gather z;
        if (c.groups > 1 || c.cout % lanes<T> || !forward_gather(z, c)) return;
        Direct<T> d(z);
        d.blocks = true;
        // Of one image, planes along the first axis are as good as images, but they lie inside of a channel.
        if (d.image_out < z.out_channel) d.image_out *= lanes<T>;
        if (d.fits) f(d, forward_layout(z, s));
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
        done = true;
        if (packed) return run_direct<T>(d, x, packed, nullptr, e, y);
        const DirectPacking<T> packing = d.packing(w, l);
        run_direct<T>(d, x, nullptr, &packing, e, y);
    });
    return done;
}

template <class T>
i64 into_blocks_packed_size(const Conv& conv) {
    i64 size = 0;
    if_into_blocks<T>(conv, [&](const Direct<T>& d, WeightLayout) { size = d.packed(); });
    return size;
}

template <class T>
void into_blocks_pack(const Conv& conv, const T* w, T* packed) {
    if_into_blocks<T>(conv, [&](const Direct<T>& d, WeightLayout l) { d.pack(w, l, packed); });
}

template <class T>
void into_blocks_conv(const Conv& conv, const T* x, const T* packed, const Epilogue<T>& e, T* y) {
    if_into_blocks<T>(conv, [&](const Direct<T>& d, WeightLayout) { run_direct<T>(d, x, packed, nullptr, e, y); });
}

template i64 into_blocks_packed_size<float>(const Conv&);
template void into_blocks_pack(const Conv&, const float*, float*);
template void into_blocks_conv(const Conv&, const float*, const float*, const Epilogue<float>&, float*);
template i64 direct_packed_size<float>(const Conv&, bool);
template i64 direct_packed_size<double>(const Conv&, bool);
template void direct_pack(const Conv&, bool, const float*, float*);
template void direct_pack(const Conv&, bool, const double*, double*);
template bool direct_conv(const Conv&, bool, const float*, const float*, const float*, const Epilogue<float>&, float*);
template bool direct_conv(const Conv&, bool, const double*, const double*, const double*, const Epilogue<double>&, double*);

}  // namespace lunette::LN_ISA
