// Pools of the form y = value(sum of term(x)), whose derivative is dy = (sum of weight(x) * t) / denominator(sum):
// value, JVP and VJP are sums over windows, and so cost the same for every window size.
//
// A Model has
//   terms(x, n, e)          the summands, with a common scale; false if the cells are too far apart, or not finite
//   absent()                the summand of an absent cell that counts; counts_absent says whether any does
//   values(s, n, y)         from sums to values, in place or not
//   times_weights(x, n, d)  d *= weight(x); not called where terms_are_weights
//   denominators(s, n, d)
//   Window look(pool, x, o) one window by itself, exactly as defined: value, weight(i, x), slope (see below)
// and, where the parameter beta has a derivative, has_slope: d value / d beta = (sum weight*x - value) / beta.
#pragma once
#include "long_sum.hpp"
#include "sum.hpp"
#include "weighted_tiles.hpp"

namespace lunette::LN_ISA {
namespace {

constexpr i64 most_cells = 1 << 20;  // of one block; larger ones are done by the definition, without memory

// total += sign * (the sum of a*b): short sums in lanes, their sums in double.
template <class T>
void add_dot(double sign, const T* a, const T* b, i64 n, LongSum<double>& total) {
    constexpr int L = lanes<T>;
    constexpr i64 some = 32 * L;
    i64 i = 0;
    while (i + L <= n) {
        const i64 end = std::min(n, i + some);
        auto even = splat<L>(T(0)), odd = even;
        for (; i + 2 * L <= end; i += 2 * L) {
            even += load<L>(a + i) * load<L>(b + i);
            odd += load<L>(a + i + L) * load<L>(b + i + L);
        }
        for (; i + L <= end; i += L) even += load<L>(a + i) * load<L>(b + i);
        total.add_block(sign * fold<L>(even + odd, [](auto p, auto q) { return p + q; }));
    }
    for (; i < n; ++i) total.add(sign * static_cast<double>(a[i]) * static_cast<double>(b[i]));
}

inline bool any_absent(const Pool& pool) {
    for (int a = 0; a < pool.rank; ++a)
        for (i64 o = 0; o < pool.axes[a].m; ++o)
            if (pool.axes[a].inside[o] != pool.axes[a].count[o]) return true;
    return false;
}

// s += absent * (absent cells of each output), for the outputs o0..o1-1 of axis 0.
template <class T>
void add_absent(const Pool& pool, i64 o0, i64 o1, T absent, T* s) {
    const PoolAxis& last = pool.axes[pool.rank - 1];
    const i64 c0 = pool.rank == 1 ? o0 : 0, c1 = pool.rank == 1 ? o1 : last.m;
    // Windows that lack nothing, a run of them; those that are not clipped are the longest there are, perhaps not whole.
    const i64 f0 = last.regular ? std::clamp(last.full_lo, c0, c1) : c1;
    i64 f1 = f0;
    while (f1 < c1 && last.inside[f1] == last.count[f1]) ++f1;
    each_row(pool, o0, o1, [&](i64 r, i64 count, i64 inside) {
        auto some = [&](i64 begin, i64 end) {
            for (i64 o = begin; o < end; ++o)
                s[r * (c1 - c0) + o - c0] += static_cast<T>(inside * last.inside[o] - count * last.count[o]) * absent;
        };
        some(c0, f0);
        if (inside != count) some(f0, f1);  // else these windows are whole
        some(f1, c1);
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

// The windows of a block that meet numbers that are not finite: where these are few, they are done by the definition and the
// others as ever, on copies where zeros stand for such numbers.
template <class T>
class Strange {
    static constexpr i64 most_cells_found = 64, most_windows = 1024, most_readers = 64;

public:
    static bool possible(const Pool* back) { return back && back->window <= most_readers; }
    static std::size_t bytes(i64 cells, i64 others) { return (cells + others + 16 * lanes<T>) * sizeof(T) + 256; }

    // Of the outputs o0..o1-1.
    Strange(const Pool& back, i64 o0, i64 o1, char* memory) : back_(back), o0_(o0), o1_(o1), memory_(memory) {}

    // A copy of the cells from..to-1 of x, as where cell 0 would be.
    const T* cells(const T* x, i64 from, i64 to) {
        return origin<T>(copy(x, from, to, [&](i64 i) { each_cell(back_, i, [&](i64 o) { add(o); }); }), from);
    }
    // The same of outputs; numbers of strange windows are -0, which changes no sum.
    const T* outputs(const T* g) {
        T* own = copy(g, o0_, o1_, [&](i64 o) { add(o); });
        for (i64 i = 0; i < count_; ++i) own[windows_[i] - o0_] = -T(0);
        return origin<T>(own, o0_);
    }
    // Whether there were any, and not too many.
    bool few() {
        std::sort(windows_, windows_ + count_);
        count_ = std::unique(windows_, windows_ + count_) - windows_;
        return count_ > 0 && !many_;
    }
    // Whether no other window reads cell i.
    bool only(i64 i) const {
        bool all = true;
        each_cell(back_, i, [&](i64 o) { all = all && std::binary_search(windows_, windows_ + count_, o); });
        return all;
    }
    template <class F>
    void each_window(F&& f) const {
        for (i64 i = 0; i < count_; ++i) f(windows_[i]);
    }

private:
    void add(i64 o) {
        if (o < o0_ || o >= o1_) return;
        if (count_ == most_windows) many_ = true;
        else windows_[count_++] = o;
    }
    template <class F>
    T* copy(const T* x, i64 from, i64 to, F&& strange) {
        T* own = Sum<T>::make(memory_, to - from + 4 * lanes<T>).v;
        i64 found = 0;
        for (i64 i = from; i < to && !many_; i += lanes<T>) {
            const i64 end = std::min<i64>(to, i + lanes<T>);
            bool odd = false;
            for (i64 j = i; j < end; ++j) own[j - from] = x[j], odd |= !(std::fabs(x[j]) <= std::numeric_limits<T>::max());
            for (i64 j = i; odd && j < end; ++j)
                if (!std::isfinite(x[j])) own[j - from] = 0, strange(j), many_ |= ++found > most_cells_found;
        }
        return own;
    }

    const Pool& back_;
    i64 o0_, o1_, windows_[most_windows], count_ = 0;
    char* memory_;
    bool many_ = false;
};

// Small planes are done several at a time.
inline i64 planes_together(const Pool& pool) { return std::max<i64>(1, (4 << 10) / std::max<i64>(1, pool.cells_in)); }

// Sums of terms of a block of outputs: what the three kernels below have in common.
template <class Model>
class Block {
    using T = typename Model::Scalar;

public:
    static std::size_t bytes(i64 cells) { return 2 * (cells + 12 * lanes<T>) * sizeof(T) + 128; }

    Block(const Pool& pool, const Reducer<Sum<T>>& reducer, char*& memory, i64 cells)
        : pool_(pool), reducer_(reducer), rin_(pool.cells_in / std::max<i64>(1, pool.axes[0].n)),
          terms_(Sum<T>::make(memory, cells + 8 * lanes<T>).v), products_(Sum<T>::make(memory, cells + 8 * lanes<T>).v) {}

    // Chooses the outputs o0..o1-1 of axis 0 of plane x, or all of axis 0 of several planes. Whether they can be done with
    // one scale.
    bool start(Model& model, const T* x, i64 planes, i64 o0, i64 o1) {
        lo_ = 0, hi_ = pool_.axes[0].n;
        if (planes == 1) cells_of(pool_.axes[0], o0, o1, lo_, hi_);
        x_ = x, planes_ = planes, o0_ = o0, o1_ = o1;
        return model.terms(x + lo_ * rin_, size(), terms_);
    }
    i64 size() const { return planes_ * (hi_ - lo_) * rin_; }
    // The cells of the block in a plane.
    const T* place(const T* plane) const { return plane + lo_ * rin_; }

    // s = sums of terms.
    void sums(const Model& model, T* s, char* memory) {
        add_up(terms_, s, memory);
        for (i64 p = 0; model.counts_absent && p < planes_; ++p)
            add_absent(pool_, o0_, o1_, model.absent(), s + p * pool_.cells_out);
    }

    // s = sums of weight * from, for the cells of the block.
    void weighted_sums(const Model& model, const T* from, T* s, char* memory) {
        if constexpr (Model::terms_are_weights) {
            each_vector<T>(size(), [&]<int N>(i64 i) { store<N>(products_ + i, load<N>(from + i) * load<N>(terms_ + i)); });
        } else {
            std::memcpy(products_, from, size() * sizeof(T));
            model.times_weights(x_ + lo_ * rin_, size(), products_);
        }
        add_up(products_, s, memory);
    }

    // d *= weight for the cells of d, which are i0..i1-1 of axis 0.
    void times_weights(const Model& model, i64 i0, i64 i1, T* d) const {
        if constexpr (Model::terms_are_weights) {  // cells outside lo..hi-1 are read by no window
            const i64 a = std::clamp(i0, lo_, hi_), b = std::clamp(i1, a, hi_);
            T* to = d + (a - i0) * rin_;
            const T* e = terms_ + (a - lo_) * rin_;
            each_vector<T>(planes_ * (b - a) * rin_, [&]<int N>(i64 i) { store<N>(to + i, load<N>(to + i) * load<N>(e + i)); });
        } else {
            model.times_weights(x_ + i0 * rin_, planes_ * (i1 - i0) * rin_, d);
        }
    }

    // Where the terms of a plane would begin, if they all were here.
    const T* terms(i64 plane) const { return origin<T>(terms_ + plane * pool_.cells_in, lo_ * rin_); }

private:
    void add_up(const T* cells, T* s, char* memory) const {
        if (planes_ > 1) reducer_.run_planes(cells, planes_, {s}, memory, [](i64, i64) {});
        else reducer_.run(0, origin<T>(cells, lo_ * rin_), 0, o0_, o1_, {s}, memory);
    }

    const Pool& pool_;
    const Reducer<Sum<T>>& reducer_;
    i64 rin_, lo_ = 0, hi_ = 0, o0_ = 0, o1_ = 0, planes_ = 1;
    const T* x_ = nullptr;
    T *terms_, *products_;
};

// The sums of tiles in registers, where terms are cheap: dear ones are computed faster one after the other than side by side
// with what becomes of them.
template <class Model, class T>
bool sums_of_tiles(const WeightedTiles<Model>& tiles, Model& model, const T* x, i64 planes, i64 o0, i64 o1, T* s) {
    if constexpr (Model::terms_are_weights) return false;
    else return tiles.suits_sums() && tiles.sums(model, x, planes, o0, o1, s) && model.unscale();
}

template <class Model, class T>
void weighted_pool(const Model& given, const Pool& pool, i64 planes, const T* x, T* y) {
    if (planes == 0 || pool.cells_out == 0) return;
    Reducer<Sum<T>> reducer(pool, nullptr);
    const i64 m = pool.axes[0].m, rest = pool.cells_out / m, step = reducer.top_block();
    const i64 together = step >= m ? planes_together(pool) : 1;
    const i64 room = std::max(reducer.cells_read(step), together > 1 ? together * pool.cells_in : 0);
    const bool fits = room <= most_cells;
    const WeightedTiles<Model> tiles(given, pool);
    over_parts(pool, planes, [&](i64 p0, i64 p1, i64 o0, i64 o1) {
        Model model = given;
        char* memory = static_cast<char*>(scratch(reducer.bytes() + Block<Model>::bytes(fits ? room : 0)));
        Block<Model> block(pool, reducer, memory, fits ? room : 0);
        auto out = [&](i64 p, i64 b0) { return y + p * pool.cells_out + b0 * rest; };
        auto fast = [&](i64 p, i64 count, i64 b0, i64 b1) {
            const T* xp = x + p * pool.cells_in;
            if (!sums_of_tiles(tiles, model, xp, count, b0, b1, out(p, b0))) {
                if (!fits || !block.start(model, xp, count, b0, b1)) return false;
                block.sums(model, out(p, b0), memory);
            }
            model.values(out(p, b0), count * (b1 - b0) * rest, out(p, b0));
            return true;
        };
        const i64 many = o1 - o0 == m ? together : 1;
        for (i64 p = p0; p < p1; p += many) {
            const i64 end = std::min(p1, p + many);
            if (end - p > 1 && fast(p, end - p, o0, o1)) continue;
            for (i64 q = p; q < end; ++q)
                for (i64 b0 = o0; b0 < o1; b0 += step) {
                    const i64 b1 = std::min(o1, b0 + step);
                    if (fast(q, 1, b0, b1)) continue;
                    for (i64 o = b0; o < b1; ++o) {  // one strange cell shall not cost a whole block
                        if (b1 - b0 > 1 && fast(q, 1, o, o + 1)) continue;
                        for (i64 i = 0; i < rest; ++i)
                            out(q, o)[i] = static_cast<T>(model.look(pool, x + q * pool.cells_in, o * rest + i).value);
                    }
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
    const i64 step = reducer.top_block(), room = reducer.cells_read(step), cells = room <= most_cells ? room : 0;
    const i64 outputs = std::min(step, pool.axes[0].m) * rest;
    const bool sloped = Model::has_slope && dbeta != 0;
    over_parts(pool, planes, [&](i64 p0, i64 p1, i64 o0, i64 o1) {
        Model model = given;
        std::size_t bytes = reducer.bytes() + Block<Model>::bytes(cells) + 3 * (outputs * sizeof(T) + 64);
        char* memory = static_cast<char*>(scratch(bytes));
        Block<Model> block(pool, reducer, memory, cells);
        T* s = Sum<T>::make(memory, outputs).v;
        T* moved = Sum<T>::make(memory, outputs).v;
        T* d = Sum<T>::make(memory, outputs).v;
        // Outputs b0..b1-1 of the plane x, if they can be done together.
        auto fast = [&](const T* xp, const T* tp, i64 b0, i64 b1, T* out) {
            const i64 n = (b1 - b0) * rest;
            if (room > most_cells || !block.start(model, xp, 1, b0, b1)) return false;
            Lift<T> tangents, cells_too;
            if (tp && !tangents.fits(block.place(tp), block.size())) return false;
            if (sloped && !cells_too.fits(block.place(xp), block.size())) return false;
            auto weighted = [&](const Lift<T>& lift, const T* from, T* to) {  // the sums of weight * from, divided
                if (lift.needed()) {
                    T* own = static_cast<T*>(scratch((block.size() + 8 * lanes<T>) * sizeof(T), 2));
                    lift.up(block.place(from), block.size(), own);
                    block.weighted_sums(model, own, to, memory);
                } else {
                    block.weighted_sums(model, block.place(from), to, memory);
                }
                each_vector<T>(n, [&]<int N>(i64 i) { store<N>(to + i, load<N>(to + i) / load<N>(d + i)); });
                if (lift.needed()) lift.back(n, to);
            };
            block.sums(model, s, memory);
            model.denominators(s, n, d);
            if (tp) weighted(tangents, tp, out);
            else
                for (i64 i = 0; i < n; ++i) out[i] = 0;
            if (sloped) {
                weighted(cells_too, xp, moved);
                model.values(s, n, s);
                for (i64 i = 0; i < n; ++i) out[i] += dbeta * ((moved[i] - s[i]) / model.beta());
            }
            return true;
        };
        for (i64 p = p0; p < p1; ++p)
            for (i64 b0 = o0; b0 < o1; b0 += step) {
                const i64 b1 = std::min(o1, b0 + step), n = (b1 - b0) * rest;
                const T *xp = x + p * pool.cells_in, *tp = t ? t + p * pool.cells_in : nullptr;
                T* out = dy + p * pool.cells_out + b0 * rest;
                if (fast(xp, tp, b0, b1, out)) continue;
                auto exactly = [&](i64 o) {
                    auto window = model.look(pool, xp, o);
                    Wide<T> sum = 0, moment = 0;
                    each_cell(pool, o, [&](i64 c) {
                        Wide<T> w = window.weight(c, xp[c]);
                        if (tp) sum += w * tp[c];
                        if (w != 0) moment += w * xp[c];
                    });
                    if (sloped) sum += dbeta * ((moment - window.value) / model.beta());
                    out[o - b0 * rest] = static_cast<T>(sum);
                };
                if (room <= most_cells && Strange<T>::possible(pool.transposed)) {
                    i64 lo, hi;
                    cells_of(pool.axes[0], b0, b1, lo, hi);
                    lo *= rin, hi *= rin;
                    Strange<T> strange(*pool.transposed, b0 * rest, b1 * rest,
                                       static_cast<char*>(scratch(Strange<T>::bytes(hi - lo, hi - lo), 3)));
                    const T *own = strange.cells(xp, lo, hi), *moving = tp ? strange.cells(tp, lo, hi) : nullptr;
                    if (strange.few() && fast(own, moving, b0, b1, out)) {
                        strange.each_window(exactly);
                        continue;
                    }
                }
                for (i64 i = 0; i < n; ++i) exactly(b0 * rest + i);
            }
    });
}

// dx = sum over outputs of weight * g; *total_slope, if wanted, = sum of g * (d value / d beta). The sum of g * weight * x over
// outputs and their cells is the sum of x * dx, so the slope takes the cells of dx that a block writes and the values of its
// outputs.
template <class Model, class T>
void weighted_pool_vjp(const Model& given, const Pool& pool, i64 planes, const T* x, const T* g, T* dx,
                       double* total_slope) {
    const bool sloped = Model::has_slope && total_slope;
    if (sloped) *total_slope = 0;
    if (planes == 0 || pool.cells_out == 0) {
        std::memset(static_cast<void*>(dx), 0, planes * pool.cells_in * sizeof(T));
        return;
    }
    const PoolAxis& ax = pool.axes[0];
    const i64 rest = pool.cells_out / ax.m;
    auto empty_row = [&](i64 o) { return pool.cells_in == 0 || ax.count[o] == 0; };
    LongSum<double> whole_slope;
    for (i64 o = 0; sloped && o < ax.m; ++o)  // these outputs belong to no block of inputs
        for (i64 p = 0; empty_row(o) && p < planes; ++p)
            for (i64 i = o * rest; i < (o + 1) * rest; ++i)
                whole_slope.add(static_cast<double>(-g[p * pool.cells_out + i] * given.look(pool, x, i).value / given.beta()));
    auto finish_slope = [&] {
        if (sloped) *total_slope = whole_slope.total() + 0.0;
    };
    if (pool.cells_in == 0) return finish_slope();

    const bool even = pool.transposed;
    const Pool& back = even ? *pool.transposed : pool;
    const PoolAxis& bx = back.axes[0];
    Reducer<Sum<T>> forward(pool, nullptr), backward(back, nullptr);
    const i64 n0 = ax.n, rin = pool.cells_in / n0;
    // Blocks of inputs; each needs the outputs that read it, and the inputs those read.
    i64 rows = even ? std::min(n0, std::max<i64>(2 * ax.span(), (24 << 10) / rin + 1)) : n0;
    const bool tiles = share_no_cell(pool) && (rows == n0 || ax.tiled);
    if (tiles && rows < n0) rows = rows / ax.stride * ax.stride;  // blocks end where windows do
    const i64 blocks = (n0 + rows - 1) / rows;
    auto ranges = [&](i64 b, i64& i0, i64& i1, i64& o0, i64& o1, i64& lo, i64& hi) {
        i0 = b * rows, i1 = std::min(n0, i0 + rows), o0 = 0, o1 = ax.m;
        if (even && blocks > 1) cells_of(bx, i0, i1, o0, o1);
        cells_of(ax, o0, o1, lo, hi);
    };
    i64 room = 0, outputs = 0;
    for (i64 b = 0; b < blocks; ++b) {
        i64 i0, i1, o0, o1, lo, hi;
        ranges(b, i0, i1, o0, o1, lo, hi);
        room = std::max(room, (hi - lo) * rin), outputs = std::max(outputs, (o1 - o0) * rest);
    }
    const i64 together = blocks == 1 ? planes_together(pool) : 1;
    if (together > 1) room = together * pool.cells_in, outputs = together * pool.cells_out;
    const bool fits = even && room <= most_cells && outputs <= 4 * most_cells;
    const i64 cells = fits ? room : 0, results = fits ? outputs : 0;
    const i64 group = blocks == 1 ? std::clamp<i64>((24 << 10) / pool.cells_in, 1, planes) : 1;
    const i64 tasks = (planes + group - 1) / group * blocks;
    double* slopes = static_cast<double*>(scratch(tasks * sizeof(double), 1));
    const Spread<T> spread(pool);
    const WeightedTiles<Model> registers(given, pool);

    auto task = [&](i64 index) {
        Model model = given;
        i64 i0, i1, o0, o1, lo, hi;
        ranges(index % blocks, i0, i1, o0, o1, lo, hi);
        std::size_t bytes = std::max(forward.bytes(), backward.bytes()) + Block<Model>::bytes(cells) +
                            2 * ((results + 8 * lanes<T>) * sizeof(T) + 64);
        char* memory = static_cast<char*>(scratch(bytes));
        Block<Model> block(pool, forward, memory, cells);
        T* s = Sum<T>::make(memory, results).v;
        T* q = Sum<T>::make(memory, results + 8 * lanes<T>).v;
        WindowRows window_rows;
        LongSum<double> slope;
        auto mine = [&](i64 o) {  // whether this block counts the values of that row of outputs
            return !empty_row(o) && ax.first[o] >= i0 && ax.first[o] < i1;
        };
        // Planes that lie one after the other, if they can be done together.
        auto fast = [&](const T* xp, const T* gp, T* dp, i64 count) {
            T* to = dp + i0 * rin;
            const T* given = gp + o0 * rest;
            const i64 n = count * (o1 - o0) * rest;
            if (tiles && !sloped && registers.suits_derivatives() && registers.derivatives(model, xp, count, o0, o1, given, dp))
                return true;
            Lift<T> lift;
            if (!fits || !block.start(model, xp, count, o0, o1) || !lift.fits(given, n)) return false;
            if (sloped && sizeof(T) > 4 && !all_tame(block.place(xp), block.size())) return false;
            block.sums(model, s, memory);
            const T* divisors = s;
            if constexpr (!Model::terms_are_weights) model.denominators(s, n, q), divisors = q;
            if (lift.needed()) {
                T* own = static_cast<T*>(scratch((n + 8 * lanes<T>) * sizeof(T), 2));
                lift.up(given, n, own), given = own;
            }
            each_vector<T>(n, [&]<int N>(i64 i) { store<N>(q + i, quotient<T>(load<N>(given + i), load<N>(divisors + i))); });
            const T* shares = origin<T>(q, o0 * rest);
            if (tiles) {
                for (i64 c = 0; c < count; ++c) {
                    const T* weights = Model::terms_are_weights ? block.terms(c) : nullptr;
                    spread(window_rows, o0, o1, shares + c * pool.cells_out, dp + c * pool.cells_in, weights);
                }
            } else if (count > 1) {
                backward.run_planes(q, count, {to}, memory, [](i64, i64) {});
            } else {
                backward.run(0, shares, 0, i0, i1, {to}, memory);
            }
            if (!tiles || !Model::terms_are_weights) block.times_weights(model, i0, i1, to);
            for (i64 c = 0; back.has_empty && c < count; ++c) clear_unread(back, i0, i1, to + c * pool.cells_in);
            auto finish = [&] {
                for (i64 c = 0; lift.needed() && c < count; ++c) lift.back((i1 - i0) * rin, to + c * pool.cells_in);
                return true;
            };
            if (!sloped) return finish();
            model.values(s, n, s);
            const i64 a = std::clamp(i0, lo, hi), b = std::clamp(i1, a, hi);  // others are read by no window
            for (i64 c = 0; c < count; ++c) {
                const i64 at = c * pool.cells_in;
                LongSum<double> sum;
                add_dot(1, xp + at + a * rin, to + at + (a - i0) * rin, (b - a) * rin, sum);
                for (i64 o = o0, end; o < o1; o = end) {  // rows of outputs that are this block's
                    for (end = o + 1; end < o1 && mine(end) == mine(o);) ++end;
                    const i64 from = c * pool.cells_out + (o - o0) * rest;
                    if (mine(o)) add_dot(-1, given + from, s + from, (end - o) * rest, sum);
                }
                slope.add(lift.down(sum.total()) / static_cast<double>(model.beta()));
            }
            return finish();
        };
        const i64 last = std::min(planes, (index / blocks + 1) * group);
        for (i64 p = index / blocks * group, next, failed = 0; p < last; p = next) {
            const i64 count = p < failed ? 1 : std::min(together, last - p);
            next = p + count;
            const T *xp = x + p * pool.cells_in, *gp = g + p * pool.cells_out;
            T* dp = dx + p * pool.cells_in;
            if (fast(xp, gp, dp, count)) continue;
            if (count > 1) {  // one by one
                failed = next, next = p;
                continue;
            }
            // One output by the definition; add(i, term) for cells of this block.
            auto exactly = [&](i64 o, auto add) {
                auto window = model.look(pool, xp, o);
                Wide<T> moment = 0;
                each_cell(pool, o, [&](i64 c) {
                    if (c < i0 * rin || c >= i1 * rin) return;
                    Wide<T> w = window.weight(c, xp[c]);
                    if (w != 0) moment += w * xp[c];
                    add(c, static_cast<T>(w * gp[o]));
                });
                if (sloped && mine(o / rest)) moment -= window.value;
                if (sloped) slope.add(static_cast<double>(gp[o] * (moment / model.beta())));
            };
            if (fits && Strange<T>::possible(pool.transposed)) {
                const i64 from = std::min(lo, i0) * rin, to = std::max(hi, i1) * rin;
                Strange<T> strange(back, o0 * rest, o1 * rest,
                                   static_cast<char*>(scratch(Strange<T>::bytes(to - from, (o1 - o0) * rest), 3)));
                const T* own = strange.cells(xp, from, to);
                const T* given = strange.outputs(gp);
                if (strange.few() && fast(own, given, dp, 1)) {
                    strange.each_window([&](i64 o) {  // a weight may have turned the sign of a sum of nothing
                        each_cell(pool, o, [&](i64 c) { if (c >= i0 * rin && c < i1 * rin && strange.only(c)) dp[c] = -T(0); });
                    });
                    strange.each_window([&](i64 o) { exactly(o, [&](i64 c, T term) { dp[c] += term; }); });
                    continue;
                }
            }
            Deposits<T> deposits(dp, scratch(Deposits<T>::bytes((i1 - i0) * rin), 2), i0 * rin, i1 * rin);
            for (i64 o = o0 * rest; o < o1 * rest; ++o) exactly(o, [&](i64 c, T term) { deposits.add(c, term); });
            deposits.finish();
        }
        slopes[index] = slope.total();
    };
    if (tasks == 1) task(0);
    else parallel_for(tasks, task);
    for (i64 i = 0; sloped && i < tasks; ++i) whole_slope.add_block(slopes[i]);
    finish_slope();
}

}  // namespace
}  // namespace lunette::LN_ISA
