// Depthwise 3x3, 5x5 and 7x7 with AVX2 and AVX-512: sums of a line of cells from where they lie. What is absent is masked out,
// so nothing is copied and no sum is spoiled; small planes, most of whose cells lie at an edge, gain most.
#pragma once
#include "epilogue.hpp"
#include "gather.hpp"

namespace lunette::LN_ISA {
namespace {

#if defined(__AVX2__)  // or more

// Lanes are chosen by bits, or by what the machine makes of them.
using Bits = unsigned;
inline Bits bits_up_to(i64 n) { return n <= 0 ? 0 : n >= 32 ? ~0u : (1u << n) - 1; }
inline Bits bits_between(i64 first, i64 last) { return bits_up_to(last) & ~bits_up_to(first); }

#if defined(__AVX512F__)

template <class T>
using Mask = std::conditional_t<sizeof(T) == 4, __mmask16, __mmask8>;
template <class T>
Mask<T> mask_of(Bits b) {
    return Mask<T>(b);
}
[[gnu::always_inline]] inline Vector<float> load_some(const float* p, __mmask16 m) { return _mm512_maskz_loadu_ps(m, p); }
[[gnu::always_inline]] inline Vector<double> load_some(const double* p, __mmask8 m) { return _mm512_maskz_loadu_pd(m, p); }
[[gnu::always_inline]] inline void store_some(float* p, __mmask16 m, Vector<float> v) { _mm512_mask_storeu_ps(p, m, v); }
[[gnu::always_inline]] inline void store_some(double* p, __mmask8 m, Vector<double> v) { _mm512_mask_storeu_pd(p, m, v); }
// sum + x * w in those lanes, sum in the others.
[[gnu::always_inline]] inline Vector<float> add_some(Vector<float> sum, Vector<float> x, Vector<float> w, __mmask16 m) {
    return _mm512_mask3_fmadd_ps(x, w, sum, m);
}
[[gnu::always_inline]] inline Vector<double> add_some(Vector<double> sum, Vector<double> x, Vector<double> w, __mmask8 m) {
    return _mm512_mask3_fmadd_pd(x, w, sum, m);
}

#else

// The sign of a lane says whether it is chosen. Not a vector, so that lists of them may lie anywhere.
template <class T>
struct Mask {
    Int<T> chosen[lanes<T>];
    __m256i vector() const { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(chosen)); }
};
template <class T>
Mask<T> mask_of(Bits b) {
    Mask<T> m;
    for (int l = 0; l < lanes<T>; ++l) m.chosen[l] = b >> l & 1 ? Int<T>(-1) : Int<T>(0);
    return m;
}
using SomeFloats = const Mask<float>&;
using SomeDoubles = const Mask<double>&;
[[gnu::always_inline]] inline Vector<float> load_some(const float* p, SomeFloats m) { return _mm256_maskload_ps(p, m.vector()); }
[[gnu::always_inline]] inline Vector<double> load_some(const double* p, SomeDoubles m) { return _mm256_maskload_pd(p, m.vector()); }
[[gnu::always_inline]] inline void store_some(float* p, SomeFloats m, Vector<float> v) { _mm256_maskstore_ps(p, m.vector(), v); }
[[gnu::always_inline]] inline void store_some(double* p, SomeDoubles m, Vector<double> v) { _mm256_maskstore_pd(p, m.vector(), v); }
[[gnu::always_inline]] inline Vector<float> add_some(Vector<float> sum, Vector<float> x, Vector<float> w, SomeFloats m) {
    return _mm256_blendv_ps(sum, _mm256_fmadd_ps(x, w, sum), _mm256_castsi256_ps(m.vector()));
}
[[gnu::always_inline]] inline Vector<double> add_some(Vector<double> sum, Vector<double> x, Vector<double> w, SomeDoubles m) {
    return _mm256_blendv_pd(sum, _mm256_fmadd_pd(x, w, sum), _mm256_castsi256_pd(m.vector()));
}

#endif

inline constexpr int most_line_taps = 7, most_line_vectors = 4;
inline constexpr i64 second_cache = 1 << 20;  // bytes; what is larger is asked for ahead

// A vector of pixels of a line: which of them there are, which of them see a tap, and which of the cells that they see there
// are, in vectors.
template <class T>
struct LinePart {
    i64 first;
    bool whole;  // all of them
    i64 last;    // a vector that begins before it, counted from the first pixel, may be written as a whole
    Mask<T> pixels, sees[most_line_taps], cells[most_line_vectors];
};

template <class T>
struct Lines {
    const Gather& z;
    i64 images = 1, image_in = 0, image_out = 0, low = 0, col_low = 0;  // offsets of the first line, and of the first cell
    List<LinePart<T>> parts;  // the whole ones first
    bool turned_rows = false, turned_cols = false, fits = false;

