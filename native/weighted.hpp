// Pools of the form y = value(sum of term(x)), whose derivative is dy = (sum of weight(x) * t) / denominator(sum):
// value, JVP and VJP are sums over windows, and so cost the same for every window size.
//
// A Model has
//   ready(x, n)             chooses a common scale for these cells; false if they are too far apart, or not finite
//   terms(x, n, e)          the summands, scaled
//   absent()                the summand of an absent cell that counts; counts_absent says whether any does
//   values(s, n, y)         from sums to values, in place or not
//   times_weights(x, n, d)  d *= weight(x)
//   denominators(s, n, d)
//   Window look(pool, x, o) one window by itself, exactly as defined: value, weight(i, x), slope (see below)
// and, where the parameter beta has a derivative, has_slope: d value / d beta = (sum weight*x - value) / beta.
#pragma once
#include "elementary.hpp"
#include "sum.hpp"

namespace lunette::LN_ISA {
namespace {

// Computing by the definition needs a little more precision than the result has.
template <class T>
struct WideOf {
    using type = double;
};
template <>
struct WideOf<double> {
    using type = long double;
};
template <class T>
using Wide = typename WideOf<T>::type;

constexpr i64 most_cells = 1 << 20;  // of one block; larger ones are done by the definition, without memory

// f(vector of cells i..i+N-1) over n cells, the last ones singly.
template <class T, class F>
inline void each_vector(i64 n, F&& f) {
    constexpr int L = lanes<T>;
    i64 i = 0;
    for (; i + L <= n; i += L) f.template operator()<L>(i);
    for (; i < n; ++i) f.template operator()<1>(i);
}

// Whether all cells are zero or of middling size, so that products with terms neither overflow nor underflow.
template <class T>
bool all_tame(const T* x, i64 n) {
    constexpr int L = lanes<T>;
    const T low = std::ldexp(T(1), -Format<T>::tame), high = std::ldexp(T(1), Format<T>::tame);
    Vec<Int<T>, L> wild{};
    i64 i = 0;
    for (; i + L <= n; i += L) {
        auto v = load<L>(x + i), a = v < T(0) ? -v : v;
        wild |= ~((a >= low) & (a <= high)) & (a != T(0));
    }
    bool rest = false;
    for (; i < n; ++i) rest |= x[i] != 0 && !(std::fabs(x[i]) >= low && std::fabs(x[i]) <= high);
    return !rest && !any(wild);
}

// The least and the greatest of n cells; false if some cell is not finite.
template <class T>
bool range(const T* x, i64 n, bool magnitude, T& least, T& greatest) {
    constexpr int L = lanes<T>;
    constexpr T most = std::numeric_limits<T>::max();
    auto lo = splat<L>(most), hi = splat<L>(-most), spoiled = splat<L>(T(0));
    each_vector<T>(n, [&]<int N>(i64 i) {
        auto v = load<N>(x + i), w = v;
        if constexpr (N == 1) {
            if (!(std::fabs(v) <= most)) spoiled[0] = std::numeric_limits<T>::quiet_NaN();
            if (magnitude) v = std::fabs(v), w = v == 0 ? most : v;
            lo[0] = w < lo[0] ? w : lo[0], hi[0] = v > hi[0] ? v : hi[0];
        } else {
            spoiled += v * T(0);  // NaN from here on if v is not finite
            if (magnitude) {
                v = v < T(0) ? -v : v;
                w = v == T(0) ? splat<N>(most) : v;  // of magnitudes, the least that is not zero
            }
            lo = w < lo ? w : lo, hi = v > hi ? v : hi;
        }
    });
    least = lo[0], greatest = hi[0];
    bool finite = true;
    for (int l = 0; l < L; ++l) {
        least = lo[l] < least ? lo[l] : least, greatest = hi[l] > greatest ? hi[l] : greatest;
        finite = finite && spoiled[l] == 0;
    }
    return finite;
}

inline bool any_absent(const Pool& pool) {
    for (int a = 0; a < pool.rank; ++a)
        for (i64 o = 0; o < pool.axes[a].m; ++o)
            if (pool.axes[a].inside[o] != pool.axes[a].count[o]) return true;
    return false;
}

// The number of cells of window `output` that are inside the padded input but absent.
inline i64 absent_cells(const Pool& pool, i64 output) {
    i64 inside = 1, count = 1;
    for (int a = pool.rank - 1; a >= 0; --a) {
        const PoolAxis& ax = pool.axes[a];
        inside *= ax.inside[output % ax.m], count *= ax.count[output % ax.m];
        output /= ax.m;
    }
    return inside - count;
}

// s += absent * (absent cells of each output), for the outputs o0..o1-1 of axis 0.
template <class T>
void add_absent(const Pool& pool, i64 o0, i64 o1, T absent, T* s) {
    const PoolAxis& last = pool.axes[pool.rank - 1];
    const i64 c0 = pool.rank == 1 ? o0 : 0, c1 = pool.rank == 1 ? o1 : last.m;
    each_row(pool, o0, o1, [&](i64 r, i64 count, i64 inside) {
        for (i64 o = c0, i = r * (c1 - c0); o < c1; ++o, ++i)
            s[i] += static_cast<T>(inside * last.inside[o] - count * last.count[o]) * absent;
    });
}

// dx = 0 for cells i0..i1-1 of axis 0 that no window reads: they may hold anything, so their weights mean nothing.
template <class T>
void clear_unread(const Pool& back, i64 i0, i64 i1, T* dx) {
    const PoolAxis& last = back.axes[back.rank - 1];
    const i64 c0 = back.rank == 1 ? i0 : 0, c1 = back.rank == 1 ? i1 : last.m;
    each_row(back, i0, i1, [&](i64 r, i64 readers, i64) {
        for (i64 i = c0; i < c1; ++i)
            if (readers * last.count[i] == 0) dx[r * (c1 - c0) + i - c0] = 0;
    });
}

// Sums of terms of a block of outputs: what the three kernels below have in common.
template <class Model>
class Block {
    using T = typename Model::Scalar;

public:
    Block(const Pool& pool, const Reducer<Sum<T>>& reducer, char*& memory, i64 room)
        : pool_(pool), reducer_(reducer), terms_(Sum<T>::make(memory, room + 8 * lanes<T>).v) {}

