// Convolutions of arrays in blocks of channels: which there are, and their drive.
#include "conv_blocked.hpp"

#include "blocked.hpp"
#include "direct.hpp"

namespace lunette::LN_ISA {
namespace {

constexpr i64 chunk_bytes = 64 << 10;   // of weights, which are read a line of memory at a time for many pixels
constexpr i64 chunk_terms = sum_block - 32;  // at most, added one after another in registers; then sums of chunks are
constexpr i64 tile_bytes = 256 << 10;   // of what a task reads, and of what it writes: both stay in the second cache
constexpr i64 most_lines = 64;          // of taps, for each line of the result
constexpr i64 most_taps = 16;           // of a line
constexpr i64 beyond_cache = 256 << 10;

// How a line of pixels is cut into blocks: the first `large` have `pixels` pixels, the others one less.
struct LineCut {
    int vectors = 0;
    i64 blocks = 0, pixels = 0, large = 0;
    i64 start(i64 b) const { return b * pixels - most(0, b - large); }
    i64 size(i64 b) const { return b < large ? pixels : pixels - 1; }
};

// Of the line of m pixels for so many vectors of channels, the cheapest: in halves of a cycle that can multiply twice, load
// twice, and has to wait for four of its kind.
inline LineCut best_line(i64 m, i64 rows) {
    LineCut best;
    double least_cost = 0;
    for (int vectors : vectors_at_once) {
        LineCut c{vectors};
        c.blocks = up(m, most_pixels(vectors)), c.pixels = up(m, c.blocks), c.large = m - c.blocks * (c.pixels - 1);
        if (c.pixels - (c.large < c.blocks) < least_pixels(vectors)) continue;
        const double block = 2 + double(most(8, most(c.pixels * vectors, c.pixels + (vectors > 1 ? vectors : 0) + 2)));
        const double cost = block * double(c.blocks) * double(up(rows, vectors));
        if (!best.blocks || cost < least_cost) best = c, least_cost = cost;
    }
    return best;
}

// A convolution as lines of pixels. Of a transposed one whose windows lie side by side, every kernel cell is a convolution of
// one tap, and writes cells of its own.
template <class T>
struct Blocked {
    static constexpr i64 L = lanes<T>;
    i64 batch, ins, outs;  // in blocks
    i64 rank = 0;          // of the axes outside of lines
    ConvAxis axes[max_axes], line;
    i64 in_plane = L, out_plane = L;  // numbers of one block of channels of an image, in x and in y
    i64 outer = 1;                    // lines of an image of the result
    i64 cells = 1, taps = 1;          // of the kernel; of those in a line
    i64 phases = 1;                   // kernel cells that write cells of their own
    bool depthwise = false;
    bool complete = false;            // no pixel of a line lacks a tap of its line
    LineCut cut;
    i64 chunk = 0, groups = 0;  // blocks of channels at a time; groups of channels of the result
    bool fits = false;

    explicit Blocked(const Conv& c, bool input_grad) {
        const i64 cin = input_grad ? c.cout : c.cin, cout = input_grad ? c.cin : c.cout;
        depthwise = c.groups > 1;
        if (c.rank < 1 || c.rank > max_axes || any_zero(c.batch, cin, cout) || cin % L || cout % L) return;
        if (depthwise && (c.groups != cin || cin != cout || input_grad)) return;
        batch = c.batch, ins = cin / L, outs = cout / L;
        bool merges = !input_grad && !depthwise;  // every cell reads itself
        for (i64 a = 0; a < c.rank; ++a) {
            const ConvAxis& x = c.axes[a];
            if (any_zero(x.n, x.m)) return;
            if (input_grad && (x.kernel != x.stride || x.lo || x.n != x.m * x.stride || (x.kernel > 1 && x.dilation > 1))) return;
            if (!input_grad && !all_see(x)) return;
            merges &= x.kernel == 1 && x.stride == 1 && x.lo == 0 && x.n == x.m;
            cells *= x.kernel, in_plane *= input_grad ? x.m : x.n, out_plane *= input_grad ? x.n : x.m;
        }
        if (merges) line = {in_plane / L, out_plane / L, 1, 1, 1, 0};
        else {
            line = c.axes[c.rank - 1];
            for (; rank < c.rank - 1; ++rank) axes[rank] = c.axes[rank], outer *= c.axes[rank].m;
        }
        if (input_grad) phases = cells, cells = 1;
        taps = input_grad ? 1 : line.kernel;
        if (!input_grad && line.stride > 2) return;
        if (cells / taps > most_lines || taps > most_taps || cells * L > chunk_terms) return;
        if (depthwise) fits = true;
        else plan();
    }

