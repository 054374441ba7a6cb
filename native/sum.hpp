// Sums over windows: the operation for Reducer. Never subtracts; no sum is deeper than the contract's bound.
#pragma once
#include <cmath>
#include <limits>

#include "reduce.hpp"

namespace lunette::LN_ISA {
namespace {

// Computing by the definition needs a little more precision than the result has.
template <class T>
struct WideOf {
    using type = double;
};
template <>
struct WideOf<double> {
    using type = long double;
};
template <class T>
using Wide = typename WideOf<T>::type;

// f(vector of cells i..i+N-1) over n cells, the last ones singly.
template <class T, class F>
inline void each_vector(i64 n, F&& f) {
    constexpr int L = lanes<T>;
    i64 i = 0;
    for (; i + L <= n; i += L) f.template operator()<L>(i);
    for (; i < n; ++i) f.template operator()<1>(i);
}

template <class T>
struct Sum {
    using Scalar = T;
    using Careful = Sum;
    static constexpr bool idempotent = false, any_order = true;
    struct Order {
        template <int N>
        void meet(Vec<T, N>) {}
        template <int N>
        void meet(Vec<T, N>, Vec<T, N>) {}
        template <int N>
        [[gnu::always_inline]] Vec<T, N> finish(Vec<T, N> v) { return v; }
        bool matters() const { return false; }
    };
    static constexpr std::size_t cell_bytes = sizeof(T);
    template <int N>
    struct Cell {
        Vec<T, N> v;
    };
    struct Ref {
        T* v;
        Ref at(i64 i) const { return {v + i}; }
        template <int N>
        Cell<N> get(i64 i) const { return {load<N>(v + i)}; }
        template <int N>
        void put(i64 i, Cell<N> c) const { store<N>(v + i, c.v); }
    };
    struct Source {
        const T* v;
        i64 base;
        Source at(i64 i) const { return {v + i, base + i}; }
        template <int N>
        Cell<N> get(i64 i) const { return {load<N>(v + i)}; }
        template <int N>
        [[gnu::always_inline]] void pair(i64 i, Cell<N>& even, Cell<N>& odd) const {
            part_pairs<N>(v + i, even.v, odd.v);
        }
        template <class Op, int N>
        Cell<N> fours(i64 i) const {
            return {join_fours<N>(v + i, [](auto a, auto b) { return a + b; }, [](auto, auto) {})};
        }
        template <int N>
        Cell<N> spread(i64 i, i64 by) const { return {gather<N>(v + i, by)}; }
    };

    static Ref make(char*& memory, i64 cells) {
        Ref r{reinterpret_cast<T*>(memory)};
        memory += (cells * sizeof(T) + 63) / 64 * 64;
        return r;
    }
    static T pad() { return -T(0); }  // x + -0 is x, also for x = -0
    static Cell<1> nothing() { return {T(0)}; }
    static void fill(Ref, const T*, i64, i64) {}
    static bool scan(const T*, i64) { return false; }
    template <class C>
    static C join(C a, C b) { return {a.v + b.v}; }

    static Cell<1> run(Source s, i64 i, i64 n) {
        constexpr int L = lanes<T>;
        const T* x = s.v + i;
        T total = 0;
        for (i64 j = 0; j < n;) {
            i64 end = std::min(n, j + sum_block * L), begin = j;
            Vec<T, L> c[4];
            for (auto& v : c) v = splat<L>(pad());
            for (; j + 4 * L <= end; j += 4 * L)
                for (int w = 0; w < 4; ++w) c[w] += load<L>(x + j + w * L);
            for (; j + L <= end; j += L) c[0] += load<L>(x + j);
            T sum = fold<L>((c[0] + c[1]) + (c[2] + c[3]), [](auto a, auto b) { return a + b; });
            for (; j < end; ++j) sum += x[j];
            total = begin == 0 ? sum : total + sum;
        }
        return {total};
    }

    static bool wholes(const T* x, i64 n, T* y) {
        constexpr int L = lanes<T>;
        if (n > sum_block) return false;
        Vec<T, L> sum[L];
        for (auto& v : sum) v = splat<L>(pad());
        each_of_rows<T>(x, n, pad(), [&](int r, Vec<T, L> v) __attribute__((always_inline)) { sum[r] += v; });
        store<L>(y, fold_each<L>(sum, [](auto a, auto b) { return a + b; }));
        return true;
    }

    static Cell<lanes<T>> column(const T* x, i64, i64) { return {load<lanes<T>>(x)}; }
    template <class F>
    static void arrays(Ref a, Ref b, F&& f) { f(a.v, b.v); }

