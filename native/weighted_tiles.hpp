// Windows that share no cell and lie side by side along the innermost axis, two or four cells wide: their terms stay in
// registers, from the cells to their sum, or to the cells' derivatives. For cells that need no common scale.
#pragma once
#include "magnitudes.hpp"
#include "tiles.hpp"

namespace lunette::LN_ISA {
namespace {

// Of a Model (weighted.hpp) that has
//   plain()           whether cells of middling size need no scale; then, on vectors,
//   term(v)           the summand
//   denominator(s), weight(v, term)
//   Tally<N>          meet(v) sees all cells; fine(model) says whether they were of middling size
template <class Model>
class WeightedTiles {
    using T = typename Model::Scalar;
    static constexpr i64 most_rows = 8;

public:
    explicit WeightedTiles(const Model& model, const Pool& pool) : pool_(pool) {
        const PoolAxis& ax = pool.axes[pool.rank - 1];
        suits_ = model.plain() && !model.counts_absent && ax.taps == ax.stride && (ax.stride == 2 || ax.stride == 4) &&
                 ax.m * sizeof(T) >= 16;
        covers_ = true;
        in_order_ = pool.rank == 1 || (ax.stride == 2 && ax.m >= lanes<T>);
        i64 size = 1;
        for (int a = pool.rank - 1; suits_ && a >= 0; --a) {
            const PoolAxis& own = pool.axes[a];
            suits_ = own.regular && own.disjoint && own.step == 1 && own.full_hi - own.full_lo == own.m;
            covers_ = covers_ && own.tiled && own.taps == own.stride;
            if (!suits_) return;
            size_[a] = size, size *= own.n;
            if (a + 1 == pool.rank) continue;
            suits_ = rows_ * own.taps <= most_rows;
            for (i64 r = rows_ - 1; suits_ && r >= 0; --r)  // in any order
                for (i64 k = own.taps - 1; k >= 0; --k) at_[r * own.taps + k] = at_[r] + k * size_[a];
            rows_ *= own.taps;
        }
    }
    // Whether sums() adds up in the order of Reducer: which of them does it depends on the cells, and on how planes are cut.
    bool suits_sums() const { return suits_ && in_order_; }
    // Whether derivatives() reaches every cell.
    bool suits_derivatives() const { return suits_ && covers_; }

    // The sums of outputs o0..o1-1 of axis 0 of these planes; false if their cells need a scale.
    bool sums(const Model& model, const T* x, i64 planes, i64 o0, i64 o1, T* s) const {
        return each_block(planes, o0, o1, [&]<int N, int S>(Lines l, i64 from, i64 to) {
            return sums<N, S>(model, l, x + from, s + to);
        });
    }
    // dx of the same windows, whose cotangents begin at g; x and dx are where cell 0 of the first plane is, or would be.
    bool derivatives(const Model& model, const T* x, i64 planes, i64 o0, i64 o1, const T* g, T* dx) const {
        return each_block(planes, o0, o1, [&]<int N, int S>(Lines l, i64 from, i64 to) {
            return derivatives<N, S>(model, l, x + from, g + to, dx + from);
        });
    }

private:
    // Lines of outputs, `count` in each of `planes` planes: how far apart they and their windows begin.
    struct Lines {
        i64 planes, count, m, to_line, to_plane;
    };

    // f<lanes, stride>(lines, first cell, first output) for all outputs, in the widest vectors that a line of them fills. Whether
    // all f were true.
    template <class F>
    bool each_block(i64 planes, i64 o0, i64 o1, F&& f) const {
        const PoolAxis& ax = pool_.axes[pool_.rank - 1];
        const i64 m = pool_.rank == 1 ? o1 - o0 : ax.m;
        auto in_lanes = [&]<int N>(const Lines& l, i64 from, i64 to) {
            return ax.stride == 2 ? f.template operator()<N, 2>(l, from, to) : f.template operator()<N, 4>(l, from, to);
        };
        auto block = [&](const Lines& l, i64 from, i64 to) {
            constexpr int L = lanes<T>;
            if (m >= L) return in_lanes.template operator()<L>(l, from, to);
            if constexpr (vector_bytes >= 64)
                if (m >= L / 2) return in_lanes.template operator()<L / 2>(l, from, to);
            return in_lanes.template operator()<16 / sizeof(T)>(l, from, to);
        };
        if (m * sizeof(T) < 16) return false;
        if (pool_.rank == 1) return block({planes, 1, m, 0, pool_.cells_in}, ax.start + o0 * ax.stride, 0);
        const int near = pool_.rank - 2;
        const PoolAxis& lines = pool_.axes[near];
        i64 o[max_axes] = {o0}, to = 0;
        for (;;) {
            const i64 count = near == 0 ? o1 - o0 : lines.m;
            i64 from = ax.start;
            for (int a = 0; a <= near; ++a) from += pool_.axes[a].first[a < near || near == 0 ? o[a] : 0] * size_[a];
            if (!block({planes, count, m, lines.stride * size_[near], pool_.cells_in}, from, to)) return false;
            if (near == 0) return true;
            to += count * m;
            int a = near - 1;
            for (; a > 0 && ++o[a] == pool_.axes[a].m; --a) o[a] = 0;
            if (a == 0 && ++o[0] == o1) return true;
        }
    }

