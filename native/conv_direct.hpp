// The sums of a convolution of planes, vectors across channels of the result and one broadcast cell per pixel: no cell is
// copied or packed, and taps that are absent are left out, so that nothing is multiplied in vain and no sum is spoiled.
#pragma once
#include "gather.hpp"

namespace lunette::LN_ISA {
namespace {

// One block of pixels of a line, over some channels of the source.
template <class T>
struct DirectJob {
    const T *x, *w;                    // where the first tap of the first pixel reads; weights [channel][tap][V*L]
    i64 channel, line;                 // distances in x
    i64 channels, first, last, lines;  // row taps first..last-1 of `lines` are present
    i64 taps;                          // of a line
    const signed char* cut;            // per tap of a line: how many pixels lack it, the first (> 0) or the last (< 0)
    bool more;                         // added to the sums that are there
    T* sums;                           // [pixel][V*L]
};

// One tap of one channel, without the first Lo and the last Hi pixels.
template <int P, int V, int S, int Lo, int Hi, class T>
[[gnu::always_inline]] inline void direct_tap(Vector<T> (&acc)[P][V], const T* x, const T* w) {
    Vector<T> by[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) by[v] = load(w + v * lanes<T>);
#pragma GCC unroll 32
    for (int p = Lo; p < P - Hi; ++p) {
        const Vector<T> s = broadcast(x[p * S]);
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) acc[p][v] += s * by[v];
    }
    asm volatile("" ::: "memory");  // or the compiler loads ahead and runs out of registers
}

template <int P, int V, int S, class T>
[[gnu::noinline]] void direct_block(const DirectJob<T>& j) {
    constexpr int L = lanes<T>;
    Vector<T> acc[P][V];
    each<P, V>([&](int p, int v) { acc[p][v] = broadcast(T(-0.0)); });
    const T *channel = j.x + j.first * j.line, *w = j.w + j.first * j.taps * V * L;
    const i64 skipped = (j.lines - j.last + j.first) * j.taps * V * L;
    for (i64 c = 0; c < j.channels; ++c, channel += j.channel, w += skipped) {
        const T* line = channel;
        for (i64 r = j.first; r < j.last; ++r, line += j.line) {
            if (!j.cut) {
#pragma GCC unroll 1
                for (i64 k = 0; k < j.taps; ++k, w += V * L) direct_tap<P, V, S, 0, 0>(acc, line + k, w);
                continue;
            }
#pragma GCC unroll 1
            for (i64 k = 0; k < j.taps; ++k, w += V * L) switch (j.cut[k]) {
                    case 1: direct_tap<P, V, S, 1, 0>(acc, line + k, w); break;
                    case 2: direct_tap<P, V, S, 2, 0>(acc, line + k, w); break;
                    case -1: direct_tap<P, V, S, 0, 1>(acc, line + k, w); break;
                    case -2: direct_tap<P, V, S, 0, 2>(acc, line + k, w); break;
                    default: direct_tap<P, V, S, 0, 0>(acc, line + k, w);
                }
        }
    }
    if (j.more) each<P, V>([&](int p, int v) { acc[p][v] += load(j.sums + (p * V + v) * L); });
    each<P, V>([&](int p, int v) { store(j.sums + (p * V + v) * L, acc[p][v]); });
}

inline constexpr i64 direct_registers = vector_bytes == 64 ? 28 : 12;

template <class T>
using DirectBlock = void (*)(const DirectJob<T>&);

// The blocks there are, by vectors and pixels.
template <class T>
DirectBlock<T> direct_block_of(int vectors, i64 pixels, i64 step) {
    auto pick = [&]<int V, int... P>(Numbers<P...>) {
        DirectBlock<T> found = nullptr;
        ((found = pixels == P ? step == 1 ? direct_block<P, V, 1, T> : direct_block<P, V, 2, T> : found), ...);
        return found;
    };
    if constexpr (vector_bytes == 64) {
        if (vectors == 1) return pick.template operator()<1>(Numbers<16, 20, 24, 28>{});
        if (vectors == 2) return pick.template operator()<2>(Numbers<6, 8, 10, 12, 14>{});
        return pick.template operator()<4>(Numbers<2, 3, 4, 5, 6, 7>{});
    } else {
        return pick.template operator()<3>(Numbers<2, 3, 4>{});
    }
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
    i64 size(i64 b) const { return again || b < large ? pixels : pixels - 1; }
    i64 room() const { return again ? blocks * pixels : large * pixels + (blocks - large) * (pixels - 1); }
};

template <class T>
DirectCut cut_line(i64 m, i64 step, int vectors) {
    DirectCut c{vectors};
    const i64 greatest = direct_registers / vectors;  // 12 of 16 registers, 28 of 32
    c.blocks = up(m, greatest), c.pixels = up(m, c.blocks), c.large = m - c.blocks * (c.pixels - 1);
    auto there = [&](i64 pixels) { return direct_block_of<T>(vectors, pixels, step) != nullptr; };
    if (there(c.pixels) && (c.large == c.blocks || there(c.pixels - 1))) return c;
    c.again = true;
    while (c.pixels <= greatest && !there(c.pixels)) ++c.pixels;
    if (c.pixels > m || c.pixels > greatest) c.blocks = 0;
    return c;
}

// That with the fewest pixels, if there is any: few vectors are best, for then a weight is loaded for many pixels.
template <class T>
DirectCut cut_line(i64 m, i64 step) {
    DirectCut best;
    for (int vectors : {1, 2, 3, 4}) {
        if (vector_bytes == 64 ? vectors == 3 : vectors != 3) continue;
        const DirectCut c = cut_line<T>(m, step, vectors);
        if (c.blocks && (!best.blocks || c.room() < best.room())) best = c;
    }
    return best;
}

}  // namespace
}  // namespace lunette::LN_ISA