    // Parts may share pixels, unless each is to be met once.
    explicit Lines(const Gather& gather, bool once = false) : z(gather) {
        constexpr i64 L = lanes<T>;
        const Axis &row = z.row(), &col = z.col();
        if (row.taps != col.taps || (col.taps != 3 && col.taps != 5 && col.taps != 7)) return;
        if (col.step > 2 || row.step != col.step || col.in != 1 || col.out != 1) return;
        if (!one_by_one(row, low, turned_rows) || !one_by_one(col, col_low, turned_cols) || z.outers() > 1) return;
        if (z.outers()) {
            if (!z.axes[0].plain) return;
            images = z.axes[0].m, image_in = z.axes[0].in, image_out = z.axes[0].out;
        }
        for (i64 o = 0; o < row.m; ++o) {  // every pixel sees a tap
            bool any = false;
            for (i64 k = 0; k < row.taps; ++k) any |= present(row, o * row.step + low + k);
            if (!any) return;
        }
        List<LinePart<T>> edges;
        for (i64 at = 0; at < col.m; at += L) {
            const i64 first = least(at, most(0, col.m - L));  // some pixels twice, rather than a part that is not full
            const Bits all = bits_up_to(L), pixels = bits_up_to(least(L, col.m - first));
            const Bits met = once ? bits_between(at - first, L) : all;
            const bool dense = row.out == col.m;
            const i64 last = row.m * row.out - (pixels == all ? 0 : dense ? L - 1 : row.m * row.out);
            LinePart<T> part{first, true, last, mask_of<T>(pixels), {}, {}};
            const i64 cell = first * col.step + col_low, seen = (L - 1) * col.step + col.taps;
            for (i64 v = 0; v * L < seen; ++v)
                part.cells[v] = mask_of<T>(bits_between(most(0, -cell - v * L), least(L, least(seen, col.n - cell) - v * L)));
            Bits any = 0;
            for (i64 k = 0; k < col.taps; ++k) {
                Bits sees = 0;
                for (i64 l = 0; l < L; ++l) sees |= Bits(present(col, cell + k + l * col.step)) << l;
                any |= sees &= pixels;
                sees &= met;
                part.whole &= sees == all, part.sees[k] = mask_of<T>(sees);
            }
            if (any != pixels) return;
            (part.whole ? parts : edges).push(part);
        }
        for (i64 b = 0; b < edges.size; ++b) parts.push(edges[b]);
        fits = true;
    }

    // Whether each tap is one further than the one before it, or one less far.
    bool one_by_one(const Axis& x, i64& first, bool& turned) const {
        const i64* off = z.off.data + x.tap;
        turned = off[1] < off[0], first = off[turned ? x.taps - 1 : 0];
        for (i64 k = 1; k < x.taps; ++k)
            if (off[k] - off[k - 1] != (turned ? -1 : 1)) return false;
        return true;
    }

    bool present(const Axis& x, i64 i) const { return i >= 0 && i < x.n; }
};

// The masks of a part, in registers where there are some for masks, and the cells of a line that its pixels see.
template <int K, int S, bool Whole, class T>
struct Seen {
    static constexpr int L = lanes<T>, cells = S * (L - 1) + K, vectors = (cells + L - 1) / L;
    static_assert(vectors <= most_line_vectors);
    Mask<T> sees[K], there[vectors];
    explicit Seen(const LinePart<T>& part) {
        for (int k = 0; k < K; ++k) sees[k] = part.sees[k];
        for (int v = 0; v < vectors; ++v) there[v] = part.cells[v];
    }

