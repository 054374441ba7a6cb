#include "relax.hpp"

#include <algorithm>

#include "operators.hpp"
#include "simd.hpp"
#include "threads.hpp"

namespace lunette::LN_ISA {
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

constexpr int many = lanes<double>;
using Some = Vec<double, many>;

// The first n < many numbers, zeros behind them: lines of patches are short, and nothing beyond them is read or written.
inline Some load_first(const double* p, i64 n) {
#if defined(__AVX512F__)
    return _mm512_maskz_loadu_pd(static_cast<__mmask8>((1 << n) - 1), p);
#elif defined(__AVX2__)
    return _mm256_maskload_pd(p, iota<4, i64>(0, 1) < n);
#else
    return Some{n > 0 ? p[0] : 0};
#endif
}
inline void store_first(double* p, i64 n, Some v) {
#if defined(__AVX512F__)
    _mm512_mask_storeu_pd(p, static_cast<__mmask8>((1 << n) - 1), v);
#elif defined(__AVX2__)
    _mm256_maskstore_pd(p, iota<4, i64>(0, 1) < n, v);
#else
    if (n > 0) p[0] = v[0];
#endif
}

// a * (a > 0 ? low : high), without a branch on signs, which are as good as random; zero wins over infinity.
inline Some chosen(Some a, Some low, Some high) {
    const Some y = a * (a > 0 ? low : high);
    return a == 0 ? Some{} : y;
}

// f(m, n, v) for parts of a line: what is chosen for n cells from m on, zeros behind them.
template <class F>
inline void each_part(i64 n, const double* a, const double* low, const double* high, F f) {
    i64 m = 0;
    for (; m + many <= n; m += many) f(m, i64(many), chosen(load<many>(a + m), load<many>(low + m), load<many>(high + m)));
    if (const i64 left = n - m; left > 0)
        f(m, left, chosen(load_first(a + m, left), load_first(low + m, left), load_first(high + m, left)));
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

// Where a line begins in some arrays, and how far the next one along the axis before the last is.
template <int K>
struct Lines {
    i64 begin[K], hop[K];
};

// f(line) for the beginnings of all lines along the last axis. at(line, i) fills in beginnings at the index i; between
// lines that are neighbours they grow by `hop`.
template <int K, class At, class F>
inline void each_line(const Inside& in, int d, Lines<K> line, At at, F f) {
    i64 i[Patches::most_axes];
    for (int k = 0; k < d; ++k) i[k] = in.begin[k];
    const i64 neighbours = d > 1 ? in.end[d - 2] - in.begin[d - 2] : 1;
    for (;;) {
        at(line, i);
        for (i64 n = 0; n < neighbours; ++n) {
            f(line);
            for (int k = 0; k < K; ++k) line.begin[k] += line.hop[k];
        }
        int k = d - 3;
        for (; k >= 0 && ++i[k] == in.end[k]; --k) i[k] = in.begin[k];
        if (k < 0) return;
    }
}

// y[m * stride] += what is chosen.
inline void add_chosen(i64 n, i64 stride, const double* a, const double* low, const double* high, double* y) {
    each_part(n, a, low, high, [&](i64 m, i64 count, Some v) {
        if (stride != 1) {
            for (i64 k = 0; k < count; ++k) y[(m + k) * stride] += v[k];
        } else if (count == many) {
            store<many>(y + m, v + load<many>(y + m));
        } else {
            store_first(y + m, count, v + load_first(y + m, count));
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
        Some sums[4]{};  // of parts that do not wait for each other
        const i64* o = origin ? origin + r * d : nullptr;
        y[r] = 0;
        if (!inside(p, o, in)) return;
        const i64 n = in.end[d - 1] - in.begin[d - 1];
        const Lines<2> lines{{}, {p.size[d - 1], p.space[d - 1]}};
        auto at = [&](Lines<2>& line, const i64* index) {
            i64 i = 0, j = 0;
            for (int k = 0; k < d; ++k) i = i * p.size[k] + index[k], j = j * p.space[k] + index[k] + (o ? o[k] : 0);
            line.begin[0] = i, line.begin[1] = j;
        };
        for (i64 c = 0; c < p.channels; ++c) {
            const double* const from = a + (r * p.channels + c) * cells;
            const i64 start = r * table + c * plane;
            const double *const l = low + start, *const h = high + start;
            each_line(in, d, lines, at, [&](const Lines<2>& line) {
                const double *const x = from + line.begin[0], *const least = l + line.begin[1], *const most = h + line.begin[1];
                int turn = 0;
                each_part(n, x, least, most, [&](i64, i64, Some v) { sums[turn++ % 4] += v; });
            });
        }
        const Some sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
        for (int k = 0; k < many; ++k) y[r] += sum[k];
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
            const Lines<3> lines{{}, {p.size[d - 1], p.space[d - 1], d > 1 ? to.size[d - 1] * to.stride[d - 2] : 0}};
            auto at = [&](Lines<3>& line, const i64* index) {
                i64 i = 0, j = 0, b = 0;
                for (int k = 0; k < d; ++k) {
                    i = i * p.size[k] + index[k];
                    j = j * p.space[k] + index[k] + (o ? o[k] : 0);
                    b = b * to.size[k] + begins[k] + index[k] * to.stride[k];
                }
                line.begin[0] = i, line.begin[1] = j, line.begin[2] = b;
            };
            for (i64 c = 0; c < p.channels; ++c) {
                const double* const from = a + (r * p.channels + c) * cells;
                double* const into = g + (r * p.channels + c) * behind;
                const i64 start = (((own ? r : 0) * to.taps + t) * p.channels + c) * plane;
                const double *const l = low + start, *const h = high + start;
                each_line(in, d, lines, at, [&](const Lines<3>& line) {
                    add_chosen(n, stride, from + line.begin[0], l + line.begin[1], h + line.begin[1], into + line.begin[2]);
                });
            }
        }
    });
}

}  // namespace lunette::LN_ISA
