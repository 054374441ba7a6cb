// Bindings of kernels for other arithmetics: pools, by drivers that call a pool's own kernel on a few planes at a time, and
// what decides roundings.
#include "bind.hpp"

#include "decide.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace lunette {
namespace {

template <class T, class F>
PlaneKernel<T> on_planes(const F& f) {
    return {&f, [](const void* self, i64 planes, const T* x, T* y) { (*static_cast<const F*>(self))(planes, x, y); }};
}

// (x, parameter, proved, y, places, count, low or None): `parameter` is what results are divided by, or beta, or p, and `proved` the
// fields of Proved. Floats of `digits` digits are rounded from what the float64 kernel gives, doubles from pairs of them, which
// are given as y + low instead where low is asked for.
template <class F>
Task rounded(const Pools& p, i64 parameters, Pooling kind, bool include_pad, int digits, F kernel) {
    fits(digits == 53 || digits == 24 || digits == 11 || digits == 8);
    const bool mean = kind == Pooling::mean, whole = mean && p.pool().rank == 1 && p.pool().axes[0].whole;
    const Planes planes{p.planes, p.pool().cells_in, p.pool().cells_out, mean ? parameters : 0, whole};
    fits(parameters == 1 || parameters == planes.out);
    const Arg x = digits == 53 ? in<double>(p.n) : in<float>(p.n), y = digits == 53 ? out<double>(p.m) : out<float>(p.m);
    return task({x, in<double>(parameters), in<double>(7), y, out<i64>(p.m), out<i64>(1), maybe(out<double>(p.m))},
                [=](Args a) {
        const double *parameter = a[1], *b = a[2];
        const Proved proved{b[0], b[1], b[2], b[3], b[4], b[5], b[6]};
        const ArithmeticKernels& rounding = kernels().arithmetic;
        if (digits == 53)
            return rounding.round_doubles(kind, p.pool(), planes, proved, include_pad, a[0], parameter, a[3], a[4], a[5],
                                          a[6]);
        auto run = [&](i64 count, const double* x, double* y) { kernel(parameter, count, x, y); };
        rounding.round_planes(planes, on_planes<double>(run), proved, digits, a[0], parameter, a[3], a[4], a[5]);
    });
}

// (lo, hi, parameter, numbers, y_lo, y_hi, top): `numbers` are the fields of Outward; of points hi is lo.
template <class F>
Task bounded(char code, const Pools& p, Outward::Kind kind, F kernel) {
    return with_type(code, [=](auto zero) {
        using T = decltype(zero);
        const Planes planes{p.planes, p.pool().cells_in, p.pool().cells_out};
        return task({in<T>(p.n), in<T>(p.n), in<T>(1), in<double>(4), out<T>(p.m), out<T>(p.m), out<double>(1)},
                    [=](Args a) {
            const double* b = a[3];
            const T parameter = a.number<T>(2);
            auto run = [&](i64 count, const T* x, T* y) { kernel(parameter, count, x, y); };
            const Outward outward{kind, b[0], b[1], b[2], b[3]};
            if constexpr (sizeof(T) == 4)
                kernels().arithmetic.bound_floats(planes, on_planes<T>(run), outward, a[0], a[1], a[4], a[5], a[6]);
            else kernels().arithmetic.bound_doubles(planes, on_planes<T>(run), outward, a[0], a[1], a[4], a[5], a[6]);
        });
    });
}


}  // namespace

