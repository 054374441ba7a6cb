// The greatest cell of each window, and where it is.
#include <limits>

#include "operators.hpp"
#include "reduce.hpp"

namespace lunette::LN_ISA {
namespace {

constexpr auto npos = static_cast<i64>(-1);

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
        auto a = odd(load<L>(x + i)) | odd(load<L>(x + i + L));
        auto b = odd(load<L>(x + i + 2 * L)) | odd(load<L>(x + i + 3 * L));
        found |= a | b;
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

template <class T, bool careful = false>
struct MaxValue {
    using Scalar = T;
    using Careful = MaxValue<T, true>;
    static constexpr bool idempotent = true;
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
        void pair(i64 i, Cell<N>& even, Cell<N>& odd) const {
            unzip<N>(load<N>(v + i), load<N>(v + i + N), even.v, odd.v);
        }
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

    template <class C>
    static C join(C a, C b) { return {later_wins<careful>(a.v, b.v) ? b.v : a.v}; }

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
        T best = v[0];
        for (int l = 1; l < L; ++l) best = v[l] > best ? v[l] : best;
        if (best == 0)
            for (j = 0; j < n; ++j)
                if (x[j] == 0) return {x[j]};
        return {best};
    }
};

template <class T, bool careful = false>
struct MaxPlace {
    using Scalar = T;
    using I = Int<T>;
    using Careful = MaxPlace<T, true>;
    static constexpr bool idempotent = true;
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
        void pair(i64 i, Cell<N>& even, Cell<N>& odd) const {
            unzip<N>(load<N>(v + i), load<N>(v + i + N), even.v, odd.v);
            even.p = iota<N, I>(0, 2) + static_cast<I>(base + i), odd.p = even.p + 1;
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

    template <class C>
    static C join(C a, C b) {
        auto later = later_wins<careful>(a.v, b.v);
        return {later ? b.v : a.v, later ? b.p : a.p};
    }

    static Cell<1> run(Source s, i64 i, i64 n) {
        constexpr int L = lanes<T>;
        Cell<L> c[2] = {s.template get<L>(i), s.template get<L>(i + L)};
        i64 j = 2 * L;
        for (; j + 2 * L <= n; j += 2 * L)
            for (int w = 0; w < 2; ++w) c[w] = join(c[w], s.template get<L>(i + j + w * L));
        Cell<1> best = {c[0].v[0], c[0].p[0]};
        for (auto& part : c)
            for (int l = 0; l < L; ++l)
                if (part.v[l] > best.v || (part.v[l] == best.v && part.p[l] < best.p)) best = {part.v[l], part.p[l]};
        for (; j < n; ++j) best = join(best, s.template get<1>(i + j));
        return best;
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
        i64 count = (o1 - o0) * rest;
        char* memory = static_cast<char*>(scratch(reducer.bytes() + 2 * (count * sizeof(T) + 64)));
        typename Op::Ref found = Op::make(memory, count);
        for (i64 p = p0; p < p1; ++p) {
            reducer.run(0, x + p * pool.cells_in, 0, o0, o1, found, memory);
            f(p, o0 * rest, count, found.v, found.p);
        }
    });
}

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

template void max_pool<float>(const Pool&, i64, const float*, float*, i64*);
template void max_pool<double>(const Pool&, i64, const double*, double*, i64*);

}  // namespace lunette::LN_ISA
