// Convolutions with one channel in and one out per group.
#pragma once
#include "conv_mend.hpp"
#include "depthwise_lines.hpp"
#include "depthwise_lines_weights.hpp"

namespace lunette::LN_ISA {
namespace {

// One channel in, one out: too little to pack for. A tile's copy stays in the first cache and every tap reads
// from it.
inline bool is_depthwise(const Gather& z) { return z.rows == 1 && z.channels == 1 && z.taps <= packed_terms; }

template <class T>
void plan_lines(Plan<T>& p) {
    const Gather& z = p.z;
    p.all_slabs = p.outer_taps = p.block_channels = 1;
    for (i64 a = 0; a < z.outers(); ++a) p.all_slabs *= z.axes[a].m, p.outer_taps *= z.axes[a].taps;
    p.packed = p.flat = false, p.by_lines = true;
    for (i64 cells = 2048;; cells /= 2) {
        cut(p, cells);
        lay_out(p);
        if (p.channel * i64(sizeof(T)) <= 24 * 1024 || cells <= 64) return;
    }
}

// What a channel's sums need beside the source: its weights, and its part of the epilogue.
template <class T>
struct Channel {
    const T* weights;
    const int32_t* off;
    i64 taps;
    Finish<T> finish;
    const T* add;
};

// out[v*lanes ...] = sum_t w[t] * x[off[t] + v*lanes ...], v < N
template <int N, class T>
[[gnu::always_inline]] inline void line_sums(const Channel<T>& c, const T* x, const T* add, T* out,
                                             decltype(in_doubt(Vector<T>{}))& doubt) {
    constexpr int L = lanes<T>;
    Vector<T> acc[N];
    for (int v = 0; v < N; ++v) acc[v] = broadcast(T(-0.0));
    for (i64 t = 0; t < c.taps; ++t) {
        Vector<T> a = broadcast(c.weights[t]);
#pragma GCC unroll 8
        for (int v = 0; v < N; ++v) acc[v] += a * load(x + c.off[t] + v * L);
    }
#pragma GCC unroll 8
    for (int v = 0; v < N; ++v) {
        acc[v] = c.finish.moved(acc[v]);
        if (add) acc[v] += load(add + v * L);
        doubt |= in_doubt(acc[v]);
        store(out + v * L, c.finish.ended(acc[v]));
    }
}

template <class T>
bool depthwise_tile(const Work<T>& w, const Channel<T>& c, const T* copy, T* out) {
    constexpr i64 L = lanes<T>;
    i64 pitch = w.p.z.col().out;
    auto doubt = in_doubt(broadcast(T(1)));
    for (i64 i = 0; i < w.runs.size; ++i) {
        const Run& run = w.runs[i];
        const T *x = copy + run.from, *add = c.add ? c.add + run.to : nullptr;
        T* y = out + run.to;
        i64 l = 0, n = run.length;
        auto sums = [&]<int N>() { line_sums<N>(c, x + l, add ? add + l : nullptr, y + l, doubt); };
        if (pitch == 1) {
            for (; l + 4 * L <= n; l += 4 * L) sums.template operator()<4>();
            // The last vector may do some cells twice, or some of the next line, which is done again in its
            // turn.
            i64 rest = up(n - l, L);
            bool over = i + 1 < w.runs.size && run.to + n == w.runs[i + 1].to &&
                        w.runs[i + 1].length >= up(n - l, L) * L - (n - l);
            if (rest && (over || n >= rest * L)) {
                if (!over) l = n - rest * L;
                if (rest == 1) sums.template operator()<1>();
                if (rest == 2) sums.template operator()<2>();
                if (rest == 3) sums.template operator()<3>();
                if (rest == 4) sums.template operator()<4>();
                l = n;
            }
        }
        for (; l < n; l += L) {
            T some[lanes<T>], more[lanes<T>] = {};
            i64 cells = least(L, n - l);
            for (i64 j = 0; j < cells && add; ++j) more[j] = add[(l + j) * pitch];
            line_sums<1>(c, x + l, add ? more : nullptr, some, doubt);
            for (i64 j = 0; j < cells; ++j) y[(l + j) * pitch] = some[j];
        }
    }
    return any(doubt);
}

template <class T>
void run_depthwise(const Gather& z, const T* in, const T* w, WeightLayout l, const Epilogue<T>& e, T* out) {
    if (depthwise_by_lines(z, in, w, l, e, out)) return;
    Plan<T> p(z);
    plan_lines(p);
    List<i64> place;
    places(z, place);
    i64 threads = num_threads(), tiles = p.tiles();
    i64 join = most(1, least(up(z.groups, threads == 1 ? 1 : 4 * threads), 200000 / most(1, z.cells / tiles * z.taps)));
    i64 chunks = up(z.groups, join);
    enum Doubt : unsigned char { none = 0, some = 1, tiny = 2 };  // of padding (see conv_mend.hpp)
    List<unsigned char> doubts;  // per group
    doubts.resize(z.groups);
    for (i64 g = 0; g < z.groups; ++g) doubts[g] = none;
    Mending<T> mending(z, in, w, l, e);
    const bool alone = threads == 1 || work(z.cells, z.taps, z.groups) < 100000;
    auto task = [&](i64 i) {
        Work<T> tile(p);
        set_tile(tile, i / chunks);
        T* copy = workspace<T>(tile_slot, p.copy_size());
        T weights[packed_terms];
        for (i64 g = i % chunks * join; g < least(z.groups, (i % chunks + 1) * join); ++g) {
            for (i64 t = 0; t < z.taps; ++t) weights[t] = w[g * l.group + place[t]];
            copy_channel(tile, in + g * z.in_channel, in + z.in_size, copy);
            Channel<T> c{weights, p.off.data, z.taps, finish_of(e, g), e.add ? e.add + g * z.out_channel : nullptr};
            if (!depthwise_tile(tile, c, copy, out + g * z.out_channel) || !z.absent) continue;
            // Now, while its cells are in the first cache.
            const bool found = mending.signs_matter(g) && tiny_negatives(copy, p.channel);
            __atomic_fetch_or(&doubts[g], found ? some | tiny : some, __ATOMIC_RELAXED);
        }
    };
    if (alone)
        for (i64 i = 0; i < tiles * chunks; ++i) task(i);
    else parallel_for(tiles * chunks, task);
    for (i64 g = 0; g < z.groups; ++g) {
        if (!doubts[g]) continue;
        mending.prepare();
        TapSet certain;
        if (mending.feared(g, doubts[g] & tiny, certain))
            mending.mend_row(g, !mending.finite_weights(g), mending.signs_matter(g), certain, out);
    }
}

// sums[t] (+)= sum over the tile's cells of g * x_t, for N taps. Short lines fill vectors badly, so what counts is how many
// vectors are added up.
inline constexpr i64 dot_vectors = 192, most_tile_vectors = 2048;
template <int N, class T>
void depthwise_dots(const Work<T>& w, const T* copy, const int32_t* off, const T* g, bool fresh, T* sums) {
    constexpr i64 L = lanes<T>;
    // Lanes one after another, and blocks of vectors, and then the tiles of a Ladder.
    static_assert(dot_vectors + L + 2 * most_tile_vectors / dot_vectors + Ladder::few < sum_block);
    i64 pitch = w.p.z.col().out, i = 0, l = 0;
    while (i < w.runs.size) {
        Vector<T> acc[N];
        for (int t = 0; t < N; ++t) acc[t] = broadcast(T(-0.0));
        for (i64 left = dot_vectors; i < w.runs.size && left > 0;) {
            const Run& run = w.runs[i];
            const T *x = copy + run.from, *y = g + run.to;
            i64 end = least(run.length, l + left * L);
            left -= up(end - l, L);
            for (; l < end; l += L) {
                Vector<T> v;
                if (pitch == 1 && l + L <= run.length) {
                    v = load(y + l);
                } else {
                    T some[lanes<T>] = {};
                    for (i64 j = 0; j < least(L, run.length - l); ++j) some[j] = y[(l + j) * pitch];
                    v = load(some);
                }
#pragma GCC unroll 16
                for (int t = 0; t < N; ++t) acc[t] += v * load(x + off[t] + l);
            }
            if (l >= run.length) ++i, l = 0;
        }
        for (int t = 0; t < N; ++t) {
            T s = T(-0.0);
            for (i64 k = 0; k < L; ++k) s += acc[t][k];
            sums[t] = fresh ? s : sums[t] + s;
        }
        fresh = false;
    }
}

template <class T>
bool depthwise_weight_grad(const Gather& z, const List<i64>& place, i64 kernel, const T* x, const T* g,
                           T* dw) {
    if (depthwise_weights_by_lines(z, place, kernel, x, g, dw)) return false;
    Plan<T> p(z);
    plan_lines(p);
    i64 threads = num_threads(), tiles = p.tiles();
    i64 join = up(z.groups, threads == 1 ? 1 : 4 * threads), chunks = up(z.groups, join);
    bool bad = false;
    auto task = [&](i64 i) {
        Work<T> tile(p);
        T* copy = workspace<T>(tile_slot, p.copy_size());
        const Ladder ladder(tiles);
        i64 first = i * join, last = least(z.groups, first + join), size = (last - first) * z.taps;
        T* sums = workspace<T>(sums_slot, (ladder.levels + 1) * size);  // the result on top
        for (i64 k = 0; k < 2 * panel_width<T>; ++k) copy[p.channel - 1 - k] = 0;  // read, times zero
        for (i64 t = 0; t < tiles; ++t) {
            set_tile(tile, t);
            for (i64 c = first; c < last; ++c) {
                copy_channel(tile, x + c * z.in_channel, x + z.in_size, copy);
                const T* y = g + c * z.out_channel;
                T* s = sums + (c - first) * z.taps;
                i64 k = 0;
                bool fresh = ladder.starts(t);
                for (; k + 9 <= z.taps; k += 9) depthwise_dots<9>(tile, copy, p.off.data + k, y, fresh, s + k);
                for (; k + 4 <= z.taps; k += 4) depthwise_dots<4>(tile, copy, p.off.data + k, y, fresh, s + k);
                for (; k < z.taps; ++k) depthwise_dots<1>(tile, copy, p.off.data + k, y, fresh, s + k);
            }
            ladder.climb(t, [&](i64 l, bool empty) { go_up(empty, size, sums + l * size, sums + (l + 1) * size); });
        }
        sums += ladder.levels * size;
        bool doubt = false;
        for (i64 c = first; c < last; ++c)
            for (i64 t = 0; t < z.taps; ++t) {
                T v = sums[(c - first) * z.taps + t];
                doubt |= in_doubt(v);
                dw[c * kernel + place[t]] = v;
            }
        if (doubt) __atomic_store_n(&bad, true, __ATOMIC_RELAXED);
    };
    if (threads == 1 || work(z.cells, z.taps, z.groups) < 100000)
        for (i64 i = 0; i < chunks; ++i) task(i);
    else parallel_for(chunks, task);
    return bad;
}

}  // namespace
}  // namespace lunette::LN_ISA