    // The cells of each tap, S cells from pixel to pixel. Each cell is read once and moved in registers: where vectors of 64
    // bytes that overlap are read instead, a line of 3x3 taps takes twice as long on Zen 5.
    [[gnu::always_inline]] void load_taps(const T* x, Vector<T> (&taps)[K]) const {
        Vector<T> line[4] = {};
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v)
            line[v] = in_register(Whole && (v + 1) * L <= cells ? load(x + v * L) : load_some(x + v * L, there[v]));
        if constexpr (S == 2) {
            Vector<T> even[2], odd[2];
            unzip<L>(line[0], line[1], even[0], odd[0]);
            unzip<L>(line[2], line[3], even[1], odd[1]);
            line[0] = even[0], line[1] = even[1], line[2] = odd[0], line[3] = odd[1];
        }
        shift_all(line, taps, typename CountTo<K>::type{});
    }

    template <int... k>
    [[gnu::always_inline]] static void shift_all(const Vector<T> (&line)[4], Vector<T> (&taps)[K], Numbers<k...>) {
        if constexpr (S == 1) ((taps[k] = lanes_from<k % L>(line[k / L], line[k / L + 1])), ...);
        else ((taps[k] = lanes_from<k / 2>(line[k % 2 * 2], line[k % 2 * 2 + 1])), ...);
    }
};

// So many lines of a strip of a plane, which is as wide as a vector of pixels, from top to bottom, K times K taps: a line of
// cells is read once, and serves the sums of all the lines that see it. x: the first tap of the first line.
template <int K, int S, bool Whole, class T>
[[gnu::noinline]] void depthwise_walk(const Lines<T>& d, const LinePart<T>& part, i64 first, i64 last, const T* x,
                                      const T* weights, T* y) {
    constexpr int J = (K - 1) / S + 1;  // lines whose sums are not finished
    constexpr bool few = K == 3 && vector_bytes == 64;  // weights, which stay in registers
    const i64 n = d.z.row().n, in = d.z.row().in, out = d.z.row().out, low = d.low, whole_until = part.last;
    const Mask<T> pixels = part.pixels;
    const Seen<K, S, Whole, T> seen(part);
    Vector<T> by[few ? K * K : 1], sums[J];
#pragma GCC unroll 9
    for (int t = 0; few && t < K * K; ++t) by[t] = broadcast(weights[t]);
#pragma GCC unroll 8
    for (int j = 0; j < J; ++j) sums[j] = broadcast(T(-0.0));
    for (i64 o = first - (J - 1); o < last; ++o) {
#pragma GCC unroll 2
        for (int e = 0; e < S; ++e) {
            const int reach = K - S + e;
            const i64 i = o * S + low + reach;
            if (i < 0 || i >= n) continue;
            Vector<T> taps[K];
            seen.load_taps(x + i * in, taps);
#pragma GCC unroll 7
            for (int k = 0; k < K; ++k)
#pragma GCC unroll 8
                for (int j = 0; j < J; ++j) {
                    const int u = reach - S * j, t = K * u + k;
                    if (u < 0) continue;
                    const Vector<T> w = few ? by[few ? t : 0] : broadcast(weights[t]);
                    if constexpr (Whole) sums[j] += taps[k] * w;
                    else sums[j] = add_some(sums[j], taps[k], w, seen.sees[k]);
                }
        }
        // What is written beyond a short line is the next one's, which comes later: to choose lanes takes much longer.
        if (o >= first && (Whole || o * out < whole_until)) store(y + o * out, sums[0]);
        else if (o >= first) store_some(y + o * out, pixels, sums[0]);
#pragma GCC unroll 8
        for (int j = 0; j + 1 < J; ++j) sums[j] = sums[j + 1];
        sums[J - 1] = broadcast(T(-0.0));
    }
}

