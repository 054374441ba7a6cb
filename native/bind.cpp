// The one binding file: one line per kernel, nothing else.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <tuple>

#include "isa.hpp"
#include "threads.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace lunette;

namespace {

template <class T>
using In = nb::ndarray<const T, nb::device::cpu, nb::c_contig>;
template <class T>
using Out = nb::ndarray<T, nb::device::cpu, nb::c_contig>;
using Table = nb::ndarray<const i64, nb::device::cpu, nb::c_contig, nb::ndim<1>>;
using Index = nb::ndarray<i64, nb::device::cpu, nb::c_contig>;

void make_pool(PoolTables* self, const std::vector<std::tuple<i64, i64, i64, Table, Table, Table>>& axes) {
    std::vector<PoolTables::Axis> tables;
    auto copy = [](const Table& t) { return std::vector<i64>(t.data(), t.data() + t.size()); };
    for (const auto& [n, m, step, first, count, inside] : axes)
        tables.push_back({n, m, step, copy(first), copy(count), copy(inside)});
    new (self) PoolTables(std::move(tables));
}

// Planes of x, after checking that x holds whole planes of `in` cells and y as many of `out` cells.
template <class X, class Y>
i64 planes_of(const X& x, i64 in, const Y& y, i64 out) {
    i64 nx = static_cast<i64>(x.size()), ny = static_cast<i64>(y.size());
    i64 planes = in > 0 ? nx / in : out > 0 ? ny / out : 0;
    if (nx != planes * in || ny != planes * out)
        throw std::invalid_argument("the arrays do not fit the window tables");
    return planes;
}

template <class T>
void bind_pools(nb::module_& m) {
    m.def("max_pool", [](const PoolTables& tables, In<T> x, Out<T> y, std::optional<Index> index) {
        const Pool& pool = tables.pool();
        i64 planes = planes_of(x, pool.cells_in, y, pool.cells_out);
        if (index) planes_of(x, pool.cells_in, *index, pool.cells_out);
        nb::gil_scoped_release release;
        kernels().of<T>().max_pool(pool, planes, x.data(), y.data(), index ? index->data() : nullptr);
    }, "pool"_a, "x"_a.noconvert(), "y"_a.noconvert(), "index"_a.none().noconvert());

    m.def("max_pool_jvp", [](const PoolTables& tables, In<T> x, In<T> t, Out<T> dy, int ties) {
        i64 planes = planes_of(x, tables.pool().cells_in, dy, tables.pool().cells_out);
        planes_of(t, tables.pool().cells_in, dy, tables.pool().cells_out);
        nb::gil_scoped_release release;
        kernels().of<T>().max_pool_jvp(tables.pool(), planes, x.data(), t.data(), dy.data(), Ties(ties));
    }, "pool"_a, "x"_a.noconvert(), "t"_a.noconvert(), "dy"_a.noconvert(), "ties"_a);

    m.def("max_pool_vjp", [](const PoolTables& tables, In<T> x, In<T> g, Out<T> dx, int ties) {
        i64 planes = planes_of(x, tables.pool().cells_in, g, tables.pool().cells_out);
        planes_of(dx, tables.pool().cells_in, g, tables.pool().cells_out);
        nb::gil_scoped_release release;
        kernels().of<T>().max_pool_vjp(tables.pool(), planes, x.data(), g.data(), dx.data(), Ties(ties));
    }, "pool"_a, "x"_a.noconvert(), "g"_a.noconvert(), "dx"_a.noconvert(), "ties"_a);

    m.def("avg_pool", [](const PoolTables& tables, In<T> x, Out<T> y, int mode, double divisor) {
        i64 planes = planes_of(x, tables.pool().cells_in, y, tables.pool().cells_out);
        nb::gil_scoped_release release;
        kernels().of<T>().avg_pool(tables.pool(), planes, x.data(), y.data(), Mean(mode), T(divisor));
    }, "pool"_a, "x"_a.noconvert(), "y"_a.noconvert(), "mode"_a, "divisor"_a);

    m.def("avg_pool_vjp", [](const PoolTables& tables, In<T> g, Out<T> dx, int mode, double divisor) {
        i64 planes = planes_of(dx, tables.pool().cells_in, g, tables.pool().cells_out);
        nb::gil_scoped_release release;
        kernels().of<T>().avg_pool_vjp(tables.pool(), planes, g.data(), dx.data(), Mean(mode), T(divisor));
    }, "pool"_a, "g"_a.noconvert(), "dx"_a.noconvert(), "mode"_a, "divisor"_a);

    m.def("smooth_max_pool", [](const PoolTables& tables, In<T> x, Out<T> y, double beta, bool include_pad) {
        i64 planes = planes_of(x, tables.pool().cells_in, y, tables.pool().cells_out);
        nb::gil_scoped_release release;
        kernels().of<T>().smooth_max_pool(tables.pool(), planes, x.data(), y.data(), T(beta), include_pad);
    }, "pool"_a, "x"_a.noconvert(), "y"_a.noconvert(), "beta"_a, "include_pad"_a);

    m.def("smooth_max_pool_jvp", [](const PoolTables& tables, In<T> x, std::optional<In<T>> t, Out<T> dy, double beta,
                                    double dbeta, bool include_pad) {
        i64 planes = planes_of(x, tables.pool().cells_in, dy, tables.pool().cells_out);
        if (t) planes_of(*t, tables.pool().cells_in, dy, tables.pool().cells_out);
        nb::gil_scoped_release release;
        kernels().of<T>().smooth_max_pool_jvp(tables.pool(), planes, x.data(), t ? t->data() : nullptr, dy.data(),
                                              T(beta), T(dbeta), include_pad);
    }, "pool"_a, "x"_a.noconvert(), "t"_a.none().noconvert(), "dy"_a.noconvert(), "beta"_a, "dbeta"_a, "include_pad"_a);

    m.def("smooth_max_pool_vjp", [](const PoolTables& tables, In<T> x, In<T> g, Out<T> dx, double beta, bool include_pad) {
        i64 planes = planes_of(x, tables.pool().cells_in, g, tables.pool().cells_out);
        planes_of(dx, tables.pool().cells_in, g, tables.pool().cells_out);
        nb::gil_scoped_release release;
        return kernels().of<T>().smooth_max_pool_vjp(tables.pool(), planes, x.data(), g.data(), dx.data(), T(beta),
                                                     include_pad);
    }, "pool"_a, "x"_a.noconvert(), "g"_a.noconvert(), "dx"_a.noconvert(), "beta"_a, "include_pad"_a);

    m.def("lp_pool", [](const PoolTables& tables, In<T> x, Out<T> y, double p) {
        i64 planes = planes_of(x, tables.pool().cells_in, y, tables.pool().cells_out);
        nb::gil_scoped_release release;
        kernels().of<T>().lp_pool(tables.pool(), planes, x.data(), y.data(), T(p));
    }, "pool"_a, "x"_a.noconvert(), "y"_a.noconvert(), "p"_a);

    m.def("lp_pool_jvp", [](const PoolTables& tables, In<T> x, In<T> t, Out<T> dy, double p) {
        i64 planes = planes_of(x, tables.pool().cells_in, dy, tables.pool().cells_out);
        planes_of(t, tables.pool().cells_in, dy, tables.pool().cells_out);
        nb::gil_scoped_release release;
        kernels().of<T>().lp_pool_jvp(tables.pool(), planes, x.data(), t.data(), dy.data(), T(p));
    }, "pool"_a, "x"_a.noconvert(), "t"_a.noconvert(), "dy"_a.noconvert(), "p"_a);

    m.def("lp_pool_vjp", [](const PoolTables& tables, In<T> x, In<T> g, Out<T> dx, double p) {
        i64 planes = planes_of(x, tables.pool().cells_in, g, tables.pool().cells_out);
        planes_of(dx, tables.pool().cells_in, g, tables.pool().cells_out);
        nb::gil_scoped_release release;
        kernels().of<T>().lp_pool_vjp(tables.pool(), planes, x.data(), g.data(), dx.data(), T(p));
    }, "pool"_a, "x"_a.noconvert(), "g"_a.noconvert(), "dx"_a.noconvert(), "p"_a);
}

// The axes of a convolution, and the sizes of its arrays: x is (B, Cin, *n), w (Cout, Cin/groups, *k), y (B, Cout, *m).
struct ConvOf {
    std::vector<ConvAxis> axes;
    Conv conv;