    // out = even[0], odd[0], even[1], ...
    static void weave(Ref even, Ref odd, i64 n, Ref out) {
        constexpr int L = lanes<T>;
        i64 q = 0;
        for (; 2 * (q + L) <= n; q += L) {
            Vec<T, L> low, high;
            zip<L>(load<L>(even.v + q), load<L>(odd.v + q), low, high);
            store<L>(out.v + 2 * q, low), store<L>(out.v + 2 * q + L, high);
        }
        for (i64 o = 2 * q; o < n; ++o) out.v[o] = o & 1 ? odd.v[o / 2] : even.v[o / 2];
    }
};

// The number of cells of window `output` that are inside the padded input but absent.
inline i64 absent_cells(const Pool& pool, i64 output) {
    i64 inside = 1, count = 1;
    for (int a = pool.rank - 1; a >= 0; --a) {
        const PoolAxis& ax = pool.axes[a];
        inside *= ax.inside[output % ax.m], count *= ax.count[output % ax.m];
        output /= ax.m;
    }
    return inside - count;
}

// a + b - s exactly, where s = a + b rounded (Knuth).
template <class V>
inline V sum_error(V a, V b, V s) {
    const V t = s - a;
    return (a - (s - t)) + (b - t);
}

// The same sums as unevaluated pairs: v as Sum has it, and `low` the sum of what its roundings dropped.
template <class T>
struct PairSum {
    using Scalar = T;
    using Careful = PairSum;
    static constexpr bool idempotent = false, any_order = false;
    static constexpr std::size_t cell_bytes = 2 * sizeof(T);
    template <int N>
    struct Cell {
        Vec<T, N> v, low;
    };
    struct Ref {
        T *v, *low;
        Ref at(i64 i) const { return {v + i, low + i}; }
        template <int N>
        Cell<N> get(i64 i) const { return {load<N>(v + i), load<N>(low + i)}; }
        template <int N>
        void put(i64 i, Cell<N> c) const { store<N>(v + i, c.v), store<N>(low + i, c.low); }
    };
    struct Source {
        const T* v;
        i64 base;
        Source at(i64 i) const { return {v + i, base + i}; }
        template <int N>
        Cell<N> get(i64 i) const { return {load<N>(v + i), Vec<T, N>{}}; }
        template <int N>
        [[gnu::always_inline]] void pair(i64 i, Cell<N>& even, Cell<N>& odd) const {
            part_pairs<N>(v + i, even.v, odd.v);
            even.low = odd.low = Vec<T, N>{};
        }
        template <class Op, int N>
        Cell<N> fours(i64 i) const {
            Vec<T, N> cells[4];
            take_apart<4, N>(v + i, cells);
            auto cell = [&](int e) { return Cell<N>{cells[e], Vec<T, N>{}}; };
            return Op::join(Op::join(cell(0), cell(1)), Op::join(cell(2), cell(3)));
        }
        template <int N>
        Cell<N> spread(i64 i, i64 by) const { return {gather<N>(v + i, by), Vec<T, N>{}}; }
    };

    static Ref make(char*& memory, i64 cells) {
        const i64 bytes = (cells * sizeof(T) + 63) / 64 * 64;
        Ref r{reinterpret_cast<T*>(memory), reinterpret_cast<T*>(memory + bytes)};
        memory += 2 * bytes;
        return r;
    }
    static T pad() { return -T(0); }
    static Cell<1> nothing() { return {T(0), T(0)}; }
    static void fill(Ref r, const T*, i64, i64 n) { std::memset(static_cast<void*>(r.low), 0, n * sizeof(T)); }
    static bool scan(const T*, i64) { return false; }
    template <class C>
    static C join(C a, C b) {
        const auto s = a.v + b.v;
        return {s, (a.low + b.low) + sum_error(a.v, b.v, s)};
    }

    static Cell<1> run(Source s, i64 i, i64 n) {
        constexpr int L = lanes<T>;
        Cell<1> total{pad(), T(0)};
        for (i64 j = 0; j < n;) {
            const i64 end = std::min(n, j + sum_block * L);
            Cell<L> c[4];
            for (auto& v : c) v = {splat<L>(pad()), Vec<T, L>{}};
            for (; j + 4 * L <= end; j += 4 * L)
                for (int w = 0; w < 4; ++w) c[w] = join(c[w], s.template get<L>(i + j + w * L));
            for (; j + L <= end; j += L) c[0] = join(c[0], s.template get<L>(i + j));
            const Cell<L> all = join(join(c[0], c[1]), join(c[2], c[3]));
            Cell<1> sum{pad(), T(0)};
            for (int l = 0; l < L; ++l) sum = join(sum, Cell<1>{all.v[l], all.low[l]});
            for (; j < end; ++j) sum = join(sum, s.template get<1>(i + j));
            total = join(total, sum);
        }
        return total;
    }

    static Cell<lanes<T>> column(const T* x, i64, i64) { return {load<lanes<T>>(x), Vec<T, lanes<T>>{}}; }
    template <class F>
    static void arrays(Ref a, Ref b, F&& f) { f(a.v, b.v), f(a.low, b.low); }
    static void weave(Ref even, Ref odd, i64 n, Ref out) {
        for (i64 o = 0; o < n; ++o) out.template put<1>(o, (o & 1 ? odd : even).template get<1>(o / 2));
    }
};

// f(output of axis 0..rank-2 as a row number from o0 on, product of `table` over these axes) for each row of outputs.
template <class F>
inline void each_row(const Pool& pool, i64 o0, i64 o1, F&& f) {
    const int outer = pool.rank - 1;
    i64 o[max_axes] = {o0};
    i64 rows = outer == 0 ? 1 : o1 - o0;
    for (int a = 1; a < outer; ++a) rows *= pool.axes[a].m;
    for (i64 r = 0; r < rows; ++r) {
        i64 count = 1, inside = 1;
        for (int a = 0; a < outer; ++a) count *= pool.axes[a].count[o[a]], inside *= pool.axes[a].inside[o[a]];
        f(r, count, inside);
        for (int a = outer - 1; a >= 0 && ++o[a] == pool.axes[a].m && a > 0; --a) o[a] = 0;
    }
}

}  // namespace
}  // namespace lunette::LN_ISA
