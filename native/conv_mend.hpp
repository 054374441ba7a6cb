// Sums that padded zeros may have spoiled, once more without them.
#pragma once
#include "gather.hpp"

namespace lunette::LN_ISA {
namespace {

template <class T>
bool finite(const T* p, i64 n) {
    T s = 0;
    for (i64 i = 0; i < n; ++i) s += p[i] * 0;  // NaN if any is infinite or NaN
    return s == 0;
}

// What a sum in doubt should be: its terms once more, term(i) for i < n, those that are absent left out; `y`, with the
// epilogue applied by `finish`, is what came out. A sum that is zero is -0 only if every term is.
template <class T, class Term, class Finish>
T mended(T y, i64 n, Term term, Finish finish) {
    if (y == 0) {
        for (i64 i = 0; i < n; ++i)
            if (T v = term(i); v != 0 || !__builtin_signbit(v)) return y;
        return finish(T(-0.0));
    }
    LongSum<T> sum;
    for (i64 i = 0; i < n; ++i) {
        T v = term(i);
        if (v != v) return finish(v);
        sum.add(v);
    }
    return finish(sum.total());
}

// One cell of an axis: whether a tap is absent there, the first that is present (-1: none), and what that one reads.
struct Edge {
    bool lacks;
    i64 tap, in;
};

inline void find_edges(const Gather& z, List<Edge>& edges) {
    for (i64 a = 0; a < z.axes.size; ++a)
        for (i64 o = 0; o < z.axes[a].m; ++o) {
            const Axis& x = z.axes[a];
            Edge e{false, -1, 0};
            for (i64 k = 0; k < x.taps; ++k)
                if (i64 i = o * x.step + z.off[x.tap + k]; i < 0 || i >= x.n) e.lacks = true;
                else if (e.tap < 0) e.tap = k, e.in = i * x.in;
            edges.push(e);
        }
}

// Only outputs that read an absent cell can be wrong. Zeros are common (gradients of relu and of max pools), and one term
// that is not -0 shows them to be right: those of the first tap that is present are looked at before all others.
template <class T>
void mend_sums(const Gather& z, const T* in, const T* w, WeightLayout l, const Epilogue<T>& e, T* out) {
    struct Present {
        i64 in, place;
    };
    List<i64> place;
    places(z, place);
    List<Edge> edges;
    find_edges(z, edges);
    auto mend_cell = [&](i64 q, i64 at, i64 first, i64 first_in) {
        List<Present> taps;
        for (i64 row = 0; row < z.groups * z.rows; ++row) {
            i64 g = row / z.rows, to = row * z.out_channel + at;
            if (!in_doubt(out[to])) continue;
            const T *from = in + g * z.channels * z.in_channel, *by = w + g * l.group + row % z.rows * l.row;
            auto product = [&](i64 c, i64 where, i64 weight) {
                return from[c * z.in_channel + where] * by[c * l.channel + weight];
            };
            if (out[to] == 0 && first >= 0) {
                bool right = false;
                for (i64 c = 0; c < z.channels && !right; ++c)
                    if (T v = product(c, first_in, place[first]); v != 0 || !__builtin_signbit(v)) right = true;
                if (right) continue;
            }
            if (!taps.size)
                for (i64 t = 0; t < z.taps; ++t)
                    if (i64 cell = z.spot(q, t).in; cell >= 0) taps.push({cell, place[t]});
            auto term = [&](i64 i) {
                const Present& t = taps[i % taps.size];
                return product(i / taps.size, t.in, t.place);
            };
            out[to] = mended(out[to], z.channels * taps.size, term, [&](T y) {
                if (!taps.size) y = T(e.bias ? -0.0 : 0.0);  // the bias is the only term
                if (e.bias) y += e.bias[row];
                if (e.add) y += e.add[to];
                return e.relu && y < 0 ? T(0) : y;
            });
        }
    };
    constexpr i64 some = 1024;
    const i64 rank = z.axes.size;
    parallel_for(up(z.cells, some), [&](i64 i) {
        List<i64> index;
        index.resize(rank);
        for (i64 a = rank - 1, q = i * some; a >= 0; q /= z.axes[a].m, --a) index[a] = q % z.axes[a].m;
        for (i64 q = i * some; q < least(z.cells, (i + 1) * some); ++q) {
            bool lacks = false;
            i64 at = z.base, first = 0, first_in = 0, begin = 0;
            for (i64 a = 0; a < rank; begin += z.axes[a].m, ++a) {
                const Edge& cell = edges[begin + index[a]];
                lacks |= cell.lacks;
                first = first < 0 || cell.tap < 0 ? -1 : first * z.axes[a].taps + cell.tap;
                first_in += cell.in, at += index[a] * z.axes[a].out;
            }
            if (lacks) mend_cell(q, at, first, first_in);
            for (i64 a = rank - 1; a >= 0 && ++index[a] == z.axes[a].m; --a) index[a] = 0;
        }
    });
}

// The same for dw; `nan`: a NaN may be wrong too.
template <class T>
void mend_weight_grad(const Gather& z, const List<i64>& place, i64 kernel, const T* x, const T* g, bool nan, T* dw) {
    parallel_for(z.taps, [&](i64 t) {
        List<Spot> cells;
        for (i64 q = 0; q < z.cells; ++q)
            if (Spot at = z.spot(q, t); at.in >= 0) cells.push(at);
        for (i64 row = 0; row < z.groups * z.rows; ++row) {
            const T *from = x + row / z.rows * z.channels * z.in_channel, *by = g + row * z.out_channel;
            T* to = dw + row * z.channels * kernel + place[t];
            // One NaN of g that the tap does see makes all its sums NaN, rightly.
            auto sees_nan = [&] {
                for (i64 i = 0; i < cells.size; ++i)
                    if (by[cells[i].out] != by[cells[i].out]) return true;
                return false;
            };
            bool looked = false;
            for (i64 c = 0; c < z.channels; ++c) {
                T& sum = to[c * kernel];
                if (sum != 0 && (sum == sum || !nan)) continue;
                if (!looked && sees_nan()) break;
                looked = true;
                const T* channel = from + c * z.in_channel;
                auto term = [&](i64 i) { return channel[cells[i].in] * by[cells[i].out]; };
                sum = mended(sum, cells.size, term, [&](T y) { return cells.size ? y : T(0); });
            }
        }
    });
}

}  // namespace
}  // namespace lunette::LN_ISA
