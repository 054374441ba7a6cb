// Bindings of convolutions and matrix products.
#include "bind.hpp"

#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;
using namespace nb::literals;

namespace lunette {
namespace {

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


}  // namespace

void bind_convs(nb::module_& m) {
    using Axes = const Convs::Axes&;
    // y = (sums + b) * scale + shift + add: the first three have a number for each channel of the result, `add` is an array
    // like the result; `packed` is what conv_pack made of w. All of them may be absent.
    m.def("conv", [](char code, Axes axes, i64 groups, i64 batch, i64 cin, i64 cout, bool relu) {
        return with_type(code, [c = Convs(axes, groups, batch, cin, cout), relu](auto zero) {
            using T = decltype(zero);
            i64 packed = kernels().conv_of<T>().conv_packed_size(c.conv, false);
            const Arg each = maybe(in<T>(c.conv.cout));
            return task({in<T>(c.x), in<T>(c.w), each, each, each, maybe(in<T>(c.y)), maybe(in<T>(packed)), out<T>(c.y)}, [c, relu](Args a) {
                kernels().conv_of<T>().conv(c.conv, a[0], a[1], a[6], Epilogue<T>{a[2], a[3], a[4], a[5], relu}, a[7]);
            });
        });
    }, "code"_a, "axes"_a, "groups"_a, "batch"_a, "cin"_a, "cout"_a, "relu"_a = false,
       "(x, w, b or None, scale or None, shift or None, add or None, packed or None, y)");

    m.def("conv_input_grad", [](char code, Axes axes, i64 groups, i64 batch, i64 cin, i64 cout, bool relu) {
        return with_type(code, [c = Convs(axes, groups, batch, cin, cout), relu](auto zero) {
            using T = decltype(zero);
            i64 packed = kernels().conv_of<T>().conv_packed_size(c.conv, true);
            const Arg each = maybe(in<T>(c.conv.cin));
            return task({in<T>(c.y), in<T>(c.w), each, each, each, maybe(in<T>(c.x)), maybe(in<T>(packed)), out<T>(c.x)}, [c, relu](Args a) {
                kernels().conv_of<T>().conv_input_grad(c.conv, a[1], a[6], a[0], Epilogue<T>{a[2], a[3], a[4], a[5], relu}, a[7]);
            });
        });
    }, "code"_a, "axes"_a, "groups"_a, "batch"_a, "cin"_a, "cout"_a, "relu"_a = false,
       "(g, w, b or None, scale or None, shift or None, add or None, packed or None, dx)");

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

    // The same on arrays in blocks of so many channels (lanes), with the weights that conv_blocked_pack made.
    m.def("lanes", [](char code) {
        return code == 'f' || code == 'd' ? kernels().vector_bytes / (code == 'f' ? 4 : 8) : throw std::invalid_argument("kernels are made for 'f' and 'd'");
    }, "code"_a, "how many numbers of a dtype a vector has");

    m.def("conv_blocked", [](char code, Axes axes, i64 groups, i64 batch, i64 cin, i64 cout, bool input_grad, bool relu) {
        return with_type(code, [c = Convs(axes, groups, batch, cin, cout), input_grad, relu](auto zero) {
            using T = decltype(zero);
            const i64 packed = kernels().conv_of<T>().blocked_packed_size(c.conv, input_grad);
            fits(packed > 0);
            const Arg each = maybe(in<T>(input_grad ? c.conv.cin : c.conv.cout));
            const i64 x = input_grad ? c.y : c.x, y = input_grad ? c.x : c.y;
            return task({in<T>(x), in<T>(packed), each, each, each, maybe(in<T>(y)), out<T>(y)}, [c, input_grad, relu](Args a) {
                kernels().conv_of<T>().blocked_conv(c.conv, input_grad, a[0], a[1], Epilogue<T>{a[2], a[3], a[4], a[5], relu}, a[6]);
            });
        });
    }, "code"_a, "axes"_a, "groups"_a, "batch"_a, "cin"_a, "cout"_a, "input_grad"_a, "relu"_a = false,
       "(x, packed, b or None, scale or None, shift or None, add or None, y)");

    m.def("conv_blocked_pack", [](char code, Axes axes, i64 groups, i64 batch, i64 cin, i64 cout, bool input_grad) {
        return with_type(code, [c = Convs(axes, groups, batch, cin, cout), input_grad](auto zero) {
            using T = decltype(zero);
            return task({in<T>(c.w), out<T>(kernels().conv_of<T>().blocked_packed_size(c.conv, input_grad))}, [c, input_grad](Args a) {
                kernels().conv_of<T>().blocked_pack(c.conv, input_grad, a[0], a[1]);
            });
        });
    }, "code"_a, "axes"_a, "groups"_a, "batch"_a, "cin"_a, "cout"_a, "input_grad"_a,
       "(w, packed), packed with as many elements as Task.count(1) says; 0: there is no such kernel");

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

}  // namespace lunette
