// The weight gradient of a convolution of planes: where direct sums are better than the blocked product, and their drive.
#include "conv_direct_weights.hpp"

#include <algorithm>
#include <cstdlib>

#include "conv_gather.hpp"
#include "direct.hpp"

namespace lunette::LN_ISA {
namespace {

constexpr i64 run_bytes = 32 << 10;    // of g, packed: stay in the first cache while all channels of x meet them
constexpr i64 run_cells = 256;         // added one after another in registers; then sums of runs are
constexpr i64 part_bytes = 256 << 10;  // of sums, which stay in the second cache
constexpr i64 all_bytes = 4 << 20;     // of the shares of threads

// A Gather as lines of pixels, and its pixels in runs.
template <class T>
struct Weights {
    const Gather& z;
    Axis plane{1, 1, 1, 0, 0, 1, 0, true};  // the axis above rows, if there is one
    bool has_plane = false;
    i64 images = 1, image_in = 0, image_out = 0;
    int vectors = 1;          // of channels of g at a time
    i64 taps = 1, chunks = 1, channels = 1;  // of a line, and of x, at a time
    i64 images_of_run = 1, lines_of_run = 1, pixels_of_run = 1;
    bool fits = false;

    explicit Weights(const Gather& gather) : z(gather) {
        const Axis &row = z.row(), &col = z.col();
        i64 outers = z.outers(), first = 0;
        if (outers && z.axes[0].plain) images = z.axes[0].m, image_in = z.axes[0].in, image_out = z.axes[0].out, first = 1;
        if (outers - first > 1 || col.in != 1 || col.out != 1) return;
        if (outers > first) plane = z.axes[first], has_plane = true;
        if ((row.m > 1 && row.out != col.m) || (plane.m > 1 && plane.out != row.m * col.m)) return;
        bool side_by_side = true;
        for (i64 k = 1; k < col.taps; ++k) side_by_side &= offset(col, k) == offset(col, 0) + k;
        const i64 lines = up(z.rows, lanes<T>);
        vectors = lines >= 4 && vector_bytes == 64 ? 4 : lines >= 2 ? 2 : 1;
        taps = side_by_side ? up(col.taps, up(col.taps, 7)) : 1;
        if (taps == 6) taps = 3;
        if (taps == 7 && vectors == 4) vectors = 2;
        if (!most_weight_channels(vectors, int(taps))) vectors = 1;
        chunks = up(col.taps, taps);
        if (chunks * taps != col.taps) return;
        choose_channels();
        if (z.taps * width() * channels * i64(sizeof(T)) > part_bytes) return;
        const i64 cells = least(run_cells, run_bytes / i64(sizeof(T)) / width());
        pixels_of_run = even_split(col.m, cells);
        lines_of_run = pixels_of_run < col.m ? 1 : even_split(row.m, cells / col.m);
        images_of_run = lines_of_run < row.m || pixels_of_run < col.m || plane.m > 1 ? 1 : even_split(images, most(1, cells / (row.m * col.m)));
        fits = true;
    }

    // As many as the registers hold, if that does not do many of them twice.
    void choose_channels() {
        const int greatest = most_weight_channels(vectors, int(taps));
        auto cost = [&](i64 n) { return up(z.channels, n) * most(8, n * taps * vectors); };  // a sum waits for four others
        for (i64 n : {1, 3, greatest})
            if (n <= greatest && n <= z.channels && weight_block_of<T>(vectors, taps, n) && cost(n) <= cost(channels)) channels = n;
    }