    void plan() {
        cut = best_line(line.m, outs);
        if (!cut.blocks) return;
        const i64 width = cut.vectors * L;
        chunk = even_split(ins, most(1, least(chunk_terms / (cells * L), chunk_bytes / i64(sizeof(T)) / (cells * L * width))));
        groups = up(outs, cut.vectors);
        if (chunk * cells * L + up(ins, chunk) > sum_block) return;
        const i64 last = (line.m - 1) * line.stride - line.lo + (taps - 1) * line.dilation;
        complete = phases > 1 || (line.lo == 0 && last < line.n);
        for (i64 b = 0; !complete && b < cut.blocks; ++b) {
            signed char cuts[most_taps];
            if (!find_cuts(b, cuts)) return;
        }
        fits = true;
    }

    // Whether every cell of the result sees a tap. If two neighbours do, what lies between dilated taps is no matter.
    static bool all_see(const ConvAxis& x) {
        if ((x.m - 1) * x.stride - x.lo >= x.n) return false;  // the last one begins behind the end
        for (i64 o = 0; o < x.m; ++o) {
            bool some = false;
            for (i64 k = 0; k < x.kernel && !some; ++k) {
                const i64 i = o * x.stride - x.lo + k * x.dilation;
                some = i >= 0 && i < x.n;
            }
            if (!some) return false;
            if (o * x.stride - x.lo >= 0 && (x.m - 1) * x.stride - x.lo < x.n) break;  // the first tap is there from here on
        }
        return true;
    }

    // Which pixels of a block lack a tap; false if there is no kernel for that.
    bool find_cuts(i64 block, signed char* cuts) const {
        const i64 start = cut.start(block), size = cut.size(block);
        for (i64 k = 0; k < taps; ++k) {
            i64 first = 0, last = 0;
            for (i64 p = 0; p < size; ++p) {
                const i64 at = (start + p) * line.stride - line.lo + k * line.dilation;
                first += at < 0, last += at >= line.n;
            }
            cuts[k] = first + last == size ? seen_by_none : static_cast<signed char>(first - last);
            if (cuts[k] != seen_by_none && first && last) return false;
        }
        return true;
    }

    // The lines of taps that line `at` of the result sees, and where it begins in y. In a phase, the kernel cell is given.
    i64 find_lines(i64 at, i64 phase, TapLine* lines) const {
        i64 o[max_axes], place = 0, step = line.m;
        const i64 scale = phases > 1 ? line.stride : 1;
        step *= scale;
        for (i64 a = rank - 1, left = at; a >= 0; --a) o[a] = left % axes[a].m, left /= axes[a].m;
        i64 count = 1, in = 1, kernel = 1;
        for (i64 a = 0; a < rank; ++a) in *= phases > 1 ? axes[a].m : axes[a].n;
        in *= phases > 1 ? line.m : line.n;
        lines[0] = {0, 0};
        i64 cell = phase / line.kernel;  // in a phase, of the axes outside of lines
        i64 kernels = 1;
        for (i64 a = 0; a < rank; ++a) kernels *= axes[a].kernel;
        for (i64 a = 0; a < rank; ++a) {
            const ConvAxis& x = axes[a];
            in /= phases > 1 ? x.m : x.n, kernels /= x.kernel;
            if (phases > 1) {
                i64 rest = 1;
                for (i64 b = a + 1; b < rank; ++b) rest *= axes[b].m * axes[b].stride;
                place += (o[a] * x.stride + cell / kernels % x.kernel) * rest * step;
                lines[0].x += o[a] * in * L;
                continue;
            }
            i64 kept = 0;
            TapLine next[most_lines];
            for (i64 i = 0; i < count; ++i)
                for (i64 k = 0; k < x.kernel; ++k) {
                    const i64 from = o[a] * x.stride - x.lo + k * x.dilation;
                    if (from >= 0 && from < x.n) next[kept++] = {lines[i].x + from * in * L, lines[i].w * x.kernel + k};
                }
            for (i64 i = 0; i < kept; ++i) lines[i] = next[i];
            count = kept, kernel *= x.kernel;
        }
        if (phases == 1) place = at * line.m;
        for (i64 i = 0; i < count; ++i) lines[i].w *= taps * (depthwise ? L : L * cut.vectors * L);
        lines[most_lines].w = (place + (phases > 1 ? phase % line.kernel : 0)) * L;  // the place in y, behind them
        return count;
    }