    // Sums over the outputs o0..o1-1 of axis 0 of the terms of plane x, times `factor` where that is not null.
    void sums(const Model& model, const T* x, const T* factor, i64 o0, i64 o1, T* s, char* memory) {
        i64 lo, hi;
        cells_of(pool_.axes[0], o0, o1, lo, hi);
        const i64 rin = pool_.cells_in / std::max<i64>(1, pool_.axes[0].n), n = (hi - lo) * rin;
        if (!factor) {
            model.terms(x + lo * rin, n, terms_);
        } else {
            each_vector<T>(n, [&]<int N>(i64 i) { store<N>(terms_ + i, load<N>(factor + lo * rin + i)); });
            model.times_weights(x + lo * rin, n, terms_);
        }
        reducer_.run(0, origin<T>(terms_, lo * rin), 0, o0, o1, {s}, memory);
        if (!factor && model.counts_absent) add_absent(pool_, o0, o1, model.absent(), s);
    }

private:
    const Pool& pool_;
    const Reducer<Sum<T>>& reducer_;
    T* terms_;
};

template <class Model, class T>
void weighted_pool(const Model& given, const Pool& pool, i64 planes, const T* x, T* y) {
    if (planes == 0 || pool.cells_out == 0) return;
    Reducer<Sum<T>> reducer(pool, nullptr);
    const i64 rest = pool.cells_out / pool.axes[0].m, rin = pool.cells_in / std::max<i64>(1, pool.axes[0].n);
    const i64 step = reducer.top_block(), room = reducer.cells_read(step);
    over_parts(pool, planes, [&](i64 p0, i64 p1, i64 o0, i64 o1) {
        Model model = given;
        char* memory = static_cast<char*>(scratch(reducer.bytes() + (std::min(room, most_cells) + 256) * sizeof(T)));
        Block<Model> block(pool, reducer, memory, std::min(room, most_cells));
        for (i64 p = p0; p < p1; ++p)
            for (i64 b0 = o0; b0 < o1; b0 += step) {
                i64 b1 = std::min(o1, b0 + step), n = (b1 - b0) * rest, lo, hi;
                const T* xp = x + p * pool.cells_in;
                T* out = y + p * pool.cells_out + b0 * rest;
                cells_of(pool.axes[0], b0, b1, lo, hi);
                if (room <= most_cells && model.ready(xp + lo * rin, (hi - lo) * rin)) {
                    block.sums(model, xp, nullptr, b0, b1, out, memory);
                    model.values(out, n, out);
                } else {
                    for (i64 i = 0; i < n; ++i) out[i] = static_cast<T>(model.look(pool, xp, b0 * rest + i).value);
                }
            }
    });
}

// dy = sum weight * t + dbeta * (d value / d beta).
template <class Model, class T>
void weighted_pool_jvp(const Model& given, const Pool& pool, i64 planes, const T* x, const T* t, T* dy, T dbeta) {
    if (planes == 0 || pool.cells_out == 0) return;
    Reducer<Sum<T>> reducer(pool, nullptr);
    const i64 rest = pool.cells_out / pool.axes[0].m, rin = pool.cells_in / std::max<i64>(1, pool.axes[0].n);
    const i64 step = reducer.top_block(), room = reducer.cells_read(step);
    const i64 outputs = std::min(step, pool.axes[0].m) * rest;
    const bool sloped = Model::has_slope && dbeta != 0;
    over_parts(pool, planes, [&](i64 p0, i64 p1, i64 o0, i64 o1) {
        Model model = given;
        const i64 cells = std::min(room, most_cells);
        char* memory = static_cast<char*>(scratch(reducer.bytes() + (cells + 3 * outputs + 1024) * sizeof(T)));
        Block<Model> block(pool, reducer, memory, cells);
        T* s = Sum<T>::make(memory, outputs).v;
        T* moved = Sum<T>::make(memory, outputs).v;
        T* d = Sum<T>::make(memory, outputs).v;
        for (i64 p = p0; p < p1; ++p)
            for (i64 b0 = o0; b0 < o1; b0 += step) {
                i64 b1 = std::min(o1, b0 + step), n = (b1 - b0) * rest, lo, hi;
                const T *xp = x + p * pool.cells_in, *tp = t ? t + p * pool.cells_in : nullptr;
                T* out = dy + p * pool.cells_out + b0 * rest;
                cells_of(pool.axes[0], b0, b1, lo, hi);
                const i64 from = lo * rin, size = (hi - lo) * rin;
                if (room <= most_cells && model.ready(xp + from, size) && (!tp || all_tame(tp + from, size)) &&
                    (!sloped || all_tame(xp + from, size))) {
                    block.sums(model, xp, nullptr, b0, b1, s, memory);
                    model.denominators(s, n, d);
                    if (tp) {
                        block.sums(model, xp, tp, b0, b1, out, memory);
                        each_vector<T>(n, [&]<int N>(i64 i) { store<N>(out + i, load<N>(out + i) / load<N>(d + i)); });
                    } else {
                        for (i64 i = 0; i < n; ++i) out[i] = 0;
                    }
                    if (sloped) {
                        block.sums(model, xp, xp, b0, b1, moved, memory);
                        model.values(s, n, s);
                        for (i64 i = 0; i < n; ++i) out[i] += dbeta * ((moved[i] / d[i] - s[i]) / model.beta());
                    }
                    continue;
                }
                for (i64 i = 0; i < n; ++i) {
                    auto window = model.look(pool, xp, b0 * rest + i);
                    Wide<T> sum = 0, moment = 0;
                    each_cell(pool, b0 * rest + i, [&](i64 c) {
                        Wide<T> w = window.weight(c, xp[c]);
                        if (tp) sum += w * tp[c];
                        if (w != 0) moment += w * xp[c];
                    });
                    if (sloped) sum += dbeta * ((moment - window.value) / model.beta());
                    out[i] = static_cast<T>(sum);
                }
            }
    });
}

// dx = sum over outputs of weight * g; returns sum of g * (d value / d beta).
template <class Model, class T>
double weighted_pool_vjp(const Model& given, const Pool& pool, i64 planes, const T* x, const T* g, T* dx) {
    if (planes == 0 || pool.cells_out == 0) {
        std::memset(static_cast<void*>(dx), 0, planes * pool.cells_in * sizeof(T));
        return 0;
    }
    double slope_of_empty = 0;
    const PoolAxis& ax = pool.axes[0];
    const i64 rest = pool.cells_out / ax.m;
    auto empty_row = [&](i64 o) { return pool.cells_in == 0 || ax.count[o] == 0; };
    for (i64 o = 0; Model::has_slope && o < ax.m; ++o)  // these outputs belong to no block of inputs
        for (i64 p = 0; empty_row(o) && p < planes; ++p)
            for (i64 i = o * rest; i < (o + 1) * rest; ++i)
                slope_of_empty -= g[p * pool.cells_out + i] * given.look(pool, x, i).value / given.beta();
    if (pool.cells_in == 0) return slope_of_empty;

    const bool even = pool.transposed;
    const Pool& back = even ? *pool.transposed : pool;
    const PoolAxis& bx = back.axes[0];
    Reducer<Sum<T>> forward(pool, nullptr), backward(back, nullptr);
    const i64 n0 = ax.n, rin = pool.cells_in / n0;
    // Blocks of inputs; each needs the outputs that read it, and the inputs those read.
    const i64 span = (ax.most - 1) * ax.step + 1;
    const i64 rows = even ? std::min(n0, std::max<i64>(2 * span, (24 << 10) / rin + 1)) : n0;
    const i64 blocks = (n0 + rows - 1) / rows;
    auto ranges = [&](i64 b, i64& i0, i64& i1, i64& o0, i64& o1, i64& lo, i64& hi) {
        i0 = b * rows, i1 = std::min(n0, i0 + rows), o0 = 0, o1 = ax.m;
        if (even) cells_of(bx, i0, i1, o0, o1);
        cells_of(ax, o0, o1, lo, hi);
    };
    i64 room = 0, outputs = 0;
    for (i64 b = 0; b < blocks; ++b) {
        i64 i0, i1, o0, o1, lo, hi;
        ranges(b, i0, i1, o0, o1, lo, hi);
        room = std::max(room, (hi - lo) * rin), outputs = std::max(outputs, (o1 - o0) * rest);
    }
    const bool fast = even && room <= most_cells && outputs <= 4 * most_cells;
    const i64 cells = fast ? room : 0, results = fast ? outputs : 0;
    const i64 group = blocks == 1 ? std::clamp<i64>((24 << 10) / pool.cells_in, 1, planes) : 1;
    const i64 tasks = (planes + group - 1) / group * blocks;
    double* slopes = static_cast<double*>(scratch(tasks * sizeof(double), 1));

    auto task = [&](i64 index) {
        Model model = given;
        i64 i0, i1, o0, o1, lo, hi;
        ranges(index % blocks, i0, i1, o0, o1, lo, hi);
        std::size_t bytes = std::max(forward.bytes(), backward.bytes()) + (cells + 3 * results + 1024) * sizeof(T);
        char* memory = static_cast<char*>(scratch(bytes));
        Block<Model> block(pool, forward, memory, cells);
        T* s = Sum<T>::make(memory, results).v;
        T* q = Sum<T>::make(memory, results + 8 * lanes<T>).v;
        T* moved = Sum<T>::make(memory, results).v;
        const i64 n = (o1 - o0) * rest, from = lo * rin, size = (hi - lo) * rin;
        double slope = 0;
        for (i64 p = index / blocks * group; p < std::min(planes, (index / blocks + 1) * group); ++p) {
            const T *xp = x + p * pool.cells_in, *gp = g + p * pool.cells_out;
            T* to = dx + p * pool.cells_in + i0 * rin;
            auto mine = [&](i64 output) {  // whether this block counts the slope of that output
                i64 o = output / rest;
                return !empty_row(o) && ax.first[o] >= i0 && ax.first[o] < i1;
            };
            if (fast && model.ready(xp + from, size) && all_tame(gp + o0 * rest, n) &&
                (!Model::has_slope || all_tame(xp + from, size))) {
                block.sums(model, xp, nullptr, o0, o1, s, memory);
                model.denominators(s, n, q);
                if constexpr (Model::has_slope) {
                    block.sums(model, xp, xp, o0, o1, moved, memory);
                    model.values(s, n, s);
                    for (i64 o = o0; o < o1; ++o) {
                        if (!mine(o * rest)) continue;
                        double row = 0, part = 0;
                        for (i64 i = (o - o0) * rest, k = 1; i < (o - o0 + 1) * rest; ++i, ++k) {
                            part += static_cast<double>(gp[o0 * rest + i]) * (moved[i] / q[i] - s[i]) / model.beta();
                            if (k % block_terms == 0) row += part, part = 0;
                        }
                        slope += row + part;
                    }
                }
                each_vector<T>(n, [&]<int N>(i64 i) { store<N>(q + i, load<N>(gp + o0 * rest + i) / load<N>(q + i)); });
                backward.run(0, origin<T>(q, o0 * rest), 0, i0, i1, {to}, memory);
                model.times_weights(xp + i0 * rin, (i1 - i0) * rin, to);
                if (back.has_empty) clear_unread(back, i0, i1, to);
                continue;
            }
            std::memset(static_cast<void*>(to), 0, (i1 - i0) * rin * sizeof(T));
            for (i64 o = o0 * rest; o < o1 * rest; ++o) {
                auto window = model.look(pool, xp, o);
                Wide<T> moment = 0;
                each_cell(pool, o, [&](i64 c) {
                    Wide<T> w = window.weight(c, xp[c]);
                    if (w != 0) moment += w * xp[c];
                    if (c >= i0 * rin && c < i1 * rin) to[c - i0 * rin] += static_cast<T>(w * gp[o]);
                });
                if (Model::has_slope && mine(o)) slope += gp[o] * ((moment - window.value) / model.beta());
            }
        }
        slopes[index] = slope;
    };
    if (tasks == 1) task(0);
    else parallel_for(tasks, task);
    double total = slope_of_empty;
    for (i64 i = 0; i < tasks; i += block_terms) {
        double part = 0;
        for (i64 j = i; j < std::min(tasks, i + block_terms); ++j) part += slopes[j];
        total += part;
    }
    return total;
}

}  // namespace
}  // namespace lunette::LN_ISA
