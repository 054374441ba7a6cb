// The greatest cell of each window, and where it is.
#include "max_claims.hpp"
#include "max_one_window.hpp"
#include "max_planes.hpp"
#include "max_scatter.hpp"
#include "max_slides.hpp"
#include "max_threes.hpp"
#include "max_tiles.hpp"
#include "max_winners.hpp"
#include "operators.hpp"

namespace lunette::LN_ISA {
namespace {

template <class T>
void max_values(const Pool& pool, i64 planes, const T* x, T* y) {
    Reducer<MaxValue<T>> reducer(pool, x + planes * pool.cells_in);
    const i64 rest = pool.cells_out / pool.axes[0].m;
    over_parts(pool, planes, [&](i64 p0, i64 p1, i64 o0, i64 o1) {
        char* memory = static_cast<char*>(scratch(reducer.bytes()));
        if (o1 - o0 == pool.axes[0].m)
            return reducer.run_planes(x + p0 * pool.cells_in, p1 - p0, {y + p0 * pool.cells_out}, memory, [](i64, i64) {});
        for (i64 p = p0; p < p1; ++p)
            reducer.run(0, x + p * pool.cells_in, 0, o0, o1, {y + p * pool.cells_out + o0 * rest}, memory);
    });
}

template <class T>
inline bool wins(T x, T best) {
    return x == best || (best != best && x != x);
}

template <class T>
i64 count_winners(const Pool& pool, const T* x, i64 output, T best) {
    i64 winners = 0;
    each_run(pool, output, [&](i64 at, i64 n, i64 step) {
        for (i64 j = 0; j < n; ++j) winners += wins(x[at + j * step], best);
    });
    return winners;
}

// The place of the first winner of a window whose greatest cell is known.
template <class T>
i64 first_winner_of(const Pool& pool, const T* x, i64 output, T best) {
    i64 first = -1;
    each_run(pool, output, [&](i64 at, i64 n, i64 step) {
        for (i64 j = 0; j < n && first < 0; ++j)
            if (wins(x[at + j * step], best)) first = at + j * step;
    });
    return first;
}

// Calls f(plane, first output, count, values, places) for parts that cover all outputs. Places are as wide as T, except in
// planes of so many cells that these cannot count them: there winners are looked for once more.
template <class Op, class T, class F>
void max_places_by(const Pool& pool, i64 planes, const T* x, F&& f) {
    Reducer<Op> reducer(pool, x + planes * pool.cells_in);
    const i64 rest = pool.cells_out / pool.axes[0].m;
    over_parts(pool, planes, [&](i64 p0, i64 p1, i64 o0, i64 o1) {
        const i64 step = reducer.top_block();
        char* memory = static_cast<char*>(scratch(reducer.bytes() + 2 * (std::min(step, o1 - o0) * rest * sizeof(T) + 64)));
        typename Op::Ref found = Op::make(memory, std::min(step, o1 - o0) * rest);
        for (i64 p = p0; p < p1; ++p)
            for (i64 b0 = o0; b0 < o1; b0 += step) {
                i64 b1 = std::min(o1, b0 + step);
                const i64 first = b0 * rest, count = (b1 - b0) * rest;
                const T* xp = x + p * pool.cells_in;
                reducer.run(0, xp, 0, b0, b1, found, memory);
                if constexpr (requires { found.p; }) f(p, first, count, found.v, found.p);
                else
                    for (i64 q = 0; q < count; ++q) {
                        const i64 place = first_winner_of(pool, xp, first + q, found.v[q]);
                        f(p, first + q, 1, found.v + q, &place);
                    }
            }
    });
}
template <class T, class F>
void max_places(const Pool& pool, i64 planes, const T* x, F&& f) {
    if (places_fit<T>(pool)) return max_places_by<MaxPlace<T>>(pool, planes, x, f);
    if constexpr (sizeof(T) < sizeof(i64)) max_places_by<MaxValue<T>>(pool, planes, x, f);  // only then they may not
}

// dx where winners are found anew: each(x, g, first output, how many, what was found, put) calls put(i, term) for the winners
// of a block of outputs of a plane.
template <class Op, class T, class Each>
void scatter_anew(const Pool& pool, i64 planes, const T* x, const T* g, T* dx, Each each) {
    Reducer<Op> reducer(pool, x + planes * pool.cells_in);
    const i64 rest = pool.cells_out / pool.axes[0].m, step = std::min(reducer.top_block(), pool.axes[0].m);
    scatter(pool, planes, step, g, dx, [&](i64 p, i64 b0, i64 b1, auto put) {
        char* memory = static_cast<char*>(scratch(reducer.bytes() + step * rest * Op::cell_bytes + 128));
        auto found = Op::make(memory, step * rest);
        const T* xp = x + p * pool.cells_in;
        reducer.run(0, xp, 0, b0, b1, found, memory);
        each(xp, g + p * pool.cells_out + b0 * rest, b0 * rest, (b1 - b0) * rest, found, put);
    });
}

}  // namespace

template <class T>
void max_pool(const Pool& pool, i64 planes, const T* x, T* y, i64* index) {
    if (planes == 0 || pool.cells_out == 0) return;
    if (!index) return max_values(pool, planes, x, y);
    max_places(pool, planes, x, [&](i64 p, i64 o, i64 count, const T* v, const auto* place) {
        std::memcpy(y + p * pool.cells_out + o, v, count * sizeof(T));
        i64* to = index + p * pool.cells_out + o;
        for (i64 q = 0; q < count; ++q) to[q] = place[q];
    });
}

template <class T, class R>
void max_pool_numbers(const Pool& pool, i64 planes, const T* x, T* y, R* numbers) {
    max_places(pool, planes, x, [&](i64 p, i64 o, i64 count, const T* v, const auto* place) {
        const i64 at = p * pool.cells_out + o;
        if (y) std::memcpy(y + at, v, count * sizeof(T));
        for (i64 q = 0; q < count; ++q) numbers[at + q] = static_cast<R>(number_of(pool, o + q, place[q]));
    });
}

template <class T>
void max_pool_jvp(const Pool& pool, i64 planes, const T* x, const T* t, T* dy, Ties ties) {
    if (planes == 0 || pool.cells_out == 0) return;
    const i64 n = pool.cells_in;
    if (one_window<T>(pool))
        return over_parts(pool, planes, [&](i64 p0, i64 p1, i64, i64) {
            one_window_jvp(p1 - p0, n, x + p0 * n, t + p0 * n, dy + p0, ties);
        });
    if (ties == Ties::first)
        return max_places(pool, planes, x, [&](i64 p, i64 o, i64 count, const T*, const auto* place) {
            const T* tp = t + p * pool.cells_in;
            T* to = dy + p * pool.cells_out + o;
            for (i64 q = 0; q < count; ++q) to[q] = tp[place[q]];
        });
    max_places(pool, planes, x, [&](i64 p, i64 o, i64 count, const T* best, const auto*) {
        const T *xp = x + p * pool.cells_in, *tp = t + p * pool.cells_in;
        T* to = dy + p * pool.cells_out + o;
        for (i64 q = 0; q < count; ++q) {
            LongSum<T> sum;
            i64 winners = 0;
            each_run(pool, o + q, [&](i64 at, i64 n, i64 step) {
                for (i64 j = at; j < at + n * step; j += step)
                    if (wins(xp[j], best[q])) sum.add(tp[j]), ++winners;
            });
            to[q] = sum.total() / (ties == Ties::split ? static_cast<T>(winners) : T(1));
        }
    });
}

template <class T>
void max_pool_vjp(const Pool& pool, i64 planes, const T* x, const T* g, T* dx, Ties ties) {
    if (planes == 0 || pool.cells_in == 0) return;
    const i64 n = pool.cells_in;
    if (one_window<T>(pool))
        return over_parts(pool, planes, [&](i64 p0, i64 p1, i64, i64) {
            one_window_vjp(p1 - p0, n, x + p0 * n, g + p0, dx + p0 * n, ties);
        });
    auto tiles = [&] { Tiles<T>(pool, x + planes * n, g + planes * pool.cells_out)(planes, x, g, dx); };
    const bool tiled = ties == Ties::first && Tiles<T>::suits(pool);
    // Where cells are left over, rows are uneven, which planes side by side do not mind.
    if (tiled && !pool.transposed->has_empty) return tiles();
    if (ties == Ties::first && Threes<T>::suits(pool))
        return Threes<T>(pool, x + planes * n, g + planes * pool.cells_out)(planes, x, g, dx);
    if (ties == Ties::first && Slides<T>::suits(pool, planes)) return Slides<T>(pool, planes)(planes, x, g, dx);
    if (ties == Ties::first && PlanesInLanes<T>::suits(pool)) {
        const i64 done = PlanesInLanes<T>(pool)(planes, x, g, dx);
        planes -= done, x += done * n, g += done * pool.cells_out, dx += done * n;
        if (planes == 0) return;
    }
    if (tiled) return tiles();
    if (ties == Ties::first && Claims<T>::suits(pool)) return Claims<T>(pool, x + planes * n)(planes, x, g, dx);
    if (ties == Ties::first && places_fit<T>(pool)) {
        using Op = MaxPlace<T>;
        auto each = [&](const T*, const T* gp, i64, i64 count, typename Op::Ref found, auto put) {
            for (i64 q = 0; q < count; ++q) put(found.p[q], gp[q]);
        };
        return scatter_anew<Op>(pool, planes, x, g, dx, each);
    }
    using Op = MaxValue<T>;
    auto each = [&](const T* xp, const T* gp, i64 o, i64 count, typename Op::Ref found, auto put) {
        for (i64 q = 0; q < count; ++q) {
            const T best = found.v[q];
            if (ties == Ties::first) {
                put(first_winner_of(pool, xp, o + q, best), gp[q]);
                continue;
            }
            const T share = ties == Ties::split ? gp[q] / static_cast<T>(count_winners(pool, xp, o + q, best)) : gp[q];
            each_run(pool, o + q, [&](i64 at, i64 n, i64 step) {
                for (i64 i = at; i < at + n * step; i += step)
                    if (wins(xp[i], best)) put(i, share);
            });
        }
    };
    scatter_anew<Op>(pool, planes, x, g, dx, each);
}

template void max_pool<float>(const Pool&, i64, const float*, float*, i64*);
template void max_pool<double>(const Pool&, i64, const double*, double*, i64*);
template void max_pool_numbers<float, std::uint8_t>(const Pool&, i64, const float*, float*, std::uint8_t*);
template void max_pool_numbers<float, std::uint32_t>(const Pool&, i64, const float*, float*, std::uint32_t*);
template void max_pool_numbers<double, std::uint8_t>(const Pool&, i64, const double*, double*, std::uint8_t*);
template void max_pool_numbers<double, std::uint32_t>(const Pool&, i64, const double*, double*, std::uint32_t*);
template void max_pool_jvp<float>(const Pool&, i64, const float*, const float*, float*, Ties);
template void max_pool_jvp<double>(const Pool&, i64, const double*, const double*, double*, Ties);
template void max_pool_vjp<float>(const Pool&, i64, const float*, const float*, float*, Ties);
template void max_pool_vjp<double>(const Pool&, i64, const double*, const double*, double*, Ties);

}  // namespace lunette::LN_ISA
