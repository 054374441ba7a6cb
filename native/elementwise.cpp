// Functions of one cell at a time. NaN goes through all of them.
#include "elementwise.hpp"

#include <utility>

#include "operators.hpp"

namespace lunette::LN_ISA {
namespace {

template <class T>
using Lanes = Vec<T, lanes<T>>;

template <class T>
Lanes<T> all(T s) {
    return splat<lanes<T>>(s);
}

// A function of numbers, for which there is no vector code.
template <class T, class F>
Lanes<T> each_lane(Lanes<T> x, F f) {
    for (int l = 0; l < lanes<T>; ++l) x[l] = f(x[l]);
    return x;
}

// 2/sqrt(pi) * exp(-x*x), where the rounding of the square is made good: it costs as many ulps as the square is large.
template <class T>
T bell_of(T x) {
    const double wide = x, square = wide * wide, rest = std::fma(wide, wide, -square);
    const double y = 1.1283791670955125739 * std::exp(-square);
    return static_cast<T>(y == 0 || !(rest == rest) ? y : y - y * rest);
}

template <class T>
Lanes<T> relu_of(Lanes<T> x) {
    return x < T(0) ? Lanes<T>{} : x;  // -0 stays -0
}

// x^exponent by products, for the exponents from least_whole to most_whole: those that stay within 3 ulp. Negative
// ones start from 1/x, so that the power of a great number underflows gradually.
constexpr int least_whole = -2, most_whole = 4;
template <class T, int exponent>
Lanes<T> whole_power(Lanes<T> x) {
    if constexpr (exponent < 0) return whole_power<T, -exponent>(T(1) / x);
    else if constexpr (exponent == 0) return all(T(1));
    else if constexpr (exponent == 1) return x;
    else if constexpr (exponent == 2) return x * x;
    else if constexpr (exponent == 3) return x * x * x;
    else return (x * x) * (x * x);
}

template <class T>
void power_of(i64 count, T p, const T* x, T* y) {
    auto run = [&](i64 grain, auto f) {
        parallel_parts(count, grain, [&](i64 begin, i64 end) { map<T>(end - begin, y + begin, f, Row<T>{x + begin}); });
    };
    auto whole = [&]<int... e>(std::integer_sequence<int, e...>) {
        return ((p == e + least_whole &&
                 (run(cheap_grain, [](auto v) { return whole_power<T, e + least_whole>(v); }), true)) || ...);
    };
    if (whole(std::make_integer_sequence<int, most_whole - least_whole + 1>())) return;
    if (p == T(0.5))  // unlike sqrt, pow is 0 at -0 and infinite at -infinity
        return run(cheap_grain, [](Lanes<T> v) {
            return v == -infinity<T> ? all(infinity<T>) : square_root<T>(v + T(0));
        });
    parallel_parts(count, dear_grain, [=](i64 begin, i64 end) {
        for (i64 i = begin; i < end; ++i) y[i] = std::pow(x[i], p);
    });
}

// One number per short row against a dense array, the same for each outermost step: rather one long row with every
// number repeated. Whether `narrow` are the strides of such an operand.
inline bool worth_spreading(const Walk& walk, i64 Walk::Axis::* narrow, i64 Walk::Axis::* dense, i64 most) {
    const Walk::Axis* axis = walk.axes;
    return walk.rank == 3 && axis[2].size <= most && axis[0].*narrow == 0 && axis[1].*narrow == 1 &&
           axis[2].*narrow == 0 && axis[1].*dense == axis[2].size && axis[2].*dense == 1;
}
template <class T>
const T* spread(i64 count, i64 times, const T* p, int slot = 0) {
    T* to = static_cast<T*>(scratch(count * times * sizeof(T), slot));
    for (i64 i = 0; i < count; ++i) std::fill_n(to + i * times, times, p[i]);
    return to;
}

// z = f(x, y) along the walk, whose innermost axis is dense in at least one of them.
template <class T, class F>
void broadcast(const Walk& walk, const T* x, const T* y, T* z, F f) {
    constexpr i64 most = 8 * lanes<T>;
    const bool narrow_x = worth_spreading(walk, &Walk::Axis::a, &Walk::Axis::b, most);
    if (narrow_x || worth_spreading(walk, &Walk::Axis::b, &Walk::Axis::a, most)) {
        const i64 outer = walk.axes[0].size, rows = walk.axes[1].size, times = walk.axes[2].size, n = rows * times;
        Walk longer = walk;
        longer.rank = 2;
        longer.axes[0] = {outer, narrow_x ? 0 : walk.axes[0].a, narrow_x ? walk.axes[0].b : 0};
        longer.axes[1] = {n, 1, 1};
        return broadcast(longer, narrow_x ? spread(rows, times, x) : x, narrow_x ? y : spread(rows, times, y), z, f);
    }
    if (walk.rank == 0) {
        if (walk.cells == 1) map<T>(1, z, f, Row<T>{x}, Row<T>{y});
        return;
    }
    const int depth = walk.rank - 1;
    const Walk::Axis inner = walk.axes[depth];
    auto row = [&](i64 at, i64 n, const T* a, const T* b) {
        if (inner.b == 0) map<T>(n, z + at, f, Row<T>{a}, Same<T>(*b));
        else if (inner.a == 0) map<T>(n, z + at, f, Same<T>(*a), Row<T>{b});
        else map<T>(n, z + at, f, Row<T>{a}, Row<T>{b});
    };
    parallel_parts(walk.cells, cheap_grain, [&](i64 begin, i64 end) {
        i64 at = begin, skip = begin % inner.size;
        each_cell(walk.axes, depth, begin / inner.size, (end - 1) / inner.size + 1, [&](i64 a, i64 b) {
            i64 n = std::min(inner.size - skip, end - at);
            row(at, n, x + a + skip * inner.a, y + b + skip * inner.b);
            at += n, skip = 0;
        });
    });
}

}  // namespace

template <class T>
void unary(Unary name, i64 count, T parameter, const T* x, T* y) {
    using V = Lanes<T>;
    auto run = [&](i64 grain, auto f) {
        parallel_parts(count, grain, [&](i64 begin, i64 end) { map<T>(end - begin, y + begin, f, Row<T>{x + begin}); });
    };
    switch (name) {
        case Unary::neg: return run(cheap_grain, [](V v) { return -v; });
        case Unary::relu: return run(cheap_grain, [](V v) { return relu_of<T>(v); });
        case Unary::leaky_relu: return run(cheap_grain, [=](V v) { return v < T(0) ? v * parameter : v; });
        case Unary::sigmoid: return run(dear_grain, [](V v) { return sigmoid_of<T>(v); });
        case Unary::tanh: return run(dear_grain, [](V v) { return tanh_of<T>(v); });
        case Unary::exp: return run(dear_grain, [](V v) { return exp_of<T>(v); });
        case Unary::log: return run(dear_grain, [](V v) { return log_of<T>(v); });
        case Unary::sqrt: return run(cheap_grain, [](V v) { return square_root<T>(v); });
        case Unary::abs: return run(cheap_grain, [](V v) { return magnitude<T>(v); });
        case Unary::sign:  // +0 at either zero
            return run(cheap_grain, [](V v) { return v > T(0) ? all(T(1)) : v < T(0) ? all(T(-1)) : v + T(0); });
        case Unary::power: return power_of(count, parameter, x, y);
        case Unary::copy:
            if (x == y) return;
            return run(cheap_grain, [](V v) { return v; });  // memcpy would pass by the caches where it is long
        case Unary::erf: return run(dear_grain, [](V v) { return each_lane<T>(v, [](T c) { return std::erf(c); }); });
        case Unary::bell: return run(dear_grain, [](V v) { return each_lane<T>(v, bell_of<T>); });
        case Unary::floor: return run(cheap_grain, [](V v) { return each_lane<T>(v, [](T c) { return std::floor(c); }); });
    }
}

template <class T>
void binary(Binary name, const Walk& walk, const T* x, const T* y, T* z) {
    using V = Lanes<T>;
    auto run = [&](auto f) { broadcast<T>(walk, x, y, z, f); };
    switch (name) {
        case Binary::add: return run([](V a, V b) { return a + b; });
        case Binary::sub: return run([](V a, V b) { return a - b; });
        case Binary::mul: return run([](V a, V b) { return a * b; });
        case Binary::div: return run([](V a, V b) { return a / b; });
        // Of equal numbers (zeros of either sign) the first.
        case Binary::maximum: return run([](V a, V b) { return (a >= b) | (a != a) ? a : b; });
        case Binary::minimum: return run([](V a, V b) { return (a <= b) | (a != a) ? a : b; });
        case Binary::gate: return run([](V a, V t) { return a > T(0) ? t : a <= T(0) ? V{} : a; });
        case Binary::equal: return run([](V a, V b) { return a == b ? all(T(1)) : either_nan(a, b) ? a + b : V{}; });
        case Binary::pow:
            return run([](V a, V b) {
                for (int l = 0; l < lanes<T>; ++l) a[l] = std::pow(a[l], b[l]);
                return a;
            });
    }
}

// How much of t the greater of a and b lets through, when ties share.
template <class T>
void prefer(i64 count, const T* a, const T* b, const T* t, T* out) {
    using V = Lanes<T>;
    parallel_parts(count, cheap_grain, [=](i64 begin, i64 end) {
        map<T>(end - begin, out + begin, [](V p, V q, V r) {
            V lesser = either_nan(p, q) ? p + q : V{};
            return p > q ? r : p == q ? r * T(0.5) : lesser;
        }, Row<T>{a + begin}, Row<T>{b + begin}, Row<T>{t + begin});
    });
}

template <class T>
void scale_shift(i64 outer, i64 channels, i64 inner, bool relu, const T* x, const T* scale, const T* shift, T* y) {
    using V = Lanes<T>;
    const i64 cells = outer * channels * inner;
    if (cells == 0) return;
    if (inner > 1 && inner < 2 * lanes<T> && outer > 1) {  // short rows: repeat the factors and have one long row
        scale = spread(channels, inner, scale, 0);
        if (shift) shift = spread(channels, inner, shift, 1);
        channels *= inner, inner = 1;
    }
    // f(row of y, its length, and the factors as operands)
    auto each_row = [&](i64 begin, i64 end, auto f) {
        if (inner == 1) {
            for (i64 i = begin, n; i < end; i += n) {
                i64 c = i % channels;
                n = std::min(end - i, channels - c);
                f(i, n, Row<T>{scale + c}, Row<T>{shift ? shift + c : nullptr});
            }
        } else {
            for (i64 i = begin, n; i < end; i += n) {
                i64 r = i / inner, c = r % channels;
                n = std::min(end, (r + 1) * inner) - i;
                f(i, n, Same<T>(scale[c]), Same<T>(shift ? shift[c] : T(0)));
            }
        }
    };
    parallel_parts(cells, cheap_grain, [&](i64 begin, i64 end) {
        each_row(begin, end, [&](i64 i, i64 n, auto factor, auto term) {
            Row<T> from{x + i};
            if (shift && relu)
                map<T>(n, y + i, [](V v, V s, V t) { return relu_of<T>(rounded_product(v, s) + t); }, from, factor, term);
            else if (shift) map<T>(n, y + i, [](V v, V s, V t) { return rounded_product(v, s) + t; }, from, factor, term);
            else if (relu) map<T>(n, y + i, [](V v, V s) { return relu_of<T>(v * s); }, from, factor);
            else map<T>(n, y + i, [](V v, V s) { return v * s; }, from, factor);
        });
    });
}

#define INSTANTIATE(T)                                                                                          \
    template void unary<T>(Unary, i64, T, const T*, T*);                                                        \
    template void binary<T>(Binary, const Walk&, const T*, const T*, T*);                                       \
    template void prefer<T>(i64, const T*, const T*, const T*, T*);                                             \
    template void scale_shift<T>(i64, i64, i64, bool, const T*, const T*, const T*, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace lunette::LN_ISA
