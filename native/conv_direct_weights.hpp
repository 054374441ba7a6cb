// Sums of products over pixels: the weight gradient of a convolution of planes. Vectors go across channels of g, which are
// packed pixel by pixel; cells of x are broadcast from where they lie. Taps that are absent are left out, so that nothing is
// multiplied in vain and no sum is spoiled.
#pragma once
#include "gemm.hpp"

namespace lunette::LN_ISA {
namespace {

// Some lines of pixels of a few images, for some channels of x and some taps of a line.
template <class T>
struct WeightJob {
    const T *x, *g;                  // what the first tap of the first pixel reads, which may be absent; g packed
    i64 channel, image, line, step;  // distances in x, the last of neighbouring pixels
    i64 images, lines, pixels, g_image;
    i64 from, cells;                 // where in its line of so many cells x is
    i64 before, behind;              // pixels at either end of a line that lack a tap
    i64 known;                       // of the channels, which are not stored: another job has them
    T* sums;                         // + sums; [channel][tap][N vectors], channels `row` apart
    i64 row;
};

// K taps of J channels of one pixel.
template <int K, int J, int N, bool Edge, class T>
[[gnu::always_inline]] inline void weight_pixel(Vector<T> (&acc)[J * K][N], const T* x, i64 channel, const T* g, i64 at, i64 cells) {
    Vector<T> by[N];
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) by[v] = load(g + v * lanes<T>);
#pragma GCC unroll 8
    for (int k = 0; k < K; ++k) {
        if (Edge && static_cast<std::uint64_t>(at + k) >= static_cast<std::uint64_t>(cells)) continue;
#pragma GCC unroll 8
        for (int j = 0; j < J; ++j) {
            const Vector<T> s = broadcast(x[j * channel + k]);
#pragma GCC unroll 4
            for (int v = 0; v < N; ++v) acc[j * K + k][v] += s * by[v];
        }
    }
    asm volatile("" ::: "memory");  // or the compiler loads ahead and runs out of registers
}

template <int K, int J, int N, class T>
[[gnu::noinline]] void weight_block(const WeightJob<T>& j) {
    constexpr int W = N * lanes<T>;
    Vector<T> acc[J * K][N];
    each<J * K, N>([&](int r, int v) { acc[r][v] = broadcast(T(-0.0)); });
    const i64 step = j.step, channel = j.channel, cells = j.cells, behind = j.behind;
    for (i64 i = 0; i < j.images; ++i) {
        const T *line = j.x + i * j.image, *g = j.g + i * j.g_image;
        for (i64 r = 0; r < j.lines; ++r, line += j.line) {
            const T* x = line;
            i64 at = j.from, left = j.before;
            for (; left; --left, x += step, g += W, at += step) weight_pixel<K, J, N, true>(acc, x, channel, g, at, cells);
#pragma GCC unroll 1
            for (left = j.pixels - j.before - behind; left; --left, x += step, g += W)
                weight_pixel<K, J, N, false>(acc, x, channel, g, 0, 0);
            at = j.from + (j.pixels - behind) * step;
            for (left = behind; left; --left, x += step, g += W, at += step)
                weight_pixel<K, J, N, true>(acc, x, channel, g, at, cells);
        }
    }
    T* to = j.sums;
#pragma GCC unroll 8
    for (int c = 0; c < J; ++c, to += j.row) {
        if (c < j.known) continue;
#pragma GCC unroll 8
        for (int k = 0; k < K; ++k)
#pragma GCC unroll 4
            for (int v = 0; v < N; ++v) {
                T* sum = to + (k * N + v) * lanes<T>;
                store(sum, load(sum) + acc[c * K + k][v]);
            }
    }
}

template <class T>
using WeightBlock = void (*)(const WeightJob<T>&);

// The blocks there are, by vectors of g, taps, and how many channels they take: as many as the registers hold, or few.
inline constexpr int weight_sums = vector_bytes == 64 ? 24 : 12;
constexpr int most_weight_channels(int vectors, int taps) {
    const int held = weight_sums / (vectors * taps);
    return held < 8 ? held : 8;
}

template <class T>
WeightBlock<T> weight_block_of(int vectors, i64 taps, i64 channels) {
    WeightBlock<T> found = nullptr;
    auto pick = [&]<int N, int K>() {
        constexpr int most = most_weight_channels(N, K);
        if (vectors != N || taps != K) return;
        if constexpr (most >= 1) {
            if (channels == most) found = weight_block<K, most, N, T>;
            else if (channels == 1) found = weight_block<K, 1, N, T>;
        }
        if constexpr (most > 3)
            if (channels == 3) found = weight_block<K, 3, N, T>;
    };
    auto pick_taps = [&]<int N>() {
        pick.template operator()<N, 1>(), pick.template operator()<N, 2>(), pick.template operator()<N, 3>();
        pick.template operator()<N, 4>(), pick.template operator()<N, 5>(), pick.template operator()<N, 7>();
    };
    pick_taps.template operator()<1>(), pick_taps.template operator()<2>();
    if constexpr (vector_bytes == 64) pick_taps.template operator()<4>();
    return found;
}

}  // namespace
}  // namespace lunette::LN_ISA
