// The weight gradient of depthwise 3x3, 5x5 and 7x7 with AVX2 and AVX-512, in strips as depthwise_lines.hpp has them: a line of
// cells is read once, and met by all lines of g that see it.
#pragma once
#include "depthwise_lines.hpp"
#include "long_sum.hpp"

namespace lunette::LN_ISA {
namespace {

#if defined(__AVX2__)  // or more

inline constexpr i64 strip_vectors = 192;  // added to each sum one after another; then lanes are, and then the tiles of a Ladder

// sums[u][k] += what pixels of g say of U lines of K taps, from line `low` on, over the lines first..last-1 of a strip.
template <int K, int U, int S, bool Whole, class T>
[[gnu::noinline]] void dots_of_strip(const Lines<T>& d, const LinePart<T>& part, i64 low, i64 first, i64 last, const T* x,
                                     const T* g, Vector<T>* to) {
    constexpr int J = (U - 1) / S + 1;  // lines of g that see a line of cells
    const Axis& row = d.z.row();
    const i64 n = row.n, in = row.in, out = row.out;
    const Mask<T> pixels = part.pixels;
    const Seen<K, S, Whole, T> seen(part);
    Vector<T> sums[U][K], given[J];
#pragma GCC unroll 8
    for (int u = 0; u < U; ++u)
#pragma GCC unroll 8
        for (int k = 0; k < K; ++k) sums[u][k] = to[u * K + k];
#pragma GCC unroll 8
    for (int j = 0; j < J; ++j) given[j] = Vector<T>{};
    for (i64 o = first; o < last + J - 1; ++o) {
#pragma GCC unroll 8
        for (int j = J - 1; j > 0; --j) given[j] = given[j - 1];
        if (o < last) given[0] = Whole ? load(g + o * out) : load_some(g + o * out, pixels);
#pragma GCC unroll 2
        for (int e = 0; e < S && e < U; ++e) {
            const i64 i = o * S + low + e;
            if (i < 0 || i >= n) continue;
            Vector<T> taps[K];
            if constexpr (K == 3 || S > 1) seen.load_taps(x + i * in, taps);
            else  // with so many sums, to load each where it is met takes fewer registers
#pragma GCC unroll 7
                for (int k = 0; k < K; ++k) {
                    const T* from = x + i * in + k;
                    taps[k] = in_register(Whole ? load(from) : load_some(from, seen.sees[k]));
                }
#pragma GCC unroll 8
            for (int u = e; u < U; u += S) {
                const i64 line = o - (u - e) / S;
                if (line < first || line >= last) continue;
#pragma GCC unroll 8
                for (int k = 0; k < K; ++k) {
                    if constexpr (Whole) sums[u][k] += taps[k] * given[(u - e) / S];
                    else sums[u][k] = add_some(sums[u][k], taps[k], given[(u - e) / S], seen.sees[k]);
                }
            }
        }
    }
#pragma GCC unroll 8
    for (int u = 0; u < U; ++u)
#pragma GCC unroll 8
        for (int k = 0; k < K; ++k) to[u * K + k] = sums[u][k];
}

// All lines of taps, as many at a time as registers hold the sums of.
template <int K, int S, class T>
void dots_of_part(const Lines<T>& d, const LinePart<T>& part, i64 first, i64 last, const T* x, const T* g, Vector<T>* sums) {
    constexpr int held = vector_bytes == 64 ? 3 : K == 3 ? 3 : K == 5 ? 2 : 1;
    x += part.first * S, g += part.first;
    auto some = [&]<int U>(int u) {
        if (part.whole) dots_of_strip<K, U, S, true>(d, part, d.low + u, first, last, x, g, sums + u * K);
        else dots_of_strip<K, U, S, false>(d, part, d.low + u, first, last, x, g, sums + u * K);
    };
    int u = 0;
    for (; u + held <= K; u += held) some.template operator()<held>(u);
    if constexpr (K % held != 0) some.template operator()<K % held>(u);
}

// False, and nothing is done: there are other taps.
template <class T>
bool depthwise_weights_by_lines(const Gather& z, const List<i64>& place, i64 kernel, const T* x, const T* g, T* dw) {
    constexpr int L = lanes<T>;
    const Lines<T> d(z, true);
    if (!d.fits) return false;
    const i64 K = z.col().taps, m = z.row().m, taps = K * K;
    const i64 lines = even_split(m, strip_vectors), across = even_split(d.parts.size, most(1, strip_vectors / lines));
    const i64 tiles_across = up(d.parts.size, across), tiles = up(m, lines) * tiles_across;  // of a plane
    const Ladder ladder(d.images * tiles);
    static_assert(strip_vectors + L + Ladder::few < sum_block);
    auto dots = [&](const T* from, const T* given, i64 tile, Vector<T>* sums) {
        const i64 first = tile / tiles_across * lines, last = least(m, first + lines), begin = tile % tiles_across * across;
        for (i64 b = begin; b < least(d.parts.size, begin + across); ++b) {
            auto run = [&]<int Taps>() {
                const auto part = z.col().step == 1 ? dots_of_part<Taps, 1, T> : dots_of_part<Taps, 2, T>;
                part(d, d.parts[b], first, last, from, given, sums);
            };
            if (K == 3) run.template operator()<3>();
            else if (K == 5) run.template operator()<5>();
            else run.template operator()<7>();
        }
    };
    // Short planes end before the processor has found out how their cells follow.
    const bool far = z.in_size * i64(sizeof(T)) > second_cache && z.in_channel * i64(sizeof(T)) < 8192;
    auto ask = [&](const T* p, i64 cells) {
        for (i64 i = 0; i < cells; i += 64 / i64(sizeof(T))) __builtin_prefetch(p + i);
    };
    auto plane = [&](i64 image, i64 c, T* levels) {
        if (far) {
            ask(x + image * d.image_in + (c + 1) * z.in_channel, z.in_channel);
            ask(g + image * d.image_out + (c + 1) * z.out_channel, z.out_channel);
        }
        for (i64 tile = 0; tile < tiles; ++tile) {
            Vector<T> sums[most_line_taps * most_line_taps];
            for (i64 k = 0; k < taps; ++k) sums[k] = broadcast(T(-0.0));
            dots(x + image * d.image_in + c * z.in_channel + d.col_low, g + image * d.image_out + c * z.out_channel, tile, sums);
            const i64 t = image * tiles + tile;
            const bool fresh = ladder.starts(t);
            for (i64 k = 0; k < taps; ++k) {
                const T sum = fold<L>(sums[k], [](auto a, auto b) { return a + b; });
                levels[k] = fresh ? sum : levels[k] + sum;
            }
            ladder.climb(t, [&](i64 l, bool empty) { go_up(empty, taps, levels + l * taps, levels + (l + 1) * taps); });
        }
    };
    const i64 join = up(z.groups, num_threads() == 1 ? 1 : 4 * num_threads());
    auto task = [&](i64 i) {
        const i64 first = i * join, last = least(z.groups, first + join), size = (ladder.levels + 1) * taps;
        T* levels = workspace<T>(sums_slot, (last - first) * size);  // of each channel; the result on top
        for (i64 image = 0; image < d.images; ++image)
            for (i64 c = first; c < last; ++c) plane(image, c, levels + (c - first) * size);
        for (i64 c = first; c < last; ++c) {
            const T* total = levels + (c - first) * size + ladder.levels * taps;
            for (i64 u = 0; u < K; ++u)
                for (i64 k = 0; k < K; ++k)
                    dw[c * kernel + place[K * (d.turned_rows ? K - 1 - u : u) + (d.turned_cols ? K - 1 - k : k)]] = total[K * u + k];
        }
    };
    if (num_threads() == 1 || work(z.cells, z.taps, z.groups) < 100000)
        for (i64 i = 0; i < up(z.groups, join); ++i) task(i);
    else parallel_for(up(z.groups, join), task);
    return true;
}

#else

template <class T>
bool depthwise_weights_by_lines(const Gather&, const List<i64>&, i64, const T*, const T*, T*) {
    return false;
}

#endif

}  // namespace
}  // namespace lunette::LN_ISA
