// The greatest cell of each window, and where it is.
#include <limits>

#include "operators.hpp"
#include "tiles.hpp"

namespace lunette::LN_ISA {
namespace {

// Whether some cell is NaN, or, where absent cells are stood for by -inf and places matter, -inf.
template <bool lowest, class T>
bool scan_special(const T* x, i64 n) {
    constexpr int L = lanes<T>;
    constexpr T low = -std::numeric_limits<T>::infinity();
    auto odd = [](auto v) {
        if constexpr (lowest) return ~(v > low); else return v != v;
    };
    auto odd1 = [](T v) {
        if constexpr (lowest) return !(v > low); else return v != v;
    };
    i64 i = 0;
    Vec<Int<T>, L> found{};
    for (; i + 4 * L <= n; i += 4 * L) {
        auto a = load<L>(x + i), b = load<L>(x + i + L), c = load<L>(x + i + 2 * L), d = load<L>(x + i + 3 * L);
        if constexpr (lowest) found |= (odd(a) | odd(b)) | (odd(c) | odd(d));
        else found |= either_nan(a, b) | either_nan(c, d);
    }
    for (; i + L <= n; i += L) found |= odd(load<L>(x + i));
    bool rest = false;
    for (; i < n; ++i) rest |= odd1(x[i]);
    return rest || any(found);
}

// b comes after a, so b wins only when it is greater; a NaN wins over all but an earlier NaN.
template <bool careful, class V>
inline auto later_wins(V a, V b) {
    if constexpr (!careful) return b > a;
    else if constexpr (sizeof(V) < 16) return (b > a) || (b != b && a == a);
    else return (b > a) | ((b != b) & (a == a));
}

// The greatest cells of L rows of n >= L cells each, one after the other; false if some cell is NaN. Of zeros, any.
template <class T>
bool greatest_of_rows(const T* x, i64 n, Vec<T, lanes<T>>& best) {
    constexpr int L = lanes<T>;
    Vec<T, L> top[L], before{};
    Vec<Int<T>, L> nan{};
    for (int r = 0; r < L; ++r) top[r] = load<L>(x + r * n);
    each_of_rows<T>(n, [&](int r, i64 i, auto) {
        auto v = load<L>(x + i);
        if (r % 2) nan |= either_nan(before, v);
        before = v, top[r] = v > top[r] ? v : top[r];
    });
    best = fold_each<L>(top, [](auto a, auto b) { return b > a ? b : a; });
    return !any(nan);
}

template <class T, bool careful = false>
struct MaxValue {
    using Scalar = T;
    using Careful = MaxValue<T, true>;
    static constexpr bool idempotent = true, any_order = true;
    // Of equal zeros the first wins, sign and all; and NaN needs care.
    struct Order {
        Vec<Int<T>, lanes<T>> nan{}, least{};
        template <int N>
        void meet(Vec<T, N> v) {
            if constexpr (N == lanes<T>) {
                auto b = bits<Vec<Int<T>, N>>(v);
                nan |= v != v, least = b < least ? b : least;
            } else if constexpr (N == 1) {
                nan[0] |= v != v, least[0] = std::min(least[0], bits<Int<T>>(v));
            } else {
                for (int l = 0; l < N; ++l) meet<1>(v[l]);
            }
        }
        bool matters() const { return any(nan) || any(least == std::numeric_limits<Int<T>>::min()); }
    };
    static constexpr std::size_t cell_bytes = sizeof(T);
    template <int N>
    struct Lanes {
        Vec<T, N> v;
    };
    template <int N>
    using Cell = typename MaxValue<T, false>::template Lanes<N>;

    struct Ref_ {
        T* v;
        Ref_ at(i64 i) const { return {v + i}; }
        template <int N>
        Cell<N> get(i64 i) const { return {load<N>(v + i)}; }
        template <int N>
        void put(i64 i, Cell<N> c) const { store<N>(v + i, c.v); }
    };
    struct Source_ {
        const T* v;
        i64 base;
        Source_ at(i64 i) const { return {v + i, base + i}; }
        template <int N>
        Cell<N> get(i64 i) const { return {load<N>(v + i)}; }
        template <int N>
        [[gnu::always_inline]] void pair(i64 i, Cell<N>& even, Cell<N>& odd) const {
            part_pairs<N>(v + i, even.v, odd.v);
        }
        template <int N>
        void fours(i64 i, Cell<N>* all) const {
            Vec<T, N> cells[4];
            take_apart<4, N>(v + i, cells);
            for (int e = 0; e < 4; ++e) all[e].v = cells[e];
        }
        template <int N>
        Cell<N> spread(i64 i, i64 by) const { return {gather<N>(v + i, by)}; }
    };
    using Ref = typename MaxValue<T, false>::Ref_;
    using Source = typename MaxValue<T, false>::Source_;

    static Ref make(char*& memory, i64 cells) {
        Ref r{reinterpret_cast<T*>(memory)};
        memory += (cells * sizeof(T) + 63) / 64 * 64;
        return r;
    }
    static T pad() { return -std::numeric_limits<T>::infinity(); }
    static Cell<1> nothing() { return {pad()}; }
    static void fill(Ref, const T*, i64, i64) {}
    static bool scan(const T* x, i64 n) { return scan_special<false>(x, n); }
    static Cell<lanes<T>> column(const T* x, i64, i64) { return {load<lanes<T>>(x)}; }
    template <class F>
    static void arrays(Ref a, Ref b, F&& f) { f(a.v, b.v); }

    template <class C>
    static C join(C a, C b) { return {later_wins<careful>(a.v, b.v) ? b.v : a.v}; }

    static bool wholes(const T* x, i64 n, T* y) {
        constexpr int L = lanes<T>;
        Vec<T, L> best;
        if (!greatest_of_rows(x, n, best)) return false;
        store<L>(y, best);
        for (int r = 0; any(best == T(0)) && r < L; ++r) y[r] = first_zero(x + r * n, y[r]);
        return true;
    }

    // `best`, but a zero with the sign of the first.
    static T first_zero(const T* x, T best) {
        for (; best == 0; ++x)
            if (*x == 0) return *x;
        return best;
    }

