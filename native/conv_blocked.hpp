// Blocks of pixels of convolutions whose arrays lie in blocks of channels: (batch, channels / L, *space, L), with as many
// channels L side by side as a vector has lanes. A cell that is read is a broadcast, sums are vectors across the channels of
// the result, and are written as they are: nothing is copied, packed or turned.
#pragma once
#include <utility>

#include "conv_taps.hpp"
#include "epilogue.hpp"

namespace lunette::LN_ISA {
namespace {

// A line of taps that is there: where its first tap of the first pixel is in x, and its weights.
struct TapLine {
    i64 x, w;
};
inline constexpr signed char seen_by_none = 127;

template <class T>
struct BlockedJob {
    const T *x, *w;          // w: [block of channels][line of taps][tap][L channels][V*L]
    i64 block, weights;      // from one block of channels to the next, in x and in w
    i64 blocks;              // of channels of the source
    const TapLine* lines;
    i64 count;               // of these
    i64 taps, tap;           // of a line, and their distance in x
    const signed char* cut;  // per tap of a line: how many pixels lack it, the first (> 0) or the last (< 0); or null
    bool more, last;         // added to the sums that are there; the epilogue follows
    T* y;
    i64 channels, pixel;     // from one vector of channels to the next, from one pixel to the next: in y
    int vectors;             // of channels that are written
    Epilogue<T> e;           // of the first channel and the first pixel
    const T* ahead;          // weights wanted soon: so many lines of memory are asked for with each line of taps
    i64 ahead_lines;
};

// One tap of a block of channels, without the first Lo and the last Hi pixels, which lie X numbers apart.
template <int P, int V, int X, int Lo, int Hi, class T>
[[gnu::always_inline]] inline void blocked_tap(Vector<T> (&acc)[P][V], const T* x, const T* w) {
    constexpr int L = lanes<T>;
    if constexpr (Lo + Hi < P) {
#pragma GCC unroll 1
        for (int c = 0; c < L; ++c, w += V * L) direct_tap<P, V, X, Lo, Hi>(acc, x + c, w);
    }
}

template <int P, int V, int X, class T>
[[gnu::always_inline]] inline void blocked_tap_of_some(Vector<T> (&acc)[P][V], const T* x, const T* w, int cut) {
    constexpr int L = lanes<T>;
#pragma GCC unroll 1
    for (int c = 0; c < L; ++c, w += V * L) direct_tap_of_some<P, V, X>(acc, x + c, w, cut);
}

#define LN_EACH _Pragma("GCC unroll 32") for (int p = 0; p < P; ++p) _Pragma("GCC unroll 8") for (int v = 0; v < V; ++v)

// P pixels times V vectors of channels. Sums stay in registers because every loop over them is written out.
template <int P, int V, int X, class T>
[[gnu::noinline]] void blocked_block(const BlockedJob<T>& j) {
    constexpr int L = lanes<T>, W = V * L;
    const i64 channels = j.channels, pixel = j.pixel;
    const int vectors = j.vectors;
    LN_EACH if (v < vectors) __builtin_prefetch(j.y + v * channels + p * pixel, 1);  // what is written last is asked for first
    Vector<T> acc[P][V];
    LN_EACH acc[p][v] = broadcast(T(-0.0));
    const i64 taps = j.taps, tap = j.tap;
    const char* ask = reinterpret_cast<const char*>(j.ahead);
    const T *block = j.x, *weights = j.w;
    for (i64 b = 0; b < j.blocks; ++b, block += j.block, weights += j.weights)
        for (i64 r = 0; r < j.count; ++r) {
            const T *x = block + j.lines[r].x, *w = weights + j.lines[r].w;
            for (i64 i = j.ahead_lines; i; --i, ask += 64) __builtin_prefetch(ask, 0, 2);
            if (taps == 1) {  // each cell is read once: no line of taps before has asked for it
#pragma GCC unroll 32
                for (int p = 0; p < P; ++p) __builtin_prefetch(x + j.block + p * X);
            }
            if (!j.cut) {
#pragma GCC unroll 1
                for (i64 k = 0; k < taps; ++k, x += tap, w += L * W) blocked_tap<P, V, X, 0, 0>(acc, x, w);
                continue;
            }
#pragma GCC unroll 1
            for (i64 k = 0; k < taps; ++k, x += tap, w += L * W) switch (j.cut[k]) {
                    case 0: blocked_tap<P, V, X, 0, 0>(acc, x, w); break;
                    case 1: blocked_tap<P, V, X, 1, 0>(acc, x, w); break;
                    case -1: blocked_tap<P, V, X, 0, 1>(acc, x, w); break;
                    case seen_by_none: break;
                    default: blocked_tap_of_some<P, V, X>(acc, x, w, j.cut[k]);
                }
        }
    T* const y = j.y;
    if (j.more) LN_EACH if (v < vectors) acc[p][v] += load(y + v * channels + p * pixel);
    if (j.last) {
        const Epilogue<T>& e = j.e;
        if (e.bias) LN_EACH if (v < vectors) acc[p][v] += load(e.bias + v * L);
        if (e.scale) LN_EACH if (v < vectors) acc[p][v] = rounded_product(acc[p][v], load(e.scale + v * L));
        if (e.shift) LN_EACH if (v < vectors) acc[p][v] += load(e.shift + v * L);
        if (e.add) LN_EACH if (v < vectors) acc[p][v] += load(e.add + v * channels + p * pixel);
        if (e.relu) LN_EACH acc[p][v] = positive<T>(acc[p][v]);
    }
    LN_EACH if (v < vectors) store(y + v * channels + p * pixel, acc[p][v]);
}

// P pixels of a depthwise convolution, which all see all taps: cells and weights are vectors of channels. K taps of a line,
// 0: any number. Of K taps, a cell that was read serves every pixel that sees it.
template <int P, int S, int K, class T>
[[gnu::always_inline]] inline void depthwise_pixels(const BlockedJob<T>& j, const T* x, T* y, const T* add) {
    constexpr int L = lanes<T>;
    Vector<T> acc[P];
#pragma GCC unroll 16
    for (int p = 0; p < P; ++p) acc[p] = broadcast(T(-0.0));
    for (i64 r = 0; r < j.count; ++r) {
        const T *from = x + j.lines[r].x, *w = j.w + j.lines[r].w;
        if constexpr (K > 0) {
            Vector<T> by[K];
#pragma GCC unroll 8
            for (int k = 0; k < K; ++k) by[k] = load(w + k * L);
#pragma GCC unroll 64
            for (int i = 0; i < (P - 1) * S + K; ++i) {
                const Vector<T> v = load(from + i * L);
#pragma GCC unroll 8
                for (int k = 0; k < K; ++k)
                    if (i >= k && (i - k) % S == 0 && (i - k) / S < P) acc[(i - k) / S] += v * by[k];
            }
        } else {
            for (i64 k = 0; k < j.taps; ++k) {
                const Vector<T> by = load(w + k * L);
#pragma GCC unroll 16
                for (int p = 0; p < P; ++p) acc[p] += load(from + k * j.tap + p * S * L) * by;
            }
        }
    }
    const Epilogue<T>& e = j.e;
#pragma GCC unroll 16
    for (int p = 0; p < P; ++p) {
        if (e.bias) acc[p] += load(e.bias);
        if (e.scale) acc[p] = rounded_product(acc[p], load(e.scale));
        if (e.shift) acc[p] += load(e.shift);
        if (add) acc[p] += load(add + p * L);
        store(y + p * L, e.relu ? positive<T>(acc[p]) : acc[p]);
    }
}

#undef LN_EACH

template <class T>
using BlockedBlock = void (*)(const BlockedJob<T>&);

// The blocks there are: so many pixels, at most and at least, of so many vectors.
inline constexpr int vectors_at_once[] = {1, 2, 4};
constexpr int most_pixels(int vectors) { return int(direct_registers) / vectors; }
constexpr int least_pixels(int vectors) { return vectors == 4 ? 1 : most_pixels(2 * vectors) / (vectors == 2 ? 2 : 1) + 1; }

template <class T>
BlockedBlock<T> blocked_block_of(int vectors, i64 pixels, i64 step) {
    BlockedBlock<T> found = nullptr;
    auto pick = [&]<int V, int... I>(std::integer_sequence<int, I...>) {
        constexpr int least = least_pixels(V), L = lanes<T>;
        ((found = pixels == least + I ? step == 1 ? blocked_block<least + I, V, L, T> : blocked_block<least + I, V, 2 * L, T> : found), ...);
    };
    auto of = [&]<int V>() {
        if (vectors == V) pick.template operator()<V>(std::make_integer_sequence<int, most_pixels(V) - least_pixels(V) + 1>{});
    };
    of.template operator()<1>(), of.template operator()<2>(), of.template operator()<4>();
    return found;
}

}  // namespace
}  // namespace lunette::LN_ISA
