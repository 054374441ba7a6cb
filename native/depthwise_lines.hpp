// Depthwise 3x3 with AVX-512: sums of a line of cells from where they lie. What is absent is masked out, so nothing is copied
// and no sum is spoiled; small planes, most of whose cells lie at an edge, gain most.
#pragma once
#include "epilogue.hpp"
#include "gather.hpp"

namespace lunette::LN_ISA {
namespace {

#if defined(__AVX512F__)

// Lanes are chosen by bits.
using Bits = unsigned;
inline Bits bits_up_to(i64 n) { return n <= 0 ? 0 : n >= 32 ? ~0u : (1u << n) - 1; }
inline Bits bits_between(i64 first, i64 last) { return bits_up_to(last) & ~bits_up_to(first); }

[[gnu::always_inline]] inline Vector<float> load_some(const float* p, Bits m) { return _mm512_maskz_loadu_ps(__mmask16(m), p); }
[[gnu::always_inline]] inline Vector<double> load_some(const double* p, Bits m) { return _mm512_maskz_loadu_pd(__mmask8(m), p); }
[[gnu::always_inline]] inline void store_some(float* p, Bits m, Vector<float> v) { _mm512_mask_storeu_ps(p, __mmask16(m), v); }
[[gnu::always_inline]] inline void store_some(double* p, Bits m, Vector<double> v) { _mm512_mask_storeu_pd(p, __mmask8(m), v); }
// sum + x * w in those lanes, sum in the others.
[[gnu::always_inline]] inline Vector<float> add_some(Vector<float> sum, Vector<float> x, Vector<float> w, Bits m) {
    return _mm512_mask3_fmadd_ps(x, w, sum, __mmask16(m));
}
[[gnu::always_inline]] inline Vector<double> add_some(Vector<double> sum, Vector<double> x, Vector<double> w, Bits m) {
    return _mm512_mask3_fmadd_pd(x, w, sum, __mmask8(m));
}
template <int N, class V>
[[gnu::always_inline]] inline V every_other(V a, V b) {
    if constexpr (N == 16) return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    else return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14);
}

// A vector of pixels of a line: which of them there are, which of them see a tap, which cells of two vectors there are.
struct LinePart {
    i64 first;
    Bits pixels, sees[3], cells[3], more[3];
};

struct Lines {
    const Gather& z;
    i64 images = 1, image_in = 0, image_out = 0, low = 0;  // offset of the first line
    List<LinePart> parts;
    bool turned = false, fits = false;

    Lines(const Gather& gather, i64 lanes) : z(gather) {
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
        for (i64 first = 0; first < col.m; first += lanes) {
            LinePart part{first, bits_up_to(least(lanes, col.m - first)), {}, {}, {}};
            for (i64 k = 0; k < 3; ++k) {
                const i64 at = first * col.step + z.off[col.tap + k];
                for (i64 l = 0; l < lanes; ++l) part.sees[k] |= Bits(present(col, first + l, k)) << l;
                part.sees[k] &= part.pixels;
                part.cells[k] = bits_between(most(0, -at), least(lanes, col.n - at));
                part.more[k] = bits_between(most(0, -at - lanes), least(lanes, col.n - at - lanes));
            }
            if ((part.sees[0] | part.sees[1] | part.sees[2]) != part.pixels) return;
            parts.push(part);
        }
        fits = true;
    }

    bool present(const Axis& x, i64 o, i64 k) const {
        const i64 i = o * x.step + z.off[x.tap + k];
        return i >= 0 && i < x.n;
    }
};

// The cells that a part of a line sees through one tap, S cells from pixel to pixel.
template <int S, class T>
[[gnu::always_inline]] inline Vector<T> load_tap(const T* x, Bits cells, Bits more) {
    if constexpr (S == 1) return load_some(x, cells);
    else return every_other<lanes<T>>(load_some(x, cells), load_some(x + lanes<T>, more));
}

// G lines together, from o on: a line of the source serves all that see it, and no sum waits for another.
template <int S, int G, class T>
[[gnu::always_inline]] inline void depthwise_rows(const Lines& d, const LinePart& p, i64 o, const T* const (&column)[3],
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
            const Vector<T> x = load_tap<S>(column[k] + i * row.in, p.cells[k], p.more[k]);
#pragma GCC unroll 4
            for (int g = 0; g < G; ++g)
                if (u >= g * S && u < g * S + 3) sums[g] = add_some(sums[g], x, by[3 * (u - g * S) + k], p.sees[k]);
        }
    }
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g) {
        const i64 to = (o + g) * row.out + p.first;
        Vector<T> v = finish.moved(sums[g]);
        if (add) v += load_some(add + to, p.pixels);
        store_some(y + to, p.pixels, finish.ended(v));
    }
}

template <int S, class T>
void depthwise_plane(const Lines& d, const T* x, const T* weights, const Finish<T>& finish, const T* add, T* y) {
    const Axis &row = d.z.row(), &col = d.z.col();
    Vector<T> by[9];
#pragma GCC unroll 9
    for (int t = 0; t < 9; ++t) by[t] = broadcast(weights[t]);
    for (i64 b = 0; b < d.parts.size; ++b) {
        const LinePart p = d.parts[b];
        const T* column[3];
#pragma GCC unroll 3
        for (int k = 0; k < 3; ++k) column[k] = x + p.first * S + d.z.off[col.tap + k];
        i64 o = 0;
        for (; o + 4 <= row.m; o += 4) depthwise_rows<S, 4>(d, p, o, column, by, finish, add, y);
        for (; o < row.m; ++o) depthwise_rows<S, 1>(d, p, o, column, by, finish, add, y);
    }
}

// False, and nothing is done: there are other taps.
template <class T>
bool depthwise_by_lines(const Gather& z, const T* in, const T* w, WeightLayout l, const Epilogue<T>& e, T* out) {
    const Lines d(z, lanes<T>);
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