    // No NaN here, so only the sign of a zero depends on the order.
    static Cell<1> run(Source s, i64 i, i64 n) {
        constexpr int L = lanes<T>;
        const T* x = s.v + i;
        Vec<T, L> c[4];
        for (auto& v : c) v = load<L>(x);
        i64 j = 0;
        for (; j + 4 * L <= n; j += 4 * L)
            for (int w = 0; w < 4; ++w) { auto v = load<L>(x + j + w * L); c[w] = v > c[w] ? v : c[w]; }
        for (; j + L <= n; j += L) { auto v = load<L>(x + j); c[0] = v > c[0] ? v : c[0]; }
        auto v = load<L>(x + n - L);
        for (int w = 0; w < 4; ++w) v = c[w] > v ? c[w] : v;
        return {first_zero(x, fold<L>(v, [](auto a, auto b) { return b > a ? b : a; }))};
    }
};

// The place of the first cell that equals `value`; there is one.
template <class T>
i64 first_equal(const T* x, i64 n, T value) {
    constexpr int L = lanes<T>;
    i64 i = 0;
    while (i + L <= n && !any(load<L>(x + i) == value)) i += L;
    while (x[i] != value) ++i;
    return i;
}

template <class T, bool careful = false>
struct MaxPlace {
    using Scalar = T;
    using I = Int<T>;
    using Careful = MaxPlace<T, true>;
    static constexpr bool idempotent = true, any_order = false;
    static constexpr std::size_t cell_bytes = 2 * sizeof(T);
    template <int N>
    struct Lanes {
        Vec<T, N> v;
        Vec<I, N> p;
    };
    template <int N>
    using Cell = typename MaxPlace<T, false>::template Lanes<N>;

    struct Ref_ {
        T* v;
        I* p;
        Ref_ at(i64 i) const { return {v + i, p + i}; }
        template <int N>
        Cell<N> get(i64 i) const { return {load<N>(v + i), load<N>(p + i)}; }
        template <int N>
        void put(i64 i, Cell<N> c) const { store<N>(v + i, c.v), store<N>(p + i, c.p); }
    };
    struct Source_ {
        const T* v;
        i64 base;
        Source_ at(i64 i) const { return {v + i, base + i}; }
        template <int N>
        Cell<N> get(i64 i) const { return {load<N>(v + i), iota<N, I>(0, 1) + static_cast<I>(base + i)}; }
        template <int N>
        [[gnu::always_inline]] void pair(i64 i, Cell<N>& even, Cell<N>& odd) const {
            part_pairs<N>(v + i, even.v, odd.v);
            even.p = iota<N, I>(0, 2) + static_cast<I>(base + i), odd.p = even.p + 1;
        }
        template <int N>
        void fours(i64 i, Cell<N>* all) const {
            Vec<T, N> cells[4];
            take_apart<4, N>(v + i, cells);
            for (int e = 0; e < 4; ++e) all[e] = {cells[e], iota<N, I>(0, 4) + static_cast<I>(base + i + e)};
        }
        template <int N>
        Cell<N> spread(i64 i, i64 by) const {
            return {gather<N>(v + i, by), iota<N, I>(0, 1) * static_cast<I>(by) + static_cast<I>(base + i)};
        }
    };
    using Ref = typename MaxPlace<T, false>::Ref_;
    using Source = typename MaxPlace<T, false>::Source_;

    static Ref make(char*& memory, i64 cells) {
        i64 bytes = (cells * sizeof(T) + 63) / 64 * 64;
        Ref r{reinterpret_cast<T*>(memory), reinterpret_cast<I*>(memory + bytes)};
        memory += 2 * bytes;
        return r;
    }
    static T pad() { return -std::numeric_limits<T>::infinity(); }
    static Cell<1> nothing() { return {pad(), 0}; }
    static void fill(Ref r, const T*, i64 base, i64 n) {
        for (i64 i = 0; i < n; ++i) r.p[i] = static_cast<I>(base + i);
    }
    static bool scan(const T* x, i64 n) { return scan_special<true>(x, n); }
    static Cell<lanes<T>> column(const T* x, i64 place, i64 by) {
        return {load<lanes<T>>(x), iota<lanes<T>, I>(0, 1) * static_cast<I>(by) + static_cast<I>(place)};
    }
    template <class F>
    static void arrays(Ref a, Ref b, F&& f) { f(a.v, b.v), f(a.p, b.p); }

    template <class C>
    static C join(C a, C b) {
        auto later = later_wins<careful>(a.v, b.v);
        return {later ? b.v : a.v, later ? b.p : a.p};
    }