    i64 offset(const Axis& a, i64 tap) const { return z.off[a.tap + tap]; }
    i64 width() const { return vectors * lanes<T>; }
    i64 column_runs() const { return up(z.col().m, pixels_of_run); }
    i64 line_runs() const { return up(z.row().m, lines_of_run); }
    i64 runs() const { return up(images, images_of_run) * plane.m * line_runs() * column_runs(); }
};

// Some pixels: of images, of a plane, of lines, of a line.
struct WeightRun {
    i64 image, images, plane, line, lines, pixel, pixels;
    i64 cells() const { return images * lines * pixels; }
};

template <class T>
WeightRun run_of(const Weights<T>& d, i64 k) {
    WeightRun r;
    r.pixel = k % d.column_runs() * d.pixels_of_run, k /= d.column_runs();
    r.line = k % d.line_runs() * d.lines_of_run, k /= d.line_runs();
    r.plane = k % d.plane.m, r.image = k / d.plane.m * d.images_of_run;
    r.images = least(d.images_of_run, d.images - r.image);
    r.lines = least(d.lines_of_run, d.z.row().m - r.line), r.pixels = least(d.pixels_of_run, d.z.col().m - r.pixel);
    return r;
}

// g's channels, `count` of them, become [image][line][pixel][width].
template <class T>
void pack_run(const Weights<T>& d, const WeightRun& r, const T* g, i64 count, T* to) {
    const i64 cells = r.lines * r.pixels, W = d.width();
    g += r.image * d.image_out + r.plane * d.plane.out + r.line * d.z.row().out + r.pixel;
    for (i64 i = 0; i < r.images; ++i, g += d.image_out, to += cells * W) {
        for (i64 k = 0; k < cells && count < W; ++k)
            for (i64 c = count / lanes<T> * lanes<T>; c < W; c += lanes<T>) store(to + k * W + c, Vector<T>{});
        transpose_block(g, d.z.out_channel, count, 0, cells, to, W, 1);
    }
}

// The cells first..last-1 of an axis, among those given, that see a tap.
inline void seen(const Axis& a, i64 offset, i64& first, i64& last) {
    if (offset < 0) first = most(first, up(-offset, a.step));
    last = least(last, floor_div(a.n - 1 - offset, a.step) + 1);
}

// sums [channel][tap][width] += those of a run, for the channels of x from `begin` to `end`.
template <class T>
void add_run(const Weights<T>& d, const WeightRun& r, i64 begin, i64 end, const T* x, const T* packed, T* sums) {
    const Gather& z = d.z;
    const Axis &plane = d.plane, &row = z.row(), &col = z.col();
    const i64 W = d.width();
    const bool small = end - begin < d.channels;
    const i64 some = small ? 1 : d.channels;
    const WeightBlock<T> block = weight_block_of<T>(d.vectors, d.taps, some);
    WeightJob<T> j;
    j.channel = z.in_channel, j.image = d.image_in, j.line = row.step * row.in, j.step = col.step;
    j.images = r.images, j.pixels = r.pixels, j.g_image = r.lines * r.pixels * W, j.cells = col.n, j.row = z.taps * W;
    x += r.image * d.image_in;
    for (i64 c = begin; c < end; c += some) {
        const i64 channel = least(c, end - some);
        j.known = c - channel;
        for (i64 u = 0; u < plane.taps; ++u) {
            const i64 far = d.has_plane ? r.plane * plane.step + d.offset(plane, u) : 0;
            if (far < 0 || far >= plane.n) continue;
            for (i64 l = 0; l < row.taps; ++l) {
                i64 first = r.line, last = r.line + r.lines;
                seen(row, d.offset(row, l), first, last);
                if (first >= last) continue;
                j.lines = last - first;
                j.g = packed + (first - r.line) * r.pixels * W;
                const T* top = x + channel * z.in_channel + far * plane.in + (first * row.step + d.offset(row, l)) * row.in;
                for (i64 k = 0; k < col.taps; k += d.taps) {
                    const i64 low = d.offset(col, k), end_of_run = r.pixel + r.pixels;
                    i64 inner = r.pixel, outer = end_of_run, rest;
                    seen(col, low, inner, rest = outer), seen(col, low + d.taps - 1, rest = inner, outer);
                    inner = least(inner, end_of_run), outer = most(outer, inner);
                    j.before = inner - r.pixel, j.behind = end_of_run - outer;
                    j.from = r.pixel * col.step + low, j.x = top + j.from;
                    j.sums = sums + ((channel - begin) * z.taps + (u * row.taps + l) * col.taps + k) * W;
                    block(j);
                }
            }
        }
    }
}

// As in direct sums of the result: LUNETTE_DIRECT=1 takes these wherever there are any, 0 nowhere.
template <class T>
bool pays(const Weights<T>& d) {
    static const char asked = [] {
        const char* found = std::getenv("LUNETTE_DIRECT");
        return found ? *found : '\0';
    }();
    if (asked == '0' || asked == '1') return asked == '1';
    if (d.z.taps == 1 && d.z.col().step == 1) return false;  // a plain product: panels are packed as cells lie
    return vector_bytes == 64 || d.taps < 7;  // seven sums of half the size are too few to hide what an addition takes
}

template <class T>
void run_direct(const Weights<T>& d, const List<i64>& place, i64 kernel, const T* x, const T* g, T* dw) {
    const Gather& z = d.z;
    const i64 W = d.width(), widths = up(z.rows, W), threads = num_threads();
    const i64 row = z.taps * W, runs = d.runs();
    const bool alone = threads == 1 || work(z.cells, z.channels, z.taps, z.rows, z.groups) < 200000;
    // Parts of dw are independent: so many channels of x. Where they are too few, the runs are shared out too, and the shares
    // added in order.
    i64 parts = most(1, up(z.channels * row * i64(sizeof(T)), part_bytes));
    if (!alone) parts = least(up(z.channels, d.channels), most(parts, up(4 * threads, z.groups * widths)));
    const i64 some = up(up(z.channels, parts), d.channels) * d.channels, size = some * row;
    parts = up(z.channels, some);
    const i64 tasks = z.groups * widths * parts;
    i64 shares = alone || tasks >= 2 * threads ? 1 : least(least(threads, runs), 64);
    if (tasks * shares * size * i64(sizeof(T)) > all_bytes) shares = 1;
    T* all = shares > 1 ? workspace<T>(caller_slot, tasks * shares * size) : nullptr;
    auto finish = [&](i64 group, i64 part, i64 first, const T* sums) {
        const i64 c = part * some, n = least(some, z.channels - c) * z.taps, pitch = z.channels * kernel;
        put_weights(z, place, kernel, sums, W, least(W, z.rows - first), 0, n, dw + (group * z.rows + first) * pitch + c * kernel);
    };
    auto task = [&](i64 i) {
        const i64 share = i % shares, part = i / shares % parts, first = i / shares / parts % widths * W;
        const i64 group = i / shares / parts / widths, begin = part * some, end = least(z.channels, begin + some);
        const i64 from = runs * share / shares, to = runs * (share + 1) / shares, used = (end - begin) * row;
        const Ladder ladder(to - from);
        T* own = workspace<T>(sums_slot, (Ladder(runs).levels + 1) * size);
        T *sums = shares > 1 ? all + i * size : own, *levels = own + size;
        T* into = ladder.one_level() ? sums : levels;
        T* packed = workspace<T>(tile_slot, run_bytes / i64(sizeof(T)) + W);
        for (i64 k = from; k < to; ++k) {
            const WeightRun r = run_of(d, k);
            if (ladder.starts(k - from))
                for (i64 e = 0; e < used; ++e) into[e] = T(-0.0);
            pack_run(d, r, g + (group * z.rows + first) * z.out_channel, least(W, z.rows - first), packed);
            add_run(d, r, begin, end, x + group * z.channels * z.in_channel, packed, into);
            if (into == sums) continue;
            ladder.climb(k - from, [&](i64 l, bool fresh) {
                go_up(fresh, used, levels + l * size, l + 1 < ladder.levels ? levels + (l + 1) * size : sums);
            });
        }
        if (shares == 1) finish(group, part, first, sums);
    };
    if (alone)
        for (i64 i = 0; i < tasks * shares; ++i) task(i);
    else parallel_for(tasks * shares, task);
    for (i64 i = 0; i < tasks && shares > 1; ++i) {
        T* sums = all + i * shares * size;
        for (i64 k = 1; k < shares; ++k)
            for (i64 e = 0; e < size; ++e) sums[e] += sums[k * size + e];
        finish(i / parts / widths, i % parts, i / parts % widths * W, sums);
    }
}

}  // namespace

template <class T>
bool direct_weight_grad(const Conv& conv, const T* x, const T* g, T* dw) {
    if constexpr (vector_bytes >= 32) {  // the smallest vectors and registers gain nothing
        Gather z;
        const Sizes s = sizes(conv.axes, conv.rank);
        if (!forward_gather(z, conv) || z.channels * z.rows == 1) return false;  // depthwise sums have vectors of cells
        const Weights<T> d(z);
        if (!d.fits || !pays(d)) return false;
        if (z.taps < s.kernel) std::fill_n(dw, conv.cout * z.channels * s.kernel, T(0));
        List<i64> place;
        places(z, place);
        run_direct(d, place, s.kernel, x, g, dw);
        return true;
    }
    return false;
}

template bool direct_weight_grad(const Conv&, const float*, const float*, float*);
template bool direct_weight_grad(const Conv&, const double*, const double*, double*);

}  // namespace lunette::LN_ISA
