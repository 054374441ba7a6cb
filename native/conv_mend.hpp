// Sums that padded zeros may have spoiled, once more without them.
//
// A padded zero does harm in two ways: times a number that is infinite or NaN it is NaN, and it turns a sum whose terms are
// all -0 into +0. Both are rare, but sums that are zero or NaN are not: think of margins, dead channels, one NaN in the data.
// So before any sum is made again it is asked, for many sums at a time, whether harm is possible at all:
//   - NaN comes from padding only where a weight (of dw: a cell of g) is not finite.
//   - A bias or a shift other than -0 hides the sign of a zero.
//   - A sum is not -0 if one of its terms is not: of some channel without tiny negative numbers, a weight well above zero.
#pragma once
#include <limits>

#include "conv_edges.hpp"
#include "epilogue.hpp"

namespace lunette::LN_ISA {
namespace {

template <class T>
bool finite(const T* p, i64 n) {
    constexpr i64 L = lanes<T>;
    Vector<T> v[4] = {};
    i64 i = 0;
    for (; i + 4 * L <= n; i += 4 * L)
        for (int k = 0; k < 4; ++k) v[k] += load(p + i + k * L) * T(0);  // NaN if any is infinite or NaN
    T s = 0;
    for (; i < n; ++i) s += p[i] * 0;
    const Vector<T> all = (v[0] + v[1]) + (v[2] + v[3]);
    for (int k = 0; k < L; ++k) s += all[k];
    return s == 0;
}

template <class T>
inline bool is_minus_zero(T v) {
    return v == 0 && __builtin_signbit(v);
}

// Numbers of this size have a product that is not zero.
template <class T>
inline constexpr T well_above_zero = sizeof(T) == 4 ? T(0x1p-62) : T(0x1p-510);

// Whether any number is -0, or negative and so small that a product with it may be.
template <class T>
bool tiny_negatives(const T* p, i64 n) {
    constexpr i64 L = lanes<T>;
    // Among integers, -0 is the least, and numbers further from it are greater.
    const Int<T> end = bits<Int<T>>(-well_above_zero<T>);
    Vec<Int<T>, lanes<T>> found[4] = {};
    i64 i = 0;
    for (; i + 4 * L <= n; i += 4 * L)
        for (int k = 0; k < 4; ++k) found[k] |= bits<Vec<Int<T>, lanes<T>>>(load(p + i + k * L)) < end;
    bool rest = false;
    for (; i < n; ++i) rest |= bits<Int<T>>(p[i]) < end;
    return rest || any((found[0] | found[1]) | (found[2] | found[3]));
}

// What may be wrong with the sums of a row at the edges, and its mending.
template <class T>
struct Mending {
    const Gather& z;
    const T *in, *w;
    WeightLayout l;
    const Epilogue<T>& e;
    Edges edges;
    List<i64> place;

    Mending(const Gather& gather, const T* x, const T* weights, WeightLayout layout, const Epilogue<T>& epilogue)
        : z(gather), in(x), w(weights), l(layout), e(epilogue) {}

    // Before anything else; what is done once is not done again.
    void prepare() {
        if (place.size) return;
        edges.find(z);
        places(z, place);
    }

    const T* weights(i64 row) const { return w + row / z.rows * l.group + row % z.rows * l.row; }

    // Whether it can matter that a sum is -0.
    bool signs_matter(i64 row) const {
        return (!e.bias || is_minus_zero(e.bias[row])) && (!e.shift || is_minus_zero(e.shift[row]));
    }

    bool finite_weights(i64 row) const {
        const T* by = weights(row);
        if (l.channel == l.kernel) return finite(by, z.channels * l.kernel);
        for (i64 c = 0; c < z.channels; ++c)
            if (!finite(by + c * l.channel, l.kernel)) return false;
        return true;
    }

    // Adds the taps of a channel without tiny negatives whose terms cannot be -0.
    void add_certain(i64 row, i64 c, TapSet& certain) const {
        const T* by = weights(row) + c * l.channel;
        for (i64 t = 0; t < z.taps && z.taps <= TapSet::most; ++t)
            if (by[place[t]] >= well_above_zero<T>) certain.add(t);
    }