    // f(first cell, first output) for every vector of N outputs, the last one of a line reaching back.
    template <int N, int S, class F>
    [[gnu::always_inline]] void each_vector_of(const Lines& l, F&& f) const {
        for (i64 p = 0; p < l.planes; ++p)
            for (i64 k = 0; k < l.count; ++k) {
                const i64 from = p * l.to_plane + k * l.to_line, to = p * pool_.cells_out + k * l.m;
                i64 q = 0;
                for (; q + N <= l.m; q += N) f(from + q * S, to + q);
                if (q < l.m) f(from + (l.m - N) * S, to + l.m - N);
            }
    }

    template <int N, int S>
    [[gnu::noinline]] bool sums(const Model& given, const Lines& lines, const T* x, T* s) const {
        const Model model = given;  // in registers: nothing that is stored can be part of it
        const Lines l = lines;
        typename Model::template Tally<N> tally;
        const i64 rows = rows_;
        each_vector_of<N, S>(l, [&](i64 from, i64 to) __attribute__((always_inline)) {
            auto one = [&](i64 r, int i) __attribute__((always_inline)) {
                const auto v = load<N>(x + from + at_[r] + i * N);
                tally.meet(v);
                return model.term(v);
            };
            Vec<T, N> sum[S];
            for (int i = 0; i < S; ++i) sum[i] = one(0, i);
            for (i64 r = 1; r < rows; ++r)
                for (int i = 0; i < S; ++i) sum[i] += one(r, i);
            store<N>(s + to, joined<N, S>(sum));
        });
        return tally.fine(given);
    }

    template <int N, int S>
    [[gnu::noinline]] bool derivatives(const Model& given, const Lines& lines, const T* x, const T* g, T* dx) const {
        const Model model = given;
        const Lines l = lines;
        typename Model::template Tally<N> tally;
        Vec<Int<T>, N> wild{};
        const i64 rows = rows_;
        each_vector_of<N, S>(l, [&](i64 from, i64 to) __attribute__((always_inline)) {
            Vec<T, N> sum[S], weight[most_rows][S];
            auto one = [&](i64 r, int i) __attribute__((always_inline)) {
                const auto v = load<N>(x + from + at_[r] + i * N), term = model.term(v);
                tally.meet(v), weight[r][i] = model.weight(v, term);
                return term;
            };
            for (int i = 0; i < S; ++i) sum[i] = one(0, i);
            for (i64 r = 1; r < rows; ++r)
                for (int i = 0; i < S; ++i) sum[i] += one(r, i);
            Vec<T, N> share[S], dealt[S];
            const auto whole = load<N>(g + to);
            wild |= untame<T>(whole);
            share[0] = quotient<T>(whole, model.denominator(joined<N, S>(sum)));
            for (int i = 1; i < S; ++i) share[i] = share[0];
            interleave<S>(share, dealt);
            for (i64 r = 0; r < rows; ++r)
                for (int i = 0; i < S; ++i) store<N>(dx + from + at_[r] + i * N, dealt[i] * weight[r][i]);
        });
        return !any(wild) && tally.fine(given);
    }

    // The sums of S neighbours each.
    template <int N, int S>
    [[gnu::always_inline]] static Vec<T, N> joined(const Vec<T, N>* v) {
        auto pairs = [](Vec<T, N> a, Vec<T, N> b) {
            Vec<T, N> even, odd;
            unzip<N>(a, b, even, odd);
            return even + odd;
        };
        if constexpr (S == 2) return pairs(v[0], v[1]);
        else return pairs(pairs(v[0], v[1]), pairs(v[2], v[3]));
    }

    const Pool& pool_;
    i64 size_[max_axes];            // cells of one step along an axis
    i64 rows_ = 1, at_[most_rows] = {};  // rows of a window, from the first of them
    bool suits_, covers_, in_order_;
};

}  // namespace
}  // namespace lunette::LN_ISA
