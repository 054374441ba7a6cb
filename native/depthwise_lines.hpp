// Depthwise 3x3 with AVX2 and AVX-512: sums of a line of cells from where they lie. What is absent is masked out, so nothing is
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

// A vector of pixels of a line: which of them there are, which of them see a tap, which cells of two vectors there are.
template <class T>
struct LinePart {
    i64 first;
    bool whole;  // all of them
    i64 last;    // a vector that begins before it, counted from the first pixel, may be written as a whole
    Mask<T> pixels, sees[3], cells[3], more[3];
};

template <class T>
struct Lines {
    const Gather& z;
    i64 images = 1, image_in = 0, image_out = 0, low = 0;  // offset of the first line
    List<LinePart<T>> parts;
    bool turned = false, fits = false;

    explicit Lines(const Gather& gather) : z(gather) {
        constexpr i64 L = lanes<T>;
        const Axis &row = z.row(), &col = z.col();
        if (row.taps != 3 || col.taps != 3 || col.step > 2 || row.step != col.step || col.in != 1 || col.out != 1) return;
        const i64* rows = z.off.data + row.tap;
        turned = rows[0] > rows[2], low = rows[turned ? 2 : 0];
        if (rows[1] != low + 1 || rows[turned ? 0 : 2] != low + 2 || z.outers() > 1) return;
        if (z.outers()) {
            if (!z.axes[0].plain) return;
            images = z.axes[0].m, image_in = z.axes[0].in, image_out = z.axes[0].out;
        }
        for (i64 o = 0; o < row.m; ++o) {  // every pixel sees a tap
            bool any = false;
            for (i64 k = 0; k < 3; ++k) any |= present(row, o, k);
            if (!any) return;
        }
        for (i64 at = 0; at < col.m; at += L) {
            const i64 first = least(at, most(0, col.m - L));  // some pixels twice, rather than a part that is not full
            const Bits all = bits_up_to(L), pixels = bits_up_to(least(L, col.m - first));
            const bool dense = row.out == col.m;
            const i64 last = row.m * row.out - (pixels == all ? 0 : dense ? L - 1 : row.m * row.out);
            LinePart<T> part{first, true, last, mask_of<T>(pixels), {}, {}, {}};
            Bits any = 0;
            for (i64 k = 0; k < 3; ++k) {
                const i64 cell = first * col.step + z.off[col.tap + k];
                Bits sees = 0;
                for (i64 l = 0; l < L; ++l) sees |= Bits(present(col, first + l, k)) << l;
                const Bits cells = bits_between(most(0, -cell), least(L, col.n - cell));
                const Bits more = bits_between(most(0, -cell - L), least(L, col.n - cell - L));
                any |= sees &= pixels;
                part.whole &= (col.step == 1 ? sees & cells : sees & cells & more) == all;
                part.sees[k] = mask_of<T>(sees), part.cells[k] = mask_of<T>(cells), part.more[k] = mask_of<T>(more);
            }
            if (any != pixels) return;
            parts.push(part);
        }
        fits = true;
    }

    bool present(const Axis& x, i64 o, i64 k) const {
        const i64 i = o * x.step + z.off[x.tap + k];
        return i >= 0 && i < x.n;
    }
};

// The cells that a part of a line sees through tap k, S cells from pixel to pixel.
template <int S, bool Whole, class T>
[[gnu::always_inline]] inline Vector<T> load_tap(const T* x, const LinePart<T>& m, int k) {
    constexpr int L = lanes<T>;
    if constexpr (S == 1) return Whole ? load(x) : load_some(x, m.cells[k]);
    Vector<T> even, odd;
    if constexpr (Whole) unzip<L>(load(x), load(x + L), even, odd);
    else unzip<L>(load_some(x, m.cells[k]), load_some(x + L, m.more[k]), even, odd);
    return even;
}