    // Of one channel only: whether there is anything to fear from padding, and the taps whose terms cannot be -0.
    bool feared(i64 row, bool tiny, TapSet& certain) const {
        const bool signs = signs_matter(row);
        if (signs && !tiny) add_certain(row, 0, certain);
        return (signs && !edges.all_see(certain)) || !finite_weights(row);
    }

    // For the rows of a group: whether a sum may be -0 as far as some channels say, and the taps of which they say it is not.
    void doubt_signs(i64 group, bool* doubtful, TapSet* certain) const {
        constexpr i64 most_channels = 24;
        i64 left = 0;
        for (i64 r = 0; r < z.rows; ++r) left += doubtful[r] = signs_matter(group * z.rows + r), certain[r] = {};
        for (i64 c = 0; c < least(z.channels, most_channels) && left && z.taps <= TapSet::most; ++c) {
            const T* channel = in + (group * z.channels + c) * z.in_channel;
            bool tiny = false;
            for (i64 b = 0; b < edges.images && !tiny; ++b)
                tiny = tiny_negatives(channel + b * edges.image_in, edges.image_size);
            for (i64 r = 0; r < z.rows && !tiny; ++r) {
                if (!doubtful[r]) continue;
                add_certain(group * z.rows + r, c, certain[r]);
                if (edges.all_see(certain[r])) doubtful[r] = false, --left;
            }
        }
    }

    bool nan_at_edges(i64 row, const T* out) const {
        const i64 pitch = z.col().out;
        for (i64 b = 0; b < edges.images; ++b)
            for (i64 i = 0; i < edges.runs.size; ++i) {
                const Edges::Run& run = edges.runs[i];
                const T* y = out + row * z.out_channel + b * edges.image_out + run.to;
                bool nan = false;
                for (i64 k = 0; k < run.length; ++k) nan |= y[k * pitch] != y[k * pitch];
                if (nan) return true;
            }
        return false;
    }

    // The sums at the edges that are NaN, or zero and without a certain tap, once more.
    void mend_row(i64 row, bool nans, bool zeros, const TapSet& certain, T* out) const {
        const i64 pitch = z.col().out, hop = z.col().step * z.col().in;
        for (i64 b = 0; b < edges.images; ++b)
            for (i64 i = 0; i < edges.runs.size; ++i) {
                const Edges::Run& run = edges.runs[i];
                const bool signs = zeros && !edges.kinds[run.kind].set.meets(certain);
                if (!nans && !signs) continue;
                const T* x = in + row / z.rows * z.channels * z.in_channel + b * edges.image_in + run.from;
                const i64 to = row * z.out_channel + b * edges.image_out + run.to;
                for (i64 k = 0; k < run.length; ++k) {
                    T& y = out[to + k * pitch];
                    if (nans && y != y) sum_again(row, edges.kinds[run.kind], x + k * hop, to + k * pitch, y);
                    else if (signs && y == 0) sign_again(row, edges.kinds[run.kind], x + k * hop, to + k * pitch, y);
                }
            }
    }

private:
    T finish(i64 row, i64 to, T y) const { return finish_of(e, row)(y, e.add ? e.add + to : nullptr); }

    // A sum that is zero is -0 only if every term is.
    void sign_again(i64 row, const Edges::Kind& kind, const T* x, i64 to, T& y) const {
        const T* by = weights(row);
        for (i64 c = 0; c < z.channels; ++c)
            for (i64 t = kind.first; t < kind.last; ++t)
                if (!is_minus_zero(x[c * z.in_channel + edges.taps[t].from] * by[c * l.channel + edges.taps[t].place])) return;
        y = finish(row, to, kind.first == kind.last ? no_terms(e) : T(-0.0));
    }