    using Axes = std::vector<std::tuple<i64, i64, i64, i64, i64, i64>>;
    template <class X, class Y>
    ConvOf(const Axes& list, i64 groups, const X& x, const Y& y) {
        for (const auto& [n, m, kernel, stride, dilation, lo] : list) {
            axes.push_back({n, m, kernel, stride, dilation, lo});
            need(n >= 0 && m >= 1 && kernel >= 1 && stride >= 1 && dilation >= 1 && lo >= 0);
        }
        need(x.ndim() == axes.size() + 2 && y.ndim() == axes.size() + 2 && x.shape(0) == y.shape(0));
        conv = {axes.data(), i64(axes.size()), groups, i64(x.shape(0)), i64(x.shape(1)), i64(y.shape(1))};
        need(groups >= 1 && conv.cin % groups == 0 && conv.cout % groups == 0);
        for (std::size_t a = 0; a < axes.size(); ++a)
            need(i64(x.shape(a + 2)) == axes[a].n && i64(y.shape(a + 2)) == axes[a].m);
    }
    template <class W>
    const Conv& with(const W& w) const {
        need(w.ndim() == axes.size() + 2 && i64(w.shape(0)) == conv.cout && i64(w.shape(1)) == conv.cin / conv.groups);
        for (std::size_t a = 0; a < axes.size(); ++a) need(i64(w.shape(a + 2)) == axes[a].kernel);
        return conv;
    }
    static void need(bool ok) {
        if (!ok) throw std::invalid_argument("the arrays do not fit the convolution");
    }
};

template <class T>
void bind_convs(nb::module_& m) {
    using Axes = const ConvOf::Axes&;
    using Bias = std::optional<In<T>>;
    auto bias = [](const Bias& b, i64 channels) {
        ConvOf::need(!b || i64(b->size()) == channels);
        return b ? b->data() : nullptr;
    };
    m.def("conv", [bias](Axes axes, i64 groups, In<T> x, In<T> w, Bias b, Out<T> y) {
        ConvOf c(axes, groups, x, y);
        const T* add = bias(b, c.with(w).cout);
        nb::gil_scoped_release release;
        kernels().conv_of<T>().conv(c.conv, x.data(), w.data(), nullptr, Epilogue<T>{add, nullptr, false}, y.data());
    }, "axes"_a, "groups"_a, "x"_a.noconvert(), "w"_a.noconvert(), "b"_a.none().noconvert(), "y"_a.noconvert());
    m.def("conv_input_grad", [bias](Axes axes, i64 groups, In<T> w, In<T> g, Bias b, Out<T> dx) {
        ConvOf c(axes, groups, dx, g);
        const T* add = bias(b, c.with(w).cin);
        nb::gil_scoped_release release;
        kernels().conv_of<T>().conv_input_grad(c.conv, w.data(), nullptr, g.data(), Epilogue<T>{add, nullptr, false},
                                               dx.data());
    }, "axes"_a, "groups"_a, "w"_a.noconvert(), "g"_a.noconvert(), "b"_a.none().noconvert(), "dx"_a.noconvert());
    m.def("conv_weight_grad", [](Axes axes, i64 groups, In<T> x, In<T> g, Out<T> dw) {
        ConvOf c(axes, groups, x, g);
        c.with(dw);
        nb::gil_scoped_release release;
        kernels().conv_of<T>().conv_weight_grad(c.conv, x.data(), g.data(), dw.data());
    }, "axes"_a, "groups"_a, "x"_a.noconvert(), "g"_a.noconvert(), "dw"_a.noconvert());
    m.def("conv_bias_grad", [](In<T> g, Out<T> db) {
        ConvOf::need(g.ndim() >= 2 && db.ndim() == 1 && g.shape(1) == db.shape(0));
        i64 cells = 1;
        for (std::size_t a = 2; a < g.ndim(); ++a) cells *= i64(g.shape(a));
        nb::gil_scoped_release release;
        kernels().conv_of<T>().conv_bias_grad(i64(g.shape(0)), i64(g.shape(1)), cells, g.data(), db.data());
    }, "g"_a.noconvert(), "db"_a.noconvert());
}

}  // namespace

NB_MODULE(_native, m) {
    m.def("instruction_set", [] { return kernels().name; });
    m.def("set_num_threads", [](int n) {
        if (n < 1) throw std::invalid_argument("set_num_threads needs at least 1 thread");
        set_num_threads(n);
    }, "n"_a);
    m.def("get_num_threads", num_threads);

    nb::class_<PoolTables>(m, "Pool").def("__init__", make_pool, "axes"_a);
    bind_pools<float>(m);
    bind_pools<double>(m);
    bind_convs<float>(m);
    bind_convs<double>(m);
}
