#include "relax.hpp"

#include <algorithm>

#include "threads.hpp"

namespace lunette {
namespace {

constexpr i64 grain = 1 << 15;  // coefficients that pay for waking another thread

// f(r) for all rows.
template <class F>
void each_row(i64 rows, i64 work, F f) {
    const i64 parts = std::min<i64>(4 * num_threads(), rows * std::max<i64>(work, 1) / grain);
    if (num_threads() == 1 || parts <= 1) {
        for (i64 r = 0; r < rows; ++r) f(r);
        return;
    }
    const i64 size = (rows + parts - 1) / parts;
    parallel_for((rows + size - 1) / size, [&](i64 p) {
        for (i64 r = p * size; r < std::min(rows, (p + 1) * size); ++r) f(r);
    });
}

// Vectors, so that no branch depends on signs, which are as good as random. A register holds a part of one, or more.
constexpr int many = 4;
typedef double Some __attribute__((vector_size(many * sizeof(double))));

inline void load(Some& v, const double* p) { __builtin_memcpy(&v, p, sizeof v); }

// y = a * (a > 0 ? low : high); zero wins over infinity.
inline void choose(Some& y, const Some& a, const Some& low, const Some& high) {
    y = a * (a > 0 ? low : high);
    y = a == 0 ? Some{} : y;
}

// f(m, v) for parts of a line of n: what is chosen for the cells m, m + 1, ... A part that would end beyond the line begins
// earlier, with zeros for what was there before; a line that is shorter than a part is f(0, v) with zeros behind it.
template <class F>
inline void each_part(i64 n, const double* a, const double* low, const double* high, F f) {
    Some x{}, l{}, h{}, v;
    if (n < many) {
        for (i64 k = 0; k < n; ++k) x[k] = a[k], l[k] = low[k], h[k] = high[k];
        choose(v, x, l, h);
        return f(i64(0), v);
    }
    for (i64 done = 0; done < n; done += many) {
        const i64 m = std::min(done, n - many);
        load(x, a + m), load(l, low + m), load(h, high + m);
        for (i64 k = m; k < done; ++k) x[k - m] = 0;
        choose(v, x, l, h);
        f(m, v);
    }
}

// The part of a patch that is inside: begin <= i < end on every axis.
struct Inside {
    i64 begin[Patches::most_axes], end[Patches::most_axes];
    // Keeps i with 0 <= first + i * stride < n; false if none is left.
    bool clip(int axis, i64 first, i64 stride, i64 n) {
        const i64 lo = first >= 0 ? 0 : (-first + stride - 1) / stride, hi = first >= n ? 0 : (n - 1 - first) / stride + 1;
        begin[axis] = std::max(begin[axis], lo), end[axis] = std::min(end[axis], hi);
        return begin[axis] < end[axis];
    }
};

bool inside(const Patches& p, const i64* origin, Inside& in) {
    bool some = true;
    for (int k = 0; k < p.d; ++k) {
        in.begin[k] = 0, in.end[k] = p.size[k];
        some = in.clip(k, origin ? origin[k] : 0, 1, p.space[k]) && some;
    }
    return some;
}

// f(at) for all indices of the outer axes, the last one left at its beginning.
template <class F>
inline void each_line(const Inside& in, int d, F f) {
    i64 at[Patches::most_axes];
    for (int k = 0; k < d; ++k) at[k] = in.begin[k];
    for (;;) {
        f(at);
        int k = d - 2;
        for (; k >= 0 && ++at[k] == in.end[k]; --k) at[k] = in.begin[k];
        if (k < 0) return;
    }
}

// y[m * stride] += what is chosen.
inline void add_chosen(i64 n, i64 stride, const double* a, const double* low, const double* high, double* y) {
    each_part(n, a, low, high, [&](i64 m, Some& v) {
        if (stride == 1 && n >= many) {
            Some before;
            load(before, y + m);
            v += before;
            __builtin_memcpy(y + m, &v, sizeof v);
        } else {
            for (int k = 0; k < many && k < n; ++k) y[(m + k) * stride] += v[k];
        }
    });
}

}  // namespace

void weigh_rows(const Patches& p, bool own, const double* a, const i64* origin, const double* low, const double* high,
                double* y) {
    const i64 cells = p.cells(), plane = p.plane(), table = own ? p.channels * plane : 0;
    const int d = p.d;
    each_row(p.rows, p.channels * cells, [&](i64 r) {
        Inside in;
        Some sums{};
        const i64* o = origin ? origin + r * d : nullptr;
        y[r] = 0;
        if (!inside(p, o, in)) return;
        const i64 n = in.end[d - 1] - in.begin[d - 1];
        for (i64 c = 0; c < p.channels; ++c) {
            const double* from = a + (r * p.channels + c) * cells;
            const i64 start = r * table + c * plane;
            each_line(in, d, [&](const i64* at) {
                i64 i = 0, j = 0;
                for (int k = 0; k < d; ++k) i = i * p.size[k] + at[k], j = j * p.space[k] + at[k] + (o ? o[k] : 0);
                const double *x = from + i, *l = low + start + j, *h = high + start + j;
                each_part(n, x, l, h, [&](i64, const Some& v) { sums += v; });
            });
        }
        for (int k = 0; k < many; ++k) y[r] += sums[k];
    });
}

void pull_rows(const Patches& p, const Behind& to, bool own, const double* a, const i64* origin, const double* low,
               const double* high, double* g, const i64* g_origin) {
    const i64 cells = p.cells(), plane = p.plane();
    const int d = p.d;
    i64 behind = 1;
    for (int k = 0; k < d; ++k) behind *= to.size[k];
    each_row(p.rows, p.channels * cells * to.taps, [&](i64 r) {
        std::fill_n(g + r * p.channels * behind, p.channels * behind, 0.0);
        const i64 *o = origin ? origin + r * d : nullptr, *q = g_origin ? g_origin + r * d : nullptr;
        for (i64 t = 0; t < to.taps; ++t) {
            Inside in;
            bool some = inside(p, o, in);
            i64 begins[Patches::most_axes];  // the cell that index 0 reads, in the patch behind
            for (int k = 0; k < d && some; ++k) {
                const i64 cell = (o ? o[k] : 0) * to.stride[k] + to.offsets[t * d + k];
                begins[k] = cell - (q ? q[k] : 0);
                some = in.clip(k, cell, to.stride[k], to.space[k]) && in.clip(k, begins[k], to.stride[k], to.size[k]);
            }
            if (!some) continue;
            const i64 n = in.end[d - 1] - in.begin[d - 1], stride = to.stride[d - 1];
            for (i64 c = 0; c < p.channels; ++c) {
                const double* from = a + (r * p.channels + c) * cells;
                double* into = g + (r * p.channels + c) * behind;
                const i64 start = (((own ? r : 0) * to.taps + t) * p.channels + c) * plane;
                each_line(in, d, [&](const i64* at) {
                    i64 i = 0, j = 0, b = 0;
                    for (int k = 0; k < d; ++k) {
                        i = i * p.size[k] + at[k];
                        j = j * p.space[k] + at[k] + (o ? o[k] : 0);
                        b = b * to.size[k] + begins[k] + at[k] * to.stride[k];
                    }
                    add_chosen(n, stride, from + i, low + start + j, high + start + j, into + b);
                });
            }
        }
    });
}

}  // namespace lunette