    void sum_again(i64 row, const Edges::Kind& kind, const T* x, i64 to, T& y) const {
        const T* by = weights(row);
        constexpr T infinity = std::numeric_limits<T>::infinity();
        LongSum<T> sum;
        bool rising = false, falling = false;
        for (i64 c = 0; c < z.channels; ++c)
            for (i64 t = kind.first; t < kind.last; ++t) {
                const T v = x[c * z.in_channel + edges.taps[t].from] * by[c * l.channel + edges.taps[t].place];
                rising |= v == infinity, falling |= v == -infinity;
                if (v != v || (rising && falling)) return;  // rightly NaN
                sum.add(v);
            }
        y = finish(row, to, kind.first == kind.last ? no_terms(e) : sum.total());
    }
};

// Only outputs that read an absent cell can be wrong.
template <class T>
void mend_sums(const Gather& z, const T* in, const T* w, WeightLayout l, const Epilogue<T>& e, T* out) {
    Mending<T> mending(z, in, w, l, e);
    mending.prepare();
    const i64 rows = z.groups * z.rows;
    // Whether weights or results are less to look at.
    const bool by_weights = z.channels * l.kernel <= mending.edges.cells * mending.edges.images;
    List<bool> zeros;
    List<TapSet> certain;
    zeros.resize(rows), certain.resize(rows);
    parallel_for(z.groups, [&](i64 g) { mending.doubt_signs(g, zeros.data + g * z.rows, certain.data + g * z.rows); });
    parallel_for(rows, [&](i64 row) {
        const bool nans = (by_weights || mending.nan_at_edges(row, out)) && !mending.finite_weights(row);
        if (nans || zeros[row]) mending.mend_row(row, nans, zeros[row], certain[row], out);
    });
}

// The cells that see a tap, in lines.
struct SeenLines {
    struct Line {
        i64 in, out;
    };
    i64 length;
    List<Line> lines;

