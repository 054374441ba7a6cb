// Bindings of what stands between convolutions and pools.
#include "bind.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <string>

namespace nb = nanobind;
using namespace nb::literals;

namespace lunette {
namespace {

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


}  // namespace

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
}

}  // namespace lunette
