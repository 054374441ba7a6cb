// Depthwise 3x3, 5x5 and 7x7 with AVX2 and AVX-512: sums of a line of cells from where they lie. What is absent is masked out, so nothing is
// copied and no sum is spoiled; small planes, most of whose cells lie at an edge, gain most.
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

inline constexpr int most_line_taps = 7;

// A vector of pixels of a line: which of them there are, which of them see a tap, which cells of two vectors there are.
template <class T>
struct LinePart {
    i64 first;
    bool whole;  // all of them
    i64 last;    // a vector that begins before it, counted from the first pixel, may be written as a whole
    Mask<T> pixels, sees[most_line_taps], cells[most_line_taps], more[most_line_taps];
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
            LinePart<T> part{first, true, last, mask_of<T>(pixels), {}, {}, {}};
            Bits any = 0;
            for (i64 k = 0; k < col.taps; ++k) {
                const i64 cell = first * col.step + col_low + k;
                Bits sees = 0;
                for (i64 l = 0; l < L; ++l) sees |= Bits(present(col, cell + l * col.step)) << l;
                const Bits cells = bits_between(most(0, -cell), least(L, col.n - cell));
                const Bits more = bits_between(most(0, -cell - L), least(L, col.n - cell - L));
                any |= sees &= pixels;
                sees &= met;
                part.whole &= (col.step == 1 ? sees & cells : sees & cells & more) == all;
                part.sees[k] = mask_of<T>(sees), part.cells[k] = mask_of<T>(cells), part.more[k] = mask_of<T>(more);
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

// A strip of a plane, as wide as a vector of pixels, that is walked down: where it begins, and what becomes of its sums.
template <class T>
struct Strip {
    const LinePart<T>* part;
    const T* x;           // the first tap of the first line
    const Vector<T>* by;  // weights
    const Finish<T>* finish;
    const T* add;
    T* y;
};

// The masks of a part, in registers where there are some for masks.
template <int K, int S, class T>
struct Seen {
    Mask<T> sees[K], cells[S == 1 ? 1 : K], more[S == 1 ? 1 : K];
    explicit Seen(const LinePart<T>& part) {
        for (int k = 0; k < K; ++k) sees[k] = part.sees[k];
        for (int k = 0; k < K && S > 1; ++k) cells[k] = part.cells[k], more[k] = part.more[k];
    }
};

// The cells that the pixels of a strip see through tap k of a line, S cells from pixel to pixel; of two taps, each second one
// comes with the first. To read across two lines of memory takes two turns, so each is read once.
template <int K, int S, bool Whole, class T>
[[gnu::always_inline]] inline void load_tap(const T* x, const Seen<K, S, T>& m, int k, Vector<T> (&cells)[2]) {
    constexpr int L = lanes<T>;
    if constexpr (S == 1) cells[k % 2] = in_register(Whole ? load(x + k) : load_some(x + k, m.sees[k]));
    else if (k % 2) return;
    else if constexpr (Whole) unzip<L>(load(x + k), load(x + k + L), cells[0], cells[1]);
    else unzip<L>(load_some(x + k, m.cells[k]), load_some(x + k + L, m.more[k]), cells[0], cells[1]);
}

// The lines first..last-1 of N strips, from top to bottom, K times K taps: a line of cells is read once, and serves the sums
// of all the lines that see it. Sums wait for one another, so there are two strips where there can be; either of one plane, or
// of planes with weights of their own. Whatever is used again is a copy, which no number that is written can be part of.
template <int K, int S, int N, bool Whole, bool Planes, class T>
[[gnu::noinline]] void depthwise_walk(const Lines<T>& d, const Strip<T> (&strips)[N], i64 first, i64 last) {
    constexpr int J = (K - 1) / S + 1;  // lines whose sums are not finished
    constexpr int own = Planes ? N : 1;
    constexpr bool few = K == 3 && vector_bytes == 64;  // weights, which stay in registers
    const Axis& row = d.z.row();
    const i64 n = row.n, in = row.in, out = row.out, low = d.low, whole_until = strips[0].part->last;
    const Mask<T> pixels[2] = {strips[0].part->pixels, strips[N - 1].part->pixels};
    const Seen<K, S, T> seen[2] = {Seen<K, S, T>(*strips[0].part), Seen<K, S, T>(*strips[N - 1].part)};
    const T *x[N], *add[N];
    T* y[N];
    Finish<T> finish[own];
    Vector<T> by[own][few ? K * K : 1], sums[N][J];
    for (int s = 0; s < N; ++s) {
        x[s] = strips[s].x, add[s] = strips[s].add, y[s] = strips[s].y;
        if (s < own) finish[s] = *strips[s].finish;
#pragma GCC unroll 9
        for (int t = 0; few && s < own && t < K * K; ++t) by[s][t] = strips[s].by[t];
#pragma GCC unroll 8
        for (int j = 0; j < J; ++j) sums[s][j] = broadcast(T(-0.0));
    }
    for (i64 o = first - (J - 1); o < last; ++o) {
#pragma GCC unroll 2
        for (int e = 0; e < S; ++e) {
            const int reach = K - S + e;
            const i64 i = o * S + low + reach;
            if (i < 0 || i >= n) continue;
            Vector<T> cells[N][2];
#pragma GCC unroll 7
            for (int k = 0; k < K; ++k) {
#pragma GCC unroll 2
                for (int s = 0; s < N; ++s) load_tap<K, S, Whole>(x[s] + i * in, seen[Planes ? 0 : s], k, cells[s]);
#pragma GCC unroll 8
                for (int j = 0; j < J; ++j) {
                    const int u = reach - S * j, t = K * u + k;
                    if (u < 0) continue;
#pragma GCC unroll 2
                    for (int s = 0; s < N; ++s) {
                        const Vector<T>& w = few ? by[Planes ? s : 0][few ? t : 0] : strips[Planes ? s : 0].by[t];
                        if constexpr (Whole) sums[s][j] += cells[s][k % 2] * w;
                        else sums[s][j] = add_some(sums[s][j], cells[s][k % 2], w, seen[Planes ? 0 : s].sees[k]);
                    }
                }
            }
        }
#pragma GCC unroll 2
        for (int s = 0; s < N; ++s) {
            if (o >= first) {
                const i64 to = o * out;
                // What is written beyond a short line is the next one's, which comes later: to choose lanes takes much longer.
                const bool fits = Whole || to < whole_until;
                Vector<T> v = finish[Planes ? s : 0].moved(sums[s][0]);
                if (add[s]) v += fits ? load(add[s] + to) : load_some(add[s] + to, pixels[s]);
                v = finish[Planes ? s : 0].ended(v);
                if (fits) store(y[s] + to, v);
                else store_some(y[s] + to, pixels[s], v);
            }
#pragma GCC unroll 8
            for (int j = 0; j + 1 < J; ++j) sums[s][j] = sums[s][j + 1];
            sums[s][J - 1] = broadcast(T(-0.0));
        }
    }
}

// A plane, or two planes of which each is one strip.
template <int K, int S, class T>
void depthwise_planes(const Lines<T>& d, Strip<T>* planes, int count) {
    const Axis& row = d.z.row();
    if constexpr (K == 3)
        if (count == 2) {
            const Strip<T> both[2] = {planes[0], planes[1]};
            if (both[0].part->whole) return depthwise_walk<K, S, 2, true, true>(d, both, 0, row.m);
            return depthwise_walk<K, S, 2, false, true>(d, both, 0, row.m);
        }
    auto strip = [&](const Strip<T>& plane, i64 b) {
        const i64 at = d.parts[b].first;
        return Strip<T>{&d.parts[b], plane.x + at * S, plane.by, plane.finish, plane.add ? plane.add + at : nullptr, plane.y + at};
    };
    // So many lines that all strips find their cells in the first cache.
    const i64 some = most(4, 24 * 1024 / (S * row.in * i64(sizeof(T))));
    for (int p = 0; p < count; ++p)
        for (i64 first = 0; first < row.m; first += some) {
            const i64 last = least(row.m, first + some);
            // Strips go down, not along the lines: so as many cells as these take are asked for that come next.
            const T* const next = planes[p].x + last * S * row.in;
            for (i64 i = 0; i < (last - first) * S * row.in; i += 64 / i64(sizeof(T))) __builtin_prefetch(next + i);
            for (i64 b = 0; b < d.parts.size; b += 2) {
                const Strip<T> one[1] = {strip(planes[p], b)};
                if (b + 1 == d.parts.size) {
                    if (one[0].part->whole) depthwise_walk<K, S, 1, true, false>(d, one, first, last);
                    else depthwise_walk<K, S, 1, false, false>(d, one, first, last);
                    break;
                }
                const Strip<T> two[2] = {one[0], strip(planes[p], b + 1)};
                if (two[1].part->whole) depthwise_walk<K, S, 2, true, false>(d, two, first, last);
                else depthwise_walk<K, S, 2, false, false>(d, two, first, last);
            }
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
    const i64 join = up(most(1, least(z.groups, 20000 / (cells * K * K))), 2) * 2, chunks = up(z.groups, join);
    const bool pairs = d.parts.size == 1 && K == 3;
    parallel_for(d.images * chunks, [&](i64 i) {
        const i64 image = i / chunks, first = i % chunks * join, last = least(z.groups, first + join);
        Vector<T> by[2][most_line_taps * most_line_taps];
        Finish<T> finish[2];
        Strip<T> planes[2];
        for (i64 g = first, count; g < last; g += count) {
            count = pairs ? least(2, last - g) : 1;
            for (int c = 0; c < count; ++c) {
                const i64 channel = g + c, to = z.base + image * d.image_out + channel * z.out_channel;
                for (i64 u = 0; u < K; ++u)
                    for (i64 k = 0; k < K; ++k)
                        by[c][K * u + k] = broadcast(
                            w[channel * l.group + place[K * (d.turned_rows ? K - 1 - u : u) + (d.turned_cols ? K - 1 - k : k)]]);
                finish[c] = finish_of(e, channel);
                planes[c] = {&d.parts[0],     in + image * d.image_in + channel * z.in_channel + d.col_low, by[c], &finish[c],
                             e.add ? e.add + to : nullptr, out + to};
            }
            const int step = int(z.col().step);
            auto run = [&]<int Taps>() {
                if (step == 1) depthwise_planes<Taps, 1>(d, planes, int(count));
                else depthwise_planes<Taps, 2>(d, planes, int(count));
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
