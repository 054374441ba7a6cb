// Softmax and its logarithm, shifted by the greatest cell so that nothing overflows.
#include "elementwise.hpp"
#include "long_sum.hpp"
#include "operators.hpp"

namespace lunette::LN_ISA {
namespace {

template <class T>
using Lanes = Vec<T, lanes<T>>;

// x - greatest; a greatest cell gives 0 even if infinite, so that infinite ones share.
template <class V>
inline V below(V x, V greatest) {
    return x == greatest ? V{} : x - greatest;
}

// Nothing but -infinity has no softmax: all results are NaN.
template <class T>
inline Lanes<T> checked(Lanes<T> greatest) {
    return greatest == -infinity<T> ? splat<lanes<T>>(std::numeric_limits<T>::quiet_NaN()) : greatest;
}

// One dense row. A NaN among the cells makes the sum NaN, whatever the greatest is.
template <class T>
void one_row(bool log, i64 n, const T* x, T* y) {
    constexpr int N = lanes<T>;
    auto greater = [](auto a, auto b) { return b > a ? b : a; };
    auto add = [](auto a, auto b) { return a + b; };
    Lanes<T> c[4];
    for (auto& v : c) v = splat<N>(-infinity<T>);
    i64 i = 0;
    for (; i + 4 * N <= n; i += 4 * N)
        for (int w = 0; w < 4; ++w) c[w] = greater(c[w], load<N>(x + i + w * N));
    for (; i + N <= n; i += N) c[0] = greater(c[0], load<N>(x + i));
    if (i < n) c[1] = greater(c[1], load_some<N>(x + i, n - i, -infinity<T>));
    const T greatest = fold<N>(greater(greater(c[0], c[1]), greater(c[2], c[3])), greater);
    const Lanes<T> top = checked<T>(splat<N>(greatest));
    auto term = [&](i64 at, Lanes<T> v) {
        Lanes<T> e = exp_of<T>(below(v, top));
        if (!log) {
            if (at + N <= n) store<N>(y + at, e); else store_some<N>(y + at, e, n - at);
        }
        return e;
    };
    T sum = 0;
    for (i = 0; i < n;) {
        Lanes<T> s[2] = {};
        i64 end = std::min(n, i + 2 * N * sum_block);
        for (; i + 2 * N <= end; i += 2 * N)
            for (int w = 0; w < 2; ++w) s[w] += term(i + w * N, load<N>(x + i + w * N));
        if (i + N <= end) s[0] += term(i, load<N>(x + i)), i += N;
        if (i < end) s[1] += term(i, load_some<N>(x + i, end - i, -infinity<T>)), i = end;
        sum += fold<N>(s[0] + s[1], add);
    }
    if (log) {
        const Lanes<T> shift = log_of<T>(splat<N>(sum));
        map<T>(n, y, [=](auto v) { return below(v, top) - shift; }, Row<T>{x});
    } else {
        const Lanes<T> factor = splat<N>(T(1) / sum);
        map<T>(n, y, [=](auto v) { return v * factor; }, Row<T>{y});
    }
}

// `width` columns of n rows, which lie `by` apart.
constexpr i64 strip = 256;
template <class T>
void columns(bool log, i64 n, i64 by, i64 width, const T* x, T* y) {
    const Ladder ladder(n);
    alignas(64) T top[strip], sum[strip], part[Ladder::most_levels][strip];
    Row<T> tops{top}, sums{sum};
    std::memcpy(top, x, width * sizeof(T));
    for (i64 k = 1; k < n; ++k)
        map<T>(width, top, [](auto a, auto b) { return b > a ? b : a; }, tops, Row<T>{x + k * by});
    map<T>(width, top, [](auto a) { return checked<T>(a); }, tops);
    for (i64 k = 0; k < n; ++k) {
        const Row<T> row{x + k * by}, so_far{part[0]};
        auto term = [](auto v, auto t) { return exp_of<T>(below(v, t)); };
        if (ladder.starts(k)) std::fill_n(part[0], width, T(0));
        if (log) {
            map<T>(width, part[0], [=](auto s, auto v, auto t) { return s + term(v, t); }, so_far, row, tops);
        } else {
            map<T>(width, y + k * by, term, row, tops);
            map<T>(width, part[0], [](auto s, auto e) { return s + e; }, so_far, Row<T>{y + k * by});
        }
        ladder.climb(k, [&](i64 l, bool fresh) {
            go_up(fresh, width, part[l], l + 1 == ladder.levels ? sum : part[l + 1]);
        });
    }
    map<T>(width, sum, [=](auto s) { return log ? log_of<T>(s) : T(1) / s; }, sums);
    for (i64 k = 0; k < n; ++k) {
        T* to = y + k * by;
        const Row<T> row{x + k * by};
        if (log) map<T>(width, to, [](auto v, auto t, auto s) { return below(v, t) - s; }, row, tops, sums);
        else map<T>(width, to, [](auto e, auto s) { return e * s; }, Row<T>{to}, sums);
    }
}

}  // namespace

template <class T>
void softmax(bool log, i64 outer, i64 count, i64 inner, const T* x, T* y) {
    if (outer * count * inner == 0) return;
    if (inner == 1)
        return parallel_parts(outer, std::max<i64>(1, dear_grain / count), [=](i64 begin, i64 end) {
            for (i64 o = begin; o < end; ++o) one_row(log, count, x + o * count, y + o * count);
        }, 1);
    const i64 strips = (inner + strip - 1) / strip;
    const i64 grain = std::max<i64>(1, dear_grain / (count * std::min(inner, strip)));
    parallel_parts(outer * strips, grain, [=](i64 begin, i64 end) {
        for (i64 s = begin; s < end; ++s) {
            i64 first = s % strips * strip, at = s / strips * count * inner + first;
            columns(log, count, inner, std::min(strip, inner - first), x + at, y + at);
        }
    }, 1);
}

template void softmax<float>(bool, i64, i64, i64, const float*, float*);
template void softmax<double>(bool, i64, i64, i64, const double*, double*);

}  // namespace lunette::LN_ISA
