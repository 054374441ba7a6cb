// The one binding file: one maker per kernel. A maker binds a kernel to its geometry and dtype and gives a Task.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>

#include "decide.hpp"
#include "foreign.hpp"
#include "isa.hpp"
#include "plan.hpp"
#include "relax.hpp"
#include "threads.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace lunette;

namespace {

// ---- arrays from Python

class Buffer {
public:
    Buffer(nb::handle array, bool write) {
        int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (write ? PyBUF_WRITABLE : 0);
        if (PyObject_GetBuffer(array.ptr(), &view_, flags)) throw nb::python_error();
    }
    Buffer(const Buffer&) = delete;
    ~Buffer() { PyBuffer_Release(&view_); }
    char* data() const { return static_cast<char*>(view_.buf); }
    i64 bytes() const { return view_.len; }
    // The letter of the dtype; 'q' for any 64-bit integer.
    char code() const {
        char c = view_.format && !view_.format[1] ? view_.format[0] : '?';
        return c == 'l' && view_.itemsize == 8 ? 'q' : c;
    }

private:
    Py_buffer view_;
};

void fits(bool ok) {
    if (!ok) throw std::invalid_argument("the arrays do not fit the kernel");
}

using Sizes = std::vector<i64>;

// The number of elements of an array, whose bytes can be counted, too.
i64 product(const Sizes& sizes) {
    i64 p = 1;
    for (i64 n : sizes) {
        fits(n >= 0);
        if (n == 0) return 0;
    }
    for (i64 n : sizes)
        if (__builtin_mul_overflow(p, n, &p)) fits(false);
    fits(p <= most_elements);
    return p;
}

void call(const Task& task, nb::args given) {
    fits(given.size() == task.args.size() && given.size() <= most_args);
    std::optional<Buffer> buffers[most_args];
    void* pointers[most_args] = {};
    for (std::size_t i = 0; i < given.size(); ++i) {
        const Arg& arg = task.args[i];
        if (arg.code == 0) continue;
        if (given[i].is_none()) {
            fits(arg.optional);
            continue;
        }
        Buffer& b = buffers[i].emplace(given[i], arg.write);
        fits(b.code() == arg.code && b.bytes() == arg.count * size_of(arg.code));
        pointers[i] = b.data();
    }
    nb::gil_scoped_release release;
    task.run(pointers);
}

void run_plan(const Plan& plan, nb::args given, std::optional<nb::object> seconds) {
    fits(given.size() == plan.arguments().size());
    std::vector<std::unique_ptr<Buffer>> buffers;
    std::vector<char*> pointers;
    for (std::size_t i = 0; i < given.size(); ++i) {
        auto [bytes, write] = plan.arguments()[i];
        buffers.push_back(std::make_unique<Buffer>(given[i], write));
        fits(buffers.back()->bytes() == bytes);
        pointers.push_back(buffers.back()->data());
    }
    std::optional<Buffer> times;
    if (seconds) {
        times.emplace(*seconds, true);
        fits(times->code() == 'd' && times->bytes() == i64(8 * plan.steps()));
    }
    nb::gil_scoped_release release;
    plan.run(pointers.data(), times ? reinterpret_cast<double*>(times->data()) : nullptr);
}

// ---- makers

// A pointer of whatever type the kernel asks for.
struct Any {
    void* p;
    template <class T>
    operator T*() const {
        return static_cast<T*>(p);
    }
};
struct Args {
    void* const* p;
    Any operator[](int i) const { return {p[i]}; }
    template <class T>
    T number(int i) const {
        return p[i] ? *static_cast<const T*>(p[i]) : T(0);
    }
};

template <class F>
Task task(std::vector<Arg> args, F run) {
    return {std::move(args), [run](void* const* p) { run(Args{p}); }};
}

// f(T()) for the dtype's letter.
template <class F>
Task with_type(char code, F f) {
    if (code == 'f') return f(float());
    if (code == 'd') return f(double());
    throw std::invalid_argument("kernels are made for 'f' and 'd'");
}

using Tables = std::shared_ptr<PoolTables>;

struct Pools {
    Tables tables;
    i64 planes, n, m;  // cells of all planes, before and behind
    Pools(Tables t, i64 p)
        : tables(t), planes(p), n(product({p, t->pool().cells_in})), m(product({p, t->pool().cells_out})) {}
    const Pool& pool() const { return tables->pool(); }
    const Pool& both_ways() const { return tables->both_ways(); }
};

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

// Rule S1 keeps a beta of zero out, but a compiled graph may compute one.
template <class T>
T checked_beta(T beta) {
    if (beta == 0 || !std::isfinite(beta)) throw std::domain_error("beta must be finite and other than zero");
    return beta;
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

void bind_pools(nb::module_& m) {
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

// ---- pools in other arithmetics: drivers that call a pool's own kernel on a few planes at a time

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
}

// A convolution with its axes: x is (batch, cin, *n), w (cout, cin/groups, *kernel), y (batch, cout, *m).
struct Convs {
    std::shared_ptr<std::vector<ConvAxis>> axes = std::make_shared<std::vector<ConvAxis>>();
    Conv conv;
    i64 x, w, y;  // elements of the arrays

    using Axes = std::vector<std::tuple<i64, i64, i64, i64, i64, i64>>;
    Convs(const Axes& list, i64 groups, i64 batch, i64 cin, i64 cout) {
        Sizes ns{batch, cin}, ms{batch, cout}, ks;
        for (const auto& [n, m, kernel, stride, dilation, lo] : list) {
            fits(n >= 0 && m >= 1 && kernel >= 1 && stride >= 1 && dilation >= 1 && lo >= 0);
            axes->push_back({n, m, kernel, stride, dilation, lo});
            ns.push_back(n), ks.push_back(kernel), ms.push_back(m);
        }
        fits(groups >= 1 && batch >= 0 && cin >= 0 && cout >= 0 && cin % groups == 0 && cout % groups == 0);
        conv = {axes->data(), i64(axes->size()), groups, batch, cin, cout};
        ks.insert(ks.end(), {cout, cin / groups});
        x = product(ns), w = product(ks), y = product(ms);
    }
};

void bind_convs(nb::module_& m) {
    using Axes = const Convs::Axes&;
    // `add` is an array like the result that is added to it, `packed` is what conv_pack made of w; both may be absent.
    m.def("conv", [](char code, Axes axes, i64 groups, i64 batch, i64 cin, i64 cout, bool relu) {
        return with_type(code, [c = Convs(axes, groups, batch, cin, cout), relu](auto zero) {
            using T = decltype(zero);
            i64 packed = kernels().conv_of<T>().conv_packed_size(c.conv, false);
            return task({in<T>(c.x), in<T>(c.w), maybe(in<T>(c.conv.cout)), maybe(in<T>(c.y)), maybe(in<T>(packed)),
                         out<T>(c.y)}, [c, relu](Args a) {
                kernels().conv_of<T>().conv(c.conv, a[0], a[1], a[4], Epilogue<T>{a[2], a[3], relu}, a[5]);
            });
        });
    }, "code"_a, "axes"_a, "groups"_a, "batch"_a, "cin"_a, "cout"_a, "relu"_a = false,
       "(x, w, b or None, add or None, packed or None, y)");

    m.def("conv_input_grad", [](char code, Axes axes, i64 groups, i64 batch, i64 cin, i64 cout, bool relu) {
        return with_type(code, [c = Convs(axes, groups, batch, cin, cout), relu](auto zero) {
            using T = decltype(zero);
            i64 packed = kernels().conv_of<T>().conv_packed_size(c.conv, true);
            return task({in<T>(c.y), in<T>(c.w), maybe(in<T>(c.conv.cin)), maybe(in<T>(c.x)), maybe(in<T>(packed)),
                         out<T>(c.x)}, [c, relu](Args a) {
                kernels().conv_of<T>().conv_input_grad(c.conv, a[1], a[4], a[0], Epilogue<T>{a[2], a[3], relu}, a[5]);
            });
        });
    }, "code"_a, "axes"_a, "groups"_a, "batch"_a, "cin"_a, "cout"_a, "relu"_a = false,
       "(g, w, b or None, add or None, packed or None, dx)");

    m.def("conv_pack", [](char code, Axes axes, i64 groups, i64 batch, i64 cin, i64 cout, bool input_grad) {
        return with_type(code, [c = Convs(axes, groups, batch, cin, cout), input_grad](auto zero) {
            using T = decltype(zero);
            i64 packed = kernels().conv_of<T>().conv_packed_size(c.conv, input_grad);
            return task({in<T>(c.w), out<T>(packed)}, [c, input_grad](Args a) {
                kernels().conv_of<T>().conv_pack(c.conv, input_grad, a[0], a[1]);
            });
        });
    }, "code"_a, "axes"_a, "groups"_a, "batch"_a, "cin"_a, "cout"_a, "input_grad"_a,
       "(w, packed), packed with as many elements as Task.count(1) says; 0: packing gains nothing");

    m.def("matmul", [](char code, i64 batch, i64 m, i64 n, i64 k, bool turn_x, bool turn_y, bool relu) {
        fits(batch >= 0 && m >= 0 && n >= 0 && k >= 0);
        return with_type(code, [=](auto zero) {
            using T = decltype(zero);
            const i64 x = product({batch, m, k}), y = product({batch, k, n}), z = product({batch, m, n});
            return task({in<T>(x), in<T>(y), maybe(in<T>(n)), out<T>(z)},
                        [=](Args a) {
                kernels().conv_of<T>().matmul(batch, m, n, k, turn_x, turn_y, a[0], m * k, a[1], k * n, a[2], relu,
                                              a[3]);
            });
        });
    }, "code"_a, "batch"_a, "m"_a, "n"_a, "k"_a, "turn_x"_a, "turn_y"_a, "relu"_a = false,
       "(x, y, b or None, z): z = x @ y + b");

    m.def("conv_weight_grad", [](char code, Axes axes, i64 groups, i64 batch, i64 cin, i64 cout) {
        return with_type(code, [c = Convs(axes, groups, batch, cin, cout)](auto zero) {
            using T = decltype(zero);
            return task({in<T>(c.x), in<T>(c.y), out<T>(c.w)}, [c](Args a) {
                kernels().conv_of<T>().conv_weight_grad(c.conv, a[0], a[1], a[2]);
            });
        });
    }, "code"_a, "axes"_a, "groups"_a, "batch"_a, "cin"_a, "cout"_a, "(x, g, dw)");

    m.def("conv_bias_grad", [](char code, i64 batch, i64 channels, i64 cells) {
        return with_type(code, [=](auto zero) {
            using T = decltype(zero);
            return task({in<T>(product({batch, channels, cells})), out<T>(channels)}, [=](Args a) {
                kernels().conv_of<T>().conv_bias_grad(batch, channels, cells, a[0], a[1]);
            });
        });
    }, "code"_a, "batch"_a, "channels"_a, "cells"_a, "(g, db)");
}

// ---- what stands between convolutions and pools

// The place of a name in the list of an enum's names.
template <class E>
E named(const std::string& name, std::initializer_list<const char*> names) {
    auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) throw std::invalid_argument("no kernel is named " + name);
    return static_cast<E>(found - names.begin());
}

// Two dense arrays against each other, as NumPy does it.
Walk broadcast(const Sizes& x, const Sizes& y) {
    const std::size_t rank = std::max(x.size(), y.size());
    std::vector<Walk::Axis> axes(rank);
    i64 a = 1, b = 1;  // cells of the axes further in
    for (std::size_t k = 1; k <= rank; ++k) {
        i64 n = k <= x.size() ? x[x.size() - k] : 1, m = k <= y.size() ? y[y.size() - k] : 1;
        fits(n == m || n == 1 || m == 1);
        axes[rank - k] = {n == 1 ? m : n, n == 1 ? 0 : a, m == 1 ? 0 : b};
        a *= n, b *= m;
    }
    Sizes sizes;
    for (const Walk::Axis& axis : axes) sizes.push_back(axis.size);
    product(sizes);  // or it has more cells than can be counted
    return Walk(axes);
}

// A dense array and its reduction over some axes.
Walk reducing(const Sizes& shape, const Sizes& gone) {
    std::vector<Walk::Axis> axes(shape.size());
    i64 a = 1, b = 1;
    for (i64 k = i64(shape.size()) - 1; k >= 0; --k) {
        bool goes = std::find(gone.begin(), gone.end(), k) != gone.end();
        axes[k] = {shape[k], a, goes ? 0 : b};
        a *= shape[k], b *= goes ? 1 : shape[k];
    }
    return Walk(axes);
}

// Every offset lies inside an array of `count` cells.
void inside(const Sizes& shape, i64 offset, const Sizes& strides, i64 count) {
    i64 least = offset, most = offset;
    for (std::size_t k = 0; k < shape.size(); ++k) {
        i64 far;
        if (__builtin_mul_overflow(shape[k] - 1, strides[k], &far)) fits(false);
        if (__builtin_add_overflow(far < 0 ? least : most, far, far < 0 ? &least : &most)) fits(false);
    }
    fits(least >= 0 && most < count);
}

void bind_glue(nb::module_& m) {
    m.def("unary", [](char code, const std::string& name, i64 count, double parameter) {
        auto kind = named<Unary>(name, {"neg", "relu", "leaky_relu", "sigmoid", "tanh", "exp", "log", "sqrt", "abs",
                                        "sign", "power", "copy", "erf", "bell", "floor"});
        fits(count >= 0);
        return with_type(code, [=](auto zero) {
            using T = decltype(zero);
            return task({in<T>(count), out<T>(count)}, [=](Args a) {
                kernels().glue_of<T>().unary(kind, count, T(parameter), a[0], a[1]);
            });
        });
    }, "code"_a, "name"_a, "count"_a, "parameter"_a = 0.0, "(x, y)");

    m.def("binary", [](char code, const std::string& name, const Sizes& x_shape, const Sizes& y_shape) {
        auto kind = named<Binary>(name, {"add", "sub", "mul", "div", "maximum", "minimum", "gate", "equal", "pow"});
        const i64 n = product(x_shape), m = product(y_shape);
        return with_type(code, [=, walk = broadcast(x_shape, y_shape)](auto zero) {
            using T = decltype(zero);
            return task({in<T>(n), in<T>(m), out<T>(walk.cells)}, [=](Args a) {
                kernels().glue_of<T>().binary(kind, walk, a[0], a[1], a[2]);
            });
        });
    }, "code"_a, "name"_a, "x_shape"_a, "y_shape"_a, "(x, y, z)");

    m.def("prefer", [](char code, i64 count) {
        fits(count >= 0);
        return with_type(code, [=](auto zero) {
            using T = decltype(zero);
            return task({in<T>(count), in<T>(count), in<T>(count), out<T>(count)}, [=](Args a) {
                kernels().glue_of<T>().prefer(count, a[0], a[1], a[2], a[3]);
            });
        });
    }, "code"_a, "count"_a, "(a, b, t, out)");

    m.def("scale_shift", [](char code, i64 outer, i64 channels, i64 inner, bool relu) {
        return with_type(code, [=, n = product({outer, channels, inner})](auto zero) {
            using T = decltype(zero);
            return task({in<T>(n), in<T>(channels), maybe(in<T>(channels)), out<T>(n)}, [=](Args a) {
                kernels().glue_of<T>().scale_shift(outer, channels, inner, relu, a[0], a[1], a[2], a[3]);
            });
        });
    }, "code"_a, "outer"_a, "channels"_a, "inner"_a, "relu"_a, "(x, scale, shift or None, y)");

    m.def("reduce", [](char code, const std::string& name, const Sizes& shape, const Sizes& axes) {
        auto kind = named<Reduction>(name, {"sum", "mean", "max"});
        Sizes rest = shape;
        for (i64 k : axes) {
            fits(k >= 0 && k < i64(shape.size()));
            rest[k] = 1;
        }
        const i64 n = product(shape), m = product(rest);
        fits(n > 0 || m == 0 || kind == Reduction::sum);
        return with_type(code, [=, walk = reducing(shape, axes)](auto zero) {
            using T = decltype(zero);
            return task({in<T>(n), out<T>(m)}, [=](Args a) {
                if (n == 0) fill<T>(m, T(0), a[1]);
                else kernels().glue_of<T>().reduce(kind, walk, a[0], a[1]);
            });
        });
    }, "code"_a, "name"_a, "shape"_a, "axes"_a, "(x, y)");

    m.def("softmax", [](char code, bool log, i64 outer, i64 count, i64 inner) {
        return with_type(code, [=, n = product({outer, count, inner})](auto zero) {
            using T = decltype(zero);
            return task({in<T>(n), out<T>(n)}, [=](Args a) {
                kernels().glue_of<T>().softmax(log, outer, count, inner, a[0], a[1]);
            });
        });
    }, "code"_a, "log"_a, "outer"_a, "count"_a, "inner"_a, "(x, y)");

    m.def("strided_copy", [](char code, const Sizes& shape, i64 from_offset, const Sizes& from_strides, i64 from_count,
                             i64 to_offset, const Sizes& to_strides, i64 to_count, std::optional<double> filling) {
        fits(from_strides.size() == shape.size() && to_strides.size() == shape.size());
        fits(from_count >= 0 && to_count >= 0);
        if (product(shape) > 0) {
            inside(shape, from_offset, from_strides, from_count);
            inside(shape, to_offset, to_strides, to_count);
        }
        std::vector<Walk::Axis> axes;
        for (std::size_t k = 0; k < shape.size(); ++k) {
            fits(to_strides[k] > 0 || (to_strides[k] == 0 && shape[k] <= 1));
            axes.push_back({shape[k], from_strides[k], to_strides[k]});
        }
        // Written in the order of the memory written; the order given is as good where the strides are equal.
        std::stable_sort(axes.begin(), axes.end(), [](const auto& p, const auto& q) { return p.b > q.b; });
        return with_type(code, [=, walk = Walk(axes)](auto zero) {
            using T = decltype(zero);
            return task({in<T>(from_count), out<T>(to_count)}, [=](Args a) {
                const T* x = a[0];
                T* y = a[1];
                if (filling) filled_copy<T>(walk, x + from_offset, to_offset, to_count, T(*filling), y);
                else if (walk.cells > 0) strided_copy<T>(walk, x + from_offset, y + to_offset);
            });
        });
    }, "code"_a, "shape"_a, "from_offset"_a, "from_strides"_a, "from_count"_a, "to_offset"_a, "to_strides"_a,
       "to_count"_a, "fill"_a.none(), "(x, y); not in place");

    m.def("concat", [](char code, i64 outer, const Sizes& inners) {
        fits(inners.size() + 1 <= most_args);
        return with_type(code, [=](auto zero) {
            using T = decltype(zero);
            std::vector<Arg> args;
            i64 row = 0;
            for (i64 n : inners) args.push_back(in<T>(product({outer, n}))), row += n;
            args.push_back(out<T>(product({outer, row})));
            return task(args, [=](Args a) {
                const T* x[most_args];
                for (std::size_t k = 0; k < inners.size(); ++k) x[k] = a[int(k)];
                concat<T>(outer, inners, x, a[int(inners.size())]);
            });
        });
    }, "code"_a, "outer"_a, "inners"_a, "(x1, ..., xn, y); not in place");

    m.def("take", [](char code, i64 outer, i64 size, i64 inner, i64 count) {
        fits(count >= 0);
        return with_type(code, [=, n = product({outer, size, inner}), m = product({outer, count, inner})](auto zero) {
            using T = decltype(zero);
            return task({in<T>(n), in<i64>(count), out<T>(m)}, [=](Args a) {
                take<T>(outer, size, inner, count, a[0], a[1], a[2]);
            });
        });
    }, "code"_a, "outer"_a, "size"_a, "inner"_a, "count"_a, "(x, places, y); not in place");

    m.def("put", [](char code, i64 outer, i64 size, i64 inner, i64 count) {
        fits(count >= 0);
        return with_type(code, [=, n = product({outer, size, inner}), m = product({outer, count, inner})](auto zero) {
            using T = decltype(zero);
            return task({in<T>(m), in<i64>(count), out<T>(n)}, [=](Args a) {
                put<T>(outer, size, inner, count, a[0], a[1], a[2]);
            });
        });
    }, "code"_a, "outer"_a, "size"_a, "inner"_a, "count"_a, "(g, places, y); not in place");

    m.def("one_hot", [](char code, i64 outer, i64 classes, i64 inner) {
        return with_type(code, [=, n = product({outer, classes, inner}), labels = product({outer, inner})](auto zero) {
            using T = decltype(zero);
            return task({in<i64>(labels), out<T>(n)}, [=](Args a) {
                one_hot<T>(outer, classes, inner, a[0], a[1]);
            });
        });
    }, "code"_a, "outer"_a, "classes"_a, "inner"_a, "(labels, y)");

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

// ---- rows of coefficients

Patches patches(i64 rows, i64 channels, const Sizes& size, const Sizes& space) {
    fits(!size.empty() && size.size() == space.size() && size.size() <= Patches::most_axes);
    Patches p{rows, channels, static_cast<int>(size.size()), {}, {}};
    std::copy(size.begin(), size.end(), p.size);
    std::copy(space.begin(), space.end(), p.space);
    product({rows, channels, product(size)}), product({rows, channels, product(space)});
    return p;
}

void bind_rows(nb::module_& m) {
    m.def("weigh_rows", [](i64 rows, i64 channels, const Sizes& size, const Sizes& space, bool own) {
        const Patches p = patches(rows, channels, size, space);
        const i64 table = product({own ? rows : 1, channels, p.plane()});
        return task({in<double>(product({rows, channels, p.cells()})), maybe(in<i64>(product({rows, p.d}))), in<double>(table),
                     in<double>(table), out<double>(rows)}, [=](Args a) {
            weigh_rows(p, own, a[0], a[1], a[2], a[3], a[4]);
        });
    }, "rows"_a, "channels"_a, "size"_a, "space"_a, "own"_a, "(a, origin, low, high, y)");
    m.def("pull_rows", [](i64 rows, i64 channels, const Sizes& size, const Sizes& space, const Sizes& behind,
                          const Sizes& space_behind, const Sizes& stride, const Sizes& offsets, bool own) {
        const Patches p = patches(rows, channels, size, space);
        const std::size_t d = size.size();
        fits(behind.size() == d && space_behind.size() == d && stride.size() == d && offsets.size() % d == 0);
        for (i64 s : stride) fits(s > 0);
        Behind to{{}, {}, {}, offsets, static_cast<i64>(offsets.size() / d)};
        std::copy(behind.begin(), behind.end(), to.size);
        std::copy(space_behind.begin(), space_behind.end(), to.space);
        std::copy(stride.begin(), stride.end(), to.stride);
        const i64 table = product({own ? rows : 1, to.taps, channels, p.plane()}), origins = product({rows, p.d});
        return task({in<double>(product({rows, channels, p.cells()})), maybe(in<i64>(origins)), in<double>(table),
                     in<double>(table), out<double>(product({rows, channels, product(behind)})), maybe(in<i64>(origins))},
                    [=](Args a) {
            pull_rows(p, to, own, a[0], a[1], a[2], a[3], a[4], a[5]);
        });
    }, "rows"_a, "channels"_a, "size"_a, "space"_a, "behind"_a, "space_behind"_a, "stride"_a, "offsets"_a, "own"_a,
       "(a, origin, low, high, g, g_origin)");
}

}  // namespace

NB_MODULE(_native, m) {
    m.attr("SUM_BLOCK") = sum_block;
    // Programs and compiled functions that users keep in globals live until the process ends, and where another library
    // holds on to modules they are not taken down before. That is no leak, so nothing is printed about it.
    nb::set_leak_warnings(false);
    m.def("instruction_set", [] { return kernels().name; });
    m.def("set_num_threads", [](int n) {
        if (n < 1) throw std::invalid_argument("set_num_threads needs at least 1 thread");
        set_num_threads(n);
    }, "n"_a);
    m.def("get_num_threads", num_threads);

    nb::class_<Task>(m, "Task", "A kernel bound to its geometry; call it with arrays.")
        .def("__call__", call, nb::sig("def __call__(self, *args: object) -> None"))
        .def("count", [](const Task& t, std::size_t i) { return t.args.at(i).count; }, "i"_a, "Elements of argument i.")
        .def("taking", &Task::taking, "places"_a, "count"_a,
             "The same kernel for callers with `count` arguments: its own argument i is theirs places[i]; -1: absent.");
    nb::class_<Plan>(m, "Plan", "Tasks in order: (task, slots) each; a slot is (argument or -1 for the arena, offset).")
        .def(nb::init<std::vector<Plan::Step>, std::vector<Plan::Slot>, std::vector<Plan::Argument>, i64>(),
             "steps"_a, "slots"_a, "arguments"_a, "arena"_a)
        .def("run", run_plan, "args"_a, nb::kw_only(), "seconds"_a = nb::none(),
             nb::sig("def run(self, *args: object, seconds: object | None = None) -> None"));
    nb::class_<PoolTables>(m, "Pool", "The window tables of a pool: (n, m, step, first, count, inside) per axis.")
        .def(nb::new_(&make_tables), "axes"_a)
        .def("record_bytes", [](const PoolTables& t) { return record_bytes(t.pool()); },
             "The bytes of one number of a record of winners; 0: no record.");
    bind_pools(m);
    bind_arithmetics(m);
    bind_convs(m);
    bind_glue(m);
    bind_rows(m);
    bind_foreign(m);
}
