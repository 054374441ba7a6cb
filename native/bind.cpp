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
i64 planes_of(std::size_t x, i64 in, std::size_t y, i64 out) {
    i64 planes = in > 0 ? static_cast<i64>(x) / in : out > 0 ? static_cast<i64>(y) / out : 0;
    if (static_cast<i64>(x) != planes * in || static_cast<i64>(y) != planes * out)
        throw std::invalid_argument("the arrays do not fit the window tables");
    return planes;
}

template <class T>
void bind_pools(nb::module_& m) {
    m.def("max_pool", [](const PoolTables& tables, In<T> x, Out<T> y, std::optional<Index> index) {
        const Pool& pool = tables.pool();
        i64 planes = planes_of(x.size(), pool.cells_in, y.size(), pool.cells_out);
        if (index) planes_of(x.size(), pool.cells_in, index->size(), pool.cells_out);
        nb::gil_scoped_release release;
        kernels().of<T>().max_pool(pool, planes, x.data(), y.data(), index ? index->data() : nullptr);
    }, "pool"_a, "x"_a.noconvert(), "y"_a.noconvert(), "index"_a.none().noconvert());
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
}