// G lines together, from o on: a line of the source serves all that see it, and no sum waits for another.
template <int S, int G, bool Whole, class T>
[[gnu::always_inline]] inline void depthwise_rows(const Lines<T>& d, const LinePart<T>& m, i64 o, const T* const (&column)[3],
                                                  const Vector<T> (&by)[9], const Finish<T>& finish, const T* add, T* y) {
    const Axis& row = d.z.row();
    Vector<T> sums[G];
    for (int g = 0; g < G; ++g) sums[g] = broadcast(T(-0.0));
#pragma GCC unroll 16
    for (int u = 0; u < (G - 1) * S + 3; ++u) {
        const i64 i = o * S + d.low + u;
        if (i < 0 || i >= row.n) continue;
#pragma GCC unroll 3
        for (int k = 0; k < 3; ++k) {
            const Vector<T> x = load_tap<S, Whole>(column[k] + i * row.in, m, k);
#pragma GCC unroll 4
            for (int g = 0; g < G; ++g) {
                if (u < g * S || u >= g * S + 3) continue;
                const Vector<T>& w = by[3 * (u - g * S) + k];
                sums[g] = Whole ? sums[g] + x * w : add_some(sums[g], x, w, m.sees[k]);
            }
        }
    }
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g) {
        const i64 to = (o + g) * row.out;
        // What is written beyond a short line is the next one's, which comes later: to choose lanes takes much longer.
        const bool fits = Whole || to < m.last;
        Vector<T> v = finish.moved(sums[g]);
        if (add) v += fits ? load(add + to) : load_some(add + to, m.pixels);
        v = finish.ended(v);
        if (fits) store(y + to, v);
        else store_some(y + to, m.pixels, v);
    }
}

// A part of lines first..last.
template <int S, bool Whole, class T>
[[gnu::noinline]] void depthwise_part(const Lines<T>& d, const LinePart<T>& p, i64 first, i64 last, const T* x,
                                      const Vector<T> (&by)[9], const Finish<T>& finish, const T* add, T* y) {
    const T* column[3];
#pragma GCC unroll 3
    for (int k = 0; k < 3; ++k) column[k] = x + p.first * S + d.z.off[d.z.col().tap + k];
    if (add) add += p.first;
    y += p.first;
    for (i64 o = first; o < last && last - first >= 4; o += 4)  // some lines twice, rather than one at a time
        depthwise_rows<S, 4, Whole>(d, p, least(o, last - 4), column, by, finish, add, y);
    for (i64 o = first; o < last && last - first < 4; ++o) depthwise_rows<S, 1, Whole>(d, p, o, column, by, finish, add, y);
}

template <int S, class T>
void depthwise_plane(const Lines<T>& d, const T* x, const T* weights, const Finish<T>& finish, const T* add, T* y) {
    const Axis& row = d.z.row();
    Vector<T> by[9];
#pragma GCC unroll 9
    for (int t = 0; t < 9; ++t) by[t] = broadcast(weights[t]);
    // So many lines that all parts find their cells in the first cache.
    const i64 some = most(4, 16 * 1024 / (S * row.in * i64(sizeof(T))) / 4 * 4);
    for (i64 first = 0; first < row.m; first += some) {
        const i64 last = least(row.m, first + some);
        // Parts go down, not along the lines: so as many cells as this takes are asked for that come next.
        const T* const next = x + last * S * row.in;
        for (i64 i = 0; i < (last - first) * S * row.in; i += 64 / i64(sizeof(T))) __builtin_prefetch(next + i);
        for (i64 b = 0; b < d.parts.size; ++b) {
            if (d.parts[b].whole) depthwise_part<S, true>(d, d.parts[b], first, last, x, by, finish, add, y);
            else depthwise_part<S, false>(d, d.parts[b], first, last, x, by, finish, add, y);
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
    const i64 cells = z.row().m * z.col().m, join = most(1, least(z.groups, 20000 / (cells * 9))), chunks = up(z.groups, join);
    parallel_for(d.images * chunks, [&](i64 i) {
        const i64 image = i / chunks, first = i % chunks * join;
        for (i64 g = first; g < least(z.groups, first + join); ++g) {
            T weights[9];
            for (i64 t = 0; t < 9; ++t) weights[t] = w[g * l.group + place[d.turned ? 3 * (2 - t / 3) + t % 3 : t]];
            const i64 to = z.base + image * d.image_out + g * z.out_channel;
            const T* x = in + image * d.image_in + g * z.in_channel;
            const T* add = e.add ? e.add + to : nullptr;
            if (z.col().step == 1) depthwise_plane<1>(d, x, weights, finish_of(e, g), add, out + to);
            else depthwise_plane<2>(d, x, weights, finish_of(e, g), add, out + to);
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