    i64 packed() const {
        return !fits ? 0 : depthwise ? outs * L * cells : phases * groups * cut.vectors * L * ins * L * cells;
    }
};

// [phase][group][block of channels][tap][L channels][V*L channels of the result]; depthwise: [block of channels][tap][L].
template <class T>
void pack(const Blocked<T>& d, const Conv& c, bool input_grad, const T* w, T* to) {
    constexpr i64 L = lanes<T>;
    const i64 kernel = d.cells * d.phases;
    if (d.depthwise) {
        for (i64 b = 0; b < d.outs; ++b)
            for (i64 t = 0; t < kernel; ++t)
                for (i64 l = 0; l < L; ++l) *to++ = w[(b * L + l) * kernel + t];
        return;
    }
    const i64 width = d.cut.vectors * L, all = d.outs * L, size = d.ins * L * d.cells * width;
    // Distances in w of a channel of the result and of the source.
    const i64 out = input_grad ? kernel : c.cin * kernel, in = input_grad ? c.cin * kernel : kernel;
    parallel_for(d.phases * d.groups, [&](i64 i) {
        const i64 phase = i / d.groups, first = i % d.groups * width, count = least(width, all - first);
        T* y = to + i * size;
        for (i64 b = 0; b < d.ins; ++b)
            for (i64 t = 0; t < d.cells; ++t)
                for (i64 l = 0; l < L; ++l, y += width) {
                    const T* x = w + first * out + (b * L + l) * in + (d.phases > 1 ? phase : t);
                    for (i64 v = 0; v < count; ++v) y[v] = x[v * out];
                    for (i64 v = count; v < width; ++v) y[v] = 0;
                }
    });
}

// Lines first..last-1 of the result, counted over the images, of each the blocks begin..end-1.
struct BlockedTile {
    i64 first, last, begin, end;
};

template <class T>
void run_tile(const Blocked<T>& d, i64 phase, i64 group, BlockedTile tile, const T* x, const T* packed, const Epilogue<T>& e, T* y) {
    constexpr i64 L = lanes<T>;
    const LineCut& cut = d.cut;
    const i64 width = cut.vectors * L, of_block = d.cells * L * width, size = d.ins * of_block;
    const i64 step = d.phases > 1 ? 1 : d.line.stride, spread = d.phases > 1 ? d.line.stride : 1;
    const T* weights = packed + (phase * d.groups + group) * size;
    const T* const weights_end = packed + d.packed();
    const BlockedBlock<T> large = blocked_block_of<T>(cut.vectors, cut.pixels, step);
    const BlockedBlock<T> small = blocked_block_of<T>(cut.vectors, cut.pixels - 1, step);
    const i64 lines = tile.last - tile.first, channel = group * cut.vectors, entry = most_lines + 1;
    List<TapLine> taps;
    List<i64> counts;
    taps.resize(lines * entry), counts.resize(lines);
    for (i64 l = 0; l < lines; ++l) counts[l] = d.find_lines((tile.first + l) % d.outer, phase, taps.data + l * entry);
    // Weights beyond the second cache are asked for a chunk ahead, a few lines of memory at a time.
    constexpr i64 memory_line = 64 / sizeof(T);
    const i64 asks = d.chunk * (d.cells / d.taps), calls = (tile.end - tile.begin) * lines * asks;
    const i64 ahead = d.packed() * i64(sizeof(T)) > beyond_cache ? up(up(d.chunk * of_block, memory_line), calls) : 0;
    BlockedJob<T> j{};
    j.block = d.in_plane, j.weights = of_block, j.taps = d.taps, j.tap = d.line.dilation * L;
    j.channels = d.out_plane, j.pixel = spread * L, j.vectors = int(least(cut.vectors, d.outs - channel)), j.ahead_lines = ahead;
    for (i64 c = 0; c < d.ins; c += d.chunk) {
        j.w = weights + c * of_block, j.blocks = least(d.chunk, d.ins - c);
        j.more = c > 0, j.last = c + d.chunk >= d.ins;
        i64 asked = 0;
        for (i64 b = tile.begin; b < tile.end; ++b) {
            signed char cuts[most_taps] = {};
            if (!d.complete) d.find_cuts(b, cuts);
            j.cut = nullptr;
            for (i64 k = 0; k < d.taps; ++k)
                if (cuts[k]) j.cut = cuts;
            const i64 start = cut.start(b), column = d.phases > 1 ? start : start * step - d.line.lo;
            const BlockedBlock<T> block = cut.size(b) == cut.pixels ? large : small;
            for (i64 l = 0; l < lines; ++l, asked += asks * ahead * memory_line) {
                const i64 image = (tile.first + l) / d.outer;
                j.ahead = j.w + least(d.chunk * of_block + asked, weights_end - j.w);
                j.lines = taps.data + l * entry, j.count = counts[l];
                j.x = x + (image * d.ins + c) * d.in_plane + column * L;
                const i64 to = (image * d.outs + channel) * d.out_plane + j.lines[most_lines].w + start * spread * L;
                j.y = y + to;
                if (j.last) j.e = from_row(e, channel * L, to);
                block(j);
            }
        }
    }
}

// A line of a depthwise convolution: pixels that lack a tap one at a time, the others many.
template <class T>
void depthwise_line(const Blocked<T>& d, BlockedJob<T>& j) {
    constexpr i64 L = lanes<T>;
    const ConvAxis& a = d.line;
    auto one = [&](i64 o) {
        BlockedJob<T> own = j;
        const i64 at = o * a.stride - a.lo, first = at < 0 ? up(-at, a.dilation) : 0;
        own.taps = least(a.kernel, up(most(0, a.n - at), a.dilation)) - first;
        own.w += first * L;
        depthwise_pixels<1, 1, 0>(own, j.x + (at + first * a.dilation) * L, j.y + o * L, j.e.add ? j.e.add + o * L : nullptr);
    };
    const i64 begin = least(a.m, up(a.lo, a.stride)), reach = a.n - 1 + a.lo - (a.kernel - 1) * a.dilation;
    const i64 end = reach < 0 ? begin : most(begin, least(a.m, reach / a.stride + 1));
    for (i64 o = 0; o < begin; ++o) one(o);
    auto some = [&]<int P>(i64 o) {
        const T *x = j.x + (o * a.stride - a.lo) * L, *add = j.e.add ? j.e.add + o * L : nullptr;
        T* y = j.y + o * L;
        const bool three = a.kernel == 3 && a.dilation == 1;
        if (a.stride == 1) three ? depthwise_pixels<P, 1, 3>(j, x, y, add) : depthwise_pixels<P, 1, 0>(j, x, y, add);
        else three ? depthwise_pixels<P, 2, 3>(j, x, y, add) : depthwise_pixels<P, 2, 0>(j, x, y, add);
    };
    i64 o = begin;
    for (; o + 8 <= end; o += 8) some.template operator()<8>(o);
    if (o + 4 <= end) some.template operator()<4>(o), o += 4;
    if (o + 2 <= end) some.template operator()<2>(o), o += 2;
    for (; o < a.m; ++o) one(o);
}

template <class T>
void run_depthwise(const Blocked<T>& d, const T* x, const T* packed, const Epilogue<T>& e, T* y) {
    constexpr i64 L = lanes<T>;
    const i64 at_once = most(1, least(d.outer, tile_bytes / i64(sizeof(T)) / most(d.line.n * L, 1))), parts = up(d.outer, at_once);
    parallel_for(d.batch * d.outs * parts, [&](i64 i) {
        const i64 plane = i / parts, block = plane % d.outs, begin = i % parts * at_once;
        TapLine lines[most_lines + 1];
        BlockedJob<T> j{};
        j.x = x + plane * d.in_plane, j.w = packed + block * d.cells * L;
        j.lines = lines, j.taps = d.taps, j.tap = d.line.dilation * L;
        for (i64 at = begin; at < least(d.outer, begin + at_once); ++at) {
            j.count = d.find_lines(at, 0, lines);
            const i64 to = plane * d.out_plane + lines[most_lines].w;
            j.y = y + to, j.e = from_row(e, block * L, to);
            depthwise_line(d, j);
        }
    });
}

template <class T>
inline constexpr bool there_are = vector_bytes >= 32 && sizeof(T) == 4;

// Few channels are read as planes.
template <class T>
bool reads_planes(const Conv& c, bool input_grad) {
    return !input_grad && c.cin % lanes<T> != 0;
}

}  // namespace

template <class T>
i64 blocked_packed_size(const Conv& c, bool input_grad) {
    if constexpr (there_are<T>) return reads_planes<T>(c, input_grad) ? into_blocks_packed_size<T>(c) : Blocked<T>(c, input_grad).packed();
    return 0;
}

template <class T>
void blocked_pack(const Conv& c, bool input_grad, const T* w, T* packed) {
    if constexpr (there_are<T>) {
        if (reads_planes<T>(c, input_grad)) into_blocks_pack(c, w, packed);
        else pack(Blocked<T>(c, input_grad), c, input_grad, w, packed);
    }
}

template <class T>
void blocked_conv(const Conv& c, bool input_grad, const T* x, const T* packed, const Epilogue<T>& e, T* y) {
    if constexpr (there_are<T>) {
        if (reads_planes<T>(c, input_grad)) return into_blocks_conv(c, x, packed, e, y);
        const Blocked<T> d(c, input_grad);
        if (d.depthwise) return run_depthwise(d, x, packed, e, y);
        constexpr i64 L = lanes<T>;
        // A tile is some whole lines, or a part of a long one.
        const i64 threads = num_threads(), all = d.batch * d.outer, of_pixel = most(d.ins * d.line.stride, d.cut.vectors) * L * i64(sizeof(T));
        i64 some = most(1, least(all, tile_bytes / most(1, d.line.m * of_pixel)));
        i64 blocks = most(1, least(d.cut.blocks, tile_bytes / (d.cut.pixels * of_pixel)));
        auto tasks = [&] { return up(all, some) * up(d.cut.blocks, blocks) * d.groups * d.phases; };
        while (threads > 1 && tasks() < 8 * threads && some > 1) some = up(some, 2);
        while (threads > 1 && tasks() < 4 * threads && blocks > 1 && some == 1) blocks = up(blocks, 2);
        if (some > 1) blocks = d.cut.blocks;
        some = even_split(all, some), blocks = even_split(d.cut.blocks, blocks);
        const i64 across = up(d.cut.blocks, blocks), parts = d.groups * d.phases;
        parallel_for(up(all, some) * across * parts, [&](i64 i) {
            const i64 tile = i / parts, part = i % parts, first = tile / across * some, begin = tile % across * blocks;
            run_tile(d, part / d.groups, part % d.groups,
                     BlockedTile{first, least(all, first + some), begin, least(d.cut.blocks, begin + blocks)}, x, packed, e, y);
        });
    }
}

template i64 blocked_packed_size<float>(const Conv&, bool);
template i64 blocked_packed_size<double>(const Conv&, bool);
template void blocked_pack(const Conv&, bool, const float*, float*);
template void blocked_pack(const Conv&, bool, const double*, double*);
template void blocked_conv(const Conv&, bool, const float*, const float*, const Epilogue<float>&, float*);
template void blocked_conv(const Conv&, bool, const double*, const double*, const Epilogue<double>&, double*);

}  // namespace lunette::LN_ISA