void bind_arithmetics(nb::module_& m) {
    m.def("rounded_avg_pool", [](Tables tables, i64 planes, int digits, i64 divisors) {
        const Pools p(tables, planes);
        return rounded(p, divisors, Pooling::mean, false, digits, [p](const double*, i64 count, const double* x, double* y) {
            kernels().of<double>().avg_pool(p.pool(), count, x, y, Mean::divisor, 1.0);
        });
    }, "pool"_a, "planes"_a, "digits"_a, "divisors"_a, "(x, divisors, proved, y, places, count, low or None)");

    m.def("rounded_smooth_max_pool", [](Tables tables, i64 planes, int digits, bool include_pad) {
        const Pools p(tables, planes);
        return rounded(p, 1, Pooling::smooth_max, include_pad, digits,
                       [p, include_pad](const double* beta, i64 count, const double* x, double* y) {
            kernels().of<double>().smooth_max_pool(p.pool(), count, x, y, checked_beta(*beta), include_pad);
        });
    }, "pool"_a, "planes"_a, "digits"_a, "include_pad"_a, "(x, beta, proved, y, places, count, low or None)");

    m.def("rounded_lp_pool", [](Tables tables, i64 planes, int digits) {
        const Pools p(tables, planes);
        return rounded(p, 1, Pooling::lp, false, digits, [p](const double* norm, i64 count, const double* x, double* y) {
            kernels().of<double>().lp_pool(p.pool(), count, x, y, *norm);
        });
    }, "pool"_a, "planes"_a, "digits"_a, "(x, p, proved, y, places, count, low or None); of doubles, p is a whole number");

    m.def("bounded_avg_pool", [](char code, Tables tables, i64 planes, int mode) {
        return bounded(code, Pools(tables, planes), Outward::sums,
                       [p = Pools(tables, planes), mode = Mean(mode)]<class T>(T divisor, i64 count, const T* x, T* y) {
            kernels().of<T>().avg_pool(p.pool(), count, x, y, mode, divisor);
        });
    }, "code"_a, "pool"_a, "planes"_a, "mode"_a, "(lo, hi, divisor, numbers, y_lo, y_hi, top)");

    m.def("bounded_smooth_max_pool", [](char code, Tables tables, i64 planes, bool include_pad) {
        return bounded(code, Pools(tables, planes), Outward::ends,
                       [p = Pools(tables, planes), include_pad]<class T>(T beta, i64 count, const T* x, T* y) {
            kernels().of<T>().smooth_max_pool(p.pool(), count, x, y, checked_beta(beta), include_pad);
        });
    }, "code"_a, "pool"_a, "planes"_a, "include_pad"_a, "(lo, hi, beta, numbers, y_lo, y_hi, top)");

    m.def("bounded_lp_pool", [](char code, Tables tables, i64 planes) {
        return bounded(code, Pools(tables, planes), Outward::magnitudes,
                       [p = Pools(tables, planes)]<class T>(T norm, i64 count, const T* x, T* y) {
            kernels().of<T>().lp_pool(p.pool(), count, x, y, norm);
        });
    }, "code"_a, "pool"_a, "planes"_a, "(lo, hi, p, numbers, y_lo, y_hi, top)");

    m.def("decide", [](i64 outer, i64 groups, i64 channels, i64 inner, bool varies, bool rounded, i64 most) {
        fits(groups > 0 && channels % groups == 0 && most >= 0);
        const i64 rows = product({outer, channels}), n = product({rows, inner});
        const i64 bounds = product({outer, groups, varies ? inner : 1});
        return task({in<double>(n), in<double>(bounds), in<double>(channels), out<float>(n), out<i64>(most), out<i64>(1)},
                    [=](Args a) {
            decide({outer, groups, channels, inner, varies, rounded}, a[0], a[1], a[2], a[3], a[4], most, a[5]);
        });
    }, "outer"_a, "groups"_a, "channels"_a, "inner"_a, "varies"_a, "rounded"_a, "most"_a,
       "(hi, rows, columns, y, places, count)");

    m.def("widen", [](i64 rows, i64 cells) {
        const i64 n = product({rows, cells});
        return task({in<float>(n), out<double>(n), out<double>(rows), out<double>(rows)}, [=](Args a) {
            widen(rows, cells, a[0], a[1], a[2], a[3]);
        });
    }, "rows"_a, "cells"_a, "(x, y, least, greatest)");

    m.def("exponentials", [](i64 n) {
        fits(n >= 0);
        return task({in<double>(n), in<double>(n), out<double>(n), out<double>(n)}, [=](Args a) {
            kernels().arithmetic.exponentials(n, a[0], a[1], a[2], a[3]);
        });
    }, "n"_a, "(hi, lo, y_hi, y_lo): exp of pairs, |hi| <= 700, as pairs");
}

}  // namespace lunette
