// Convolution and its three gradients, in any number of dimensions, as one blocked matrix product.
//
// Forward and input gradient are the same sum, a Gather:  out[r, q] = sum over (c, t) of a[r][c, t] * in[c,
// q*step + off_t] where r is a row (a channel of the result), c a channel of the source, q an output cell, t
// a tap (a kernel cell). A strided input gradient is one Gather per residue of the input cell modulo the
// stride.
//
// A tile of output cells first gets a zero-padded copy of the source it needs, channel by channel, split so
// that every tap of a line of output cells is one contiguous run. The product then reads its vectors either
// straight from that copy (shifted by the tap) or, where lines are too short for that, from panels packed
// from it.
#include "columns.hpp"
#include "conv_run.hpp"
#include "conv_weight_grad.hpp"
#include "depthwise_spread.hpp"
#include "direct.hpp"
#include "operators.hpp"

namespace lunette::LN_ISA {
namespace {

// Whether every cell reads itself only, for so few rows that packing it would cost as much as the sums do.
inline bool is_short_product(const Conv& c) {
    if (c.groups != 1 || c.cout > 4) return false;
    for (i64 a = 0; a < c.rank; ++a) {
        const ConvAxis& x = c.axes[a];
        if (x.kernel != 1 || x.stride != 1 || x.lo != 0 || x.n != x.m) return false;
    }
    return true;
}

// Sums that lie where the result does, finished.
template <class T>
void finish_all(const Epilogue<T>& e, i64 batch, i64 channels, i64 cells, T* y) {
    for (i64 i = 0; i < batch * channels; ++i) {
        const Finish<T> finish = finish_of(e, i % channels);
        T* line = y + i * cells;
        const T* add = e.add ? e.add + i * cells : nullptr;
        for (i64 j = 0; j < cells; ++j) line[j] = finish(line[j], add ? add + j : nullptr);
    }
}

template <class T>
void short_product(const Conv& c, const T* x, const T* w, const Epilogue<T>& e, T* y) {
    i64 cells = sizes(c.axes, c.rank).m;
    const bool plain = !e.bias && !e.scale && !e.shift && !e.add;
    matmul<T>(c.batch, c.cout, cells, c.cin, false, false, w, 0, x, c.cin * cells, nullptr, plain && e.relu, y);
    if (!plain) finish_all(e, c.batch, c.cout, cells, y);
}

// Whether the input gradient of one cell is all of dx: rows of weights as they lie, each times a number.
inline bool is_one_cell(const Conv& c) {
    bool one = c.groups == 1 && c.rank > 0;
    for (i64 a = 0; a < c.rank; ++a) {
        const ConvAxis& x = c.axes[a];
        one &= x.m == 1 && x.lo == 0 && x.dilation == 1 && x.n == x.kernel;
    }
    return one;
}

template <class T>
void one_cell(const Conv& c, const T* w, const T* g, const Epilogue<T>& e, T* dx) {
    const i64 cells = sizes(c.axes, c.rank).n;
    const bool plain = !e.bias && !e.scale && !e.shift && !e.add;
    matmul<T>(1, c.batch, c.cin * cells, c.cout, false, false, g, 0, w, 0, nullptr, plain && e.relu, dx);
    if (!plain) finish_all(e, c.batch, c.cin, cells, dx);
}

}  // namespace

template <class T>
void conv(const Conv& conv, const T* x, const T* w, const T* packed, const Epilogue<T>& e, T* y) {
    auto [axes, d, groups, batch, cin, cout] = conv;
    Sizes s = sizes(axes, d);
    if (any_zero(batch, cout, s.m)) return;
    if (direct_conv(conv, false, x, w, packed, e, y)) return;
    Gather z;
    if (!forward_gather(z, conv)) return fill(y, batch, cout, s.m, e);
    if (is_short_product(conv)) return short_product(conv, x, w, e, y);
    run_gather(z, x, w, packed, forward_layout(z, s), e, y);
}

template <class T>
void conv_input_grad(const Conv& conv, const T* w, const T* packed, const T* g, const Epilogue<T>& e, T* dx) {
    auto [axes, d, groups, batch, cin, cout] = conv;
    Sizes s = sizes(axes, d);
    if (any_zero(batch, cin, s.n)) return;
    if (is_one_cell(conv) && cout > 0) return one_cell(conv, w, g, e, dx);
    if (direct_conv(conv, true, g, w, packed, e, dx)) return;
    if (by_columns(conv)) return input_grad_by_columns(conv, w, g, e, dx);
    if (spread_depthwise(conv, w, g, e, dx)) return;
    i64 count = residues(conv);
    bool all_seen = true;
    for (i64 i = 0; i < count && all_seen; ++i) {
        Gather z;
        all_seen = residue_gather(z, i, conv);
    }
    if (!all_seen) fill(dx, batch, cin, s.n, e);
    for (i64 i = 0; i < count; ++i) {
        Gather z;
        if (!residue_gather(z, i, conv)) continue;
        run_gather(z, g, w, packed, residue_layout(z, s), e, dx);
        if (packed) packed += packed_size<T>(z, residue_layout(z, s));
    }
}

// f(z, l) for every product that a convolution or its input gradient is made of.
template <class F>
static void each_gather(const Conv& conv, bool input_grad, F f) {
    Sizes s = sizes(conv.axes, conv.rank);
    if (input_grad ? by_columns(conv) : is_short_product(conv)) return;
    for (i64 i = 0; i < (input_grad ? residues(conv) : 1); ++i) {
        Gather z;
        if (input_grad ? residue_gather(z, i, conv) : forward_gather(z, conv))
            f(z, input_grad ? residue_layout(z, s) : forward_layout(z, s));
    }
}

template <class T>
i64 conv_packed_size(const Conv& conv, bool input_grad) {
    if (input_grad && is_one_cell(conv)) return 0;
    i64 size = direct_packed_size<T>(conv, input_grad);
    if (size) return size;
    each_gather(conv, input_grad, [&](const Gather& z, WeightLayout l) { size += packed_size<T>(z, l); });
    return size;
}

template <class T>
void conv_pack(const Conv& conv, bool input_grad, const T* w, T* packed) {
    if (direct_packed_size<T>(conv, input_grad)) return direct_pack(conv, input_grad, w, packed);
    each_gather(conv, input_grad, [&](const Gather& z, WeightLayout l) {
        if (!packed_size<T>(z, l)) return;
        PackedWeights<T> a;
        choose_rows(a, z, l, true);
        pack_weights(a, z, w, packed);
        packed += packed_size<T>(z, l);
    });
}

template <class T>
void conv_weight_grad(const Conv& conv, const T* x, const T* g, T* dw) {
    if (!direct_weight_grad(conv, x, g, dw)) weight_grad(conv, x, g, dw);
}

// db[c] = sum of g[c, o] over batch and cells, in vectors as far as there are cells, the rest singly.
template <class T>
void conv_bias_grad(i64 batch, i64 channels, i64 cells, const T* g, T* db) {
    constexpr i64 L = lanes<T>, B = 512 * L;
    auto task = [&](i64 c) {
        LongSum<Vector<T>> wide;
        LongSum<T> rest;
        for (i64 b = 0; b < batch; ++b) {
            const T* p = g + (b * channels + c) * cells;
            i64 i = 0;
            while (i + L <= cells) {
                Vector<T> acc[4];
                for (auto& v : acc) v = broadcast(T(-0.0));
                i64 end = least(cells, i + B);
                for (; i + 4 * L <= end; i += 4 * L)
                    for (int v = 0; v < 4; ++v) acc[v] += load(p + i + v * L);
                for (; i + L <= end; i += L) acc[0] += load(p + i);
                wide.add_block((acc[0] + acc[1]) + (acc[2] + acc[3]));
            }
            for (; i < cells; ++i) rest.add(p[i]);
        }
        T sum = fold<int(L)>(wide.total(), [](auto a, auto b) { return a + b; }) + rest.total();
        db[c] = batch > 0 && cells > 0 ? sum : T(0);
    };
    if (work(batch, channels, cells) < 100000)
        for (i64 c = 0; c < channels; ++c) task(c);
    else parallel_for(channels, task);
}

template void conv(const Conv&, const float*, const float*, const float*, const Epilogue<float>&, float*);
template void conv(const Conv&, const double*, const double*, const double*, const Epilogue<double>&, double*);
template void conv_input_grad(const Conv&, const float*, const float*, const float*, const Epilogue<float>&, float*);
template void conv_input_grad(const Conv&, const double*, const double*, const double*, const Epilogue<double>&,
                              double*);
template i64 conv_packed_size<float>(const Conv&, bool);
template i64 conv_packed_size<double>(const Conv&, bool);
template void conv_pack(const Conv&, bool, const float*, float*);
template void conv_pack(const Conv&, bool, const double*, double*);
template void conv_weight_grad<float>(const Conv&, const float*, const float*, float*);
template void conv_weight_grad<double>(const Conv&, const double*, const double*, double*);
template void conv_bias_grad<float>(i64, i64, i64, const float*, float*);
template void conv_bias_grad<double>(i64, i64, i64, const double*, double*);

}  // namespace lunette::LN_ISA
