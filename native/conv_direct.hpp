// The sums of a convolution of planes, vectors across channels of the result and one broadcast cell per pixel: no cell is
// copied or packed, and taps that are absent are left out, so that nothing is multiplied in vain and no sum is spoiled.
#pragma once
#include "conv_taps.hpp"
#include "gather.hpp"

namespace lunette::LN_ISA {
namespace {

// One block of pixels of a line, over some channels of the source.
template <class T>
struct DirectJob {
    const T *x, *w;                      // where the first tap of the first pixel reads; weights [channel][plane][line][tap][V*L]
    i64 channel, plane, line, tap;       // distances in x
    i64 channels;
    i64 first_plane, last_plane, planes;  // taps first..last-1 of so many are present: of planes,
    i64 first, last, lines;               // of the lines of a plane;
    i64 taps;                            // of a line
    const signed char* cut;              // per tap of a line: how many pixels lack it, the first (> 0) or the last (< 0)
    i64 before, behind;                  // cells of the line that the first and the last pixels lack
    bool more;                           // added to the sums that are there
    T* sums;                             // [pixel][V*L]
    const T* ahead;                      // weights wanted soon: so many lines of memory are asked for with each line of taps
    i64 ahead_lines;
};

// The taps of a line of one channel.
template <int P, int V, int S, class T>
[[gnu::always_inline]] inline void direct_taps(Vector<T> (&acc)[P][V], const T* x, i64 step, i64 taps, const signed char* cut,
                                               const T* w) {
    constexpr int W = V * lanes<T>;
    if (!cut) {
#pragma GCC unroll 1
        for (i64 k = 0; k < taps; ++k, x += step, w += W) direct_tap<P, V, S, 0, 0>(acc, x, w);
        return;
    }
#pragma GCC unroll 1
    for (i64 k = 0; k < taps; ++k, x += step, w += W) switch (cut[k]) {
            case 0: direct_tap<P, V, S, 0, 0>(acc, x, w); break;
            case 1: direct_tap<P, V, S, 1, 0>(acc, x, w); break;
            case -1: direct_tap<P, V, S, 0, 1>(acc, x, w); break;
            default: direct_tap_of_some<P, V, S>(acc, x, w, cut[k]);
        }
}

// All K taps of a line of one channel: a cell that was broadcast serves every pixel that sees it. One vector of channels
// would otherwise need a broadcast for each multiplication, and there are no more loads than these in a cycle.
template <int P, int K, bool Edge, class T>
[[gnu::always_inline]] inline void direct_cells(Vector<T> (&acc)[P][1], const T* x, const T* w, i64 before, i64 behind) {
    Vector<T> by[K];
#pragma GCC unroll 8
    for (int k = 0; k < K; ++k) by[k] = load(w + k * lanes<T>);
#pragma GCC unroll 64
    for (int i = 0; i < P + K - 1; ++i) {
        if (Edge && ((i < K - 1 && i < before) || (i >= P && i >= P + K - 1 - behind))) continue;
        const Vector<T> s = broadcast(x[i]);
#pragma GCC unroll 8
        for (int k = 0; k < K; ++k)
            if (i >= k && i < P + k) acc[i - k][0] += s * by[k];
    }
    asm volatile("" ::: "memory");
}

// P pixels, S cells from one to the next, times V vectors of channels. K: the taps of a line, 0: any number.
template <int P, int V, int S, int K, class T>
[[gnu::noinline]] void direct_block(const DirectJob<T>& j) {
    constexpr int L = lanes<T>, W = V * L;
    Vector<T> acc[P][V];
    each<P, V>([&](int p, int v) { acc[p][v] = broadcast(T(-0.0)); });
    const i64 taps = j.taps, tap = j.tap, line = taps * W, plane = j.lines * line, before = j.before, behind = j.behind;
    const signed char* const cut = j.cut;
    const char* ask = reinterpret_cast<const char*>(j.ahead);
    const bool asks = j.ahead_lines != 0;
    const T *channel = j.x + j.first_plane * j.plane + j.first * j.line, *w = j.w + j.first_plane * plane + j.first * line;
    const i64 after_plane = (j.lines - j.last + j.first) * line, after = (j.planes - j.last_plane + j.first_plane) * plane;
    for (i64 c = 0; c < j.channels; ++c, channel += j.channel, w += after) {
        const T* top = channel;
        for (i64 u = j.first_plane; u < j.last_plane; ++u, top += j.plane, w += after_plane) {
            const T* x = top;
            for (i64 r = j.first; r < j.last; ++r, x += j.line, w += line) {
                if (asks)
                    for (i64 i = j.ahead_lines; i; --i, ask += 64) __builtin_prefetch(ask, 0, 2);
                if constexpr (K == 0) direct_taps<P, V, S>(acc, x, tap, taps, cut, w);
                else if (before | behind) direct_cells<P, K, true>(acc, x, w, before, behind);
                else direct_cells<P, K, false>(acc, x, w, 0, 0);
            }
        }
    }
    if (j.more) each<P, V>([&](int p, int v) { acc[p][v] += load(j.sums + (p * V + v) * L); });
    each<P, V>([&](int p, int v) { store(j.sums + (p * V + v) * L, acc[p][v]); });
}

#if defined(__AVX512F__)
// Of each four (float) or two (double) neighbours, the lanes that differ in a bit of (row, lane) change places.
[[gnu::always_inline]] inline void turn_quarters(Vector<float> (&m)[16]) {
#pragma GCC unroll 4
    for (int q = 0; q < 16; q += 4) {
        const __m512d a = _mm512_castps_pd(_mm512_maskz_unpacklo_ps(lanes_16, m[q], m[q + 1]));
        const __m512d b = _mm512_castps_pd(_mm512_maskz_unpackhi_ps(lanes_16, m[q], m[q + 1]));
        const __m512d c = _mm512_castps_pd(_mm512_maskz_unpacklo_ps(lanes_16, m[q + 2], m[q + 3]));
        const __m512d d = _mm512_castps_pd(_mm512_maskz_unpackhi_ps(lanes_16, m[q + 2], m[q + 3]));
        m[q] = _mm512_castpd_ps(_mm512_maskz_unpacklo_pd(lanes_8, a, c));
        m[q + 1] = _mm512_castpd_ps(_mm512_maskz_unpackhi_pd(lanes_8, a, c));
        m[q + 2] = _mm512_castpd_ps(_mm512_maskz_unpacklo_pd(lanes_8, b, d));
        m[q + 3] = _mm512_castpd_ps(_mm512_maskz_unpackhi_pd(lanes_8, b, d));
    }
}
[[gnu::always_inline]] inline void turn_quarters(Vector<double> (&m)[8]) {
#pragma GCC unroll 4
    for (int q = 0; q < 8; q += 2) {
        const __m512d a = m[q], b = m[q + 1];
        m[q] = _mm512_maskz_unpacklo_pd(lanes_8, a, b), m[q + 1] = _mm512_maskz_unpackhi_pd(lanes_8, a, b);
    }
}
#endif

template <class T>
using DirectBlock = void (*)(const DirectJob<T>&);

// The blocks there are, by vectors, pixels, the step from one to the next, and the taps of a line.
template <class T>
DirectBlock<T> direct_block_of(int vectors, i64 pixels, i64 step, i64 taps) {
    DirectBlock<T> found = nullptr;
    auto pick = [&]<int V, int... P>(Numbers<P...>) {
        ((found = pixels == P ? step == 1 ? direct_block<P, V, 1, 0, T> : direct_block<P, V, 2, 0, T> : found), ...);
    };
    auto pick_line = [&]<int K, int... P>(Numbers<P...>) {
        ((found = pixels == P ? direct_block<P, 1, 1, K, T> : found), ...);
    };
    if constexpr (vector_bytes == 64) {
        using Three = Numbers<7, 8, 10, 11, 12, 13, 14, 15, 16, 21, 22>;
        using Five = Numbers<8, 10, 12, 14, 15>;
        if (vectors == 1 && step == 1 && taps == 3) pick_line.template operator()<3>(Three{});
        if (vectors == 1 && step == 1 && taps == 5) pick_line.template operator()<5>(Five{});
        if (vectors == 2) pick.template operator()<2>(Numbers<4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14>{});
        if (vectors == 3) pick.template operator()<3>(Numbers<5, 6, 7, 8, 9>{});
        if (vectors == 4) pick.template operator()<4>(Numbers<2, 3, 4, 5, 6>{});
    } else if (vectors == 3) {
        pick.template operator()<3>(Numbers<2, 3, 4>{});
    }
    return found;
}

// How the pixels of a line are cut into blocks: `blocks` of them, the first `large` of `pixels` pixels and the rest of one
// less; or, where there is no such block, all of `pixels`, the last of which does some pixels a second time.
struct DirectCut {
    int vectors = 0;
    i64 blocks = 0, pixels = 0, large = 0;
    bool again = false;
    i64 start(i64 b, i64 m) const {
        if (again) return least(b * pixels, m - pixels);
        return b * pixels - most(0, b - large);
    }
    i64 place(i64 b) const { return again ? b * pixels : start(b, 0); }  // among the sums, which no two blocks share
    i64 size(i64 b) const { return again || b < large ? pixels : pixels - 1; }
    // Of a tap, in halves of a cycle that can multiply twice, and load twice, and has to wait for four of its kind.
    double cost() const {
        auto one = [&](i64 p) { return 2 + double(most(8, most(p * vectors, p + vectors + 2))); };
        return one(pixels) * double(again ? blocks : large) + (again ? 0 : one(pixels - 1) * double(blocks - large));
    }
};

template <class T>
DirectCut cut_line(i64 m, i64 step, i64 taps, int vectors) {
    DirectCut c{vectors};
    constexpr i64 sums[] = {0, 22, 14, 9, 6};  // vectors of weights stay in registers as well, and one broadcast
    const i64 greatest = vector_bytes == 64 ? sums[vectors] : direct_registers / vectors;
    c.blocks = up(m, greatest), c.pixels = up(m, c.blocks), c.large = m - c.blocks * (c.pixels - 1);
    auto there = [&](i64 pixels) { return direct_block_of<T>(vectors, pixels, step, taps) != nullptr; };
    if (there(c.pixels) && (c.large == c.blocks || there(c.pixels - 1))) return c;
    c.again = true;
    while (c.pixels <= greatest && !there(c.pixels)) ++c.pixels;
    if (c.pixels > m || c.pixels > greatest) c.blocks = 0;
    return c;
}

// The cheapest for so many channels of the result, if there is any.
template <class T>
DirectCut best_cut(i64 m, i64 step, i64 taps, i64 rows) {
    DirectCut best;
    auto cost = [&](const DirectCut& c) { return c.cost() * double(up(rows, c.vectors * lanes<T>)); };
    for (int vectors = 1; vectors <= 4; ++vectors) {
        const DirectCut c = cut_line<T>(m, step, taps, vectors);
        if (c.blocks && (!best.blocks || cost(c) < cost(best))) best = c;
    }
    return best;
}

}  // namespace
}  // namespace lunette::LN_ISA
