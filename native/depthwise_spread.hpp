// The input gradient of depthwise convolutions of stride 2, 3x3 to 5x5, with AVX2 and AVX-512: two lines of dx for each line of
// g, whose even and odd cells are put together in registers.
#pragma once
#include "conv_gather.hpp"
#include "depthwise_lines.hpp"

namespace lunette::LN_ISA {
namespace {

#if defined(__AVX2__)  // or more

// So many pairs of cells of a line as a vector has lanes. Cell i lies in pair (i + lo) / 2, and sees tap k of the cell of g that
// is k / 2 before its pair.
template <class T>
struct SpreadPart {
    i64 first;   // pair
    bool whole;  // all is there
    Mask<T> cells[2], sees[3];
};

template <class T>
struct Spread {
    const ConvAxis &row, &col;
    i64 pair0;  // of lines; the first
    List<SpreadPart<T>> parts;
    bool fits = false;

    explicit Spread(const Conv& c) : row(c.axes[0]), col(c.axes[c.rank - 1]) {
        constexpr i64 L = lanes<T>;
        if (c.rank != 2 || c.groups != c.cin || c.groups != c.cout || row.kernel != col.kernel) return;
        for (const ConvAxis* x : {&row, &col}) {
            if (x->stride != 2 || x->dilation != 1 || x->kernel < 3 || x->kernel > 5) return;
            // Every cell sees a tap.
            if (x->lo < 0 || x->lo >= x->kernel || x->n + x->lo > 2 * (x->m - 1) + x->kernel || any_zero(x->n, x->m)) return;
        }
        pair0 = row.lo / 2;
        const i64 first_pair = col.lo / 2, pairs = (col.n - 1 + col.lo) / 2 + 1 - first_pair, taps = up(col.kernel, 2);
        for (i64 at = 0; at < pairs; at += L) {
            SpreadPart<T> part{first_pair + least(at, most(0, pairs - L)), true, {}, {}};
            const i64 cell = 2 * part.first - col.lo;
            for (i64 half = 0; half < 2; ++half) {
                const Bits cells = bits_between(most(0, -cell - half * L), least(L, col.n - cell - half * L));
                part.whole &= cells == bits_up_to(L), part.cells[half] = mask_of<T>(cells);
            }
            for (i64 b = 0; b < taps; ++b) {
                const Bits sees = bits_between(most(0, b - part.first), least(L, col.m + b - part.first));
                part.whole &= sees == bits_up_to(L), part.sees[b] = mask_of<T>(sees);
            }
            parts.push(part);
        }
        fits = true;
    }
};

// The pairs of lines of a plane that a part has of each.
template <int K, bool Whole, class T>
[[gnu::noinline]] void spread_walk(const Spread<T>& d, const SpreadPart<T>& part, const T* g, const Vector<T>* weights,
                                   const Finish<T> finish, const T* add, T* dx) {
    constexpr int B = (K + 1) / 2, L = lanes<T>;
    const i64 n = d.row.n, m = d.row.m, in = d.col.m, out = d.col.n, lo = d.row.lo, last = (n - 1 + lo) / 2;
    const Mask<T> cells[2] = {part.cells[0], part.cells[1]}, sees[3] = {part.sees[0], part.sees[1], part.sees[2]};
    g += part.first;
    const i64 column = 2 * part.first - d.col.lo;
    Vector<T> given[B][B] = {}, by[K == 3 ? K * K : 1];
    if constexpr (K == 3)
#pragma GCC unroll 9
        for (int t = 0; t < K * K; ++t) by[t] = weights[t];
    for (i64 s = d.pair0 - (B - 1); s <= last; ++s) {
#pragma GCC unroll 3
        for (int b = 0; b < B; ++b) {
#pragma GCC unroll 3
            for (int line = B - 1; line > 0; --line) given[line][b] = given[line - 1][b];
            given[0][b] = Vector<T>{};
            if (s >= 0 && s < m) given[0][b] = in_register(Whole ? load(g + s * in - b) : load_some(g + s * in - b, sees[b]));
        }
#pragma GCC unroll 2
        for (int e = 0; e < 2; ++e) {
            const i64 i = 2 * s + e - lo;
            if (s < d.pair0 || i < 0 || i >= n) continue;
            Vector<T> sums[2] = {broadcast(T(-0.0)), broadcast(T(-0.0))};
#pragma GCC unroll 3
            for (int u = e; u < K; u += 2) {
                if (s - u / 2 < 0 || s - u / 2 >= m) continue;
#pragma GCC unroll 5
                for (int k = 0; k < K; ++k) {
                    const Vector<T>& w = K == 3 ? by[K == 3 ? K * u + k : 0] : weights[K * u + k];
                    if constexpr (Whole) sums[k % 2] += given[u / 2][k / 2] * w;
                    else sums[k % 2] = add_some(sums[k % 2], given[u / 2][k / 2], w, sees[k / 2]);
                }
            }
            Vector<T> halves[2];
            zip<L>(sums[0], sums[1], halves[0], halves[1]);
#pragma GCC unroll 2
            for (int half = 0; half < 2; ++half) {
                const i64 to = i * out + column + half * L;
                Vector<T> v = finish.moved(halves[half]);
                if (add) v += Whole ? load(add + to) : load_some(add + to, cells[half]);
                v = finish.ended(v);
                if constexpr (Whole) store(dx + to, v);
                else store_some(dx + to, cells[half], v);
            }
        }
    }
}

// False, and nothing is done: it is another convolution.
template <class T>
bool spread_depthwise(const Conv& c, const T* w, const T* g, const Epilogue<T>& e, T* dx) {
    if (c.rank != 2) return false;
    const Spread<T> d(c);
    if (!d.fits) return false;
    const i64 K = d.col.kernel, in = d.row.m * d.col.m, out = d.row.n * d.col.n;
    const i64 join = most(1, 20000 / (out * K)), chunks = up(c.groups, join);
    parallel_for(c.batch * chunks, [&](i64 i) {
        const i64 image = i / chunks, first = i % chunks * join;
        for (i64 channel = first; channel < least(c.groups, first + join); ++channel) {
            const i64 plane = image * c.groups + channel;
            Vector<T> by[5 * 5];
            for (i64 t = 0; t < K * K; ++t) by[t] = broadcast(w[channel * K * K + t]);
            for (i64 b = 0; b < d.parts.size; ++b) {
                auto run = [&]<int Taps>() {
                    const auto walk = d.parts[b].whole ? spread_walk<Taps, true, T> : spread_walk<Taps, false, T>;
                    const T* add = e.add ? e.add + plane * out : nullptr;
                    walk(d, d.parts[b], g + plane * in, by, finish_of(e, channel), add, dx + plane * out);
                };
                if (K == 3) run.template operator()<3>();
                else if (K == 4) run.template operator()<4>();
                else run.template operator()<5>();
            }
        }
    });
    return true;
}

#else

template <class T>
bool spread_depthwise(const Conv&, const T*, const T*, const Epilogue<T>&, T*) {
    return false;
}

#endif

}  // namespace
}  // namespace lunette::LN_ISA
