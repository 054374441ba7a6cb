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
    const Seen<K, S, T> seen(part);
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
            Vector<T> all[K + 1];
#pragma GCC unroll 8
            for (int k = 0; k < K; ++k) {
                Vector<T> cells[2] = {all[k & ~1], all[k | 1]};
                load_tap<K, S, Whole>(x + i * in, seen, k, cells);
                all[k & ~1] = cells[0], all[k | 1] = cells[1];
            }
#pragma GCC unroll 8
            for (int u = e; u < U; u += S) {
                const i64 line = o - (u - e) / S;
                if (line < first || line >= last) continue;
#pragma GCC unroll 8
                for (int k = 0; k < K; ++k) {
                    if constexpr (Whole) sums[u][k] += all[k] * given[(u - e) / S];
                    else sums[u][k] = add_some(sums[u][k], all[k], given[(u - e) / S], seen.sees[k]);
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
    const i64 down = up(m, lines), tiles_across = up(d.parts.size, across), tiles = d.images * down * tiles_across;
    static_assert(strip_vectors + L + Ladder::few < sum_block);
    auto channel = [&](i64 c) {
        const Ladder ladder(tiles);
        T levels[(Ladder::most_levels + 1) * most_line_taps * most_line_taps];  // the result on top
        for (i64 t = 0; t < tiles; ++t) {
            const i64 image = t / tiles_across / down, first = t / tiles_across % down * lines, begin = t % tiles_across * across;
            const T* from = x + image * d.image_in + c * z.in_channel + d.col_low;
            const T* given = g + image * d.image_out + c * z.out_channel;
            Vector<T> sums[most_line_taps * most_line_taps];
            for (i64 k = 0; k < taps; ++k) sums[k] = broadcast(T(-0.0));
            for (i64 b = begin; b < least(d.parts.size, begin + across); ++b) {
                auto run = [&]<int Taps>() {
                    const i64 last = least(m, first + lines);
                    if (z.col().step == 1) dots_of_part<Taps, 1>(d, d.parts[b], first, last, from, given, sums);
                    else dots_of_part<Taps, 2>(d, d.parts[b], first, last, from, given, sums);
                };
                if (K == 3) run.template operator()<3>();
                else if (K == 5) run.template operator()<5>();
                else run.template operator()<7>();
            }
            const bool fresh = ladder.starts(t);
            for (i64 k = 0; k < taps; ++k) {
                const T sum = fold<L>(sums[k], [](auto a, auto b) { return a + b; });
                levels[k] = fresh ? sum : levels[k] + sum;
            }
            ladder.climb(t, [&](i64 l, bool empty) { go_up(empty, taps, levels + l * taps, levels + (l + 1) * taps); });
        }
        const T* total = levels + ladder.levels * taps;
        for (i64 u = 0; u < K; ++u)
            for (i64 k = 0; k < K; ++k)
                dw[c * kernel + place[K * (d.turned_rows ? K - 1 - u : u) + (d.turned_cols ? K - 1 - k : k)]] = total[K * u + k];
    };
    const i64 join = up(z.groups, num_threads() == 1 ? 1 : 4 * num_threads());
    auto task = [&](i64 i) {
        for (i64 c = i * join; c < least(z.groups, (i + 1) * join); ++c) channel(c);
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