    static Cell<1> run(Source s, i64 i, i64 n) {
        const T* x = s.v + i;
        T best = MaxValue<T>::run({x, 0}, 0, n).v;
        i64 place = first_equal(x, n, best);
        return {x[place], static_cast<I>(s.base + i + place)};
    }
};

// Places as wide as T can count the cells of a plane.
template <class T>
bool places_fit(const Pool& pool) {
    return pool.cells_in <= std::numeric_limits<Int<T>>::max();
}

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

// Calls f(plane, first output, count, values, places) for parts that cover all outputs.
template <class T, class F>
void max_places(const Pool& pool, i64 planes, const T* x, F&& f) {
    using Op = MaxPlace<T>;
    Reducer<Op> reducer(pool, x + planes * pool.cells_in);
    const i64 rest = pool.cells_out / pool.axes[0].m;
    over_parts(pool, planes, [&](i64 p0, i64 p1, i64 o0, i64 o1) {
        const i64 step = reducer.top_block();
        char* memory = static_cast<char*>(scratch(reducer.bytes() + 2 * (std::min(step, o1 - o0) * rest * sizeof(T) + 64)));
        typename Op::Ref found = Op::make(memory, std::min(step, o1 - o0) * rest);
        for (i64 p = p0; p < p1; ++p)
            for (i64 b0 = o0; b0 < o1; b0 += step) {
                i64 b1 = std::min(o1, b0 + step);
                reducer.run(0, x + p * pool.cells_in, 0, b0, b1, found, memory);
                f(p, b0 * rest, (b1 - b0) * rest, found.v, found.p);
            }
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

template <class T>
bool has_negative_zero(const T* x, i64 n) {
    constexpr int L = lanes<T>;
    constexpr auto sign = std::numeric_limits<Int<T>>::min();
    Vec<Int<T>, L> found{};
    i64 i = 0;
    for (; i + L <= n; i += L) found |= bits<Vec<Int<T>, L>>(load<L>(x + i)) == sign;
    bool rest = false;
    for (; i < n; ++i) rest |= bits<Int<T>>(x[i]) == sign;
    return rest || any(found);
}

// Sums that arrive one term at a time, in any order of cells. A cell that more than block_terms outputs may add to
// gets them in blocks: `part` collects one block, `dx` the blocks.
template <class T>
class Deposits {
public:
    // Cells from..to-1 of a plane; `part` has room for as many, or is null where blocks are not needed.
    Deposits(T* dx, T* part, i64 from, i64 to) : dx_(dx), part_(part), from_(from), to_(to) {
        if (part_) for (i64 i = from; i < to; ++i) part_[i - from] = -T(0);
        lo_ = to, hi_ = from;
    }
    bool holds(i64 i) const { return i >= from_ && i < to_; }
    void add(i64 i, T term) {
        if (!part_) dx_[i] += term;
        else part_[i - from_] += term, lo_ = std::min(lo_, i), hi_ = std::max(hi_, i + 1);
    }
    void output_done() {
        if (part_ && ++outputs_ == block_terms) flush();
    }
    void flush() {
        if (!part_) return;
        for (i64 i = lo_; i < hi_; ++i) dx_[i] += part_[i - from_], part_[i - from_] = -T(0);
        lo_ = to_, hi_ = from_, outputs_ = 0;
    }

private:
    T *dx_, *part_;
    i64 from_, to_, lo_, hi_, outputs_ = 0;
};

// dx for the input cells i0..i1-1 of axis 0: visit(again) calls its argument with every block of outputs that reads
// some of them. Where g holds -0, winners first get -0 in place of +0, so that a sum of -0 alone stays -0.
template <class Op, class Each>
void scatter(const Pool& pool, i64 planes, const typename Op::Scalar* x, const typename Op::Scalar* g,
             typename Op::Scalar* dx, Each each) {
    using T = typename Op::Scalar;
    Reducer<Op> reducer(pool, x + planes * pool.cells_in);
    const PoolAxis& ax = pool.axes[0];
    const i64 rest = pool.cells_out / ax.m, rin = pool.cells_in / ax.n;
    const bool deep = !pool.transposed || pool.transposed->window > block_terms;
    over_parts(pool.transposed ? *pool.transposed : pool, planes, [&](i64 p0, i64 p1, i64 i0, i64 i1) {
        if (!pool.transposed) {  // parts of outputs, not of inputs: the first does it all
            if (i0 > 0) return;
            i1 = ax.n;
        }
        i64 first = ax.m, end = 0, cells = (i1 - i0) * rin;
        for (i64 o = 0; o < ax.m; ++o)
            if (ax.last(o) >= i0 && ax.first[o] < i1) first = std::min(first, o), end = o + 1;
        const i64 step = std::min(reducer.top_block(), ax.m);
        std::size_t found_bytes = step * rest * Op::cell_bytes + 128, part_bytes = deep ? cells * sizeof(T) + 64 : 0;
        char* memory = static_cast<char*>(scratch(reducer.bytes() + found_bytes + part_bytes));
        auto found = Op::make(memory, step * rest);
        T* part = deep ? reinterpret_cast<T*>(memory) : nullptr;
        memory += part_bytes / 64 * 64;
        for (i64 p = p0; p < p1; ++p) {
            const T* xp = x + p * pool.cells_in;
            const T* gp = g + p * pool.cells_out;
            T* dp = dx + p * pool.cells_in;
            const bool mark = end > first && has_negative_zero(gp + first * rest, (end - first) * rest);
            for (bool marking : {true, false}) {
                if (marking && !mark) continue;
                Deposits<T> deposits(dp, marking ? nullptr : part, i0 * rin, i1 * rin);
                i64 clean = i0;  // rows before it are zeroed
                for (i64 b0 = first; b0 < end; b0 += step) {
                    i64 b1 = std::min(end, b0 + step), hi = i0;
                    for (i64 o = b0; o < b1; ++o) hi = std::max(hi, ax.last(o) + 1);
                    hi = std::min(hi, i1);
                    if ((marking || !mark) && hi > clean) std::memset(static_cast<void*>(dp + clean * rin), 0, (hi - clean) * rin * sizeof(T));
                    clean = std::max(clean, hi);
                    reducer.run(0, xp, 0, b0, b1, found, memory);
                    each(xp, gp + b0 * rest, b0 * rest, (b1 - b0) * rest, found, dp, deposits, marking, i1 - i0 == ax.n);
                }
                if ((marking || !mark) && i1 > clean) std::memset(static_cast<void*>(dp + clean * rin), 0, (i1 - clean) * rin * sizeof(T));
                deposits.flush();
            }
        }
    });
}

// ---- one window over a whole plane ---------------------------------------------------------------------------------

template <class T>
bool one_window(const Pool& pool) {
    return pool.rank == 1 && pool.axes[0].whole;
}

// f(i, x[i], whether cell i wins) for all cells of a plane, the last vector possibly twice: N at a time, or singly where
// the plane is shorter than that.
template <class T, class F>
inline void each_winner(const T* x, i64 n, T best, F&& f) {
    if (best == best) sweep<T>(n, [&]<int N>(i64 i) { f.template operator()<N>(i, load<N>(x + i) == best); });
    else sweep<T>(n, [&]<int N>(i64 i) { auto v = load<N>(x + i); f.template operator()<N>(i, v != v); });
}

// The greatest cell of a plane, NaN if it holds one.
template <class T>
T greatest(const T* x, i64 n) {
    constexpr int L = lanes<T>;
    if (scan_special<false>(x, n)) return std::numeric_limits<T>::quiet_NaN();
    if (n >= 2 * L) return MaxValue<T>::run({x, 0}, 0, n).v;
    T best = x[0];
    for (i64 i = 1; i < n; ++i) best = x[i] > best ? x[i] : best;
    return best;
}

template <class T>
i64 first_winner(const T* x, i64 n, T best) {
    if (best == best) return first_equal(x, n, best);
    i64 i = 0;
    while (x[i] == x[i]) ++i;
    return i;
}

// The number of winners, and the sum of t over them.
template <class T>
T sum_of_winners(const T* x, const T* t, i64 n, T best, i64& winners) {
    constexpr int L = lanes<T>;
    T total = -T(0);  // -0 changes no sum
    winners = 0;
    for (i64 j = 0; j < n; j += block_terms * L) {
        auto part = splat<L>(-T(0));
        Vec<Int<T>, L> found{};
        T rest = -T(0);
        const i64 size = std::min(block_terms * L, n - j), whole = size - size % L;
        each_winner(x + j, whole, best, [&]<int N>(i64 i, auto wins) {
            if constexpr (N == L) part += wins ? load<L>(t + j + i) : splat<L>(-T(0)), found -= wins;
        });
        for (i64 i = j + whole; i < j + size; ++i)
            if (best == best ? x[i] == best : x[i] != x[i]) rest += t[i], ++winners;
        for (int l = 0; l < L; ++l) winners += found[l];
        total += fold<L>(part, [](auto a, auto b) { return a + b; }) + rest;
    }
    return total;
}

// For each of L rows of cells, whose greatest are known: f(row, winning lanes, those of them not seen before, place) for all
// its vectors. Returns how many winners each row has.
template <class T, class F>
inline Vec<Int<T>, lanes<T>> each_winner_of_rows(const T* x, i64 n, Vec<T, lanes<T>> best, F&& f) {
    constexpr int L = lanes<T>;
    const auto fresh = iota<L, Int<T>>(0, 1) >= static_cast<Int<T>>(L - n % L);
    Vec<Int<T>, L> winners[L];
#pragma GCC unroll 16
    for (int r = 0; r < L; ++r) {
        const auto top = splat<L>(best[r]);
        Vec<Int<T>, L> mine{};
        for (i64 i = r * n; i + L <= (r + 1) * n; i += L) {
            const auto wins = load<L>(x + i) == top;
            mine -= wins, f(r, wins, wins, i);
        }
        if (n % L) {
            const auto wins = load<L>(x + (r + 1) * n - L) == top;
            mine -= wins & fresh, f(r, wins, wins & fresh, (r + 1) * n - L);
        }
        winners[r] = mine;
    }
    return fold_each<L>(winners, [](auto a, auto b) { return a + b; });
}

// L small planes at once; false if that needs a closer look.
template <class T>
bool one_window_jvps(i64 n, const T* x, const T* t, T* dy, Ties ties) {
    constexpr int L = lanes<T>;
    Vec<T, L> best, sum[L];
    if (!greatest_of_rows(x, n, best)) return false;
    for (auto& s : sum) s = splat<L>(-T(0));  // -0 changes no sum
    const auto winners = each_winner_of_rows(x, n, best, [&](int r, auto, auto wins, i64 i) {
        sum[r] += wins ? load<L>(t + i) : splat<L>(-T(0));
    });
    if (ties == Ties::first && any(winners > 1)) return false;
    auto total = fold_each<L>(sum, [](auto a, auto b) { return a + b; });
    if (ties == Ties::split) total /= __builtin_convertvector(winners, Vec<T, L>);
    store<L>(dy, total);
    return true;
}

template <class T>
bool one_window_vjps(i64 n, const T* x, const T* g, T* dx, Ties ties) {
    constexpr int L = lanes<T>;
    Vec<T, L> best;
    if (ties == Ties::split || !greatest_of_rows(x, n, best)) return false;
    const auto winners = each_winner_of_rows(x, n, best, [&](int r, auto wins, auto, i64 i) {
        store<L>(dx + i, wins ? splat<L>(g[r]) : splat<L>(T(0)));
    });
    return ties == Ties::all || !any(winners > 1);
}

// Calls some(p) for L planes from p on, and one(p) for single planes where that is false or there are no L.
template <class T, class Some, class One>
inline void by_planes(i64 planes, i64 n, Some&& some, One&& one) {
    constexpr int L = lanes<T>;
    for (i64 p = 0; p < planes;) {
        const i64 next = std::min<i64>(planes, p + L);
        if (n >= L && n <= block_terms && next - p == L && some(p)) p = next;
        for (; p < next; ++p) one(p);
    }
}

template <class T>
void one_window_jvp(i64 planes, i64 n, const T* x, const T* t, T* dy, Ties ties) {
    auto one = [&](i64 p) {
        const T *xp = x + p * n, *tp = t + p * n, best = greatest(xp, n);
        i64 winners = 1;
        if (ties == Ties::first) dy[p] = tp[first_winner(xp, n, best)];
        else dy[p] = sum_of_winners(xp, tp, n, best, winners);
        if (ties == Ties::split) dy[p] /= static_cast<T>(winners);
    };
    by_planes<T>(planes, n, [&](i64 p) { return one_window_jvps(n, x + p * n, t + p * n, dy + p, ties); }, one);
}

template <class T>
void one_window_vjp(i64 planes, i64 n, const T* x, const T* g, T* dx, Ties ties) {
    auto one = [&](i64 p) {
        const T *xp = x + p * n, best = greatest(xp, n);
        T* to = dx + p * n;
        if (ties == Ties::first) {
            sweep<T>(n, [&]<int N>(i64 i) { store<N>(to + i, splat<N>(T(0))); });
            to[first_winner(xp, n, best)] = g[p];
            return;
        }
        i64 winners = 1;
        if (ties == Ties::split) sum_of_winners(xp, xp, n, best, winners);
        const T share = g[p] / static_cast<T>(winners);
        each_winner(xp, n, best, [&]<int N>(i64 i, auto wins) {
            store<N>(to + i, wins ? splat<N>(share) : splat<N>(T(0)));
        });
    };
    by_planes<T>(planes, n, [&](i64 p) { return one_window_vjps(n, x + p * n, g + p, dx + p * n, ties); }, one);
}

// ---- the derivative of windows that share no cell ------------------------------------------------------------------

// dx where ties go to the first, in one pass: winners are found and written while their cells are at hand. For inner
// strides of 1, 2 and 4 without padding.
template <class T>
class Tiles {
    using I = Int<T>;
    static constexpr int L = lanes<T>;

public:
    static bool suits(const Pool& pool) {
        const i64 stride = pool.axes[pool.rank - 1].stride;
        return share_no_cell(pool) && (stride == 1 || stride == 2 || stride == 4);
    }

    // The ends are those of the whole arrays, past which nothing is read.
    Tiles(const Pool& pool, const T* x_end, const T* g_end)
        : pool_(pool), ax_(pool.axes[pool.rank - 1]), x_end_(x_end), g_end_(g_end) {
        i64 size = 1;
        for (int a = pool.rank - 1; a >= 0; --a) size_[a] = size, size *= pool.axes[a].n;
    }

    void operator()(i64 planes, const T* x, const T* g, T* dx) const {
        over_parts(pool_, planes, [&](i64 p0, i64 p1, i64 o0, i64 o1) {
            WindowRows rows;
            for (i64 p = p0; p < p1; ++p) {
                const T *xp = x + p * pool_.cells_in, *gp = g + p * pool_.cells_out;
                if (ax_.stride == 1) part<1>(rows, xp, gp, dx + p * pool_.cells_in, o0, o1);
                else if (ax_.stride == 2) part<2>(rows, xp, gp, dx + p * pool_.cells_in, o0, o1);
                else part<4>(rows, xp, gp, dx + p * pool_.cells_in, o0, o1);
            }
        });
    }

private:
    // The outputs o0..o1-1 of axis 0 of one plane.
    template <int S>
    void part(WindowRows& rows, const T* x, const T* g, T* dx, i64 o0, i64 o1) const {
        each_tile_row(pool_, size_, rows, o0, o1, dx, [&](i64 at, const i64* places, i64 many, i64 o, i64 m, i64 left) {
            row<S>(x + at, places, many, g + o, dx + at, m, left);
        });
    }

    // One row of m outputs, whose windows have the rows of inputs at `places`; the last of these may write `left` cells.
    template <int S>
    void row(const T* x, const i64* places, i64 many, const T* g, T* dx, i64 m, i64 left) const {
        if (m >= L) {
            i64 t = 0;
            for (; t + L <= m; t += L) block<S>(x + t * S, places, many, g + t, dx + t * S);
            if (t < m) block<S>(x + (m - L) * S, places, many, g + (m - L), dx + (m - L) * S);
        } else {
            // Fewer than a vector: what is read too much is not used, what is written too much is written again.
            if (left >= S * L && x_end_ - (x + places[many - 1]) >= S * L && g_end_ - g >= L) {
                block<S>(x, places, many, g, dx);
            } else {
                T given[L] = {};
                for (i64 q = 0; q < m; ++q) given[q] = g[q];
                T in[WindowRows::most * S * L], out[WindowRows::most * S * L];
                i64 at[WindowRows::most];
                for (i64 r = 0; r < many; ++r) {
                    at[r] = r * S * L;
                    for (i64 i = 0; i < S * L; ++i) in[at[r] + i] = i < m * S ? x[places[r] + i] : T(0);
                }
                block<S>(in, at, many, given, out);
                for (i64 r = 0; r < many; ++r)
                    std::memcpy(static_cast<void*>(dx + places[r]), out + at[r], m * S * sizeof(T));
            }
        }
        if (pool_.rank > 1 && m * S < ax_.n)
            for (i64 r = 0; r < many; ++r)
                for (i64 i = m * S; i < ax_.n; ++i) dx[places[r] + i] = 0;
    }

    template <int S>
    [[gnu::always_inline]] inline void block(const T* x, const i64* places, i64 many, const T* g, T* dx) const {
        const bool done = ax_.taps == S ? some<S, S, false>(x, places, many, g, dx)
                                        : some<S, 0, false>(x, places, many, g, dx);
        if (!done) some<S, 0, true>(x, places, many, g, dx);
    }

    // L windows. False, and nothing written, if one of them holds NaN, which only `careful` can do. K taps, or ax_.taps.
    template <int S, int K, bool careful>
    [[gnu::always_inline]] inline bool some(const T* x, const i64* places, i64 many, const T* g, T* dx) const {
        const int k = K ? K : static_cast<int>(ax_.taps);
        Vec<T, L> v[S], best, share = load<L>(g);
        Vec<I, L> code{}, odd{};
        I next = 0;
        for (i64 r = 0; r < many; ++r) {
            take_apart<S, L>(x + places[r], v);
            for (int e = 0; e < k; ++e, ++next) {
                if constexpr (!careful) odd |= v[e] != v[e];
                if (next == 0) {
                    best = v[0];
                    continue;
                }
                auto later = later_wins<careful>(best, v[e]);
                best = later ? v[e] : best, code = later ? splat<L>(next) : code;
            }
        }
        if (!careful && any(odd)) return false;
        next = 0;
        for (i64 r = 0; r < many; ++r) {
            for (int e = 0; e < S; ++e) {
                v[e] = splat<L>(T(0));
                if (e < k) v[e] = code == next++ ? share : v[e];
            }
            interleave<S, false, T>(v, dx + places[r]);
        }
        return true;
    }

    const Pool& pool_;
    const PoolAxis& ax_;
    const T *x_end_, *g_end_;
    i64 size_[max_axes];  // cells of one step along an axis
};

// ---- the derivative from the cells' side ---------------------------------------------------------------------------

// dx where ties go to the first: each cell asks the outputs that read it whether it is their winner. For inner strides of
// 1, 2 and 4, and windows that overlap little. dx is written once, in order, and no cell waits for another.
template <class T>
class Claims {
    using I = Int<T>;
    using Op = MaxPlace<T>;
    static constexpr int L = lanes<T>;
    static constexpr i64 most_taps = 16, found_cells = 2048;

public:
    static bool suits(const Pool& pool) {
        if (!pool.transposed || !places_fit<T>(pool)) return false;
        const PoolAxis& ax = pool.axes[pool.rank - 1];
        if (!ax.regular || (ax.stride != 1 && ax.stride != 2 && ax.stride != 4)) return false;
        // An output as far off as a row is long must not read the same cell: see `row`.
        const i64 row = ax.m * ax.stride;
        if (ax.taps > most_taps || (ax.taps - 1) * ax.step >= row || -ax.start > row) return false;
        // Every output is asked by each cell of its window, a vector of cells at a time; handing it out costs as much as
        // asking about twice a vector, whatever the window.
        i64 readers = 1;  // many outputs may read the same few cells
        for (int a = 0; a + 1 < pool.rank; ++a) readers *= pool.transposed->axes[a].most;
        return pool.window <= 2 * L && readers <= WindowRows::most;
    }

    Claims(const Pool& pool, const T* x_end)
        : pool_(pool), back_(*pool.transposed), ax_(pool.axes[pool.rank - 1]), reducer_(pool, x_end) {
        const PoolAxis& top = pool.axes[0];
        rest_in_ = pool.cells_in / top.n, rest_out_ = pool.cells_out / top.m;
        i64 size = 1;
        for (int a = pool.rank - 1; a >= 0; --a) size_[a] = size, size *= pool.axes[a].m;
        // Cell t*stride + e of a row is read by the outputs t + ask_[e][...].
        i64 reach = 0;
        for (i64 e = 0; e < ax_.stride; ++e)
            for (i64 k = 0; k < ax_.taps; ++k) {
                const i64 far = e - ax_.start - k * ax_.step;
                if (far % ax_.stride != 0) continue;
                ask_[e][asks_[e]++] = far / ax_.stride;
                reach = std::max(reach, std::abs(far / ax_.stride));
            }
        margin_ = reach + 2 * L + std::max<i64>(0, ax_.n / ax_.stride + 1 - ax_.m);
        group_ = reducer_.group();
        // Rows of inputs done at a time; rows shared by two blocks are looked at twice, so blocks are not too small.
        i64 outputs = std::max(found_cells / std::max<i64>(1, rest_out_), 4 * (top.span() / std::max<i64>(1, top.jump)));
        block_ = std::clamp<i64>(outputs * std::max<i64>(1, top.jump) / 4 * 4, 4, (top.n + 3) / 4 * 4);
        if (group_ > 1) block_ = top.n;
        for (i64 i = 0; i < top.n; i += block_) {
            i64 lo, hi;
            cells_of(back_.axes[0], i, std::min(top.n, i + block_), lo, hi);
            room_ = std::max(room_, (hi - lo) * rest_out_);
        }
        room_ *= group_;
    }

    void operator()(i64 planes, const T* x, const T* g, T* dx) const {
        const PoolAxis& top = pool_.axes[0];
        const i64 blocks = (top.n + block_ - 1) / block_, work = block_ * rest_in_;
        const i64 chunks = blocks == 1 ? (planes + group_ - 1) / group_ : planes * blocks;
        const i64 each = std::clamp<i64>((24 << 10) / std::max<i64>(1, work * (blocks == 1 ? group_ : 1)), 1, chunks);
        auto task = [&](i64 index) {
            char* memory = static_cast<char*>(scratch(bytes()));
            for (i64 c = index * each; c < std::min(chunks, (index + 1) * each); ++c) {
                const i64 i = c % blocks * block_;
                if (blocks == 1) chunk(c * group_, std::min(group_, planes - c * group_), 0, top.n, x, g, dx, memory);
                else chunk(c / blocks, 1, i, std::min(top.n, i + block_), x, g, dx, memory);
            }
        };
        const i64 tasks = (chunks + each - 1) / each;
        if (tasks == 1) task(0);
        else parallel_for(tasks, task);
    }

private:
    std::size_t bytes() const {
        return reducer_.bytes() + 2 * (room_ + 2 * margin_ + 64) * Op::cell_bytes + (ax_.n + 8 * L) * sizeof(T) + 1024;
    }

    // The input cells i0..i1-1 of axis 0 of `count` planes; all of axis 0 if these are several.
    void chunk(i64 plane, i64 count, i64 i0, i64 i1, const T* x, const T* g, T* dx, char* memory) const {
        i64 o0, o1;
        cells_of(back_.axes[0], i0, i1, o0, o1);
        const i64 cells = count * (o1 - o0) * rest_out_;
        auto found = Op::make(memory, room_ + 2 * margin_).at(margin_);
        T* given = reinterpret_cast<T*>(Op::make(memory, room_ + 2 * margin_).v) + margin_;
        T* spare = reinterpret_cast<T*>(memory);
        memory += ((ax_.n + 8 * L) * sizeof(T) + 63) / 64 * 64;
        x += plane * pool_.cells_in;
        if (group_ > 1) {
            o0 = 0;
            reducer_.run_planes(x, count, found, memory, [](i64, i64) {});
        } else if (o0 < o1) {
            reducer_.run(0, x, 0, o0, o1, found, memory);
        }
        const T* from = g + plane * pool_.cells_out + o0 * rest_out_;
        Vec<I, L> signs{};
        constexpr I negative_zero = std::numeric_limits<I>::min();
        bool signed_zeros = false;
        i64 q = 0;
        for (; q + L <= cells; q += L) {
            auto v = load<L>(from + q);
            signs |= bits<Vec<I, L>>(v) == negative_zero;
            store<L>(given + q, v);
        }
        for (; q < cells; ++q) given[q] = from[q], signed_zeros |= bits<I>(from[q]) == negative_zero;
        for (i64 k = 0; k < margin_; ++k)
            found.p[-1 - k] = found.p[cells + k] = -1, given[-1 - k] = given[cells + k] = 0;
        if (signed_zeros || any(signs)) rows_as<true>(plane, count, i0, i1, o0, found.p, given, dx, spare);
        else rows_as<false>(plane, count, i0, i1, o0, found.p, given, dx, spare);
    }

    template <bool signed_zeros>
    void rows_as(i64 plane, i64 count, i64 i0, i64 i1, i64 o0, const I* found, const T* given, T* dx, T* spare) const {
        if (ax_.stride == 1) rows<1, signed_zeros>(plane, count, i0, i1, o0, found, given, dx, spare);
        else if (ax_.stride == 2) rows<2, signed_zeros>(plane, count, i0, i1, o0, found, given, dx, spare);
        else rows<4, signed_zeros>(plane, count, i0, i1, o0, found, given, dx, spare);
    }

    template <int S, bool signed_zeros>
    void rows(i64 plane, i64 count, i64 i0, i64 i1, i64 o0, const I* found, const T* given, T* dx, T* spare) const {
        const int outer = pool_.rank - 1;
        const i64 length = outer == 0 ? i1 - i0 : ax_.n, first = outer == 0 ? i0 : 0;
        T* to = dx + plane * pool_.cells_in + i0 * rest_in_;
        T* const end = to + ((count - 1) * pool_.cells_in + (i1 - i0) * rest_in_);
        const i64 spill = (length + S * L - 1) / (S * L) * (S * L);
        i64 i[max_axes] = {i0};
        WindowRows readers;
        I place = static_cast<I>(i0 * rest_in_);
        for (i64 q = 0; q < count; ++q) {
            const i64 base = (q * pool_.axes[0].m - o0) * rest_out_;
            for (;;) {
                // The rows of outputs that read this row of inputs.
                const i64 from = base + first / S + readers.look(back_.axes, outer, size_, i);
                // A row may write past its end, where the next row will write later; at the end of all it must not.
                const bool safe = end - to >= spill;
                T* const write = safe ? to : spare;
                if constexpr (signed_zeros) row<S>(readers.at, readers.many, found + from, given + from, place, length, write);
                else each_reader<S>(readers.at, readers.many, found + from, given + from, place, length, write);
                if (!safe) std::memcpy(static_cast<void*>(to), spare, length * sizeof(T));
                to += length, place += static_cast<I>(length);
                int a = outer - 1;
                for (; a > 0 && ++i[a] == pool_.axes[a].n; --a) i[a] = 0;
                if (a < 0 || (a == 0 && ++i[0] == i1)) break;
            }
            i[0] = i0;
        }
    }

    // One row of inputs. Outputs before the start or past the end of a row of outputs are those of other rows, or
    // margin: their winners lie elsewhere. Here a sum of -0 alone stays -0.
    template <int S>
    void row(const i64* readers, i64 many, const I* found, const T* given, I place, i64 n, T* dx) const {
        for (i64 t = 0; t * S < n; t += L) {
            Vec<T, L> sum[S];
            for (int e = 0; e < S; ++e) {
                const auto cell = iota<L, I>(0, S) + static_cast<I>(place + t * S + e);
                auto total = splat<L>(-T(0));
                Vec<I, L> ever{};
                for (i64 r = 0; r < many; ++r)
                    for (i64 k = 0; k < asks_[e]; ++k) {
                        const i64 o = readers[r] + t + ask_[e][k];
                        const auto mine = load<L>(found + o) == cell;
                        total += mine ? load<L>(given + o) : splat<L>(-T(0)), ever |= mine;
                    }
                sum[e] = ever ? total : splat<L>(T(0));
            }
            interleave<S, false, T>(sum, dx + t * S);
        }
    }

    // The same without -0. The common numbers of taps are known beforehand.
    template <int S>
    void each_reader(const i64* readers, i64 many, const I* found, const T* given, I place, i64 n, T* dx) const {
        const i64 a = asks_[0], b = asks_[1];
        if constexpr (S == 1) {
            if (a == 3) return some_readers<S, 3, 0>(readers, many, found, given, place, n, dx);
            if (a == 5) return some_readers<S, 5, 0>(readers, many, found, given, place, n, dx);
        } else if constexpr (S == 2) {
            if (a == 1 && b == 2) return some_readers<S, 1, 2>(readers, many, found, given, place, n, dx);
            if (a == 2 && b == 1) return some_readers<S, 2, 1>(readers, many, found, given, place, n, dx);
        }
        some_readers<S, 0, 0>(readers, many, found, given, place, n, dx);
    }

    // Up to three reading rows at once, the others one after the other.
    template <int S, int A, int B>
    void some_readers(const i64* readers, i64 many, const I* found, const T* given, I place, i64 n, T* dx) const {
        if (many == 0) read<S, 0, 0, 0, false>(readers, found, given, place, n, dx);
        else if (many == 1) read<S, A, B, 1, false>(readers, found, given, place, n, dx);
        else if (many == 2) read<S, A, B, 2, false>(readers, found, given, place, n, dx);
        else read<S, A, B, 3, false>(readers, found, given, place, n, dx);
        for (i64 r = 3; r < many; ++r) read<S, A, B, 1, true>(readers + r, found, given, place, n, dx);
    }

    // A and B are the numbers of taps at even and odd cells, or all are as in asks_ if A = 0.
    template <int S, int A, int B, int R, bool add>
    void read(const i64* readers, const I* found, const T* given, I place, i64 n, T* dx) const {
        const auto ramp = iota<L, I>(0, S);
        i64 from[R + 1];
        for (int r = 0; r < R; ++r) from[r] = readers[r];
        i64 far[2][A + B + 1];
        for (int k = 0; k < A; ++k) far[0][k] = ask_[0][k];
        for (int k = 0; k < B; ++k) far[1][k] = ask_[1][k];
        for (i64 t = 0; t * S < n; t += L) {
            Vec<T, L> sum[S];
            for (int e = 0; e < S; ++e) {
                const auto cell = ramp + static_cast<I>(place + t * S + e);
                sum[e] = splat<L>(T(0));
                for (int r = 0; r < R; ++r) {
                    const i64 taps = A == 0 ? asks_[e] : e == 0 ? A : B;
                    for (i64 k = 0; k < taps; ++k) {
                        const i64 o = from[r] + t + (A == 0 ? ask_[e][k] : far[e & 1][A == 0 ? 0 : k]);
                        sum[e] += bits<Vec<T, L>>((load<L>(found + o) == cell) & bits<Vec<I, L>>(load<L>(given + o)));
                    }
                }
            }
            interleave<S, add, T>(sum, dx + t * S);
        }
    }

    const Pool& pool_;
    const Pool& back_;
    const PoolAxis& ax_;
    Reducer<Op> reducer_;
    i64 rest_in_, rest_out_, margin_, group_, block_, room_ = 0;
    i64 size_[max_axes];  // outputs that one step along an axis passes
    i64 ask_[4][most_taps], asks_[4] = {};
};

// ---- the derivative of small planes, L of them at a time -----------------------------------------------------------

// dx where ties go to the first: planes lie side by side, one to a lane, so that every cell of every window is one vector,
// whatever the windows.
template <class T>
class Planes {
    using I = Int<T>;
    static constexpr int L = lanes<T>;
    // A window is walked a second time to hand out its cotangents, or, if it is large, its winners are written singly.
    static constexpr i64 most_cells = 4096, most_window = 32, asked_window = 9;

public:
    static bool suits(const Pool& pool) {
        i64 rows = 1;
        for (int a = 0; a + 1 < pool.rank; ++a) rows *= pool.axes[a].most;
        return pool.cells_in <= most_cells && pool.cells_out > 0 && pool.cells_out <= most_cells && rows <= WindowRows::most &&
               pool.window <= most_window && pool.transposed && pool.transposed->window <= block_terms;
    }

    explicit Planes(const Pool& pool) : pool_(pool) {
        i64 size = 1;
        for (int a = pool.rank - 1; a >= 0; --a) size_[a] = size, size *= pool.axes[a].n;
    }

    // As many planes as there are groups of L; returns how many these are.
    i64 operator()(i64 planes, const T* x, const T* g, T* dx) const {
        const i64 n = pool_.cells_in, m = pool_.cells_out, groups = planes / L;
        const i64 each = std::clamp<i64>((24 << 10) / (n * L), 1, std::max<i64>(1, groups));
        auto task = [&](i64 i) {
            for (i64 p = i * each * L; p < std::min(groups, (i + 1) * each) * L; p += L) some(x + p * n, g + p * m, dx + p * n);
        };
        const i64 tasks = (groups + each - 1) / each;
        if (tasks <= 1) task(0);
        else parallel_for(tasks, task);
        return groups * L;
    }

private:
    void some(const T* x, const T* g, T* dx) const {
        const i64 n = pool_.cells_in, m = pool_.cells_out;
        T* cells = static_cast<T*>(scratch((2 * n + m + 2 * L) * L * sizeof(T)));
        T *sums = cells + n * L, *given = sums + (n + L) * L;
        to_columns(x, n, n, cells), to_columns(g, m, m, given);
        std::memset(static_cast<void*>(sums), 0, n * L * sizeof(T));
        const bool nan = scan_special<false>(cells, n * L);
        if (has_negative_zero(given, m * L)) {  // a sum of -0 alone is -0
            if (nan) windows<true, true>(cells, given, sums);
            else windows<false, true>(cells, given, sums);
        }
        if (nan) windows<true, false>(cells, given, sums);
        else windows<false, false>(cells, given, sums);
        to_rows(sums, n, dx, n);
    }

    // Every winner is set to -0 if `mark`, else its cotangent is added to it.
    template <bool careful, bool mark>
    void windows(const T* cells, const T* given, T* sums) const {
        const int outer = pool_.rank - 1;
        const PoolAxis& ax = pool_.axes[outer];
        WindowRows rows;
        i64 o[max_axes] = {};
        for (int a = outer; a >= 0;) {
            const i64 start = rows.look(pool_.axes, outer, size_, o), many = rows.many;
            for (i64 q = 0; q < ax.m; ++q, given += L) {
                const i64 at = start + ax.first[q], count = ax.count[q];
                if (many == 1 && count == 3) window<careful, mark, 1, 3>(rows, ax, at, count, cells, given, sums);
                else if (many == 2 && count == 2) window<careful, mark, 2, 2>(rows, ax, at, count, cells, given, sums);
                else if (many == 3 && count == 3) window<careful, mark, 3, 3>(rows, ax, at, count, cells, given, sums);
                else if (many * count > 0) window<careful, mark, 0, 0>(rows, ax, at, count, cells, given, sums);
            }
            for (a = outer - 1; a >= 0 && ++o[a] == pool_.axes[a].m; --a) o[a] = 0;
        }
    }

    // R rows of K cells, or as many as there are, the first at place `at`.
    template <bool careful, bool mark, int R, int K>
    [[gnu::always_inline]] static void window(const WindowRows& rows, const PoolAxis& ax, i64 at, i64 count, const T* cells,
                                              const T* given, T* sums) {
        const i64 many = R ? R : rows.many, taps = K ? K : count, step = ax.step * L;
        auto each = [&](auto f) {
            I next = 0;
            for (i64 r = 0; r < many; ++r)
                for (i64 k = 0, i = (at + rows.at[r]) * L; k < taps; ++k, i += step) f(i, next++);
        };
        auto best = load<L>(cells + (at + rows.at[0]) * L);
        const auto share = load<L>(given), nothing = splat<L>(-T(0));  // -0 changes no sum
        if (many * taps > asked_window) {
            const auto lane = iota<L, I>(0, 1);
            auto place = lane + static_cast<I>((at + rows.at[0]) * L);
            each([&](i64 i, I) {
                const auto v = load<L>(cells + i);
                const auto later = later_wins<careful>(best, v);
                best = later ? v : best, place = later ? lane + static_cast<I>(i) : place;
            });
            for (int l = 0; l < L; ++l) sums[place[l]] = mark ? -T(0) : sums[place[l]] + share[l];
            return;
        }
        Vec<I, L> winner{};
        each([&](i64 i, I next) {
            const auto v = load<L>(cells + i);
            const auto later = later_wins<careful>(best, v);
            best = later ? v : best, winner = later ? splat<L>(next) : winner;
        });
        each([&](i64 i, I next) {
            const auto wins = winner == next;
            const auto sum = load<L>(sums + i);
            if constexpr (mark) store<L>(sums + i, wins ? nothing : sum);
            else store<L>(sums + i, sum + (wins ? share : nothing));
        });
    }

    const Pool& pool_;
    i64 size_[max_axes];  // cells of one step along an axis
};

}  // namespace

template <class T>
void max_pool(const Pool& pool, i64 planes, const T* x, T* y, i64* index) {
    if (planes == 0 || pool.cells_out == 0) return;
    if (!index) return max_values(pool, planes, x, y);
    max_places(pool, planes, x, [&](i64 p, i64 o, i64 count, const T* v, const Int<T>* place) {
        std::memcpy(y + p * pool.cells_out + o, v, count * sizeof(T));
        i64* to = index + p * pool.cells_out + o;
        for (i64 q = 0; q < count; ++q) to[q] = place[q];
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
    max_places(pool, planes, x, [&](i64 p, i64 o, i64 count, const T* best, const Int<T>* place) {
        const T *xp = x + p * pool.cells_in, *tp = t + p * pool.cells_in;
        T* to = dy + p * pool.cells_out + o;
        if (ties == Ties::first) {
            for (i64 q = 0; q < count; ++q) to[q] = tp[place[q]];
            return;
        }
        for (i64 q = 0; q < count; ++q) {
            T total = -T(0), block = -T(0);  // -0 changes no sum
            i64 winners = 0;
            each_run(pool, o + q, [&](i64 at, i64 n, i64 step) {
                for (i64 j = at; j < at + n * step; j += step) {
                    if (!wins(xp[j], best[q])) continue;
                    block += tp[j];
                    if (++winners % block_terms == 0) total += block, block = -T(0);
                }
            });
            to[q] = (total + block) / (ties == Ties::split ? static_cast<T>(winners) : T(1));
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
    if (ties == Ties::first && Planes<T>::suits(pool)) {
        const i64 done = Planes<T>(pool)(planes, x, g, dx);
        planes -= done, x += done * n, g += done * pool.cells_out, dx += done * n;
        if (planes == 0) return;
    }
    if (ties == Ties::first && Tiles<T>::suits(pool)) return Tiles<T>(pool, x + planes * n, g + planes * pool.cells_out)(planes, x, g, dx);
    if (ties == Ties::first && Claims<T>::suits(pool)) return Claims<T>(pool, x + planes * n)(planes, x, g, dx);
    if (ties == Ties::first) {
        using Op = MaxPlace<T>;
        auto each = [&](const T*, const T* gp, i64, i64 count, typename Op::Ref found, T* dp, Deposits<T>& deposits,
                        bool marking, bool whole) {
            for (i64 q = 0; q < count; ++q) {
                i64 i = found.p[q];
                if (!whole && !deposits.holds(i)) continue;
                if (marking) dp[i] = -T(0);
                else deposits.add(i, gp[q]), deposits.output_done();
            }
        };
        return scatter<Op>(pool, planes, x, g, dx, each);
    }
    using Op = MaxValue<T>;
    auto each = [&](const T* xp, const T* gp, i64 o, i64 count, typename Op::Ref found, T* dp, Deposits<T>& deposits,
                    bool marking, bool) {
        for (i64 q = 0; q < count; ++q) {
            const T best = found.v[q];
            const T share = ties == Ties::split ? gp[q] / static_cast<T>(count_winners(pool, xp, o + q, best)) : gp[q];
            each_run(pool, o + q, [&](i64 at, i64 n, i64 step) {
                for (i64 i = at; i < at + n * step; i += step) {
                    if (!wins(xp[i], best) || !deposits.holds(i)) continue;
                    if (marking) dp[i] = -T(0);
                    else deposits.add(i, share);
                }
            });
            deposits.output_done();
        }
    };
    scatter<Op>(pool, planes, x, g, dx, each);
}

template void max_pool<float>(const Pool&, i64, const float*, float*, i64*);
template void max_pool<double>(const Pool&, i64, const double*, double*, i64*);
template void max_pool_jvp<float>(const Pool&, i64, const float*, const float*, float*, Ties);
template void max_pool_jvp<double>(const Pool&, i64, const double*, const double*, double*, Ties);
template void max_pool_vjp<float>(const Pool&, i64, const float*, const float*, float*, Ties);
template void max_pool_vjp<double>(const Pool&, i64, const double*, const double*, double*, Ties);

}  // namespace lunette::LN_ISA
