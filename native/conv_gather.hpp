// The Gathers that a convolution and its input gradient are made of.
#pragma once
#include "epilogue.hpp"
#include "gather.hpp"

namespace lunette::LN_ISA {
namespace {

// The arguments of a convolution, as the kernels below want them.
struct Sizes {
    i64 n = 1, m = 1, kernel = 1;
};
inline Sizes sizes(const ConvAxis* axes, i64 d) {
    Sizes s;
    for (i64 a = 0; a < d; ++a) s.n *= axes[a].n, s.m *= axes[a].m, s.kernel *= axes[a].kernel;
    return s;
}

// False: there are no terms at all.
inline bool forward_gather(Gather& z, const Conv& c) {
    auto [axes, d, groups, batch, cin, cout] = c;
    Sizes s = sizes(axes, d);
    if (any_zero(batch, cin, cout, s.n, s.m, s.kernel)) return false;
    z.groups = groups;
    z.rows = cout / groups, z.channels = cin / groups;
    z.in_size = batch * cin * s.n, z.in_channel = s.n, z.out_channel = s.m;
    z.off.reserve(8);
    add_axis(z, Axis{batch, batch, 1, cin * s.n, cout * s.m, 0, 0, false}, 1, 0,
             [](i64, i64& o) { return o = 0, true; });
    i64 in = s.n, out = s.m, place = s.kernel;
    for (i64 a = 0; a < d; ++a) {
        const ConvAxis& x = axes[a];
        in /= most(1, x.n), out /= x.m, place /= x.kernel;
        add_axis(z, Axis{x.n, x.m, x.stride, in, out, 0, 0, false}, x.kernel, place,
                 [&](i64 k, i64& o) { return o = k * x.dilation - x.lo, true; });
    }
    finish_axes(z);
    return z.taps > 0;
}
inline WeightLayout forward_layout(const Gather& z, const Sizes& s) {
    return {z.rows * z.channels * s.kernel, z.channels * s.kernel, s.kernel, s.kernel};
}

// The result where there are no terms.
template <class T>
void fill(T* y, i64 batch, i64 channels, i64 cells, const Epilogue<T>& e) {
    for (i64 i = 0; i < batch * channels; ++i) {
        const Finish<T> finish = finish_of(e, i % channels);
        for (i64 j = i * cells; j < (i + 1) * cells; ++j) y[j] = finish(no_terms(e), e.add ? e.add + j : nullptr);
    }
}

// Sums of a weight gradient, [channel][tap][width], of which those from number t on become weights: `to` is where the first
// channel begins, in the first of `count` rows.
template <class T>
void put_weights(const Gather& z, const List<i64>& place, i64 kernel, const T* sums, i64 width, i64 count, i64 t, i64 n, T* to) {
    const i64 pitch = z.channels * kernel;
    if (z.taps == kernel) return transpose_block(sums, width, n, 0, count, to + t, pitch, 1);
    for (i64 r = 0; r < n; ++r)
        for (i64 l = 0; l < count; ++l)
            to[l * pitch + (t + r) / z.taps * kernel + place[(t + r) % z.taps]] = sums[r * width + l];
}

// dx[j, i] = b[j] + sum of g[c, o] * w[c, j, k] over o*stride - lo + k*dilation = i. Input cells of one
// residue modulo the stride see the same kernel cells, at steps of one output cell: each residue is a Gather
// of its own. False: it sees none.
inline bool residue_gather(Gather& z, i64 residue, const Conv& c) {
    auto [axes, d, groups, batch, cin, cout] = c;
    Sizes s = sizes(axes, d);
    if (any_zero(batch, cin, cout, s.n, s.m, s.kernel)) return false;
    z.groups = groups, z.rows = cin / groups, z.channels = cout / groups;
    z.in_size = batch * cout * s.m, z.in_channel = s.m, z.out_channel = s.n;
    add_axis(z, Axis{batch, batch, 1, cout * s.m, cin * s.n, 0, 0, false}, 1, 0,
             [](i64, i64& o) { return o = 0, true; });
    i64 in = s.m, out = s.n, place = s.kernel;
    for (i64 a = 0; a < d; ++a) {
        const ConvAxis& x = axes[a];
        in /= x.m, out /= x.n, place /= x.kernel;
        i64 r = residue % least(x.stride, x.n), seen = z.off.size;
        residue /= least(x.stride, x.n);
        z.base += r * out;
        add_axis(z, Axis{x.m, up(x.n - r, x.stride), 1, in, out * x.stride, 0, 0, false}, x.kernel, place,
                 [&](i64 k, i64& o) {
                     i64 at = r + x.lo - k * x.dilation;
                     return o = floor_div(at, x.stride), o * x.stride == at;
                 });
        if (z.off.size == seen) return false;
    }
    finish_axes(z);
    return true;
}
inline i64 residues(const Conv& c) {
    i64 count = 1;
    for (i64 a = 0; a < c.rank; ++a) count *= least(c.axes[a].stride, most(1, c.axes[a].n));
    return count;
}
inline WeightLayout residue_layout(const Gather& z, const Sizes& s) {
    return {z.channels * z.rows * s.kernel, s.kernel, z.rows * s.kernel, s.kernel};
}

}  // namespace
}  // namespace lunette::LN_ISA
