// Bindings of pools, and of their window tables.
#include "bind.hpp"

#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <limits>

namespace nb = nanobind;
using namespace nb::literals;

namespace lunette {
namespace {

std::shared_ptr<PoolTables> make_tables(
    const std::vector<std::tuple<i64, i64, i64, nb::object, nb::object, nb::object>>& axes) {
    std::vector<PoolTables::Axis> tables;
    auto copy = [](nb::handle t) {
        Buffer b(t, false);
        fits(b.code() == 'q');
        const i64* p = reinterpret_cast<const i64*>(b.data());
        return std::vector<i64>(p, p + b.bytes() / 8);
    };
    for (const auto& [n, m, step, first, count, inside] : axes)
        tables.push_back({n, m, step, copy(first), copy(count), copy(inside)});
    return std::make_shared<PoolTables>(std::move(tables));
}

// The bytes of a record of winners; 0: none, where a window is empty or a plane has more cells than 32 bits count.
i64 record_bytes(const Pool& pool) {
    if (pool.has_empty || pool.cells_in > std::numeric_limits<std::int32_t>::max()) return 0;
    return pool.window <= 256 ? 1 : 4;
}

// f(T(), R(), pools) for the dtype's letter and the numbers of the record.
template <class F>
Task with_record(char code, Tables tables, i64 planes, F f) {
    fits(record_bytes(tables->pool()) > 0);
    return with_type(code, [f, p = Pools(tables, planes)](auto zero) {
        if (record_bytes(p.pool()) == 1) return f(zero, std::uint8_t(), p);
        return f(zero, std::uint32_t(), p);
    });
}

}  // namespace

void bind_pools(nb::module_& m) {
    nb::class_<PoolTables>(m, "Pool", "The window tables of a pool: (n, m, step, first, count, inside) per axis.")
        .def(nb::new_(&make_tables), "axes"_a)
        .def("record_bytes", [](const PoolTables& t) { return record_bytes(t.pool()); },
             "The bytes of one number of a record of winners; 0: no record.");

    m.def("max_pool", [](char code, Tables tables, i64 planes) {
        return with_type(code, [p = Pools(tables, planes)](auto zero) {
            using T = decltype(zero);
            return task({in<T>(p.n), out<T>(p.m), maybe(out<i64>(p.m))}, [p](Args a) {
                kernels().of<T>().max_pool(p.pool(), p.planes, a[0], a[1], a[2]);
            });
        });
    }, "code"_a, "pool"_a, "planes"_a, "(x, y, index or None)");

    m.def("max_pool_jvp", [](char code, Tables tables, i64 planes, int ties) {
        return with_type(code, [p = Pools(tables, planes), ties = Ties(ties)](auto zero) {
            using T = decltype(zero);
            return task({in<T>(p.n), in<T>(p.n), out<T>(p.m)}, [p, ties](Args a) {
                kernels().of<T>().max_pool_jvp(p.pool(), p.planes, a[0], a[1], a[2], ties);
            });
        });
    }, "code"_a, "pool"_a, "planes"_a, "ties"_a, "(x, t, dy)");

    m.def("max_pool_vjp", [](char code, Tables tables, i64 planes, int ties) {
        return with_type(code, [p = Pools(tables, planes), ties = Ties(ties)](auto zero) {
            using T = decltype(zero);
            return task({in<T>(p.n), in<T>(p.m), out<T>(p.n)}, [p, ties](Args a) {
                kernels().of<T>().max_pool_vjp(p.both_ways(), p.planes, a[0], a[1], a[2], ties);
            });
        });
    }, "code"_a, "pool"_a, "planes"_a, "ties"_a, "(x, g, dx)");

    m.def("max_pool_recording", [](char code, Tables tables, i64 planes) {
        return with_record(code, tables, planes, [](auto zero, auto number, const Pools& p) {
            using T = decltype(zero);
            using R = decltype(number);
            return task({in<T>(p.n), maybe(out<T>(p.m)), out<R>(p.m)}, [p](Args a) {
                kernels().of<T>().template max_pool_record<R>().forward(p.pool(), p.planes, a[0], a[1], a[2]);
            });
        });
    }, "code"_a, "pool"_a, "planes"_a, "(x, y or None, numbers)");

    m.def("max_pool_recorded_jvp", [](char code, Tables tables, i64 planes) {
        return with_record(code, tables, planes, [](auto zero, auto number, const Pools& p) {
            using T = decltype(zero);
            using R = decltype(number);
            return task({in<R>(p.m), in<T>(p.n), out<T>(p.m)}, [p](Args a) {
                kernels().of<T>().template max_pool_record<R>().jvp(p.pool(), p.planes, a[0], a[1], a[2]);
            });
        });
    }, "code"_a, "pool"_a, "planes"_a, "(numbers, t, dy)");

    m.def("max_pool_recorded_vjp", [](char code, Tables tables, i64 planes) {
        return with_record(code, tables, planes, [](auto zero, auto number, const Pools& p) {
            using T = decltype(zero);
            using R = decltype(number);
            return task({in<R>(p.m), in<T>(p.m), out<T>(p.n)}, [p](Args a) {
                kernels().of<T>().template max_pool_record<R>().vjp(p.both_ways(), p.planes, a[0], a[1], a[2]);
            });
        });
    }, "code"_a, "pool"_a, "planes"_a, "(numbers, g, dx)");

    m.def("avg_pool", [](char code, Tables tables, i64 planes, int mode, double divisor) {
        return with_type(code, [p = Pools(tables, planes), mode = Mean(mode), divisor](auto zero) {
            using T = decltype(zero);
            return task({in<T>(p.n), out<T>(p.m)}, [p, mode, divisor](Args a) {
                kernels().of<T>().avg_pool(p.pool(), p.planes, a[0], a[1], mode, T(divisor));
            });
        });
    }, "code"_a, "pool"_a, "planes"_a, "mode"_a, "divisor"_a, "(x, y)");

    m.def("avg_pool_vjp", [](char code, Tables tables, i64 planes, int mode, double divisor) {
        return with_type(code, [p = Pools(tables, planes), mode = Mean(mode), divisor](auto zero) {
            using T = decltype(zero);
            return task({in<T>(p.m), out<T>(p.n)}, [p, mode, divisor](Args a) {
                kernels().of<T>().avg_pool_vjp(p.both_ways(), p.planes, a[0], a[1], mode, T(divisor));
            });
        });
    }, "code"_a, "pool"_a, "planes"_a, "mode"_a, "divisor"_a, "(g, dx)");

    m.def("smooth_max_pool", [](char code, Tables tables, i64 planes, bool include_pad) {
        return with_type(code, [p = Pools(tables, planes), include_pad](auto zero) {
            using T = decltype(zero);
            return task({in<T>(p.n), in<T>(1), out<T>(p.m)}, [p, include_pad](Args a) {
                T beta = checked_beta(a.number<T>(1));
                kernels().of<T>().smooth_max_pool(p.pool(), p.planes, a[0], a[2], beta, include_pad);
            });
        });
    }, "code"_a, "pool"_a, "planes"_a, "include_pad"_a, "(x, beta, y)");

    m.def("smooth_max_pool_jvp", [](char code, Tables tables, i64 planes, bool include_pad) {
        return with_type(code, [p = Pools(tables, planes), include_pad](auto zero) {
            using T = decltype(zero);
            return task({in<T>(p.n), in<T>(1), maybe(in<T>(p.n)), maybe(in<T>(1)), out<T>(p.m)},
                        [p, include_pad](Args a) {
                T beta = checked_beta(a.number<T>(1));
                kernels().of<T>().smooth_max_pool_jvp(p.pool(), p.planes, a[0], a[2], a[4], beta, a.number<T>(3),
                                                      include_pad);
            });
        });
    }, "code"_a, "pool"_a, "planes"_a, "include_pad"_a, "(x, beta, t or None, dbeta or None, dy)");

    m.def("smooth_max_pool_vjp", [](char code, Tables tables, i64 planes, bool include_pad) {
        return with_type(code, [p = Pools(tables, planes), include_pad](auto zero) {
            using T = decltype(zero);
            return task({in<T>(p.n), in<T>(1), in<T>(p.m), maybe(out<T>(p.n)), maybe(out<T>(1))},
                        [p, include_pad](Args a) {
                T* dx = a[3];
                std::vector<T> own(dx ? 0 : p.n);
                double dbeta = 0;
                T* to = a[4];
                kernels().of<T>().smooth_max_pool_vjp(p.both_ways(), p.planes, a[0], a[2], dx ? dx : own.data(),
                                                      checked_beta(a.number<T>(1)), include_pad, to ? &dbeta : nullptr);
                if (to) *to = T(dbeta);
            });
        });
    }, "code"_a, "pool"_a, "planes"_a, "include_pad"_a, "(x, beta, g, dx or None, dbeta or None)");

    m.def("lp_pool", [](char code, Tables tables, i64 planes, double norm) {
        return with_type(code, [p = Pools(tables, planes), norm](auto zero) {
            using T = decltype(zero);
            return task({in<T>(p.n), out<T>(p.m)}, [p, norm](Args a) {
                kernels().of<T>().lp_pool(p.pool(), p.planes, a[0], a[1], T(norm));
            });
        });
    }, "code"_a, "pool"_a, "planes"_a, "p"_a, "(x, y)");

    m.def("lp_pool_jvp", [](char code, Tables tables, i64 planes, double norm) {
        return with_type(code, [p = Pools(tables, planes), norm](auto zero) {
            using T = decltype(zero);
            return task({in<T>(p.n), in<T>(p.n), out<T>(p.m)}, [p, norm](Args a) {
                kernels().of<T>().lp_pool_jvp(p.pool(), p.planes, a[0], a[1], a[2], T(norm));
            });
        });
    }, "code"_a, "pool"_a, "planes"_a, "p"_a, "(x, t, dy)");

    m.def("lp_pool_vjp", [](char code, Tables tables, i64 planes, double norm) {
        return with_type(code, [p = Pools(tables, planes), norm](auto zero) {
            using T = decltype(zero);
            return task({in<T>(p.n), in<T>(p.m), out<T>(p.n)}, [p, norm](Args a) {
                kernels().of<T>().lp_pool_vjp(p.both_ways(), p.planes, a[0], a[1], a[2], T(norm));
            });
        });
    }, "code"_a, "pool"_a, "planes"_a, "p"_a, "(x, g, dx)");
}

}  // namespace lunette