// What becomes of the sums of some lines, which lie `pitch` apart.
template <class T>
void finish_lines(const Finish<T>& finish, const T* add, i64 lines, i64 m, i64 pitch, T* y) {
    if (!add && !finish.changes()) return;
    if (pitch == m) m *= lines, lines = 1;
    for (; lines > 0; --lines, y += pitch, add = add ? add + pitch : nullptr) {
        i64 i = 0;
        for (; i + lanes<T> <= m; i += lanes<T>) {
            Vector<T> v = finish.moved(load(y + i));
            if (add) v += load(add + i);
            store(y + i, finish.ended(v));
        }
        for (; i < m; ++i) y[i] = finish(y[i], add ? add + i : nullptr);
    }
}

template <int K, int S, class T>
void depthwise_plane(const Lines<T>& d, const T* x, const T* weights, const Finish<T>& finish, const T* add, T* y) {
    const Axis& row = d.z.row();
    // So many lines that all strips find their cells in the first cache.
    const i64 some = most(4, 24 * 1024 / (S * row.in * i64(sizeof(T))));
    const bool far = d.z.in_size * i64(sizeof(T)) > second_cache;
    for (i64 first = 0; first < row.m; first += some) {
        const i64 last = least(row.m, first + some);
        // Strips go down, not along the lines: so as many cells as these take are asked for that come next.
        const T* const next = x + last * S * row.in;
        for (i64 i = 0; far && i < (last - first) * S * row.in; i += 64 / i64(sizeof(T))) __builtin_prefetch(next + i);
        for (i64 b = 0; b < d.parts.size; ++b) {
            const LinePart<T>& part = d.parts[b];
            const i64 at = part.first;
            const auto walk = part.whole ? depthwise_walk<K, S, true, T> : depthwise_walk<K, S, false, T>;
            walk(d, part, first, last, x + at * S, weights, y + at);
        }
        finish_lines(finish, add ? add + first * row.out : nullptr, last - first, d.z.col().m, row.out, y + first * row.out);
    }
}

// False, and nothing is done: there are other taps.
template <class T>
bool depthwise_by_lines(const Gather& z, const T* in, const T* w, WeightLayout l, const Epilogue<T>& e, T* out) {
    const Lines<T> d(z);
    if (!d.fits) return false;
    List<i64> place;
    places(z, place);
    const i64 K = z.col().taps, cells = z.row().m * z.col().m;
    const i64 join = most(1, least(z.groups, 20000 / (cells * K * K))), chunks = up(z.groups, join);
    parallel_for(d.images * chunks, [&](i64 i) {
        const i64 image = i / chunks, first = i % chunks * join;
        T by[most_line_taps * most_line_taps];
        for (i64 channel = first; channel < least(z.groups, first + join); ++channel) {
            const i64 to = z.base + image * d.image_out + channel * z.out_channel;
            const T *x = in + image * d.image_in + channel * z.in_channel + d.col_low, *own = w + channel * l.group;
            for (i64 u = 0; u < K; ++u)
                for (i64 k = 0; k < K; ++k)
                    by[K * u + k] = own[place[K * (d.turned_rows ? K - 1 - u : u) + (d.turned_cols ? K - 1 - k : k)]];
            auto run = [&]<int Taps>() {
                const auto plane = z.col().step == 1 ? depthwise_plane<Taps, 1, T> : depthwise_plane<Taps, 2, T>;
                plane(d, x, by, finish_of(e, channel), e.add ? e.add + to : nullptr, out + to);
            };
            if (K == 3) run.template operator()<3>();
            else if (K == 5) run.template operator()<5>();
            else run.template operator()<7>();
        }
    });
    return true;
}

#else

template <class T>
bool depthwise_by_lines(const Gather&, const T*, const T*, WeightLayout, const Epilogue<T>&, T*) {
    return false;
}

#endif

}  // namespace
}  // namespace lunette::LN_ISA