    SeenLines(const Gather& z, i64 t) {
        const i64 last = z.axes.size - 1;
        i64 lo[max_axes + 2], hi[max_axes + 2], o[max_axes + 2], in = 0, count = 1;
        for (i64 a = last; a >= 0; --a) {
            const Axis& x = z.axes[a];
            const i64 off = z.off[x.tap + t % x.taps];
            t /= x.taps;
            lo[a] = o[a] = off < 0 ? up(-off, x.step) : 0, hi[a] = least(x.m, up(most(0, x.n - off), x.step));
            in += off * x.in, count *= a < last ? hi[a] - lo[a] : 1;
        }
        length = hi[last] - lo[last];
        for (i64 i = 0; i < count; ++i) {
            i64 from = in, to = z.base;
            for (i64 a = 0; a <= last; ++a) from += o[a] * z.axes[a].step * z.axes[a].in, to += o[a] * z.axes[a].out;
            lines.push({from, to});
            for (i64 a = last - 1; a >= 0 && ++o[a] == hi[a]; --a) o[a] = lo[a];
        }
    }
};

// The sum of x * g over these cells.
template <class T>
T dot_again(const Gather& z, const SeenLines& seen, const T* x, const T* g) {
    constexpr i64 L = lanes<T>;
    const i64 hop = z.col().step * z.col().in, pitch = z.col().out;
    LongSum<Vector<T>> wide;
    LongSum<T> rest;
    for (i64 l = 0; l < seen.lines.size; ++l) {
        const T *from = x + seen.lines[l].in, *by = g + seen.lines[l].out;
        i64 i = 0;
        for (; hop == 1 && pitch == 1 && i + L <= seen.length; i += L) wide.add(load(from + i) * load(by + i));
        for (; i < seen.length; ++i) rest.add(from[i * hop] * by[i * pitch]);
    }
    return fold<int(L)>(wide.total(), [](auto a, auto b) { return a + b; }) + rest.total();
}

// Whether every product x * g of these cells is -0.
template <class T>
bool all_minus_zero(const Gather& z, const SeenLines& seen, const T* x, const T* g) {
    const i64 hop = z.col().step * z.col().in, pitch = z.col().out;
    for (i64 l = 0; l < seen.lines.size; ++l)
        for (i64 i = 0; i < seen.length; ++i)
            if (!is_minus_zero(x[seen.lines[l].in + i * hop] * g[seen.lines[l].out + i * pitch])) return false;
    return true;
}

// The cells of one row of the result.
struct Images {
    i64 count = 1, distance = 0, size = 1;
    explicit Images(const Gather& z) {
        const i64 first = z.axes[0].plain ? 1 : 0;
        if (first) count = z.axes[0].m, distance = z.axes[0].out;
        for (i64 a = first; a < z.axes.size; ++a) size += (z.axes[a].m - 1) * z.axes[a].out;
    }
};

// Whether g has cells that are not finite beside these, and no NaN among them.
template <class T>
bool misses_strange(const Gather& z, const SeenLines& seen, const T* g, const Images& images) {
    const i64 pitch = z.col().out;
    i64 all = 0, met = 0;
    bool nan = false;
    auto strange = [](T v) { return v - v != 0; };
    for (i64 b = 0; b < images.count; ++b)
        for (i64 i = 0; i < images.size; ++i) all += strange(g[b * images.distance + i]);
    for (i64 l = 0; l < seen.lines.size; ++l)
        for (i64 i = 0; i < seen.length; ++i) {
            const T v = g[seen.lines[l].out + i * pitch];
            nan |= v != v, met += strange(v);
        }
    return !nan && met < all;
}

// The same for dw. Where there is one channel, NaN may also come from cells of x that no tap sees.
template <class T>
void mend_weight_grad(const Gather& z, const List<i64>& place, i64 kernel, const T* x, const T* g, T* dw) {
    constexpr i64 some = 16;  // of the terms of a sum, which decide most zeros
    const i64 hop = z.col().step * z.col().in, pitch = z.col().out, words = up(z.channels, 64);
    const Images images(z);
    List<bool> strange;  // rows of g with cells that are not finite
    strange.resize(z.groups * z.rows);
    parallel_for(strange.size, [&](i64 row) {
        strange[row] = false;
        for (i64 b = 0; b < images.count && z.channels > 1 && !strange[row]; ++b)
            strange[row] = !finite(g + row * z.out_channel + b * images.distance, images.size);
        for (i64 k = 0; k < kernel && z.channels == 1; ++k) strange[row] |= dw[row * kernel + k] != dw[row * kernel + k];
    });
    parallel_for(z.taps, [&](i64 t) {
        const SeenLines seen(z, t);
        Spot spots[some];
        i64 count = 0;
        for (i64 l = 0; l < seen.lines.size && count < some; ++l)
            for (i64 i = 0; i < seen.length && count < some; ++i)
                spots[count++] = {seen.lines[l].in + i * hop, seen.lines[l].out + i * pitch};
        List<std::uint64_t> signs;  // [64 channels][spot]: a product is not -0 if its factors have the same sign
        signs.resize(words * some);
        for (i64 row = 0; row < z.groups * z.rows; ++row) {
            const T *from = x + row / z.rows * z.channels * z.in_channel, *by = g + row * z.out_channel;
            T* to = dw + row * z.channels * kernel + place[t];
            if (strange[row] && (z.channels == 1 || misses_strange(z, seen, by, images)))
                for (i64 c = 0; c < z.channels; ++c)
                    if (T& sum = to[c * kernel]; sum != sum) sum = dot_again(z, seen, from + c * z.in_channel, by);
            auto sign_again = [&](i64 c) {
                T& sum = to[c * kernel];
                bool all = sum == 0;
                for (i64 k = 0; k < count && all; ++k)
                    all = is_minus_zero(from[c * z.in_channel + spots[k].in] * by[spots[k].out]);
                if (all && all_minus_zero(z, seen, from + c * z.in_channel, by)) sum = T(-0.0);
            };
            for (i64 i = 0; i < words && row % z.rows == 0; ++i)
                for (i64 k = 0; k < count; ++k) {
                    const T* cell = from + i * 64 * z.in_channel + spots[k].in;
                    std::uint64_t word = 0;
                    for (i64 c = 0; c < least(64, z.channels - i * 64); ++c)
                        word |= std::uint64_t(__builtin_signbit(cell[c * z.in_channel]) != 0) << c;
                    signs[i * some + k] = word;
                }
            std::uint64_t negative[some];
            for (i64 k = 0; k < count; ++k) negative[k] = __builtin_signbit(by[spots[k].out]) ? ~std::uint64_t(0) : 0;
            for (i64 i = 0; i < words; ++i) {
                std::uint64_t doubt = ~std::uint64_t(0) >> (64 - least(64, z.channels - i * 64));
                for (i64 k = 0; k < count; ++k) doubt &= signs[i * some + k] ^ negative[k];
                for (; doubt; doubt &= doubt - 1) sign_again(i * 64 + __builtin_ctzll(doubt));
            }
        }
    });
}

}  // namespace
}  // namespace lunette::LN_ISA
